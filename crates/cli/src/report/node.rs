//! The report of a node: its health and its progress.

use chrono::{DateTime, TimeDelta, Utc};
use serde::Serialize;

use super::{Seen, age, tag};
use windlass_core::api::at_hook::message_of;
use windlass_core::api::conditions::{self, READY, Truth};
use windlass_core::api::names::ANNOTATION_RESTARTED_AT;
use windlass_core::api::names::place_of;
use windlass_core::api::{NodePhase, Reason, StatefulNodeSpec, TaskType, Unconverged};
use windlass_core::revision::{self, RevisionData};
use windlass_engine::{Plan, TaskRecord};
use windlass_kube_port::observed::ObservedNode;

/// The health of a node, the worst first.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd, Serialize)]
pub enum Health {
    /// It cannot run what it was granted, or does not exist and cannot be created.
    Failed,
    /// It is unavailable, and nothing is in progress.
    Down,
    /// It is unavailable, and a change is in progress.
    Moving,
    /// It is ready at the target, but not yet for `minReadySeconds`.
    Settling,
    /// It is available at the previous revision.
    Before,
    /// It is available at the target.
    Serving,
}

impl Health {
    /// True if it is always listed by name.
    #[must_use]
    pub fn is_listed_by_name(self) -> bool {
        self < Self::Settling
    }

    /// True if it has failed, or is unavailable although nothing is in progress.
    #[must_use]
    pub fn is_unhealthy(self) -> bool {
        matches!(self, Self::Failed | Self::Down)
    }
}

#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeReport {
    pub name: String,
    pub set: String,
    /// How it is doing.
    pub health: Health,
    /// The image that its pod was observed to run; empty without a pod.
    pub image: String,
    /// The image that it was granted.
    pub target_image: String,
    /// The revision of a pod of a StatefulSetRollout, without the StatefulSet's name; absent of a node, and without a pod.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub revision: String,
    /// The revision that a pod of a StatefulSetRollout goes to; absent of a node.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub target_revision: String,
    /// Why it is unavailable, in one word: the kubelet's reason, or one of Windlass.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// What is done to it, or what blocks it, in a sentence.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// Since when it is unavailable.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<DateTime<Utc>>,
    /// The current task of its plan.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub task: String,
    /// True if its pod is unavailable but its status has not reported that for long: the operator does not reconcile it.
    #[serde(skip)]
    pub unseen: bool,
}

impl NodeReport {
    /// The tags that it moves between: `1.1 → 1.2`. Without a pod, the first is that of the rollout's start, if
    /// known.
    #[must_use]
    pub fn versions(&self, began_from: &str) -> String {
        if !self.target_revision.is_empty() {
            return match (self.revision.as_str(), self.target_revision.as_str()) {
                ("", target) => format!("→ {target}"),
                (revision, target) if revision == target => target.to_owned(),
                (revision, target) => format!("{revision} → {target}"),
            };
        }
        let image =
            if self.image.is_empty() && began_from != self.target_image { began_from } else { &self.image };
        let (now, next) = (tag(image), tag(&self.target_image));
        match (image.is_empty(), image == self.target_image || self.target_image.is_empty()) {
            (false, true) => now,
            (false, false) => format!("{now} → {next}"),
            (true, _) if self.target_image.is_empty() => String::new(),
            (true, _) => format!("→ {next}"),
        }
    }

    /// What it runs, in a word: the revision of a pod of a StatefulSetRollout, or a node's image tag.
    #[must_use]
    pub fn runs(&self) -> String {
        if self.target_revision.is_empty() { tag(&self.image) } else { self.revision.clone() }
    }

    /// Its reason and message, if any.
    #[must_use]
    pub fn words(&self) -> String {
        let word = if self.health == Health::Moving { &self.task } else { &self.reason };
        match (word.is_empty(), self.message.is_empty()) {
            (true, _) => self.message.clone(),
            (false, true) => word.clone(),
            (false, false) => format!("{word}: {}", self.message),
        }
    }

