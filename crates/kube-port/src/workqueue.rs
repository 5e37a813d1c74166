//! The workqueue: which objects to reconcile, and when. An object is reconciled by one worker at a time. The object
//! that is due first comes first; of two that are due at the same time, the one that was added first. The order is
//! deterministic (the controller of kube-rs polls in the order of a random hash), so that a run can be replayed.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::{JoinError, JoinSet};
use tokio::time::Instant;
use tracing::error;

use crate::Key;
use crate::metrics::SharedMetrics;
use windlass_clock::monotonic;
use windlass_engine::panics::caught;

/// The requeue delay after a panic. It doubles with each panic in a row.
const AFTER_PANIC: Duration = Duration::from_secs(1);
/// The longest requeue delay after a panic.
const AFTER_PANIC_MAX: Duration = Duration::from_mins(1);

/// A request to reconcile an object.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Request {
    /// The object.
    pub key: Key,
    /// How long the request may wait.
    pub after: Duration,
}

impl Request {
    /// A request that may wait this long. Other requests for the object in that time are served by the same reconcile.
    #[must_use]
    pub fn after(key: Key, after: Duration) -> Self {
        Self { key, after }
    }
}

/// A request that is due at once.
impl From<Key> for Request {
    fn from(key: Key) -> Self {
        Self { key, after: Duration::ZERO }
    }
}

/// The objects that are queued, being reconciled, or resting.
#[derive(Debug, Default)]
struct Queue {
    order: BTreeMap<(Instant, u64), Key>,
    waiting: BTreeMap<Key, (Instant, u64)>,
    /// Objects that are being reconciled, and when each is due again, if that is known.
    taken: BTreeMap<Key, Option<Instant>>,
    /// Objects that were reconciled recently, and until when each is not reconciled again.
    resting: BTreeMap<Key, Instant>,
    /// Objects whose last reconcile panicked, and the number of panics in a row.
    panics: BTreeMap<Key, u32>,
    /// The number of entries so far. It orders objects that are due at the same time.
    listed: u64,
}

impl Queue {
    /// Queues an object. If it is already queued, the earlier time counts. An object that rests is due after its rest.
    fn add(&mut self, key: Key, at: Instant) {
        let at = self.resting.get(&key).map_or(at, |until| at.max(*until));
        if let Some(again) = self.taken.get_mut(&key) {
            *again = Some(again.map_or(at, |known| known.min(at)));
            return;
        }
        if let Some(known) = self.waiting.get(&key) {
            if known.0 <= at {
                return;
            }
            self.order.remove(known);
        }
        self.listed += 1;
        self.order.insert((at, self.listed), key.clone());
        self.waiting.insert(key, (at, self.listed));
    }

    fn next_due(&self) -> Option<Instant> {
        self.order.first_key_value().map(|((at, _), _)| *at)
    }

    /// The number of objects that are due.
    fn due(&self, now: Instant) -> usize {
        self.order.range(..=(now, u64::MAX)).count()
    }

    /// Takes the first object that is due, with the time at which it became due.
    fn take(&mut self, now: Instant) -> Option<(Key, Instant)> {
        let entry = self.order.first_entry().filter(|entry| entry.key().0 <= now)?;
        let ((since, _), key) = entry.remove_entry();
        self.waiting.remove(&key);
        self.resting.remove(&key);
        self.taken.insert(key.clone(), None);
        Some((key, since))
    }

    /// Ends the reconcile of an object, which rests until this time. The object is queued if it was requested in the
    /// meantime.
    fn done(&mut self, key: Key, until: Option<Instant>) {
        if let Some(until) = until {
            self.resting.insert(key.clone(), until);
        }
        if let Some(Some(at)) = self.taken.remove(&key) {
            self.add(key, at);
        }
    }

    /// Counts a panic of an object's reconcile. Returns the requeue delay.
    fn panicked(&mut self, key: &Key) -> Duration {
        let count = self.panics.entry(key.clone()).or_default();
        *count = count.saturating_add(1);
        (AFTER_PANIC * (1 << (*count - 1).min(6))).min(AFTER_PANIC_MAX)
    }
}

/// The metrics that count a queue, and the kind that labels them.
#[derive(Clone)]
pub struct Counted {
    /// The metrics.
    pub metrics: SharedMetrics,
    /// The kind of the objects in the queue.
    pub kind: &'static str,
}

type Shared = Arc<Mutex<Queue>>;

fn lock(queue: &Shared) -> MutexGuard<'_, Queue> {
    queue.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Counts the operations on a queue, if there are metrics.
