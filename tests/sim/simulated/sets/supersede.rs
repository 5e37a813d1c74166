//! The spec changes during a rollout: the table of `docs/strategy-blue-green.md`, a test for each cell.

use serde_json::{Value, json};

use super::world::{
    CLAIM, NODE, World, blue_green, condition, fleet, is_up_to_date, play, set_of, stage_is, text,
};

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

fn plan_id(status: &Value) -> String {
    text(&status["plan"], "id").to_owned()
}

#[test]
fn in_place_the_same_content_changes_nothing() {
    play(|w| async move {
        w.serve(fleet(2, json!({"type": "InPlace"}))).await;
        w.image(STUCK).await;
        let before = w.until("it rolls", stage_is("Updating")).await;
        w.image("db:2-unready").await;
        w.change(json!({"replicas": 2})).await;
        w.rest(10).await;
        assert_eq!(plan_id(&w.status()), plan_id(&before));
        assert_eq!(w.events("RolloutSuperseded").len(), 0);
    });
}

#[test]
fn in_place_a_new_target_supersedes() {
    play(|w| async move {
        w.serve(fleet(2, json!({"type": "InPlace"}))).await;
        w.image(STUCK).await;
        w.until("it rolls", stage_is("Updating")).await;
        w.rest(5).await;
        w.image("db:3").await;
        w.until("it is over", is_up_to_date).await;
        assert_eq!(w.images(), ["db-0-0 db:3", "db-1-0 db:3"]);
        assert_eq!(w.events("RolloutSuperseded").len(), 1);
    });
}

#[test]
fn in_place_back_to_the_last_completed_rolls_the_changed_nodes_back() {
    play(|w| async move {
        let first = w.serve(fleet(2, json!({"type": "InPlace"}))).await;
        w.image(STUCK).await;
        w.until("it rolls", stage_is("Updating")).await;
        w.rest(5).await;
        w.image("db:1").await;
        let done = w.until("it is over", is_up_to_date).await;
        assert_eq!(w.images(), ["db-0-0 db:1", "db-1-0 db:1"]);
        assert_eq!(text(&done, "lastCompletedRolloutHash"), first);
    });
}

#[test]
fn before_promotion_the_same_content_changes_nothing() {
    play(|w| async move {
        before_promotion(&w).await;
        let before = w.status();
        w.image(STUCK).await;
        w.change(json!({"minReadySeconds": 1})).await;
        w.rest(10).await;
        assert_eq!(plan_id(&w.status()), plan_id(&before));
        assert_eq!(w.status()["rollout"]["entrantSet"], before["rollout"]["entrantSet"]);
        assert_eq!(w.events("RolloutSuperseded").len(), 0);
    });
}

#[test]
fn before_promotion_a_new_target_removes_the_entrants_and_makes_new_ones() {
    play(|w| async move {
        let (first, second) = before_promotion(&w).await;
        w.image("db:3").await;
        let done = w.until("it is over", is_up_to_date).await;
        let third = text(&done, "lastCompletedRolloutHash").to_owned();
        assert!(third != first && third != second);
        w.rest(10).await;
        let names: Vec<String> = (0..2).map(|n| format!("db-{}-{n}", set_of(&third))).collect();
        assert_eq!(w.names(NODE), names);
        assert_eq!(w.events("RolloutSuperseded").len(), 1);
        let note = &w.events("RolloutSuperseded")[0];
        assert!(note.contains(&second[3..8]) && note.contains(&third[3..8]), "{note}");
        assert_eq!(w.names(CLAIM).len(), 6, "the claims of all three sets are there");
        let history = done["history"].as_array().unwrap();
        let outcomes: Vec<&str> = history.iter().map(|h| text(h, "outcome")).collect();
        assert_eq!(outcomes, ["Superseded", "Complete"]);
        assert!(history.iter().all(|h| h["fromHash"] == first.as_str()));
    });
}

#[test]
fn before_promotion_back_to_the_last_completed_removes_the_entrants_and_needs_no_plan() {
    play(|w| async move {
        let (first, _) = before_promotion(&w).await;
        let before = plan_id(&w.status());
        w.image("db:1").await;
        let done = w.until("it is over", is_up_to_date).await;
        assert_eq!(text(&done, "lastCompletedRolloutHash"), first);
        assert_eq!(plan_id(&done), before, "no new plan");
        assert_eq!(done["plan"]["state"], "Superseded");
        w.until("the entrants are gone", |_| w.names(NODE).len() == 2).await;
        assert_eq!(w.names(NODE), ["db-0", "db-1"]);
        assert_eq!(w.images(), ["db-0-0 db:1", "db-1-0 db:1"]);
        assert_eq!(w.selected(), "first");
        w.is_at_rest().await;
    });
}

/// A fleet in the middle of its promotion.
async fn while_promoting(w: &World) -> (String, String) {
    let first = w.serve(blue_green(2, json!({"promotion": "Immediately"}))).await;
    w.image("db:2-slow").await;
    // The old nodes are gone, and the new ones do not run yet.
    let made = || w.names(NODE).iter().all(|node| !["db-0", "db-1"].contains(&node.as_str()));
    let status = w
        .until("it promotes", |s| s["rollout"]["stage"] == "Promoting" && w.names(NODE).len() == 2 && made());
    let status = status.await;
    w.stages();
    (first, text(&status, "requestedRolloutHash").to_owned())
}

