//! Claims that grow: the parts of the storage driver with its resizer, and of the kubelet of the pods. As with
//! binding, the simulated kubelet plays all of them, here as on a real control plane.

use std::{collections::BTreeSet, time::Duration};

use chrono::{DateTime, Utc};
use futures::future::FutureExt;
use k8s_openapi::{
    api::{
        core::v1::{Event, PersistentVolume, PersistentVolumeClaim, Pod},
        storage::v1::StorageClass,
    },
    apimachinery::pkg::api::resource::Quantity as Text,
};
use kube::{
    Api, Client, ResourceExt,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{
    claims::Claims,
    outlook::{Now, text},
    pod::{Outcome, Write},
};
use crate::types::Quantity;

/// How long a step of a driver takes that is not slow.
const STEP: Duration = Duration::from_secs(1);
/// The retry interval of a driver that fails, doubled from the first to the last, as the resizer's.
const AGAIN_FIRST: Duration = Duration::from_secs(1);
const AGAIN_LAST: Duration = Duration::from_mins(5);

const DRIVER: &str = "windlass.test/played";
const FAILED: &str =
    "rpc error: code = Internal desc = could not resize the disk: the backend is out of capacity";
const IN_USE: &str =
    "failed to expand pvc with rpc error: code = FailedPrecondition desc = the volume is mounted";
const PENDING: &str = "Waiting for user to (re-)start a pod to finish file system resize of volume on node.";

/// The conditions of a growing claim.
const CONDITIONS: [&str; 4] =
    ["Resizing", "FileSystemResizePending", "ControllerResizeError", "NodeResizeError"];

/// How a storage class grows its claims: its parameter `expansion` says so. Without the parameter it is
/// [`Self::Online`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expansion {
    /// While pods use them, a little later.
    Online,
    /// The volume soon, and its file system when a pod is started with it. The kubelet of a running pod tries once.
    Offline,
    /// As [`Self::Online`], but each of the two steps takes this long, in whole seconds.
    Slow(Duration),
    /// The driver fails, again and again.
    Never,
}

impl Expansion {
    /// A storage class that grows its claims in this way.
    #[must_use]
    pub fn class(self, name: &str) -> Value {
        let parameters = match self {
            Self::Online => json!({"expansion": "online"}),
            Self::Offline => json!({"expansion": "offline"}),
            Self::Slow(step) => json!({"expansion": "slow", "step": step.as_secs().to_string()}),
            Self::Never => json!({"expansion": "never"}),
        };
        json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": name},
            "provisioner": DRIVER, "parameters": parameters, "allowVolumeExpansion": true,
        })
    }

    /// The way of a class; `None` if its claims do not grow.
    fn of(class: &StorageClass) -> Option<Self> {
        if class.allow_volume_expansion != Some(true) {
            return None;
        }
        let parameter = |name: &str| class.parameters.as_ref()?.get(name).map(String::as_str);
        Some(match parameter("expansion") {
            Some("offline") => Self::Offline,
            Some("slow") => {
                let seconds = parameter("step").and_then(|step| step.parse().ok());
                Self::Slow(seconds.map_or(STEP, Duration::from_secs))
            }
            Some("never") => Self::Never,
            _ => Self::Online,
        })
    }

    fn step(self) -> Duration {
        if let Self::Slow(step) = self { step } else { STEP }
    }
}

/// The status of a claim's growth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// It wants more than it has.
    Wanted,
    /// The driver grows the volume.
    Volume,
    /// The volume waits for a pod.
    Pending,
    /// A kubelet grows the file system.
    FileSystem,
}

