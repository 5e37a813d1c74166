//! The minimal cost of a rollout of 100 one-pod StatefulSets on the control plane: the template and the pod's
//! deletion, without plans, grants and statuses: a lower bound for an operator with a StatefulSet per node.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use futures::{StreamExt, stream};
use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams};
use kube::runtime::{WatchStreamExt, watcher};
use serde_json::{Value, json};
use tokio::sync::Notify;

use crate::template::{set_image, template};
use windlass_harness::operated::World;

/// The StatefulSets, as a watch shows them.
pub struct Bare {
    seen: Arc<Mutex<HashMap<String, Value>>>,
    news: Arc<Notify>,
    watch: tokio::task::JoinHandle<()>,
    count: u32,
}

impl Drop for Bare {
    fn drop(&mut self) {
        self.watch.abort();
    }
}

impl Bare {
    /// Creates this many, each with a headless Service, and waits until they run.
    pub async fn make(world: &World, count: u32) -> Self {
        let (seen, news) = (Arc::new(Mutex::new(HashMap::new())), Arc::new(Notify::new()));
        let config = watcher::Config::default().labels("bare");
        let events = watcher::watcher(world.sets(), config).default_backoff().applied_objects();
        let (into, bell) = (seen.clone(), news.clone());
        let watch = tokio::spawn(events.for_each(move |set: Result<DynamicObject, _>| {
            if let Ok(set) = set {
                into.lock().unwrap().insert(set.metadata.name.clone().unwrap_or_default(), json!(set));
                bell.notify_waiters();
            }
            std::future::ready(())
        }));
        for name in (0..count).map(name) {
            let service = json!({"metadata": {"name": name}, "spec": {
                "clusterIP": "None", "publishNotReadyAddresses": true, "selector": {"app": name}}});
            world.create("v1", "Service", service).await;
            world.create("apps/v1", "StatefulSet", stateful_set(&name)).await;
        }
        let bare = Self { seen, news, watch, count };
        for name in (0..count).map(name) {
            bare.until(&name, is_at_template).await;
        }
        bare
    }

    /// Rolls them all to an image, this many at once.
    pub async fn roll(&self, world: &World, at_once: usize, image: &str) {
        stream::iter((0..self.count).map(name))
            .for_each_concurrent(at_once, |name| async move {
                let patch = Patch::Strategic(set_image(image));
                let patched = world.sets().patch(&name, &PatchParams::default(), &patch).await;
                let generation = patched.expect("the patch is accepted").metadata.generation;
                self.until(&name, |set| set["status"]["observedGeneration"] == json!(generation)).await;
                let pods = world.api("v1", "Pod");
                pods.delete(&format!("{name}-0"), &DeleteParams::default()).await.expect("a pod");
                self.until(&name, is_at_template).await;
            })
            .await;
    }

    async fn until(&self, name: &str, holds: impl Fn(&Value) -> bool) {
        loop {
            let news = self.news.notified();
            tokio::pin!(news);
            news.as_mut().enable();
            if self.seen.lock().unwrap().get(name).is_some_and(&holds) {
                return;
            }
            news.await;
        }
    }
}

fn name(ordinal: u32) -> String {
    format!("bare-{ordinal}")
}

fn is_at_template(set: &Value) -> bool {
    let status = &set["status"];
    status["observedGeneration"] == set["metadata"]["generation"]
        && ["updatedReplicas", "readyReplicas", "availableReplicas"].iter().all(|field| status[field] == 1)
}

fn stateful_set(name: &str) -> Value {
    json!({
        "metadata": {"name": name, "labels": {"bare": "yes"}},
        "spec": {
            "replicas": 1,
            "serviceName": name,
            "selector": {"matchLabels": {"app": name}},
            "updateStrategy": {"type": "OnDelete"},
            "template": template(&json!({"app": name}), "db:0"),
        },
    })
}
