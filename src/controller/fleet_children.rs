//! A fleet's nodes beside its plan: creating, removing, and what applies to them at once.

use std::collections::BTreeMap;

use futures::stream::{self, TryStreamExt};
use serde_json::json;

use super::fleet_objects::owns_by_reference;
use super::{Context, ReconcileError, events::Tone};
use crate::api::names::{
    ANNOTATION_OWNER_UID, ANNOTATION_RESTARTED_AT, LABEL_DEPLOYMENT, LABEL_MANAGED_BY, LABEL_NODE, LABEL_SET,
    MANAGER, node_name,
};
use crate::api::{StatefulNodeSpec, TemplateMeta};
use crate::cluster::observed::{Meta, ObservedNode};
use crate::cluster::{ClusterError, Key, Kind, Part, PatchOp, Target};
use crate::planner::fleet::create::creation_revision;
use crate::planner::fleet::{ChildFacts, Clause, FleetFacts, Grant, Scope};
use crate::render;
use crate::tasks::FleetScope;
use crate::tasks::fleet_scope::owner_reference;
use crate::tasks::node_scope::{metadata_change, metadata_ops};

/// How many children are created, changed or removed at the same time.
const AT_ONCE: usize = 16;

/// Removes nodes beyond `replicas`, from the highest ordinal.
pub async fn scale_down(cx: &Context, fleet: &FleetScope, facts: &FleetFacts) -> Result<(), ReconcileError> {
    let surplus = facts.children.iter().rev().filter(|c| c.surplus && !c.terminating);
    stream::iter(surplus.map(Ok::<_, ReconcileError>))
        .try_for_each_concurrent(AT_ONCE, |child| async move {
            let Some(node) = fleet.view.nodes.get(&Key::new(&fleet.fleet.meta.namespace, &child.name)) else {
                return Ok(());
            };
            let target = Target::of(Kind::StatefulNode, &node.meta);
            match fleet.cluster.delete(target).await {
                Ok(()) | Err(ClusterError::Conflict { .. }) => {}
                Err(error) => return Err(ReconcileError::Children(error)),
            }
            let note = format!("deleted node {}: replicas is {}", child.name, facts.replicas);
            let meta = &fleet.fleet.meta;
            cx.events.send(Kind::NodeDeployment, meta, Tone::Normal, "NodeDeleted", &node.meta.uid, &note);
            Ok(())
        })
        .await
}

