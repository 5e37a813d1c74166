//! Verbs on a set's rollout.

use serde_json::json;

use super::world::{NODE, World, blue_green, condition, is_up_to_date, play, set_of, text, with_sidecar};

async fn ready_to_promote(w: &World) -> String {
    w.serve(blue_green(2, json!({"promotion": "Manual", "retireDelaySeconds": 5}))).await;
    w.image("db:2").await;
    let ready = w.until("it is ready", |s| condition(s, "UpToDate") == "Unknown/ReadyToPromote").await;
    text(&ready, "requestedRolloutHash").to_owned()
}

#[test]
fn manual_promotion_waits_indefinitely() {
    play(|w| async move {
        let target = ready_to_promote(&w).await;
        w.rest(3600).await;
        let status = w.status();
        assert_eq!(status["rollout"]["stage"], "AwaitingPromotion");
        assert_eq!(condition(&status, "Stalled"), "False/Progressing");
        assert_eq!(w.selected(), "first");
        w.change(json!({"forcePromote": target})).await;
        let done = w.until("it is over", is_up_to_date).await;
        assert_eq!(done["spentForcePromote"], target.as_str());
        assert_eq!(text(&done, "lastCompletedRolloutHash"), target);
        assert_eq!(w.events("StaleForcePromote").len(), 0);
        w.is_at_rest().await;
    });
}

#[test]
fn used_force_promote_is_spent_until_the_field_changes() {
    play(|w| async move {
        let second = ready_to_promote(&w).await;
        w.change(json!({"forcePromote": second})).await;
        w.until("it is over", is_up_to_date).await;
        w.image("db:3").await;
        let third = w.until("it is ready", |s| condition(s, "UpToDate") == "Unknown/ReadyToPromote").await;
        let third = text(&third, "requestedRolloutHash").to_owned();
        w.change(json!({"forcePromote": third})).await;
        w.until("it is over", is_up_to_date).await;
        assert_eq!(w.status()["spentForcePromote"], third.as_str());
        // Back to the second, which was promoted before.
        w.image("db:2").await;
        w.until("it is ready", |s| condition(s, "UpToDate") == "Unknown/ReadyToPromote").await;
        w.change(json!({"forcePromote": third})).await;
        w.rest(20).await;
        assert_eq!(w.status()["rollout"]["stage"], "AwaitingPromotion");
        w.change(json!({"forcePromote": second})).await;
        w.until("it is over", is_up_to_date).await;
        assert_eq!(w.events("StaleForcePromote").len(), 0);
        // Spent: the same value does not promote the same target again.
        w.image("db:3").await;
        w.until("it is ready", |s| condition(s, "UpToDate") == "Unknown/ReadyToPromote").await;
        w.image("db:2").await;
        w.until("back", is_up_to_date).await;
        assert_eq!(w.status()["spentForcePromote"], second.as_str());
    });
}

#[test]
fn only_the_catch_up_wait_of_a_fleet_can_be_skipped() {
    play(|w| async move {
        w.serve(with_sidecar(blue_green(2, json!({})))).await;
        w.applications.catch_up(false);
        w.image("db:2").await;
        let status = w.until("they wait", |s| text(&s["rollout"], "message").contains("catch up")).await;
        let id = text(&status["plan"], "id").to_owned();
        w.annotate("windlass.dev/skip", &format!("{id}-1")).await;
        w.rest(10).await;
        assert_eq!(w.events("SkipRefused").len(), 1);
        w.annotate("windlass.dev/skip", &format!("{id}-4")).await;
        w.rest(10).await;
        assert_eq!(w.events("SkipRefused").len(), 2);
        assert_eq!(w.selected(), "first");
        w.annotate("windlass.dev/skip", &format!("{id}-2")).await;
        let done = w.until("it is over", is_up_to_date).await;
        assert_eq!(done["plan"]["tasks"][2]["state"], "Skipped");
        w.rest(60).await;
        assert_eq!(w.events("SkipRefused").len(), 2, "what was skipped stays named, and is no news");
        w.annotate("windlass.dev/skip", "zzz").await;
        w.rest(60).await;
        assert_eq!(w.events("SkipRefused").len(), 3, "there never was such a task");
    });
}

