//! An abort while a node's new pod has just started.

use std::time::Duration;

use serde_json::{Value, json};

use windlass_harness::kit::tools::{image_of, plan_id};
use windlass_harness::kit::{World, condition, fleet};

#[tokio::test(flavor = "multi_thread")]
async fn abort_keeps_a_pod_that_just_started() {
    let world = World::new("abort").await;
    world.settled_fleet(fleet(2, "db:1")).await;
    for (turn, millis) in [0, 200, 500, 1_000, 2_000].into_iter().enumerate() {
        let image = format!("db:{}-slow", turn + 2);
        world.set_image(&image).await;
        let runs = |pod: &Value| {
            let statuses = pod["status"]["containerStatuses"].as_array();
            let running = statuses.is_some_and(|all| all.iter().all(|c| c["state"]["running"].is_object()));
            image_of(pod) == image && running
        };
        let new = world.until(&world.pods(), "db-1-0", "the new pod runs", runs).await;
        tokio::time::sleep(Duration::from_millis(millis)).await;
        world.annotate_fleet("windlass.dev/abort", json!(plan_id(&world.db().await))).await;
        world.until_db("it is aborted", |db| condition(db, "UpToDate") == "False/Aborted").await;
        let stays = |node: &Value| {
            node["spec"]["grantedHash"] == node["status"]["podTemplateHash"]
                && node["status"]["currentImage"] == image
        };
        world.until(&world.nodes(), "db-1", "it stays at what it runs", stays).await;
        let pod = world.get(&world.pods(), "db-1-0").await;
        assert_eq!(pod["metadata"]["uid"], new["metadata"]["uid"], "after {millis} ms: {pod:#}");
        assert_eq!(image_of(&world.get(&world.pods(), "db-0-0").await), "db:1", "after {millis} ms");
    }
}
