//! What this process has learned and need not ask again. Nothing here is needed for correctness: a process that starts
//! with an empty memory asks once more.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use chrono::{DateTime, Utc};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::Instant;

use super::live_pods::LivePods;
use super::observed::{ObservedFleet, ObservedNode};
use super::remembered::{Remembered, Subject};
use super::{Key, Kind, PatchOp};
use crate::api::{AtHook, BuildId, PodTemplateHash, RemovalId, RestartTime, RolloutHash, StatefulNodeSpec};
use crate::clock::monotonic;
use crate::planner::fleet::Rendering;
use crate::planner::node::RenderedTarget;

/// The result of a check of a StatefulSet's template, at one generation.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct CheckedTemplate {
    /// The generation that was checked.
    pub generation: i64,
    /// The result.
    pub found: FoundTemplate,
}

/// The result of a check of a template.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum FoundTemplate {
    /// The template that this version renders, with this pod template hash.
    Rendered(PodTemplateHash),
    /// Not the template with this hash. It is checked again for another hash.
    OtherThan(PodTemplateHash),
}

/// The result of rendering a node's spec, at one generation and with one restart.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct RenderedSpec {
    /// The generation of the spec.
    pub generation: i64,
    /// The restart that applies.
    pub restart: Option<RestartTime>,
    /// The result. Nodes with the same content share it in memory.
    pub found: Arc<RenderedTarget>,
}

/// How many fleets' pods are listed at the same time. The API server does not serve such a list from its cache, and
/// that of a large fleet takes many megabytes on both sides.
const READS_AT_ONCE: usize = 4;

/// Limits the number of concurrent lists.
#[derive(Debug)]
pub struct Turns(Semaphore);

impl Default for Turns {
    fn default() -> Self {
        Self(Semaphore::new(READS_AT_ONCE))
    }
}

impl Turns {
    /// Waits for a permit, which is held until it is dropped.
    pub async fn take(&self) -> Option<SemaphorePermit<'_>> {
        // The semaphore is never closed.
        self.0.acquire().await.ok()
    }
}

/// What a fleet needs to know about the plan of one of its nodes.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct ReadPlan {
    /// True if the plan is active and may replace the pod.
    pub rolling: bool,
    /// True if the plan is active and removes the node.
    pub leaves: bool,
    /// When it began.
    pub started_at: Option<DateTime<Utc>>,
    /// True if it has begun a hook at `BeforeRemove`.
    pub took_leave: bool,
    /// The removal that the plan waits for, if it waits for nothing else.
    pub awaited_removal: Option<RemovalId>,
    /// The current hook.
    pub at_hook: Option<Box<AtHook>>,
    /// The target of a plan that has marked the node ready, and when.
    pub marked: Option<Box<(PodTemplateHash, DateTime<Utc>)>>,
    /// The target of a plan that has replaced the node's pod, and when.
    pub replaced: Option<Box<(PodTemplateHash, DateTime<Utc>)>>,
}

/// Progress of a node's plan that is not written yet.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Unsaved {
    /// Since when there is unwritten progress.
    pub first: Instant,
    /// Since when the plan has waited for `waits_for`.
    pub since: Instant,
    /// What the plan waits for, in one sentence.
    pub waits_for: String,
}

/// A node without a pod, although its StatefulSet should create one.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct NoPod {
    /// Since when, by this process's monotonic clock.
    pub since: Instant,
    /// Since when, by the wall clock, as far as is known. Earlier events are about another pod.
    pub noticed: DateTime<Utc>,
    /// When the object with the pod's name was last read.
    pub asked: Option<Instant>,
    /// The reason from the StatefulSet's events.
    pub why: Option<String>,
    /// The object that has the pod's name and is not the node's, in one sentence.
    pub taken: Option<String>,
}

/// A write to a child that admission changed.
#[derive(Clone, Debug, PartialEq)]
pub struct Reverted {
    /// When it was written.
    pub at: Instant,
    /// The operations that would still be needed.
    pub ops: Vec<PatchOp>,
    /// For each operation, the label or annotation that the API server stored in its place.
    pub stored: Vec<Option<String>>,
    /// What Windlass depends on and admission changed, in a sentence.
    pub message: Option<String>,
}

/// The answer to the question whether the API server stores for a rendered template what a StatefulSet has.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SameTemplate {
    /// The hash of the rendered template.
    pub rendered: PodTemplateHash,
    /// The hash that the StatefulSet's template was written for.
    pub written: PodTemplateHash,
    /// True if it does.
    pub is_same: bool,
}

