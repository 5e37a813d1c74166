//! Explains why a fleet or a node is in its state: the chain from its conditions down to the kubelet's messages, with
//! times, and the commands that help. Pure.

use std::fmt;

use chrono::{DateTime, Utc};
use serde::{Serialize, Serializer};

use super::fleet::{not_seen, waits_besides};
use super::stateful_sets::not_held;
use super::{FleetReport, Health, Seen, SeenPod, SeenStatefulSets, StatefulSetsReport, TaskReport, Verdict};
use windlass_core::api::at_hook::message_of;
use windlass_core::api::conditions::{
    self, DISRUPTION_BUDGET_READY, READY, RECONCILING, STALLED, TOPOLOGY_KNOWN, Truth, UP_TO_DATE,
};
use windlass_core::api::{Condition, HookState, RawPlan, Reason, Stage, StatefulSetStatus, TaskType};
use windlass_core::planner::fleet::gate::WaitingFor;
use windlass_core::planner::node::decide::recipes::GROW_CLAIMS;
use windlass_core::planner::node::problem::in_words;
use windlass_engine::{Plan, TaskState};
use windlass_kube_port::observed::{ObservedFleet, ObservedNode, ObservedPod};

/// The default namespace of the operator.
const OPERATORS: &str = "windlass-system";

/// A link: an object or a part of one, its message, and a time.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct Link {
    /// Its depth: it explains the last link above with a depth of one less.
    pub depth: usize,
    /// The subject: `NodeDeployment db`, `plan 495ff12537`, `pod db-2-0`.
    pub of: String,
    /// The message.
    pub says: String,
    /// Since when it applies, or when it happened.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<DateTime<Utc>>,
    /// The length in bytes of the part of `says` that `since` is about; `None`: all of it. A condition's message may
    /// change while its status stays.
    #[serde(skip)]
    pub dated: Option<usize>,
}

impl Link {
    /// The message, split at the place where the time is printed.
    #[must_use]
    pub fn parts(&self) -> (&str, &str) {
        self.says.split_at_checked(self.dated.unwrap_or(self.says.len())).unwrap_or((&self.says, ""))
    }
}

/// A suggested action.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct Remedy {
    /// What it achieves.
    pub to: String,
    pub command: String,
}

/// The deletion of an object: since when, and what blocks it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Deletion {
    of: String,
    since: Option<DateTime<Utc>>,
    finalizers: Vec<String>,
}

impl Deletion {
    /// The deletion of a raw object; `None` if it is not being deleted.
    #[must_use]
    pub fn read(object: &serde_json::Value) -> Option<Self> {
        let meta = &object["metadata"];
        let since = meta["deletionTimestamp"].as_str()?;
        let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
        let finalizers = meta["finalizers"].as_array().map(Vec::as_slice).unwrap_or_default();
        Some(Self {
            of: format!("{} {}", text(&object["kind"]), text(&meta["name"])),
            since: since.parse().ok(),
            finalizers: finalizers.iter().map(text).collect(),
        })
    }

    fn says(&self) -> String {
        match self.finalizers.as_slice() {
            [] => "it is being deleted".to_owned(),
            [one] => format!("it is being deleted and waits for finalizer {one}"),
            many => format!("it is being deleted and waits for finalizers {}", many.join(", ")),
        }
    }
}

/// The kind and the name of an object, in one namespace.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Subject {
    pub kind: String,
    pub name: String,
}

impl Subject {
    /// The object of this kind and name.
    pub fn of(kind: &str, name: &str) -> Self {
        Self { kind: kind.to_owned(), name: name.to_owned() }
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind, self.name)
    }
}

impl Serialize for Subject {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// An event in the history.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct TimelineEntry {
    /// Its subject: `Pod db-2-0`.
    pub about: Subject,
    pub reason: String,
    pub note: String,
    /// When it was last seen.
    pub at: DateTime<Utc>,
}

/// A chain of causes, with suggested actions.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize)]
pub struct Chain {
    /// From the object in question down to the cause.
    pub links: Vec<Link>,
    /// The suggested actions; empty if none is needed.
    pub remedies: Vec<Remedy>,
}

