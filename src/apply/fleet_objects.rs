//! A fleet's own objects, its revisions and its Service, and dry runs of its template.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::dry_runs::{ask, dry_run_stateful_set};
use super::fleet_children::{ownership_mark, ownership_ops};
use super::patches::{metadata_change, metadata_ops, service_ops};
use super::reverted::{self, service_of};
use super::{Admission, ReconcileError, same_content};
use crate::api::ids::field;
use crate::api::names::{ANNOTATION_BUILD_ID, ANNOTATION_SWITCHED_TO};
use crate::api::{BuildId, RevisionName, RolloutHash, SetName, Stage, TemplateMeta};
use crate::cache::ProbeCache;
use crate::clock::monotonic;
use crate::observe::fleet_scope::owner_reference;
use crate::observe::{FleetScope, is_switched};
use crate::planner::fleet::sets::stage::has_switched;
use crate::render::{self, FleetIdentity};
use crate::revision::{self, RevisionData, StoredRevision, revision_name};
use windlass_kube_port::observed::{Meta, Observed, ObservedService};
use windlass_kube_port::{ClusterError, Key, Kind, Target};

/// How long a name that belongs to something else counts as taken: after that somebody may have freed it.
const ASK_FOR_NAME: Duration = Duration::from_secs(25);

/// The name of the revision of the desired state, or why the rollout cannot start. A new revision is stored only after
/// the API server has accepted, in a dry run, what it renders to, and stores something else for the spec than for the
/// recorded revisions: a spec that is only written otherwise is not another revision.
pub async fn ensure_revision(fleet: &mut FleetScope) -> Result<Admission<RevisionName>, ReconcileError> {
    let (data, same) = same_content::of_spec(fleet).await?;
    fleet.record_same_content(same);
    let meta = &fleet.fleet.meta;
    let requested = fleet.requested();
    let name = revision_name(&meta.name, &meta.uid, &requested);
    if let Some(whose) = known_revision(fleet, &name) {
        return Ok(whose.map(|()| name));
    }
    if let Admission::Refused(sentence) = would_be_taken(fleet).await? {
        return Ok(Admission::Refused(sentence));
    }
    store(fleet, name, next_number(fleet), &data).await
}

async fn store(
    fleet: &FleetScope,
    name: RevisionName,
    number: i64,
    data: &RevisionData,
) -> Result<Admission<RevisionName>, ReconcileError> {
    let meta = &fleet.fleet.meta;
    if let Some(whose) = known_revision(fleet, &name) {
        return Ok(whose.map(|()| name));
    }
    // The same content under another build ID is another revision. A rollback to it has to know the build ID.
    let gives_the_name = |id: &Option<BuildId>| {
        revision_name(&meta.name, &meta.uid, &data.rollout_hash(field(id.as_ref()))) == name
    };
    let build_id = fleet.build_ids().into_iter().find(gives_the_name).flatten();
    let annotations: BTreeMap<&str, BuildId> =
        build_id.map(|id| (ANNOTATION_BUILD_ID, id)).into_iter().collect();
    let manifest = json!({
        "apiVersion": Kind::ControllerRevision.api_version(),
        "kind": Kind::ControllerRevision.name(),
        "metadata": {
            "name": name,
            "namespace": meta.namespace,
            "labels": identity(fleet).labels(),
            "annotations": annotations,
            "ownerReferences": [owner_reference(meta)],
        },
        "revision": number,
        "data": data.to_value(),
    });
    match fleet.cluster.create(Kind::ControllerRevision, manifest).await {
        Ok(_) => Ok(Admission::Admitted(name)),
        Err(ClusterError::AlreadyExists { .. }) => {
            let stored = fleet.cluster.get(Kind::ControllerRevision, &meta.namespace, name.as_str()).await;
            let Some(stored) = stored.map_err(ReconcileError::Revision)? else {
                // It was deleted in between; the next attempt recreates it.
                return Err(ReconcileError::Revision(ClusterError::Conflict {
                    object: name.to_string(),
                    message: "it was deleted in the meantime".to_owned(),
                }));
            };
            if Meta::read(&stored).is_controlled_by(&meta.uid) {
                fleet.view.observe(Kind::ControllerRevision, &stored);
                return Ok(Admission::Admitted(name));
            }
            let sentence = foreign_revision(name.as_str());
            fleet
                .caches
                .probes
                .foreign
                .put(&in_fleet(&meta.uid, name.as_str()), (monotonic(), sentence.clone()));
            Ok(Admission::Refused(sentence))
        }
        Err(ClusterError::Refused { message, .. }) => {
            Ok(Admission::Refused(format!("template: the API server rejects it: {message}")))
        }
        Err(error) => Err(ReconcileError::Revision(error)),
    }
}

