//! The Service in front of a fleet.

use serde_json::{Value, json};

use windlass_harness::kit::{World, fleet};

fn served() -> Value {
    let mut fleet = fleet(1, "db:1");
    fleet["spec"]["service"] = json!({"ports": [{"name": "sql", "port": 5432, "targetPort": 15432}]});
    fleet
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "nightly"]
async fn a_fleet_has_a_service_of_its_name_while_it_asks_for_one() {
    let world = World::new("svc").await;
    let services = world.api("v1", "Service");
    world.fleet(served()).await;
    let done = world.until_applied().await;
    let service = world.until(&services, "db", "it is there", |s| !s.is_null()).await;
    assert_eq!(
        service["spec"]["selector"],
        json!({"windlass.dev/deployment": "db", "windlass.dev/set": "first"})
    );
    assert_eq!(service["spec"]["ports"][0]["targetPort"], 15432);
    assert_eq!(service["metadata"]["ownerReferences"][0]["uid"], done["metadata"]["uid"]);
    let pods = world.pod_uids().await;

    let ports = json!([{"name": "sql", "port": 5433}]);
    world.patch_fleet(json!({"spec": {"service": {"ports": ports}}})).await;
    let changed =
        world.until(&services, "db", "its port changes", |s| s["spec"]["ports"][0]["port"] == 5433).await;
    assert_eq!(changed["metadata"]["uid"], service["metadata"]["uid"], "it is changed, not made anew");
    world.patch(&services, "db", json!({"spec": {"selector": {"windlass.dev/set": "other"}}})).await;
    world
        .until(&services, "db", "an edit by hand is put right", |s| {
            s["spec"]["selector"]["windlass.dev/set"] == "first"
        })
        .await;
    world.delete(&services, "db").await;
    world
        .until(&services, "db", "a lost one is made again", |s| {
            s["metadata"]["uid"].is_string() && s["metadata"]["uid"] != service["metadata"]["uid"]
        })
        .await;

    world.patch_fleet(json!({"spec": {"service": null}})).await;
    world.until(&services, "db", "it goes", Value::is_null).await;
    let after = world.until_applied().await;
    assert!(after["status"]["plan"].is_null(), "none of it is a rollout: {after:#}");
    assert_eq!(world.pod_uids().await, pods);
}
