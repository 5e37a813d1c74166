//! What is to go and is kept by somebody's finalizer: the fleet names such nodes, and may itself still be retained.

use serde_json::json;

use super::sets::world::{CLAIM, FLEET, NODE, World, condition, fleet, is_up_to_date, message, play, text};

const HELD: &str = "waiting for the deletion of db-2 to complete";

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

#[test]
fn node_held_by_a_finalizer_is_named() {
    play(|w| async move {
        scaled_in(&w).await;
        assert_eq!(message(&w.status(), "Reconciling"), HELD);
        let_go(&w).await;
    });
}

#[test]
fn rollout_does_not_wait_for_a_leaving_node_to_be_ready() {
    play(|w| async move {
        scaled_in(&w).await;
        w.image("db:2").await;
        w.rest(60).await;
        assert_eq!(text(&w.status()["rollout"], "message"), HELD, "it is said once");
        let_go(&w).await;
    });
}

#[test]
fn deletion_policy_can_change_while_a_finalizer_holds_the_fleet() {
    for retention in ["Retain", "Delete"] {
        play(|w| async move {
            let mut fleet = fleet(3, json!({"type": "InPlace"}));
            fleet["spec"]["template"]["spec"]["volumeClaimRetention"] = json!("Delete");
            w.serve(fleet).await;
            w.patch(&json!({"metadata": {"finalizers": ["example.com/held"]}})).await;
            w.delete(FLEET, "db").await;
            w.rest(10).await;
            assert_eq!(w.status()["deletionPolicy"], "Delete");
            let template = json!({"spec": {"volumeClaimRetention": retention}});
            w.change(json!({"deletionPolicy": "Retain", "template": template})).await;
            w.until("the nodes stay", |s| s["deletionPolicy"] == "Retain").await;
            w.until("the claims do as they are to", |s| s["volumeClaimRetention"] == retention).await;
            let (nodes, claims) = (w.names(NODE), w.names(CLAIM));
            w.patch(&json!({"metadata": {"finalizers": null}})).await;
            w.rest(60).await;
            assert!(w.get(FLEET, "db").is_null());
            assert_eq!((w.names(NODE), w.names(CLAIM)), (nodes, claims));
            assert!(!w.get(("v1", "Service"), "db").is_null());
            for claim in w.names(CLAIM) {
                let is_owned = !w.get(CLAIM, &claim)["metadata"]["ownerReferences"].is_null();
                assert_eq!(is_owned, retention == "Delete", "{claim}");
            }
        });
    }
}
