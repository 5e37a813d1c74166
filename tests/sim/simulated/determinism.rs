//! One seed, one trace: in this process and in another.

use std::process::Command;
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use kube::runtime::{WatchStreamExt, watcher};
use serde_json::json;
use windlass_sim::Options;

use windlass_harness::stage::{create_set, furnished, paused, until_available};

/// Creates, rolls and deletes sets, with open watches: every request and every object, as text.
fn trace(seed: u64) -> String {
    paused(async {
        let cluster = furnished(Options::seeded(seed));
        let client = cluster.client("test", "test");
        let watched: Api<Pod> = Api::all(client.clone());
        tokio::spawn(watcher(watched, watcher::Config::default()).default_backoff().for_each(|_| async {}));
        for index in 0..5 {
            create_set(&client, &format!("s{index}"), "web:1", 3).await;
        }
        let sets: Api<StatefulSet> = Api::namespaced(client.clone(), "test");
        let pods: Api<Pod> = Api::namespaced(client.clone(), "test");
        for index in 0..5 {
            let name = format!("s{index}");
            until_available(&client, &name, 3).await;
            let container = json!({"name": "main", "image": "web:2"});
            let patch = json!({"spec": {"template": {"spec": {"containers": [container]}}}});
            sets.patch(&name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
            pods.delete(&format!("{name}-1"), &DeleteParams::default()).await.unwrap();
        }
        tokio::time::sleep(Duration::from_mins(1)).await;
        sets.delete("s4", &DeleteParams::foreground()).await.unwrap();
        tokio::time::sleep(Duration::from_mins(10)).await;
        let audit =
            cluster.audit().iter().map(|e| serde_json::to_string(e).unwrap() + "\n").collect::<String>();
        let objects = cluster.snapshot().iter().map(|o| o.to_string() + "\n").collect::<String>();
        audit + &objects
    })
}

#[test]
fn the_same_seed_gives_the_same_trace_and_another_seed_another() {
    let first = trace(11);
    assert!(first.lines().count() > 80, "{}", first.lines().count());
    assert_eq!(first, trace(11));
    assert_ne!(first, trace(12));
}

#[test]
fn the_same_seed_gives_the_same_trace_in_another_process() {
    if let Ok(path) = std::env::var("WINDLASS_TRACE_TO") {
        std::fs::write(path, trace(11)).unwrap();
        return;
    }
    let path = std::env::temp_dir().join(format!("windlass-trace-{}", std::process::id()));
    let name = "simulated::determinism::the_same_seed_gives_the_same_trace_in_another_process";
    let status = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name])
        .env("WINDLASS_TRACE_TO", &path)
        .status()
        .unwrap();
    assert!(status.success());
    let other = std::fs::read_to_string(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    assert_eq!(other, trace(11));
}
