//! Requests that have no effect: one event, and a sentence in the status and in `windlass status`, until they are
//! removed.

use std::time::Duration;

use serde_json::{Value, json};

use crate::e2e::commands::windlass;
use windlass_harness::kit::tools::{message, outcomes, plan_id};
use windlass_harness::kit::{World, fleet};

#[tokio::test(flavor = "multi_thread")]
async fn request_without_effect_is_answered_once() {
    let world = World::new("answered").await;
    world.settled_fleet(fleet(2, "db:1")).await;
    world.set_image("db:2").await;
    let done = world.until_db("it is complete", |db| outcomes(db) == ["Complete"]).await;
    let pods = world.pod_uids().await;
    let plan = plan_id(&done);
    let over = format!("plan {plan} has already ended (Complete)");
    let requests = [
        ("windlass.dev/restartedAt", "2020-01-01T00:00:00Z", "is not later than the creation of db"),
        ("windlass.dev/abort", plan.as_str(), over.as_str()),
        ("windlass.dev/retry", plan.as_str(), over.as_str()),
        ("windlass.dev/approve", "nonsense", "nothing is approved"),
    ];
    for (key, value, words) in requests {
        world.annotate_fleet(key, json!(value)).await;
        let is_said = |db: &Value| {
            let said = message(db, "UpToDate");
            said.starts_with(key) && said.contains(words)
        };
        let db = world.until_db(&format!("{key} is answered"), is_said).await;
        let sentence = message(&db, "UpToDate");
        let notes = world.until_note("RequestIgnored", &sentence).await;
        assert_eq!(notes.iter().filter(|note| **note == sentence).count(), 1, "{notes:?}");
        let status = windlass(&world, &["status", "nd/db"]).await;
        let flat = status.out.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(flat.contains(words), "{}", status.out);
        world.writes_nothing_for(Duration::from_secs(1)).await;
        world.annotate_fleet(key, Value::Null).await;
        world.until_db("it is no longer said", |db| message(db, "UpToDate").is_empty()).await;
    }
    assert_eq!(world.notes("RequestIgnored").await.len(), requests.len());
    assert_eq!(world.pod_uids().await, pods);
}
