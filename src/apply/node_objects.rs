//! A node's child objects, apart from its plan: what applies at once, and what has to be read from the API server
//! because no watch shows it.

use std::sync::Arc;
use std::time::Duration;

use chrono::TimeDelta;
use serde_json::{Value, json};
use tokio::time::Instant;
use tracing::debug;

use super::node_service::NotApplied;
use super::patches::{metadata_change, metadata_ops, own_field_ops, set_target};
use super::reverted;
use super::unwatched::{ask_again, read_again};
use super::{Admission, ReconcileError};
use crate::api::names::{ANNOTATION_FIRST_START, LABEL_NODE, LABEL_REVISION, pod_name};
use crate::api::{ClaimRetention, PodTemplateHash, Reason, StatefulNodeSpec, TemplateMeta};
use crate::cache::Sighting;
use crate::cache::probes::{CheckedTemplate, FoundTemplate, NoPod, SameTemplate};
use crate::clock::monotonic;
use crate::engine::{Outcome, TaskError};
use crate::observe::NodeScope;
use crate::observe::node_scope::{
    Belongs, belongs, belongs_by_name, claim_names, deletes_claims, is_node_of_name, spec_of,
};
use crate::planner::node::{LiveStatefulSet, NodeFacts, Template};
use crate::render::{self, MetadataChange};
use windlass_kube_port::observed::{Meta, Observed, ObservedClaim, ObservedNode, ObservedStatefulSet};
use windlass_kube_port::{ClusterError, Key, Kind, Part, PatchOp, Selector, Target};

/// How long a node may have no pod before the cause is looked up: a replaced pod is back by then.
const NO_POD: Duration = Duration::from_secs(2);
/// How soon the cause is looked up again.
const CAUSE_LOOKUP_INTERVAL: Duration = Duration::from_secs(15);
/// How long a name that was free counts as free. A refused create is retried several times, and if many nodes are
/// created at once, a StatefulSet is created some time after its plan.
const ASK_FOR_NAME: Duration = Duration::from_secs(30);
/// How soon a PVC that no watch shows is read again.
const CLAIM_REREAD_INTERVAL: Duration = Duration::from_secs(25);
/// How long a node without a pod may have no PVCs.
const TIME_FOR_CLAIMS: TimeDelta = TimeDelta::seconds(30);
/// How far the clocks of this process and of the StatefulSet controller may differ.
const SKEW: TimeDelta = TimeDelta::seconds(10);

/// Finds out what the StatefulSet's template is, if Windlass did not write its current generation: a dry run of our own
/// patch shows whether the patch would change anything.
pub async fn check_template(scope: &NodeScope, node: &ObservedNode) -> Result<(), ReconcileError> {
    let Some(set) = scope.set().filter(|s| s.meta.is_controlled_by(&node.meta.uid)) else { return Ok(()) };
    if let Some(template) = scope.template(node, &set) {
        return check_same_content(scope, node, &set, template).await;
    }
    let Ok(rendered) = scope.rendered(node) else { return Ok(()) };
    let is_other = |hash: &PodTemplateHash| ![&rendered.hash, &rendered.own_hash].contains(&hash);
    let written_otherwise = set.written_for().is_some_and(|hash| is_other(&hash));
    let is_ours = !written_otherwise && is_template_of(scope, node, &set, &rendered.template, None).await?;
    let found = if is_ours { FoundTemplate::Rendered } else { FoundTemplate::OtherThan };
    let checked = CheckedTemplate { generation: set.meta.generation, found: found(rendered.hash) };
    scope.caches.probes.templates.put(&set.meta.uid, checked);
    Ok(())
}

