//! Claims that grow: the parts of the storage driver with its resizer, and of the kubelet of the pods. The folders stay
//! as they are: nothing limits their sizes.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use k8s_openapi::{
    api::{
        core::v1::{PersistentVolume, PersistentVolumeClaim, Pod},
        storage::v1::StorageClass,
    },
    apimachinery::pkg::api::resource::Quantity,
};
use kube::{
    Api, Client, ResourceExt,
    api::{ListParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::{
    Error,
    clock::{now, text},
    events::{About, Events},
    resources::thousandths,
};

/// How long a step of a driver takes that is not slow.
const STEP: Duration = Duration::from_millis(500);
/// How often a claim that waits for a pod is looked at.
const LOOK: Duration = Duration::from_millis(200);
/// The retry interval of a driver that fails, doubled from the first to the last.
const AGAIN_FIRST: Duration = Duration::from_secs(1);
const AGAIN_LAST: Duration = Duration::from_mins(1);

const DRIVER: &str = "windlass.test/process";
const FAILED: &str =
    "rpc error: code = Internal desc = could not resize the disk: the backend is out of capacity";
const PENDING: &str = "Waiting for user to (re-)start a pod to finish file system resize of volume on node.";

/// The conditions of a growing claim.
const CONDITIONS: [&str; 4] =
    ["Resizing", "FileSystemResizePending", "ControllerResizeError", "NodeResizeError"];

/// How the claims of a storage class grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expansion {
    /// While pods use them, within two seconds.
    Online,
    /// The volume at once, and its file system when a pod is started with it.
    Offline,
    /// As [`Self::Online`], but each of the two steps takes this long.
    Slow(Duration),
    /// The driver fails, again and again.
    Never,
}

impl Expansion {
    /// A way of each kind, by name.
    pub(crate) const ALL: [(&'static str, Self); 4] = [
        ("online", Self::Online),
        ("offline", Self::Offline),
        ("slow", Self::Slow(Duration::from_secs(10))),
        ("never", Self::Never),
    ];

    fn step(self) -> Duration {
        if let Self::Slow(step) = self { step } else { STEP }
    }
}

/// Creates the classes whose claims grow, unless they exist.
pub(crate) async fn register(
    client: &Client,
    classes: &BTreeMap<String, Option<Expansion>>,
) -> Result<(), Error> {
    let api: Api<StorageClass> = Api::all(client.clone());
    for (name, _) in classes.iter().filter(|(_, way)| way.is_some()) {
        let class = json!({
            "metadata": {"name": name}, "provisioner": DRIVER, "reclaimPolicy": "Delete",
            "volumeBindingMode": "Immediate", "allowVolumeExpansion": true,
        });
        let failed = || Error::api(format!("storage class {name}"));
        let class = serde_json::from_value(class).map_err(kube::Error::SerdeError).map_err(failed())?;
        match api.create(&PostParams::default(), &class).await {
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            created => drop(created.map_err(failed())?),
        }
    }
    Ok(())
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
pub(crate) fn is_growing(claim: &PersistentVolumeClaim) -> bool {
    Stage::of(claim).is_some()
}

fn size(quantity: Option<&Quantity>) -> Option<u128> {
    thousandths(&quantity?.0).ok()
}

fn request(claim: &PersistentVolumeClaim) -> Option<&Quantity> {
    claim.spec.as_ref()?.resources.as_ref()?.requests.as_ref()?.get("storage")
}

fn requested(claim: &PersistentVolumeClaim) -> Option<u128> {
    size(request(claim))
}

/// The size that the growth under way leads to.
fn allocated(claim: &PersistentVolumeClaim) -> Option<&Quantity> {
    claim.status.as_ref()?.allocated_resources.as_ref()?.get("storage")
}

/// A write to a claim.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Step {
    Begin,
    Fail,
    VolumeGrown,
    BeginFileSystem,
    FileSystemGrown,
}

/// A claim that grows.
pub(crate) struct Growth {
    client: Client,
    claims: Api<PersistentVolumeClaim>,
    name: String,
    uid: Option<String>,
    way: Expansion,
    events: About,
    failures: u32,
    /// The UIDs of the pods that have the volume from before it grew.
    before: BTreeSet<String>,
}

impl Growth {
    pub(crate) fn new(
        client: &Client,
        claim: &PersistentVolumeClaim,
        way: Expansion,
        events: &Events,
    ) -> Self {
        Self {
            client: client.clone(),
            claims: Api::namespaced(client.clone(), &claim.namespace().unwrap_or_default()),
            name: claim.name_any(),
            uid: claim.uid(),
            way,
            events: events.about_claim(claim),
            failures: 0,
            before: BTreeSet::new(),
        }
    }

    /// Makes all steps of the claim, until it has what it wants, or is gone.
    pub(crate) async fn run(mut self) {
        let mut begun = false;
        loop {
            let done = if begun { self.advance().await } else { self.look_around().await };
            match done {
                Ok(true) => return,
                Ok(false) => begun = true,
                Err(error) => {
                    tracing::debug!(%error, claim = self.name, "a claim grows later");
                    sleep(LOOK).await;
                }
            }
        }
    }

    /// Notes the pods that there are. True if there is nothing to do.
    async fn look_around(&mut self) -> Result<bool, kube::Error> {
        let Some(claim) = self.claim().await? else { return Ok(true) };
        self.before = uids(&self.pods(&claim).await?);
        Ok(false)
    }

    /// The claim, unless it is gone or another one.
    async fn claim(&self) -> Result<Option<PersistentVolumeClaim>, kube::Error> {
        let found = self.claims.get_opt(&self.name).await?;
        Ok(found.filter(|claim| claim.uid() == self.uid))
    }

    /// The pods that have the claim mounted.
    async fn pods(&self, claim: &PersistentVolumeClaim) -> Result<Vec<Pod>, kube::Error> {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &claim.namespace().unwrap_or_default());
        let all = pods.list(&ListParams::default()).await?;
        Ok(all.items.into_iter().filter(|pod| mounts(pod, &self.name)).collect())
    }

    /// Makes the next step. True if it was the last.
    async fn advance(&mut self) -> Result<bool, kube::Error> {
        let Some(claim) = self.claim().await? else { return Ok(true) };
        let Some(stage) = Stage::of(&claim) else { return Ok(true) };
        let fails = self.way == Expansion::Never;
        match stage {
            Stage::Wanted => self.write(&claim, Step::Begin, "").await?,
            Stage::Volume if fails && size(allocated(&claim)) != requested(&claim) => {
                self.write(&claim, Step::Begin, "").await?;
            }
            Stage::Volume if fails => {
                sleep(AGAIN_LAST.min(AGAIN_FIRST * 2_u32.saturating_pow(self.failures))).await;
                self.failures += 1;
                self.write(&claim, Step::Fail, "").await?;
            }
            Stage::Volume => {
                sleep(self.way.step()).await;
                self.before = uids(&self.pods(&claim).await?);
                self.write(&claim, Step::VolumeGrown, "").await?;
            }
            Stage::Pending if self.host(&claim).await?.is_none() => sleep(LOOK).await,
            Stage::Pending => self.write(&claim, Step::BeginFileSystem, "").await?,
            Stage::FileSystem => {
                sleep(self.way.step()).await;
                let pods = self.pods(&claim).await?;
                let node = pods.first().and_then(|pod| pod.spec.as_ref()?.node_name.as_deref());
                self.write(&claim, Step::FileSystemGrown, node.unwrap_or_default()).await?;
            }
        }
        Ok(false)
    }

    /// The pod whose kubelet may grow the file system.
    async fn host(&self, claim: &PersistentVolumeClaim) -> Result<Option<Pod>, kube::Error> {
        let is_new = |pod: &Pod| pod.uid().is_some_and(|uid| !self.before.contains(&uid));
        let pods = self.pods(claim).await?;
        Ok(pods.into_iter().find(|pod| self.way != Expansion::Offline || is_new(pod)))
    }

    async fn write(&self, claim: &PersistentVolumeClaim, step: Step, node: &str) -> Result<(), kube::Error> {
        let volume = claim.spec.as_ref().and_then(|spec| spec.volume_name.clone()).unwrap_or_default();
        let none = PatchParams::default();
        if step == Step::VolumeGrown {
            let volumes: Api<PersistentVolume> = Api::all(self.client.clone());
            let capacity = json!({"spec": {"capacity": {"storage": allocated(claim)}}});
            volumes.patch(&volume, &none, &Patch::Merge(capacity)).await?;
        }
        let version = json!({"resourceVersion": claim.resource_version()});
        let patch = Patch::Merge(json!({"metadata": version, "status": status(claim, step)}));
        self.claims.patch_status(&self.name, &none, &patch).await?;
        self.tell(step, &volume, node);
        Ok(())
    }

    fn tell(&self, step: Step, volume: &str, node: &str) {
        let events = &self.events;
        match step {
            Step::Begin => {
                events.normal("Resizing", format!("External resizer is resizing volume {volume}"));
            }
            Step::Fail => {
                let why = format!("resize volume {volume:?} by resizer {DRIVER:?} failed: {FAILED}");
                events.warning("VolumeResizeFailed", why);
            }
            Step::VolumeGrown => {
                events.normal("FileSystemResizeRequired", "Require file system resize of volume on node");
            }
            Step::BeginFileSystem => {}
            Step::FileSystemGrown => {
                let done = format!("MountVolume.NodeExpandVolume succeeded for volume {volume:?} {node}");
                events.normal("FileSystemResizeSuccessful", done);
            }
        }
    }
}

/// True if a pod has a claim mounted.
fn mounts(pod: &Pod, claim: &str) -> bool {
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    let mut claims = volumes.filter_map(|volume| volume.persistent_volume_claim.as_ref());
    let status = pod.status.as_ref();
    let phase = status.and_then(|status| status.phase.as_deref());
    claims.any(|used| used.claim_name == claim)
        && status.is_some_and(|status| status.start_time.is_some())
        && !matches!(phase, Some("Succeeded" | "Failed"))
}

fn uids(pods: &[Pod]) -> BTreeSet<String> {
    pods.iter().filter_map(ResourceExt::uid).collect()
}

/// The status after a step, as a merge patch.
fn status(claim: &PersistentVolumeClaim, step: Step) -> Value {
    let condition = |kind: &str, message: &str| json!({"type": kind, "status": "True", "lastTransitionTime": text(now()), "message": message});
    match step {
        Step::Begin => json!({
            "conditions": with(claim, &CONDITIONS, Some(json!({
                "type": "Resizing", "status": "True", "lastTransitionTime": text(now()),
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
        Step::FileSystemGrown => json!({
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

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(status: &Value) -> PersistentVolumeClaim {
        serde_json::from_value(json!({
            "metadata": {"name": "data"},
            "spec": {"resources": {"requests": {"storage": "2Gi"}}}, "status": status,
        }))
        .unwrap()
    }

    #[test]
    fn stage_follows_from_the_sizes_and_the_status() {
        let has = |size: &str| json!({"phase": "Bound", "capacity": {"storage": size}});
        let at = |stage: &str| {
            let stage = json!({"storage": stage});
            json!({"phase": "Bound", "capacity": {"storage": "1Gi"}, "allocatedResourceStatuses": stage})
        };
        for (status, stage) in [
            (json!({"phase": "Pending"}), None),
            (has("2048Mi"), None),
            (has("3Gi"), None),
            (has("1Gi"), Some(Stage::Wanted)),
            (has("2147483647"), Some(Stage::Wanted)),
            (at("ControllerResizeInProgress"), Some(Stage::Volume)),
            (at("NodeResizePending"), Some(Stage::Pending)),
            (at("NodeResizeInProgress"), Some(Stage::FileSystem)),
        ] {
            assert_eq!(Stage::of(&claim(&status)), stage, "{status}");
        }
    }

    #[test]
    fn step_keeps_foreign_conditions_and_replaces_its_own() {
        let kinds = |status: &Value| -> Vec<String> {
            let conditions = status["conditions"].as_array().into_iter().flatten();
            conditions.map(|condition| condition["type"].as_str().unwrap().to_owned()).collect()
        };
        let condition = |kind: &str| json!({"type": kind, "status": "True"});
        let grown = claim(&json!({
            "allocatedResources": {"storage": "2Gi"},
            "conditions": [condition("Other"), condition("Resizing")],
        }));
        for (step, after) in [
            (Step::Begin, vec!["Other", "Resizing"]),
            (Step::Fail, vec!["Other", "Resizing", "ControllerResizeError"]),
            (Step::VolumeGrown, vec!["Other", "FileSystemResizePending"]),
            (Step::FileSystemGrown, vec!["Other"]),
        ] {
            assert_eq!(kinds(&status(&grown, step)), after, "{step:?}");
        }
        assert_eq!(status(&grown, Step::FileSystemGrown)["capacity"]["storage"], "2Gi");
    }
}
