//! The spec changes during a rollout: the table of `docs/explanation/strategy-blue-green.md`, a test for each cell.

use serde_json::{Value, json};

use super::world::{NODE, World, blue_green, condition, is_up_to_date, play, set_of, stage_is, text};

/// Nodes of an image that never become ready.
const STUCK: &str = "db:2-unready";

/// A fleet that serves db:1, with entrants that never become ready.
async fn before_promotion(w: &World) -> (String, String) {
    let first = w.serve(blue_green(2, json!({"retireDelaySeconds": 5}))).await;
    w.image(STUCK).await;
    let status = w
        .until("entrants exist", |s| {
            s["rollout"]["message"].as_str().is_some_and(|m| m.contains("to be ready"))
        })
        .await;
    w.stages();
    (first, text(&status, "requestedRolloutHash").to_owned())
}

/// Promotes what waits for a person; returns after traffic has moved.
async fn promote(w: &World) -> Value {
    let ready = w.until("it is ready", |s| condition(s, "UpToDate") == "Unknown/ReadyToPromote").await;
    let mut hash = ready["requestedRolloutHash"].clone();
    loop {
        w.change(json!({"forcePromote": hash})).await;
        let asked = hash.clone();
        // The ready one may have been an older target.
        let is_next = move |s: &Value| {
            stage_is("Retiring")(s)
                || (condition(s, "UpToDate") == "Unknown/ReadyToPromote"
                    && s["requestedRolloutHash"] != asked)
        };
        let status = w.until("traffic moved", is_next).await;
        if stage_is("Retiring")(&status) {
            return status;
        }
        hash = status["requestedRolloutHash"].clone();
    }
}

#[test]
fn abandoned_former_active_set_keeps_its_remaining_retire_delay() {
    play(|w| async move {
        w.serve(blue_green(2, json!({"promotion": "Manual", "retireDelaySeconds": 300}))).await;
        w.image("db:2").await;
        let moved = promote(&w).await;
        let left = moved["retiring"][0]["since"].clone();
        for _ in 0..2 {
            w.image("db:1").await;
            let back = w.until("it is asked back", stage_is("AwaitingPromotion")).await;
            assert_eq!(back["rollout"]["entrantSet"], "first");
            w.image("db:2").await;
            w.until("it is given up", is_up_to_date).await;
            w.rest(60).await;
            let retiring = &w.status()["retiring"][0];
            assert_eq!((&retiring["set"], &retiring["since"]), (&json!("first"), &left));
            assert_eq!(w.names(NODE).len(), 4, "it is the quick way back until then");
        }
        assert_eq!(w.events("NodeCreated").len(), 4, "and no node was made");
        w.rest(300).await;
        assert_eq!(w.names(NODE).len(), 2);
        assert!(w.status()["retiring"].is_null());
        w.is_at_rest().await;
    });
}

#[test]
fn live_set_is_reused_by_a_new_template_with_its_build_id() {
    play(|w| async move {
        let mut fleet = blue_green(2, json!({"promotion": "Manual", "retireDelaySeconds": 300}));
        fleet["spec"]["unsafeCustomBuildID"] = json!("v1");
        w.serve(fleet).await;
        w.change(json!({"unsafeCustomBuildID": "v2"})).await;
        promote(&w).await;
        let made = w.events("NodeCreated").len();
        w.change(json!({"unsafeCustomBuildID": "v1"})).await;
        w.until("it is asked back", |s| s["rollout"]["entrantSet"] == "first").await;
        w.image("db:3").await;
        promote(&w).await;
        assert_eq!(w.status()["activeSet"], "first");
        assert_eq!(w.events("NodeCreated").len(), made, "no node was made");
        assert!(w.images().iter().any(|image| image == "db-0-0 db:3"), "{:?}", w.images());
    });
}

#[test]
fn set_being_removed_is_never_reused() {
    play(|w| async move {
        let (_, second) = before_promotion(&w).await;
        w.image("db:1").await;
        w.until("the rollout is over", |s| s["rollout"].is_null()).await;
        w.image(STUCK).await;
        let again = w.until("it is made again", |s| !s["rollout"].is_null()).await;
        assert_eq!(text(&again, "requestedRolloutHash"), second);
        assert_eq!(again["rollout"]["entrantSet"], format!("{}-2", set_of(&second)).as_str());
    });
}

#[test]
fn change_to_immediate_promotion_keeps_the_created_nodes() {
    play(|w| async move {
        w.serve(blue_green(2, json!({"promotion": "Manual"}))).await;
        w.image("db:2").await;
        let ready = w.until("it is ready", |s| condition(s, "UpToDate") == "Unknown/ReadyToPromote").await;
        w.change(json!({"updateStrategy": {"blueGreen": {"promotion": "Immediately"}}})).await;
        let done = w.until("it is over", is_up_to_date).await;
        assert_eq!(done["activeSet"], ready["rollout"]["entrantSet"]);
        assert_eq!(done["plan"]["recipe"], "BlueGreenImmediate");
        assert_eq!(w.events("NodeCreated").len(), 4);
    });
}

#[test]
fn last_target_set_during_pause_is_used_by_immediate_promotion() {
    play(|w| async move {
        w.serve(blue_green(2, json!({"promotion": "Immediately"}))).await;
        w.stages();
        w.change(json!({"paused": true})).await;
        w.image("db:2").await;
        let begun = w.until("it is recorded", |s| s["rollout"].is_object()).await;
        assert_eq!(begun["rollout"]["stage"], "CreatingEntrants", "it may still be taken back");
        w.image("db:3").await;
        let next = |s: &Value| s["rollout"].is_object() && s["plan"]["id"] != begun["plan"]["id"];
        w.until("the correction is recorded", next).await;
        w.rest(600).await;
        assert_eq!(w.images(), ["db-0-0 db:1", "db-1-0 db:1"]);
        assert_eq!(w.stages(), ["CreatingEntrants"]);
        w.change(json!({"paused": false})).await;
        w.until("it is over", |s| is_up_to_date(s) && s["activeSet"] != "first").await;
        assert!(w.images().iter().all(|i| i.ends_with("db:3")), "{:?}", w.images());
        let outcomes = w.status()["history"].as_array().unwrap().len();
        assert_eq!(outcomes, 2, "db:2 was never tried");
    });
}

#[test]
fn change_during_a_promotion_is_not_reported_as_applied() {
    for promotion in ["WhenReady", "Immediately"] {
        play(|w| async move {
            w.serve(blue_green(2, json!({"promotion": promotion}))).await;
            w.image("db:2").await;
            w.until("it promotes", stage_is("Promoting")).await;
            w.image("db:3").await;
            let last =
                w.until("both are over", |s| is_up_to_date(s) && w.images()[0].ends_with("db:3")).await;
            let third = |f: &Value| f["spec"]["template"]["spec"]["image"] == "db:3";
            for (_, fleet) in w.seen_objects().iter().filter(|(_, fleet)| third(fleet)) {
                let status = &fleet["status"];
                let of_now = fleet["metadata"]["generation"] == status["observedGeneration"];
                let said = condition(status, "UpToDate");
                let done = status["lastCompletedRolloutHash"] == last["lastCompletedRolloutHash"];
                assert!(done || !of_now || !said.starts_with("True"), "{promotion}: {status:#}");
                let settled = condition(status, "Reconciling").starts_with("False");
                assert!(done || !of_now || !settled, "{promotion}: {status:#}");
            }
        });
    }
}