/// Finds out whether a node that no fleet updates is only written otherwise than before: then its template has the
/// content
/// that its StatefulSet has, and its pod stays.
async fn check_same_content(
    scope: &NodeScope,
    node: &ObservedNode,
    set: &ObservedStatefulSet,
    template: Template,
) -> Result<(), ReconcileError> {
    let (Template::At(written), Ok(spec)) = (template, &node.spec) else { return Ok(()) };
    let Ok(wanted) = scope.wanted(node) else { return Ok(()) };
    if node.meta.terminating || spec.granted().is_some() || wanted.hash == written {
        return Ok(());
    }
    let known = scope.caches.probes.same_templates.get(&node.meta.uid);
    if known.is_some_and(|known| known.rendered == wanted.hash && known.written == written) {
        return Ok(());
    }
    let Ok(rendered) = scope.rendered(node) else { return Ok(()) };
    let main = render::made_for(spec, &rendered.hash).main_container;
    // The label of the revision tells how the content was written.
    let live = scope.cluster.get(Kind::StatefulSet, &set.meta.namespace, &set.meta.name).await;
    let live = live.map_err(ReconcileError::Observe)?.unwrap_or_default();
    let label = live["spec"]["template"]["metadata"]["labels"].get(LABEL_REVISION);
    let is_same = set.made_for.as_deref().is_some_and(|made_for| made_for.main_container == main)
        && is_template_of(scope, node, set, &rendered.template, label).await?;
    let answer = SameTemplate { rendered: rendered.hash, written, is_same };
    scope.caches.probes.same_templates.put(&node.meta.uid, answer);
    Ok(())
}

/// True if the API server makes of this rendered template what the StatefulSet has: a dry run of our own patch would
/// change
/// nothing. Fields that Windlass adds outside of the hash may be those of this version, or of earlier ones: it is not
/// written into an existing StatefulSet as long as nothing else changes. `label`: that of the revision, if it may be
/// another
/// than the spec's.
async fn is_template_of(
    scope: &NodeScope,
    node: &ObservedNode,
    set: &ObservedStatefulSet,
    rendered: &Value,
    label: Option<&Value>,
) -> Result<bool, ReconcileError> {
    let spec = spec_of(node).map_err(|error| ReconcileError::Plan(error.to_string()))?;
    // The annotations that say what the pods are made for are taken from the live template, so they never differ.
    let (identity, made_for) = (scope.identity(node), set.made_for.as_deref());
    let now = made_for.map(|made_for| {
        let mut template = render::stateful_set_template(&identity, spec, rendered, made_for);
        if let Some(label) = label {
            template["metadata"]["labels"][LABEL_REVISION] = label.clone();
        }
        template
    });
    let earlier = render::earlier_template(&identity, rendered, made_for);
    for template in now.into_iter().chain([earlier]) {
        let ops = vec![PatchOp::set("/spec/template", template)];
        match scope.cluster.try_patch(set_target(set), ops).await {
            Ok(answer) if Meta::read(&answer).generation == set.meta.generation => return Ok(true),
            Ok(_) => {}
            Err(error) if error.refusal().is_some() => {}
            Err(error) => return Err(ReconcileError::Observe(error)),
        }
    }
    Ok(false)
}

