//! The operator dies at random in each stage of a set's rollout, and the next one continues.

use std::time::Duration;

use serde_json::{Value, json};

use crate::e2e::killed::Random;
use crate::e2e::sets::{blue_green, is_over, names, nodes, outcomes, selected, set_of, stage, text};
use crate::e2e::sidecars::Sidecars;
use windlass_harness::kit::tools::plan_id;
use windlass_harness::kit::{World, with};

/// How often the operator is killed in a stage.
const KILLS: usize = 4;

/// Kills the operator at random moments, each time in this stage.
async fn dies_in(world: &mut World, random: &mut Random, stage: &str) -> Value {
    let begun = world.db().await;
    let mut lives = Vec::new();
    for _ in 0..KILLS {
        // From before its caches are filled to well after.
        let life = 20 + random.below(700);
        lives.push(life);
        tokio::time::sleep(Duration::from_millis(life)).await;
        world.kill_operator().await;
        let db = world.db().await;
        assert_eq!(db["status"]["rollout"]["stage"], stage, "after {lives:?} ms: {db:#}");
        assert_eq!(plan_id(&db), plan_id(&begun), "after {lives:?} ms");
        assert_eq!(db["status"]["rollout"]["entrantSet"], begun["status"]["rollout"]["entrantSet"]);
        world.start_operator(&[]).await;
    }
    begun
}

/// Kills it at random moments, in any stage.
async fn dies_on_the_way(world: &mut World, random: &mut Random) {
    for _ in 0..KILLS {
        tokio::time::sleep(Duration::from_millis(20 + random.below(300))).await;
        world.kill_operator().await;
        world.start_operator(&[]).await;
    }
}

/// The rollout is over, under its plan, and left the same as without kills.
async fn ends_as_if_nothing_had_been(world: &World, begun: &Value, claims: usize) {
    let done = world.until_db("it is over", |db| is_over(db) && db["status"]["activeSet"] != "first").await;
    assert_eq!(outcomes(&done), ["Complete"]);
    assert_eq!(plan_id(&done), plan_id(begun), "the plan was not begun again");
    let set = set_of(&done);
    assert_eq!(done["status"]["activeSet"], set.as_str());
    assert_eq!(selected(world).await, set);
    assert_eq!(nodes(world).await, [format!("db-{set}-0"), format!("db-{set}-1")]);
    world.until_quiet().await;
    assert_eq!(names(world, "v1", "Pod").await, [format!("db-{set}-0-0"), format!("db-{set}-1-0")]);
    assert_eq!(names(world, "v1", "PersistentVolumeClaim").await.len(), claims);
}

