//! The events of fleets and nodes. Normal events of nodes wait until the cluster is quiet: otherwise two events per node
//! would compete with the very writes that a wave waits for. In a large fleet only some of them are sent at all: nobody
//! reads two thousand events that report success, and each costs the API server as much as the delete of a pod.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use windlass_kube_port::EventRecorder;
pub use windlass_kube_port::{Event, EventType};

use crate::api::Reason;
use crate::clock::{SharedClock, monotonic};
use windlass_kube_port::observed::Meta;
use windlass_kube_port::{Cluster, Kind, View};

/// The burst and the refill interval of the rate limit on the events of node plans, for each fleet: events are sent for
/// this many plans at once, then for one more plan in each interval.
const PLAN_BURST: u32 = 30;
const PLAN_INTERVAL: Duration = Duration::from_secs(4);
/// The number of fleets at which those whose full burst is available again are forgotten.
const MAX_FLEETS: usize = 1_000;

/// Records the events of fleets and nodes. Cloning it is cheap; all clones share the queues.
#[derive(Clone)]
pub struct Events {
    recorder: EventRecorder,
    /// By fleet UID: when the full burst of plan events is available again.
    plans: Arc<Mutex<HashMap<String, Instant>>>,
}

impl Events {
    /// The recorder, and the future that sends the events ([`EventRecorder::new`]).
    pub fn new(
        cluster: Arc<dyn Cluster>,
        view: Arc<View>,
        clock: SharedClock,
        instance: &str,
    ) -> (Self, impl Future<Output = ()> + Send + 'static) {
        let (recorder, send) = EventRecorder::new(cluster, view, clock, instance);
        (Self { recorder, plans: Arc::default() }, send)
    }

    /// Sends an event about a fleet or a node. Each cause is sent only once.
    #[cfg_attr(test, allow(clippy::missing_panics_doc, reason = "only unit tests check the reason"))]
    pub fn record(&self, kind: Kind, about: &Meta, event: &Event) {
        #[cfg(test)]
        assert!(is_documented(kind, event.reason), "no event about a {} says {}", kind.name(), event.reason);
        if kind == Kind::StatefulNode && event.type_ == EventType::Normal {
            let is_admitted = || self.is_plan_admitted(about, &event.cause);
            self.recorder.record_when_quiet(kind, about, event, is_admitted);
        } else {
            self.recorder.record(kind, about, event);
        }
    }

    /// True if the events of a node's plan are sent: if its `PlanStarted` was sent, or if the rate limit of its fleet
    /// allows another plan.
    fn is_plan_admitted(&self, node: &Meta, plan_id: &str) -> bool {
        let known = self.recorder.was_sent(node, Reason::PlanStarted.as_ref(), plan_id);
        known.unwrap_or_else(|| {
            let now = monotonic();
            let mut plans = self.plans.lock().unwrap_or_else(PoisonError::into_inner);
            if plans.len() >= MAX_FLEETS {
                plans.retain(|_, full| *full > now);
            }
            let full = plans.entry(node.owner_uid().unwrap_or(&node.uid).to_owned()).or_insert(now);
            let full_at = (*full).max(now);
            let has_room = full_at.duration_since(now) <= PLAN_INTERVAL * (PLAN_BURST - 1);
            if has_room {
                *full = full_at + PLAN_INTERVAL;
            }
            has_room
        })
    }
}

