//! Pods that the API server refuses: one watch of events provides the reason to all who wait.

use serde_json::json;
use windlass_sim::{AuditEntry, Before, Failure, FaultPlan, RequestInfo};

use super::sets::world::{NODE, World, fleet, is_up_to_date, play};

const EVENTS: &str = "events.events.k8s.io";
const NODES: usize = 6;

/// Forbids the operator to read ServiceAccounts, so that it creates pods whose account does not exist.
struct NoAccounts;

impl FaultPlan for NoAccounts {
    fn before(&mut self, request: &RequestInfo) -> Before {
        if request.resource == "serviceaccounts" && request.user_agent == "windlass" {
            Before::Fail(Failure::Forbidden("no right".to_owned()))
        } else {
            Before::Pass
        }
    }
}

/// Forbids the operator to read events, too.
struct NoEvents;

impl FaultPlan for NoEvents {
    fn before(&mut self, request: &RequestInfo) -> Before {
        let is_read = request.verb == "list" || request.verb == "watch";
        if is_read && request.resource == EVENTS && request.user_agent == "windlass" {
            Before::Fail(Failure::Forbidden("no right".to_owned()))
        } else {
            NoAccounts.before(request)
        }
    }
}

async fn of_a_ghost(w: &World) {
    let mut fleet = fleet(NODES as i32, json!({"type": "InPlace"}));
    fleet["spec"]["template"]["spec"]["podTemplate"]["spec"]["serviceAccountName"] = json!("ghost");
    w.create(fleet).await;
}

fn problems(w: &World) -> Vec<String> {
    let names = w.names(NODE);
    let message =
        |name: &String| w.get(NODE, name)["status"]["problem"]["message"].as_str().map(str::to_owned);
    names.iter().filter_map(message).collect()
}

fn lists_of_events(w: &World) -> usize {
    let is_it = |e: &&AuditEntry| e.user_agent == "windlass" && e.verb == "list" && e.resource == EVENTS;
    w.cluster.audit().iter().filter(is_it).count()
}

#[test]
fn nodes_report_pod_rejection_and_events_are_listed_once() {
    play(|w| async move {
        w.cluster.set_faults(Box::new(NoAccounts));
        of_a_ghost(&w).await;
        w.rest(300).await;
        let said = problems(&w);
        let refused = |message: &String| message.starts_with("the API server rejects its pod: ");
        assert!(said.len() == NODES && said.iter().all(refused), "{said:#?}");
        // One of refusals, and one each for the resourceVersion from which the events about pods and claims are watched.
        assert_eq!(lists_of_events(&w), 3, "for {NODES} nodes in five minutes");
        let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "ghost"}});
        w.create(account).await;
        w.until("all is well", is_up_to_date).await;
        w.is_at_rest().await;
    });
}

#[test]
fn operator_without_event_access_works_and_reports_causes_later() {
    play(|w| async move {
        w.kill_operator();
        w.cluster.set_faults(Box::new(NoEvents));
        w.start_operator();
        of_a_ghost(&w).await;
        w.rest(120).await;
        let said = problems(&w);
        assert!(said.len() == NODES && said.iter().all(|m| m == "it has no pod"), "{said:#?}");
        w.cluster.set_faults(Box::new(NoAccounts));
        w.rest(120).await;
        assert!(problems(&w).iter().all(|m| m.contains("ghost")), "{:#?}", problems(&w));
    });
}
