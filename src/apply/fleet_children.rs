//! Writes to a fleet's nodes that need no plan: create, delete, and fields that apply at once.

use std::sync::Arc;
use std::time::Duration;

use chrono::TimeDelta;
use serde_json::{Value, json};

use super::ReconcileError;
use super::many::{OnFailure, for_each_concurrent};
use super::patches::{metadata_change, metadata_ops};
use super::reverted;
use super::unwatched::{ask_again, read_again};
use crate::api::names::{ANNOTATION_OWNER_UID, place_of};
use crate::api::{
    ClaimRetention, Ending, GrantedBy, NodeName, SetName, Sidecar, StatefulNodeSpec, TemplateMeta,
};
use crate::cache::computed::Settled;
use crate::observe::FleetScope;
use crate::observe::fleet_scope::owner_reference;
use crate::planner::fleet::create::creation_revision;
use crate::planner::fleet::sets::stage::took_over;
use crate::planner::fleet::{FleetFacts, RolloutTarget, leave, pins};
use crate::render::MetadataChange;
use windlass_kube_port::observed::{Meta, ObservedNode, ObservedStatefulSet};
use windlass_kube_port::{ClusterError, Kind, Part, PatchOp, Target};

/// How long the removal of a set may take before the status says what it waits for.
const GOING: TimeDelta = TimeDelta::seconds(30);

/// The result of removing nodes and sets.
#[derive(Debug, Default)]
#[must_use]
pub struct Removed {
    /// What keeps a node that leaves, or a set whose removal takes too long, in a sentence.
    pub waits_for: Option<String>,
    /// True if a node that leaves depends on something that differs from what was assumed, or waits for something that
    /// no watch shows.
    pub needs_requeue: bool,
}

impl Removed {
    /// Adds what keeps a node that leaves, if anything does. No watch shows when that ends.
    pub(super) fn is_kept_by(&mut self, sentence: Option<String>) {
        self.needs_requeue |= sentence.is_some();
        self.waits_for = self.waits_for.take().or(sentence);
    }
}

/// Removes nodes beyond `replicas`, from the highest ordinal, in every set, and sets whose time to be removed has come.
/// `active`: true if a plan is active.
pub async fn remove(fleet: &FleetScope, facts: &FleetFacts, active: bool) -> Result<Removed, ReconcileError> {
    fleet.keep(leave::kept(facts, fleet.now)).await.map_err(ReconcileError::Children)?;
    // Between the switch and the hooks that complete the promotion, the wave is about the nodes that now take traffic.
    let took_over = took_over(&fleet.fleet.status).map(|set| facts.activated(&set));
    let facts = took_over.as_ref().unwrap_or(facts);
    let why = format!("replicas is {}", facts.spec.replicas);
    let may_go = |name: &NodeName| !fleet.keeps_claims(name.as_str());
    let others =
        facts.sets.values().flat_map(|set| &set.children).filter(|c| c.surplus && !facts.spec.paused);
    // Other sets do not serve, so no wave limits them.
    let (mut leaves, mut others) = (leave::in_waves(facts), leave::together(others));
    for names in [&mut leaves.ask, &mut leaves.delete, &mut others.ask, &mut others.delete] {
        names.retain(may_go);
    }
    let kept = fleet.let_go(others, &why).await.map_err(ReconcileError::Children)?;
    let mut removed =
        fleet.remove_if_pods_confirmed(facts, leaves, &why).await.map_err(ReconcileError::Children)?;
    removed.is_kept_by(kept);
    for (set, known) in &facts.sets {
        let Some(retiring) = known.retiring.as_ref().filter(|r| facts.removal_of(r) <= fleet.now) else {
            continue;
        };
        // A set that carries traffic, or may carry it, is not removed; the status reports that it waits.
        if facts.kept(retiring).is_some() {
            continue;
        }
        // The nodes of a failed plan stay until a person requests something.
        let failed = facts.record.rejected.as_ref().is_some_and(|r| r.ending() == Some(Ending::Failed));
        if failed && !active && retiring.unpromoted {
            continue;
        }
        // While the fleet is paused its rollout does nothing. Entrants that were given up are no longer part of a
        // rollout.
        if facts.spec.paused && (active || !retiring.unpromoted) {
            continue;
        }
        let why = match (retiring.unpromoted, retiring.served) {
            (false, _) => "another set has taken over",
            (true, true) => "the promotion of its set was canceled",
            (true, false) => "its set was never promoted",
        };
        let kept = fleet.remove_set(set, why).await.map_err(ReconcileError::Children)?;
        let kept = kept.filter(|_| facts.removal_of(retiring) + GOING <= fleet.now);
        removed.waits_for = removed.waits_for.or(kept);
    }
    Ok(removed)
}

