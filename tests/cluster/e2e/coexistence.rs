//! A second container fails on every node while the main container goes on with its work: no repair, and no scale-in,
//! takes down more main containers at once than the wave allows.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use futures::StreamExt;
use kube::runtime::watcher::{self, Event};
use serde_json::{Value, json};

use crate::e2e::commands::windlass;
use windlass_harness::kit::tools::outcomes;
use windlass_harness::kit::{World, fleet, with};

/// The main containers that ran when the watch began, and the most of them that were gone at once.
#[derive(Default)]
struct Seen {
    runs: BTreeMap<String, bool>,
    worst: usize,
    log: Vec<String>,
}

impl Seen {
    fn take(&mut self, name: String, runs: bool) {
        self.log.push(format!("{name} {runs}"));
        self.runs.insert(name, runs);
        self.worst = self.worst.max(self.runs.values().filter(|runs| !**runs).count());
    }
}

fn runs(pod: &Value) -> bool {
    let containers = pod["status"]["containerStatuses"].as_array().cloned().unwrap_or_default();
    let main = containers.iter().find(|container| container["name"] == "db");
    pod["metadata"]["deletionTimestamp"].is_null() && main.is_some_and(|c| c["state"]["running"].is_object())
}

fn watch(world: &World) -> Arc<Mutex<Seen>> {
    let seen = Arc::new(Mutex::new(Seen::default()));
    let (told, pods) = (seen.clone(), world.pods());
    tokio::spawn(async move {
        let mut events = watcher::watcher(pods, watcher::Config::default()).boxed();
        while let Some(Ok(event)) = events.next().await {
            let (pod, is_gone) = match event {
                Event::Init | Event::InitDone => continue,
                Event::InitApply(pod) | Event::Apply(pod) => (pod, false),
                Event::Delete(pod) => (pod, true),
            };
            let name = pod.metadata.name.clone().unwrap_or_default();
            told.lock().unwrap().take(name, !is_gone && runs(&serde_json::to_value(pod).unwrap()));
        }
    });
    seen
}

fn containers(second: &str, image: &str) -> Value {
    let list = json!([{"name": "db", "image": "db:1"}, {"name": second, "image": image}]);
    json!({"spec": {"template": {"spec": {"mainContainer": "db", "podTemplate": {"spec": {"containers": list}}}}}})
}

async fn until_half_running(world: &World, nodes: usize, second: &str) {
    for ordinal in 0..nodes {
        world.steer(&format!("db-{ordinal}-0.{second}"), "crash").await;
    }
    for ordinal in 0..nodes {
        let half = |node: &Value| node["status"]["phase"] == "Failed" && node["status"]["podRuns"] == true;
        world.until(&world.nodes(), &format!("db-{ordinal}"), "its main container runs", half).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn broken_second_container_is_repaired_one_node_at_a_time() {
    let world = World::new("beside").await;
    world.settled_fleet(with(fleet(5, "db:1"), &containers("exporter", "exporter:1"))).await;
    until_half_running(&world, 5, "exporter").await;
    let told = windlass(&world, &["plan", "nd/db", "--image", "db:2"]).await;
    for words in ["wave 1: db-4\n", "wave 5: db-0", "at most 1 unavailable at once"] {
        assert!(told.out.contains(words), "{words}: {}", told.out);
    }
    let seen = watch(&world);
    // The repair is a container of another name, which is not steered.
    world.patch_fleet(containers("agent", "agent:1")).await;
    let done = world.until_applied().await;
    assert_eq!(outcomes(&done), ["Complete"], "{done:#}");
    {
        let seen = seen.lock().unwrap();
        assert_eq!((seen.runs.len(), seen.worst), (5, 1), "{:#?}", seen.log);
    }

    until_half_running(&world, 5, "agent").await;
    let (seen, before) = (watch(&world), world.pod_uids().await);
    world.patch_fleet(json!({"spec": {"replicas": 3}})).await;
    let gone = |db: &Value| db["status"]["replicas"] == 3;
    world.until_db("two have left", gone).await;
    world.until(&world.pods(), "db-3-0", "its pod is gone", Value::is_null).await;
    assert_eq!(world.pod_uids().await, before[..3], "nobody else is touched");
    let log = seen.lock().unwrap().log.clone();
    let last = |pod: &str, runs: bool| log.iter().rposition(|line| *line == format!("{pod} {runs}"));
    assert!(last("db-4-0", false) < last("db-3-0", false), "one after the other: {log:#?}");
}
