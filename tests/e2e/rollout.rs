//! A fleet is created and its image changes.

use crate::kit::{World, fleet};

#[tokio::test(flavor = "multi_thread")]
async fn a_new_fleet_comes_up_and_a_new_image_reaches_every_node() {
    let world = World::new("roll").await;
    world.fleet(fleet(3, "db:1")).await;
    let first = world.until_applied().await;
    assert_eq!(first["status"]["phase"], "Ready", "{first:#}");
    assert!(first["status"]["plan"].is_null(), "the first creation has no plan: {first:#}");
    world.set_image("db:2").await;
    let second = world.until_applied().await;
    assert_eq!(world.images().await, ["db:2", "db:2", "db:2"]);
    assert_eq!(second["status"]["history"][0]["outcome"], "Complete", "{second:#}");
}