/// Reads the cached objects that no watch shows, because a person or a policy gave their label another value or removed
/// it: the fleet's Service, and StatefulSets of sets that are being removed that outlive their nodes. Those that are
/// gone
/// are removed from the cache. Returns when to read those that are left again.
pub async fn forget_unlabelled(
    fleet: &FleetScope,
    facts: &FleetFacts,
) -> Result<Option<Duration>, ReconcileError> {
    let meta = &fleet.fleet.meta;
    let service = fleet.view.services.get(&meta.key());
    let service = service.filter(|service| fleet.owns(&service.meta) && !service.meta.is_managed());
    let mut unlabelled: Vec<(Kind, Meta)> =
        service.iter().map(|service| (Kind::Service, service.meta.clone())).collect();
    if !facts.sets.is_empty() || facts.active_set_is_removed() {
        let outlives = |set: &&Arc<ObservedStatefulSet>| {
            !set.meta.is_managed() && fleet.view.nodes.get(&set.meta.key()).is_none()
        };
        let sets = fleet.view.stateful_sets.group(&meta.namespace, &meta.name);
        unlabelled.extend(sets.iter().filter(outlives).map(|set| (Kind::StatefulSet, set.meta.clone())));
    }
    let mut again: Option<Duration> = None;
    for (kind, known) in unlabelled {
        let read = read_again(fleet.cluster.as_ref(), &fleet.view, kind, &known).await;
        if read.map_err(ReconcileError::Children)? {
            let goes = kind == Kind::StatefulSet || is_service_terminating(fleet);
            let wait = ask_again(goes);
            again = again.into_iter().chain([wait]).min();
        }
    }
    Ok(again)
}

fn is_service_terminating(fleet: &FleetScope) -> bool {
    let service = fleet.view.services.get(&fleet.fleet.meta.key());
    service.is_some_and(|service| service.meta.terminating)
}

/// Creates the missing nodes of the active set, each at the revision that the wave allows, and when it allows it.
pub async fn create_missing(
    fleet: &FleetScope,
    facts: &FleetFacts,
    rollout_target: Option<&RolloutTarget>,
) -> Result<(), ReconcileError> {
    if facts.active_set_is_removed() {
        return Ok(());
    }
    let revision_for =
        |facts: &FleetFacts, ordinal: i32| creation_revision(facts, ordinal, rollout_target).cloned();
    fleet.create_nodes(facts, revision_for).await.map_err(ReconcileError::Children)
}

/// The operations that bring a child's owner reference to what the deletion policy requires.
#[must_use]
pub fn ownership_ops(fleet: &FleetScope, child: &Meta) -> Vec<PatchOp> {
    let uid = &fleet.fleet.meta.uid;
    let held_at = child.owners.iter().position(|o| o.uid == *uid);
    let mut ops = Vec::new();
    match (fleet.owns_by_reference(), held_at) {
        (true, None) if child.owners.is_empty() => {
            ops.push(PatchOp::set("/metadata/ownerReferences", json!([owner_reference(&fleet.fleet.meta)])));
        }
        (true, None) => {
            ops.push(PatchOp::set("/metadata/ownerReferences/-", owner_reference(&fleet.fleet.meta)));
        }
        (false, Some(index)) => ops.push(PatchOp::remove(format!("/metadata/ownerReferences/{index}"))),
        (true, Some(_)) | (false, None) => {}
    }
    ops
}