/// Why a new set of nodes has no name.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Nameless {
    /// The reason, in one sentence.
    pub sentence: String,
    /// When names were last listed.
    pub asked: Instant,
    /// Since when lists have failed; `None` if the last list succeeded.
    pub unanswered_since: Option<Instant>,
}

/// The number of contents that are remembered: two for each rollout, for a few fleets that roll at the same time.
const MAX_CONTENTS: usize = 16;

/// Results that depend on the content of a spec only, that is, on the fields that are the same in all nodes of a
/// revision. Thousands of nodes share an entry.
pub struct ByContent<V> {
    known: Mutex<VecDeque<(Arc<StatefulNodeSpec>, String, V)>>,
}

impl<V> Default for ByContent<V> {
    fn default() -> Self {
        Self { known: Mutex::default() }
    }
}

impl<V: Clone> ByContent<V> {
    /// Returns the result for this content and the text `beside`, which is computed if it is not remembered.
    pub fn of<E>(
        &self,
        spec: &Arc<StatefulNodeSpec>,
        beside: &str,
        find: impl FnOnce() -> Result<V, E>,
    ) -> Result<V, E> {
        let is_of_content =
            |entry: &&(Arc<StatefulNodeSpec>, String, V)| entry.1 == beside && is_alike(&entry.0, spec);
        if let Some((_, _, found)) = self.known().iter().find(is_of_content) {
            return Ok(found.clone());
        }
        let found = find()?;
        let mut known = self.known();
        known.truncate(MAX_CONTENTS - 1);
        known.push_front((spec.clone(), beside.to_owned(), found.clone()));
        Ok(found)
    }

    fn known(&self) -> MutexGuard<'_, VecDeque<(Arc<StatefulNodeSpec>, String, V)>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// True if two specs certainly have the same content. Equal templates are shared in memory.
fn is_alike(a: &StatefulNodeSpec, b: &StatefulNodeSpec) -> bool {
    let StatefulNodeSpec {
        image,
        main_container,
        pod_template,
        volume_claim_templates,
        volume_claim_retention,
        ports,
        service_annotations,
        sidecar,
        progress_deadline_seconds,
        // Fields for a single node.
        suspend: _,
        granted_hash: _,
        grant_id: _,
        halt_height: _,
        halt_task_id: _,
        watch_sidecar: _,
        removal_id: _,
    } = a;
    pod_template.is_same(&b.pod_template)
        && volume_claim_templates.is_same(&b.volume_claim_templates)
        && *image == b.image
        && *main_container == b.main_container
        && *sidecar == b.sidecar
        && *ports == b.ports
        && *service_annotations == b.service_annotations
        && *volume_claim_retention == b.volume_claim_retention
        && *progress_deadline_seconds == b.progress_deadline_seconds
}

/// The number of revisions that are remembered for a StatefulSet: all but the last were replaced before a status was
/// written.
const MAX_REVISIONS: usize = 4;

/// Nodes of a fleet for which a check found nothing to do and nothing to report.
pub struct Settled {
    /// The fleet at the time of the check.
    fleet: Arc<ObservedFleet>,
    /// What else the check depended on.
    beside: String,
    /// The nodes at the time of the check, sorted by address. The references keep the addresses from being reused.
    nodes: Vec<Arc<ObservedNode>>,
}

impl Settled {
    /// Records these nodes of this fleet.
    #[must_use]
    pub fn new(fleet: Arc<ObservedFleet>, beside: String, mut nodes: Vec<Arc<ObservedNode>>) -> Self {
        nodes.sort_unstable_by_key(Arc::as_ptr);
        Self { fleet, beside, nodes }
    }

    /// True if nothing has changed since that applies at once, neither in the fleet nor in `beside`.
    #[must_use]
    pub fn holds(&self, fleet: &ObservedFleet, beside: &str) -> bool {
        let (now, then) = (&fleet.status, &self.fleet.status);
        let same_spec =
            matches!((&fleet.spec, &self.fleet.spec), (Ok(now), Ok(then)) if Arc::ptr_eq(now, then));
        same_spec
            && self.beside == beside
            && now.rollout == then.rollout
            && now.plan == then.plan
            && now.retiring == then.retiring
            && now.deletion_policy == then.deletion_policy
            && now.volume_claim_retention == then.volume_claim_retention
    }

