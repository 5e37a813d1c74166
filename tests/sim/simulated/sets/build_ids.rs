//! The nine cases of a custom build ID, a test for each.

use serde_json::{Value, json};

use super::world::{NODE, World, blue_green, condition, is_up_to_date, play, text};

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
fn reused_build_id_of_a_deleted_set_creates_set_with_new_claims() {
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

/// Removes the whole status while no operator runs.
async fn forget_status(w: &World) {
    let status = serde_json::json!([{"op": "replace", "path": "/status", "value": {}}]);
    let patch: json_patch::Patch = serde_json::from_value(status).unwrap();
    let params = kube::api::PatchParams::default();
    w.fleets().patch_status("db", &params, &kube::api::Patch::Json::<()>(patch)).await.unwrap();
}

#[test]
fn objects_without_a_hash_are_recorded_without_restart() {
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
fn objects_without_a_hash_and_with_other_content_have_drifted() {
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
fn in_place_fleet_without_build_id_keeps_its_completed_target() {
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