/// Creates the nodes that are wanted and do not exist, each at the revision that the wave allows.
pub async fn create_missing(
    cx: &Context,
    fleet: &FleetScope,
    facts: &FleetFacts,
    scope: Option<&Scope>,
) -> Result<(), ReconcileError> {
    let mut facts = facts.clone();
    let mut manifests = Vec::new();
    for ordinal in facts.missing() {
        let revision = creation_revision(&facts, ordinal, scope).to_owned();
        let restart = facts.restarted_at.clone();
        let Some(rendering) = facts.rendering(&revision, &restart).cloned() else { continue };
        let Some(spec) = fleet.node_spec(&revision) else { continue };
        let name = node_name(&fleet.fleet.meta.name, ordinal);
        manifests.push((name.clone(), manifest(fleet, &name, spec, &rendering.hash, &restart)));
        // Counted before the next one is decided on.
        facts.children.push(ChildFacts {
            name,
            ordinal,
            held: revision,
            granted: rendering.hash,
            restart,
            behind: true,
            ..ChildFacts::default()
        });
    }
    stream::iter(manifests.into_iter().map(Ok::<_, ReconcileError>))
        .try_for_each_concurrent(AT_ONCE, |(name, manifest)| async move {
            let created = match fleet.cluster.create(Kind::StatefulNode, manifest).await {
                Ok(created) => created,
                // The watch will show whose it is.
                Err(ClusterError::AlreadyExists { .. }) => return Ok(()),
                Err(error) => return Err(ReconcileError::Children(error)),
            };
            let uid = created["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
            let meta = &fleet.fleet.meta;
            let note = format!("created node {name}");
            cx.events.send(Kind::NodeDeployment, meta, Tone::Normal, "NodeCreated", &uid, &note);
            Ok(())
        })
        .await
}

fn manifest(
    fleet: &FleetScope,
    name: &str,
    mut spec: StatefulNodeSpec,
    hash: &str,
    restart: &str,
) -> serde_json::Value {
    hash.clone_into(&mut spec.granted_hash);
    let mut own = own_metadata(fleet, name);
    if !restart.is_empty() {
        own.annotations.insert(ANNOTATION_RESTARTED_AT.to_owned(), restart.to_owned());
    }
    let metadata = render::metadata::new_child_metadata(&fleet.spec.template.metadata, &own);
    let owners =
        if owns_by_reference(fleet) { json!([owner_reference(&fleet.fleet.meta)]) } else { json!([]) };
    json!({
        "apiVersion": Kind::StatefulNode.api_version(),
        "kind": Kind::StatefulNode.name(),
        "metadata": {
            "name": name,
            "namespace": fleet.fleet.meta.namespace,
            "labels": metadata.labels,
            "annotations": metadata.annotations,
            "ownerReferences": owners,
        },
        "spec": spec,
    })
}

fn own_metadata(fleet: &FleetScope, node: &str) -> TemplateMeta {
    let meta = &fleet.fleet.meta;
    let set = match fleet.fleet.status.active_set.as_str() {
        "" => crate::api::names::FIRST_SET,
        set => set,
    };
    let text = str::to_owned;
    let mut annotations = BTreeMap::new();
    if !owns_by_reference(fleet) {
        annotations.insert(text(ANNOTATION_OWNER_UID), meta.uid.clone());
    }
    TemplateMeta {
        labels: BTreeMap::from([
            (text(LABEL_DEPLOYMENT), meta.name.clone()),
            (text(LABEL_NODE), text(node)),
            (text(LABEL_SET), text(set)),
            (text(LABEL_MANAGED_BY), text(MANAGER)),
        ]),
        annotations,
    }
}

/// The operations that make a child's owner what the deletion policy says.
#[must_use]
pub fn ownership_ops(fleet: &FleetScope, child: &Meta) -> Vec<PatchOp> {
    let uid = &fleet.fleet.meta.uid;
    let held_at = child.owners.iter().position(|o| o.uid == *uid);
    let mut ops = Vec::new();
    match (owns_by_reference(fleet), held_at) {
        (true, None) if child.owners.is_empty() => {
            ops.push(PatchOp::set("/metadata/ownerReferences", json!([owner_reference(&fleet.fleet.meta)])));
        }
        (true, None) => {
            ops.push(PatchOp::set("/metadata/ownerReferences/-", owner_reference(&fleet.fleet.meta)));
        }
        (false, Some(index)) => ops.push(PatchOp::remove(format!("/metadata/ownerReferences/{index}"))),
        (true, Some(_)) | (false, None) => {}
    }
    let marked = child.annotation(ANNOTATION_OWNER_UID);
    let mut change = render::MetadataChange::default();
    if owns_by_reference(fleet) && marked.is_some() {
        change.annotations.insert(ANNOTATION_OWNER_UID.to_owned(), None);
    } else if !owns_by_reference(fleet) && marked != Some(uid) {
        change.annotations.insert(ANNOTATION_OWNER_UID.to_owned(), Some(uid.clone()));
    }
    ops.extend(metadata_ops(child, &change));
    ops
}

/// Brings what applies at once to every node: metadata, owner, and the fields that are no part of a
/// revision.
pub async fn apply_at_once(fleet: &FleetScope) -> Result<(), ReconcileError> {
    let changes: Vec<(Target, Vec<PatchOp>)> = fleet
        .children()
        .iter()
        .filter(|node| !node.meta.terminating)
        .map(|node| (Target::of(Kind::StatefulNode, &node.meta), at_once_ops(fleet, node)))
        .filter(|(_, ops)| !ops.is_empty())
        .collect();
    stream::iter(changes.into_iter().map(Ok::<_, ReconcileError>))
        .try_for_each_concurrent(AT_ONCE, |(target, ops)| async move {
            match fleet.cluster.patch(target, Part::Main, ops).await {
                Ok(_) | Err(ClusterError::Conflict { .. } | ClusterError::NotFound { .. }) => Ok(()),
                Err(error) => Err(ReconcileError::Children(error)),
            }
        })
        .await
}

fn at_once_ops(fleet: &FleetScope, node: &ObservedNode) -> Vec<PatchOp> {
    let own = own_metadata(fleet, &node.meta.name);
    // The owner annotation is set with the owner, below.
    let own = TemplateMeta { labels: own.labels, ..TemplateMeta::default() };
    let wanted = &fleet.spec.template.metadata;
    let mut ops = metadata_ops(&node.meta, &metadata_change(&node.meta, wanted, &own));
    ops.extend(ownership_ops(fleet, &node.meta));
    let Ok(live) = &node.spec else { return ops };
    ops.extend(spec_ops(live, &fleet.spec.template.spec));
    ops
}

/// The operations that bring the fields that apply at once from one spec to another.
fn spec_ops(live: &StatefulNodeSpec, wanted: &StatefulNodeSpec) -> Vec<PatchOp> {
    let StatefulNodeSpec {
        // Part of a revision, or of a grant, or the node's own.
        image: _,
        main_container: _,
        pod_template: _,
        volume_claim_templates: _,
        suspend: _,
        granted_hash: _,
        grant_id: _,
        // At once.
        volume_claim_retention,
        ports,
        service_annotations,
        sidecar,
        progress_deadline_seconds,
    } = wanted;
    let mut ops = Vec::new();
    if live.volume_claim_retention != *volume_claim_retention {
        ops.push(PatchOp::set("/spec/volumeClaimRetention", json!(volume_claim_retention)));
    }
    if live.ports != *ports {
        ops.push(PatchOp::set("/spec/ports", json!(ports)));
    }
    if live.service_annotations != *service_annotations {
        ops.push(PatchOp::set("/spec/serviceAnnotations", json!(service_annotations)));
    }
    if live.progress_deadline_seconds != *progress_deadline_seconds {
        ops.push(PatchOp::set("/spec/progressDeadlineSeconds", json!(progress_deadline_seconds)));
    }
    if let (Some(live), Some(wanted)) = (&live.sidecar, sidecar) {
        if live.url != wanted.url {
            ops.push(PatchOp::set("/spec/sidecar/url", json!(wanted.url)));
        }
        if live.token_secret != wanted.token_secret {
            ops.push(PatchOp::set("/spec/sidecar/tokenSecret", json!(wanted.token_secret)));
        }
    }
    ops
}

/// After an abort nodes stay at what they run: those that were granted something else, by the plan that was aborted or
/// by one that it superseded, and still run what they ran, are granted that, once.
pub async fn pin(fleet: &FleetScope, facts: &FleetFacts) -> Result<(), ReconcileError> {
    if facts.rejected.as_ref().is_none_or(|r| r.outcome != "Aborted") {
        return Ok(());
    }
    let runs_other =
        |c: &&ChildFacts| !c.is_spent() && !c.running.is_empty() && c.running != c.granted && !c.terminating;
    for child in facts.wanted().filter(runs_other) {
        let runs = |(key, rendering): &(&(String, String), &crate::planner::fleet::Rendering)| {
            key.1 == child.restart && rendering.hash == child.running
        };
        let Some(((revision, _), rendering)) = facts.renderings.iter().find(runs) else { continue };
        let grant = Grant {
            name: child.name.clone(),
            revision: revision.clone(),
            hash: rendering.hash.clone(),
            clause: Clause::RunsTarget,
        };
        fleet.grant(&grant, "abort").await.map_err(ReconcileError::Children)?;
    }
    Ok(())
}
