//! How one node is doing, and what happens to it.

use chrono::{DateTime, TimeDelta, Utc};
use serde::Serialize;

use super::{Seen, age, in_namespace, tag};
use crate::api::TaskType;
use crate::api::conditions::{self, READY};
use crate::api::names::ANNOTATION_RESTARTED_AT;
use crate::api::names::place_of;
use crate::api::{StatefulNodeSpec, Unconverged};
use crate::cluster::observed::ObservedNode;
use crate::engine::{Plan, TaskRecord};
use crate::revision::{self, RevisionData};

/// How a node is doing, the worst first.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd, Serialize)]
pub enum Health {
    /// It cannot run what it was granted, or does not exist and cannot.
    Failed,
    /// It does not serve, and nothing is being done about it.
    Down,
    /// It does not serve, and is on its way.
    Moving,
    /// It serves what is wanted, and not yet for `minReadySeconds`.
    Settling,
    /// It serves what was before.
    Before,
    /// It serves what is wanted.
    Serving,
}

impl Health {
    /// Whether it is named one by one, however many there are.
    #[must_use]
    pub fn is_ill(self) -> bool {
        self < Self::Settling
    }
}

/// A node, as it is shown.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeReport {
    /// Its name.
    pub name: String,
    /// The set that it belongs to.
    pub set: String,
    /// How it is doing.
    pub health: Health,
    /// The image that its pod was observed to run; empty where none runs.
    pub image: String,
    /// The image that it was granted.
    pub target_image: String,
    /// One word for why it does not serve: the kubelet's, or one of Windlass's own.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// What happens to it or stands in its way, in a sentence.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// Since when it does not serve.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<DateTime<Utc>>,
    /// The task that its own plan is at.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub task: String,
}

impl NodeReport {
    /// The tag that it runs, and the one that it moves to: `1.1 → 1.2`. One that runs nothing comes from what the rollout began
    /// from, where that is known.
    #[must_use]
    pub fn versions(&self, began_from: &str) -> String {
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

    /// What happens to it, or why it does not serve: a word and a sentence, as far as there are any.
    #[must_use]
    pub fn words(&self) -> String {
        let word = if self.health == Health::Moving { &self.task } else { &self.reason };
        match (word.is_empty(), self.message.is_empty()) {
            (true, _) => self.message.clone(),
            (false, true) => word.clone(),
            (false, false) => format!("{word}: {}", self.message),
        }
    }

    /// A node of which no object was seen: what the fleet's status says of it.
    #[must_use]
    pub fn named(fleet: &str, said: &Unconverged) -> Self {
        let health = match said.reason.as_str() {
            "WaitingForWave" => Health::Before,
            "NotReady" | "Terminating" => Health::Moving,
            "SidecarUnreachable" | "Missing" => Health::Down,
            _ => Health::Failed,
        };
        Self {
            name: said.name.clone(),
            set: place_of(fleet, &said.name).map(|(set, _)| set.to_owned()).unwrap_or_default(),
            health,
            image: String::new(),
            target_image: String::new(),
            reason: said.reason.clone(),
            message: said.message.clone(),
            since: Some(said.since),
            task: String::new(),
        }
    }
}

/// What a node of the fleet is to be, to be compared with what it is.
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
        self.revision.as_ref() == Some(&RevisionData::of(spec)) && *restarted >= *self.restarted_at
    }
}

/// Reports on a node.
pub(super) fn report(seen: &Seen, goal: &Goal, node: &ObservedNode, now: DateTime<Utc>) -> NodeReport {
    let (meta, status) = (&node.meta, &node.status);
    let spec = node.spec.as_deref().ok();
    let plan = status.plan.as_ref().filter(|plan| plan.may_be_active());
    let plan = plan.and_then(|plan| plan.parse().ok()).filter(Plan::is_active);
    let task = plan.as_ref().and_then(Plan::current_task);
    let ready = conditions::find(&status.conditions, READY).filter(|c| c.status == "True");
    let is_behind = status.observed_generation != meta.generation;
    let granted =
        spec.is_none_or(|s| s.granted_hash.is_empty() || s.granted_hash == status.pod_template_hash);
    let serves = ready.is_some() && !meta.terminating && granted && !is_behind;
    let free_at = ready.map(|ready| ready.last_transition_time + goal.min_ready);
    let at_goal = spec.is_some_and(|spec| goal.is_met_by(node, spec));
    let health = if status.phase == "Failed" || node.spec.is_err() {
        Health::Failed
    } else if serves && task.is_none_or(|task| TaskType::AwaitRemoval.is(task)) {
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
    let problem = status.problem.as_ref().filter(|_| health.is_ill());
    let message = match (health, problem) {
        (Health::Settling, _) => {
            let left = free_at.map_or_else(String::new, |at| age(at - now + TimeDelta::milliseconds(999)));
            format!("Ready; its place in the wave is free in {left}")
        }
        (Health::Moving, Some(problem)) if task.is_none_or(|task| task.message.is_empty()) => {
            problem.message.clone()
        }
        (Health::Failed | Health::Down, Some(problem)) => problem.message.clone(),
        (Health::Failed, None) => node.spec.as_ref().err().cloned().unwrap_or_default(),
        (Health::Moving, _) => moving(seen, node, task, now),
        _ => String::new(),
    };
    NodeReport {
        name: meta.name.clone(),
        set: place_of(&seen.fleet.meta.name, &meta.name).map(|(set, _)| set.to_owned()).unwrap_or_default(),
        health,
        image: status.current_image.clone(),
        target_image: spec.and_then(revision::main_image).unwrap_or_default().to_owned(),
        reason: problem.map(|problem| problem.reason.clone()).unwrap_or_default(),
        message: in_namespace(&message, &meta.namespace),
        since: problem.map(|problem| problem.since),
        task: task.map(|task| task.type_.clone()).unwrap_or_default(),
    }
}

/// What `replace-pod` says while the old pod goes.
const POD_GOES: &str = "waiting for the old pod to terminate";
/// How long a pod has to end where its template says nothing.
const GRACE_SECONDS: i64 = 30;

/// What happens to a node that moves: what its task waits for, or, where that was not worth a write, what its pod does.
fn moving(seen: &Seen, node: &ObservedNode, task: Option<&TaskRecord>, now: DateTime<Utc>) -> String {
    let pod = seen.pod(&node.meta.name);
    let goes = pod.is_some_and(|pod| pod.meta.terminating);
    if goes || task.is_some_and(|task| task.message == POD_GOES) {
        let spec = node.spec.as_deref().ok();
        let grace = spec.and_then(|s| s.pod_template["spec"]["terminationGracePeriodSeconds"].as_i64());
        let began = task.filter(|task| TaskType::ReplacePod.is(task)).and_then(|task| task.started_at);
        let passed =
            began.map(|began| format!(", {} of {}s", age(now - began), grace.unwrap_or(GRACE_SECONDS)));
        return format!("the old pod terminates{}", passed.unwrap_or_default());
    }
    if let Some(task) = task.filter(|task| !task.message.is_empty()) {
        return task.message.clone();
    }
    match pod {
        _ if node.meta.terminating => "the node is being deleted".to_owned(),
        Some(pod) if !pod.is_ready() => "its pod starts".to_owned(),
        None if !seen.pods.is_empty() => "its pod is being made".to_owned(),
        _ => String::new(),
    }
}
