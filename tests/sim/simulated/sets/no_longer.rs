//! Outdated facts: nothing is promoted because of them, no claim is deleted, and no request repeats forever.

use serde_json::{Value, json};

use super::world::{CLAIM, NODE, World, blue_green, condition, is_up_to_date, play, text};

async fn ready_to_promote(w: &World, fleet: Value) -> Value {
    w.serve(fleet).await;
    w.image("db:2").await;
    w.until("it is ready", |s| condition(s, "UpToDate") == "Unknown/ReadyToPromote").await
}

fn manual() -> Value {
    blue_green(2, json!({"promotion": "Manual", "retireDelaySeconds": 5}))
}

/// Removes the node label of a claim.
async fn strip(w: &World, claim: &str) {
    w.merge(CLAIM, claim, &json!({"metadata": {"labels": {"windlass.dev/node": null}}})).await;
}

fn that_deletes_claims(mut fleet: Value) -> Value {
    fleet["spec"]["template"]["spec"]["volumeClaimRetention"] = json!("Delete");
    fleet
}

#[test]
fn immediate_promotion_keeps_a_claim_without_its_label() {
    play(|w| async move {
        w.serve(that_deletes_claims(blue_green(2, json!({"promotion": "Immediately"})))).await;
        w.rest(5).await;
        let owned = w.get(CLAIM, "data-db-0-0")["metadata"]["ownerReferences"].clone();
        assert_eq!(owned[0]["name"], "db-0");
        strip(&w, "data-db-0-0").await;
        w.image("db:2").await;
        w.until("it is over", |s| is_up_to_date(s) && s["activeSet"] != "first").await;
        w.rest(60).await;
        assert_eq!(w.names(CLAIM).len(), 4, "{:?}", w.names(CLAIM));
        w.is_at_rest().await;
    });
}

#[test]
fn abandoned_entrants_leave_a_claim_without_its_label() {
    play(|w| async move {
        let ready = ready_to_promote(&w, that_deletes_claims(manual())).await;
        let claim = format!("data-db-{}-0-0", text(&ready["rollout"], "entrantSet"));
        w.rest(5).await;
        strip(&w, &claim).await;
        w.image("db:1").await;
        w.until("the entrants are gone", |s| is_up_to_date(s) && w.names(NODE).len() == 2).await;
        w.rest(60).await;
        assert_eq!(w.names(CLAIM).len(), 4, "{:?}", w.names(CLAIM));
    });
}
