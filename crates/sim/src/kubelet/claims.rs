//! Binds volume claims, as a storage provisioner does.

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

/// How claims are bound.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Claims {
    /// With a `PersistentVolume` of their own: a real scheduler asks for it.
    #[default]
    WithVolume,
    /// In name and status only: enough if nobody reads volumes.
    StatusOnly,
}

/// True if the claim waits for a volume of this kubelet.
pub(super) fn is_unbound(claim: &PersistentVolumeClaim, storage_class: Option<&str>) -> bool {
    let phase = claim.status.as_ref().and_then(|status| status.phase.as_deref());
    claim.metadata.deletion_timestamp.is_none() && phase != Some("Bound") && is_of_class(claim, storage_class)
}

/// True if the claim has this class, or any if there is none.
pub(super) fn is_of_class(claim: &PersistentVolumeClaim, storage_class: Option<&str>) -> bool {
    let class = claim.spec.as_ref().and_then(|spec| spec.storage_class_name.as_deref());
    let is_named = |class: &str, wanted: &str| {
        class.strip_prefix(wanted).is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
    };
    storage_class.is_none_or(|wanted| class.is_some_and(|class| is_named(class, wanted)))
}

pub(super) fn volume_name(claim: &PersistentVolumeClaim) -> String {
    format!("pvc-{}", claim.uid().unwrap_or_default())
}

/// Binds a claim and returns it; idempotent.
pub(super) async fn bind(
    client: &Client,
    claim: &PersistentVolumeClaim,
    how: Claims,
) -> Result<PersistentVolumeClaim, kube::Error> {
    let spec = claim.spec.clone().unwrap_or_default();
    let requests = spec.resources.and_then(|resources| resources.requests).unwrap_or_default();
    let capacity = json!({"storage": requests.get("storage")});
    let volume = volume_name(claim);
    let claims: Api<PersistentVolumeClaim> =
        Api::namespaced(client.clone(), &claim.namespace().unwrap_or_default());
    if how == Claims::WithVolume {
        let name = claim.name_any();
        let wanted = json!({
            "metadata": {"name": volume},
            "spec": {
                "capacity": capacity, "accessModes": spec.access_modes, "storageClassName": spec.storage_class_name,
                "volumeMode": spec.volume_mode, "persistentVolumeReclaimPolicy": "Delete",
                "hostPath": {"path": format!("/windlass.test/{volume}")},
                "claimRef": {
                    "apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": claim.namespace(), "name": name, "uid": claim.uid(),
                },
            },
        });
        let volumes: Api<PersistentVolume> = Api::all(client.clone());
        let wanted = serde_json::from_value(wanted).map_err(kube::Error::SerdeError)?;
        match volumes.create(&PostParams::default(), &wanted).await {
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            other => drop(other?),
        }
        patch_status(&volumes, &volume, &json!({"phase": "Bound"})).await?;
    }
    let bound = json!({
        "metadata": {"annotations": {"pv.kubernetes.io/bind-completed": "yes"}},
        "spec": {"volumeName": volume},
    });
    claims.patch(&claim.name_any(), &PatchParams::default(), &Patch::Merge(bound)).await?;
    let status = json!({"phase": "Bound", "capacity": capacity, "accessModes": spec.access_modes});
    patch_status(&claims, &claim.name_any(), &status).await
}

async fn patch_status<K>(api: &Api<K>, name: &str, status: &Value) -> Result<K, kube::Error>
where
    K: Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    let patch = Patch::Merge(json!({"status": status}));
    api.patch_status(name, &PatchParams::default(), &patch).await
}

/// Removes the volume of a deleted claim.
pub(super) async fn release(client: &Client, volume: &str) -> Result<(), kube::Error> {
    let volumes: Api<PersistentVolume> = Api::all(client.clone());
    match volumes.delete(volume, &DeleteParams::default()).await {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        other => other.map(drop),
    }
}
