//! The pods of existing StatefulSets as the nodes of a fleet. No object per pod could record a grant, so a pod's grant
//! is the target of its plan in `status.nodes`. Pure.

use std::collections::BTreeMap;
use std::sync::Arc;

use chrono::{DateTime, TimeDelta, Utc};

use super::child::{
    ChildFacts, ControllerFacts, GrantFacts, GrantTime, HealthFacts, LeaveFacts, PodFacts, RestartFacts,
};
use super::drain::{Drain, Draining};
use super::facts::{Group, Rendering};
use super::topology::{Domain, Order};
use crate::api::names::ANNOTATION_UPDATE_STRATEGY;
use crate::api::status::MAX_PROBLEM_BYTES;
use crate::api::{
    AtHook, Ending, GrantId, LastNodes, NodeName, PodMove, PodTemplateHash, Problem, Reason, Rejected,
    RestartTime, RolloutHash, StatefulSetStatus, TaskType, Unconverged,
};
use crate::engine::sentence::cut;
use crate::engine::{Plan, TaskState};
use crate::observed::{ExternalSet, ObservedPod, ObservedStatefulSet};
use crate::planner::growth::Growth;
use crate::planner::node::decide::recipes::MOVE_NODE;
use crate::planner::node::problem::pod_facts;
use crate::planner::waits::{self, Wait};
use crate::revision::hash::revisions_hash;

/// A selected StatefulSet and its pods.
#[derive(Clone, Debug)]
pub struct PodSet {
    /// The StatefulSet.
    pub set: Arc<ObservedStatefulSet>,
    /// Its update revision. While its controller has not observed the latest generation, the one that was known before.
    pub update_revision: String,
    /// The pods that it controls, by name.
    pub pods: Vec<Arc<ObservedPod>>,
    /// The last warning about each of these pods, by UID.
    pub warnings: BTreeMap<String, String>,
    /// Why its controller could not create a pod when it last tried, and when.
    pub refusal: Option<(DateTime<Utc>, String)>,
    /// For how long each of its pods has been missing.
    pub missing: BTreeMap<String, TimeDelta>,
}

/// The plan of a pod that is being updated.
#[derive(Clone, Debug, PartialEq)]
pub struct PodPlan {
    /// The pod's name.
    pub pod: String,
    /// The plan.
    pub plan: Plan,
}

/// Tells the failure domain of a pod.
pub type DomainOf<'a> = &'a dyn Fn(i32, &str) -> Domain;

/// Everything that the facts about pods are computed from.
#[derive(Clone, Copy)]
pub struct PodsInput<'a> {
    /// The StatefulSets, in the order in which they are updated.
    pub sets: &'a [PodSet],
    /// The plans of the pods that are being updated.
    pub plans: &'a [PodPlan],
    /// The pods that are moved, or were, by name.
    pub moves: &'a BTreeMap<String, PodMove>,
    /// The machines that are being drained.
    pub draining: &'a Draining,
    /// The failure domain of a pod, by ordinal and name.
    pub domain: DomainOf<'a>,
    /// `strategy.order.last`.
    pub last: Option<&'a LastNodes>,
    /// The target of the active rollout, if there is one.
    pub target: Option<&'a RolloutHash>,
    /// The rejected target, if there is one.
    pub rejected: Option<&'a Rejected>,
    /// When the active rollout began.
    pub began: Option<DateTime<Utc>>,
    /// The restart that the active rollout carries out, and since when.
    pub restart: Option<(&'a RestartTime, DateTime<Utc>)>,
    /// `strategy.progressDeadlineSeconds`.
    pub deadline_seconds: i64,
    /// The pods that the status lists as not converged.
    pub unconverged: &'a [Unconverged],
    /// The time.
    pub now: DateTime<Utc>,
}

/// The facts about pods.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Pods {
    /// One for each ordinal of each StatefulSet, whether the pod exists or not, by ordinal.
    pub children: Vec<ChildFacts>,
    /// The StatefulSets, in the order in which they are updated.
    pub groups: Vec<Group>,
    /// The pods of ordinals that were removed by scaling down.
    pub shutting_down: Vec<String>,
    /// The time that these pods may still take to end.
    pub ending: Option<Wait>,
    /// What the known targets are.
    pub renderings: BTreeMap<(RolloutHash, Option<RestartTime>), Rendering>,
}