/// Lets the entrants run.
async fn let_entrants_run(world: &World, db: &Value) {
    for ordinal in 0..2 {
        let pod = format!("db-{}-{ordinal}-0", text(&db["status"]["rollout"], "entrantSet"));
        world.steer(&pod, "ready").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn blue_green_goes_on_after_deaths_while_it_creates_entrants() {
    let mut random = Random::seeded();
    let mut world = World::new("bgkcre").await;
    world.settled_fleet(blue_green(2, json!({"retireDelaySeconds": 1}))).await;
    // It stays there while paused.
    world.patch_fleet(json!({"spec": {"paused": true}})).await;
    world.set_image("db:2").await;
    world.until_db("it begins", stage("CreatingEntrants")).await;
    let begun = dies_in(&mut world, &mut random, "CreatingEntrants").await;
    assert_eq!(nodes(&world).await, ["db-0", "db-1"]);
    world.patch_fleet(json!({"spec": {"paused": false}})).await;
    dies_on_the_way(&mut world, &mut random).await;
    ends_as_if_nothing_had_been(&world, &begun, 4).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn blue_green_goes_on_after_deaths_while_it_awaits_entrants() {
    let mut random = Random::seeded();
    let mut world = World::new("bgkent").await;
    world.settled_fleet(blue_green(2, json!({"retireDelaySeconds": 1}))).await;
    world.set_image("db:2-nope").await;
    world.until_db("entrants are waited for", stage("AwaitingEntrants")).await;
    let begun = dies_in(&mut world, &mut random, "AwaitingEntrants").await;
    let_entrants_run(&world, &begun).await;
    dies_on_the_way(&mut world, &mut random).await;
    ends_as_if_nothing_had_been(&world, &begun, 4).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn blue_green_goes_on_after_deaths_while_it_awaits_the_promotion_and_while_traffic_moves() {
    let mut random = Random::seeded();
    let mut world = World::new("bgkman").await;
    world.settled_fleet(blue_green(2, json!({"promotion": "Manual", "retireDelaySeconds": 1}))).await;
    world.set_image("db:2").await;
    world.until_db("a person is waited for", stage("AwaitingPromotion")).await;
    let begun = dies_in(&mut world, &mut random, "AwaitingPromotion").await;
    assert_eq!(selected(&world).await, "first");
    let hash = begun["status"]["requestedRolloutHash"].clone();
    world.patch_fleet(json!({"spec": {"forcePromote": hash}})).await;
    dies_on_the_way(&mut world, &mut random).await;
    ends_as_if_nothing_had_been(&world, &begun, 4).await;
    assert_eq!(world.db().await["status"]["spentForcePromote"], hash);
}

#[tokio::test(flavor = "multi_thread")]
async fn blue_green_goes_on_after_deaths_while_it_promotes() {
    let mut random = Random::seeded();
    let mut world = World::new("bgkpro").await;
    world.settled_fleet(blue_green(2, json!({"promotion": "Immediately"}))).await;
    world.set_image("db:2-nope").await;
    let promoting = world.until_db("it promotes", stage("Promoting")).await;
    let begun = dies_in(&mut world, &mut random, "Promoting").await;
    assert_eq!(plan_id(&begun), plan_id(&promoting));
    let entrant = format!("db-{}-0", text(&begun["status"]["rollout"], "entrantSet"));
    world.until(&world.nodes(), &entrant, "the old nodes are gone, and this is made", Value::is_object).await;
    assert!(!nodes(&world).await.contains(&"db-0".to_owned()), "never two sets at once");
    let_entrants_run(&world, &begun).await;
    dies_on_the_way(&mut world, &mut random).await;
    ends_as_if_nothing_had_been(&world, &begun, 4).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn blue_green_goes_on_after_deaths_while_the_old_set_retires() {
    let mut random = Random::seeded();
    let mut world = World::new("bgkret").await;
    world.settled_fleet(blue_green(2, json!({"retireDelaySeconds": 20}))).await;
    world.set_image("db:2").await;
    world.until_db("traffic moved", stage("Retiring")).await;
    let begun = dies_in(&mut world, &mut random, "Retiring").await;
    assert_eq!(nodes(&world).await.len(), 4, "the old nodes live on for their delay");
    world.patch_fleet(json!({"spec": {"updateStrategy": {"blueGreen": {"retireDelaySeconds": 1}}}})).await;
    dies_on_the_way(&mut world, &mut random).await;
    ends_as_if_nothing_had_been(&world, &begun, 4).await;
}

/// A fleet whose old nodes halt at 1000, and are at 500.
async fn hard_fork(world: &World, retire_delay_seconds: i64) -> Sidecars {
    let sidecars = Sidecars::start(world).await;
    sidecars.reach(500);
    let strategy = json!({"type": "HardFork", "hardFork": {"haltHeight": 1000}, "progressDeadlineSeconds": 120,
        "blueGreen": {"retireDelaySeconds": retire_delay_seconds}});
    let spec = json!({"spec": {"updateStrategy": strategy, "service": {"ports": [{"port": 5432}]}}});
    world.settled_fleet(with(sidecars.fleet(2, "db:1"), &spec)).await;
    sidecars
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hard_fork_goes_on_after_deaths_while_it_creates_entrants() {
    let mut random = Random::seeded();
    let mut world = World::new("hfkcre").await;
    let sidecars = hard_fork(&world, 1).await;
    world.set_image("db:2-nope").await;
    world.until_db("it begins", stage("CreatingEntrants")).await;
    let begun = dies_in(&mut world, &mut random, "CreatingEntrants").await;
    assert_eq!(sidecars.halts(), [0_i64; 0], "nobody halts before the new nodes run");
    let_entrants_run(&world, &begun).await;
    sidecars.reach(1000);
    dies_on_the_way(&mut world, &mut random).await;
    ends_as_if_nothing_had_been(&world, &begun, 0).await;
    assert_eq!(sidecars.halts(), [1000, 1000], "each was asked once");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hard_fork_goes_on_after_deaths_while_the_old_nodes_halt() {
    let mut random = Random::seeded();
    let mut world = World::new("hfkpro").await;
    let sidecars = hard_fork(&world, 1).await;
    world.set_image("db:2").await;
    world.until_db("it promotes", stage("Promoting")).await;
    let begun = dies_in(&mut world, &mut random, "Promoting").await;
    assert_eq!(begun["status"]["rollout"]["haltHeight"], 1000);
    world.until_db("both were asked", |_| sidecars.halts() == [1000, 1000]).await;
    assert_eq!(selected(&world).await, "first");
    sidecars.reach(1000);
    dies_on_the_way(&mut world, &mut random).await;
    ends_as_if_nothing_had_been(&world, &begun, 0).await;
    assert_eq!(sidecars.halts(), [1000, 1000], "each was asked once");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hard_fork_goes_on_after_deaths_while_the_old_set_retires() {
    let mut random = Random::seeded();
    let mut world = World::new("hfkret").await;
    let sidecars = hard_fork(&world, 20).await;
    sidecars.reach(1000);
    world.set_image("db:2").await;
    world.until_db("traffic moved", stage("Retiring")).await;
    let begun = dies_in(&mut world, &mut random, "Retiring").await;
    world.patch_fleet(json!({"spec": {"updateStrategy": {"blueGreen": {"retireDelaySeconds": 1}}}})).await;
    dies_on_the_way(&mut world, &mut random).await;
    ends_as_if_nothing_had_been(&world, &begun, 0).await;
}