impl Chain {
    pub fn add(
        &mut self,
        depth: usize,
        of: impl Into<String>,
        says: impl Into<String>,
        since: Option<DateTime<Utc>>,
    ) {
        self.links.push(Link { depth, of: of.into(), says: says.into(), since, dated: None });
    }

    pub fn add_condition(&mut self, of: String, condition: &Condition) {
        let Condition { type_, status, reason, message, last_transition_time, .. } = condition;
        let status = format!("{type_}={status} {reason}");
        let dated = Some(status.len());
        let says = status + &after(message);
        self.links.push(Link { depth: 0, of, says, since: Some(*last_transition_time), dated });
    }

    /// The same chain, with the object's deletion first.
    #[must_use]
    pub fn of_deleted(mut self, deletion: Option<&Deletion>) -> Self {
        if let Some(deletion) = deletion {
            let (of, says, since) = (deletion.of.clone(), deletion.says(), deletion.since);
            self.links.insert(0, Link { depth: 0, of, says, since, dated: None });
        }
        self
    }

    /// Adds what the fleet of a node is doing, if the node itself does nothing: it may wait for its turn.
    pub fn add_fleet(&mut self, fleet: &ObservedFleet, node: &ObservedNode) {
        let is_at_work = node.status.plan.as_ref().is_some_and(RawPlan::may_be_active);
        let reconciling = conditions::find(&fleet.status.conditions, RECONCILING);
        let reconciling = reconciling.map(|condition| condition.message.as_str()).unwrap_or_default();
        let rollout = fleet.status.rollout.as_ref().map(|rollout| rollout.message.as_str());
        let says = [reconciling, rollout.unwrap_or_default()].into_iter().find(|says| !says.is_empty());
        if let Some(says) = says.filter(|_| !is_at_work) {
            self.add(1, format!("NodeDeployment {}", fleet.meta.name), says, None);
        }
    }

    pub fn add_events(&mut self, depth: usize, events: &[TimelineEntry]) {
        for event in events {
            self.add(depth, format!("event {}", event.reason), event.note.clone(), Some(event.at));
        }
    }

    pub fn offer(&mut self, to: &str, command: String) {
        let remedy = Remedy { to: to.to_owned(), command };
        if !self.remedies.contains(&remedy) {
            self.remedies.push(remedy);
        }
    }
}

/// The node that blocks a fleet most, if one does.
#[must_use]
pub fn culprit(report: &FleetReport) -> Option<&str> {
    let worst =
        report.nodes.iter().filter(|node| node.health.is_listed_by_name()).min_by_key(|node| node.health);
    worst.map(|node| node.name.as_str())
}

/// Explains a fleet. `events`: those about the pod of its [`culprit`], or, if it has none, about the StatefulSet that
/// creates it.
#[must_use]
pub fn of_fleet(seen: &Seen, report: &FleetReport, events: &[TimelineEntry]) -> Chain {
    let target = format!("nd/{} -n {}", report.name, report.namespace);
    let status = &seen.fleet.status;
    let rollback = format!("windlass rollback {target}");
    let way_back = Some(rollback).filter(|_| !status.current_revision.is_empty());
    let told = ChainKind {
        kind: "NodeDeployment",
        nodes: "node",
        target: &target,
        way_back: way_back.clone(),
        way_back_of_ended: way_back,
    };
    of_rollout(seen, report, &told, |chain| {
        if let Some(node) =
            culprit(report).and_then(|name| seen.nodes.iter().find(|node| node.meta.name == *name))
        {
            let health =
                report.nodes.iter().find(|n| n.name == node.meta.name).map_or(Health::Down, |n| n.health);
            chain_of_node(chain, 3, node, seen.looked_for(&node.meta.name), events);
            if health.is_unhealthy() && status.rollout.as_ref().is_some_and(|r| r.recipe != GROW_CLAIMS) {
                let command = format!("windlass plan {target} --image IMAGE");
                chain.offer("forecast another image", command);
            }
        }
        changed_pods(chain, seen, culprit(report));
    })
}