/// Finds out why a node has no pod although its StatefulSet should have created one. Either the StatefulSet's events,
/// which are watched, say why, or something else has the pod's name, which no watch shows. Returns when to check again.
pub async fn why_no_pod(scope: &NodeScope, node: &ObservedNode) -> Option<Duration> {
    let (uid, answers, now) = (&node.meta.uid, &scope.caches.probes.no_pod, monotonic());
    let is_due = || {
        let facts = scope.facts(node);
        let has_none = !facts.terminating && !facts.suspended && facts.pod.is_none();
        has_none && facts.live().is_some_and(|set| set.observed)
    };
    let Some(set) = scope.set().filter(|_| is_due()) else {
        answers.take(uid);
        scope.sightings.end(uid, &Sighting::NoPod);
        return None;
    };
    let since =
        node.status.problem.as_ref().filter(|p| p.reason == Reason::Missing.as_ref()).map(|p| p.since);
    // A problem that was reported before this process started is still reported until more is known.
    let is_earlier = since.is_some() && scope.sightings.known(uid, &Sighting::NoPod).is_none();
    let was_refused =
        is_earlier || node.status.problem.as_ref().is_some_and(|p| p.reason == Reason::InvalidSpec.as_ref());
    let before = since.and_then(|since| (scope.now - since).to_std().ok()).unwrap_or_default();
    let missing_for = scope.sightings.elapsed_since(uid, Sighting::NoPod, before);
    let known = answers.get(uid);
    let left = match &known {
        Some(known) => CAUSE_LOOKUP_INTERVAL.saturating_sub(now.duration_since(known.asked)),
        None if was_refused => Duration::ZERO,
        // Not at once: if a quota is recounted late, the new pod of a replacement is refused for a moment.
        None => NO_POD.saturating_sub(missing_for),
    };
    let mut answer = match known {
        None if !left.is_zero() => return Some(left),
        Some(known) => known,
        None => NoPod { asked: now, why: None, taken: None },
    };
    if left.is_zero() {
        answer.asked = now;
        match foreign_pod(scope, &set).await {
            Ok(taken) => answer.taken = taken,
            Err(error) => debug!(node = %scope.key, %error, "could not look up the owner of the pod's name"),
        }
    }
    // Earlier events are about another pod.
    let from = scope.now - TimeDelta::from_std(missing_for).unwrap_or_default() - SKEW;
    let told = scope.view.refusals.last(&set.meta.uid).filter(|told| told.at >= from);
    answer.why = told.map(|told| in_short(&told.note).to_owned()).filter(|why| !is_of_claims_that_go(why));
    answers.put(uid, answer);
    Some(if left.is_zero() { CAUSE_LOOKUP_INTERVAL } else { left })
}

/// Returns a sentence if the name of the node's pod belongs to something else.
async fn foreign_pod(scope: &NodeScope, set: &ObservedStatefulSet) -> Result<Option<String>, ClusterError> {
    let name = pod_name(&scope.key.name);
    let found = scope.cluster.get(Kind::Pod, &scope.key.namespace, &name).await?;
    let Some(pod) = found.map(|pod| Meta::read(&pod)).filter(|pod| !pod.terminating) else { return Ok(None) };
    Ok(match belongs_by_name(&pod, "StatefulSet", &set.meta, Kind::Pod.name()) {
        Belongs::Elsewhere(sentence) => Some(sentence),
        Belongs::Here | Belongs::Earlier => None,
    })
}

/// The API server's message, without the prefix of the StatefulSet controller.
fn in_short(note: &str) -> &str {
    note.split_once(" failed error: ").map_or(note, |(_, said)| said)
}

/// True if a pod is not created only because its claims are being deleted. That is not a rejection: the controller
/// retries, and creates the pod once they are deleted.
fn is_of_claims_that_go(why: &str) -> bool {
    let each = why.strip_prefix('[').and_then(|why| why.strip_suffix(']')).unwrap_or(why);
    each.split(", ").all(|one| one.starts_with("pvc ") && one.ends_with(" is being deleted"))
}

/// The metadata of the cached StatefulSet and Service with the node's name, if `is_wanted` accepts it.
fn known_children(scope: &NodeScope, is_wanted: impl Fn(&Meta) -> bool) -> [(Kind, Option<Meta>); 2] {
    let chosen = |meta: &Meta| is_wanted(meta).then(|| meta.clone());
    [
        (Kind::StatefulSet, scope.set().and_then(|set| chosen(&set.meta))),
        (Kind::Service, scope.service().and_then(|service| chosen(&service.meta))),
    ]
}

/// Returns a sentence if a name of the node's child objects belongs to something else.
pub async fn foreign(scope: &NodeScope, node: &ObservedNode) -> Result<Option<String>, ReconcileError> {
    for (kind, meta) in known_children(scope, |_| true) {
        let whose = match meta {
            Some(meta) => Some(belongs(&meta, &node.meta, kind.name())),
            None if is_free(scope, node, kind) => None,
            None => {
                let whose = scope.whose(kind, node).await.map_err(ReconcileError::Observe)?;
                if whose.is_none() {
                    scope.caches.probes.free.put(&(node.meta.uid.clone(), kind), monotonic());
                }
                whose
            }
        };
        if let Some(Belongs::Elsewhere(sentence)) = whose {
            return Ok(Some(sentence));
        }
    }
    match shared_claim(scope, node) {
        Some(sentence) => Ok(Some(sentence)),
        None => foreign_claim(scope, node).await,
    }
}

