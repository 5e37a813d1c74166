//! The running workflows of a test, and a check that each has had workers of its build all the time.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use kube::api::{Api, DynamicObject, ListParams};
use serde_json::json;
use tokio::task::JoinHandle;

/// The build that each watched workflow started on.
#[derive(Clone, Default)]
struct Builds {
    watched: BTreeMap<String, String>,
    given_up: BTreeMap<String, String>,
}

/// The running workflows, each with its build. Dropping it fails the test if one of them was ever without workers.
pub struct Running {
    on: Arc<Mutex<Builds>>,
    lost: Arc<Mutex<BTreeSet<String>>>,
    watch: JoinHandle<()>,
}

impl Running {
    /// Watches these Deployments.
    pub fn watching(deployments: Api<DynamicObject>) -> Self {
        let (on, lost) = (Arc::default(), Arc::default());
        let watch = tokio::spawn(watch(deployments, Arc::clone(&on), Arc::clone(&lost)));
        Self { on, lost, watch }
    }

    /// Adds a workflow on this build.
    pub fn begun(&self, id: &str, build: &str) {
        locked(&self.on).watched.insert(id.to_owned(), build.to_owned());
    }

    /// Removes a released workflow; returns its build.
    pub fn over(&self, id: &str) -> Option<String> {
        let mut on = locked(&self.on);
        on.watched.remove(id).or_else(|| on.given_up.remove(id))
    }

    /// Stops checking a workflow's workers.
    pub fn give_up(&self, id: &str) {
        let mut on = locked(&self.on);
        if let Some(build) = on.watched.remove(id) {
            on.given_up.insert(id.to_owned(), build);
        }
    }

    /// Those that are watched.
    pub fn all(&self) -> Vec<String> {
        locked(&self.on).watched.keys().cloned().collect()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.watch.abort();
        let lost = locked(&self.lost);
        // A failed test already has its message.
        assert!(lost.is_empty() || std::thread::panicking(), "workflows lost their workers: {lost:?}");
    }
}

async fn watch(deployments: Api<DynamicObject>, on: Arc<Mutex<Builds>>, lost: Arc<Mutex<BTreeSet<String>>>) {
    loop {
        tokio::time::sleep(Duration::from_millis(200)).await;
        let before = locked(&on).watched.clone();
        let Ok(list) = deployments.list(&ListParams::default()).await else { continue };
        let serves = |object: &DynamicObject| {
            let object = json!(object);
            let lives = object["metadata"]["deletionTimestamp"].is_null() && object["spec"]["replicas"] != 0;
            let build = object["metadata"]["labels"]["windlass.dev/build-id"].as_str().map(str::to_owned);
            build.filter(|_| lives)
        };
        let builds: BTreeSet<String> = list.items.iter().filter_map(serves).collect();
        // A workflow that was released meanwhile needs no workers any more.
        let after = locked(&on).watched.clone();
        let without = before.iter().filter(|(id, build)| after.contains_key(*id) && !builds.contains(*build));
        locked(&lost).extend(without.map(|(id, build)| format!("{id} on {build}")));
    }
}

fn locked<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}