/// Explains a StatefulSetRollout. `events`: those about the pod of its [`culprit`], or, if that does not exist, about
/// its StatefulSet.
#[must_use]
pub fn of_stateful_sets(
    seen: &SeenStatefulSets,
    report: &StatefulSetsReport,
    events: &[TimelineEntry],
) -> Chain {
    let (fleet, namespace) = (&report.fleet, &report.fleet.namespace);
    let target = format!("ssr/{} -n {namespace}", fleet.name);
    // The template belongs to the owner of the StatefulSet; only an active rollout is rolled back without changing it.
    let moved = seen.sets.iter().filter(|set| set.current_revision != set.update_revision);
    let moved: Vec<String> = moved.map(|set| format!("statefulset/{}", set.name)).collect();
    let told = ChainKind {
        kind: "StatefulSetRollout",
        nodes: "pod",
        target: &target,
        way_back: (!moved.is_empty()).then(|| format!("windlass abort {target} --rollback")),
        way_back_of_ended: (!moved.is_empty())
            .then(|| format!("kubectl rollout undo {} -n {namespace}", moved.join(" "))),
    };
    of_rollout(&seen.seen, fleet, &told, |chain| {
        let missing = seen.sets.iter().filter(|set| set.uid.is_empty());
        for set in missing {
            chain.add(1, format!("StatefulSet {}", set.name), "it does not exist yet", None);
        }
        let Some(name) = culprit(fleet) else { return };
        if let Some(set) = seen.set_of(name) {
            let StatefulSetStatus { name, replicas, ready, updated, .. } = set;
            let says = format!("{replicas} replicas, {ready} ready, {updated} updated");
            chain.add(3, format!("StatefulSet {name}"), says, None);
        }
        if let Some((plan, task)) = seen.update(name).and_then(|plan| {
            let task = plan.current_task()?.clone();
            Some((plan, task))
        }) {
            let says = if task.message.is_empty() { format!("{:?}", task.state) } else { message_of(&task) };
            let of = format!("plan {} ({}), task {}", plan.id, plan.recipe, task.type_);
            chain.add(4, of, says, task.started_at);
            let is_ready = seen.seen.pods.get(name).is_some_and(|pod| pod.is_ready());
            if task.type_ == TaskType::MarkReady.as_ref() && is_ready {
                let command = format!("windlass skip {target} --task {}", task.id);
                chain.offer("skip the task mark-ready", command);
            }
        }
        match seen.seen.pods.get(name) {
            Some(pod) => chain_of_pod(chain, 5, pod, events),
            None if seen.seen.has_pods => {
                let set = seen.set_of(name).map_or(name, |set| set.name.as_str());
                chain_of_missing_pod(chain, 5, (name, set, namespace), events);
            }
            // Listed with what could not be read.
            None => {}
        }
    })
}

/// The differences between the chains of fleets and of StatefulSetRollouts.
struct ChainKind<'a> {
    kind: &'static str,
    /// The singular of what is rolled.
    nodes: &'static str,
    /// The object in a command.
    target: &'a str,
    /// The command that rolls back an active rollout.
    way_back: Option<String>,
    /// The same, once the rollout has ended.
    way_back_of_ended: Option<String>,
}