/// The cached StatefulSet and Service with the node's name that lack our label, or have another value of it: a person
/// or a
/// policy changed it. They are in the cache because they were written or read by name. Watches select by the label, so
/// no
/// event will report that they change or are gone.
fn unlabelled(scope: &NodeScope) -> impl Iterator<Item = (Kind, Meta)> {
    // Every reconcile calls this, and hardly any node has unlabelled objects.
    let unlabelled = known_children(scope, |meta| !meta.is_managed());
    unlabelled.into_iter().filter_map(|(kind, meta)| Some((kind, meta?)))
}

/// Reads each unlabelled object again, and removes it from the cache if it is gone.
pub async fn forget_unlabelled(scope: &NodeScope) -> Result<(), ReconcileError> {
    for (kind, meta) in unlabelled(scope) {
        let read = read_again(scope.cluster.as_ref(), &scope.view, kind, &meta).await;
        read.map_err(ReconcileError::Observe)?;
    }
    Ok(())
}

/// When to read unlabelled objects again; `None` if there are none.
#[must_use]
pub fn await_unlabelled(scope: &NodeScope, node: &ObservedNode) -> Option<Duration> {
    let is_unobserved = || scope.set().is_some_and(|set| !set.is_observed());
    let changes_soon = |kind: Kind, meta: &Meta| {
        meta.terminating
            || belongs(meta, &node.meta, kind.name()) == Belongs::Earlier
            || (kind == Kind::StatefulSet && is_unobserved())
    };
    let wait = |(kind, meta): (Kind, Meta)| ask_again(changes_soon(kind, &meta));
    unlabelled(scope).map(wait).min()
}

/// True if the name was found free within the last [`ASK_FOR_NAME`]. If something took it since, the create is refused.
/// A claim that appeared since is adopted by the StatefulSet controller; no check could rule that out.
fn is_free(scope: &NodeScope, node: &ObservedNode, kind: Kind) -> bool {
    let asked = scope.caches.probes.free.get(&(node.meta.uid.clone(), kind));
    asked.is_some_and(|asked| monotonic().duration_since(asked) < ASK_FOR_NAME)
}

/// Returns a sentence if a PVC with the name of one of this node's claims exists and has neither a node's label nor the
/// node as its owner. The StatefulSet controller would mount it as it is, with whatever data it holds.
async fn foreign_claim(scope: &NodeScope, node: &ObservedNode) -> Result<Option<String>, ReconcileError> {
    // A node that was ever Ready took its claims long ago: a claim without the label is still the node's own.
    if node.status.first_ready_at.is_some() || is_free(scope, node, Kind::PersistentVolumeClaim) {
        return Ok(None);
    }
    let namespace = &node.meta.namespace;
    let names = claim_names(node);
    for name in &names {
        if scope.view.claims.get(&Key::new(namespace, name)).is_some() {
            continue;
        }
        let found = scope.cluster.get(Kind::PersistentVolumeClaim, namespace, name).await;
        let found = found.map_err(ReconcileError::Observe)?;
        let Some(claim) = found.map(|claim| Meta::read(&claim)) else { continue };
        let is_owned = claim.owners.iter().any(|owner| owner.uid == node.meta.uid);
        if !is_owned && claim.label(LABEL_NODE).is_none() {
            return Ok(Some(format!(
                "volumeClaimTemplates: PersistentVolumeClaim {name} exists without the label of this node; Windlass \
                 does not touch it: delete it, or, if the node should use it, label it {LABEL_NODE}={}",
                node.meta.name
            )));
        }
    }
    if !names.is_empty() {
        scope.caches.probes.free.put(&(node.meta.uid.clone(), Kind::PersistentVolumeClaim), monotonic());
    }
    Ok(None)
}