impl Stage {
    fn of(claim: &PersistentVolumeClaim) -> Option<Self> {
        let status = claim.status.as_ref()?;
        if status.phase.as_deref() != Some("Bound") || claim.metadata.deletion_timestamp.is_some() {
            return None;
        }
        let stage = status.allocated_resource_statuses.as_ref().and_then(|all| all.get("storage"));
        match stage.map(String::as_str) {
            Some("ControllerResizeInProgress") => Some(Self::Volume),
            Some("NodeResizePending") => Some(Self::Pending),
            Some("NodeResizeInProgress") => Some(Self::FileSystem),
            _ => (requested(claim) > size(status.capacity.as_ref()?.get("storage"))).then_some(Self::Wanted),
        }
    }
}

/// True if a claim grows, or wants to.
pub(super) fn is_growing(claim: &PersistentVolumeClaim) -> bool {
    Stage::of(claim).is_some()
}

fn size(text: Option<&Text>) -> Option<Quantity> {
    Quantity::parse(&text?.0).ok()
}

fn request(claim: &PersistentVolumeClaim) -> Option<&Text> {
    claim.spec.as_ref()?.resources.as_ref()?.requests.as_ref()?.get("storage")
}

fn requested(claim: &PersistentVolumeClaim) -> Option<Quantity> {
    size(request(claim))
}

/// The size that the growth under way leads to.
fn allocated(claim: &PersistentVolumeClaim) -> Option<&Text> {
    claim.status.as_ref()?.allocated_resources.as_ref()?.get("storage")
}

/// The names of the claims that a pod uses.
pub(super) fn claims_of(pod: &Pod) -> impl Iterator<Item = &str> {
    pod.spec
        .iter()
        .flat_map(|spec| spec.volumes.iter().flatten())
        .filter_map(|volume| Some(volume.persistent_volume_claim.as_ref()?.claim_name.as_str()))
}

/// True if a pod's volumes are mounted.
pub(super) fn is_mounted(pod: &Pod) -> bool {
    let status = pod.status.as_ref();
    let phase = status.and_then(|status| status.phase.as_deref());
    status.is_some_and(|status| status.start_time.is_some()) && !matches!(phase, Some("Succeeded" | "Failed"))
}

/// A growing claim, as the driver and the kubelet remember it.
pub(super) struct Growth {
    pub(super) uid: String,
    way: Option<Expansion>,
    stage: Option<Stage>,
    /// When this stage, or the last attempt in it, began.
    since: Instant,
    failures: u32,
    /// The UIDs of the pods that have the volume from before it grew.
    before: BTreeSet<String>,
}

/// The next step of a claim.
#[derive(Debug, PartialEq)]
pub(super) enum Next {
    /// None until an event, or until this time.
    Wait(Option<Instant>),
    Do(Step),
}

/// A write to a claim.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Step {
    Begin,
    Fail,
    VolumeGrown,
    BeginFileSystem,
    /// The volume is in use.
    FailInUse,
    /// On this node.
    FileSystemGrown(String),
}

impl Growth {
    pub(super) fn new(uid: String, way: Option<Expansion>, pods: &[&Pod], now: Instant) -> Self {
        Self { uid, way, stage: None, since: now, failures: 0, before: uids(pods) }
    }

    /// The next step, given the pods that have the claim mounted.
    pub(super) fn next(&mut self, claim: &PersistentVolumeClaim, pods: &[&Pod], now: Instant) -> Next {
        let (Some(way), Some(stage)) = (self.way, Stage::of(claim)) else { return Next::Wait(None) };
        if self.stage != Some(stage) {
            (self.stage, self.since, self.failures) = (Some(stage), now, 0);
        }
        let due = self.since + self.pause(way);
        match stage {
            Stage::Wanted => Next::Do(Step::Begin),
            Stage::Volume if way == Expansion::Never && size(allocated(claim)) != requested(claim) => {
                Next::Do(Step::Begin)
            }
            Stage::Volume | Stage::FileSystem if due > now => Next::Wait(Some(due)),
            Stage::Volume if way == Expansion::Never => {
                self.since = now;
                self.failures += 1;
                Next::Do(Step::Fail)
            }
            Stage::Volume => {
                self.before = uids(pods);
                Next::Do(Step::VolumeGrown)
            }
            Stage::Pending if !pods.is_empty() => Next::Do(Step::BeginFileSystem),
            Stage::Pending => Next::Wait(None),
            Stage::FileSystem => match self.host(way, pods) {
                Some(pod) => {
                    let node = pod.spec.as_ref().and_then(|spec| spec.node_name.clone());
                    Next::Do(Step::FileSystemGrown(node.unwrap_or_default()))
                }
                None if pods.is_empty() || has_condition(claim, "NodeResizeError") => Next::Wait(None),
                None => Next::Do(Step::FailInUse),
            },
        }
    }