/// Explains a rollout. `of_nodes` adds the nodes that block it.
fn of_rollout(
    seen: &Seen,
    report: &FleetReport,
    told: &ChainKind<'_>,
    of_nodes: impl FnOnce(&mut Chain),
) -> Chain {
    let mut chain = Chain::default();
    let name = &report.name;
    let ChainKind { kind, nodes, target, way_back, way_back_of_ended } = told;
    let status = &seen.fleet.status;
    let unseen = not_seen(&seen.fleet);
    if let Some(sentence) = &unseen {
        chain.add(0, format!("{kind} {name}"), sentence, None);
    }
    let mut unhealthy: Vec<&Condition> = unhealthy_conditions(&status.conditions);
    unhealthy.extend(not_held(&status.conditions));
    for condition in &unhealthy {
        chain.add_condition(format!("{kind} {name}"), condition);
    }
    if unhealthy.is_empty() && unseen.is_none() {
        let says =
            if report.waiting_for.is_empty() { report.phase.clone() } else { report.waiting_for.clone() };
        chain.add(0, format!("{kind} {name}"), says, None);
    }
    let said: Vec<&str> = chain.links.iter().map(|link| link.says.as_str()).collect();
    if let Some(sentence) = waits_besides(status, &said.join("\n")).filter(|_| unseen.is_none()) {
        chain.add(0, format!("{kind} {name}"), sentence, None);
    }
    let plan = report.plan.as_ref().filter(|_| status.rollout.is_some());
    if let Some(plan) = plan {
        chain.add(
            1,
            format!("plan {}", plan.id),
            format!("{} is {:?}", plan.recipe, plan.state),
            Some(plan.started_at),
        );
        let current =
            plan.tasks.iter().find(|task| !matches!(task.state, TaskState::Complete | TaskState::Skipped));
        if let Some(task) = current {
            of_task(&mut chain, task, target);
        }
    }
    // Hooks of nodes are tasks of the nodes' own plans.
    for hook in
        report.hooks.iter().filter(|hook| hook.state == HookState::Failed.as_ref() && !hook.node.is_empty())
    {
        let of = format!("hook {} of {}", hook.hook, hook.node);
        chain.add(2, of, hook.message.clone(), None);
        chain.offer("retry the hook", format!("windlass retry {target}"));
        chain.offer("skip the hook", format!("windlass skip {target} --task {}", hook.task_id));
    }
    of_nodes(&mut chain);
    for condition in unhealthy {
        match condition.reason.parse().ok() {
            Some(Reason::ReadyToPromote) => chain.offer("move traffic to the new nodes", format!("windlass promote {target}")),
            Some(Reason::Aborted | Reason::RolledBack | Reason::PlanFailed) => {
                chain.offer("retry the same target", format!("windlass retry {target}"));
                if let Some(command) = way_back_of_ended {
                    chain.offer("roll back to the previous revision", command.clone());
                }
            }
            Some(Reason::InvalidSpec) => chain.offer("fix the spec", format!("kubectl edit {target}")),
            Some(Reason::PartitionHeld) => chain.offer(
                "update the other nodes, too",
                format!("kubectl patch {target} --type=merge -p 'spec: {{updateStrategy: {{inPlace: {{partition: 0}}}}}}'"),
            ),
            _ => {}
        }
    }
    if seen.fleet.meta.terminating {
        chain.remedies.clear();
        chain.offer("see its finalizers", format!("kubectl describe {target}"));
        return chain;
    }
    // Without the operator's observation, suggested actions would be based on old state.
    if unseen.is_some() {
        chain.remedies.clear();
        chain.offer(LOOK_FOR_OPERATOR, version_of_operator());
        return chain;
    }
    if report.nodes.iter().any(|node| node.unseen) {
        chain.offer(LOOK_FOR_OPERATOR, version_of_operator());
    }
    let waits_for = status.rollout.as_ref().map(|rollout| rollout.waiting_for.as_str());
    if waits_for == Some(WaitingFor::Window.as_ref()) {
        chain.offer("open the window now", format!("windlass resume {target} --now --reason TEXT"));
    }
    let paused = seen.fleet.spec.as_ref().is_ok_and(|spec| spec.paused);
    if paused {
        chain.offer("resume the rollout", format!("windlass resume {target}"));
    }
    // Volumes that grow do not shrink again.
    let has_way_back = status
        .rollout
        .as_ref()
        .is_some_and(|r| !matches!(r.stage, Stage::Promoting | Stage::Retiring) && r.recipe != GROW_CLAIMS);
    if has_way_back {
        if let Some(command) = way_back {
            chain.offer("roll back to the previous revision", command.clone());
        }
        let is_of_set = status.rollout.as_ref().is_some_and(|rollout| !rollout.entrant_set.is_empty());
        let leave = format!("abort; {nodes}s keep their revisions");
        let to = if is_of_set { "abort; remove the new nodes" } else { &leave };
        chain.offer(to, format!("windlass abort {target}"));
        if !paused && report.verdict == Verdict::Progressing {
            chain.offer("pause the rollout", format!("windlass pause {target}"));
        }
    }
    chain
}

/// What the command of [`version_of_operator`] is for.
const LOOK_FOR_OPERATOR: &str = "check whether an operator runs";

