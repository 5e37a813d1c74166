//! The nine cases of a custom build ID, a test for each.

use serde_json::{Value, json};

use super::world::{NODE, World, blue_green, condition, is_up_to_date, play, set_of, stage_is, text};

/// The set of a build ID: the first five digits of its SHA-256.
fn set_of_id(id: &str) -> &'static str {
    match id {
        // printf v1 | sha256sum
        "v1" => "3bfc2",
        "v2" => "fb04d",
        _ => unreachable!(),
    }
}

fn with_id(id: &str) -> Value {
    let mut fleet = blue_green(2, json!({"retireDelaySeconds": 60}));
    fleet["spec"]["unsafeCustomBuildID"] = json!(id);
    fleet
}

fn uids(w: &World) -> Vec<String> {
    let uid = |name: &String| text(&w.get(("v1", "Pod"), name)["metadata"], "uid").to_owned();
    w.names(("v1", "Pod")).iter().map(uid).collect()
}

#[test]
fn unset_the_id_is_made_from_the_tag_and_the_hash_and_any_change_makes_a_new_set() {
    play(|w| async move {
        let first = w.serve(blue_green(1, json!({"retireDelaySeconds": 1}))).await;
        assert_eq!(w.status()["buildID"], format!("1-{}", set_of(&first)).as_str());
        w.change(json!({"template": {"spec": {"podTemplate": {"metadata": {"labels": {"a": "b"}}}}}})).await;
        let done = w.until("it is over", |s| is_up_to_date(s) && s["activeSet"] != "first").await;
        let hash = text(&done, "lastCompletedRolloutHash");
        assert_eq!(done["activeSet"], set_of(hash).as_str());
        assert_eq!(done["buildID"], format!("1-{}", set_of(hash)).as_str());
    });
}

#[test]
fn set_for_the_first_time_it_makes_a_new_set() {
    play(|w| async move {
        w.serve(blue_green(2, json!({"retireDelaySeconds": 1}))).await;
        w.change(json!({"unsafeCustomBuildID": "v1"})).await;
        let done = w.until("it is over", |s| is_up_to_date(s) && s["activeSet"] != "first").await;
        assert_eq!(done["activeSet"], set_of_id("v1"));
        assert_eq!(done["buildID"], "v1");
        assert_eq!(done["activeBuildID"], "v1");
        w.is_at_rest().await;
    });
}

#[test]
fn the_same_id_with_another_template_updates_the_active_set_in_place_in_waves() {
    play(|w| async move {
        w.serve(with_id("v1")).await;
        assert_eq!(w.status()["activeSet"], "first", "a new fleet begins with its first set");
        w.image("db:2").await;
        let rolling = w.until("it rolls", |s| !s["rollout"].is_null()).await;
        assert_eq!(rolling["plan"]["recipe"], "InPlace");
        w.until("it is over", is_up_to_date).await;
        assert_eq!(w.names(NODE), ["db-0", "db-1"]);
        assert_eq!(w.images(), ["db-0-0 db:2", "db-1-0 db:2"]);
        w.is_at_rest().await;
    });
}

#[test]
fn the_same_id_with_the_same_template_does_nothing_and_replicas_only_scale() {
    play(|w| async move {
        w.serve(with_id("v1")).await;
        let before = uids(&w);
        w.change(json!({"unsafeCustomBuildID": "v1", "replicas": 3})).await;
        w.until("it has grown", |s| s["readyReplicas"] == 3 && is_up_to_date(s)).await;
        assert_eq!(uids(&w)[..2], before[..]);
        assert_eq!(w.status()["plan"], Value::Null, "{:?}", w.events("RolloutStarted"));
        assert_eq!(w.names(NODE), ["db-0", "db-1", "db-2"]);
    });
}

#[test]
fn a_new_id_makes_a_new_set_even_with_an_equal_template() {
    play(|w| async move {
        w.serve(with_id("v1")).await;
        w.change(json!({"unsafeCustomBuildID": "v2"})).await;
        let moved = w.until("traffic moved", stage_is("Retiring")).await;
        assert_eq!(moved["activeSet"], set_of_id("v2"));
        assert_eq!(w.images().len(), 4);
        assert!(w.images().iter().all(|i| i.ends_with("db:1")));
        w.until("it is over", is_up_to_date).await;
        assert_eq!(w.names(NODE).len(), 2);
    });
}

#[test]
fn an_earlier_id_whose_set_still_lives_becomes_the_entrant_at_the_template_now_asked_for() {
    play(|w| async move {
        w.serve(with_id("v1")).await;
        w.change(json!({"unsafeCustomBuildID": "v2"})).await;
        w.until("traffic moved", stage_is("Retiring")).await;
        let made = w.events("NodeCreated").len();
        w.change(json!({"unsafeCustomBuildID": "v1", "template": {"spec": {"image": "db:3"}}})).await;
        let done = w.until("it is over", |s| is_up_to_date(s) && s["activeSet"] == "first").await;
        assert_eq!(w.events("NodeCreated").len(), made, "no node was made");
        assert_eq!(w.images(), ["db-0-0 db:3", "db-1-0 db:3"]);
        assert_eq!(done["activeBuildID"], "v1");
        w.is_at_rest().await;
    });
}