/// The known state of a revision with this name, without a request: it is stored, or, in a sentence, it is not this
/// fleet's. The content is not returned, so the content of another fleet's revision cannot be used.
fn known_revision(fleet: &FleetScope, name: &RevisionName) -> Option<Admission> {
    let meta = &fleet.fleet.meta;
    if let Some(known) = fleet.view.revisions.get(&Key::new(&meta.namespace, name.as_str())) {
        let is_ours = known.meta.is_controlled_by(&meta.uid);
        return Some(if is_ours {
            Admission::Admitted(())
        } else {
            Admission::Refused(foreign_revision(name.as_str()))
        });
    }
    known_foreign(&fleet.caches.probes, &in_fleet(&meta.uid, name.as_str())).map(Admission::Refused)
}

fn in_fleet(uid: &str, name: &str) -> String {
    format!("{uid}/{name}")
}

fn foreign_revision(name: &str) -> String {
    format!(
        "template: ControllerRevision {name} exists and has no ownerReference to this fleet; Windlass does not touch \
         it: delete it, and Windlass recreates it"
    )
}

/// Recreates deleted revisions that nodes still have to run: the one that last completed, and the target of the
/// rollout. The content comes from a node or the template, if one still holds it. Returns a sentence if a revision
/// cannot be stored.
pub async fn restore_revisions(fleet: &FleetScope) -> Result<Option<String>, ReconcileError> {
    let status = &fleet.fleet.status;
    let known = fleet.revisions();
    let of_rollout =
        status.rollout.as_ref().map(|r| (RolloutHash::recorded(r.target_hash.as_str()), &r.target_revision));
    let current = (status.last_completed(), &status.current_revision);
    let mut refused = None;
    for (hash, name) in [current].into_iter().chain(of_rollout) {
        let (Some(hash), Some(name)) = (hash, RevisionName::recorded(name.as_str())) else { continue };
        if known.contains_key(&hash) {
            continue;
        }
        let Some(data) = fleet.held_content(&hash) else { continue };
        let number = number_again(fleet, &hash);
        if let Admission::Refused(sentence) = store(fleet, name, number, &data).await? {
            refused.get_or_insert(sentence);
        }
    }
    Ok(refused)
}

fn next_number(fleet: &FleetScope) -> i64 {
    own_revisions(fleet).iter().map(|r| r.revision).max().unwrap_or_default() + 1
}

/// The number of a recreated revision. The desired revision gets the highest number. Any other revision came before the
/// desired one and gets a free number below it. If there is none, it gets the highest: the desired revision is then an
/// older one that is desired again.
fn number_again(fleet: &FleetScope, hash: &RolloutHash) -> i64 {
    let (kept, wanted) = (own_revisions(fleet), fleet.requested());
    let meta = &fleet.fleet.meta;
    let wanted = Some(wanted).filter(|wanted| wanted != hash);
    let wanted = wanted.map(|wanted| revision_name(&meta.name, &meta.uid, &wanted));
    let wanted = kept.iter().find(|r| wanted.as_ref() == Some(&r.name));
    let is_free = |number: &i64| kept.iter().all(|r| r.revision != *number);
    // At most as many numbers as there are revisions have to be skipped.
    let before = |wanted: i64| (1..wanted).rev().take(kept.len() + 1).find(is_free);
    wanted.and_then(|wanted| before(wanted.revision)).unwrap_or_else(|| next_number(fleet))
}

async fn would_be_taken(fleet: &FleetScope) -> Result<Admission, ReconcileError> {
    match dry_run_stateful_set(fleet, &fleet.spec.template.spec) {
        Ok((manifest, content)) => ask(&fleet.caches.probes, fleet.cluster.as_ref(), content, manifest).await,
        Err(sentence) => Ok(Admission::Refused(sentence)),
    }
}

fn own_revisions(fleet: &FleetScope) -> Vec<StoredRevision> {
    let meta = &fleet.fleet.meta;
    let kept = fleet.view.revisions.group(&meta.namespace, &meta.uid);
    let kept = kept.iter().filter(|r| r.meta.is_controlled_by(&meta.uid));
    kept.filter_map(|r| {
        let name = RevisionName::recorded(r.meta.name.as_str())?;
        Some(StoredRevision { name, revision: r.revision })
    })
    .collect()
}