struct Counting(Option<Counted>);

impl Counting {
    fn add(&self, queue: &mut Queue, key: Key, at: Instant) {
        if let Some(Counted { metrics, kind }) = &self.0 {
            metrics.queued(kind);
        }
        queue.add(key, at);
    }

    fn request(&self, queue: &mut Queue, request: impl Into<Request>) {
        let Request { key, after } = request.into();
        self.add(queue, key, monotonic() + after);
    }

    fn take(&self, queue: &Shared) -> Option<Key> {
        let now = monotonic();
        let (key, since) = lock(queue).take(now)?;
        if let Some(Counted { metrics, kind }) = &self.0 {
            metrics.taken(kind, now.duration_since(since));
        }
        Some(key)
    }

    fn panicked(&self, took: Duration) {
        if let Some(Counted { metrics, kind }) = &self.0 {
            metrics.reconciled(kind, "panic", took);
            metrics.retried(kind);
        }
    }

    fn kind(&self) -> Option<&'static str> {
        self.0.as_ref().map(|counted| counted.kind)
    }
}

/// A reconcile that has ended.
struct Ended {
    key: Key,
    /// What it returned, or a sentence about its panic.
    again: Result<Option<Duration>, String>,
    took: Duration,
}

/// Reconciles each requested object, at most `concurrency` of them at the same time, until `shutdown` resolves.
/// Reconciles that run then are finished first.
///
/// `reconcile` returns the requeue delay; `None` if the object is not reconciled again until it is requested. `rest`
/// returns how long the object is not reconciled after that, whatever is requested: one reconcile serves all requests
/// of that time.
///
/// A panic is a bug in the reconcile of one object. It is logged with the object, which is reconciled again after a
/// backoff; the others continue. If it ended the process, the next one would read the same objects and panic again.
pub async fn run_workqueue<F>(
    mut requests: UnboundedReceiver<impl Into<Request>>,
    concurrency: u16,
    reconcile: impl Fn(Key) -> F,
    rest: impl Fn(&Key) -> Duration,
    counted: Option<Counted>,
    shutdown: impl Future<Output = ()>,
) where
    F: Future<Output = Option<Duration>> + Send + 'static,
{
    let queue = Shared::default();
    let observed = queue.clone();
    if let Some(counted) = &counted {
        counted.metrics.queue(counted.kind, Box::new(move || lock(&observed).due(monotonic())));
    }
    let counted = Counting(counted);
    let mut running = JoinSet::new();
    let mut shutdown = std::pin::pin!(shutdown);
    loop {
        while running.len() < usize::from(concurrency)
            && let Some(key) = counted.take(&queue)
        {
            let looked = reconcile(key.clone());
            running.spawn(async move {
                let began = monotonic();
                let again = caught("it panicked", looked).await;
                Ended { key, again, took: monotonic().duration_since(began) }
            });
        }
        let is_full = running.len() >= usize::from(concurrency);
        let due = lock(&queue).next_due().filter(|_| !is_full);
        // Always in this order: the default of tokio is random.
        tokio::select! {
            biased;
            () = &mut shutdown => break,
            Some(ended) = running.join_next() => end(&queue, ended, &rest, &counted),
            request = requests.recv() => {
                let Some(request) = request else { break };
                let mut queue = lock(&queue);
                counted.request(&mut queue, request);
                while let Ok(request) = requests.try_recv() {
                    counted.request(&mut queue, request);
                }
            }
            () = until(due) => {}
        }
    }
    while let Some(ended) = running.join_next().await {
        end(&queue, ended, &rest, &counted);
    }
}

async fn until(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due).await,
        None => std::future::pending().await,
    }
}

