//! Sends questions to peers in the background, and keeps the last answers.
//!
//! A question is first sent in the prompt lane, where the peer has a moment to answer. A peer that does not is asked a
//! second time in the patient lane, and stays there as long as it is slow or fails. So peers that hang delay only each
//! other: those that answer promptly have a lane of their own, and those that answer slowly come first in the patient
//! one, where they wait for one time-out at most.

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Display;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use crate::clock::monotonic;
use crate::engine::backoff;
use crate::engine::panics::caught;

/// The requeue while a question is being asked, in case its answer is lost.
const LOST_ANSWER_REQUEUE: Duration = Duration::from_secs(30);
/// After this many failures in a row the backoff, then between 16 and 32 s, stops growing.
const DOUBLINGS: u32 = 6;

/// The peers of a prober: how a question is sent, and what an answer means for the next request.
#[async_trait]
pub trait Peers<K, Q, A>: Send + Sync {
    /// Sends a question, with a time-out of its own. `previous` is the last answer to it.
    async fn ask(&self, key: &K, question: &Q, previous: Option<A>) -> A;

    /// The answer to a question whose request panicked.
    fn panicked(&self, why: String) -> A;

    /// How long an answer is valid, after which the question is asked again. `None`: the request failed and is
    /// repeated after a backoff.
    fn validity(&self, question: &Q, answer: &A) -> Option<Duration>;

    /// True if two questions go to the same peer, so that a backoff applies to both.
    fn have_same_peer(&self, one: &Q, other: &Q) -> bool;
}

/// The limits of a prober.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The time-out in the prompt lane. `None`: every question is asked in the patient lane.
    pub prompt: Option<Duration>,
    /// The most concurrent requests in each lane.
    pub concurrency: usize,
}

/// The state of a question.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct AnswerState<A> {
    /// The last answer; `None`: not asked yet.
    pub last: Option<A>,
    /// True if the answer is current; an older one is being refreshed.
    pub is_fresh: bool,
    /// When to requeue, unless an answer comes first.
    pub again: Duration,
}

/// Sends the question of each key in the background, and keeps its last answer.
pub struct Prober<K, Q, A> {
    peers: Arc<dyn Peers<K, Q, A>>,
    limits: Limits,
    state: Mutex<State<K, Q, A>>,
    queued: Notify,
}

struct State<K, Q, A> {
    probes: BTreeMap<K, Probe<Q, A>>,
    prompt: VecDeque<K>,
    patient: VecDeque<K>,
    /// The number of questions and attempts so far.
    count: u64,
}