/// Deletes revisions that nothing refers to, beyond the limit.
pub async fn prune_revisions(fleet: &FleetScope) -> Result<(), ReconcileError> {
    let meta = &fleet.fleet.meta;
    let stored = own_revisions(fleet);
    if stored.len() <= usize::try_from(fleet.spec.revision_history_limit).unwrap_or(0) {
        return Ok(());
    }
    let status = &fleet.fleet.status;
    let facts = fleet.facts();
    let mut referenced: BTreeSet<RevisionName> = [&status.current_revision, &status.update_revision]
        .into_iter()
        .filter_map(|name| RevisionName::recorded(name.as_str()))
        .collect();
    referenced.extend(
        status.rollout.iter().filter_map(|rollout| RevisionName::recorded(rollout.target_revision.as_str())),
    );
    let others = facts.sets.values().flat_map(|set| &set.children);
    let hashes = facts.children.iter().chain(others).filter_map(|c| c.spec_hash.as_ref());
    let hashes = hashes.chain([&facts.requested]).chain(&facts.record.last_completed);
    referenced.extend(hashes.map(|hash| revision_name(&meta.name, &meta.uid, hash)));
    for name in revision::to_prune(&stored, &referenced, fleet.spec.revision_history_limit) {
        let Some(revision) = fleet.view.revisions.get(&Key::new(&meta.namespace, name.as_str())) else {
            continue;
        };
        let target = Target::of(Kind::ControllerRevision, &revision.meta);
        fleet.cluster.delete(target).await.map_err(ReconcileError::Revision)?;
    }
    Ok(())
}

/// The fleet's identity for rendering.
#[must_use]
pub fn identity(fleet: &FleetScope) -> FleetIdentity {
    let meta = &fleet.fleet.meta;
    FleetIdentity {
        name: meta.name.clone(),
        namespace: meta.namespace.clone(),
        uid: meta.uid.clone(),
        deletion_policy: fleet.deletion_policy(),
    }
}

/// Brings the fleet's Service to what the spec says. Returns a sentence if the Service's name belongs to something
/// else, or if the API server refuses the Service.
pub async fn apply_service(fleet: &FleetScope) -> Result<Option<String>, ReconcileError> {
    let meta = &fleet.fleet.meta;
    let key = meta.key();
    let known = fleet.view.services.get(&key);
    let Some(wanted) = &fleet.spec.service else {
        // `service` was removed from the spec: our own Service is deleted, anything else stays.
        if let Some(service) = known.filter(|s| fleet.owns(&s.meta) && !s.meta.terminating) {
            let target = Target::of(Kind::Service, &service.meta);
            fleet.cluster.delete(target).await.map_err(ReconcileError::Children)?;
        }
        return Ok(None);
    };
    let moved_to = moved_to(fleet, known.as_deref());
    let set = moved_to.clone().unwrap_or_else(|| fleet.facts().set.clone());
    let mut manifest = render::fleet_service(&identity(fleet), &TemplateMeta::default(), &wanted.ports, &set);
    if let Some(set) = &moved_to {
        manifest["metadata"]["annotations"][ANNOTATION_SWITCHED_TO] = json!(set.as_str());
    }
    if let Some(sentence) = known_foreign(&fleet.caches.probes, &meta.uid).filter(|_| known.is_none()) {
        return Ok(Some(sentence));
    }
    let found = match known {
        Some(service) => Some(service),
        None => match fleet.cluster.create(Kind::Service, manifest.clone()).await {
            Ok(_) => return Ok(None),
            Err(ClusterError::AlreadyExists { .. }) => {
                let stored = fleet.cluster.get(Kind::Service, &meta.namespace, &meta.name).await;
                stored.map_err(ReconcileError::Children)?.map(|stored| existing(fleet, &stored))
            }
            Err(ClusterError::Refused { message, .. }) => {
                return Ok(Some(format!("service: the API server rejects it: {message}")));
            }
            Err(error) => return Err(ReconcileError::Children(error)),
        },
    };
    let Some(service) = found else { return Ok(None) };
    if !fleet.owns(&service.meta) {
        let sentence = foreign_service(fleet, &service.meta);
        fleet.caches.probes.foreign.put(&meta.uid, (monotonic(), sentence.clone()));
        return Ok(Some(sentence));
    }
    let switched = moved_to.map(|set| (ANNOTATION_SWITCHED_TO.to_owned(), set.into()));
    let own = TemplateMeta { labels: identity(fleet).labels(), annotations: switched.into_iter().collect() };
    let ops_of = |service: &ObservedService| {
        let change = metadata_change(&service.meta, &TemplateMeta::default(), &own);
        let mut ops = metadata_ops(&service.meta, &change.and(ownership_mark(fleet, &service.meta)));
        ops.extend(service_ops(service, &manifest));
        ops.extend(ownership_ops(fleet, &service.meta));
        ops
    };
    let id = service_of(&meta.uid);
    let ops = reverted::due(&fleet.caches.probes, &id, &service.meta, ops_of(&service));
    if !ops.is_empty() {
        let target = Target::of(Kind::Service, &service.meta);
        match reverted::write((fleet.cluster.as_ref(), &fleet.caches.probes), &id, target, ops, ops_of).await
        {
            Ok(_) => {}
            Err(ClusterError::Refused { message, .. }) => {
                return Ok(Some(format!("service: the API server rejects it: {message}")));
            }
            Err(error) => return Err(ReconcileError::Children(error)),
        }
    }
    Ok(None)
}

