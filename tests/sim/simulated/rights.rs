//! Forbidden requests are reported, and block nothing that does not depend on them.

use serde_json::{Value, json};
use windlass_sim::{Before, Failure, FaultPlan, NoFaults, RequestInfo};

use super::sets::world::{NODE, World, blue_green, condition, fleet, is_up_to_date, play, stage_is, text};

const CLAIMS: &str = "persistentvolumeclaims";
const REVISIONS: &str = "controllerrevisions.apps";

/// Fails the operator's requests for one kind of object.
struct Denied(&'static str, &'static str, Failure);

impl FaultPlan for Denied {
    fn before(&mut self, request: &RequestInfo) -> Before {
        let is_it = request.verb == self.0 && request.resource == self.1;
        if is_it && request.user_agent == "windlass" { Before::Fail(self.2.clone()) } else { Before::Pass }
    }
}

fn deny(w: &World, verb: &'static str, resource: &'static str) {
    w.cluster.set_faults(Box::new(Denied(verb, resource, Failure::Forbidden("no right".to_owned()))));
}

/// The message of a condition with this status.
fn said(status: &Value, type_: &str, state: &str) -> String {
    let list = status["conditions"].as_array().cloned().unwrap_or_default();
    let found = list.iter().find(|c| c["type"] == type_).cloned().unwrap_or_default();
    if condition(status, type_) == state { text(&found, "message").to_owned() } else { String::new() }
}

fn says(parts: &[&str]) -> impl Fn(&Value) -> bool {
    let parts: Vec<String> = parts.iter().map(|p| (*p).to_owned()).collect();
    move |status| {
        let message = said(status, "UpToDate", "False/InvalidSpec");
        parts.iter().all(|part| message.contains(part))
    }
}

async fn held_by_partition(w: &World) -> Value {
    w.serve(fleet(3, json!({"type": "InPlace", "inPlace": {"partition": 2}}))).await;
    w.image("db:2").await;
    w.until("it is held", |s| condition(s, "UpToDate") == "Unknown/PartitionHeld").await
}

#[test]
fn node_reports_missing_permission_to_read_its_claims() {
    play(|w| async move {
        deny(&w, "get", CLAIMS);
        w.create(fleet(1, json!({"type": "InPlace"}))).await;
        w.until("it is said", says(&["db-0", "data-db-0-0", "no right", "deploy/rbac"])).await;
        let node = w.get(NODE, "db-0")["status"].clone();
        assert!(said(&node, "Stalled", "True/InvalidSpec").contains("data-db-0-0"), "{node:#}");
        w.cluster.set_faults(Box::new(NoFaults));
        w.until("all is well", is_up_to_date).await;
        w.is_at_rest().await;
    });
}

#[test]
fn claim_that_may_not_be_created_is_a_hook_that_fails_in_time() {
    play(|w| async move {
        deny(&w, "create", CLAIMS);
        let seed =
            json!({"name": "seed", "at": "BeforeCreate", "wait": {"seconds": 1}, "timeoutSeconds": 60});
        w.create(fleet(1, json!({"type": "InPlace", "hooks": [seed]}))).await;
        let status = w.until("it fails", |s| condition(s, "Stalled") == "True/HookFailed").await;
        let why = said(&status, "UpToDate", "False/HookFailed");
        assert!(
            why.contains("hook seed of node db-0") && why.contains("data-db-0-0") && why.contains("no right"),
            "{why}"
        );
        w.cluster.set_faults(Box::new(NoFaults));
        let plan = text(&w.status()["plan"], "id").to_owned();
        let plan = if plan.is_empty() {
            text(&w.get(NODE, "db-0")["status"]["plan"], "id").to_owned()
        } else {
            plan
        };
        w.annotate("windlass.dev/retry", &plan).await;
        w.until("all is well", is_up_to_date).await;
        w.is_at_rest().await;
    });
}

/// Forbids the operator everything about budgets.
struct NoBudgets;

impl FaultPlan for NoBudgets {
    fn before(&mut self, request: &RequestInfo) -> Before {
        let is_of_budgets =
            request.resource == "poddisruptionbudgets.policy" && request.user_agent == "windlass";
        if is_of_budgets { Before::Fail(Failure::Forbidden("no right".to_owned())) } else { Before::Pass }
    }
}