/// The partition of a held StatefulSet: above every ordinal.
pub const HOLD_PARTITION: i64 = 1_000_000;

/// What the update strategy of a StatefulSet leads to.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Mode {
    /// No pod is updated; a lost pod is created again at the current revision.
    Hold,
    /// No pod is updated; a lost pod is created again at the update revision.
    Window,
    /// The StatefulSet controller updates pods by itself.
    Native,
}

impl Mode {
    /// The mode of a StatefulSet.
    #[must_use]
    pub fn of(set: &ObservedStatefulSet) -> Self {
        let live = set.external.as_deref().map(|external| &external.update_strategy);
        let partition = live.and_then(|live| live["rollingUpdate"]["partition"].as_i64()).unwrap_or_default();
        match set.update_strategy.as_str() {
            "OnDelete" => Self::Window,
            "RollingUpdate" if partition >= HOLD_PARTITION => Self::Hold,
            _ => Self::Native,
        }
    }
}

/// True if a StatefulSetRollout has held a StatefulSet: its annotation says what to restore.
#[must_use]
pub fn is_adopted(set: &ObservedStatefulSet) -> bool {
    set.meta.annotation(ANNOTATION_UPDATE_STRATEGY).is_some()
}

impl PodSet {
    /// The mode in which a pod is created at this target.
    #[must_use]
    pub fn mode_for(&self, target: &str) -> Mode {
        let revision = revision_of(target);
        let needs_window = revision == self.update_revision && revision != self.external().current_revision;
        if needs_window { Mode::Window } else { Mode::Hold }
    }

    /// The mode that the StatefulSet needs now. It is held, except while:
    /// - a pod is about to be replaced at its update revision;
    /// - all its pods are at that revision, and the update may not complete yet. A lost pod then comes back as it was, and the
    ///   update can still be rolled back: a held StatefulSet completes as soon as all pods are Ready.
    ///
    /// `plans`: those that are stored, so that they may act. `is_wanted`: false if the update is rejected or rolled back.
    #[must_use]
    pub fn mode_now(&self, plans: &[PodPlan], is_wanted: bool) -> Mode {
        let active: Vec<&PodPlan> =
            plans.iter().filter(|of| of.plan.is_active() && self.has(&of.pod)).collect();
        let goes_back = |of: &&PodPlan| self.mode_for(&of.plan.target_hash) == Mode::Hold;
        // If the API server rejects the pod at its previous revision, only the window recreates it.
        let replaces = |of: &&PodPlan| {
            of.plan.current_task().is_some_and(|task| TaskType::ReplacePod.is(task))
                || self.pod(&of.pod).is_none()
        };
        let is_window = if active.iter().any(goes_back) {
            self.would_complete()
        } else {
            let may_complete = is_wanted && active.is_empty() && self.would_complete();
            active.iter().any(replaces) || (self.has_moved() && !may_complete)
        };
        if is_window { Mode::Window } else { Mode::Hold }
    }

    /// True if all pods that exist are at its update revision, and the update is not complete.
    fn has_moved(&self) -> bool {
        let mut pods = self.names().filter_map(|name| self.pod(&name)).peekable();
        self.current_revision() != self.update_revision
            && pods.peek().is_some()
            && pods.all(|pod| pod.revision == self.update_revision)
    }

    /// True if its controller would complete the update as soon as it is held.
    #[must_use]
    pub fn would_complete(&self) -> bool {
        self.current_revision() != self.update_revision
            && self.all_pods(|pod| {
                pod.revision == self.update_revision && pod.is_ready() && !pod.meta.terminating
            })
    }

    fn all_pods(&self, holds: impl Fn(&ObservedPod) -> bool) -> bool {
        self.names().all(|name| self.pod(&name).is_some_and(|pod| holds(pod)))
    }