    /// True if the node is one of them and has not changed.
    #[must_use]
    pub fn has(&self, node: &Arc<ObservedNode>) -> bool {
        self.nodes.binary_search_by_key(&Arc::as_ptr(node), Arc::as_ptr).is_ok()
    }
}

/// The Jobs of hooks that this process deleted because a plan was about to end, or to go on without them. If that is not
/// stored after all and the plan goes on as before, such a Job is made anew. One that somebody else deleted is not, and
/// that includes an earlier process: after a crash just then, a person has to retry the hook.
pub struct DeletedJobs {
    /// By the UIDs of owner and Job.
    jobs: Remembered<(String, String), ()>,
    /// Since when this process acts.
    since: Instant,
}

impl Default for DeletedJobs {
    fn default() -> Self {
        Self { jobs: Remembered::default(), since: monotonic() }
    }
}

impl DeletedJobs {
    /// For how long this process has acted. It begins to act as it becomes the leader.
    #[must_use]
    pub fn acts_for(&self) -> Duration {
        self.since.elapsed()
    }

    /// Remembers a deleted Job until its owner is forgotten.
    pub fn put(&self, owner_uid: &str, job_uid: &str) {
        self.jobs.put(&(owner_uid.to_owned(), job_uid.to_owned()), ());
    }

    /// True if this process deleted the Job.
    #[must_use]
    pub fn has(&self, owner_uid: &str, job_uid: &str) -> bool {
        self.jobs.get(&(owner_uid.to_owned(), job_uid.to_owned())).is_some()
    }

    /// Forgets the Jobs of this owner.
    pub fn forget(&self, owner_uid: &str) {
        self.jobs.forget(owner_uid);
    }
}

/// The UIDs of an object that is reconciled, under which the memory has entries about it.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Uids {
    /// The UID of the fleet or the node.
    pub own: String,
    /// The UID of the node's StatefulSet, as far as the node's status has it.
    pub stateful_set: Option<String>,
}

/// The content of a fleet's nodes, which is no object.
impl Subject for (RolloutHash, Option<RestartTime>) {
    fn subject(&self) -> &str {
        self.0.as_str()
    }
}

impl Memory {
    /// The key of an object in [`Memory::failures`].
    #[must_use]
    pub fn failure_key(kind: Kind, key: &Key) -> String {
        format!("{} {key}", kind.name())
    }

    /// Records the UIDs of an object that is about to be reconciled. Forgets earlier objects of its name.
    pub fn meet(&self, kind: Kind, key: &Key, uids: Uids) {
        let id = Self::failure_key(kind, key);
        let Some(known) = self.uids.get(&id) else { return self.uids.put(&id, Arc::new(uids)) };
        // A status that lost the UID of the StatefulSet says nothing about it.
        let stateful_set = uids.stateful_set.or_else(|| known.stateful_set.clone());
        let uids = Uids { stateful_set, ..uids };
        if *known == uids {
            return;
        }
        if known.own != uids.own {
            self.forget_uid(&known.own);
        }
        if let Some(set) = known.stateful_set.as_ref().filter(|set| Some(*set) != uids.stateful_set.as_ref())
        {
            self.forget_uid(set);
        }
        self.uids.put(&id, Arc::new(uids));
    }

    /// Forgets an object that is gone.
    pub fn part(&self, kind: Kind, key: &Key) {
        let id = Self::failure_key(kind, key);
        self.failures.take(&id);
        if let Some(known) = self.uids.take(&id) {
            self.forget_uid(&known.own);
            known.stateful_set.iter().for_each(|set| self.forget_uid(set));
        }
    }

    /// The number of entries about objects, by the name of the map.
    #[cfg(test)]
    pub fn sizes(&self) -> Vec<(&'static str, usize)> {
        vec![
            ("templates", self.templates.len()),
            ("revisions", self.revisions.len()),
            ("unknown_revisions", self.unknown_revisions.len()),
            ("spec_hashes", self.spec_hashes.len()),
            ("plans", self.plans.len()),
            ("rendered", self.rendered.len()),
            ("foreign", self.foreign.len()),
            ("free", self.free.len()),
            ("unseen_claims", self.unseen_claims.len()),
            ("same_templates", self.same_templates.len()),
            ("reverted", self.reverted.len()),
            ("ready_ahead", self.ready_ahead.len()),
            ("no_pod", self.no_pod.len()),
            ("unsaved_since", self.unsaved_since.len()),
            ("saved_at", self.saved_at.len()),
            ("uids", self.uids.len()),
            ("failures", self.failures.len()),
            ("settled", self.settled.len()),
            ("released", self.released.len()),
            ("live_pods", self.live_pods.len()),
            ("nameless", self.nameless.len()),
            ("deleted_jobs", self.deleted_jobs.jobs.len()),
        ]
    }

