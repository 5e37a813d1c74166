//! A desired revision that cannot be stored keeps its own rollout from beginning, and nothing else.

use super::fleet::fleet_spec;
use super::*;

fn image(image: &str) -> Value {
    json!({"spec": {"template": {"spec": {"image": image}}}})
}

#[tokio::test(start_paused = true)]
async fn rollout_ends_on_request_if_the_next_revision_is_not_stored() {
    let refusals = [forbidden("exceeded quota"), busy(), refused("denied by a webhook")];
    for error in refusals {
        for (request, state) in [("abort", "Aborted"), ("no nodes", "Superseded")] {
            let stage = Stage::serving(fleet_spec(3, "v1")).await;
            stage.change_fleet(&image("db:v2"));
            stage.look_at_fleet().await.unwrap();
            let plan = stage.fleet()["status"]["plan"]["id"].as_str().unwrap().to_owned();
            stage.fail("create ControllerRevision", error.clone());
            stage.change_fleet(&image("db:v3"));
            match request {
                "abort" => stage.annotate("windlass.dev/abort", &plan),
                _ => stage.change_fleet(&json!({"spec": {"replicas": 0}})),
            }
            // What cannot be stored is tried again as an error.
            drop(stage.look_at_fleet().await);
            let history = stage.fleet()["status"]["history"].clone();
            let ended = history.as_array().unwrap().iter().find(|entry| entry["planID"] == plan.as_str());
            let outcome = ended.map(|entry| entry["outcome"].clone());
            assert_eq!(outcome, Some(json!(state)), "{request}, {error}: {history:#}");
            assert!(stage.fleet()["status"]["rollout"].is_null(), "{request}, {error}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn set_names_are_not_listed_when_the_revision_cannot_be_stored() {
    let mut spec = fleet_spec(2, "v1");
    spec["updateStrategy"] = json!({"type": "BlueGreen"});
    spec["service"] = json!({"ports": [{"port": 80}]});
    let stage = Stage::serving(spec).await;
    stage.fail("create ControllerRevision", busy());
    stage.change_fleet(&image("db:v2"));
    stage.calls();
    for _ in 0..3 {
        assert!(stage.look_at_fleet().await.is_err());
    }
    let calls = stage.calls();
    assert!(!calls.iter().any(|call| call.starts_with("names")), "{calls:?}");
    assert!(stage.fleet()["status"]["rollout"].is_null());
}