struct Probe<Q, A> {
    /// Distinguishes it from earlier questions of its key, whose answers do not count.
    id: u64,
    question: Q,
    answer: Option<A>,
    /// When the question is due.
    due: Instant,
    /// The number of failures in a row.
    failures: u32,
    /// True if the peer did not answer within the time-out of the prompt lane.
    is_slow: bool,
    progress: Progress,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Progress {
    Idle,
    Queued,
    /// With the number of the attempt, whose answer counts.
    Running(u64),
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Lane {
    Prompt,
    Patient,
}

/// A request to send.
struct Attempt<K, Q, A> {
    key: K,
    number: u64,
    /// The probe of the question.
    id: u64,
    question: Q,
    previous: Option<A>,
    lane: Lane,
}

impl<K, Q, A> Prober<K, Q, A>
where
    K: Clone + Display + Ord + Send + Sync + 'static,
    Q: Clone + PartialEq + Send + Sync + 'static,
    A: Clone + Send + 'static,
{
    /// A prober without questions.
    #[must_use]
    pub fn new(peers: Arc<dyn Peers<K, Q, A>>, limits: Limits) -> Arc<Self> {
        let (prompt, patient) = (VecDeque::new(), VecDeque::new());
        let state = State { probes: BTreeMap::new(), prompt, patient, count: 0 };
        Arc::new(Self { peers, limits, state: Mutex::new(state), queued: Notify::new() })
    }

    /// The last answer to a question. Queues the question if it is due. A question that is new to this process is due
    /// after `first`.
    pub fn ask(&self, key: &K, question: Q, first: Duration) -> AnswerState<A> {
        let now = monotonic();
        let mut guard = self.state();
        let state = &mut *guard;
        let known = state.probes.get_mut(key);
        if known.as_ref().is_none_or(|probe| probe.question != question) {
            self.replace(state, key, question, now + first);
        }
        let Some(probe) = state.probes.get_mut(key) else {
            return AnswerState { last: None, is_fresh: false, again: LOST_ANSWER_REQUEUE };
        };
        let last = probe.answer.clone();
        if now < probe.due {
            return AnswerState { is_fresh: last.is_some(), last, again: probe.due - now };
        }
        self.enqueue(state, key);
        AnswerState { last, is_fresh: false, again: LOST_ANSWER_REQUEUE }
    }

    /// The last answer to a question, if it is the current one of its key. Queues nothing.
    #[must_use]
    pub fn last(&self, key: &K, question: &Q) -> Option<A> {
        self.state().probes.get(key).filter(|probe| probe.question == *question)?.answer.clone()
    }

    /// Drops the question of a key.
    pub fn forget(&self, key: &K) {
        self.state().probes.remove(key);
    }

    /// Sends the queued questions forever. Calls `on_answer` for each new answer.
    pub async fn run(&self, on_answer: impl Fn(&K)) {
        let mut running = JoinSet::new();
        let (mut prompt, mut patient) = (0, 0);
        loop {
            for (lane, count) in [(Lane::Prompt, &mut prompt), (Lane::Patient, &mut patient)] {
                while *count < self.limits.concurrency
                    && let Some(attempt) = self.take(lane)
                {
                    *count += 1;
                    let send = self.send(attempt);
                    running.spawn(send);
                }
            }
            // Always in this order: the default of tokio is random.
            tokio::select! {
                biased;
                Some(Ok((attempt, began, answer))) = running.join_next() => {
                    match attempt.lane {
                        Lane::Prompt => prompt -= 1,
                        Lane::Patient => patient -= 1,
                    }
                    if self.keep(&attempt, began, answer) {
                        on_answer(&attempt.key);
                    }
                }
                () = self.queued.notified() => {}
            }
        }
    }

    /// Sends a request; `None`: it was not answered within the time-out of the prompt lane.
    fn send(
        &self,
        attempt: Attempt<K, Q, A>,
    ) -> impl Future<Output = (Attempt<K, Q, A>, Instant, Option<A>)> + Send + 'static {
        let peers = self.peers.clone();
        let deadline = self.limits.prompt.filter(|_| attempt.lane == Lane::Prompt);
        async move {
            let began = monotonic();
            let asked = peers.ask(&attempt.key, &attempt.question, attempt.previous.clone());
            // A panic of a client of an embedder's own: without an answer the peer would never be asked again.
            let asked = caught("the request panicked", asked);
            let asked = async { asked.await.unwrap_or_else(|why| peers.panicked(why)) };
            let answer = match deadline {
                Some(deadline) => timeout(deadline, asked).await.ok(),
                None => Some(asked.await),
            };
            (attempt, began, answer)
        }
    }

    /// Starts a question. One to the same peer keeps the pace, so that a peer that does not answer is not asked more
    /// often because it is asked something else.
    fn replace(&self, state: &mut State<K, Q, A>, key: &K, question: Q, due: Instant) {
        state.count += 1;
        let mut probe = Probe {
            id: state.count,
            question,
            answer: None,
            due,
            failures: 0,
            is_slow: false,
            progress: Progress::Idle,
        };
        if let Some(old) = state.probes.get(key) {
            probe.progress = old.progress;
            if self.peers.have_same_peer(&old.question, &probe.question) {
                (probe.failures, probe.is_slow) = (old.failures, old.is_slow);
                if old.failures > 0 {
                    probe.due = old.due.max(due);
                }
            }
        }
        state.probes.insert(key.clone(), probe);
    }

    fn enqueue(&self, state: &mut State<K, Q, A>, key: &K) {
        let Some(probe) = state.probes.get_mut(key) else { return };
        match probe.progress {
            Progress::Idle => probe.progress = Progress::Queued,
            // The end of the request queues what is still due.
            Progress::Queued | Progress::Running(_) => return,
        }
        let key = key.clone();
        match self.lane(probe) {
            Lane::Prompt => state.prompt.push_back(key),
            Lane::Patient if probe.failures == 0 && probe.answer.is_some() => state.patient.push_front(key),
            Lane::Patient => state.patient.push_back(key),
        }
        self.queued.notify_one();
    }

    fn lane(&self, probe: &Probe<Q, A>) -> Lane {
        if self.limits.prompt.is_some() && !probe.is_slow && probe.failures == 0 {
            Lane::Prompt
        } else {
            Lane::Patient
        }
    }

    /// The next request of a lane.
    fn take(&self, lane: Lane) -> Option<Attempt<K, Q, A>> {
        let mut guard = self.state();
        let state = &mut *guard;
        let queue = match lane {
            Lane::Prompt => &mut state.prompt,
            Lane::Patient => &mut state.patient,
        };
        while let Some(key) = queue.pop_front() {
            let probe = state.probes.get_mut(&key).filter(|probe| probe.progress == Progress::Queued);
            let Some(probe) = probe else { continue };
            state.count += 1;
            let number = state.count;
            probe.progress = Progress::Running(number);
            let (id, question, previous) = (probe.id, probe.question.clone(), probe.answer.clone());
            return Some(Attempt { key, number, id, question, previous, lane });
        }
        None
    }

    /// Stores an answer; `None`: it was too slow for the prompt lane. True if the answer is new.
    fn keep(&self, attempt: &Attempt<K, Q, A>, began: Instant, answer: Option<A>) -> bool {
        let now = monotonic();
        let mut guard = self.state();
        let state = &mut *guard;
        let key = &attempt.key;
        let Some(probe) = state.probes.get_mut(key) else { return false };
        if probe.progress != Progress::Running(attempt.number) {
            return false;
        }
        probe.progress = Progress::Idle;
        let is_current = probe.id == attempt.id;
        if is_current || self.peers.have_same_peer(&probe.question, &attempt.question) {
            let validity = answer.as_ref().map(|answer| self.peers.validity(&attempt.question, answer));
            probe.is_slow = answer.is_none()
                || self.limits.prompt.is_some_and(|prompt| now.duration_since(began) > prompt);
            match validity {
                Some(Some(valid)) => {
                    probe.failures = 0;
                    if is_current {
                        probe.due = now + valid;
                    }
                }
                Some(None) => {
                    probe.failures = (probe.failures + 1).min(DOUBLINGS);
                    probe.due = now + backoff(&key.to_string(), probe.failures);
                }
                None => {}
            }
        }
        let is_news = is_current && answer.is_some();
        if is_news {
            probe.answer = answer;
        }
        if now >= probe.due {
            self.enqueue(state, key);
        }
        is_news
    }

    /// Never held across an await.
    fn state(&self) -> MutexGuard<'_, State<K, Q, A>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends all queued questions, one after the other. True if there is a new answer.
    #[cfg(test)]
    pub async fn answer_all(&self) -> bool {
        let mut is_news = false;
        while let Some(attempt) = self.take(Lane::Prompt).or_else(|| self.take(Lane::Patient)) {
            let (attempt, began, answer) = self.send(attempt).await;
            is_news |= self.keep(&attempt, began, answer);
        }
        is_news
    }

    /// The number of keys with a question.
    #[cfg(test)]
    pub fn known(&self) -> usize {
        self.state().probes.len()
    }
}
