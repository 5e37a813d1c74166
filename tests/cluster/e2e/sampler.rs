//! Watches every change of a namespace's pods, so that no short-lived state is missed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures::StreamExt;
use kube::api::{ListParams, WatchEvent, WatchParams};
use serde_json::Value;

use windlass_harness::kit::World;
use windlass_harness::kit::tools::{image_of, is_up};

/// The observations.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// The most nodes that were down at once.
    pub worst: BTreeSet<String>,
    /// By pod name: every pod by UID with its image, in order.
    pub pods: BTreeMap<String, Vec<(String, String)>>,
    /// Every transition to down (false) and up (true), in order.
    pub log: Vec<(Instant, String, bool)>,
    up: BTreeSet<String>,
}

impl Seen {
    fn take_in(&mut self, pod: &Value, gone: bool, expected: &[String]) {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (name, uid) = (text(&pod["metadata"]["name"]), text(&pod["metadata"]["uid"]));
        let lives = self.pods.entry(name.clone()).or_default();
        if !lives.iter().any(|(known, _)| *known == uid) {
            lives.push((uid, image_of(pod).to_owned()));
        }
        let up = !gone && is_up(pod);
        let changed = if up { self.up.insert(name.clone()) } else { self.up.remove(&name) };
        if changed {
            self.log.push((Instant::now(), name, up));
        }
        let down: BTreeSet<String> = expected.iter().filter(|e| !self.up.contains(*e)).cloned().collect();
        if down.len() > self.worst.len() {
            self.worst = down;
        }
    }

    /// Panics if more nodes were down at once, or none ever was.
    pub fn at_most(&self, wave: usize) {
        assert!(!self.log.is_empty(), "no node was ever down: there was nothing to hold");
        assert!(self.worst.len() <= wave, "down at once: {:?}; what happened: {:#?}", self.worst, self.log);
    }

    /// The images of a pod name, in order.
    pub fn images_of(&self, pod: &str) -> Vec<&str> {
        self.pods.get(pod).into_iter().flatten().map(|(_, image)| image.as_str()).collect()
    }
}

/// Watches pods until it is finished.
pub struct Sampler {
    seen: Arc<Mutex<Seen>>,
    watching: tokio::task::JoinHandle<()>,
}

impl Sampler {
    /// Starts watching; the pods `db-0-0` to `db-<count − 1>-0` should be up.
    pub async fn start(world: &World, count: usize) -> Self {
        let expected: Vec<String> = (0..count).map(|i| format!("db-{i}-0")).collect();
        let (api, params) = (world.pods(), WatchParams::default().labels("windlass.dev/node"));
        let list = api.list(&ListParams::default().labels("windlass.dev/node")).await.expect("pods");
        let mut first = Seen::default();
        for pod in &list.items {
            first.take_in(&serde_json::to_value(pod).unwrap(), false, &[]);
        }
        // Pods that were up from the start have no transition.
        first.log.clear();
        let version = list.metadata.resource_version.unwrap_or_default();
        let seen = Arc::new(Mutex::new(first));
        let told = seen.clone();
        let watching = tokio::spawn(async move {
            let stream = api.watch(&params, &version).await.expect("a watch");
            let mut stream = Box::pin(stream);
            while let Some(event) = stream.next().await {
                let (pod, gone) = match event.expect("the watch goes on") {
                    WatchEvent::Added(pod) | WatchEvent::Modified(pod) => (pod, false),
                    WatchEvent::Deleted(pod) => (pod, true),
                    WatchEvent::Bookmark(_) => continue,
                    WatchEvent::Error(error) => panic!("the watch is cut: {error:?}"),
                };
                let pod = serde_json::to_value(pod).unwrap();
                told.lock().unwrap().take_in(&pod, gone, &expected);
            }
        });
        Self { seen, watching }
    }

    /// The observations so far.
    pub fn so_far(&self) -> Seen {
        self.seen.lock().unwrap().clone()
    }

    /// Stops watching and returns the observations.
    pub async fn finish(self) -> Seen {
        tokio::time::sleep(Duration::from_millis(300)).await;
        assert!(!self.watching.is_finished(), "the watch ended early");
        self.watching.abort();
        self.so_far()
    }
}