#[cfg(test)]
fn is_documented(kind: Kind, reason: &str) -> bool {
    use crate::api::reasons::{EVENTS_OF_FLEETS, EVENTS_OF_NODES, EVENTS_OF_ROLLOUTS};
    let known: &[&[Reason]] = match kind {
        Kind::StatefulNode => &[EVENTS_OF_NODES],
        Kind::StatefulSetRollout => &[EVENTS_OF_FLEETS, EVENTS_OF_ROLLOUTS],
        _ => &[EVENTS_OF_FLEETS],
    };
    known.iter().copied().flatten().any(|known| known.as_ref() == reason)
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tokio::sync::mpsc;

    use super::*;
    use crate::clock::SystemClock;
    use windlass_kube_port::MockCluster;

    struct Stage {
        events: Events,
        view: Arc<View>,
        sent: mpsc::UnboundedReceiver<String>,
    }

    impl Stage {
        fn new() -> Self {
            let (told, sent) = mpsc::unbounded_channel();
            let mut cluster = MockCluster::new();
            cluster.expect_create().returning(move |_, event| {
                told.send(event["reason"].as_str().unwrap().to_owned()).unwrap();
                Ok(event)
            });
            let view = View::shared();
            let (events, send) = Events::new(Arc::new(cluster), view.clone(), Arc::new(SystemClock), "test");
            tokio::spawn(send);
            Self { events, view, sent }
        }

        fn tell(&self, kind: Kind, type_: EventType, reason: Reason) {
            let event = Event { type_, ..Event::normal(reason, "", "") };
            self.events.record(kind, &Meta { uid: "u".into(), ..Meta::default() }, &event);
        }

        /// The reasons of the events that are sent within this time, while something changes every 50 ms.
        async fn sent_while_busy(&mut self, milliseconds: u64) -> Vec<String> {
            for _ in 0..milliseconds / 50 {
                self.view.pods.begin_relist();
                self.view.pods.end_relist();
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            std::iter::from_fn(|| self.sent.try_recv().ok()).collect()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn normal_node_events_are_sent_when_idle() {
        let mut stage = Stage::new();
        stage.tell(Kind::StatefulNode, EventType::Normal, Reason::PlanStarted);
        stage.tell(Kind::StatefulNode, EventType::Normal, Reason::PlanComplete);
        assert!(stage.sent_while_busy(3000).await.is_empty());
        tokio::time::sleep(Duration::from_millis(300)).await;
        let told: Vec<String> = std::iter::from_fn(|| stage.sent.try_recv().ok()).collect();
        assert_eq!(told, ["PlanStarted", "PlanComplete"]);
    }

    #[tokio::test(start_paused = true)]
    async fn normal_events_are_delayed_for_a_bounded_time() {
        let mut stage = Stage::new();
        stage.tell(Kind::StatefulNode, EventType::Normal, Reason::PlanStarted);
        assert!(stage.sent_while_busy(4800).await.is_empty());
        assert_eq!(stage.sent_while_busy(500).await, ["PlanStarted"]);
    }

    #[tokio::test(start_paused = true)]
    async fn node_plan_events_are_rate_limited_per_fleet() {
        let mut stage = Stage::new();
        let owner =
            |uid: &str| json!({"kind": "NodeDeployment", "name": uid, "uid": uid, "controller": true});
        let tell = |fleet: &str, reason: Reason, plans: std::ops::Range<u32>| {
            let of_node =
                json!({"metadata": {"name": "db-0", "uid": "u", "ownerReferences": [owner(fleet)]}});
            for plan in plans {
                let id = format!("{fleet}-{plan}");
                let event = Event::normal(reason, id, "");
                stage.events.record(Kind::StatefulNode, &Meta::read(&of_node), &event);
            }
        };
        tell("db", Reason::PlanStarted, 0..100);
        tell("db", Reason::PlanComplete, 0..100);
        tell("web", Reason::PlanStarted, 0..1);
        tokio::time::sleep(Duration::from_secs(8)).await;
        tell("db", Reason::PlanStarted, 100..110);
        tokio::time::sleep(Duration::from_secs(1)).await;
        let told: Vec<String> = std::iter::from_fn(|| stage.sent.try_recv().ok()).collect();
        let of = |reason: &str| told.iter().filter(|told| *told == reason).count();
        // Another fleet has its own limit, and in eight seconds the limit of the first one allows two more.
        assert_eq!((of("PlanStarted"), of("PlanComplete")), (30 + 1 + 2, 30));
    }

    #[tokio::test(start_paused = true)]
    async fn warnings_and_fleet_events_are_sent_immediately() {
        let mut stage = Stage::new();
        stage.tell(Kind::StatefulNode, EventType::Normal, Reason::PlanStarted);
        stage.tell(Kind::StatefulNode, EventType::Warning, Reason::PlanFailed);
        stage.tell(Kind::NodeDeployment, EventType::Normal, Reason::RolloutStarted);
        assert_eq!(stage.sent_while_busy(200).await, ["PlanFailed", "RolloutStarted"]);
    }
}