/// Returns a sentence if a PVC of this node is also another node's. A claim's name is the template's name followed by
/// the node's, so claim `a-e` of node `e-0` and claim `a` of node `e-e-0` have the same name: two nodes would run on
/// one volume, and the volume would be deleted with the first of them.
fn shared_claim(scope: &NodeScope, node: &ObservedNode) -> Option<String> {
    let own = claim_names(node);
    if own.is_empty() {
        return None;
    }
    let namespace = &node.meta.namespace;
    for name in &own {
        let claim = scope.view.claims.get(&Key::new(namespace, name));
        let holder = claim.and_then(|claim| claim.meta.label(LABEL_NODE).map(str::to_owned));
        if let Some(other) = holder.filter(|other| *other != node.meta.name) {
            return Some(is_of_another(name, &other));
        }
    }
    // If neither node has the claim yet, the older one gets it.
    let age = |node: &ObservedNode| (node.meta.created_at, node.meta.uid.clone());
    let mut older = own.iter().flat_map(|claim| sharers(scope, namespace, claim)).filter(|other| {
        other.meta.name != node.meta.name
            && age(other) < age(node)
            && claim_names(other).iter().any(|c| own.contains(c))
    });
    let first = older.next()?;
    let other = older.fold(first, |a, b| if b.meta.name < a.meta.name { b } else { a });
    let name = claim_names(&other).into_iter().find(|name| own.contains(name))?;
    Some(is_of_another(&name, &other.meta.name))
}

/// The nodes that could have a claim of this name, because it ends in their names. There are only a handful, however
/// many nodes exist.
fn sharers(scope: &NodeScope, namespace: &str, claim: &str) -> Vec<Arc<ObservedNode>> {
    let ends = claim.match_indices('-').map(|(at, _)| &claim[at + 1..]);
    let names = ends.filter_map(|end| end.strip_suffix("-0"));
    names.filter_map(|name| scope.view.nodes.get(&Key::new(namespace, name))).collect()
}

fn is_of_another(claim: &str, other: &str) -> String {
    format!(
        "volumeClaimTemplates: PersistentVolumeClaim {claim} belongs to node {other}; Windlass does not touch it: \
         give the claim template or the fleet another name"
    )
}

/// The result of applying what applies at once.
#[derive(Default)]
pub struct AppliedAtOnce {
    /// Why the StatefulSet, the Service or a claim cannot match the spec, in a sentence.
    pub refused: Option<String>,
    /// When to retry what could not be applied yet, if no event comes first.
    pub again: Option<Duration>,
    /// The first error. It kept nothing else from being applied.
    pub error: Option<ReconcileError>,
}

impl AppliedAtOnce {
    /// Adds the result of what was applied after this.
    #[must_use]
    pub fn and(self, later: Self) -> Self {
        Self {
            refused: self.refused.or(later.refused),
            again: self.again.into_iter().chain(later.again).min(),
            error: self.error.or(later.error),
        }
    }
}

/// Of what results in a sentence if it cannot match the spec.
impl From<Result<Option<String>, ReconcileError>> for AppliedAtOnce {
    fn from(applied: Result<Option<String>, ReconcileError>) -> Self {
        match applied {
            Ok(refused) => Self { refused, ..Self::default() },
            Err(error) => Self { error: Some(error), ..Self::default() },
        }
    }
}

/// Applies changes that need no rollout to the node's StatefulSet and Service.
pub async fn apply_at_once(
    scope: &NodeScope,
    node: &ObservedNode,
    spec: &StatefulNodeSpec,
    facts: &NodeFacts,
) -> AppliedAtOnce {
    let (Some(set), Some(live)) = (scope.set(), facts.live()) else { return AppliedAtOnce::default() };
    let to_set = if (&live.uid, live.generation) == (&set.meta.uid, set.meta.generation) {
        AppliedAtOnce::from(apply_to_set(scope, node, spec, live, &set).await)
    } else {
        // Somebody changed it after the facts were gathered. With a write of ours on top, and what the facts say of its
        // template, that change would count as our own.
        AppliedAtOnce { again: Some(Duration::ZERO), ..AppliedAtOnce::default() }
    };
    let node_label = || reverted::sentence(&scope.caches.probes, &node.meta.uid, &node.meta);
    let applied = to_set.and(apply_service(scope, node).await);
    AppliedAtOnce { refused: applied.refused.or_else(node_label), ..applied }
}

