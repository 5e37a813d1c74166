//! Nodes that are added in the middle of a change.

use serde_json::json;

use windlass_harness::kit::tools::outcomes;
use windlass_harness::kit::{Wave, World, fleet};

#[tokio::test(flavor = "multi_thread")]
async fn added_nodes_start_at_the_image_of_the_same_apply() {
    let world = World::new("grown").await;
    world.fleet(fleet(3, "db:1")).await;
    world.until_applied().await;
    let wave = Wave::watch(&world, 6).await;
    let changes = json!({"spec": {"replicas": 6, "template": {"spec": {"image": "db:2"}}}});
    world.patch_fleet(changes).await;
    let done = world.until_applied().await;
    assert_eq!((outcomes(&done), world.images().await), (vec!["Complete"], vec!["db:2".to_owned(); 6]));
    let seen = wave.end().await;
    for ordinal in 0..6 {
        let images: &[&str] = if ordinal < 3 { &["db:1", "db:2"] } else { &["db:2"] };
        assert_eq!(seen.images_of(&format!("db-{ordinal}-0")), images, "{ordinal}");
    }
}