fn end(queue: &Shared, ended: Result<Ended, JoinError>, rest: impl Fn(&Key) -> Duration, counted: &Counting) {
    // An error is of a reconcile that was aborted: its own panics are caught.
    let Ok(Ended { key, again, took }) = ended else { return };
    match again {
        Ok(again) => {
            let rest = rest(&key);
            let mut queue = lock(queue);
            queue.panics.remove(&key);
            let until = again.filter(|_| !rest.is_zero()).map(|_| monotonic() + rest);
            if let Some(after) = again {
                counted.add(&mut queue, key.clone(), monotonic() + after);
            }
            queue.done(key, until);
        }
        Err(why) => {
            counted.panicked(took);
            let mut queue = lock(queue);
            let wait = queue.panicked(&key);
            error!(kind = counted.kind(), object = %key, why, ?wait, "a reconcile panicked; will retry");
            // It rests as well: the events of a busy object must not turn the backoff into a hot loop.
            let until = monotonic() + wait;
            counted.add(&mut queue, key.clone(), until);
            queue.done(key, Some(until));
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    use tokio::sync::mpsc::unbounded_channel;
    use tokio::time::sleep;

    use super::*;
    use crate::metrics::{PortMetrics, QueueDepth};

    /// Counts panics and retries.
    #[derive(Default)]
    struct Counts {
        panics: AtomicUsize,
        retries: AtomicUsize,
    }

    impl PortMetrics for Counts {
        fn count_request(&self, _: &'static str, _: String, _: Option<u16>, _: Duration) {}

        fn reconciled(&self, kind: &'static str, outcome: &'static str, _: Duration) {
            assert_eq!((kind, outcome), ("StatefulNode", "panic"));
            self.panics.fetch_add(1, Ordering::SeqCst);
        }

        fn queued(&self, _: &'static str) {}

        fn taken(&self, _: &'static str, _: Duration) {}

        fn retried(&self, _: &'static str) {
            self.retries.fetch_add(1, Ordering::SeqCst);
        }

        fn queue(&self, _: &'static str, _: QueueDepth) {}
    }

    fn take(queue: &mut Queue, now: Instant) -> Option<Key> {
        queue.take(now).map(|(key, _)| key)
    }

    fn key(name: &str) -> Key {
        Key::new("shop", name)
    }

    #[tokio::test(start_paused = true)]
    async fn due_objects_are_taken_in_the_order_of_their_requests() {
        let mut queue = Queue::default();
        let now = monotonic();
        for name in ["c", "a", "b", "a"] {
            queue.add(key(name), now);
        }
        queue.add(key("first"), now - Duration::from_secs(1));
        assert_eq!(queue.due(now), 4);
        let taken: Vec<Key> = std::iter::from_fn(|| take(&mut queue, now)).collect();
        assert_eq!(queue.due(now), 0);
        assert_eq!(taken, [key("first"), key("c"), key("a"), key("b")]);
    }

    #[tokio::test(start_paused = true)]
    async fn earlier_of_two_due_times_applies() {
        let mut queue = Queue::default();
        let (now, second) = (monotonic(), Duration::from_secs(1));
        queue.add(key("a"), now + second);
        queue.add(key("a"), now + second * 2);
        assert_eq!(queue.next_due(), Some(now + second));
        queue.add(key("a"), now);
        assert_eq!((take(&mut queue, now), take(&mut queue, now + second * 9)), (Some(key("a")), None));
    }

    #[tokio::test(start_paused = true)]
    async fn object_is_reconciled_by_one_worker_and_again_after_a_change() {
        let mut queue = Queue::default();
        let now = monotonic();
        queue.add(key("a"), now);
        assert_eq!(take(&mut queue, now), Some(key("a")));
        queue.add(key("a"), now);
        assert_eq!(take(&mut queue, now), None);
        queue.done(key("a"), None);
        assert_eq!(take(&mut queue, now), Some(key("a")));
        queue.done(key("a"), None);
        assert_eq!((queue.next_due(), queue.taken.len()), (None, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn changes_during_the_rest_period_are_reconciled_once_after_it() {
        let (tell, told) = unbounded_channel::<Key>();
        let began = monotonic();
        let times: Arc<Mutex<Vec<u128>>> = Arc::default();
        let reconcile = |_| {
            times.lock().unwrap().push(monotonic().duration_since(began).as_millis());
            async { Some(Duration::from_hours(2)) }
        };
        let telling = async {
            // The object is reconciled at once if its rest is over, and otherwise at the end of its rest.
            for wait in [0, 10, 10, 10, 200, 50] {
                sleep(Duration::from_millis(wait)).await;
                tell.send(key("a")).unwrap();
            }
            sleep(Duration::from_hours(1)).await;
        };
        run_workqueue(told, 4, reconcile, |_| Duration::from_millis(100), None, telling).await;
        assert_eq!(*times.lock().unwrap(), [0, 100, 230, 330]);
    }

    #[tokio::test(start_paused = true)]
    async fn delayed_request_is_served_by_an_earlier_due_reconcile() {
        let (send, requests) = unbounded_channel::<Request>();
        let began = monotonic();
        let times: Arc<Mutex<Vec<u128>>> = Arc::default();
        let reconcile = |_| {
            times.lock().unwrap().push(monotonic().duration_since(began).as_millis());
            async { Some(Duration::from_hours(2)) }
        };
        let later = || Request::after(key("a"), Duration::from_millis(200));
        let sending = async {
            send.send(later()).unwrap();
            sleep(Duration::from_millis(150)).await;
            send.send(later()).unwrap();
            sleep(Duration::from_millis(150)).await;
            send.send(later()).unwrap();
            sleep(Duration::from_millis(50)).await;
            send.send(key("a").into()).unwrap();
            sleep(Duration::from_hours(1)).await;
        };
        run_workqueue(requests, 4, reconcile, |_| Duration::ZERO, None, sending).await;
        assert_eq!(*times.lock().unwrap(), [200, 350]);
    }

    #[tokio::test(start_paused = true)]
    async fn concurrency_is_bounded_and_shutdown_waits_for_reconciles() {
        let (tell, told) = unbounded_channel::<Key>();
        for index in 0..5 {
            tell.send(key(&index.to_string())).unwrap();
        }
        let log: Arc<Mutex<(i32, i32, i32)>> = Arc::default();
        let reconcile = |_| {
            let log = log.clone();
            async move {
                {
                    let mut log = log.lock().unwrap();
                    log.0 += 1;
                    log.1 = log.1.max(log.0);
                }
                sleep(Duration::from_secs(10)).await;
                let mut log = log.lock().unwrap();
                (log.0, log.2) = (log.0 - 1, log.2 + 1);
                None
            }
        };
        run_workqueue(told, 2, reconcile, |_| Duration::ZERO, None, sleep(Duration::from_secs(15))).await;
        assert_eq!(*log.lock().unwrap(), (0, 2, 4));
    }

    #[tokio::test(start_paused = true)]
    async fn panicking_reconcile_is_retried_and_others_continue() {
        let (tell, told) = unbounded_channel::<Key>();
        let began = monotonic();
        let times: Arc<Mutex<Vec<(String, u64)>>> = Arc::default();
        let is_well = Arc::new(AtomicBool::new(false));
        let reconcile = |key: Key| {
            let (times, is_well) = (times.clone(), is_well.clone());
            async move {
                times.lock().unwrap().push((key.name.clone(), monotonic().duration_since(began).as_secs()));
                assert!(key.name == "b" || is_well.load(Ordering::SeqCst), "a bug in {}", key.name);
                None
            }
        };
        let telling = async {
            let both = || {
                for name in ["a", "b"] {
                    tell.send(key(name)).unwrap();
                }
            };
            both();
            sleep(Duration::from_secs(5)).await;
            // An event does not shorten the backoff.
            both();
            sleep(Duration::from_secs(145)).await;
            is_well.store(true, Ordering::SeqCst);
            sleep(Duration::from_secs(50)).await;
            // A reconcile without a panic ends the row.
            is_well.store(false, Ordering::SeqCst);
            tell.send(key("a")).unwrap();
            sleep(Duration::from_secs(2)).await;
        };
        let metrics = Arc::new(Counts::default());
        let counted = Some(Counted { metrics: metrics.clone(), kind: "StatefulNode" });
        run_workqueue(told, 4, reconcile, |_| Duration::ZERO, counted, telling).await;
        let times = times.lock().unwrap().clone();
        let of =
            |name: &str| times.iter().filter(|(of, _)| of == name).map(|(_, at)| *at).collect::<Vec<_>>();
        assert_eq!(of("b"), [0, 5]);
        assert_eq!(of("a"), [0, 1, 3, 7, 15, 31, 63, 123, 183, 200, 201]);
        assert_eq!((metrics.panics.load(Ordering::SeqCst), metrics.retries.load(Ordering::SeqCst)), (10, 10));
    }

    #[tokio::test(start_paused = true)]
    async fn object_is_requeued_only_if_its_reconcile_requests_it() {
        let (tell, told) = unbounded_channel::<Key>();
        tell.send(key("a")).unwrap();
        let began = monotonic();
        let times: Arc<Mutex<Vec<u64>>> = Arc::default();
        let reconcile = |_| {
            let times = times.clone();
            async move {
                let mut times = times.lock().unwrap();
                times.push(monotonic().duration_since(began).as_secs());
                (times.len() < 3).then_some(Duration::from_mins(1))
            }
        };
        run_workqueue(told, 1, reconcile, |_| Duration::ZERO, None, sleep(Duration::from_hours(1))).await;
        assert_eq!(*times.lock().unwrap(), [0, 60, 120]);
    }
}