async fn apply_service(scope: &NodeScope, node: &ObservedNode) -> AppliedAtOnce {
    let refused = |sentence| AppliedAtOnce { refused: Some(sentence), ..AppliedAtOnce::default() };
    let failed = |error| AppliedAtOnce { error: Some(error), ..AppliedAtOnce::default() };
    if let Some(known) = super::fleet_objects::known_foreign(&scope.caches.probes, &node.meta.uid)
        && scope.service().is_none()
    {
        return refused(known);
    }
    let error = match super::node_service::apply(scope, node).await {
        Ok(Outcome::Waiting { recheck_after, .. }) => {
            return AppliedAtOnce { again: recheck_after, ..AppliedAtOnce::default() };
        }
        Ok(_) => {
            let refused = super::node_service::reverted_by_admission(scope, node);
            return AppliedAtOnce { refused, ..AppliedAtOnce::default() };
        }
        Err(NotApplied::Failed(error)) if error.refusal().is_some() => TaskError::from(error),
        Err(NotApplied::Conflict(error) | NotApplied::Failed(error)) => {
            return failed(ReconcileError::Children(error));
        }
        Err(NotApplied::Other(error)) => error,
    };
    match error {
        TaskError::Terminal { message } => {
            scope.caches.probes.foreign.put(&node.meta.uid, (monotonic(), message.clone()));
            refused(message)
        }
        TaskError::Transient { message, .. } => failed(ReconcileError::Plan(message)),
    }
}

/// Returns a sentence if admission changes what Windlass alone decides of the StatefulSet, or if the StatefulSet
/// deletes
/// the node's claims and that cannot be changed.
async fn apply_to_set(
    scope: &NodeScope,
    node: &ObservedNode,
    spec: &StatefulNodeSpec,
    live: &LiveStatefulSet,
    set: &ObservedStatefulSet,
) -> Result<Option<String>, ReconcileError> {
    let identity = scope.identity(node);
    let template = &live.template;
    let mut own = TemplateMeta { labels: identity.labels(), ..TemplateMeta::default() };
    // A StatefulSet without a recorded hash gets the hash that its template was found to have.
    if let (Template::At(hash), None) = (template, set.stamp()) {
        own.annotations.insert(crate::api::names::ANNOTATION_TEMPLATE_HASH.to_owned(), hash.to_string());
    }
    let replicas = i64::from(!spec.suspend);
    let ops_of = |set: &ObservedStatefulSet| {
        let mut ops = metadata_ops(&set.meta, &metadata_change(&set.meta, &identity.metadata, &own));
        // A StatefulSet that deletes claims when it is scaled down is not scaled down.
        let scaled = (replicas > 0 || !deletes_claims(set, node)).then_some(replicas);
        ops.extend(own_field_ops(set, scaled));
        ops
    };
    let ops = reverted::due(&scope.caches.probes, &set.meta.uid, &set.meta, ops_of(set));
    if ops.is_empty() {
        return Ok(reverted_by_admission(scope, set, node));
    }
    // Admission may change the template with this write, and with it the revision.
    if let Some(revision) = set.revision_of_now().filter(|_| matches!(template, Template::At(_))) {
        scope.sightings.saw_revision(&set.meta.uid, revision);
    }
    let port = (scope.cluster.as_ref(), &scope.caches.probes);
    let answer = reverted::write(port, &set.meta.uid, set_target(set), ops, ops_of).await;
    let answer = answer.map_err(ReconcileError::Children)?;
    if let Template::At(hash) = template {
        scope.wrote_template(&answer, hash);
    }
    Ok(reverted_by_admission(scope, &ObservedStatefulSet::read(&answer), node))
}

/// What admission changes of what Windlass depends on in a StatefulSet, in a sentence.
fn reverted_by_admission(
    scope: &NodeScope,
    set: &ObservedStatefulSet,
    node: &ObservedNode,
) -> Option<String> {
    if deletes_claims(set, node) {
        return Some(claims_would_go(&set.meta.name));
    }
    reverted::sentence(&scope.caches.probes, &set.meta.uid, &set.meta)
}

