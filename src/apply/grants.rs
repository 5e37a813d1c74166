//! Grants: one patch writes a revision into a node's spec and permits the node to move to it.

use serde_json::json;

use super::many::{OnFailure, for_each_concurrent};
use super::patches::metadata_ops;
use crate::api::names::ANNOTATION_RESTARTED_AT;
use crate::api::{GrantId, GrantedBy, RestartTime};
use crate::observe::FleetScope;
use crate::planner::fleet::Grant;
use crate::render::MetadataChange;
use crate::revision::are_same_claims;
use windlass_kube_port::observed::Meta;
use windlass_kube_port::{ClusterError, Kind, Part, PatchOp, Target};

impl FleetScope {
    /// Writes these grants, several at the same time. Each is a separate patch, and none depends on another. If one
    /// fails, the others continue: the outcome of every write has to be known before anything else is decided.
    pub(crate) async fn grant_all(&self, grants: Vec<Grant>, by: GrantedBy<'_>) -> Result<(), ClusterError> {
        if let Some(pods) = &self.pods {
            self.plan_pods(pods, grants, by);
            return Ok(());
        }
        let grant = |grant: Grant| async move { self.grant(&grant, by).await };
        for_each_concurrent(grants, OnFailure::DoAll, grant).await.map(drop)
    }

    /// Writes a revision into a node's spec and grants it, in one guarded patch. If the node has changed in the
    /// meantime, nothing is written; the change triggers the next reconcile.
    pub(crate) async fn grant(&self, grant: &Grant, by: GrantedBy<'_>) -> Result<(), ClusterError> {
        let key = windlass_kube_port::Key::new(&self.fleet.meta.namespace, grant.name.as_str());
        let (Some(node), Some(spec)) = (self.view.nodes.get(&key), self.node_spec(&grant.revision)) else {
            return Ok(());
        };
        let mut spec = (*spec).clone();
        spec.granted_hash = grant.hash.to_string();
        spec.grant_id = GrantId::of(by, node.meta.generation).into();
        // The fields that are specific to this node are kept.
        if let Ok(live) = &node.spec {
            spec.suspend = live.suspend;
            spec.halt_height = live.halt_height;
            spec.halt_task_id.clone_from(&live.halt_task_id);
            spec.watch_sidecar = live.watch_sidecar;
            spec.removal_id.clone_from(&live.removal_id);
            spec.move_.clone_from(&live.move_);
            spec.claim_sizes.clone_from(&live.claim_sizes);
            spec.volume_claim_retention = live.volume_claim_retention;
            // A node's claims cannot be changed, not even in how they are written.
            if are_same_claims(&live.volume_claim_templates, &spec.volume_claim_templates) {
                spec.volume_claim_templates.clone_from(&live.volume_claim_templates);
            }
        }
        let mut ops = vec![PatchOp::set("/spec", json!(spec))];
        let restart = match by {
            // An abort withdraws a restart that the node was granted and has not carried out.
            GrantedBy::Abort => Some(grant.restart.as_ref()),
            GrantedBy::Plan(_) => grant.restart.as_ref().map(Some),
        };
        ops.extend(restart.map(|restart| restart_ops(&node.meta, restart)).unwrap_or_default());
        match self.cluster.patch(Target::of(Kind::StatefulNode, &node.meta), Part::Main, ops).await {
            Ok(_) | Err(ClusterError::Conflict { .. } | ClusterError::NotFound { .. }) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

/// The operations that set, or remove, the restart in a node's annotations; none if they already match.
fn restart_ops(meta: &Meta, restart: Option<&RestartTime>) -> Vec<PatchOp> {
    if meta.annotation(ANNOTATION_RESTARTED_AT) == restart.map(RestartTime::as_str) {
        return Vec::new();
    }
    let change = MetadataChange {
        annotations: [(ANNOTATION_RESTARTED_AT.to_owned(), restart.map(ToString::to_string))].into(),
        ..MetadataChange::default()
    };
    metadata_ops(meta, &change)
}