    /// Removes everything that is remembered about the object with this UID.
    fn forget_uid(&self, uid: &str) {
        let Self {
            templates,
            revisions,
            spec_hashes,
            plans,
            rendered,
            foreign,
            free,
            unseen_claims,
            same_templates,
            reverted,
            ready_ahead,
            no_pod,
            unsaved_since,
            saved_at,
            settled,
            released,
            live_pods,
            nameless,
            deleted_jobs,
            // By name, and removed with the object's name.
            uids: _,
            failures: _,
            // By UID of a pod, for a few seconds of a few pods' lives.
            unknown_revisions: _,
            // By content, which many objects share.
            rollout_hashes: _,
            template_hashes: _,
            renderings: _,
            verdicts: _,
            turns: _,
        } = self;
        templates.forget(uid);
        revisions.forget(uid);
        spec_hashes.forget(uid);
        plans.forget(uid);
        rendered.forget(uid);
        foreign.forget(uid);
        free.forget(uid);
        unseen_claims.forget(uid);
        same_templates.forget(uid);
        reverted.forget(uid);
        ready_ahead.forget(uid);
        no_pod.forget(uid);
        unsaved_since.forget(uid);
        saved_at.forget(uid);
        settled.forget(uid);
        released.forget(uid);
        live_pods.forget(uid);
        nameless.forget(uid);
        deleted_jobs.forget(uid);
    }

    /// True if an object's status was written within this time.
    #[must_use]
    pub fn was_saved_within(&self, uid: &str, time: Duration) -> bool {
        self.saved_at.get(uid).is_some_and(|at| monotonic().duration_since(at) < time)
    }

    /// Remembers the revision that a StatefulSet gives to pods of a template of ours. Earlier revisions stay known,
    /// because the next pod may have one of them.
    pub fn learn_revision(&self, set_uid: &str, revision: &str) {
        let mut known = self.revisions.get(set_uid).unwrap_or_default();
        if revision.is_empty() || known.last().is_some_and(|last| last == revision) {
            return;
        }
        known.retain(|other| other != revision);
        known.push(revision.to_owned());
        known.drain(..known.len().saturating_sub(MAX_REVISIONS));
        self.revisions.put(set_uid, known);
    }

    /// How long the revision of this pod has been unknown, counted from the first call.
    #[must_use]
    pub fn revision_unknown_for(&self, pod_uid: &str) -> Duration {
        let now = monotonic();
        let since = self.unknown_revisions.get(pod_uid).unwrap_or_else(|| {
            self.unknown_revisions.put(pod_uid, now);
            now
        });
        now.duration_since(since)
    }

    /// How long a node has been observed to be Ready since this time, if that was ahead of our clock at first.
    #[must_use]
    pub fn ready_ahead_for(&self, node_uid: &str, since: DateTime<Utc>, is_ahead: bool) -> Option<Duration> {
        let (known, now) = (self.ready_ahead.get(node_uid).filter(|(of, _)| *of == since), monotonic());
        if known.is_none() && is_ahead {
            self.ready_ahead.put(node_uid, (since, now));
        }
        let seen_at = known.map_or(now, |(_, seen_at)| seen_at);
        (known.is_some() || is_ahead).then(|| now.duration_since(seen_at))
    }

    /// True if the last reconcile of an object failed.
    #[must_use]
    pub fn has_failed(&self, kind: Kind, key: &Key) -> bool {
        self.failures.get(&Self::failure_key(kind, key)).is_some()
    }
}

