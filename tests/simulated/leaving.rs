//! Nodes that are to leave and cannot: the fleet names them.

use serde_json::{Value, json};

use super::sets::world::{NODE, World, condition, fleet, is_up_to_date, play, text};

const HELD: &str = "waiting for db-2, which is being deleted, to be gone";

/// Scales a fleet of three in while somebody's finalizer keeps db-2.
async fn scaled_in(w: &World) {
    w.serve(fleet(3, json!({"type": "InPlace", "inPlace": {"maxUnavailable": 2}}))).await;
    w.merge(NODE, "db-2", &json!({"metadata": {"finalizers": ["example.com/held"]}})).await;
    w.change(json!({"replicas": 2})).await;
    w.rest(60).await;
    assert!(w.get(NODE, "db-2")["metadata"]["deletionTimestamp"].is_string());
}

async fn let_go(w: &World) {
    w.merge(NODE, "db-2", &json!({"metadata": {"finalizers": null}})).await;
    w.until("it is over", |s| is_up_to_date(s) && condition(s, "Reconciling") == "False/Settled").await;
    assert_eq!(w.names(NODE), ["db-0", "db-1"]);
}

fn reconciling(status: &Value) -> String {
    let conditions = status["conditions"].as_array().cloned().unwrap_or_default();
    let found = conditions.iter().find(|c| c["type"] == "Reconciling");
    found.map(|c| text(c, "message").to_owned()).unwrap_or_default()
}

#[test]
fn a_node_that_a_finalizer_keeps_from_leaving_is_named() {
    play(|w| async move {
        scaled_in(&w).await;
        assert_eq!(reconciling(&w.status()), HELD);
        let_go(&w).await;
    });
}

#[test]
fn a_rollout_does_not_wait_for_a_node_that_leaves_to_be_ready() {
    play(|w| async move {
        scaled_in(&w).await;
        w.image("db:2").await;
        w.rest(60).await;
        assert_eq!(text(&w.status()["rollout"], "message"), HELD, "it is said once");
        let_go(&w).await;
    });
}
