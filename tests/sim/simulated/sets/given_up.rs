//! Entrants of an aborted rollout are removed, and their claims stay, whatever their state.

use serde_json::{Value, json};

use super::world::{CLAIM, NODE, POD, World, blue_green, condition, play, stage_is, text};

/// Entrants whose nodes own their claims.
async fn entrants(w: &World) -> (String, Value) {
    let mut fleet = blue_green(2, json!({"promotion": "Manual"}));
    fleet["spec"]["template"]["spec"]["volumeClaimRetention"] = json!("Delete");
    w.serve(fleet).await;
    w.image("db:2-unready").await;
    let status = w.until("they wait", stage_is("AwaitingEntrants")).await;
    let set = text(&status["rollout"], "entrantSet").to_owned();
    let claim = format!("data-db-{set}-0-0");
    let owned = |_: &Value| w.get(CLAIM, &claim)["metadata"]["ownerReferences"][0]["uid"].is_string();
    w.until("their claims are theirs", owned).await;
    (set, status["plan"]["id"].clone())
}

async fn suspend(w: &World, set: &str, is: bool) {
    w.merge(NODE, &format!("db-{set}-0"), &json!({"spec": {"suspend": is}})).await;
}

async fn without_pod(w: &World, set: &str) {
    suspend(w, set, true).await;
    let pod = format!("db-{set}-0-0");
    w.until("its pod is gone", |_| w.get(POD, &pod).is_null()).await;
}

/// Aborts, and asserts that the entrants go and their claims do not.
async fn go_without_claims(w: &World, plan: &Value) {
    let claims = w.names(CLAIM);
    assert_eq!(claims.len(), 4);
    w.annotate("windlass.dev/abort", plan.as_str().unwrap()).await;
    w.until("they are gone", |s| condition(s, "UpToDate") == "False/Aborted" && w.names(NODE).len() == 2)
        .await;
    w.rest(120).await;
    assert_eq!(w.names(CLAIM), claims);
    assert!(w.status()["retiring"].as_array().is_none_or(Vec::is_empty), "{:#}", w.status());
}

#[test]
fn abandoned_entrant_with_a_taken_pod_name_releases_its_claims() {
    play(|w| async move {
        let (set, plan) = entrants(&w).await;
        without_pod(&w, &set).await;
        let name = format!("db-{set}-0-0");
        w.create(json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
            "spec": {"terminationGracePeriodSeconds": 1, "containers": [{"name": "x", "image": "other:1"}]}}))
            .await;
        suspend(&w, &set, false).await;
        let refused = |_: &Value| {
            let node = w.get(NODE, &format!("db-{set}-0"));
            condition(&node["status"], "Stalled") == "True/InvalidSpec"
        };
        w.until("it is refused", refused).await;
        go_without_claims(&w, &plan).await;
        assert!(w.get(POD, &name).is_object(), "what is not ours stays");
    });
}
