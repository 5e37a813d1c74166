//! The speed of the cluster, and its configurable latencies.

use std::time::{Duration, Instant};

use futures::StreamExt;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Client, ResourceExt};
use serde_json::json;
use windlass::clock::Clock;
use windlass_sim::{ClusterClock, Options, Pace};

use windlass_harness::stage::{create_set, furnished, image, label, paused, pod, until_available};

async fn set_image(client: &Client, name: &str, image: &str) -> StatefulSet {
    let sets: Api<StatefulSet> = Api::namespaced(client.clone(), "test");
    let patch = json!({"spec": {"template": {"spec": {"containers": [{"name": "main", "image": image}]}}}});
    sets.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap()
}

#[test]
fn idle_day_is_simulated_in_under_a_second() {
    let started = Instant::now();
    paused(async {
        let cluster = furnished(Options::seeded(1));
        let client = cluster.client("test", "test");
        create_set(&client, "web", "web:1", 10).await;
        let sets: Api<StatefulSet> = Api::all(client.clone());
        let pods: Api<Pod> = Api::all(client.clone());
        tokio::spawn(watcher(sets, watcher::Config::default()).default_backoff().for_each(|_| async {}));
        tokio::spawn(watcher(pods, watcher::Config::default()).default_backoff().for_each(|_| async {}));
        until_available(&client, "web", 10).await;
        let version = cluster.version();
        tokio::time::sleep(Duration::from_hours(24)).await;
        assert_eq!(cluster.version(), version, "nothing is written on an idle day");
    });
    let took = started.elapsed();
    println!("an idle day took {took:?}");
    // Unoptimized, and next to other tests: five times what it takes alone.
    assert!(took < Duration::from_secs(5), "{took:?}");
}

#[test]
fn lagging_controller_creates_pod_from_the_observed_template() {
    paused(async {
        let cluster = furnished(Options::seeded(1));
        let client = cluster.client("test", "test");
        create_set(&client, "web", "web:1", 1).await;
        until_available(&client, "web", 1).await;
        cluster.set_pace(Pace { stateful_set_lag: 10_000, ..Pace::default() });
        let set = set_image(&client, "web", "web:2").await;
        let pods: Api<Pod> = Api::namespaced(client.clone(), "test");
        pods.delete("web-0", &DeleteParams::default().grace_period(0)).await.unwrap();
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert_eq!(image(&pod(&client, "web-0").await.unwrap()), "web:1");
        let sets: Api<StatefulSet> = Api::namespaced(client.clone(), "test");
        let behind = sets.get("web").await.unwrap();
        assert!(behind.status.unwrap().observed_generation < set.metadata.generation);
        tokio::time::sleep(Duration::from_secs(20)).await;
        let caught_up = sets.get("web").await.unwrap();
        assert_eq!(caught_up.status.unwrap().observed_generation, set.metadata.generation);
    });
}

#[test]
fn suspended_controller_does_nothing_until_resumed() {
    paused(async {
        let cluster = furnished(Options::seeded(1));
        let client = cluster.client("test", "test");
        cluster.suspend_stateful_sets(true);
        create_set(&client, "web", "web:1", 1).await;
        tokio::time::sleep(Duration::from_hours(1)).await;
        assert!(pod(&client, "web-0").await.is_none());
        cluster.suspend_stateful_sets(false);
        until_available(&client, "web", 1).await;
    });
}

#[test]
fn pod_deleted_before_template_update_often_keeps_old_revision() {
    let mut old = 0;
    for seed in 0..20 {
        old += usize::from(paused(async {
            let cluster = furnished(Options::seeded(seed));
            let client = cluster.client("test", "test");
            create_set(&client, "web", "web:1", 1).await;
            until_available(&client, "web", 1).await;
            let before = pod(&client, "web-0").await.unwrap();
            let pods: Api<Pod> = Api::namespaced(client.clone(), "test");
            pods.delete("web-0", &DeleteParams::default().grace_period(0)).await.unwrap();
            set_image(&client, "web", "web:2").await;
            tokio::time::sleep(Duration::from_secs(5)).await;
            let after = pod(&client, "web-0").await.unwrap();
            assert_ne!(after.uid(), before.uid());
            label(&after, "controller-revision-hash") == label(&before, "controller-revision-hash")
        }));
    }
    assert!((10..20).contains(&old), "{old} of 20");
}

#[test]
fn clock_can_jump_and_stop() {
    paused(async {
        let epoch = chrono::DateTime::from_timestamp(1_800_000_000, 0).unwrap();
        let clock = ClusterClock::starting_at(epoch);
        let cluster = furnished(Options { clock: clock.clone(), ..Options::seeded(1) });
        let api: Api<ConfigMap> = Api::namespaced(cluster.client("test", "test"), "test");
        let made = async |name: &str| {
            let body = serde_json::from_value(windlass_harness::stage::map(name)).unwrap();
            let made = api.create(&PostParams::default(), &body).await.unwrap();
            made.creation_timestamp().unwrap().0.as_second()
        };
        assert_eq!(made("a").await, 1_800_000_000);
        clock.jump(chrono::Duration::hours(-1));
        assert_eq!(made("b").await, 1_800_000_000 - 3600);
        clock.stop();
        tokio::time::sleep(Duration::from_secs(50)).await;
        assert_eq!(made("c").await, 1_800_000_000 - 3600);
        clock.go_on();
        assert!(clock.now() >= epoch - chrono::Duration::seconds(3550));
    });
}