    /// True if one of its ordinals has this pod name.
    #[must_use]
    pub fn has(&self, pod: &str) -> bool {
        let ordinal = pod.strip_prefix(&self.set.meta.name).and_then(|rest| rest.strip_prefix('-'));
        let ordinal = ordinal.filter(|text| *text == "0" || !text.starts_with(['0', '+']));
        let start = self.external().start;
        ordinal
            .and_then(|text| text.parse::<i64>().ok())
            .is_some_and(|ordinal| (start..start + i64::from(self.replicas())).contains(&ordinal))
    }

    fn external(&self) -> &ExternalSet {
        static NONE: std::sync::LazyLock<ExternalSet> = std::sync::LazyLock::new(ExternalSet::default);
        self.set.external.as_deref().unwrap_or(&NONE)
    }

    fn replicas(&self) -> i32 {
        i32::try_from(self.set.replicas).unwrap_or(i32::MAX).max(0)
    }

    /// The names of its pods, by ordinal.
    pub fn names(&self) -> impl Iterator<Item = String> + use<> {
        let start = self.external().start;
        let set = self.set.meta.name.clone();
        (0..i64::from(self.replicas())).map(move |n| format!("{set}-{}", start + n))
    }

    /// Its pod of this name, if there is one.
    #[must_use]
    pub fn pod(&self, name: &str) -> Option<&Arc<ObservedPod>> {
        let at = self.pods.binary_search_by(|pod| pod.meta.name.as_str().cmp(name)).ok()?;
        self.pods.get(at)
    }

    /// The revision at which its controller creates lost pods while it is held. The controller sets it to the update revision
    /// once all pods have that and are Ready.
    #[must_use]
    pub fn current_revision(&self) -> &str {
        let current = self.external().current_revision.as_str();
        if current.is_empty() { &self.update_revision } else { current }
    }

    /// What the status of a StatefulSetRollout has of it.
    #[must_use]
    pub fn status(&self, held: bool) -> StatefulSetStatus {
        let count = |wanted: &dyn Fn(&ObservedPod) -> bool| {
            self.names().filter(|name| self.pod(name).is_some_and(|pod| wanted(pod))).count() as i32
        };
        StatefulSetStatus {
            name: self.set.meta.name.clone(),
            uid: self.set.meta.uid.clone(),
            current_revision: self.current_revision().to_owned(),
            update_revision: self.update_revision.clone(),
            replicas: self.replicas(),
            ready: count(&|pod| pod.is_ready() && !pod.meta.terminating),
            updated: count(&|pod| pod.revision == self.update_revision),
            held,
        }
    }
}

/// The rollout hash of the update revisions of StatefulSets: what is desired.
#[must_use]
pub fn desired(sets: &[PodSet]) -> RolloutHash {
    revisions_hash(sets.iter().map(|set| (set.set.meta.name.as_str(), set.update_revision.as_str())))
}

/// The rollout hash of the current revisions of StatefulSets: what last completed.
#[must_use]
pub fn completed(sets: &[PodSet]) -> RolloutHash {
    revisions_hash(sets.iter().map(|set| (set.set.meta.name.as_str(), set.current_revision())))
}

fn is_available(pod: &ObservedPod, min_ready_seconds: i64, now: DateTime<Utc>) -> bool {
    let ready = pod.ready.as_ref().filter(|condition| condition.holds);
    let is_over = |since: DateTime<Utc>| since + TimeDelta::seconds(min_ready_seconds) <= now;
    ready.is_some_and(|ready| min_ready_seconds == 0 || ready.since.is_some_and(is_over))
}

/// The hash of what a pod of this revision runs: its revision and, once a restart was accepted and the pod was created
/// after it, that restart.
#[must_use]
pub fn pod_hash(revision: &str, restart: Option<&RestartTime>) -> Option<PodTemplateHash> {
    match restart {
        _ if revision.is_empty() => None,
        Some(restart) => PodTemplateHash::recorded(format!("{revision}@{restart}")),
        None => PodTemplateHash::recorded(revision),
    }
}

/// The revision in such a hash.
#[must_use]
pub fn revision_of(hash: &str) -> &str {
    hash.split_once('@').map_or(hash, |(revision, _)| revision)
}

/// By how much the clock of the API server may be behind that of Windlass.
const CLOCKS_DIFFER: TimeDelta = TimeDelta::seconds(10);

