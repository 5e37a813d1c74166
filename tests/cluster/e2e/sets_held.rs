//! What must not change during a promotion: a spec that changes back and forth, a failing plan, a lost status.

use std::time::Duration;

use serde_json::{Value, json};

use crate::e2e::sets::{blue_green, is_over, nodes, outcomes, selected, stage, text};
use crate::e2e::sidecars::Sidecars;
use windlass_harness::kit::tools::{message, plan_id};
use windlass_harness::kit::{World, condition, with};

async fn until_seen(world: &World) -> Value {
    let seen = |db: &Value| db["status"]["observedGeneration"] == db["metadata"]["generation"];
    world.until_db("the change is seen", seen).await
}

#[tokio::test(flavor = "multi_thread")]
async fn while_retiring_the_same_content_changes_nothing() {
    let world = World::new("bgretsame").await;
    world.settled_fleet(blue_green(1, json!({"retireDelaySeconds": 8}))).await;
    world.set_image("db:2").await;
    let retiring = world.until_db("traffic moved", stage("Retiring")).await;
    world.set_image("db:2").await;
    world.patch_fleet(json!({"spec": {"minReadySeconds": 1}})).await;
    let seen = until_seen(&world).await;
    assert_eq!(plan_id(&seen), plan_id(&retiring));
    assert_eq!(seen["status"]["activeSet"], retiring["status"]["activeSet"]);
    let done = world.until_db("it is over", is_over).await;
    assert_eq!(outcomes(&done), ["Complete"]);
    assert_eq!(plan_id(&done), plan_id(&retiring));
    assert_eq!(nodes(&world).await.len(), 1);
}

/// A hard fork whose old nodes have to halt at 1000, and are at 500.
async fn halting(world: &World) -> (Sidecars, Value) {
    let sidecars = Sidecars::start(world).await;
    sidecars.reach(500);
    let strategy = json!({"type": "HardFork", "hardFork": {"haltHeight": 1000}, "progressDeadlineSeconds": 120,
        "blueGreen": {"retireDelaySeconds": 1}});
    let spec = json!({"spec": {"updateStrategy": strategy, "service": {"ports": [{"port": 5432}]}}});
    world.settled_fleet(with(sidecars.fleet(1, "db:1"), &spec)).await;
    world.set_image("db:2").await;
    world.until_db("it was asked", |_| sidecars.halts() == [1000]).await;
    let halting = world.until_db("it promotes", stage("Promoting")).await;
    (sidecars, halting)
}

#[tokio::test(flavor = "multi_thread")]
async fn while_old_nodes_halt_the_same_content_a_new_target_and_the_way_back_wait_for_the_switch() {
    let world = World::new("hfpro").await;
    let (sidecars, begun) = halting(&world).await;
    for image in ["db:2", "db:3", "db:1"] {
        world.set_image(image).await;
        let seen = until_seen(&world).await;
        assert_eq!(plan_id(&seen), plan_id(&begun), "{image}");
        assert_eq!(
            seen["status"]["requestedRolloutHash"], begun["status"]["requestedRolloutHash"],
            "{image}"
        );
        assert_eq!(seen["status"]["rollout"]["haltHeight"], 1000, "{image}");
    }
    sidecars.reach(1000);
    // A return to the last completed revision is a rollout of its own, and never uses the halted nodes.
    let done = world.until_db("both are done", |db| is_over(db) && outcomes(db).len() == 2).await;
    assert_eq!(outcomes(&done), ["Complete", "Complete"]);
    assert_eq!(done["status"]["history"][0]["targetHash"], begun["status"]["requestedRolloutHash"]);
    assert_ne!(done["status"]["activeSet"], "first");
    assert_eq!(world.images().await, ["db:1"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_promotion_whose_plan_cannot_be_read_holds_until_a_retry_names_it() {
    let mut world = World::new("hfheld").await;
    let (sidecars, begun) = halting(&world).await;
    world.kill_operator().await;
    let foreign = json!({"status": {"plan": {"tasks": [{"type": "of-another-version"}]}}});
    world.patch_status(&world.fleets(), "db", foreign).await;
    world.start_operator(&[]).await;
    let failed = |db: &Value| condition(db, "UpToDate") == "False/PlanFailed";
    let held = world.until_db("its plan has failed", failed).await;
    assert_eq!(held["status"]["rollout"]["stage"], "Promoting");
    assert_eq!(condition(&held, "Stalled"), "True/PlanFailed");
    assert_eq!(condition(&held, "RolloutInProgress"), "True/Stalled");
    let retry = format!("windlass.dev/retry: {}", plan_id(&held));
    assert!(message(&held, "UpToDate").contains(&retry), "{held:#}");
    // Neither another target nor an abort continues or rolls back.
    world.set_image("db:3").await;
    world.annotate_fleet("windlass.dev/abort", json!(plan_id(&held))).await;
    let halted = world.get(&world.nodes(), "db-0").await["spec"]["haltHeight"].clone();
    assert_eq!(halted, 1000);
    tokio::time::sleep(Duration::from_secs(3)).await;
    let still = world.db().await;
    assert!(failed(&still), "{still:#}");
    assert_eq!(still["status"]["rollout"]["targetHash"], begun["status"]["rollout"]["targetHash"]);
    assert_eq!(nodes(&world).await.len(), 2, "both sets stay");
    assert_eq!(world.get(&world.nodes(), "db-0").await["spec"]["haltHeight"], 1000, "it is not taken back");
    world.patch_fleet(json!({"spec": {"template": {"spec": {"image": "db:2"}}}})).await;
    world.annotate_fleet("windlass.dev/retry", json!(plan_id(&held))).await;
    sidecars.reach(1000);
    let done = world.until_db("it is over", |db| is_over(db) && outcomes(db).len() == 2).await;
    assert_eq!(outcomes(&done), ["Failed", "Complete"]);
    assert_ne!(plan_id(&done), plan_id(&held));
    assert_eq!(done["status"]["activeSet"], begun["status"]["rollout"]["entrantSet"]);
    assert_eq!(sidecars.halts(), [1000], "it was asked once");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_status_that_is_lost_while_two_sets_live_is_found_out_from_the_service() {
    let mut world = World::new("bglost").await;
    world.settled_fleet(blue_green(1, json!({"retireDelaySeconds": 600}))).await;
    world.set_image("db:2").await;
    let moved = world.until_db("traffic moved", stage("Retiring")).await;
    let set = text(&moved["status"], "activeSet").to_owned();
    world.kill_operator().await;
    world.patch_status(&world.fleets(), "db", json!({"status": null})).await;
    world.start_operator(&[]).await;
    let found = world.until_db("it is found out", is_over).await;
    assert_eq!(found["status"]["activeSet"], set.as_str());
    assert_eq!(selected(&world).await, set);
    assert_eq!(nodes(&world).await.len(), 2, "the other has its delay");
}
