//! Compares `windlass plan ssr/NAME` with what then happens.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::{Value, json};
use windlass_cli::forecast::{Change, Forecast, Outcome, forecast_rollout};

use super::world::{POD, ROLLOUT, World, is_at_rest, named, play, rollout};

async fn forecast(world: &World, change: &Change) -> Forecast {
    let version = world.cluster.version();
    let now = world.cluster.clock().now();
    let forecast = forecast_rollout(&world.client, "test", "ledger", change, now).await.unwrap();
    assert_eq!(world.cluster.version(), version, "a plan writes nothing");
    assert_eq!(forecast.refused, None);
    forecast
}

async fn of_nothing(world: &World) -> Forecast {
    forecast(world, &Change::Merge(json!({}))).await
}

fn order(forecast: &Forecast) -> Vec<String> {
    forecast.order().map(str::to_owned).collect()
}

/// Waits until the rollout is at rest, and compares the pods that went with the forecast, wave by wave. Within a wave, their
/// controllers may be faster with one StatefulSet than with another.
async fn goes_as_forecast(world: &World, forecast: &Forecast) {
    let before = world.uids();
    let mut went: Vec<String> = Vec::new();
    let expected = order(forecast);
    for _ in 0..180_000 {
        let now: BTreeMap<String, String> = world.uids();
        let goes = |name: &&String| {
            let is_leaving = || !world.get(POD, name)["metadata"]["deletionTimestamp"].is_null();
            now.get(*name) != before.get(*name) || is_leaving()
        };
        let mut new: Vec<String> =
            before.keys().filter(|name| !went.contains(name)).filter(goes).cloned().collect();
        // Those that are seen to go at the same moment are in no order.
        new.sort_by_key(|name| expected.iter().position(|of| of == name));
        went.extend(new);
        if is_at_rest(&world.status()) && went.len() >= expected.len() {
            let mut left = went.as_slice();
            for wave in &forecast.waves {
                let (of_wave, others) = left.split_at(wave.nodes.len());
                let expected: BTreeSet<&str> = wave.nodes.iter().map(|node| node.name.as_str()).collect();
                let of_wave: BTreeSet<&str> = of_wave.iter().map(String::as_str).collect();
                assert_eq!(of_wave, expected, "{}: {went:?}", wave.when);
                left = others;
            }
            assert!(left.is_empty(), "{left:?}");
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("it does not come to rest: {:#}", world.status());
}

/// Adopts two StatefulSets, and compares an update, a restart and a rollback with what was said of them.
async fn compared(world: World, strategy: Value) {
    let sets = named(&["ledger-a", "ledger-b"]);
    world.run_sets(&[("ledger-a", 3), ("ledger-b", 2)]).await;
    let before = world.uids();
    let adopted = forecast(&world, &Change::Apply(rollout(&sets, &strategy))).await;
    assert!(adopted.is_new && adopted.outcome == Outcome::Changes, "{adopted:#?}");
    assert_eq!((adopted.holds.len(), order(&adopted)), (2, Vec::new()));
    assert!(adopted.happens.starts_with("no pod restarts"), "{}", adopted.happens);
    world.adopt(&sets, &strategy).await;
    assert_eq!(world.uids(), before);
    let at_rest = of_nothing(&world).await;
    assert_eq!((at_rest.outcome, at_rest.holds.len()), (Outcome::Nothing, 0), "{at_rest:#?}");

    let paused = async |is: bool| world.merge(ROLLOUT, "ledger", &json!({"spec": {"paused": is}})).await;
    paused(true).await;
    world.image("ledger-a", "db:2").await;
    world.image("ledger-b", "db:2").await;
    world.rest(30).await;
    let update = of_nothing(&world).await;
    assert_eq!(order(&update).len(), 5, "{update:#?}");
    assert_eq!(update.pending.iter().filter(|field| field.path.ends_with("].image")).count(), 2);
    paused(false).await;
    goes_as_forecast(&world, &update).await;

    // Pods that were created just before a restart are not restarted.
    world.rest(30).await;
    paused(true).await;
    world.annotate("windlass.dev/restartedAt", &world.cluster.clock().now().to_rfc3339()).await;
    world.rest(30).await;
    let restart = of_nothing(&world).await;
    assert_eq!(order(&restart).len(), 5, "{restart:#?}");
    paused(false).await;
    goes_as_forecast(&world, &restart).await;
}

#[test]
fn pods_are_replaced_one_at_a_time_as_forecast() {
    play(async |world| compared(world, json!({})).await);
}

#[test]
fn pods_are_replaced_together_as_forecast() {
    play(async |world| compared(world, json!({"maxUnavailable": 2})).await);
}

#[test]
fn stateful_sets_are_updated_one_at_a_time_as_forecast() {
    play(async |world| compared(world, json!({"maxUnavailable": 2, "groups": "OneAtATime"})).await);
}

#[test]
fn abort_with_rollback_replaces_the_forecast_pods() {
    play(async |world| {
        world.run_sets(&[("ledger", 4)]).await;
        world.adopt(&named(&["ledger"]), &json!({})).await;
        world.image("ledger", "db:2").await;
        let moved = |status: &Value| status["rollout"]["nodes"]["updated"].as_i64() >= Some(2);
        world.until("two pods are updated", moved).await;
        world.merge(ROLLOUT, "ledger", &json!({"spec": {"paused": true}})).await;
        world.rest(60).await;
        let status = world.status();
        assert!(moved(&status), "{status:#}");
        let plan = status["plan"]["id"].clone();
        let asked = json!({"metadata": {"annotations": {"windlass.dev/abort": plan, "windlass.dev/abort-rollback": plan}},
            "spec": {"paused": false}});
        let back = forecast(&world, &Change::Merge(asked.clone())).await;
        let updated: Vec<String> =
            world.images().iter().filter_map(|pod| pod.strip_suffix(" db:2").map(str::to_owned)).collect();
        let mut expected = order(&back);
        expected.sort();
        assert_eq!(expected, updated, "{back:#?}");
        world.merge(ROLLOUT, "ledger", &asked).await;
        let order = order(&back);
        let before = world.uids();
        world.until("the rollback ended", |status| status["rollout"].is_null()).await;
        let after = world.uids();
        let gone: Vec<&String> = before.keys().filter(|name| before.get(*name) != after.get(*name)).collect();
        assert_eq!(gone.len(), order.len());
        assert!(world.images().iter().all(|pod| pod.ends_with("db:1")), "{:?}", world.images());
    });
}