/// What this process has learned and need not ask again.
#[derive(Default)]
pub struct Memory {
    /// By StatefulSet UID: the result of the check of its template.
    pub templates: Remembered<str, CheckedTemplate>,
    /// By StatefulSet UID, oldest first: the last revisions that it gave to pods of a template of ours, before a write
    /// of ours that may have changed them. The node's status may not have them yet.
    pub revisions: Remembered<str, Vec<String>>,
    /// By pod UID: since when the pod has been observed with an unknown revision, although it says that it was made for
    /// the granted hash.
    pub unknown_revisions: Remembered<str, Instant>,
    /// By object UID and build ID: a generation, and the rollout hash of the spec at that generation.
    pub spec_hashes: Remembered<(String, Option<BuildId>), (i64, RolloutHash)>,
    /// By node UID: a resourceVersion, and the node's plan at that version.
    pub plans: Remembered<str, (String, ReadPlan)>,
    /// By content of a node's spec and build ID: the rollout hash.
    pub rollout_hashes: ByContent<RolloutHash>,
    /// By content of a node's spec and restart: the pod template hash and the main container's image.
    pub template_hashes: ByContent<Arc<RenderedTarget>>,
    /// By node UID: the last result of rendering its spec.
    pub rendered: Remembered<str, RenderedSpec>,
    /// By rollout hash and restart: the pod template hash and the main container's image.
    pub renderings: Remembered<(RolloutHash, Option<RestartTime>), Rendering>,
    /// By pod template hash and claims, or by generation of a fleet's hooks: when the API server was last asked by a
    /// dry run, and its verdict. The error is the reason, in one sentence.
    pub verdicts: Remembered<str, (Instant, Result<(), String>)>,
    /// By UID of a node or a fleet, with the revision's name for a revision: when the name of its Service, or of the
    /// revision, was found to belong to another object, and to which.
    pub foreign: Remembered<str, (Instant, String)>,
    /// By node UID and kind: when the names of its objects of that kind were last found to be free.
    pub free: Remembered<(String, Kind), Instant>,
    /// By node UID and claim name: the node's generation, and when a claim that no watch shows was last asked for.
    pub unseen_claims: Remembered<(String, String), (i64, Instant)>,
    /// By UID of a node without a grant: whether its template is only written otherwise than that of its StatefulSet.
    pub same_templates: Remembered<str, SameTemplate>,
    /// By UID of a node or a StatefulSet, or, for a Service, by that of its node or fleet and `/service`: the last write to
    /// it, if admission changed it.
    pub reverted: Remembered<str, Reverted>,
    /// By node UID: since when it has been Ready, by a clock that is ahead of ours, and when that was first observed.
    pub ready_ahead: Remembered<str, (DateTime<Utc>, Instant)>,
    /// By node UID: the missing pod, and why it is missing.
    pub no_pod: Remembered<str, NoPod>,
    /// By node UID: the progress that its status does not have yet.
    pub unsaved_since: Remembered<str, Unsaved>,
    /// By object UID: when its status was last written.
    pub saved_at: Remembered<str, Instant>,
    /// By object key ([`Memory::failure_key`]): the UIDs of the object, while it is reconciled.
    uids: Remembered<str, Arc<Uids>>,
    /// By object key ([`Memory::failure_key`]): the number of failed reconciles in a row.
    pub failures: Remembered<str, u32>,
    /// By fleet UID: the nodes that already have everything that applies at once, while the same set serves.
    pub settled: Remembered<str, Arc<Settled>>,
    /// By fleet UID: the nodes whose claims already follow the fleet's spec, for one state of the claims.
    pub released: Remembered<str, Arc<Settled>>,
    /// By fleet UID: the last list of its pods from the API server itself.
    pub live_pods: Remembered<str, Arc<LivePods>>,
    /// Limits the concurrent lists of pods.
    pub turns: Turns,
    /// By fleet UID and target: why no name was found for its new set, and when.
    pub nameless: Remembered<(String, String), Nameless>,
    /// By UID of a fleet or a node and by its own: the Jobs that this process deleted. The tasks of hooks share it.
    pub deleted_jobs: Arc<DeletedJobs>,
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use std::convert::Infallible;

    use serde_json::{Value, json};

    use super::super::observed::Observed;
    use super::*;

    fn node(version: u32, spec: &Value) -> Arc<ObservedNode> {
        let metadata = json!({"name": "db-0", "uid": "u", "resourceVersion": version.to_string(), "generation": version});
        Arc::new(ObservedNode::read(&json!({"metadata": metadata, "spec": spec})))
    }