/// A pod that was created so shortly before a restart is not replaced: its time has no fractions, and is by another clock.
const AT_ONCE: TimeDelta = TimeDelta::seconds(2);

/// How long a pod that came back as it was before, in the middle of a rollout, is not updated.
const LEFT_ALONE: TimeDelta = TimeDelta::seconds(10);
/// How long the controller has for a pod that is missing in the middle of a rollout, before it is updated as it is.
const CREATED_WITHIN: TimeDelta = TimeDelta::seconds(60);

/// True if a pod was created after a restart began.
fn is_after(pod: &ObservedPod, began: DateTime<Utc>) -> bool {
    pod.meta.created_at.is_some_and(|created| created > began - AT_ONCE)
}

/// Computes the facts.
#[must_use]
pub fn observe(input: &PodsInput<'_>) -> Pods {
    let (requested, current) = (desired(input.sets), completed(input.sets));
    let mut pods = Pods::default();
    let restarts = || [None].into_iter().chain(input.restart.map(|(restart, _)| Some(restart.clone())));
    for hash in [&requested, &current] {
        for restart in restarts() {
            let any = Rendering { hash: PodTemplateHash::computed(hash.to_string()), image: String::new() };
            pods.renderings.insert((hash.clone(), restart), any);
        }
    }
    let mut end: i32 = input.sets.iter().map(PodSet::replicas).sum();
    for set in input.sets {
        let begin = end - set.replicas();
        let is_ordered = set.external().is_ordered;
        let incomplete = (set.current_revision() != set.update_revision).then(|| requested.clone());
        let mut group = Group { ordinals: begin..end, is_ordered, incomplete, renderings: BTreeMap::new() };
        // The update revision is last: it wins where both are one target.
        for (hash, revision) in
            [(&current, set.current_revision()), (&requested, set.update_revision.as_str())]
        {
            for restart in restarts() {
                let Some(of) = pod_hash(revision, restart.as_ref()) else { continue };
                let rendering = Rendering { hash: of, image: String::new() };
                group.renderings.insert((hash.clone(), restart), rendering);
            }
        }
        let of = Of { input, set, group: &group, requested: &requested, current: &current };
        let names: Vec<String> = set.names().collect();
        pods.children.extend(names.iter().zip(begin..).filter_map(|(name, ordinal)| of.child(name, ordinal)));
        let surplus = set.pods.iter().filter(|pod| !names.contains(&pod.meta.name));
        for pod in surplus {
            pods.shutting_down.push(pod.meta.name.clone());
            pods.ending = Wait::union(pods.ending.into_iter().chain(waits::of_pod(pod, input.now)));
        }
        pods.groups.push(group);
        end = begin;
    }
    pods.children.sort_by_key(|child| child.ordinal);
    pods
}

/// The StatefulSet whose pods are observed.
struct Of<'a> {
    input: &'a PodsInput<'a>,
    set: &'a PodSet,
    group: &'a Group,
    requested: &'a RolloutHash,
    current: &'a RolloutHash,
}