#[test]
fn fleet_rolls_out_without_the_right_to_budgets() {
    play(|w| async move {
        w.kill_operator();
        w.cluster.set_faults(Box::new(NoBudgets));
        w.start_operator();
        w.serve(fleet(2, json!({"type": "InPlace"}))).await;
        let status =
            w.until("it is said", |s| condition(s, "DisruptionBudgetReady") == "False/Rejected").await;
        assert!(said(&status, "DisruptionBudgetReady", "False/Rejected").contains("no right"));
        w.image("db:2").await;
        w.until("it is rolled out", |s| is_up_to_date(s) && w.images().iter().all(|i| i.ends_with(" db:2")))
            .await;
        w.cluster.set_faults(Box::new(NoFaults));
        w.until("the budget is made", |s| condition(s, "DisruptionBudgetReady") == "/").await;
        assert!(!w.get(("policy/v1", "PodDisruptionBudget"), "db").is_null());
        w.is_at_rest().await;
    });
}

#[test]
fn set_is_kept_and_reported_while_its_claims_are_unreadable() {
    play(|w| async move {
        w.serve(fleet_that_keeps()).await;
        w.image("db:2-unready").await;
        let status = w.until("they wait", stage_is("AwaitingEntrants")).await;
        deny(&w, "get", CLAIMS);
        w.annotate("windlass.dev/abort", text(&status["plan"], "id")).await;
        w.until("it is said", says(&["data-db-", "no right", "deploy/rbac"])).await;
        assert_eq!(w.names(NODE).len(), 4);
        w.cluster.set_faults(Box::new(NoFaults));
        w.until("it goes", |s| condition(s, "UpToDate") == "False/Aborted" && w.names(NODE).len() == 2).await;
        w.is_at_rest().await;
    });
}

fn fleet_that_keeps() -> Value {
    blue_green(2, json!({"retireDelaySeconds": 5}))
}

#[test]
fn unstorable_revision_blocks_nothing_else() {
    let failures = [(Failure::Forbidden("quota".to_owned()), &["quota"][..]), (Failure::Internal, &[])];
    for (failure, parts) in failures {
        play(|w| async move {
            let held = held_by_partition(&w).await;
            w.cluster.set_faults(Box::new(Denied("create", REVISIONS, failure)));
            w.delete(("apps/v1", "ControllerRevision"), text(&held, "currentRevision")).await;
            let before = w.get(NODE, "db-2")["metadata"]["uid"].clone();
            w.delete(NODE, "db-2").await;
            w.until("the node is made again", |_| {
                let uid = w.get(NODE, "db-2")["metadata"]["uid"].clone();
                uid.is_string() && uid != before
            })
            .await;
            if !parts.is_empty() {
                w.until("it is said", says(parts)).await;
            }
            w.change(json!({"updateStrategy": {"inPlace": {"partition": 0}}})).await;
            w.until("it is over", |s| s["lastCompletedRolloutHash"] == s["requestedRolloutHash"]).await;
            w.cluster.set_faults(Box::new(NoFaults));
            w.until("all is well", is_up_to_date).await;
        });
    }
}

#[test]
fn unverifiable_template_blocks_nothing_else() {
    play(|w| async move {
        w.serve(fleet(3, json!({"type": "InPlace"}))).await;
        w.cluster.set_faults(Box::new(Denied("create", "statefulsets.apps", Failure::Internal)));
        w.image("db:2").await;
        let generation = w.fleets().get("db").await.unwrap().metadata.generation;
        let seen = |s: &Value| s["observedGeneration"] == json!(generation);
        let status = w.until("it is seen", seen).await;
        let message = said(&status, "UpToDate", "Unknown/Applying");
        assert!(message.contains("could not check"), "{status:#}");
        assert_eq!(condition(&status, "Reconciling"), "True/Progressing");
        assert_eq!(condition(&status, "Stalled"), "False/Progressing");
        // A StatefulNode is recreated meanwhile; a surplus one stays as long as that is down.
        w.delete(NODE, "db-1").await;
        w.change(json!({"replicas": 2})).await;
        let told = |s: &Value| {
            let message = said(s, "Reconciling", "True/Progressing");
            message.contains("could not check") && message.contains("before db-2 can be removed")
        };
        w.until("it says who waits", told).await;
        assert_eq!(w.names(NODE), ["db-0", "db-1", "db-2"]);
        assert_eq!(w.images(), ["db-0-0 db:1", "db-2-0 db:1"]);
        w.cluster.set_faults(Box::new(NoFaults));
        w.until("all is well", is_up_to_date).await;
        assert_eq!(w.images(), ["db-0-0 db:2", "db-1-0 db:2"]);
        assert_eq!(w.events("InvalidSpec").len(), 0);
        w.is_at_rest().await;
    });
}