fn version_of_operator() -> String {
    format!("windlass version --operator-namespace {OPERATORS}")
}

/// The current task of a fleet's plan, with suggested actions.
fn of_task(chain: &mut Chain, task: &TaskReport, target: &str) {
    let hook = if task.hook.is_empty() { String::new() } else { format!(" of hook {}", task.hook) };
    let says = if task.message.is_empty() { format!("{:?}", task.state) } else { task.message.clone() };
    chain.add(2, format!("task {}{hook}", task.type_), says, task.started_at);
    if task.type_ == TaskType::AwaitApproval.as_ref() && task.state != TaskState::Failed {
        chain.offer("approve the hook", format!("windlass approve {target}"));
    }
    if task.state == TaskState::Failed {
        chain.offer("retry the hook", format!("windlass retry {target}"));
    }
    let may_be_skipped =
        matches!(task.type_.parse().ok(), Some(TaskType::AwaitCaughtUp | TaskType::AwaitNodesAtHeight));
    if task.state == TaskState::Failed || may_be_skipped {
        chain.offer("skip the task", format!("windlass skip {target} --task {}", task.id));
    }
}

/// Explains a node. `events`: those about its pod, or, if it has none, about its StatefulSet.
#[must_use]
pub fn of_node(node: &ObservedNode, pod: SeenPod<'_>, events: &[TimelineEntry]) -> Chain {
    let mut chain = Chain::default();
    chain_of_node(&mut chain, 0, node, pod, events);
    chain
}

fn chain_of_node(
    chain: &mut Chain,
    depth: usize,
    node: &ObservedNode,
    pod: SeenPod<'_>,
    events: &[TimelineEntry],
) {
    let (name, namespace) = (&node.meta.name, &node.meta.namespace);
    let status = &node.status;
    let problem = status.problem.as_ref();
    let says = match problem {
        Some(problem) => format!("{}: {}{}", status.phase, problem.reason, after(&problem.message)),
        None => status.phase.clone(),
    };
    chain.add(depth, format!("StatefulNode {name}"), says, problem.map(|problem| problem.since));
    let plan = status.plan.as_ref().and_then(|plan| plan.parse().ok()).filter(Plan::is_active);
    if let Some((plan, task)) = plan.as_ref().and_then(|plan| Some((plan, plan.current_task()?))) {
        let says = if task.message.is_empty() { format!("{:?}", task.state) } else { message_of(task) };
        chain.add(
            depth + 1,
            format!("plan {} ({}), task {}", plan.id, plan.recipe, task.type_),
            says,
            task.started_at,
        );
        // Skipping it changes nothing while the pod is not Ready.
        if task.type_ == TaskType::MarkReady.as_ref() && matches!(pod, SeenPod::Is(pod) if pod.is_ready()) {
            chain.offer("skip the task mark-ready", format!("windlass skip sn/{name} -n {namespace}"));
        }
    }
    let is_suspended = node.spec.as_ref().is_ok_and(|spec| spec.suspend);
    if is_suspended {
        let patch = r#"'{"spec":{"suspend":false}}'"#;
        chain.offer(
            "resume the node",
            format!("kubectl patch sn/{name} -n {namespace} --type=merge -p {patch}"),
        );
    }
    let pod = match pod {
        SeenPod::Is(pod) => pod,
        // Listed with what could not be read.
        SeenPod::Unread => return,
        SeenPod::IsNot if is_suspended => {
            return chain.add(depth + 2, format!("pod {name}-0"), "it does not exist", None);
        }
        SeenPod::IsNot => {
            let names = (&*format!("{name}-0"), name.as_str(), namespace.as_str());
            return chain_of_missing_pod(chain, depth + 2, names, events);
        }
    };
    chain_of_pod(chain, depth + 2, pod, events);
}

fn chain_of_missing_pod(
    chain: &mut Chain,
    depth: usize,
    (pod, set, namespace): (&str, &str, &str),
    events: &[TimelineEntry],
) {
    chain.add(depth, format!("pod {pod}"), "it does not exist", None);
    chain.add_events(depth + 1, events);
    let command = format!("kubectl describe statefulset/{set} -n {namespace}");
    chain.offer("see why it is not created", command);
}