fn claims_would_go(set: &str) -> String {
    format!(
        "volumeClaimTemplates: StatefulSet {set} deletes its PersistentVolumeClaims, and setting its \
         persistentVolumeClaimRetentionPolicy to Retain has no effect: exempt the StatefulSets of Windlass from the \
         admission policy that changes it; until then Windlass does not suspend the node and, if its claims are \
         retained, does not delete it"
    )
}

/// Adds the node as an owner of its claims, or removes it, so that they are deleted with the node or kept, as the spec
/// says. Returns a sentence if a claim is another node's.
///
/// A claim of an earlier node of this name is about to be deleted with that one. If claims are to go, that is left to
/// the
/// garbage collector: another owner would save the claim, and its data with it. If they are to stay, the earlier owner
/// is
/// removed as well.
pub async fn apply_to_claims(
    scope: &NodeScope,
    node: &ObservedNode,
    spec: &StatefulNodeSpec,
) -> Result<Option<String>, ReconcileError> {
    let mut shared = None;
    // A claim that was not seen as its StatefulSet was created.
    if scope.set().is_some() {
        release_first_start(scope, node).await.map_err(ReconcileError::Children)?;
    }
    for name in claim_names(node) {
        let key = Key::new(&node.meta.namespace, name);
        let Some(claim) = scope.view.claims.get(&key) else {
            take_back(scope, node, spec, &key).await?;
            continue;
        };
        let holder = claim.meta.label(LABEL_NODE).unwrap_or_default();
        if holder != node.meta.name {
            shared.get_or_insert(is_of_another(&claim.meta.name, holder));
            continue;
        }
        let is_held = claim.meta.owners.iter().any(|owner| is_node_of_name(owner, &node.meta));
        let ops = match (spec.volume_claim_retention, is_held) {
            (ClaimRetention::Delete, false) if is_there(scope, node).await? => {
                vec![own_op(&claim.meta, &node.meta)]
            }
            (ClaimRetention::Retain, true) => let_go_ops(&claim.meta, &node.meta),
            (ClaimRetention::Delete, _) | (ClaimRetention::Retain, false) => continue,
        };
        let target = Target::of(Kind::PersistentVolumeClaim, &claim.meta);
        scope.cluster.patch(target, Part::Main, ops).await.map_err(ReconcileError::Children)?;
    }
    Ok(shared)
}