    /// When to look at the claim again after a step that leaves its status as it is.
    pub(super) fn again(&self) -> Option<Instant> {
        self.way.filter(|way| *way == Expansion::Never).map(|way| self.since + self.pause(way))
    }

    fn pause(&self, way: Expansion) -> Duration {
        match self.failures {
            0 => way.step(),
            count => AGAIN_LAST.min(AGAIN_FIRST * 2_u32.saturating_pow(count - 1)),
        }
    }

    /// The pod whose kubelet may grow the file system.
    fn host<'a>(&self, way: Expansion, pods: &[&'a Pod]) -> Option<&'a Pod> {
        let is_new = |pod: &Pod| pod.uid().is_some_and(|uid| !self.before.contains(&uid));
        pods.iter().find(|pod| way != Expansion::Offline || is_new(pod)).copied()
    }
}

fn uids(pods: &[&Pod]) -> BTreeSet<String> {
    pods.iter().filter_map(|pod| pod.uid()).collect()
}

/// Reads how the class of a claim grows.
pub(super) fn read_class(client: &Client, claim: &PersistentVolumeClaim) -> Write {
    let name = claim.spec.as_ref().and_then(|spec| spec.storage_class_name.clone()).unwrap_or_default();
    let classes: Api<StorageClass> = Api::all(client.clone());
    async move {
        let class = classes.get_opt(&name).await?;
        Ok(Outcome::Class(class.as_ref().and_then(Expansion::of)))
    }
    .boxed()
}

/// Makes a step.
pub(super) fn write(
    client: &Client,
    claim: &PersistentVolumeClaim,
    how: Claims,
    step: Step,
    now: Now,
) -> Write {
    let (client, claim) = (client.clone(), claim.clone());
    async move {
        let volume = claim.spec.as_ref().and_then(|spec| spec.volume_name.clone()).unwrap_or_default();
        if step == Step::VolumeGrown && how == Claims::WithVolume {
            let volumes: Api<PersistentVolume> = Api::all(client.clone());
            let capacity = json!({"spec": {"capacity": {"storage": allocated(&claim)}}});
            volumes.patch(&volume, &PatchParams::default(), &Patch::Merge(capacity)).await?;
        }
        let claims: Api<PersistentVolumeClaim> =
            Api::namespaced(client.clone(), &claim.namespace().unwrap_or_default());
        let version = json!({"resourceVersion": claim.resource_version()});
        let patch = json!({"metadata": version, "status": status(&claim, &step, now.wall)});
        let patched =
            claims.patch_status(&claim.name_any(), &PatchParams::default(), &Patch::Merge(patch)).await?;
        if let Some(event) = event(&claim, &volume, &step, now.wall) {
            tell(&client, event).await?;
        }
        Ok(Outcome::Bound(Box::new(patched)))
    }
    .boxed()
}