fn chain_of_pod(chain: &mut Chain, depth: usize, pod: &ObservedPod, events: &[TimelineEntry]) {
    let namespace = &pod.meta.namespace;
    let (words, since) = pod_words(pod);
    chain.add(depth, format!("pod {}", pod.meta.name), words, since);
    let changed = changed_by_another(pod);
    if let Some(sentence) = &changed {
        chain.add(depth + 1, format!("pod {}", pod.meta.name), sentence, None);
    }
    chain.add_events(depth + 1, events);
    if changed.is_some() && !pod.is_ready() {
        let command = format!("kubectl delete pod {} -n {namespace}", pod.meta.name);
        chain.offer("recreate it from its template", command);
    }
    let waiting =
        pod.containers.iter().find(|c| c.waiting.as_ref().is_some_and(|(r, _)| r == "CrashLoopBackOff"));
    let restarted = pod.containers.iter().filter(|c| !c.init).find(|c| c.restarts > 0);
    if let Some(container) = waiting.or(restarted) {
        let command =
            format!("kubectl logs {} -n {namespace} -c {} --previous", pod.meta.name, container.name);
        chain.offer("read the logs before its last restart", command);
    }
    if !pod.is_ready() {
        chain.offer(
            "see the pod with its events",
            format!("kubectl describe pod {} -n {namespace}", pod.meta.name),
        );
    }
}

/// Pods, other than that of `told`, whose image differs from their template's: the first in detail, the others
/// counted.
fn changed_pods(chain: &mut Chain, seen: &Seen, told: Option<&str>) {
    let others = seen.nodes.iter().map(|node| node.meta.name.as_str()).filter(|name| Some(*name) != told);
    let mut changed = others.filter_map(|name| {
        let pod = seen.pod(name)?;
        changed_by_another(pod).map(|sentence| (pod.meta.name.clone(), sentence))
    });
    let Some((pod, sentence)) = changed.next() else { return };
    let more = match changed.count() {
        0 => String::new(),
        more => format!(" (and {more} more)"),
    };
    chain.add(1, format!("pod {pod}"), sentence + &more, None);
}

/// How a pod's main image differs from its template's, if it does. Windlass does not revert that: admission
/// may change images, and so may users.
fn changed_by_another(pod: &ObservedPod) -> Option<String> {
    let made = pod.made_for().filter(|made| !made.image.is_empty())?;
    let (container, runs) = pod.images.iter().find(|(name, _)| *name == made.main_container)?;
    (*runs != made.image).then(|| {
        let asked = &made.image;
        format!("its container {container} has image {runs}, but its template has {asked}: a user or a webhook changed it")
    })
}

/// The state of a pod, with the most specific cause that its status gives, and since when it is Ready or not.
pub fn pod_words(pod: &ObservedPod) -> (String, Option<DateTime<Utc>>) {
    let since = pod.ready.as_ref().and_then(|ready| ready.since);
    let unscheduled = pod.scheduled.as_ref().filter(|scheduled| !scheduled.holds);
    let since = if pod.meta.terminating { None } else { unscheduled.map_or(since, |found| found.since) };
    (in_words(pod).unwrap_or_else(|| "Ready".to_owned()), since)
}

/// The conditions that explain an unhealthy state. Stalled is left out if `UpToDate` has the same message.
pub fn unhealthy_conditions(conditions: &[Condition]) -> Vec<&Condition> {
    let has_message = |c: &Condition, message: &str| c.type_ == UP_TO_DATE && c.message == message;
    let explains = |c: &&Condition| match c.type_.as_str() {
        UP_TO_DATE => c.status != Truth::True.as_ref(),
        STALLED => {
            c.status == Truth::True.as_ref()
                && (c.message.is_empty() || !conditions.iter().any(|other| has_message(other, &c.message)))
        }
        READY | DISRUPTION_BUDGET_READY | TOPOLOGY_KNOWN => c.status == Truth::False.as_ref(),
        _ => false,
    };
    conditions.iter().filter(explains).collect()
}

fn after(message: &str) -> String {
    if message.is_empty() { String::new() } else { format!(": {message}") }
}

#[cfg(test)]
mod tests;
