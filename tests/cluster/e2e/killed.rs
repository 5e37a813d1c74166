//! The operator dies at any moment, and the next one continues.

use std::time::Duration;

use windlass_sim::Random;

use windlass_harness::kit::tools::{outcomes, plan_id};
use windlass_harness::kit::{Wave, World, fleet};

/// How often the operator is killed.
const KILLS: usize = 10;
/// The number of nodes: enough to outlast the last kill.
const NODES: usize = 16;

/// Seeded from `WINDLASS_SEED`, or from the clock; prints the seed.
fn random() -> Random {
    let given = std::env::var("WINDLASS_SEED").ok().and_then(|text| text.parse().ok());
    let now = || std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("a clock");
    let seed = given.unwrap_or_else(|| now().subsec_nanos().into());
    println!("seed: WINDLASS_SEED={seed}");
    Random::new(seed)
}

#[tokio::test(flavor = "multi_thread")]
async fn rollout_survives_ten_kills_and_replaces_each_pod_once() {
    let mut random = random();
    let mut world = World::new("kill").await;
    let mut fleet = fleet(NODES as i64, "db:1");
    // The rollout outlasts the kills on a machine of any speed.
    fleet["spec"]["minReadySeconds"] = serde_json::json!(1);
    world.fleet(fleet).await;
    world.until_applied().await;
    let wave = Wave::watch(&world, NODES).await;
    world.set_image("db:2").await;
    let begun = world.until_db("the rollout begins", |db| db["status"]["rollout"].is_object()).await;
    let mut lives = Vec::new();
    for kill in 0..KILLS {
        // From before its caches are filled to some nodes later.
        let life = random.between(20, 899);
        lives.push(life);
        tokio::time::sleep(Duration::from_millis(life)).await;
        world.kill_operator().await;
        let db = world.db().await;
        assert!(db["status"]["rollout"].is_object(), "over before kill {kill} after {lives:?} ms: {db:#}");
        assert_eq!(plan_id(&db), plan_id(&begun), "kill {kill} after {lives:?} ms began another plan");
        world.start_operator(&[]).await;
    }
    let done = world.until_applied().await;
    assert_eq!(plan_id(&done), plan_id(&begun), "the plan was not begun again: {done:#}");
    assert_eq!(outcomes(&done), ["Complete"]);
    assert_eq!(world.images().await, vec!["db:2"; NODES]);
    world.writes_nothing_for(Duration::from_secs(2)).await;
    let seen = wave.at_most(1).await;
    for (pod, lives) in &seen.lives {
        assert_eq!(lives.len(), 2, "{pod} is replaced once: {lives:?}");
    }
    for node in world.list(&world.nodes()).await {
        assert_eq!(node["status"]["history"].as_array().map(Vec::len), Some(2), "{node:#}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn operator_start_over_steady_fleets_writes_nothing() {
    let mut world = World::new("steady").await;
    let mark = world.cp.audit_mark().await;
    world.fleet(fleet(3, "db:1")).await;
    world.until_applied().await;
    assert!(world.operator_audit(mark).await.count() > 0, "its writes are found in the audit log");
    let before = world.pod_uids().await;
    world.kill_operator().await;
    let mark = world.cp.audit_mark().await;
    world.start_operator(&[]).await;
    tokio::time::sleep(Duration::from_secs(4)).await;
    let written = world.operator_audit(mark).await;
    assert_eq!(written.count(), 0, "{:#?}", written.entries());
    assert_eq!(world.pod_uids().await, before);
}
