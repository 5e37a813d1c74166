//! Watches the nodes' pods. A watch and not polling: the API server delivers every state of every pod in order, so
//! that no moment with one too many down is missed.
#![allow(
    clippy::manual_assert,
    clippy::unused_async,
    clippy::duration_suboptimal_units,
    clippy::doc_markdown,
    reason = "as tests read best"
)]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::StreamExt;
use kube::api::{Api, DynamicObject, ListParams};
use kube::runtime::watcher::{self, Event};
use serde_json::Value;
use tokio::task::JoinHandle;

use crate::kit::tools::{image_of, is_up};
use crate::kit::{PATIENCE, World};

/// The pods of a fleet `db`, watched from its creation.
pub struct Wave {
    pods: Api<DynamicObject>,
    seen: Arc<Mutex<Seen>>,
    task: JoinHandle<()>,
}

/// The observations.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// By pod name: whether it serves. Only the pods named at the start count.
    serving: BTreeMap<String, bool>,
    versions: BTreeMap<String, String>,
    listed: bool,
    /// By pod name: every pod by UID with its image, oldest first.
    pub lives: BTreeMap<String, Vec<(String, String)>>,
    /// The pods that went out of service, in order.
    pub went: Vec<String>,
    /// The most pods that did not serve at once.
    pub worst: usize,
    /// A line for each change.
    pub log: Vec<String>,
}

impl Wave {
    /// Watches the pods of the nodes `db-0` to `db-<replicas - 1>`.
    pub async fn watch(world: &World, replicas: usize) -> Self {
        let names: Vec<String> = (0..replicas).map(|ordinal| format!("db-{ordinal}-0")).collect();
        Self::of_pods(world, &names).await
    }

    /// Watches these pods.
    pub async fn of_pods(world: &World, names: &[impl AsRef<str>]) -> Self {
        Self::over(world.pods(), names).await
    }

    /// Watches these pods of a namespace's.
    pub async fn over(pods: Api<DynamicObject>, names: &[impl AsRef<str>]) -> Self {
        let serving = names.iter().map(|name| (name.as_ref().to_owned(), false)).collect();
        let first = Seen { serving, ..Seen::default() };
        let seen = Arc::new(Mutex::new(first));
        let mut events = watcher::watcher(pods.clone(), watcher::Config::default()).boxed();
        let told = seen.clone();
        let task = tokio::spawn(async move {
            while let Some(event) = events.next().await {
                told.lock().unwrap().take(event.expect("the watch goes on"));
            }
        });
        let wave = Self { pods, seen, task };
        let until = tokio::time::Instant::now() + PATIENCE;
        while !wave.seen.lock().unwrap().listed {
            assert!(tokio::time::Instant::now() < until, "no list of the pods");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        wave
    }

    /// Stops watching, after the current state was observed.
    pub async fn end(self) -> Seen {
        let until = tokio::time::Instant::now() + PATIENCE;
        loop {
            let listed = self.pods.list(&ListParams::default()).await.expect("the API server answers");
            let text = |value: Option<String>| value.unwrap_or_default();
            let now: BTreeMap<String, String> = listed
                .items
                .into_iter()
                .map(|pod| (text(pod.metadata.name), text(pod.metadata.resource_version)))
                .collect();
            let seen = self.seen.lock().unwrap().clone();
            if seen.versions == now {
                self.task.abort();
                return seen;
            }
            assert!(tokio::time::Instant::now() < until, "the watch lags: {seen:#?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Stops watching; panics if more pods than this were out of service at once, or none ever was.
    pub async fn at_most(self, max: usize) -> Seen {
        let seen = self.end().await;
        assert!(!seen.went.is_empty(), "no pod was ever down: there was nothing to hold");
        assert!(seen.worst <= max, "{} pods were down at once:\n{}", seen.worst, seen.log.join("\n"));
        seen
    }
}

impl Seen {
    fn take(&mut self, event: Event<DynamicObject>) {
        match event {
            Event::Init => {}
            Event::InitDone => self.listed = true,
            Event::InitApply(pod) | Event::Apply(pod) => self.apply(&serde_json::to_value(pod).unwrap()),
            Event::Delete(pod) => {
                let pod = serde_json::to_value(pod).unwrap();
                let name = name(&pod);
                self.versions.remove(&name);
                self.set(&name, false, "deleted");
            }
        }
    }

    fn apply(&mut self, pod: &Value) {
        let name = name(pod);
        let uid = pod["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
        let image = image_of(pod);
        let lives = self.lives.entry(name.clone()).or_default();
        if !lives.iter().any(|(known, _)| *known == uid) {
            lives.push((uid, image.to_owned()));
        }
        self.versions.insert(name.clone(), version(pod));
        self.set(&name, is_up(pod), image);
    }

    fn set(&mut self, name: &str, serves: bool, what: &str) {
        let Some(before) = self.serving.get_mut(name) else { return };
        if std::mem::replace(before, serves) && !serves {
            self.went.push(name.to_owned());
        }
        let down = self.serving.values().filter(|serving| !**serving).count();
        if self.listed {
            self.worst = self.worst.max(down);
        }
        self.log.push(format!("{name} {what} {} ({down} down)", if serves { "serves" } else { "is down" }));
    }

    /// How often this pod was replaced.
    pub fn replaced(&self, pod: &str) -> usize {
        self.lives.get(pod).map_or(0, |uids| uids.len().saturating_sub(1))
    }

    /// The images of the pods of this name, in order.
    pub fn images_of(&self, pod: &str) -> Vec<&str> {
        self.lives.get(pod).into_iter().flatten().map(|(_, image)| image.as_str()).collect()
    }
}

fn name(pod: &Value) -> String {
    pod["metadata"]["name"].as_str().unwrap_or_default().to_owned()
}

fn version(pod: &Value) -> String {
    pod["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_owned()
}