/// The change of a child's owner annotation that belongs to [`ownership_ops`].
#[must_use]
pub fn ownership_mark(fleet: &FleetScope, child: &Meta) -> MetadataChange {
    let (uid, marked) = (&fleet.fleet.meta.uid, child.annotation(ANNOTATION_OWNER_UID));
    let mut change = MetadataChange::default();
    if fleet.owns_by_reference() && marked.is_some() {
        change.annotations.insert(ANNOTATION_OWNER_UID.to_owned(), None);
    } else if !fleet.owns_by_reference() && marked != Some(uid) {
        change.annotations.insert(ANNOTATION_OWNER_UID.to_owned(), Some(uid.clone()));
    }
    change
}

/// Applies to every node what needs no rollout: metadata, owner, and the fields that are not part of a revision.
pub async fn apply_at_once(fleet: &FleetScope) -> Result<(), ReconcileError> {
    // Once for all nodes: the cost of the facts grows with the number of nodes.
    let facts = fleet.facts();
    let (serving, asks_roles) = (facts.set.clone(), fleet.asks_roles(&facts));
    let nodes = fleet.children();
    // Each node is checked once for each state of it: while a thousand nodes roll, only a handful change from one
    // reconcile to the next.
    let uid = &fleet.fleet.meta.uid;
    let beside = format!("{serving} {asks_roles}");
    let settled = fleet.caches.computed.settled.get(uid).filter(|known| known.holds(&fleet.fleet, &beside));
    let is_settled = |node: &Arc<ObservedNode>| settled.as_ref().is_some_and(|known| known.has(node));
    let (kept, others): (Vec<Arc<ObservedNode>>, Vec<Arc<ObservedNode>>) =
        nodes.into_iter().filter(|node| !node.meta.terminating).partition(is_settled);
    let ops_of = |node: &ObservedNode| at_once_ops(fleet, node, &serving, asks_roles);
    let due =
        |node: &ObservedNode| reverted::due(&fleet.caches.probes, &node.meta.uid, &node.meta, ops_of(node));
    let changes: Vec<(Target, Vec<PatchOp>)> = others
        .iter()
        .map(|node| (Target::of(Kind::StatefulNode, &node.meta), due(node)))
        .filter(|(_, ops)| !ops.is_empty())
        .collect();
    if changes.is_empty() {
        // A node that admission changes is checked again, since it is written again once a minute.
        let is_done = |node: &Arc<ObservedNode>| {
            !reverted::is_pending(&fleet.caches.probes, &node.meta.uid, &node.meta)
        };
        let nodes = kept.into_iter().chain(others.into_iter().filter(is_done)).collect();
        let settled = Settled::new(fleet.fleet.clone(), beside, nodes);
        fleet.caches.computed.settled.put(uid, Arc::new(settled));
        return Ok(());
    }
    let change = |(target, ops): (Target, Vec<PatchOp>)| async move {
        let (port, id) = ((fleet.cluster.as_ref(), &fleet.caches.probes), target.uid.clone());
        ignore_not_found(reverted::write(port, &id, target, ops, ops_of).await)
    };
    for_each_concurrent(changes, OnFailure::StopUnlessConflict, change)
        .await
        .map(drop)
        .map_err(ReconcileError::Children)
}