impl Of<'_> {
    fn child(&self, name: &str, ordinal: i32) -> Option<ChildFacts> {
        let Self { input, set, .. } = self;
        let now = input.now;
        let pod = set.pod(name).map(|pod| &**pod);
        let told = input.restart.filter(|(_, began)| pod.is_none_or(|pod| is_after(pod, *began)));
        let told = told.map(|(restart, _)| restart);
        let hash = pod.and_then(|pod| pod_hash(&pod.revision, told));
        let plan = input.plans.iter().find(|of| of.pod == name && of.plan.is_active()).map(|of| &of.plan);
        let granted = plan.and_then(|plan| PodTemplateHash::recorded(plan.target_hash.as_str()));
        let grant = granted.clone().or_else(|| hash.clone());
        let min_ready = set.external().min_ready_seconds;
        let facts = pod.map(|pod| {
            let warning = set.warnings.get(&pod.meta.uid).map(String::as_str);
            pod_facts(pod, "", Some(&set.set.meta.uid), None, warning, now)
        });
        let ready_since = facts.as_ref().filter(|facts| facts.ready).and_then(|facts| facts.ready_since);
        let available = pod.is_some_and(|pod| !pod.meta.terminating && is_available(pod, min_ready, now));
        let wait = match ready_since {
            Some(since) => Wait::of(since, min_ready).filter(|_| !available),
            None => pod.and_then(|pod| waits::of_pod(pod, now)),
        };
        let since = |pod: &ObservedPod| pod.ready.as_ref().and_then(|c| c.since).or(pod.meta.created_at);
        let problem = match (pod, facts.as_ref()) {
            (Some(pod), Some(facts)) => facts
                .problem
                .clone()
                .map(|problem| Problem { since: self.since(name, since(pod).unwrap_or(now)), ..problem }),
            _ => Some(self.missing(name)),
        };
        Some(ChildFacts {
            name: NodeName::recorded(name)?,
            ordinal,
            surplus: false,
            terminating: false,
            leave: LeaveFacts::default(),
            spec_hash: self.target_of(grant.as_ref()),
            restarts: RestartFacts {
                asked: input.restart.map(|(restart, _)| restart.clone()),
                told: told.cloned(),
            },
            controller: ControllerFacts { rolling: plan.is_some(), ..ControllerFacts::default() },
            grant: GrantFacts {
                time: self.grant_time(plan, pod, hash.as_ref(), wait, available),
                is_proven: available,
                id: plan.and_then(|plan| GrantId::recorded(plan.id.as_str())),
                spent_id: None,
                again_at: self.again_at(name, pod, hash.as_ref()).filter(|_| plan.is_none()),
                hash: grant,
            },
            pod: PodFacts {
                hash,
                image: String::new(),
                was_edited: false,
                ready: facts.as_ref().is_some_and(|facts| facts.ready),
                ready_since,
                available,
                ever_ready: true,
                failed: facts.as_ref().is_some_and(|facts| facts.cannot_run),
                runs: facts.as_ref().is_some_and(|facts| facts.running && !facts.terminating),
                drain: Drain::of(input.moves.get(name), pod, input.draining, None),
            },
            health: HealthFacts { unreachable: None, problem, wait },
            sidecar: None,
            at_hook: plan.and_then(AtHook::of),
            growth: Growth::Done,
            domain: (input.domain)(ordinal, name),
            order: input.last.map_or(Order::Any, |last| Order::by_labels(last, pod)),
        })
    }

    /// Since when no available pod has this name, unless the existing pod became available since. A pod that is moved is
    /// listed nowhere else.
    fn since(&self, name: &str, own: DateTime<Utc>) -> DateTime<Utc> {
        let is_move =
            |of: &&PodPlan| of.pod == name && of.plan.is_active() && self.input.moves.contains_key(name);
        let own = self.input.plans.iter().find(is_move).map_or(own, |of| of.plan.started_at.min(own));
        let serves = |known: &&Unconverged| known.reason == Reason::WaitingForWave.as_ref();
        let known = self.input.unconverged.iter().find(|known| known.name == name);
        known.filter(|known| !serves(known)).map_or(own, |known| known.since.min(own))
    }

    /// Why the controller cannot create a pod with this name, if it reported this since the pod is missing.
    fn refusal(&self, name: &str) -> Option<&str> {
        let since = self.since(name, self.input.now);
        let (at, note) = self.set.refusal.as_ref()?;
        (*at >= since - CLOCKS_DIFFER && note.contains(&format!("Pod {name} "))).then_some(note)
    }

    /// Why no pod has this name.
    fn missing(&self, name: &str) -> Problem {
        // No object records since when the pod is missing.
        let since = self.since(name, self.input.now);
        let unknown = || format!("StatefulSet {} has no pod with this name", self.set.set.meta.name);
        let message = self.refusal(name).map_or_else(unknown, str::to_owned);
        let message = cut(&message, MAX_PROBLEM_BYTES);
        Problem { reason: Reason::Missing.to_string(), message, since, ..Problem::default() }
    }

    /// When a pod may be granted an update. One that went away in the middle of a rollout, or came back as it was before, is
    /// left alone for a while: what took it away may do so again, and each update deletes it once more.
    fn again_at(
        &self,
        name: &str,
        pod: Option<&ObservedPod>,
        hash: Option<&PodTemplateHash>,
    ) -> Option<DateTime<Utc>> {
        let (began, now) = (self.input.began?, self.input.now);
        let Some(pod) = pod else {
            // Its controller creates it in a moment, unless the API server rejects the pod.
            let missing = self.set.missing.get(name).copied().unwrap_or_default();
            let again = now + CREATED_WITHIN - missing;
            return (self.refusal(name).is_none() && again > now).then_some(again);
        };
        let since = pod.meta.created_at?;
        // It was to go back, and its controller was faster than the hold: it is not deleted again while that may repeat itself.
        let goes_back = self.input.target.is_some_and(|target| target != self.requested);
        if goes_back && began < since && !self.is_at_target(hash) && self.set.would_complete() {
            return Some(now + LEFT_ALONE);
        }
        let again = since + LEFT_ALONE;
        // A clock that was set back does not hold it up for long.
        let lately = began < since && since <= now + CLOCKS_DIFFER && now < again;
        (lately && !self.is_at_target(hash)).then_some(again)
    }

    /// The rollout hash that a pod with this grant is at; `None` if it is at neither, or at one that was rolled back.
    fn target_of(&self, grant: Option<&PodTemplateHash>) -> Option<RolloutHash> {
        let revision = revision_of(grant?.as_str());
        let rolled_back =
            self.input.rejected.filter(|rejected| rejected.ending() == Some(Ending::RolledBack));
        let is_usable = |hash: &&RolloutHash| rolled_back.is_none_or(|rejected| **hash != *rejected.hash);
        let mut known = self.input.target.into_iter().chain([self.requested, self.current]).filter(is_usable);
        let is_at = |hash: &&RolloutHash| {
            let rendering = self.group.renderings.get(&((*hash).clone(), None));
            rendering.is_some_and(|rendering| revision_of(rendering.hash.as_str()) == revision)
        };
        known.find(is_at).cloned()
    }

    /// True if a pod with this hash was moved by an earlier rollout to the target. Where the revision does not change, or the
    /// rollout is a restart, that is not known.
    fn is_moved_by_another(&self, hash: Option<&PodTemplateHash>) -> bool {
        let is_update = self.set.current_revision() != self.set.update_revision;
        is_update && self.input.restart.is_none() && self.is_at_target(hash)
    }

    /// True if a pod with this hash is of the revision that the active rollout goes to.
    fn is_at_target(&self, hash: Option<&PodTemplateHash>) -> bool {
        self.target_of(hash).is_some_and(|of| Some(&of) == self.input.target)
    }

    /// The time that a pod has to become available with what it was granted.
    fn grant_time(
        &self,
        plan: Option<&Plan>,
        pod: Option<&ObservedPod>,
        hash: Option<&PodTemplateHash>,
        wait: Option<Wait>,
        available: bool,
    ) -> GrantTime {
        // That a moved pod does not start says nothing about a target.
        let is_move = plan.is_some_and(|plan| plan.recipe == MOVE_NODE);
        if available || is_move || pod.is_some_and(|pod| pod.meta.terminating) {
            return GrantTime::None;
        }
        let replace = plan.and_then(|plan| plan.tasks.iter().find(|task| TaskType::ReplacePod.is(task)));
        let begun = match (plan, pod) {
            (Some(plan), Some(pod)) if hash.is_some_and(|hash| *hash == *plan.target_hash) => {
                replace.and_then(|task| task.finished_at).or(pod.meta.created_at)
            }
            // It was deleted, and is not created again.
            (Some(_), None) => {
                replace.filter(|task| task.state != TaskState::Pending).and_then(|task| task.started_at)
            }
            // An earlier rollout to the same target moved it.
            (None, Some(pod)) if self.is_moved_by_another(hash) => {
                self.input.began.filter(|began| pod.meta.created_at.is_some_and(|created| created <= *began))
            }
            (Some(_), Some(_)) | (None, _) => None,
        };
        let Some(begun) = begun else { return GrantTime::None };
        let allowed = TimeDelta::seconds(self.input.deadline_seconds);
        let until = wait.map_or(begun, |wait| wait.until.max(begun)) + allowed;
        if until <= self.input.now { GrantTime::Over } else { GrantTime::Until(until) }
    }
}