#[test]
fn while_promoting_the_same_content_changes_nothing() {
    play(|w| async move {
        let (_, second) = while_promoting(&w).await;
        w.image("db:2-slow").await;
        let done = w.until("it is over", is_up_to_date).await;
        assert_eq!(text(&done, "lastCompletedRolloutHash"), second);
        assert_eq!(done["history"].as_array().unwrap().len(), 1);
    });
}

#[test]
fn while_promoting_a_new_target_waits_until_the_old_one_is_promoted() {
    play(|w| async move {
        let (_, second) = while_promoting(&w).await;
        w.image("db:3").await;
        let held = w.until("the change is seen", |s| s["observedGeneration"] == 3).await;
        assert_eq!(text(&held, "requestedRolloutHash"), second, "read from the status, never recomputed");
        let next = w
            .until("the next begins", |s| {
                text(&s["rollout"], "targetHash") != second && !s["rollout"].is_null()
            })
            .await;
        assert_eq!(text(&next, "lastCompletedRolloutHash"), second, "the old target was finished first");
        let done = w.until("it is over", is_up_to_date).await;
        let outcomes: Vec<&str> =
            done["history"].as_array().unwrap().iter().map(|h| text(h, "outcome")).collect();
        assert_eq!(outcomes, ["Complete", "Complete"]);
        assert!(w.images().iter().all(|i| i.ends_with("db:3")), "{:?}", w.images());
    });
}

#[test]
fn while_promoting_back_to_the_last_completed_finishes_and_then_rolls_back_as_a_new_rollout() {
    play(|w| async move {
        let (first, second) = while_promoting(&w).await;
        w.image("db:1").await;
        w.until("the old target was finished first", |s| text(s, "lastCompletedRolloutHash") == second).await;
        let done = w.until("it is over", is_up_to_date).await;
        assert_eq!(text(&done, "lastCompletedRolloutHash"), first);
        let set = set_of(&first);
        assert_eq!(w.names(NODE), [format!("db-{set}-0"), format!("db-{set}-1")]);
        assert_eq!(done["history"].as_array().unwrap().len(), 2);
    });
}

#[test]
fn while_retiring_a_new_target_starts_at_once_and_the_old_set_still_goes() {
    play(|w| async move {
        w.serve(blue_green(2, json!({"retireDelaySeconds": 600}))).await;
        w.image("db:2").await;
        let retiring = w.until("traffic moved", stage_is("Retiring")).await;
        w.image("db:3").await;
        let next = w.until("the next is made", |s| s["rollout"]["stage"] == "CreatingEntrants").await;
        assert_eq!(next["history"][0]["outcome"], "Complete");
        assert_eq!(next["history"][0]["planID"], retiring["plan"]["id"]);
        let done = w.until("it serves", |s| s["rollout"]["stage"] == "Retiring").await;
        assert_eq!(w.names(NODE).len(), 6, "both old sets live out their delay");
        assert_ne!(done["activeSet"], retiring["activeSet"]);
        w.rest(550).await;
        w.until("the first set is gone", |_| !w.names(NODE).contains(&"db-0".to_owned())).await;
        w.until("all is over", is_up_to_date).await;
        assert_eq!(w.names(NODE).len(), 2);
        w.is_at_rest().await;
    });
}

#[test]
fn while_retiring_a_target_whose_set_still_lives_goes_back_to_that_set_without_creating_a_node() {
    play(|w| async move {
        let first = w.serve(blue_green(2, json!({"retireDelaySeconds": 300}))).await;
        w.image("db:2").await;
        w.until("traffic moved", stage_is("Retiring")).await;
        let pods = w.names(("v1", "Pod"));
        w.image("db:1").await;
        let back = w.until("traffic is back", |s| text(s, "lastCompletedRolloutHash") == first).await;
        assert_eq!(back["activeSet"], "first");
        assert_eq!(w.selected(), "first");
        assert_eq!(w.names(("v1", "Pod")), pods, "no node was made");
        assert_eq!(w.events("NodeCreated").len(), 4);
        let done = w.until("it is over", is_up_to_date).await;
        assert_eq!(w.names(NODE), ["db-0", "db-1"]);
        assert_eq!(done["activeSet"], "first");
        w.is_at_rest().await;
    });
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
fn a_set_that_served_is_wanted_again_and_is_given_up_lives_for_the_rest_of_its_delay() {
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
fn a_living_set_of_an_earlier_id_is_entered_by_another_template_of_that_id() {
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
fn a_set_that_is_being_removed_is_never_joined() {
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
fn a_strategy_that_changes_before_promotion_supersedes() {
    play(|w| async move {
        let (_, second) = before_promotion(&w).await;
        w.change(json!({"updateStrategy": {"type": "InPlace"}})).await;
        let next = w.until("it goes in place", |s| s["plan"]["recipe"] == "InPlace").await;
        assert_eq!(text(&next["rollout"], "targetHash"), second);
        w.until("the entrants are gone", |_| w.names(NODE) == ["db-0", "db-1"]).await;
        assert_eq!(condition(&w.status(), "RolloutInProgress"), "True/Superseded");
    });
}

#[test]
fn a_change_to_immediately_goes_on_with_the_nodes_that_were_made() {
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
fn what_is_wanted_under_a_pause_is_what_counts_where_the_old_nodes_go_first() {
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
fn what_was_changed_while_another_target_was_promoted_is_not_said_to_be_applied_with_it() {
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