/// A write to a child that no longer exists is no error.
fn ignore_not_found(written: Result<Value, ClusterError>) -> Result<(), ClusterError> {
    match written {
        Ok(_) | Err(ClusterError::NotFound { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Windlass's own labels of a node. The owner annotation is changed together with the owner reference.
fn own_labels(fleet: &FleetScope, node: &str) -> TemplateMeta {
    TemplateMeta { labels: fleet.own_metadata(node).labels, ..TemplateMeta::default() }
}

/// Carries out `Retain` on the children of a fleet that is being deleted and that somebody's finalizer keeps: the
/// garbage collector comes to them only once the fleet is gone. Windlass does nothing else to such a fleet, and
/// deletes nothing that is retained.
pub async fn retain_of_going(fleet: &FleetScope) -> Result<(), ReconcileError> {
    let nodes = fleet.children();
    let nodes = nodes.iter().filter(|node| !node.meta.terminating);
    let mut changes: Vec<(Target, Vec<PatchOp>)> =
        nodes.map(|node| (Target::of(Kind::StatefulNode, &node.meta), retain_ops(fleet, node))).collect();
    let service = fleet.view.services.get(&fleet.fleet.meta.key());
    if let Some(service) = service.filter(|s| fleet.owns(&s.meta) && !s.meta.terminating)
        && !fleet.owns_by_reference()
    {
        changes.push((Target::of(Kind::Service, &service.meta), retained_ops(fleet, &service.meta)));
    }
    changes.retain(|(_, ops)| !ops.is_empty());
    let change =
        |(target, ops)| async move { ignore_not_found(fleet.cluster.patch(target, Part::Main, ops).await) };
    for_each_concurrent(changes, OnFailure::StopUnlessConflict, change)
        .await
        .map(drop)
        .map_err(ReconcileError::Children)
}

fn retained_ops(fleet: &FleetScope, child: &Meta) -> Vec<PatchOp> {
    let mut ops = metadata_ops(child, &ownership_mark(fleet, child));
    ops.extend(ownership_ops(fleet, child));
    ops
}

fn retain_ops(fleet: &FleetScope, node: &ObservedNode) -> Vec<PatchOp> {
    let mut ops = Vec::new();
    if !fleet.owns_by_reference() {
        ops.extend(retained_ops(fleet, &node.meta));
    }
    let stay = fleet.claim_retention() == ClaimRetention::Retain;
    if stay && node.spec.as_ref().is_ok_and(|live| live.volume_claim_retention != ClaimRetention::Retain) {
        ops.push(PatchOp::set("/spec/volumeClaimRetention", json!(ClaimRetention::Retain)));
    }
    ops
}

/// The operations that apply to a node what needs no rollout.
fn at_once_ops(fleet: &FleetScope, node: &ObservedNode, serving: &SetName, asks_roles: bool) -> Vec<PatchOp> {
    let (wanted, own) = (&fleet.spec.template.metadata, own_labels(fleet, &node.meta.name));
    let change = metadata_change(&node.meta, wanted, &own).and(ownership_mark(fleet, &node.meta));
    let mut ops = metadata_ops(&node.meta, &change);
    ops.extend(ownership_ops(fleet, &node.meta));
    let Ok(live) = &node.spec else { return ops };
    let wanted = &fleet.spec.template.spec;
    let kept = fleet.keeps_claims(&node.meta.name);
    let retention = if kept { ClaimRetention::Retain } else { fleet.claim_retention() };
    let name = &node.meta.name;
    let serves = || place_of(&fleet.fleet.meta.name, name).is_some_and(|(set, _)| set == *serving);
    let is_asked = fleet.is_awaited(name) || fleet.is_halting(name) || (asks_roles && serves());
    let watched = live.sidecar.is_some() && is_asked;
    ops.extend(spec_ops(live, wanted));
    if live.volume_claim_retention != retention {
        ops.push(PatchOp::set("/spec/volumeClaimRetention", json!(retention)));
    }
    if live.watch_sidecar != watched {
        ops.push(PatchOp::set("/spec/watchSidecar", json!(watched)));
    }
    ops.extend(unhalt_ops(fleet, node, live, serving));
    ops.extend(growth_ops(fleet, node, live));
    ops
}

/// The operations that let the claims of a node grow. A rollout shows how far they are, so they wait for one.
fn growth_ops(fleet: &FleetScope, node: &ObservedNode, live: &StatefulNodeSpec) -> Option<PatchOp> {
    let is_unchecked = fleet.promoting().is_some();
    if fleet.spec.paused
        || fleet.fleet.status.rollout.is_none()
        || is_unchecked
        || !live.removal_id.is_empty()
    {
        return None;
    }
    let sizes = fleet.claim_sizes(node);
    (sizes != live.claim_sizes).then(|| PatchOp::set("/spec/claimSizes", json!(sizes)))
}

/// The operations that withdraw the request to halt from a node that serves or is to serve.
fn unhalt_ops(
    fleet: &FleetScope,
    node: &ObservedNode,
    live: &StatefulNodeSpec,
    serving: &SetName,
) -> Vec<PatchOp> {
    let name = &node.meta.name;
    let is_of_serving = || place_of(&fleet.fleet.meta.name, name).is_some_and(|(set, _)| set == *serving);
    let serves = fleet.is_awaited(name) || is_of_serving();
    if live.halt_height == 0 || !serves || fleet.is_halting(name) {
        return Vec::new();
    }
    vec![PatchOp::set("/spec/haltHeight", json!(0)), PatchOp::set("/spec/haltTaskID", json!(""))]
}

/// The operations that bring the fields that apply at once from the live spec to the desired one.
fn spec_ops(live: &StatefulNodeSpec, wanted: &StatefulNodeSpec) -> Vec<PatchOp> {
    let StatefulNodeSpec {
        // Part of a revision or of a grant, or specific to the node.
        image: _,
        main_container: _,
        pod_template: _,
        volume_claim_templates: _,
        suspend: _,
        granted_hash: _,
        grant_id: _,
        halt_height: _,
        halt_task_id: _,
        removal_id: _,
        move_: _,
        // These depend on the node or its set: see `at_once_ops`.
        volume_claim_retention: _,
        watch_sidecar: _,
        claim_sizes: _,
        // Applied at once.
        ports,
        service_annotations,
        sidecar,
        progress_deadline_seconds,
    } = wanted;
    let mut ops = Vec::new();
    if live.ports != *ports {
        ops.push(set_or_remove("/spec/ports", ports.is_empty(), || json!(ports)));
    }
    if live.service_annotations != *service_annotations {
        let value = || json!(service_annotations);
        ops.push(set_or_remove("/spec/serviceAnnotations", service_annotations.is_empty(), value));
    }
    if live.progress_deadline_seconds != *progress_deadline_seconds {
        ops.push(PatchOp::set("/spec/progressDeadlineSeconds", json!(progress_deadline_seconds)));
    }
    ops.extend(sidecar_ops(live.sidecar.as_ref(), sidecar.as_ref()));
    ops
}

/// Removes the field if the wanted value is empty, otherwise sets it.
fn set_or_remove(path: &str, is_nothing: bool, value: impl FnOnce() -> serde_json::Value) -> PatchOp {
    if is_nothing { PatchOp::remove(path) } else { PatchOp::set(path, value()) }
}

/// The operations for a sidecar. How it is reached applies at once, and so does everything about a sidecar that is not
/// a container of the pod.
fn sidecar_ops(live: Option<&Sidecar>, wanted: Option<&Sidecar>) -> Vec<PatchOp> {
    let mut ops = Vec::new();
    match (live, wanted) {
        (live, Some(wanted)) if live.is_none_or(|live| !live.is_injected()) && !wanted.is_injected() => {
            if live != Some(wanted) {
                ops.push(PatchOp::set("/spec/sidecar", json!(wanted)));
            }
        }
        (Some(live), Some(wanted)) => {
            // Until its sidecar is injected, a node's sidecar is queried at the old URL, in the old way.
            if live.is_injected() || !wanted.url.is_empty() {
                if live.url != wanted.url {
                    ops.push(PatchOp::set("/spec/sidecar/url", json!(wanted.url)));
                }
                if live.tls != wanted.tls {
                    let value = || json!(wanted.tls);
                    ops.push(set_or_remove("/spec/sidecar/tls", wanted.tls.is_none(), value));
                }
                if live.auth != wanted.auth {
                    let value = || json!(wanted.auth);
                    ops.push(set_or_remove("/spec/sidecar/auth", wanted.auth.is_none(), value));
                }
                if live.token_secret != wanted.token_secret {
                    ops.push(PatchOp::set("/spec/sidecar/tokenSecret", json!(wanted.token_secret)));
                }
            }
        }
        (Some(live), None) if !live.is_injected() => ops.push(PatchOp::remove("/spec/sidecar")),
        (_, None) | (None, Some(_)) => {}
    }
    ops
}

/// After an abort, nodes stay at what they run. A node that was granted something else, by the aborted plan or by one
/// that it superseded, and that still runs what it ran before, is granted that, once.
pub async fn pin(fleet: &FleetScope, facts: &FleetFacts) -> Result<(), ReconcileError> {
    for grant in pins(facts) {
        fleet.grant(&grant, GrantedBy::Abort).await.map_err(ReconcileError::Children)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{Auth, Tls};

    fn sidecar(image: &str, url: &str) -> Sidecar {
        Sidecar { image: image.to_owned(), port: 7777, url: url.to_owned(), ..Sidecar::default() }
    }

    #[test]
    fn sidecar_address_changes_apply_at_once() {
        let (injected, reached, by_url, other) = (
            sidecar("w:1", ""),
            sidecar("w:2", "http://a"),
            sidecar("", "http://a"),
            sidecar("", "http://b"),
        );
        let url = |url: &str| PatchOp::set("/spec/sidecar/url", json!(url));
        let table = [
            (None, None, vec![]),
            (None, Some(&injected), vec![]),
            (None, Some(&by_url), vec![PatchOp::set("/spec/sidecar", json!(by_url))]),
            (Some(&by_url), Some(&by_url), vec![]),
            (Some(&by_url), Some(&other), vec![PatchOp::set("/spec/sidecar", json!(other))]),
            (Some(&by_url), None, vec![PatchOp::remove("/spec/sidecar")]),
            (Some(&by_url), Some(&injected), vec![]),
            (Some(&other), Some(&reached), vec![url("http://a")]),
            (Some(&injected), Some(&reached), vec![url("http://a")]),
            (Some(&reached), Some(&injected), vec![url("")]),
            (Some(&injected), Some(&by_url), vec![url("http://a")]),
            (Some(&injected), None, vec![]),
        ];
        for (live, wanted, ops) in table {
            assert_eq!(sidecar_ops(live, wanted), ops, "{live:?} to {wanted:?}");
        }
    }

    #[test]
    fn tls_and_credentials_of_a_sidecar_apply_at_once() {
        let tls = Tls { ca_secret: "ca".to_owned(), ..Tls::default() };
        let auth = Auth { bearer_secret: "token".to_owned(), ..Auth::default() };
        let plain = sidecar("w:1", "http://a");
        let over_tls = Sidecar { tls: Some(tls), auth: Some(auth), ..sidecar("w:2", "https://a") };
        let url = |url: &str| PatchOp::set("/spec/sidecar/url", json!(url));
        let to_tls = vec![
            url("https://a"),
            PatchOp::set("/spec/sidecar/tls", json!({"caSecret": "ca"})),
            PatchOp::set("/spec/sidecar/auth", json!({"bearerSecret": "token"})),
        ];
        assert_eq!(sidecar_ops(Some(&plain), Some(&over_tls)), to_tls);
        let back = vec![
            url("http://a"),
            PatchOp::remove("/spec/sidecar/tls"),
            PatchOp::remove("/spec/sidecar/auth"),
        ];
        assert_eq!(sidecar_ops(Some(&over_tls), Some(&plain)), back);
        // The sidecar at the old URL needs its settings until the new one is injected.
        let by_url = Sidecar { image: String::new(), ..over_tls };
        assert_eq!(sidecar_ops(Some(&by_url), Some(&sidecar("w:1", ""))), vec![]);
    }
}
