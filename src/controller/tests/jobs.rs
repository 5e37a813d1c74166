//! The Jobs of hooks.

use super::fleet::fleet_spec;
use super::*;

#[tokio::test(start_paused = true)]
async fn job_deleted_for_an_unstored_plan_end_is_recreated() {
    let stage = Stage::serving(fleet_spec(2, "v1")).await;
    let image = |image: &str| json!({"spec": {"template": {"spec": {"image": image}}}});
    let looks = async |times: u32| {
        for _ in 0..times {
            stage.look_at_fleet().await.unwrap();
            stage.pass(1).await;
        }
    };
    let pod = json!({"restartPolicy": "Never", "containers": [{"name": "a", "image": "backup:1"}]});
    let backup = json!({"name": "backup", "at": "BeforeRollout", "timeoutSeconds": 600,
        "job": {"template": {"template": {"spec": pod}}}});
    let mut to_v2 = image("db:v2");
    to_v2["spec"]["updateStrategy"] = json!({"hooks": [backup]});
    stage.change_fleet(&to_v2);
    looks(5).await;
    assert_eq!(stage.names(Kind::Job).len(), 1);
    let plan = stage.fleet()["status"]["plan"].clone();
    assert!(plan["tasks"][0]["progress"]["uid"].is_string(), "{plan:#}");
    // The plan is superseded, and its end is not stored.
    stage.change_fleet(&image("db:v1"));
    stage.fail("patch NodeDeployment db /status", busy());
    stage.look_at_fleet().await.unwrap_err();
    assert_eq!(stage.names(Kind::Job), [""; 0]);
    stage.mend();
    // Nor is it any more, as the plan's target is wanted again.
    stage.change_fleet(&image("db:v2"));
    looks(5).await;
    assert_eq!(stage.names(Kind::Job).len(), 1);
    let now = stage.fleet()["status"]["plan"].clone();
    assert_eq!((&now["id"], &now["tasks"][0]["state"]), (&plan["id"], &json!("Running")), "{now:#}");
}
