//! Watches the pods that are bound to this kubelet's nodes, and runs them.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, PoisonError},
};

use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, ResourceExt,
    runtime::{
        WatchStreamExt,
        watcher::{self, Event, watcher},
    },
};
use tokio::{
    sync::{oneshot, watch},
    task::JoinSet,
};

use crate::{
    context::{Shared, View},
    pod,
};

type Key = (String, String);

/// A running pod.
struct Tracked {
    uid: String,
    view: watch::Sender<View>,
    /// Resolves when its processes have ended.
    ended: Option<oneshot::Receiver<()>>,
}

pub(crate) struct Manager {
    shared: Arc<Shared>,
    nodes: BTreeSet<String>,
    pods: BTreeMap<Key, Tracked>,
    /// Pods that the current list has not named yet; those left at its end are deleted.
    unlisted: BTreeSet<Key>,
    /// The tasks of the pods, aborted on drop.
    lives: JoinSet<()>,
}

impl Manager {
    pub(crate) fn new(shared: Arc<Shared>, nodes: BTreeSet<String>) -> Self {
        Self { shared, nodes, pods: BTreeMap::new(), unlisted: BTreeSet::new(), lives: JoinSet::new() }
    }

    /// Runs until dropped.
    pub(crate) async fn run(mut self) {
        let pods: Api<Pod> = Api::all(self.shared.client.clone());
        let mut events = watcher(pods, watcher::Config::default()).default_backoff().boxed();
        loop {
            match events.try_next().await {
                Ok(Some(event)) => self.see(event),
                Ok(None) => return,
                Err(error) => tracing::debug!(%error, "the watch of pods starts again"),
            }
        }
    }

    fn see(&mut self, event: Event<Pod>) {
        match event {
            Event::Init => self.unlisted = self.pods.keys().cloned().collect(),
            Event::Apply(pod) | Event::InitApply(pod) => {
                let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_ref());
                if node.is_some_and(|node| self.nodes.contains(node)) {
                    self.seen(pod);
                }
            }
            Event::InitDone => {
                for key in std::mem::take(&mut self.unlisted) {
                    self.gone(&key, None);
                }
            }
            Event::Delete(pod) => {
                self.gone(&key_of(&pod), Some(&pod));
                self.forget();
            }
        }
    }

    fn seen(&mut self, pod: Pod) {
        let key = key_of(&pod);
        let uid = pod.uid().unwrap_or_default();
        self.unlisted.remove(&key);
        self.shared
            .latest_uids
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(key.clone(), uid.clone());
        if let Some(tracked) = self.pods.get(&key).filter(|tracked| tracked.uid == uid) {
            tracked.view.send_replace(View { pod: Arc::new(pod), gone: false });
            return;
        }
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
        let over = matches!(phase, Some("Succeeded" | "Failed")) && pod.metadata.deletion_timestamp.is_none();
        if over {
            return;
        }
        // An earlier pod of this name may still be terminating.
        self.gone(&key, None);
        let before = self.pods.remove(&key).and_then(|tracked| tracked.ended);
        let (view, seen) = watch::channel(View { pod: Arc::new(pod), gone: false });
        let (tell, ended) = oneshot::channel();
        while self.lives.try_join_next().is_some() {}
        self.lives.spawn(pod::live(Arc::clone(&self.shared), seen, before, tell));
        self.pods.insert(key, Tracked { uid, view, ended: Some(ended) });
    }

    /// Removes the pods that have ended.
    fn forget(&mut self) {
        let mut latest_uids = self.shared.latest_uids.lock().unwrap_or_else(PoisonError::into_inner);
        self.pods.retain(|key, tracked| {
            let lives = !tracked.view.is_closed();
            if !lives && latest_uids.get(key) == Some(&tracked.uid) {
                latest_uids.remove(key);
            }
            lives
        });
    }

    fn gone(&mut self, key: &Key, pod: Option<&Pod>) {
        let Some(tracked) = self.pods.get(key) else { return };
        if pod.is_none_or(|pod| pod.uid().as_deref() == Some(&tracked.uid)) {
            tracked.view.send_modify(|view| view.gone = true);
        }
    }
}

fn key_of(pod: &Pod) -> Key {
    (pod.namespace().unwrap_or_default(), pod.name_any())
}