    #[test]
    fn what_was_found_of_a_content_is_known_of_all_that_have_it_and_of_no_other() {
        let spec = |image: &str, grant: &str| {
            let template = json!({"spec": {"containers": [{"name": "db", "image": "by content"}]}});
            node(1, &json!({"image": image, "grantID": grant, "podTemplate": template})).spec.clone().unwrap()
        };
        let known = ByContent::default();
        let of = |spec: &Arc<StatefulNodeSpec>, beside: &str, found: u32| {
            let Ok(found) = known.of(spec, beside, || Ok::<_, Infallible>(found));
            found
        };
        assert_eq!(of(&spec("db:1", "a"), "", 1), 1);
        assert_eq!(of(&spec("db:1", "b"), "", 2), 1, "what is said to one node is no content");
        assert_eq!(of(&spec("db:2", "a"), "", 3), 3);
        assert_eq!(of(&spec("db:1", "a"), "a restart", 4), 4);
        for image in 0..MAX_CONTENTS {
            of(&spec(&image.to_string(), ""), "", 5);
        }
        assert_eq!(
            (of(&spec("db:1", "a"), "", 6), known.known().len()),
            (6, MAX_CONTENTS),
            "it is forgotten"
        );
    }

    #[test]
    fn an_object_that_is_gone_and_one_that_another_of_its_name_replaced_are_forgotten() {
        let memory = Memory::default();
        let key = Key::new("shop", "db-0");
        let met = |own: &str, set: Option<&str>| {
            let uids = Uids { own: own.to_owned(), stateful_set: set.map(str::to_owned) };
            memory.meet(Kind::StatefulNode, &key, uids);
        };
        let learn = |own: &str, set: &str| {
            memory.plans.put(own, (String::new(), ReadPlan::default()));
            memory.free.put(&(own.to_owned(), Kind::Service), monotonic());
            memory.deleted_jobs.put(own, "a Job");
            memory.learn_revision(set, "db-0-1");
        };
        let sizes = || {
            assert_eq!(memory.deleted_jobs.jobs.len(), memory.free.len());
            (memory.plans.len(), memory.free.len(), memory.revisions.len())
        };
        met("a", None);
        learn("a", "set of a");
        met("a", Some("set of a"));
        met("a", None);
        assert_eq!(sizes(), (1, 1, 1), "a status that lost its StatefulSet says nothing of it");
        met("a", Some("another set of a"));
        assert_eq!(sizes(), (1, 1, 0), "the StatefulSet was made again");
        learn("a", "another set of a");
        met("b", Some("set of b"));
        assert_eq!(sizes(), (0, 0, 0), "the node was made again");
        learn("b", "set of b");
        memory.failures.put(&Memory::failure_key(Kind::StatefulNode, &key), 1);
        memory.part(Kind::NodeDeployment, &key);
        assert_eq!(sizes(), (1, 1, 1), "a fleet of this name");
        memory.part(Kind::StatefulNode, &key);
        assert_eq!((sizes(), memory.failures.len(), memory.uids.len()), ((0, 0, 0), 0, 0));
    }

    #[test]
    fn a_node_is_settled_as_long_as_it_and_its_fleet_are_what_they_were() {
        let fleet = |status: Value| {
            let spec = json!({"replicas": 1, "updateStrategy": {"type": "InPlace"},
                "template": {"spec": {"podTemplate": {"spec": {}}}}});
            ObservedFleet::read(&json!({"metadata": {"name": "db"}, "spec": spec, "status": status}))
        };
        let then = fleet(json!({"phase": "Running"}));
        assert_eq!(then.spec.as_ref().err(), None);
        let (known, changed) = (node(1, &json!({"podTemplate": {}})), node(1, &json!({"podTemplate": {}})));
        let settled = Settled::new(
            Arc::new(then.clone()),
            "first".to_owned(),
            vec![known.clone(), node(2, &json!({}))],
        );
        assert!(settled.has(&known) && !settled.has(&changed), "another object in memory is another state");
        let with = |status: Value| ObservedFleet { status: fleet(status).status, ..then.clone() };
        assert!(settled.holds(&with(json!({"phase": "Failed"})), "first"), "the phase applies to no node");
        assert!(!settled.holds(&then, "second"));
        assert!(!settled.holds(&with(json!({"deletionPolicy": "Retain"})), "first"));
        assert!(!settled.holds(&with(json!({"volumeClaimRetention": "Retain"})), "first"));
        assert!(
            !settled.holds(
                &with(json!({"retiring": [{"set": "first", "since": "2030-01-01T00:00:00Z"}]})),
                "first"
            )
        );
        assert!(!settled.holds(&with(json!({"rollout": {"entrantSet": "second"}})), "first"));
        assert!(!settled.holds(&fleet(json!({})), "first"), "a spec that was read anew may be another");
    }
}