#[test]
fn an_earlier_id_whose_set_is_gone_makes_a_new_set_on_claims_of_its_own() {
    play(|w| async move {
        w.serve(with_id("v1")).await;
        for (id, set) in [
            ("v2", set_of_id("v2").to_owned()),
            ("v1", set_of_id("v1").to_owned()),
            ("v2", format!("{}-2", set_of_id("v2"))),
        ] {
            w.change(json!({"unsafeCustomBuildID": id})).await;
            let done = w.until("it is over", |s| is_up_to_date(s) && s["activeBuildID"] == id).await;
            assert_eq!(done["activeSet"], set.as_str(), "the claims of the set before are not taken up");
        }
    });
}

#[test]
fn removed_the_generated_id_makes_a_new_set() {
    play(|w| async move {
        w.serve(with_id("v1")).await;
        w.change(json!({"unsafeCustomBuildID": ""})).await;
        let done = w.until("it is over", |s| is_up_to_date(s) && s["activeSet"] != "first").await;
        let hash = text(&done, "lastCompletedRolloutHash");
        assert_eq!(done["activeSet"], set_of(hash).as_str());
        assert_eq!(done["buildID"], format!("1-{}", set_of(hash)).as_str());
        assert!(done["activeBuildID"].is_null());
    });
}

/// Removes the whole status while no operator runs.
async fn forget_status(w: &World) {
    let status = serde_json::json!([{"op": "replace", "path": "/status", "value": {}}]);
    let patch: json_patch::Patch = serde_json::from_value(status).unwrap();
    let params = kube::api::PatchParams::default();
    w.fleets().patch_status("db", &params, &kube::api::Patch::Json::<()>(patch)).await.unwrap();
}

#[test]
fn objects_without_a_recorded_hash_are_recorded_from_what_runs_and_nothing_restarts() {
    play(|w| async move {
        w.serve(with_id("v1")).await;
        w.change(json!({"unsafeCustomBuildID": "v2"})).await;
        let done = w.until("it is over", |s| is_up_to_date(s) && s["activeSet"] != "first").await;
        let before = uids(&w);
        w.kill_operator();
        forget_status(&w).await;
        w.start_operator();
        let found = w.until("it is recorded", is_up_to_date).await;
        for field in ["activeSet", "activeBuildID", "lastCompletedRolloutHash", "currentRevision"] {
            assert_eq!(found[field], done[field], "{field}");
        }
        assert_eq!(uids(&w), before);
        w.is_at_rest().await;
    });
}

#[test]
fn objects_without_a_recorded_hash_that_run_something_else_are_rolled_as_a_drift_of_theirs() {
    play(|w| async move {
        w.serve(with_id("v1")).await;
        w.kill_operator();
        w.image("db:2").await;
        forget_status(&w).await;
        w.start_operator();
        let rolling = w.until("it rolls", |s| !s["rollout"].is_null()).await;
        assert_eq!(condition(&rolling, "RolloutInProgress"), "True/ChildDrift");
        w.until("it is over", is_up_to_date).await;
        assert_eq!(w.images(), ["db-0-0 db:2", "db-1-0 db:2"]);
    });
}

/// Switches from build IDs to in-place updates, which have none, together with a new template.
fn in_place(image: &str, strategy: &Value) -> Value {
    json!({"unsafeCustomBuildID": "", "updateStrategy": strategy, "template": {"spec": {"image": image}}})
}

#[test]
fn in_place_and_without_its_id_a_fleet_still_knows_what_last_completed_below_the_partition() {
    play(|w| async move {
        w.serve(with_id("v1")).await;
        w.change(in_place("db:2", &json!({"type": "InPlace", "inPlace": {"partition": 1}}))).await;
        let held = w.until("it is held", |s| condition(s, "UpToDate") == "Unknown/PartitionHeld").await;
        assert!(!held["conditions"].to_string().contains("is gone"), "{}", held["conditions"]);
        assert_eq!(w.images(), ["db-0-0 db:1", "db-1-0 db:2"]);
        let writes = w.get(NODE, "db-0")["metadata"]["generation"].clone();
        w.delete(NODE, "db-0").await;
        w.until("it is back", |s| s["readyReplicas"] == 2 && w.images().len() == 2).await;
        w.rest(10).await;
        assert_eq!(w.images(), ["db-0-0 db:1", "db-1-0 db:2"]);
        assert!(writes.as_i64() < Some(10), "it is not granted again and again: {writes}");
        w.is_at_rest().await;
        w.change(json!({"updateStrategy": {"inPlace": {"partition": 0}}})).await;
        let done = w.until("it is over", is_up_to_date).await;
        assert_eq!(w.images(), ["db-0-0 db:2", "db-1-0 db:2"]);
        assert!(done["activeBuildID"].is_null());
        w.is_at_rest().await;
    });
}

#[test]
fn in_place_and_without_its_id_a_fleet_that_stalls_is_rolled_back() {
    play(|w| async move {
        w.serve(with_id("v1")).await;
        w.change(in_place("db:2-nope", &json!({"type": "InPlace", "onStall": "Rollback"}))).await;
        let back = w
            .until("it is back", |s| {
                condition(s, "UpToDate") == "False/RolledBack" && s["readyReplicas"] == 2
            })
            .await;
        assert_eq!(w.images(), ["db-0-0 db:1", "db-1-0 db:1"]);
        assert!(!back["conditions"].to_string().contains("is gone"), "{}", back["conditions"]);
        w.delete(NODE, "db-0").await;
        w.until("it is there again", |s| s["readyReplicas"] == 2 && w.images().len() == 2).await;
        assert_eq!(w.images(), ["db-0-0 db:1", "db-1-0 db:1"]);
        w.image("db:1").await;
        w.until("it is up to date", is_up_to_date).await;
        w.is_at_rest().await;
    });
}
