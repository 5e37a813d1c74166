//! Runs the requests to sidecars and to the peers of hooks. Each lane sends a bounded number of requests at a time, and
//! an answer requeues the node or fleet. The order comes from the same workqueue as that of the objects, so that a run
//! can be replayed.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::mpsc::UnboundedSender;

use crate::asking::hooks::{
    HOOKS_AT_ONCE, HookAskers, HookClient, HookLanes, HookOwner, HookReply, HookRequest,
};
use crate::asking::{AT_ONCE, Askers, Lane, Lanes};
use crate::cluster::Key;
use windlass_kube_port::workqueue::{Request, run_workqueue};

/// Sends the requested questions to sidecars forever.
pub(super) async fn ask_sidecars(askers: Arc<Askers>, lanes: Lanes, nodes: UnboundedSender<Request>) {
    let ask = |lane| {
        let (askers, nodes) = (askers.clone(), nodes.clone());
        move |key: Key| {
            let (askers, nodes) = (askers.clone(), nodes.clone());
            async move {
                if askers.answer(&key, lane).await {
                    // The receiver is gone only when the operator stops.
                    let _ = nodes.send(key.into());
                }
                None
            }
        }
    };
    let never = std::future::pending::<()>;
    let prompt = run_workqueue(lanes.prompt, AT_ONCE, ask(Lane::Prompt), |_| Duration::ZERO, None, never());
    let patient =
        run_workqueue(lanes.patient, AT_ONCE, ask(Lane::Patient), |_| Duration::ZERO, None, never());
    let slow = run_workqueue(lanes.slow, AT_ONCE, ask(Lane::Slow), |_| Duration::ZERO, None, never());
    tokio::join!(prompt, slow, patient);
}

/// Sends requests to the peers of hooks forever. Requeues the fleets and nodes that got a new answer.
pub(super) async fn ask_for_hooks(
    askers: Arc<HookAskers>,
    lanes: HookLanes,
    (fleets, nodes): (UnboundedSender<Request>, UnboundedSender<Request>),
) {
    let ask = |owner: fn(Key) -> HookOwner, requests: UnboundedSender<Request>| {
        let askers = askers.clone();
        move |key: Key| {
            let (askers, requests) = (askers.clone(), requests.clone());
            async move {
                if askers.answer(&owner(key.clone())).await {
                    // The receiver is gone only when the operator stops.
                    let _ = requests.send(key.into());
                }
                None
            }
        }
    };
    let never = std::future::pending::<()>;
    let of_fleets = ask(HookOwner::Fleet, fleets);
    let of_nodes = ask(HookOwner::Node, nodes);
    let for_fleets = run_workqueue(lanes.fleets, HOOKS_AT_ONCE, of_fleets, |_| Duration::ZERO, None, never());
    let for_nodes = run_workqueue(lanes.nodes, HOOKS_AT_ONCE, of_nodes, |_| Duration::ZERO, None, never());
    tokio::join!(for_fleets, for_nodes);
}

/// A client that sends nothing while this replica does not lead: another replica asks the same peers.
pub(super) struct Fenced {
    client: Arc<dyn HookClient>,
    may_ask: Box<dyn Fn() -> bool + Send + Sync>,
}

impl Fenced {
    pub(super) fn new(
        client: Arc<dyn HookClient>,
        may_ask: impl Fn() -> bool + Send + Sync + 'static,
    ) -> Self {
        Self { client, may_ask: Box::new(may_ask) }
    }
}

#[async_trait]
impl HookClient for Fenced {
    async fn send(&self, request: HookRequest) -> Result<HookReply, String> {
        if !(self.may_ask)() {
            return Err("was not asked: this replica does not lead any more".to_owned());
        }
        self.client.send(request).await
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Mutex;

    use async_trait::async_trait;
    use tokio::sync::mpsc::unbounded_channel;
    use tokio::time::{Instant, sleep};

    use super::*;
    use crate::asking::{Peer, Question, Wish};
    use crate::clock::monotonic;
    use crate::cluster::MockCluster;
    use crate::sidecar::{SidecarClient, SidecarError, Status, TaskAnswer, TaskRequest};

    /// Peers whose name begins with `cut` never answer. Peers whose name begins with `slow` take half a second.
    #[derive(Default)]
    struct Dropped {
        at_once: Mutex<(usize, usize)>,
    }

    #[async_trait]
    impl SidecarClient for Dropped {
        async fn status(&self, url: &str) -> Result<Status, SidecarError> {
            if !url.starts_with("cut") {
                sleep(Duration::from_millis(if url.starts_with("slow") { 500 } else { 2 })).await;
                return Ok(Status { ready: true, ..Status::default() });
            }
            {
                let mut at_once = self.at_once.lock().unwrap();
                at_once.0 += 1;
                at_once.1 = at_once.1.max(at_once.0);
            }
            let _end = OneLess(&self.at_once);
            sleep(Duration::from_secs(2)).await;
            Err(SidecarError::Unreachable("it did not answer".to_owned()))
        }

        async fn submit<'a>(&self, _: &str, _: &TaskRequest, _: Option<&'a str>) -> Result<(), SidecarError> {
            Ok(())
        }

        async fn task(&self, _: &str, _: &str) -> Result<Option<TaskAnswer>, SidecarError> {
            Ok(None)
        }
    }