/// Removes the annotation by which the node's claims are known to be unused: hooks at `BeforeCreate` are done, and a pod uses
/// them from now on.
pub async fn release_first_start(scope: &NodeScope, node: &ObservedNode) -> Result<(), ClusterError> {
    let change = MetadataChange {
        annotations: [(ANNOTATION_FIRST_START.to_owned(), None)].into(),
        ..MetadataChange::default()
    };
    for claim in scope.claims(node) {
        if claim.meta.annotation(ANNOTATION_FIRST_START).is_none() {
            continue;
        }
        let (target, ops) =
            (Target::of(Kind::PersistentVolumeClaim, &claim.meta), metadata_ops(&claim.meta, &change));
        match scope.cluster.patch(target, Part::Main, ops).await {
            Ok(_) | Err(ClusterError::NotFound { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// True if the node still exists and is not being deleted, by the API server itself. The cache may be stale: a node
/// that is deleted with `--cascade=orphan` is to leave its claims behind, and one that becomes their owner
/// again after the collector has removed it takes them along.
async fn is_there(scope: &NodeScope, node: &ObservedNode) -> Result<bool, ReconcileError> {
    let is_same = |meta: &Meta| meta.uid == node.meta.uid && !meta.terminating;
    if !scope.node().is_some_and(|known| is_same(&known.meta)) {
        return Ok(false);
    }
    // A list, since Windlass needs no right to get nodes.
    let by_name = Selector::Fields(format!("metadata.name={}", node.meta.name));
    let found = scope.cluster.selected(Kind::StatefulNode, &node.meta.namespace, by_name).await;
    Ok(found.map_err(ReconcileError::Children)?.iter().any(|found| is_same(&Meta::read(found))))
}

/// The operation that makes a node an owner of a claim or a pod.
pub(crate) fn own_op(claim: &Meta, node: &Meta) -> PatchOp {
    // Not a controller reference: the object is deleted with the node, and no controller adopts it.
    let owner = json!({
        "apiVersion": Kind::StatefulNode.api_version(),
        "kind": Kind::StatefulNode.name(),
        "name": node.name,
        "uid": node.uid,
    });
    if claim.owners.is_empty() {
        PatchOp::set("/metadata/ownerReferences", json!([owner]))
    } else {
        PatchOp::set("/metadata/ownerReferences/-", owner)
    }
}

/// The operations that remove a node, and earlier nodes of its name, from a claim's owners.
fn let_go_ops(claim: &Meta, node: &Meta) -> Vec<PatchOp> {
    let owners = claim.owners.iter().enumerate().filter(|(_, owner)| is_node_of_name(owner, node));
    let ops = owners.map(|(index, _)| PatchOp::remove(format!("/metadata/ownerReferences/{index}")));
    // Each removal moves the owners behind it, so the last one comes first.
    let mut ops: Vec<PatchOp> = ops.collect();
    ops.reverse();
    ops
}

/// Restores the node's label on a claim that the node owns, and in the same patch removes the owner if the claim is to
/// be kept: without the label no watch shows the claim, and it would be deleted with the node.
async fn take_back(
    scope: &NodeScope,
    node: &ObservedNode,
    spec: &StatefulNodeSpec,
    key: &Key,
) -> Result<(), ReconcileError> {
    // A new node that has not had time for a pod may have no claims yet.
    let is_new = node.meta.created_at.is_none_or(|at| at + TIME_FOR_CLAIMS > scope.now);
    if scope.pod().is_none() && is_new {
        return Ok(());
    }
    let question = (node.meta.uid.clone(), key.name.clone());
    let asked = scope.caches.probes.unseen_claims.get(&question);
    let is_fresh = |(generation, at): &(i64, Instant)| {
        *generation == node.meta.generation && monotonic().duration_since(*at) < CLAIM_REREAD_INTERVAL
    };
    if asked.as_ref().is_some_and(is_fresh) {
        return Ok(());
    }
    let found = scope.cluster.get(Kind::PersistentVolumeClaim, &key.namespace, &key.name).await;
    let found = found.map_err(ReconcileError::Children)?;
    scope.caches.probes.unseen_claims.put(&question, (node.meta.generation, monotonic()));
    let Some(claim) = found.map(|claim| ObservedClaim::read(&claim)) else { return Ok(()) };
    let is_owned = claim.meta.owners.iter().any(|owner| owner.uid == node.meta.uid);
    if !is_owned || claim.meta.label(LABEL_NODE).is_some() {
        return Ok(());
    }
    let label = MetadataChange {
        labels: [(LABEL_NODE.to_owned(), Some(node.meta.name.clone()))].into(),
        ..MetadataChange::default()
    };
    let mut ops = metadata_ops(&claim.meta, &label);
    if spec.volume_claim_retention == ClaimRetention::Retain {
        ops.extend(let_go_ops(&claim.meta, &node.meta));
    }
    let target = Target::of(Kind::PersistentVolumeClaim, &claim.meta);
    scope.cluster.patch(target, Part::Main, ops).await.map_err(ReconcileError::Children)?;
    Ok(())
}

/// Asks the API server, in a dry run, whether it would accept the node's StatefulSet.
pub async fn verdict(
    scope: &NodeScope,
    node: &ObservedNode,
    spec: &StatefulNodeSpec,
) -> Result<Admission, ReconcileError> {
    let rendered = match scope.rendered(node) {
        Ok(rendered) => rendered,
        Err(sentence) => return Ok(Admission::Refused(sentence)),
    };
    let identity = scope.identity(node);
    let manifest = render::stateful_set(&identity, spec, &rendered.template, &rendered.hash);
    let content = super::dry_runs::dry_run_key_of(&identity, spec, &rendered.hash);
    super::dry_runs::ask(&scope.caches.probes, scope.cluster.as_ref(), content, manifest).await
}
