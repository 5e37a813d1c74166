//! A leader that stops gives its Lease up, unless a write of its may still land.

use std::time::Duration;

use serde_json::json;
use windlass::operator::Operator;
use windlass::operator::lease::Election;
use windlass_sim::{After, Failure, FaultPlan, RequestInfo};

use super::sets::world::{NODE, fleet, play, text};

/// The first write to a node is carried out, and its answer is a 504.
struct OneLostAnswer(bool);

impl FaultPlan for OneLostAnswer {
    fn after(&mut self, request: &RequestInfo, _: u16) -> After {
        let is_of_node = request.verb == "patch" && request.resource.starts_with("statefulnodes");
        if self.0 || !is_of_node || !request.subresource.is_empty() {
            return After::Pass;
        }
        self.0 = true;
        After::Fail(Failure::ServerTimeout)
    }
}

#[test]
fn stopping_leader_releases_its_lease_unless_a_write_is_pending() {
    for (lost, rest_seconds, expected) in [(false, 5, ""), (true, 5, "a"), (true, 90, "")] {
        play(|w| async move {
            w.serve(fleet(3, json!({"type": "InPlace"}))).await;
            w.kill_operator();
            let election =
                Election { namespace: "test".into(), name: "windlass".into(), identity: "a".into() };
            let operator = Operator::new(w.cluster.client("windlass", "test"));
            let operator = operator.clock(w.cluster.clock()).elect(election);
            let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
            let running = tokio::spawn(operator.run(async { drop(stopped.await) }));
            tokio::time::sleep(Duration::from_mins(1)).await;
            if lost {
                w.cluster.set_faults(Box::new(OneLostAnswer(false)));
            }
            w.change(json!({"template": {"metadata": {"labels": {"team": "one"}}}})).await;
            let team = |node: &str| w.get(NODE, node)["metadata"]["labels"]["team"].clone();
            w.until("all are labelled", |_| ["db-0", "db-1", "db-2"].iter().all(|n| team(n) == "one")).await;
            w.rest(rest_seconds).await;
            stop.send(()).unwrap();
            running.await.unwrap().unwrap();
            let lease = w.get(("coordination.k8s.io/v1", "Lease"), "windlass");
            assert_eq!(text(&lease["spec"], "holderIdentity"), expected, "{lost} {rest_seconds} {lease}");
        });
    }
}
