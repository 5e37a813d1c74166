//! A port to Kubernetes that writes nothing: creations go to the view only, and refusals come from dry runs with the
//! user's rights.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use serde_json::{Value, json};

use windlass_kube_port::{
    Cluster, ClusterError, Eviction, Kind, LivePod, Part, PatchOp, Selector, Target, View,
};

/// A cluster that is only queried.
pub struct DryRunCluster {
    inner: Arc<dyn Cluster>,
    view: Arc<View>,
    /// The objects that are applied together with the fleet, each as `Kind name`.
    applied: BTreeSet<String>,
    unchecked: Mutex<Vec<String>>,
}

impl DryRunCluster {
    /// Queries through `inner`, and stores creations in `view`.
    pub fn new(inner: Arc<dyn Cluster>, view: Arc<View>) -> Self {
        Self { inner, view, applied: BTreeSet::new(), unchecked: Mutex::default() }
    }

    /// The same, with these objects, each as `Kind name`.
    #[must_use]
    pub fn beside(self, applied: BTreeSet<String>) -> Self {
        Self { applied, ..self }
    }

    /// What the user's rights did not allow to check, each in a sentence.
    pub fn unchecked(&self) -> Vec<String> {
        self.unchecked.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn note(&self, what: &str, message: &str) {
        let sentence = format!("{what}: {message}");
        let mut unchecked = self.unchecked.lock().unwrap_or_else(PoisonError::into_inner);
        if !unchecked.contains(&sentence) {
            unchecked.push(sentence);
        }
    }

    /// Ignores a missing answer that the user's rights do not allow. A quota or a policy refuses with the same code,
    /// and is an answer.
    fn unless_unallowed<T>(
        &self,
        what: &str,
        without: T,
        answer: Result<T, ClusterError>,
    ) -> Result<T, ClusterError> {
        match answer {
            Err(ClusterError::Forbidden { message, .. }) if is_about_rights(&message) => {
                self.note(what, &message);
                Ok(without)
            }
            answer => answer,
        }
    }
}

/// True if a 403 is about the user's rights, not about the object.
pub fn is_about_rights(message: &str) -> bool {
    message.contains(" cannot ") && message.contains(" resource ")
}

fn never_written(object: &str) -> ClusterError {
    ClusterError::Refused { object: object.to_owned(), message: "a forecast writes nothing".to_owned() }
}

#[async_trait]
impl Cluster for DryRunCluster {
    async fn create(&self, kind: Kind, mut manifest: Value) -> Result<Value, ClusterError> {
        let name = manifest["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        if kind != Kind::ControllerRevision {
            return Err(never_written(&name));
        }
        manifest["metadata"]["uid"] = json!(format!("not-stored-{name}"));
        manifest["metadata"]["resourceVersion"] = json!("1");
        self.view.observe(kind, &manifest);
        Ok(manifest)
    }

    async fn apply(&self, _: Kind, manifest: Value) -> Result<Value, ClusterError> {
        Err(never_written(manifest["metadata"]["name"].as_str().unwrap_or_default()))
    }

    async fn try_create(&self, kind: Kind, manifest: Value) -> Result<Value, ClusterError> {
        let what = format!("not checked whether the API server accepts a new {}", kind.name());
        self.unless_unallowed(&what, Value::Null, self.inner.try_create(kind, manifest).await)
    }

    async fn patch(&self, target: Target, _: Part, _: Vec<PatchOp>) -> Result<Value, ClusterError> {
        Err(never_written(&target.name))
    }

    async fn try_patch(&self, target: Target, ops: Vec<PatchOp>) -> Result<Value, ClusterError> {
        let what = format!("not checked whether {} may grow", target.describe());
        self.unless_unallowed(&what, Value::Null, self.inner.try_patch(target, ops).await)
    }

    async fn delete(&self, target: Target) -> Result<(), ClusterError> {
        Err(never_written(&target.name))
    }

    async fn delete_and_orphan(&self, target: Target) -> Result<(), ClusterError> {
        Err(never_written(&target.name))
    }

    async fn evict(&self, target: Target) -> Result<Eviction, ClusterError> {
        Err(never_written(&target.name))
    }

    async fn get(&self, kind: Kind, namespace: &str, name: &str) -> Result<Option<Value>, ClusterError> {
        let what = format!("owner of {} {name} not checked", kind.name());
        self.unless_unallowed(&what, None, self.inner.get(kind, namespace, name).await)
    }

    /// A missing right is an answer: the check of what a template names is skipped without it, as in the operator.
    async fn exists(&self, kind: Kind, namespace: &str, name: &str) -> Result<bool, ClusterError> {
        Ok(self.applied.contains(&format!("{} {name}", kind.name()))
            || self.inner.exists(kind, namespace, name).await?)
    }

    async fn managed_fields(&self, _: Kind, _: &str, _: &str) -> Result<Vec<Value>, ClusterError> {
        Ok(Vec::new())
    }

    async fn names(&self, kind: Kind, namespace: &str) -> Result<Vec<String>, ClusterError> {
        let what = format!("names of {}s not checked", kind.name());
        self.unless_unallowed(&what, Vec::new(), self.inner.names(kind, namespace).await)
    }

    async fn live_pods(&self, namespace: &str, labels: &str) -> Result<Vec<LivePod>, ClusterError> {
        self.inner.live_pods(namespace, labels).await
    }

    async fn live_pod(&self, namespace: &str, name: &str) -> Result<Option<LivePod>, ClusterError> {
        self.inner.live_pod(namespace, name).await
    }

    async fn selected(&self, kind: Kind, namespace: &str, by: Selector) -> Result<Vec<Value>, ClusterError> {
        self.inner.selected(kind, namespace, by).await
    }
}