    /// A node of which no object was read, from the fleet's status.
    #[must_use]
    pub fn named(fleet: &str, unconverged: &Unconverged) -> Self {
        let health = match unconverged.reason.parse().ok() {
            Some(Reason::WaitingForWave) => Health::Before,
            Some(Reason::NotReady | Reason::Terminating) => Health::Moving,
            Some(Reason::SidecarUnreachable | Reason::Missing) => Health::Down,
            _ => Health::Failed,
        };
        Self {
            name: unconverged.name.clone(),
            set: place_of(fleet, &unconverged.name).map(|(set, _)| set.into()).unwrap_or_default(),
            health,
            image: String::new(),
            target_image: String::new(),
            revision: String::new(),
            target_revision: String::new(),
            reason: unconverged.reason.clone(),
            message: unconverged.message.clone(),
            since: Some(unconverged.since),
            task: String::new(),
            unseen: false,
        }
    }
}

/// The desired state of a node, to compare it with the observed one.
pub(super) struct Goal {
    revision: Option<RevisionData>,
    restarted_at: String,
    min_ready: TimeDelta,
}

impl Goal {
    pub(super) fn of(seen: &Seen) -> Self {
        let spec = seen.fleet.spec.as_ref().ok();
        Self {
            revision: spec.map(|spec| RevisionData::of(&spec.template.spec)),
            restarted_at: seen.fleet.status.restarted_at.clone(),
            min_ready: TimeDelta::seconds(spec.map_or(0, |spec| spec.min_ready_seconds)),
        }
    }

    fn is_met_by(&self, node: &ObservedNode, spec: &StatefulNodeSpec) -> bool {
        let restarted = node.meta.annotation(ANNOTATION_RESTARTED_AT).unwrap_or_default();
        let desired = self.revision.clone().map(|data| data.with_sizes_of(&spec.volume_claim_templates));
        desired == Some(RevisionData::of(spec)) && *restarted >= *self.restarted_at
    }
}

/// How long a pod may be not Ready until its node's status has to say so: the objects are read one after another, and
/// the time is that of another machine.
pub(super) const SEEN_WITHIN: TimeDelta = TimeDelta::seconds(30);

/// Since when a node's pod is not Ready, if the operator should have observed that. A missing pod has no such time; its
/// StatefulSet creates another one without the operator, which is not Ready at first.
fn down_since(seen: &Seen, node: &ObservedNode, now: DateTime<Utc>) -> Option<DateTime<Utc>> {
    let ready = seen.pod(&node.meta.name)?.ready.as_ref().filter(|ready| !ready.holds)?;
    ready.since.filter(|since| now - *since > SEEN_WITHIN)
}