/// The new set, if traffic was moved to it and the status still names the old one. Between the write that moves traffic
/// and the status write that records it, the Service is ahead of the status. The Service's annotation names the set that
/// it was moved to. If a person changes or deletes the Service meanwhile, the plan still records that traffic was moved.
pub(super) fn moved_to(fleet: &FleetScope, service: Option<&ObservedService>) -> Option<SetName> {
    let is_moved = |set: &SetName| service.is_some_and(|service| is_switched(service, set));
    let entrant = fleet.set_rollout().filter(|r| r.stage == Stage::Promoting).map(|r| r.entrant);
    entrant.filter(|set| is_moved(set) || has_moved_traffic(fleet))
}

/// The Service that has the name of the fleet's. If it is the fleet's own, and lacks the label that the watches select
/// by, it
/// is known only if it is taken into the cache.
fn existing(fleet: &FleetScope, stored: &Value) -> Arc<ObservedService> {
    let service = ObservedService::read(stored);
    if fleet.owns(&service.meta) {
        fleet.view.observe(Kind::Service, stored);
    }
    Arc::new(service)
}

/// What admission changes of what Windlass depends on in the fleet's Service, in a sentence.
#[must_use]
pub fn reverted_by_admission(fleet: &FleetScope) -> Option<String> {
    let meta = &fleet.fleet.meta;
    fleet.spec.service.as_ref()?;
    let service = fleet.view.services.get(&meta.key()).filter(|service| fleet.owns(&service.meta))?;
    reverted::sentence(&fleet.caches.probes, &service_of(&meta.uid), &service.meta)
}

/// True if the plan records that it has moved the fleet's traffic to the new set. Used only during a promotion.
fn has_moved_traffic(fleet: &FleetScope) -> bool {
    let plan = fleet.fleet.status.plan.as_ref().and_then(|plan| plan.parse().ok());
    plan.is_some_and(|plan| has_switched(&plan))
}

/// The sentence for a fleet's Service whose name belongs to something else.
#[must_use]
pub fn foreign_service(fleet: &FleetScope, service: &Meta) -> String {
    format!(
        "service: Service {} {}; Windlass does not touch it: delete it, give the fleet another name, or remove \
         service from the spec",
        fleet.fleet.meta.name,
        fleet.whose(service)
    )
}

/// The sentence for the name of the fleet's Service, if it is known to belong to something else. Sends no request.
#[must_use]
pub fn taken_service(fleet: &FleetScope) -> Option<String> {
    service_of_another(fleet, ASK_FOR_NAME)
}

/// As [`taken_service`], but what no watch shows counts however long ago it was asked: for a reconcile that does not
/// ask
/// again, and repeats the message of the one before it.
#[must_use]
pub fn last_taken_service(fleet: &FleetScope) -> Option<String> {
    service_of_another(fleet, Duration::MAX)
}

fn service_of_another(fleet: &FleetScope, within: Duration) -> Option<String> {
    let meta = &fleet.fleet.meta;
    fleet.spec.service.as_ref()?;
    if let Some(service) = fleet.view.services.get(&meta.key()) {
        let is_anothers = !fleet.owns(&service.meta) && !service.meta.terminating;
        return is_anothers.then(|| foreign_service(fleet, &service.meta));
    }
    let (asked, sentence) = fleet.caches.probes.foreign.get(&meta.uid)?;
    (monotonic().duration_since(asked) < within).then_some(sentence)
}

/// The sentence that says who owns the object of a name, if that was asked recently. Watches show only Windlass's own
/// objects.
#[must_use]
pub fn known_foreign(probes: &ProbeCache, uid: &str) -> Option<String> {
    let (asked, sentence) = probes.foreign.get(uid)?;
    if monotonic().duration_since(asked) < ASK_FOR_NAME {
        return Some(sentence);
    }
    probes.foreign.take(uid);
    None
}
