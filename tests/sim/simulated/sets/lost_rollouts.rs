//! The status loses a field during a rollout while the operator runs, as with `kubectl edit`: the rollout begins again by
//! itself.

use serde_json::{Value, json};

use super::world::{
    CLAIM, NODE, World, blue_green, condition, fleet, is_up_to_date, play, stage_is, text, to_text,
};

/// Removes a field of the fleet's status, by its path.
async fn lose(w: &World, path: &str) {
    let mut status = w.status();
    let lost = if let Some(field) = path.strip_prefix("rollout.unconverged.0.") {
        status["rollout"]["unconverged"][0].as_object_mut().unwrap().remove(field);
        json!({"rollout": {"unconverged": status["rollout"]["unconverged"]}})
    } else if let Some((of, field)) = path.split_once('.') {
        json!({of: {field: null}})
    } else {
        json!({path: null})
    };
    w.patch_status(&json!({"status": lost})).await;
}

/// Asserts that no failure was reported.
fn is_told_of_no_failure(w: &World, what: &str) {
    let status = w.status();
    let outcomes: Vec<&str> =
        status["history"].as_array().into_iter().flatten().map(|h| text(h, "outcome")).collect();
    assert!(!outcomes.contains(&"Failed"), "{what}: {}", to_text(&status));
    assert!(w.events("RolloutFailed").is_empty(), "{what}: {:?}", w.events("RolloutFailed"));
    assert!(status["rejected"].is_null(), "{what}");
}

#[test]
fn an_in_place_rollout_begins_again_after_a_loss() {
    for path in [
        "rollout",
        "rollout.startedAt",
        "rollout.lastProgressAt",
        "rollout.unconverged.0.since",
        "plan.id",
        "plan.recipe",
        "plan.targetHash",
        "plan.state",
        "plan.startedAt",
        "plan.tasks",
    ] {
        play(|w| async move {
            w.serve(fleet(3, json!({"type": "InPlace"}))).await;
            w.steer("db-1-0", "unready").await;
            w.image("db:2").await;
            w.until("it is in its middle", |s| {
                s["rollout"]["nodes"]["updated"] == 1 && !s["rollout"]["unconverged"][0].is_null()
            })
            .await;
            w.rest(5).await;
            lose(&w, path).await;
            w.rest(5).await;
            let status = w.status();
            assert_eq!(status["plan"]["state"], "Active", "{path}");
            assert!(w.images()[0].ends_with("db:1"), "{path}: the wave holds: {:?}", w.images());
            w.delete(("v1", "ConfigMap"), "steer-db-1-0").await;
            w.until("it is over", is_up_to_date).await;
            is_told_of_no_failure(&w, path);
            assert!(w.images().iter().all(|i| i.ends_with("db:2")), "{path}: {:?}", w.images());
            if path == "rollout" {
                w.is_at_rest().await;
            }
        });
    }
}

#[test]
fn a_rollback_begins_again_after_a_loss() {
    play(|w| async move {
        let stall = json!({"type": "InPlace", "onStall": "Rollback", "progressDeadlineSeconds": 30});
        w.serve(fleet(3, stall)).await;
        w.image("db:2-nope").await;
        w.until("it is taken back", |s| !s["rejected"].is_null() && s["plan"]["state"] == "Active").await;
        lose(&w, "rollout").await;
        let back = |s: &Value| condition(s, "UpToDate") == "False/RolledBack" && s["rollout"].is_null();
        w.until("it is back", |s| back(s) && s["readyReplicas"] == 3).await;
        assert!(w.images().iter().all(|i| i.ends_with("db:1")), "{:?}", w.images());
        assert!(w.events("RolloutFailed").is_empty());
        w.is_at_rest().await;
    });
}

#[test]
fn a_blue_green_rollout_begins_again_after_a_loss() {
    for (promotion, stage) in [
        ("WhenReady", "AwaitingEntrants"),
        ("Manual", "AwaitingPromotion"),
        ("WhenReady", "CreatingEntrants"),
    ] {
        for path in ["rollout", "rollout.startedAt", "rollout.entrantSet", "plan.tasks", "plan.state"] {
            play(|w| async move {
                w.serve(blue_green(2, json!({"promotion": promotion, "retireDelaySeconds": 20}))).await;
                let claims = w.names(CLAIM);
                // Its nodes wait until they are released.
                if promotion == "WhenReady" {
                    w.change(json!({"minReadySeconds": 60})).await;
                }
                w.image("db:2").await;
                w.until("it is there", stage_is(stage)).await;
                lose(&w, path).await;
                if promotion == "Manual" {
                    let ready = |s: &Value| condition(s, "UpToDate") == "Unknown/ReadyToPromote";
                    w.rest(5).await;
                    let status = w.until("it waits for a person", ready).await;
                    assert_eq!(w.selected(), "first", "{path}");
                    w.change(json!({"forcePromote": status["requestedRolloutHash"]})).await;
                }
                w.until("it is over", |s| is_up_to_date(s) && w.names(NODE).len() == 2).await;
                let what = format!("{path} at {stage}");
                is_told_of_no_failure(&w, &what);
                assert!(w.images().iter().all(|i| i.ends_with("db:2")), "{what}: {:?}", w.images());
                assert!(claims.iter().all(|claim| w.names(CLAIM).contains(claim)), "{what}");
                if path == "rollout" {
                    w.is_at_rest().await;
                }
            });
        }
    }
}
