//! Which WorkerDeployments use a connection object: requeues them when it changes, and reports them in its status.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use serde_json::json;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::timeout_at;
use windlass_clock::monotonic;
use windlass_core::observed::{Meta, ObservedObject};
use windlass_kube_port::watch::Namespaces;
use windlass_kube_port::{Cluster, ClusterError, Key, Kind, Part, PatchOp, Target, View};

use crate::api::ConnectionSource;
use crate::api::connections::{ClusterTemporalConnectionSpec, ConnectionStatus};
use crate::connect::{Place, cache, place};

/// Changes within this time cause one write.
const DEBOUNCE: Duration = Duration::from_secs(1);
/// The pause before a write that failed is repeated.
const AGAIN: Duration = Duration::from_secs(5);

/// The connection object that a WorkerDeployment names. One without finalizers is deleted: the response to the write
/// that removed the last one may come after the deletion event, and stays in the cache.
fn named(object: &ObservedObject) -> Option<Place> {
    if object.meta.terminating && object.object["metadata"]["finalizers"].as_array().is_none_or(Vec::is_empty)
    {
        return None;
    }
    match ConnectionSource::deserialize(&object.object["spec"]["connection"]) {
        Ok(ConnectionSource::Named(named)) => Some(place(&object.meta.namespace, &named)),
        Ok(ConnectionSource::Inline(_)) | Err(_) => None,
    }
}

/// The WorkerDeployments that use a connection object, in order.
fn users(view: &View, of: &Place) -> Vec<Key> {
    let users = view.workers.list_all(|object| named(object).as_ref() == Some(of));
    users.iter().map(|object| object.meta.key()).collect()
}

/// Detects the changes that matter. A change of a connection's status does not: each new user would requeue all others.
#[derive(Default)]
pub(crate) struct Usage {
    named: HashMap<Key, Place>,
    generations: HashMap<Place, (String, i64)>,
}

/// The effects of a change.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Effects {
    /// The WorkerDeployments to reconcile.
    pub requeue: Vec<Key>,
    /// The connection objects whose users may have changed.
    pub report: Vec<Place>,
}

impl Usage {
    /// Notes that an object changed.
    pub(crate) fn changed(&mut self, view: &View, kind: Kind, meta: &Meta) -> Effects {
        let key = meta.key();
        match kind {
            Kind::WorkerDeployment => {
                let now = view.workers.get(&key).and_then(|object| named(&object));
                let before = match now.clone() {
                    Some(now) => self.named.insert(key, now),
                    None => self.named.remove(&key),
                };
                let report = if before == now { Vec::new() } else { before.into_iter().chain(now).collect() };
                Effects { report, requeue: Vec::new() }
            }
            Kind::TemporalConnection | Kind::ClusterTemporalConnection => {
                let place = (kind, key);
                let live = cache(view, kind).get(&place.1);
                let now = live.map(|live| (live.meta.uid.clone(), live.meta.generation));
                let before = match now.clone() {
                    Some(now) => self.generations.insert(place.clone(), now),
                    None => self.generations.remove(&place),
                };
                let requeue = if before == now { Vec::new() } else { users(view, &place) };
                // Its status may have been changed, too.
                Effects { requeue, report: vec![place] }
            }
            _ => Effects::default(),
        }
    }
}

/// Writes the users of connections into their statuses, until the sender is dropped. An operator that watches only some
/// namespaces does not know all users of a ClusterTemporalConnection, and leaves that status as it is.
pub(crate) async fn report(
    cluster: Arc<dyn Cluster>,
    view: Arc<View>,
    scope: Namespaces,
    mut changed: UnboundedReceiver<Place>,
) {
    let mut due: BTreeSet<Place> = BTreeSet::new();
    loop {
        let pause = if due.is_empty() {
            let Some(first) = changed.recv().await else { return };
            due.insert(first);
            DEBOUNCE
        } else {
            AGAIN
        };
        let until = monotonic() + pause;
        while let Ok(next) = timeout_at(until, changed.recv()).await {
            let Some(next) = next else { return };
            due.insert(next);
        }
        if !view.has_workers() {
            continue;
        }
        let mut failed = BTreeSet::new();
        for of in due {
            if of.0 == Kind::ClusterTemporalConnection && scope != Namespaces::All {
                continue;
            }
            match write(&*cluster, &view, &of).await {
                // The watch shows what it conflicts with.
                Ok(()) | Err(ClusterError::Conflict { .. } | ClusterError::NotFound { .. }) => {}
                Err(error) => {
                    tracing::warn!(connection = %of.1, %error, "could not write who uses a connection; will retry");
                    failed.insert(of);
                }
            }
        }
        due = failed;
    }
}

async fn write(cluster: &dyn Cluster, view: &View, of: &Place) -> Result<(), ClusterError> {
    let Some(live) = cache(view, of.0).get(&of.1) else { return Ok(()) };
    // Those that it does not allow do not use it.
    let allowed = ClusterTemporalConnectionSpec::deserialize(&live.object["spec"]).ok();
    let allowed = allowed.filter(|_| of.0 == Kind::ClusterTemporalConnection);
    let is_allowed = |user: &&Key| allowed.as_ref().is_none_or(|spec| spec.allows(&user.namespace));
    let names: Vec<String> = users(view, of).iter().filter(is_allowed).map(ToString::to_string).collect();
    let status = ConnectionStatus::used_by(&names);
    let stored = ConnectionStatus::deserialize(&live.object["status"]).unwrap_or_default();
    if stored == status {
        return Ok(());
    }
    let op = PatchOp::set("/status", json!(status));
    cluster.patch(Target::of(of.0, &live.meta), Part::Status, vec![op]).await.map(drop)
}
