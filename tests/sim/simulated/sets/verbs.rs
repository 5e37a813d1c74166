//! Verbs on a set's rollout.

use serde_json::json;

use super::world::{
    CLAIM, NODE, World, blue_green, condition, fleet, is_up_to_date, play, set_of, stage_is, text,
    with_sidecar,
};

const STUCK: &str = "db:2-unready";

async fn ready_to_promote(w: &World) -> String {
    w.serve(blue_green(2, json!({"promotion": "Manual", "retireDelaySeconds": 5}))).await;
    w.image("db:2").await;
    let ready = w.until("it is ready", |s| condition(s, "UpToDate") == "Unknown/ReadyToPromote").await;
    text(&ready, "requestedRolloutHash").to_owned()
}

#[test]
fn manual_waits_for_a_person_for_as_long_as_it_takes() {
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
fn a_promotion_of_something_else_is_ignored_with_one_event() {
    play(|w| async move {
        ready_to_promote(&w).await;
        for stale in ["v1:0000", "nonsense", "v1:0000"] {
            w.change(json!({"forcePromote": stale})).await;
            w.rest(10).await;
        }
        assert_eq!(w.status()["rollout"]["stage"], "AwaitingPromotion");
        let notes = w.events("StaleForcePromote");
        assert_eq!(notes.len(), 2, "{notes:?}");
        assert!(notes.iter().all(|n| n.contains("is ignored")));
    });
}

#[test]
fn a_promotion_that_was_used_is_spent_until_the_field_was_another() {
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
fn a_forced_promotion_skips_waiting_for_caught_up_and_never_for_running_nodes() {
    play(|w| async move {
        w.serve(with_sidecar(blue_green(2, json!({})))).await;
        w.applications.catch_up(false);
        w.image("db:2-nope").await;
        let status = w.until("it is wanted", |s| s["rollout"]["stage"] == "AwaitingEntrants").await;
        w.change(json!({"forcePromote": status["requestedRolloutHash"]})).await;
        w.rest(30).await;
        assert_eq!(w.selected(), "first", "what does not run is not promoted");
        w.image("db:3").await;
        let status = w.until("they wait", |s| text(&s["rollout"], "message").contains("catch up")).await;
        w.change(json!({"forcePromote": status["requestedRolloutHash"]})).await;
        w.until("it is over", is_up_to_date).await;
    });
}

#[test]
fn waiting_for_caught_up_can_be_skipped_and_nothing_else_of_a_fleet() {
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
fn immediately_the_old_nodes_go_first_and_keep_their_claims() {
    play(|w| async move {
        let mut fleet = blue_green(2, json!({"promotion": "Immediately"}));
        fleet["spec"]["template"]["spec"]["volumeClaimRetention"] = json!("Delete");
        w.serve(fleet).await;
        w.image("db:2").await;
        let both = std::cell::Cell::new(false);
        let done = w.until("it is over", |s| {
            let images = w.images();
            let has = |image: &str| images.iter().any(|i| i.ends_with(image));
            both.set(both.get() || has("db:1") && has("db:2"));
            is_up_to_date(s) && s["activeSet"] != "first"
        });
        let done = done.await;
        assert!(!both.get(), "never two sets at once");
        assert_eq!(done["plan"]["recipe"], "BlueGreenImmediate");
        assert_eq!(w.stages(), ["Promoting"]);
        assert_eq!(w.names(CLAIM).len(), 4, "nothing was promoted when they went: their claims stay");
        w.is_at_rest().await;
    });
}

#[test]
fn after_a_promotion_the_claims_of_the_old_set_go_only_if_that_was_asked_for() {
    for (retention, left) in [("Retain", 4), ("Delete", 2)] {
        play(|w| async move {
            let mut fleet = blue_green(2, json!({"retireDelaySeconds": 5}));
            fleet["spec"]["template"]["spec"]["volumeClaimRetention"] = json!(retention);
            w.serve(fleet).await;
            w.image("db:2").await;
            w.until("it is over", is_up_to_date).await;
            w.rest(30).await;
            assert_eq!(w.names(CLAIM).len(), left, "{retention}");
        });
    }
}

#[test]
fn entrants_that_are_given_up_keep_their_claims_whatever_was_asked_for() {
    play(|w| async move {
        let mut fleet = blue_green(2, json!({}));
        fleet["spec"]["template"]["spec"]["volumeClaimRetention"] = json!("Delete");
        w.serve(fleet).await;
        w.image(STUCK).await;
        w.until("entrants exist", |s| s["rollout"]["stage"] == "AwaitingEntrants").await;
        w.rest(5).await;
        w.image("db:1").await;
        w.until("the entrants are gone", |s| is_up_to_date(s) && w.names(NODE).len() == 2).await;
        w.rest(30).await;
        assert_eq!(w.names(CLAIM).len(), 4);
        w.is_at_rest().await;
    });
}

#[test]
fn an_abort_removes_the_entrants_and_rejects_the_target_until_a_retry() {
    play(|w| async move {
        w.serve(blue_green(2, json!({"retireDelaySeconds": 5}))).await;
        w.image("db:2-unready").await;
        let status = w.until("entrants exist", |s| s["rollout"]["stage"] == "AwaitingEntrants").await;
        let (id, target) = (text(&status["plan"], "id"), text(&status, "requestedRolloutHash"));
        w.annotate("windlass.dev/abort", id).await;
        let aborted = w.until("it is aborted", |s| condition(s, "UpToDate") == "False/Aborted").await;
        assert_eq!(condition(&aborted, "RolloutInProgress"), "False/RolloutAborted");
        assert_eq!(aborted["rejected"]["hash"], target);
        w.until("the entrants are gone", |_| w.names(NODE) == ["db-0", "db-1"]).await;
        w.is_at_rest().await;
        w.annotate("windlass.dev/retry", id).await;
        let again = w.until("it is tried again", |s| !s["rollout"].is_null()).await;
        assert_ne!(text(&again["plan"], "id"), id);
        assert_eq!(condition(&again, "RolloutInProgress"), "True/RetryRequested");
        assert_eq!(again["rollout"]["entrantSet"], format!("{}-2", set_of(target)).as_str());
    });
}

#[test]
fn a_stall_under_rollback_removes_the_entrants_and_is_not_tried_again() {
    play(|w| async move {
        let strategy = json!({"type": "BlueGreen", "onStall": "Rollback", "progressDeadlineSeconds": 60});
        let first = w.serve(fleet(2, strategy)).await;
        w.image(STUCK).await;
        let back = w.until("it is taken back", |s| condition(s, "UpToDate") == "False/RolledBack").await;
        assert_eq!(text(&back, "lastCompletedRolloutHash"), first);
        assert_eq!(condition(&back, "RolloutInProgress"), "False/RolledBack");
        assert_eq!(condition(&back, "Stalled"), "True/RolledBack");
        // The node that caused the rollback is removed: its failure stays reported as long as it matters.
        let why = format!("db-{}-0: NotReady", set_of(text(&back["rejected"], "hash")));
        assert!(text(&back["history"][0], "message").contains(&why), "{:#}", back["history"]);
        for said in back["conditions"].as_array().unwrap() {
            let told = ["UpToDate", "Stalled"].contains(&text(said, "type"));
            assert!(!told || text(said, "message").contains(&why), "{said:#}");
        }
        let notes = w.events("RolledBack");
        assert!(notes.len() == 1 && notes[0].contains(&why), "{notes:?}");
        w.until("the entrants are gone", |_| w.names(NODE) == ["db-0", "db-1"]).await;
        assert_eq!(w.events("RolledBack").len(), 1);
        w.is_at_rest().await;
        w.image("db:3").await;
        w.until("another target is rolled out", is_up_to_date).await;
    });
}

#[test]
fn a_stall_under_hold_says_who_and_why() {
    play(|w| async move {
        w.serve(blue_green(2, json!({}))).await;
        w.image("db:2-nope").await;
        let stalled = w.until("it stalls", |s| condition(s, "Stalled") == "True/NoProgress").await;
        assert_eq!(condition(&stalled, "UpToDate"), "False/Stalled");
        let node = &stalled["rollout"]["unconverged"][0];
        assert_eq!(node["reason"], "ImagePullBackOff");
        assert!(text(node, "name").starts_with(&format!("db-{}-", text(&stalled["rollout"], "entrantSet"))));
        assert_eq!(w.selected(), "first");
    });
}

#[test]
fn while_paused_nothing_of_a_rollout_happens() {
    play(|w| async move {
        w.serve(blue_green(2, json!({"retireDelaySeconds": 5}))).await;
        w.change(json!({"paused": true})).await;
        w.image("db:2").await;
        w.rest(60).await;
        assert_eq!(w.names(NODE), ["db-0", "db-1"]);
        assert_eq!(condition(&w.status(), "RolloutInProgress"), "True/Paused");
        w.change(json!({"paused": false})).await;
        w.until("traffic moved", stage_is("Retiring")).await;
        w.change(json!({"paused": true})).await;
        w.rest(60).await;
        assert_eq!(w.names(NODE).len(), 4, "nothing is retired either");
        w.change(json!({"paused": false})).await;
        w.until("it is over", is_up_to_date).await;
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
fn a_restart_rolls_the_active_set_in_waves_after_the_promotion() {
    play(|w| async move {
        let target = ready_to_promote(&w).await;
        w.annotate("windlass.dev/restartedAt", "2099-01-01T00:00:00Z").await;
        w.rest(30).await;
        assert_eq!(w.status()["rollout"]["stage"], "AwaitingPromotion", "incumbents are not touched");
        w.change(json!({"forcePromote": target})).await;
        w.until("it restarts", |s| s["plan"]["recipe"] == "InPlace").await;
        let done = w.until("it is over", |s| is_up_to_date(s) && w.names(NODE).len() == 2).await;
        assert_eq!(done["restartedAt"], "2099-01-01T00:00:00Z");
        assert_eq!(text(&done, "lastCompletedRolloutHash"), target);
        w.is_at_rest().await;
    });
}

#[test]
fn a_lost_node_of_either_set_is_made_again() {
    play(|w| async move {
        ready_to_promote(&w).await;
        let set = text(&w.status()["rollout"], "entrantSet").to_owned();
        for name in ["db-1".to_owned(), format!("db-{set}-0")] {
            let uid = w.get(NODE, &name)["metadata"]["uid"].clone();
            w.delete(NODE, &name).await;
            w.until("it is there again", |_| {
                let node = w.get(NODE, &name);
                node.is_object() && node["metadata"]["uid"] != uid
            })
            .await;
        }
        w.rest(30).await;
        assert_eq!(w.images().len(), 4);
        assert_eq!(w.status()["rollout"]["stage"], "AwaitingPromotion");
        assert!(w.images().contains(&"db-1-0 db:1".to_owned()));
    });
}

#[test]
fn a_promotion_by_the_hash_of_a_template_that_is_refused_promotes_nothing() {
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
fn the_nodes_of_a_plan_that_cannot_be_read_any_more_stay_until_somebody_asks_for_something() {
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
fn an_abort_while_the_spec_is_refused_rejects_what_ran_and_not_what_was_never_tried() {
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
