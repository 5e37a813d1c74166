//! BlueGreen and HardFork: a set of nodes is created next to the serving one, and takes over.

use serde_json::{Value, json};

use crate::e2e::sidecars::Sidecars;
use windlass_harness::kit::{World, condition, fleet, is_applied, with};

/// A fleet with sets, a Service and a claim for each node.
#[allow(clippy::needless_pass_by_value, reason = "as tests read best")]
pub fn blue_green(replicas: i64, settings: Value) -> Value {
    let strategy = json!({"type": "BlueGreen", "blueGreen": settings, "progressDeadlineSeconds": 30});
    let claim = json!({"metadata": {"name": "data"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}});
    with(
        fleet(replicas, "db:1"),
        &json!({"spec": {
            "updateStrategy": strategy, "service": {"ports": [{"port": 5432}]},
            "template": {"spec": {"volumeClaimTemplates": [claim]}},
        }}),
    )
}

pub fn is_over(db: &Value) -> bool {
    is_applied(db) && db["status"]["rollout"].is_null()
}

pub fn stage(name: &str) -> impl Fn(&Value) -> bool {
    move |db| db["status"]["rollout"]["stage"] == name
}

pub fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().unwrap_or_default()
}

pub fn set_of(db: &Value) -> String {
    text(&db["status"], "lastCompletedRolloutHash")[3..8].to_owned()
}

pub async fn names(world: &World, api_version: &str, kind: &str) -> Vec<String> {
    let objects = world.list(&world.api(api_version, kind)).await;
    let mut names: Vec<String> = objects.iter().map(|o| text(&o["metadata"], "name").to_owned()).collect();
    names.sort();
    names
}

pub async fn nodes(world: &World) -> Vec<String> {
    names(world, "windlass.dev/v1alpha1", "StatefulNode").await
}

pub async fn selected(world: &World) -> String {
    let service = world.get(&world.api("v1", "Service"), "db").await;
    text(&service["spec"]["selector"], "windlass.dev/set").to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn new_set_takes_over_and_old_set_leaves_its_claims() {
    let world = World::new("bg").await;
    world.settled_fleet(blue_green(2, json!({"retireDelaySeconds": 3}))).await;
    assert_eq!(nodes(&world).await, ["db-0", "db-1"]);
    let before: Vec<Value> = world.list(&world.nodes()).await.iter().map(|n| n["spec"].clone()).collect();
    world.set_image("db:2").await;
    let moved = world.until_db("traffic moved", stage("Retiring")).await;
    let set = set_of(&moved);
    assert_eq!(moved["status"]["activeSet"], set.as_str());
    assert_eq!(selected(&world).await, set);
    assert_eq!(condition(&moved, "UpToDate"), "True/Applied");
    for (name, spec) in ["db-0", "db-1"].iter().zip(&before) {
        let node = world.get(&world.nodes(), name).await;
        assert_eq!(&node["spec"], spec, "incumbents are not touched");
    }
    world.until_db("the old set is gone", is_over).await;
    assert_eq!(nodes(&world).await, [format!("db-{set}-0"), format!("db-{set}-1")]);
    assert_eq!(world.images().await, ["db:2", "db:2"]);
    let claims = names(&world, "v1", "PersistentVolumeClaim").await;
    assert_eq!(claims.len(), 4, "{claims:?}");
    assert_eq!(world.notes("Promoted").await.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn manual_promotion_requires_and_consumes_the_target_hash() {
    let world = World::new("bgman").await;
    world.settled_fleet(blue_green(1, json!({"promotion": "Manual", "retireDelaySeconds": 1}))).await;
    world.set_image("db:2").await;
    let ready = |db: &Value| condition(db, "UpToDate") == "Unknown/ReadyToPromote";
    let waits = world.until_db("it is ready", ready).await;
    world.patch_fleet(json!({"spec": {"forcePromote": "nonsense"}})).await;
    let note = world.until_event("db", "StaleForcePromote").await;
    assert!(note.contains("nonsense"), "{note}");
    assert_eq!(selected(&world).await, "first");
    let hash = waits["status"]["requestedRolloutHash"].clone();
    world.patch_fleet(json!({"spec": {"forcePromote": hash}})).await;
    let done = world.until_db("it is over", is_over).await;
    assert_eq!(done["status"]["spentForcePromote"], hash);
    assert_eq!(done["status"]["lastCompletedRolloutHash"], hash);
}

#[tokio::test(flavor = "multi_thread")]
async fn hard_fork_halts_old_nodes_before_new_ones_take_over() {
    let world = World::new("fork").await;
    let sidecars = Sidecars::start(&world).await;
    sidecars.reach(500);
    let strategy = json!({"type": "HardFork", "hardFork": {"haltHeight": 1000},
        "blueGreen": {"retireDelaySeconds": 1}});
    let fleet = with(
        sidecars.fleet(2, "db:1"),
        &json!({"spec": {"updateStrategy": strategy, "service": {"ports": [{"port": 5432}]}}}),
    );
    world.settled_fleet(fleet).await;
    world.set_image("db:2").await;
    let waits = |db: &Value| text(&db["status"]["rollout"], "message").contains("halt at height 1000");
    let waiting = world.until_db("the old nodes are asked to halt", waits).await;
    assert_eq!(waiting["status"]["rollout"]["stage"], "Promoting");
    assert_eq!(waiting["status"]["rollout"]["haltHeight"], 1000);
    world.until_db("both were asked", |_| sidecars.halts() == [1000, 1000]).await;
    assert_eq!(selected(&world).await, "first");
    sidecars.reach(1000);
    let done = world.until_db("it is over", |db| is_over(db) && db["status"]["activeSet"] != "first").await;
    assert_eq!(selected(&world).await, set_of(&done));
    assert_eq!(world.images().await, ["db:2", "db:2"]);
    assert_eq!(sidecars.halts(), [1000, 1000], "each was asked once");
}
