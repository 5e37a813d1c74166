//! Single reconciles of the controllers, on a port that keeps objects in memory: what is written, which events are
//! recorded, and when the object is requeued. Whole rollouts are tested on the simulated cluster.

mod budget;
mod fleet;
mod fleet_sets;
mod jobs;
mod lean;
mod next;
mod node;
mod own_tasks;
mod platform;
mod unstored;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use chrono::{DateTime, TimeDelta, Utc};
use serde_json::{Value, json};

use super::events::Events;
use super::{Context, Next, ReconcileError, reconcile_fleet, reconcile_node};
use crate::api::names::pod_name;
use crate::clock::Clock;
use crate::engine::{Env, Registry};
use crate::metrics::Metrics;
use crate::outward::{HttpClient, KeptConnections};
use crate::probe::SidecarProber;
use crate::probe::hooks::{HookClient, HookProber};
use crate::render::RenderOptions;
use crate::sidecar::{MockSidecarClient, SidecarClient};
use windlass_kube_port::{
    Cluster, ClusterError, Eviction, Key, Kind, LivePod, Part, PatchOp, Selector, Target, View,
};

/// A clock that the test sets.
struct Moved(Mutex<DateTime<Utc>>);

impl Clock for Moved {
    fn now(&self) -> DateTime<Utc> {
        *self.0.lock().unwrap()
    }
}

/// What admission does to an object.
type Admit = fn(&mut Value);

