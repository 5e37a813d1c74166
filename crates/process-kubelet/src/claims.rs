//! Binds the claims of storage classes to folders that outlive the pods.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, Patch, PatchParams, PostParams},
    runtime::{
        WatchStreamExt,
        watcher::{self, Event, watcher},
    },
};
use serde_json::{Value, json};
use tokio::task::{AbortHandle, JoinSet};

use crate::{
    events::Events,
    growth::{self, Expansion, Growth},
};

/// The claims of some storage classes.
pub(crate) struct Claims {
    pub(crate) client: Client,
    pub(crate) folder: PathBuf,
    /// The classes, and how their claims grow, if they do.
    pub(crate) classes: BTreeMap<String, Option<Expansion>>,
    pub(crate) events: Events,
}

impl Claims {
    /// Binds and grows claims, and removes the folders of deleted ones, until dropped.
    pub(crate) async fn serve(self) {
        let claims: Api<PersistentVolumeClaim> = Api::all(self.client.clone());
        let mut events = watcher(claims, watcher::Config::default()).default_backoff().boxed();
        let mut growing = Growing::default();
        loop {
            match events.try_next().await {
                Ok(Some(Event::Apply(claim) | Event::InitApply(claim))) => {
                    self.seen(&claim, &mut growing).await;
                }
                Ok(Some(Event::Delete(claim))) if self.is_ours(&claim) => {
                    if let Err(error) = release(&self.client, &claim, &self.folder).await {
                        tracing::warn!(%error, claim = claim.name_any(), "a claim's volume is not removed");
                    }
                }
                Ok(Some(_)) => {}
                Ok(None) => return,
                Err(error) => tracing::debug!(%error, "the watch of claims starts again"),
            }
        }
    }

    /// True if the claim's class is one of these.
    fn is_ours(&self, claim: &PersistentVolumeClaim) -> bool {
        class_of(claim).is_some_and(|class| self.classes.contains_key(class))
    }

    /// How the claim grows, if it does.
    fn way(&self, claim: &PersistentVolumeClaim) -> Option<Expansion> {
        self.classes.get(class_of(claim)?).copied().flatten()
    }

    async fn seen(&self, claim: &PersistentVolumeClaim, growing: &mut Growing) {
        if self.is_ours(claim) && is_unbound(claim) {
            if let Err(error) = bind(&self.client, claim, &self.folder).await {
                // The watch delivers it again later.
                tracing::warn!(%error, claim = claim.name_any(), "a claim is not bound");
            }
        } else if let Some(way) = self.way(claim)
            && growth::is_growing(claim)
        {
            growing.begin(claim, || Growth::new(&self.client, claim, way, &self.events));
        }
    }
}

fn class_of(claim: &PersistentVolumeClaim) -> Option<&str> {
    claim.spec.as_ref()?.storage_class_name.as_deref()
}

/// The claims that grow, by UID.
#[derive(Default)]
struct Growing {
    known: BTreeMap<String, AbortHandle>,
    /// Aborted on drop.
    work: JoinSet<()>,
}

impl Growing {
    /// Begins with a claim, unless it grows already.
    fn begin(&mut self, claim: &PersistentVolumeClaim, growth: impl FnOnce() -> Growth) {
        while self.work.try_join_next().is_some() {}
        self.known.retain(|_, task| !task.is_finished());
        self.known.entry(claim.uid().unwrap_or_default()).or_insert_with(|| self.work.spawn(growth().run()));
    }
}

fn is_unbound(claim: &PersistentVolumeClaim) -> bool {
    let phase = claim.status.as_ref().and_then(|status| status.phase.as_deref());
    // A claim that names a volume is provisioned by somebody else.
    let named =
        claim.spec.as_ref().and_then(|spec| spec.volume_name.as_deref()).filter(|name| !name.is_empty());
    let is_own = named.is_none_or(|volume| volume == volume_of(claim));
    is_own && claim.metadata.deletion_timestamp.is_none() && phase != Some("Bound")
}

fn volume_of(claim: &PersistentVolumeClaim) -> String {
    format!("pvc-{}", claim.uid().unwrap_or_default())
}

fn folder_of(claim: &PersistentVolumeClaim, folder: &Path) -> PathBuf {
    let (namespace, name) = (claim.namespace().unwrap_or_default(), claim.name_any());
    folder.join(format!("{namespace}_{name}_{}", claim.uid().unwrap_or_default()))
}

/// Idempotent.
async fn bind(client: &Client, claim: &PersistentVolumeClaim, folder: &Path) -> Result<(), kube::Error> {
    let spec = claim.spec.clone().unwrap_or_default();
    let requests = spec.resources.and_then(|resources| resources.requests).unwrap_or_default();
    let capacity = json!({"storage": requests.get("storage")});
    let (volume, name) = (volume_of(claim), claim.name_any());
    let wanted = json!({
        "metadata": {"name": volume},
        "spec": {
            "capacity": capacity, "accessModes": spec.access_modes, "storageClassName": spec.storage_class_name,
            "volumeMode": spec.volume_mode, "persistentVolumeReclaimPolicy": "Delete",
            "hostPath": {"path": folder_of(claim, folder)},
            "claimRef": {
                "apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": claim.namespace(), "name": name,
                "uid": claim.uid(),
            },
        },
    });
    let volumes: Api<PersistentVolume> = Api::all(client.clone());
    let wanted = serde_json::from_value(wanted).map_err(kube::Error::SerdeError)?;
    match volumes.create(&PostParams::default(), &wanted).await {
        Err(kube::Error::Api(status)) if status.code == 409 => {}
        other => drop(other?),
    }
    let merge = |status: Value| Patch::Merge(json!({"status": status}));
    let none = PatchParams::default();
    volumes.patch_status(&volume, &none, &merge(json!({"phase": "Bound"}))).await?;
    let claims: Api<PersistentVolumeClaim> =
        Api::namespaced(client.clone(), &claim.namespace().unwrap_or_default());
    let bound = json!({
        "metadata": {"annotations": {"pv.kubernetes.io/bind-completed": "yes"}},
        "spec": {"volumeName": volume},
    });
    claims.patch(&name, &none, &Patch::Merge(bound)).await?;
    let status = json!({"phase": "Bound", "capacity": capacity, "accessModes": spec.access_modes});
    claims.patch_status(&name, &none, &merge(status)).await.map(drop)
}

/// Deletes the volume with its claim, and the folder unless the policy is Retain.
async fn release(client: &Client, claim: &PersistentVolumeClaim, folder: &Path) -> Result<(), kube::Error> {
    let volumes: Api<PersistentVolume> = Api::all(client.clone());
    let volume = volumes.get_opt(&volume_of(claim)).await?;
    let policy = volume.and_then(|volume| volume.spec?.persistent_volume_reclaim_policy);
    if policy.as_deref() == Some("Retain") {
        return Ok(());
    }
    let _ = std::fs::remove_dir_all(folder_of(claim, folder));
    match volumes.delete(&volume_of(claim), &DeleteParams::default()).await {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        other => other.map(drop),
    }
}
