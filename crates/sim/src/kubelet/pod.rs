//! One pod: its state, and the next action.

use std::time::Duration;

use futures::future::{BoxFuture, FutureExt};
use k8s_openapi::api::core::v1::{Event, PersistentVolumeClaim, Pod};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions},
};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{
    growth::Expansion,
    outlook::{Now, text},
    probe::{Probing, sidecar_url},
    status::Life,
    steering::Orders,
};

/// How often a kubelet repeats an event.
const WARNS_EVERY: Duration = Duration::from_mins(2);

/// The result of a write.
pub(super) enum Outcome {
    Patched(Box<Pod>),
    Bound(Box<PersistentVolumeClaim>),
    Class(Option<Expansion>),
    Told,
    Done,
}

pub(super) type Write = BoxFuture<'static, Result<Outcome, kube::Error>>;

/// The next action for a pod.
#[derive(Default)]
pub(super) struct Step {
    pub(super) write: Option<Write>,
    /// When to check again without an event.
    pub(super) again: Option<Instant>,
    /// A URL to start probing.
    pub(super) ask: Option<String>,
}

pub(super) struct TrackedPod {
    pub(super) pod: Pod,
    pub(super) life: Life,
    /// The last written status, to skip repeats.
    pub(super) written: Option<Value>,
    /// When the next event about why it cannot start is due.
    warns: Option<Instant>,
    /// It was deleted; only finalizers can keep it.
    pub(super) let_go: bool,
    /// The running probe of its sidecar.
    pub(super) probing: Option<Probing>,
}

impl TrackedPod {
    pub(super) fn new(mut pod: Pod, life: Life) -> Self {
        pod.metadata.managed_fields = None;
        Self { pod, life, written: None, warns: None, let_go: false, probing: None }
    }

    /// Stores a newer version of the pod: the response to our own write may be newer than the watch.
    pub(super) fn update(&mut self, mut pod: Pod) {
        if version(&pod) >= version(&self.pod) {
            pod.metadata.managed_fields = None;
            self.pod = pod;
        }
    }

    pub(super) fn step(&mut self, client: &Client, orders: &Orders, now: Now) -> Step {
        let pod = &self.pod;
        if pod.metadata.deletion_timestamp.is_some() && !orders.hold {
            let let_go = self.let_go || pod.metadata.deletion_grace_period_seconds == Some(0);
            let gone = self.life.gone_at(pod, orders, now);
            if !let_go && gone > now.instant {
                return Step { again: Some(gone), ..Step::default() };
            }
            return Step { write: (!let_go).then(|| delete(client, pod)), ..Step::default() };
        }
        let bound = pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some());
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
        if !bound || matches!(phase, Some("Succeeded" | "Failed")) {
            return Step::default();
        }
        let Some(outlook) = self.life.outlook(pod, orders, now) else { return Step::default() };
        let mut step = Step { again: outlook.again, ..Step::default() };
        let url = sidecar_url(pod, &self.life.ip);
        if self.probing.as_ref().map(|probing| &probing.url) != url.as_ref() {
            self.probing = None;
            step.ask = url;
        }
        if self.written.as_ref() != Some(&outlook.status) {
            step.write = Some(patch(client, pod, &outlook.status));
            self.written = Some(outlook.status);
        } else if let Some(warning) = outlook.warning {
            if self.warns.is_none_or(|at| at <= now.instant) {
                step.write = Some(warn(client, pod, &warning, now));
                self.warns = Some(now.instant + WARNS_EVERY);
            }
            step.again = step.again.into_iter().chain(self.warns).min();
        }
        step
    }
}

fn api(client: &Client, pod: &Pod) -> Api<Pod> {
    Api::namespaced(client.clone(), &pod.namespace().unwrap_or_default())
}

/// With the UID: by then the pod may have been replaced by another one with its name.
fn delete(client: &Client, pod: &Pod) -> Write {
    let (api, name) = (api(client, pod), pod.name_any());
    let preconditions = Preconditions { uid: pod.uid(), resource_version: None };
    let how = DeleteParams::default().grace_period(0).preconditions(preconditions);
    async move { api.delete(&name, &how).await.map(|_| Outcome::Done) }.boxed()
}

/// With the resourceVersion, for the same reason: the server ignores a UID in a patch.
fn patch(client: &Client, pod: &Pod, status: &Value) -> Write {
    let (api, name) = (api(client, pod), pod.name_any());
    let patch = json!({"metadata": {"resourceVersion": pod.resource_version()}, "status": status});
    async move {
        let patched = api.patch_status(&name, &PatchParams::default(), &Patch::Merge(patch)).await?;
        Ok(Outcome::Patched(Box::new(patched)))
    }
    .boxed()
}

/// An event about why the pod cannot start.
fn warn(client: &Client, pod: &Pod, (reason, message): &(&str, String), now: Now) -> Write {
    let namespace = pod.namespace().unwrap_or_default();
    let (name, uid, at) = (pod.name_any(), pod.uid().unwrap_or_default(), text(now.wall));
    let event = json!({
        "metadata": {"namespace": namespace, "name": format!("{name}.{uid}.{}", now.wall.timestamp())},
        "involvedObject": {"apiVersion": "v1", "kind": "Pod", "namespace": namespace, "name": name, "uid": uid},
        "reason": reason, "message": message, "type": "Warning", "count": 1,
        "firstTimestamp": at, "lastTimestamp": at, "source": {"component": "kubelet"},
    });
    let api: Api<Event> = Api::namespaced(client.clone(), &namespace);
    async move {
        let event = serde_json::from_value(event).map_err(kube::Error::SerdeError)?;
        match api.create(&PostParams::default(), &event).await {
            // The event was created, and the answer was lost.
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            created => drop(created?),
        }
        Ok(Outcome::Told)
    }
    .boxed()
}

/// The resourceVersion as a number, which only grows.
pub(super) fn version(object: &impl ResourceExt) -> u64 {
    object.resource_version().and_then(|version| version.parse().ok()).unwrap_or(u64::MAX)
}
