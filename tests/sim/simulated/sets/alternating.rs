//! Kubelets with alternating messages, like real ones: a failing node keeps one reason, since one time, and changes
//! of the message cost no writes.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::{Value, json};

use super::world::{NODE, World, condition, fleet, is_up_to_date, play, text};

/// The failures of real kubelets: the steering word, and the stable reason.
const FAILS: [(&str, &str); 2] = [("pull-loop", "ImagePullBackOff"), ("crash-loop", "CrashLoopBackOff")];

/// A fleet that stalls after a minute.
fn impatient(replicas: i32) -> Value {
    let mut fleet = fleet(replicas, json!({"type": "InPlace", "progressDeadlineSeconds": 60}));
    fleet["spec"]["template"]["spec"]["progressDeadlineSeconds"] = 60.into();
    fleet
}

/// The reports about a node while its kubelet alternates, over some seconds.
async fn said_of(
    w: &World,
    node: &str,
    seconds: u64,
) -> (BTreeSet<String>, BTreeSet<String>, BTreeSet<String>) {
    let (mut reasons, mut since, mut phases) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    for _ in 0..seconds * 5 {
        tokio::time::sleep(Duration::from_millis(200)).await;
        let status = w.get(NODE, node)["status"].clone();
        reasons.insert(text(&status["problem"], "reason").to_owned());
        since.insert(text(&status["problem"], "since").to_owned());
        phases.insert(text(&status, "phase").to_owned());
    }
    (reasons, since, phases)
}

/// The operator's writes without events.
fn writes(w: &World) -> Vec<String> {
    let of = |entry: &windlass_sim::AuditEntry| entry.is_write() && entry.user_agent == "windlass";
    let all =
        w.cluster.audit().into_iter().filter(|entry| of(entry) && !entry.resource.starts_with("events"));
    all.map(|e| format!("{} {} {} {}", e.at_micros / 1_000_000, e.verb, e.resource, e.name)).collect()
}

#[test]
fn a_node_in_a_rollout_whose_kubelet_alternates_fails_once_and_for_one_reason() {
    for (word, reason) in FAILS {
        play(|w| async move {
            w.serve(impatient(3)).await;
            w.image(&format!("db:2-{word}")).await;
            let failed = w.until("it fails", |s| s["rollout"]["nodes"]["failed"] == 1).await;
            let node = text(&failed["rollout"]["unconverged"][0], "name").to_owned();
            w.until("it stalls", |s| condition(s, "Stalled") == "True/NoProgress").await;
            w.rest(30).await;
            w.cluster.clear_audit();
            let (reasons, since, phases) = said_of(&w, &node, 900).await;
            assert_eq!(reasons, [reason.to_owned()].into(), "{word}");
            assert_eq!(since.len(), 1, "{word}: {since:?}");
            assert_eq!(phases, ["Failed".to_owned()].into(), "{word}");
            assert_eq!(writes(&w), [""; 0], "{word}: nothing is new");
            let status = w.status();
            assert_eq!(condition(&status, "Stalled"), "True/NoProgress");
            assert_eq!(text(&status["rollout"]["unconverged"][0], "reason"), reason);
            assert_eq!(w.events("RolloutStalled").len(), 1, "{word}: {:?}", w.events("RolloutStalled"));
            w.image("db:3").await;
            w.until("it is over", is_up_to_date).await;
        });
    }
}

#[test]
fn a_first_creation_whose_kubelets_alternate_stalls_once_and_stays_so() {
    for (word, _) in FAILS {
        play(|w| async move {
            let mut broken = impatient(2);
            broken["spec"]["template"]["spec"]["image"] = format!("db:1-{word}").into();
            w.create(broken).await;
            w.until("it stalls", |s| condition(s, "Stalled") == "True/NoProgress").await;
            w.rest(30).await;
            w.cluster.clear_audit();
            let mut stalled = BTreeSet::new();
            for _ in 0..900 {
                w.rest(1).await;
                stalled.insert(condition(&w.status(), "Stalled"));
            }
            assert_eq!(stalled, ["True/NoProgress".to_owned()].into(), "{word}");
            assert_eq!(writes(&w), [""; 0], "{word}: nothing is new");
            w.image("db:2").await;
            w.until("it serves", is_up_to_date).await;
        });
    }
}