/// The status after a step, as a merge patch.
fn status(claim: &PersistentVolumeClaim, step: &Step, now: DateTime<Utc>) -> Value {
    let condition = |kind: &str, message: &str| json!({"type": kind, "status": "True", "lastTransitionTime": text(now), "message": message});
    match step {
        Step::Begin => json!({
            "conditions": with(claim, &CONDITIONS, Some(json!({
                "type": "Resizing", "status": "True", "lastTransitionTime": text(now),
            }))),
            "allocatedResources": {"storage": request(claim)},
            "allocatedResourceStatuses": {"storage": "ControllerResizeInProgress"},
        }),
        Step::Fail if has_condition(claim, "ControllerResizeError") => json!({}),
        Step::Fail => {
            let error = condition("ControllerResizeError", &format!("failed to expand pvc with {FAILED}"));
            json!({"conditions": with(claim, &[], Some(error))})
        }
        Step::VolumeGrown => json!({
            "conditions": with(claim, &CONDITIONS, Some(condition("FileSystemResizePending", PENDING))),
            "allocatedResourceStatuses": {"storage": "NodeResizePending"},
        }),
        Step::BeginFileSystem => json!({"allocatedResourceStatuses": {"storage": "NodeResizeInProgress"}}),
        Step::FailInUse => {
            json!({"conditions": with(claim, &[], Some(condition("NodeResizeError", IN_USE)))})
        }
        Step::FileSystemGrown(_) => json!({
            "conditions": with(claim, &CONDITIONS, None),
            "capacity": {"storage": allocated(claim)},
            "allocatedResourceStatuses": null,
        }),
    }
}

fn has_condition(claim: &PersistentVolumeClaim, kind: &str) -> bool {
    let conditions = claim.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions.into_iter().flatten().any(|condition| condition.type_ == kind)
}

/// The conditions of a claim without some kinds, and with another one.
fn with(claim: &PersistentVolumeClaim, without: &[&str], more: Option<Value>) -> Vec<Value> {
    let conditions = claim.status.as_ref().and_then(|status| status.conditions.as_ref());
    let kept = conditions.into_iter().flatten().filter(|there| !without.contains(&there.type_.as_str()));
    kept.map(|condition| json!(condition)).chain(more).collect()
}

/// The event of a step.
fn event(claim: &PersistentVolumeClaim, volume: &str, step: &Step, now: DateTime<Utc>) -> Option<Value> {
    let resizer = format!("external-resizer {DRIVER}");
    let (kind, reason, message, source) = match step {
        Step::Begin => {
            ("Normal", "Resizing", format!("External resizer is resizing volume {volume}"), resizer.as_str())
        }
        Step::Fail => {
            let message = format!("resize volume {volume:?} by resizer {DRIVER:?} failed: {FAILED}");
            ("Warning", "VolumeResizeFailed", message, resizer.as_str())
        }
        Step::VolumeGrown => {
            let message = "Require file system resize of volume on node".to_owned();
            ("Normal", "FileSystemResizeRequired", message, resizer.as_str())
        }
        Step::BeginFileSystem | Step::FailInUse => return None,
        Step::FileSystemGrown(node) => {
            let message = format!("MountVolume.NodeExpandVolume succeeded for volume {volume:?} {node}");
            ("Normal", "FileSystemResizeSuccessful", message, "kubelet")
        }
    };
    let (namespace, name, uid) = (claim.namespace(), claim.name_any(), claim.uid().unwrap_or_default());
    Some(json!({
        "metadata": {"namespace": namespace, "name": format!("{name}.{uid}.{:x}", now.timestamp_micros())},
        "involvedObject": {
            "apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": namespace, "name": name, "uid": uid,
        },
        "reason": reason, "message": message, "type": kind, "count": 1,
        "firstTimestamp": text(now), "lastTimestamp": text(now), "source": {"component": source},
    }))
}

async fn tell(client: &Client, event: Value) -> Result<(), kube::Error> {
    let event: Event = serde_json::from_value(event).map_err(kube::Error::SerdeError)?;
    let events: Api<Event> = Api::namespaced(client.clone(), &event.namespace().unwrap_or_default());
    match events.create(&PostParams::default(), &event).await {
        // A failure, as in a terminating namespace, only loses the event.
        Err(kube::Error::Api(_)) => Ok(()),
        created => created.map(drop),
    }
}

#[cfg(test)]
#[path = "growth_tests.rs"]
mod tests;
