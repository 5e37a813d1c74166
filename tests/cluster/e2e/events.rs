//! Events: one per cause, sent after the status says the same.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};

use windlass_harness::kit::tools::{digits, plan_id};
use windlass_harness::kit::{World, condition, fleet};

async fn told(world: &World) -> Vec<Value> {
    let mut events = world.list(&world.api("events.k8s.io/v1", "Event")).await;
    events.retain(|e| e["reportingController"] == "windlass.dev/operator");
    events
}

/// The number of events by reason about an object.
fn reasons(events: &[Value], about: &str) -> BTreeMap<String, usize> {
    let mut found = BTreeMap::new();
    for event in events.iter().filter(|e| e["regarding"]["name"] == about) {
        *found.entry(event["reason"].as_str().unwrap().to_owned()).or_default() += 1;
    }
    found
}

fn note(events: &[Value], reason: &str) -> String {
    let found =
        events.iter().find(|e| e["reason"] == reason).unwrap_or_else(|| panic!("no {reason}: {events:#?}"));
    found["note"].as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rollout_tells_what_it_does_once_even_if_the_operator_is_started_again() {
    let mut world = World::new("events").await;
    world.fleet(fleet(2, "db:1")).await;
    world.until_applied().await;
    world.set_image("db:2-nope").await;
    let broken = world.until_db("it is broken", |db| db["status"]["rollout"]["nodes"]["failed"] == 1).await;
    world.set_image("db:3").await;
    let fixed = world.until_applied().await;
    world.set_image("db:4-nope").await;
    let aborted = world.until_db("it is broken", |db| db["status"]["rollout"]["nodes"]["failed"] == 1).await;
    world.annotate_fleet("windlass.dev/abort", json!(plan_id(&aborted))).await;
    world.until_db("it is aborted", |db| condition(db, "UpToDate") == "False/Aborted").await;
    world.until_quiet().await;

    let first = told(&world).await;
    let wanted = [
        ("NodeCreated", 2),
        ("RolloutAborted", 1),
        ("RolloutComplete", 1),
        ("RolloutStarted", 2),
        ("RolloutSuperseded", 1),
    ];
    assert_eq!(reasons(&first, "db"), wanted.map(|(r, n)| (r.to_owned(), n)).into());
    let (old, new) = (&broken["status"]["requestedRolloutHash"], &fixed["status"]["requestedRolloutHash"]);
    let superseded = note(&first, "RolloutSuperseded");
    assert!(superseded.contains(digits(old)) && superseded.contains(digits(new)), "{superseded}");
    assert!(note(&first, "RolloutComplete").contains(digits(new)));
    assert!(note(&first, "RolloutAborted").contains(digits(&aborted["status"]["requestedRolloutHash"])));
    // The highest ordinal was updated, superseded, updated and broken; the other created and updated.
    let last = world.get(&world.nodes(), "db-1").await;
    let plans = last["status"]["history"].as_array().unwrap().len() + 1;
    assert_eq!(reasons(&first, "db-1")["PlanStarted"], plans, "{last:#}");
    assert_eq!(
        reasons(&first, "db-0"),
        [("PlanComplete".to_owned(), 2), ("PlanStarted".to_owned(), 2)].into()
    );
    for event in &first {
        assert!(event["regarding"]["uid"].is_string() && event["eventTime"].is_string(), "{event:#}");
        assert_eq!(event["type"] == "Warning", event["reason"] == "RolloutAborted", "{event:#}");
    }

    world.kill_operator().await;
    world.start_operator(&[]).await;
    world.annotate_fleet("example.dev/touched", json!("yes")).await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(told(&world).await.len(), first.len(), "nothing is told again");
}