/// The stored objects, the log of writes, and the errors that calls get.
#[derive(Default)]
struct Kept {
    objects: BTreeMap<(&'static str, String), Value>,
    writes: Vec<String>,
    events: Vec<Value>,
    /// The error for calls whose log entry begins with this text.
    errors: Vec<(String, ClusterError)>,
    count: u64,
    /// The objects that were removed: one that is made again has another UID.
    removed: BTreeSet<(&'static str, String)>,
    /// Admission that changes each written object of a kind.
    admission: Option<(Kind, Admit)>,
}

impl Kept {
    /// What the API server does to an object that a patch has changed: admission, and the next generation.
    fn admit(&self, kind: Kind, before: &Value, object: &mut Value) {
        if let Some((_, admission)) = self.admission.filter(|(of, _)| *of == kind) {
            admission(object);
        }
        if object["spec"] != before["spec"] {
            object["metadata"]["generation"] = json!(before["metadata"]["generation"].as_i64().unwrap() + 1);
        }
    }
}

/// The port to the stored objects.
struct Port {
    kept: Mutex<Kept>,
    view: Arc<View>,
}

fn name_of(object: &Value) -> String {
    object["metadata"]["name"].as_str().unwrap().to_owned()
}

impl Port {
    /// Logs a call, and returns the error that it is to get.
    fn called(&self, call: String) -> Result<(), ClusterError> {
        let mut kept = self.kept.lock().unwrap();
        let error = kept.errors.iter().find(|(begin, _)| call.starts_with(begin)).map(|(_, e)| e.clone());
        kept.writes.push(call);
        error.map_or(Ok(()), Err)
    }

    fn store(&self, kind: Kind, mut object: Value) -> Value {
        let mut kept = self.kept.lock().unwrap();
        kept.count += 1;
        object["metadata"]["resourceVersion"] = json!(kept.count.to_string());
        kept.objects.insert((kind.name(), name_of(&object)), object.clone());
        drop(kept);
        self.view.observe(kind, &object);
        object
    }
}

#[async_trait]
impl Cluster for Port {
    async fn create(&self, kind: Kind, mut manifest: Value) -> Result<Value, ClusterError> {
        if kind == Kind::Event {
            self.kept.lock().unwrap().events.push(manifest.clone());
            return Ok(manifest);
        }
        let name = name_of(&manifest);
        self.called(format!("create {} {name}", kind.name()))?;
        if self.kept.lock().unwrap().objects.contains_key(&(kind.name(), name.clone())) {
            return Err(ClusterError::AlreadyExists { object: name });
        }
        let is_again = self.kept.lock().unwrap().removed.contains(&(kind.name(), name.clone()));
        let count = if is_again { format!(" {}", self.kept.lock().unwrap().count) } else { String::new() };
        manifest["metadata"]["uid"] = json!(format!("uid of {name}{count}"));
        let before = manifest.clone();
        self.kept.lock().unwrap().admit(
            kind,
            &json!({"spec": before["spec"], "metadata": {"generation": 0}}),
            &mut manifest,
        );
        manifest["metadata"]["generation"] = json!(1);
        Ok(self.store(kind, manifest))
    }

    async fn apply(&self, kind: Kind, _: Value) -> Result<Value, ClusterError> {
        panic!("a {} is never applied", kind.name())
    }

    async fn try_create(&self, kind: Kind, manifest: Value) -> Result<Value, ClusterError> {
        self.called(format!("try {} {}", kind.name(), name_of(&manifest)))?;
        Ok(manifest)
    }

    async fn patch(&self, target: Target, part: Part, ops: Vec<PatchOp>) -> Result<Value, ClusterError> {
        let ops: Vec<Value> = ops.iter().map(PatchOp::to_json).collect();
        let paths: Vec<&str> = ops.iter().filter_map(|op| op["path"].as_str()).collect();
        self.called(format!("patch {} {} {}", target.kind.name(), target.name, paths.join(" ")))?;
        let known =
            self.kept.lock().unwrap().objects.get(&(target.kind.name(), target.name.clone())).cloned();
        let Some(mut object) = known else { return Err(ClusterError::NotFound { object: target.name }) };
        if object["metadata"]["resourceVersion"] != target.resource_version.as_str() {
            return Err(ClusterError::Conflict { object: target.name, message: "it changed".to_owned() });
        }
        let patch: json_patch::Patch = serde_json::from_value(json!(ops)).unwrap();
        let before = object.clone();
        json_patch::patch(&mut object, &patch).unwrap();
        assert!(part == Part::Status || paths.iter().all(|path| !path.starts_with("/status")), "{paths:?}");
        self.kept.lock().unwrap().admit(target.kind, &before, &mut object);
        Ok(self.store(target.kind, object))
    }

    async fn try_patch(&self, target: Target, ops: Vec<PatchOp>) -> Result<Value, ClusterError> {
        self.called(format!("try patch {} {} ({})", target.kind.name(), target.name, ops.len()))?;
        let kept = self.kept.lock().unwrap();
        let before = kept.objects[&(target.kind.name(), target.name)].clone();
        let mut object = before.clone();
        let ops: Vec<Value> = ops.iter().map(PatchOp::to_json).collect();
        let patch: json_patch::Patch = serde_json::from_value(json!(ops)).unwrap();
        json_patch::patch(&mut object, &patch).unwrap();
        kept.admit(target.kind, &before, &mut object);
        Ok(object)
    }

    async fn delete(&self, target: Target) -> Result<(), ClusterError> {
        self.called(format!("delete {} {}", target.kind.name(), target.name))?;
        let mut kept = self.kept.lock().unwrap();
        kept.count += 1;
        let id = (target.kind.name(), target.name.clone());
        kept.objects.remove(&id);
        kept.removed.insert(id);
        drop(kept);
        self.view.deleted(target.kind, &Key::new(&target.namespace, &target.name), &target.uid);
        Ok(())
    }

    async fn delete_and_orphan(&self, target: Target) -> Result<(), ClusterError> {
        self.delete(target).await
    }

    async fn evict(&self, target: Target) -> Result<Eviction, ClusterError> {
        self.delete(target).await.map(|()| Eviction::Done)
    }

    async fn get(&self, kind: Kind, _: &str, name: &str) -> Result<Option<Value>, ClusterError> {
        self.called(format!("get {} {name}", kind.name()))?;
        Ok(self.kept.lock().unwrap().objects.get(&(kind.name(), name.to_owned())).cloned())
    }

    async fn exists(&self, kind: Kind, _: &str, name: &str) -> Result<bool, ClusterError> {
        self.called(format!("exists {} {name}", kind.name()))?;
        Ok(self.kept.lock().unwrap().objects.contains_key(&(kind.name(), name.to_owned())))
    }

    async fn managed_fields(&self, _: Kind, _: &str, _: &str) -> Result<Vec<Value>, ClusterError> {
        Ok(Vec::new())
    }

    async fn names(&self, kind: Kind, _: &str) -> Result<Vec<String>, ClusterError> {
        self.called(format!("names {}", kind.name()))?;
        let kept = self.kept.lock().unwrap();
        Ok(kept.objects.keys().filter(|key| key.0 == kind.name()).map(|key| key.1.clone()).collect())
    }

    /// The stored pods. A node that was stored without a pod has the pod that its status describes.
    async fn live_pods(&self, _: &str, _: &str) -> Result<Vec<LivePod>, ClusterError> {
        let kept = self.kept.lock().unwrap();
        let of =
            |kind: Kind| kept.objects.iter().filter(move |(key, _)| key.0 == kind.name()).map(|(_, o)| o);
        let mut pods: Vec<LivePod> = of(Kind::Pod).map(LivePod::read).collect();
        for node in of(Kind::StatefulNode) {
            let (name, pod) = (pod_name(&name_of(node)), LivePod::read(node));
            if pods.iter().all(|pod| pod.name != name) {
                pods.push(LivePod { name, ..pod });
            }
        }
        Ok(pods)
    }

    async fn live_pod(&self, _: &str, name: &str) -> Result<Option<LivePod>, ClusterError> {
        let kept = self.kept.lock().unwrap();
        Ok(kept.objects.get(&(Kind::Pod.name(), name.to_owned())).map(LivePod::read))
    }

    /// Only by name. The pods and events of Jobs, which are read by other selectors, are none.
    async fn selected(&self, kind: Kind, _: &str, by: Selector) -> Result<Vec<Value>, ClusterError> {
        let Selector::Fields(fields) = by else { return Ok(Vec::new()) };
        let Some(name) = fields.strip_prefix("metadata.name=") else { return Ok(Vec::new()) };
        let kept = self.kept.lock().unwrap();
        Ok(kept.objects.get(&(kind.name(), name.to_owned())).cloned().into_iter().collect())
    }
}

/// The controllers, with such a port.
struct Stage {
    port: Arc<Port>,
    cx: Context,
    clock: Arc<Moved>,
}

impl Stage {
    /// Must be called within a runtime whose time is paused.
    fn new() -> Self {
        Self::with(MockSidecarClient::new())
    }

    fn with(sidecars: MockSidecarClient) -> Self {
        let view = View::shared();
        let port = Arc::new(Port { kept: Mutex::default(), view: view.clone() });
        let clock = Arc::new(Moved(Mutex::new(DateTime::from_timestamp(1_900_000_000, 0).unwrap())));
        let (events, send) = Events::new(port.clone(), view.clone(), clock.clone(), "test");
        tokio::spawn(send);
        let sidecars: Arc<dyn SidecarClient> = Arc::new(sidecars);
        let prober = SidecarProber::of_sidecars(sidecars.clone(), port.clone());
        let nobody: Arc<dyn HookClient> = Arc::new(HttpClient::new(KeptConnections::None));
        let hook_prober = HookProber::of_hooks(nobody, port.clone(), clock.clone());
        let cx = Context {
            view,
            cluster: port.clone(),
            caches: Arc::default(),
            sightings: Arc::default(),
            neighbours: Arc::default(),
            followed: Arc::default(),
            status_writes: Arc::default(),
            failures: Arc::default(),
            holds: Arc::default(),
            deleted_jobs: Arc::default(),
            registry: Arc::new(Registry::builtin_recipes()),
            env: Env::new(),
            options: Arc::new(RenderOptions::default()),
            sidecars,
            prober,
            hook_rules: Arc::default(),
            hook_prober,
            clock: clock.clone(),
            events,
            metrics: Metrics::default(),
            traces: crate::traces::Traces::default(),
        };
        Self { port, cx, clock }
    }

    /// Stores an object as another client would.
    fn put(&self, kind: Kind, name: &str, object: Value) {
        let mut object = object;
        let now = self.clock.now();
        let meta = object["metadata"].as_object_mut().map(std::mem::take).unwrap_or_default();
        object["metadata"] = json!({"name": name, "namespace": "shop", "uid": format!("uid of {name}"),
            "generation": 1, "creationTimestamp": now, "labels": {}, "annotations": {}});
        for (key, value) in meta {
            object["metadata"][key] = value;
        }
        self.port.store(kind, object);
    }

    /// Changes an object by a merge patch, as another client would. A changed spec increments the generation.
    fn change(&self, kind: Kind, name: &str, patch: &Value) {
        let mut object = self.get(kind, name);
        let before = object["spec"].clone();
        json_patch::merge(&mut object, patch);
        if let Some((_, admission)) = self
            .port
            .kept
            .lock()
            .unwrap()
            .admission
            .filter(|(of, _)| *of == kind && patch["status"].is_null())
        {
            admission(&mut object);
        }
        if object["spec"] != before {
            object["metadata"]["generation"] = json!(object["metadata"]["generation"].as_i64().unwrap() + 1);
        }
        self.port.store(kind, object);
    }

    fn remove(&self, kind: Kind, name: &str) {
        let id = (kind.name(), name.to_owned());
        let object = self.port.kept.lock().unwrap().objects.remove(&id).unwrap();
        self.port.kept.lock().unwrap().removed.insert(id);
        let uid = object["metadata"]["uid"].as_str().unwrap();
        self.cx.view.deleted(kind, &Key::new("shop", name), uid);
    }

    fn get(&self, kind: Kind, name: &str) -> Value {
        let kept = self.port.kept.lock().unwrap();
        kept.objects.get(&(kind.name(), name.to_owned())).cloned().unwrap_or_default()
    }

    fn names(&self, kind: Kind) -> Vec<String> {
        let kept = self.port.kept.lock().unwrap();
        kept.objects.keys().filter(|key| key.0 == kind.name()).map(|key| key.1.clone()).collect()
    }

    /// From now on admission does this to every StatefulSet that is written.
    fn admits(&self, admission: Admit) {
        self.admits_of(Kind::StatefulSet, admission);
    }

    /// The same for another kind.
    fn admits_of(&self, kind: Kind, admission: Admit) {
        self.port.kept.lock().unwrap().admission = Some((kind, admission));
    }

    /// From now on calls whose log entry begins with this text get this error.
    fn fail(&self, begin: &str, error: ClusterError) {
        self.port.kept.lock().unwrap().errors.push((begin.to_owned(), error));
    }

    fn mend(&self) {
        self.port.kept.lock().unwrap().errors.clear();
    }

    /// The calls since the last call of this function.
    fn calls(&self) -> Vec<String> {
        std::mem::take(&mut self.port.kept.lock().unwrap().writes)
    }

    /// The reasons and notes of the events since the last call of this function.
    async fn told(&self) -> Vec<(String, String)> {
        tokio::time::sleep(Duration::from_secs(6)).await;
        let events = std::mem::take(&mut self.port.kept.lock().unwrap().events);
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        events.iter().map(|e| (text(&e["reason"]), text(&e["note"]))).collect()
    }

    async fn reasons(&self) -> Vec<String> {
        self.told().await.into_iter().map(|(reason, _)| reason).collect()
    }

    /// Advances both the wall clock and the process's clock.
    async fn pass(&self, seconds: i64) {
        *self.clock.0.lock().unwrap() += TimeDelta::seconds(seconds);
        tokio::time::sleep(Duration::from_secs(seconds.unsigned_abs())).await;
    }

    async fn look_at_fleet(&self) -> Result<Next, ReconcileError> {
        reconcile_fleet(&self.cx, &Key::new("shop", "db")).await
    }

    async fn look_at_node(&self) -> Result<Next, ReconcileError> {
        reconcile_node(&self.cx, &Key::new("shop", "db-0")).await
    }
}

fn forbidden(message: &str) -> ClusterError {
    ClusterError::Forbidden { object: "it".to_owned(), message: message.to_owned() }
}

fn refused(message: &str) -> ClusterError {
    ClusterError::Refused { object: "it".to_owned(), message: message.to_owned() }
}

fn busy() -> ClusterError {
    ClusterError::Transient { object: "it".to_owned(), message: "busy".to_owned(), retry_after: None }
}

fn conflict() -> ClusterError {
    ClusterError::Conflict { object: "it".to_owned(), message: "it changed".to_owned() }
}

/// The requeue delay in seconds; `None` for the resync period.
fn seconds(next: Next) -> Option<u64> {
    let delay = next.delay("shop/db");
    (delay < Duration::from_mins(10)).then_some(delay.as_secs())
}

/// The status, reason and message of a condition.
fn condition(object: &Value, type_: &str) -> (String, String, String) {
    let list = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let found = list.into_iter().find(|c| c["type"] == type_).unwrap_or_default();
    let text = |name: &str| found[name].as_str().unwrap_or_default().to_owned();
    (text("status"), text("reason"), text("message"))
}