    /// Decrements the counter when it is dropped: a request may be dropped in flight.
    struct OneLess<'a>(&'a Mutex<(usize, usize)>);

    impl Drop for OneLess<'_> {
        fn drop(&mut self) {
            self.0.lock().unwrap().0 -= 1;
        }
    }

    fn ask(askers: &Askers, name: &str) -> crate::asking::AnswerState {
        let peer = Peer { pod_uid: "pod".to_owned(), url: name.to_owned(), ..Peer::default() };
        askers.ask(&Key::new("shop", name), Question { peer, wish: Wish::Watch { halt: None } })
    }

    /// How long it takes until all of these have answered.
    async fn heard(askers: &Askers, names: &[String]) -> Duration {
        let began: Instant = monotonic();
        while names.iter().filter(|name| ask(askers, name).last.is_none()).count() > 0 {
            sleep(Duration::from_millis(10)).await;
        }
        monotonic().duration_since(began)
    }

    #[tokio::test(start_paused = true)]
    async fn a_thousand_that_swallow_what_they_are_sent_hold_up_nobody_who_answers() {
        let client = Arc::new(Dropped::default());
        let (askers, lanes) = Askers::new(client.clone(), Arc::new(MockCluster::new()));
        let (tell, mut told) = unbounded_channel();
        tokio::spawn(ask_sidecars(askers.clone(), lanes, tell));
        let cut: Vec<String> = (0..1000).map(|n| format!("cut-{n}")).collect();
        let well = |round: usize| (0..10).map(|n| format!("well-{round}-{n}")).collect::<Vec<_>>();
        for name in &cut {
            ask(&askers, name);
        }
        // All peers are new at the same moment, which is the worst case.
        let first = heard(&askers, &well(0)).await;
        let wishing = askers.clone();
        let again = tokio::spawn(async move {
            loop {
                for name in &cut {
                    ask(&wishing, name);
                }
                sleep(Duration::from_millis(250)).await;
            }
        });
        let mut later = Vec::new();
        for round in 1..=60 {
            sleep(Duration::from_secs(5)).await;
            later.push(heard(&askers, &well(round)).await);
        }
        // A slow peer that has answered before does not wait for them either.
        ask(&askers, "slow");
        heard(&askers, &["slow".to_owned()]).await;
        for _ in 0..10 {
            sleep(crate::asking::ASK_AGAIN).await;
            let began = monotonic();
            while !ask(&askers, "slow").is_fresh {
                sleep(Duration::from_millis(10)).await;
            }
            let took = monotonic().duration_since(began);
            assert!(took <= Duration::from_millis(600), "{took:?}");
        }
        again.abort();
        println!("heard after {first:?}, and later after {:?} at most", later.iter().max());
        assert!(first <= Duration::from_secs(5), "{first:?}");
        assert!(later[1..].iter().all(|time| *time <= Duration::from_millis(20)), "{later:?}");
        let most = client.at_once.lock().unwrap().1;
        assert!((64..=128).contains(&most), "{most} at the same time");
        let mut times: BTreeMap<Key, usize> = BTreeMap::new();
        while let Ok(request) = told.try_recv() {
            *times.entry(request.key).or_default() += 1;
        }
        // In five minutes each is reported for its first failures, then two or three times a minute.
        let most = times.iter().filter(|(key, _)| key.name.starts_with("cut")).map(|(_, count)| *count).max();
        assert!((5..=25).contains(&most.unwrap()), "{most:?}");
    }

    /// Counts the requests.
    #[derive(Default)]
    struct Counting(Mutex<usize>);

    #[async_trait]
    impl HookClient for Counting {
        async fn send(&self, _: HookRequest) -> Result<HookReply, String> {
            *self.0.lock().unwrap() += 1;
            Ok(HookReply::default())
        }
    }

    #[tokio::test]
    async fn a_replica_that_does_not_lead_any_more_asks_nobody() {
        let (client, leads) = (Arc::new(Counting::default()), Arc::new(Mutex::new(true)));
        let may_ask = leads.clone();
        let fenced = Fenced::new(client.clone(), move || *may_ask.lock().unwrap());
        let request = || HookRequest {
            method: http::Method::GET,
            url: reqwest::Url::parse("http://peer/").unwrap(),
            headers: http::HeaderMap::new(),
            body: String::new(),
            timeout: Duration::from_secs(1),
        };
        assert!(fenced.send(request()).await.is_ok());
        *leads.lock().unwrap() = false;
        let why = fenced.send(request()).await.unwrap_err();
        assert!(why.contains("does not lead"), "{why}");
        assert_eq!(*client.0.lock().unwrap(), 1);
    }
}
