//! How many nodes are down at once, which are excluded, and changes of the number meanwhile.

use serde_json::{Value, json};

use crate::e2e::sampler::{Sampler, Seen};
use windlass_harness::kit::tools::outcomes;
use windlass_harness::kit::{World, fleet, is_applied};

async fn rolled_with(max_unavailable: Value, replicas: usize, image: &str) -> Seen {
    let world = World::new("wave").await;
    let mut fleet = fleet(replicas as i64, "db:1");
    fleet["spec"]["updateStrategy"]["inPlace"] = json!({"maxUnavailable": max_unavailable});
    world.fleet(fleet).await;
    let created = world.until_applied().await;
    let started = world.notes_about("db", "RolloutStarted").await;
    assert!(created["status"]["plan"].is_null(), "the first creation is a rollout: {started:?}: {created:#}");
    let sampler = Sampler::start(&world, replicas).await;
    world.set_image(image).await;
    let done = world.until_applied().await;
    assert_eq!(outcomes(&done), ["Complete"]);
    assert_eq!(world.images().await, vec![image; replicas]);
    let seen = sampler.finish().await;
    for (pod, lives) in &seen.pods {
        assert_eq!(lives.len(), 2, "{pod} is replaced once: {lives:?}");
    }
    seen
}

#[tokio::test(flavor = "multi_thread")]
async fn with_max_unavailable_2_two_nodes_are_down_at_once_and_never_three() {
    let seen = rolled_with(json!(2), 5, "db:2-slow").await;
    seen.at_most(2);
    assert_eq!(seen.worst.len(), 2, "the wave is used: {:#?}", seen.log);
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_added_with_another_image_in_one_apply_start_at_it() {
    let world = World::new("grown").await;
    world.fleet(fleet(3, "db:1")).await;
    world.until_applied().await;
    let sampler = Sampler::start(&world, 6).await;
    let changes = json!({"spec": {"replicas": 6, "template": {"spec": {"image": "db:2"}}}});
    world.patch_fleet(changes).await;
    let done = world.until_applied().await;
    assert_eq!((outcomes(&done), world.images().await), (vec!["Complete"], vec!["db:2".to_owned(); 6]));
    let seen = sampler.finish().await;
    for ordinal in 0..6 {
        let images: &[&str] = if ordinal < 3 { &["db:1", "db:2"] } else { &["db:2"] };
        assert_eq!(seen.images_of(&format!("db-{ordinal}-0")), images, "{ordinal}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_scale_subresource_changes_the_number_of_nodes_and_selects_their_pods() {
    let world = World::new("scale").await;
    world.fleet(fleet(1, "db:1")).await;
    world.until_applied().await;
    let scaled = world.cp.kubectl(&["-n", &world.ns, "scale", "nd/db", "--replicas=3"]).await;
    assert_eq!(scaled.code, Some(0), "{}", scaled.stderr);
    let done =
        world.until_db("three are ready", |db| db["status"]["readyReplicas"] == 3 && is_applied(db)).await;
    assert!(done["status"]["plan"].is_null(), "a change of their number is no rollout: {done:#}");
    let path = format!("/apis/windlass.dev/v1alpha1/namespaces/{}/nodedeployments/db/scale", &*world.ns);
    let scale = world.cp.kubectl(&["get", "--raw", &path]).await;
    let scale: Value = serde_json::from_str(&scale.stdout).expect("a Scale");
    assert_eq!(scale["status"]["replicas"], 3);
    let selector = scale["status"]["selector"].as_str().expect("a selector");
    let selected = kube::api::ListParams::default().labels(selector);
    assert_eq!(world.pods().list(&selected).await.expect("pods").items.len(), 3, "{selector}");
}