#[test]
fn both_sets_follow_replicas() {
    play(|w| async move {
        ready_to_promote(&w).await;
        w.change(json!({"replicas": 3})).await;
        w.until("both grew", |s| w.names(NODE).len() == 6 && condition(s, "Ready") == "True/AllNodesReady")
            .await;
        w.change(json!({"replicas": 1})).await;
        w.until("both shrank", |s| w.names(NODE).len() == 2 && s["replicas"] == 1).await;
        let status =
            w.until("it is ready again", |s| condition(s, "UpToDate") == "Unknown/ReadyToPromote").await;
        assert_eq!(status["replicas"], 1, "the active set is counted");
        w.change(json!({"replicas": 0})).await;
        let none = w.until("none is left", |s| w.names(NODE).is_empty() && s["rollout"].is_null()).await;
        assert_eq!(none["plan"]["state"], "Superseded");
        assert_eq!(condition(&none, "UpToDate"), "Unknown/NotStarted");
        assert_eq!(condition(&none, "RolloutInProgress"), "False/NotStarted", "nothing completed");
        w.change(json!({"replicas": 2})).await;
        let ready = w.until("it is made", |s| condition(s, "UpToDate") == "Unknown/ReadyToPromote").await;
        w.change(json!({"forcePromote": ready["requestedRolloutHash"]})).await;
        w.until("it is over", is_up_to_date).await;
    });
}

#[test]
fn promotion_by_the_hash_of_a_refused_template_promotes_nothing() {
    play(|w| async move {
        ready_to_promote(&w).await;
        // A third template that the API server refuses, and its hash.
        let containers = json!([{"name": "db", "image": "db:3", "imagePullPolice": "Always"}]);
        w.change(
            json!({"template": {"spec": {"image": "", "podTemplate": {"spec": {"containers": containers}}}}}),
        )
        .await;
        let refused = w.until("it is refused", |s| condition(s, "UpToDate") == "False/InvalidSpec").await;
        let wanted = text(&refused, "requestedRolloutHash").to_owned();
        w.change(json!({"forcePromote": wanted})).await;
        w.rest(600).await;
        assert_eq!(w.selected(), "first");
        assert_eq!(w.status()["rollout"]["stage"], "AwaitingPromotion");
    });
}

#[test]
fn nodes_of_an_unreadable_plan_are_kept_until_retry() {
    play(|w| async move {
        let target = ready_to_promote(&w).await;
        let entrants = w.names(NODE);
        assert_eq!(entrants.len(), 4, "{entrants:?}");
        w.kill_operator();
        w.patch_status(
            &json!({"status": {"plan": {"tasks": [{"type": "of-another-version", "state": "Resting"}]}}}),
        )
        .await;
        w.start_operator();
        w.until("the plan has failed", |s| condition(s, "UpToDate") == "False/PlanFailed").await;
        w.rest(600).await;
        assert_eq!(w.names(NODE), entrants, "what it made stays");
        assert_eq!(w.selected(), "first");
        let plan = text(&w.status()["rejected"], "planID").to_owned();
        w.annotate("windlass.dev/retry", &plan).await;
        w.until("it is ready again", |s| condition(s, "UpToDate") == "Unknown/ReadyToPromote").await;
        w.change(json!({"forcePromote": target})).await;
        w.until("it is over", is_up_to_date).await;
        w.is_at_rest().await;
        assert_eq!(w.names(NODE).len(), 2);
    });
}

#[test]
fn abort_with_a_refused_spec_rejects_the_running_target() {
    play(|w| async move {
        let target = ready_to_promote(&w).await;
        let plan = text(&w.status()["plan"], "id").to_owned();
        let containers = |policy: &str| {
            let container = json!({"name": "db", "image": "db:3", policy: "Always"});
            json!({"template": {"spec": {"image": "", "podTemplate": {"spec": {"containers": [container]}}}}})
        };
        w.change(containers("imagePullPolice")).await;
        w.until("it is refused", |s| condition(s, "UpToDate") == "False/InvalidSpec").await;
        w.annotate("windlass.dev/abort", &plan).await;
        let aborted = w.until("it is aborted", |s| s["plan"]["state"] == "Aborted").await;
        assert_eq!(text(&aborted["rejected"], "hash"), target, "{aborted:#}");
        assert_eq!(text(&aborted["rejected"], "buildID"), format!("2-{}", set_of(&target)));
        w.until("the entrants go", |_| w.names(NODE).len() == 2).await;
        // Set again, it is still the aborted one.
        w.change(json!({"template": {"spec": {"image": "db:2", "podTemplate": {"spec": {
            "containers": [{"name": "main", "image": "db:0"}]}}}}}))
            .await;
        w.until("that is said", |s| condition(s, "UpToDate") == "False/Aborted").await;
        w.rest(60).await;
        assert_eq!(w.names(NODE).len(), 2);
        // One that was never tried is rolled out.
        w.change(containers("imagePullPolicy")).await;
        let begun = w.until("it begins", |s| s["rollout"].is_object()).await;
        assert!(begun["rejected"].is_null(), "{begun:#}");
    });
}