/// Reports on a node.
pub(super) fn report(seen: &Seen, goal: &Goal, node: &ObservedNode, now: DateTime<Utc>) -> NodeReport {
    let (meta, status) = (&node.meta, &node.status);
    let spec = node.spec.as_deref().ok();
    let plan = status.plan.as_ref().filter(|plan| plan.may_be_active());
    let plan = plan.and_then(|plan| plan.parse().ok()).filter(Plan::is_active);
    let task = plan.as_ref().and_then(Plan::current_task);
    let ready = conditions::find(&status.conditions, READY).filter(|c| c.status == Truth::True.as_ref());
    let is_behind = status.observed_generation != meta.generation;
    let granted =
        spec.is_none_or(|s| s.granted_hash.is_empty() || s.granted_hash == status.pod_template_hash);
    let serves = ready.is_some() && !meta.terminating && granted && !is_behind;
    let free_at = ready.map(|ready| ready.last_transition_time + goal.min_ready);
    let at_goal = spec.is_some_and(|spec| goal.is_met_by(node, spec));
    let at_rest = serves && task.is_none_or(|task| TaskType::AwaitRemoval.is(task));
    let down = down_since(seen, node, now).filter(|_| at_rest);
    let health = if status.phase == NodePhase::Failed.as_ref() || node.spec.is_err() {
        Health::Failed
    } else if down.is_some() {
        Health::Down
    } else if at_rest {
        match free_at {
            Some(at) if at_goal && at > now => Health::Settling,
            _ if at_goal => Health::Serving,
            _ => Health::Before,
        }
    } else if plan.is_some() || meta.terminating || !granted || is_behind {
        Health::Moving
    } else {
        Health::Down
    };
    let unseen = down.is_some() && health == Health::Down;
    let problem = status.problem.as_ref().filter(|_| health.is_listed_by_name());
    let suspended = conditions::find(&status.conditions, READY)
        .filter(|ready| ready.reason == Reason::Suspended.as_ref() && task.is_none());
    let message = match (health, problem) {
        (Health::Moving | Health::Down, _) if let Some(ready) = suspended => ready.message.clone(),
        (Health::Settling, _) => {
            let left = free_at.map_or_else(String::new, |at| age(at - now + TimeDelta::milliseconds(999)));
            format!("ready; available in {left}")
        }
        (Health::Moving, Some(problem)) if task.is_none_or(|task| task.message.is_empty()) => {
            problem.message.clone()
        }
        (Health::Down, _) if unseen => POD_IS_DOWN.to_owned(),
        (Health::Failed | Health::Down, Some(problem)) => problem.message.clone(),
        (Health::Failed, None) => node.spec.as_ref().err().cloned().unwrap_or_default(),
        (Health::Moving, _) => moving(seen, node, task, now),
        _ => String::new(),
    };
    NodeReport {
        name: meta.name.clone(),
        set: place_of(&seen.fleet.meta.name, &meta.name).map(|(set, _)| set.into()).unwrap_or_default(),
        health,
        image: status.current_image.clone(),
        target_image: spec.and_then(revision::main_image).unwrap_or_default().to_owned(),
        revision: String::new(),
        target_revision: String::new(),
        reason: problem.map(|problem| problem.reason.clone()).unwrap_or_default(),
        message,
        since: problem.map(|problem| problem.since).or(down.filter(|_| unseen)),
        task: task.map(|task| task.type_.clone()).unwrap_or_default(),
        unseen,
    }
}

/// The message of a node whose pod is not Ready although its status says that it is.
const POD_IS_DOWN: &str = "its pod is not Ready; the operator has not observed that";
/// The message of `replace-pod` while the old pod terminates.
const OLD_POD_TERMINATES: &str = "waiting for the old pod to terminate";
/// The default grace period of pods, in seconds.
const GRACE_SECONDS: i64 = 30;

/// The progress of a moving node: what its task waits for or, if that is not in the status, the state of its pod.
fn moving(seen: &Seen, node: &ObservedNode, task: Option<&TaskRecord>, now: DateTime<Utc>) -> String {
    let pod = seen.pod(&node.meta.name);
    let goes = pod.is_some_and(|pod| pod.meta.terminating);
    if goes || task.is_some_and(|task| task.message == OLD_POD_TERMINATES) {
        let spec = node.spec.as_deref().ok();
        let grace = spec.and_then(|s| s.pod_template["spec"]["terminationGracePeriodSeconds"].as_i64());
        let began = task.filter(|task| TaskType::ReplacePod.is(task)).and_then(|task| task.started_at);
        let passed =
            began.map(|began| format!(", {} of {}s", age(now - began), grace.unwrap_or(GRACE_SECONDS)));
        return format!("the old pod is terminating{}", passed.unwrap_or_default());
    }
    if let Some(task) = task.filter(|task| !task.message.is_empty()) {
        return message_of(task);
    }
    match pod {
        _ if node.meta.terminating => "the node is being deleted".to_owned(),
        Some(pod) if !pod.is_ready() => "its pod is starting".to_owned(),
        None if !seen.pods.is_empty() => "its pod is being created".to_owned(),
        _ => String::new(),
    }
}
