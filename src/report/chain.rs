//! Why a fleet or a node is as it is: the chain from what its conditions say down to the kubelet's own words, each link with
//! since when, and what a person can do about it, as commands. Pure.

#[cfg(feature = "temporal")]
mod workers;

use chrono::{DateTime, Utc};
use serde::Serialize;

use super::fleet::not_seen;
use super::{FleetReport, Health, Seen, SeenPod, TaskReport, Verdict, in_namespace};
use crate::api::{Condition, Stage, TaskType};
use crate::cluster::observed::{ObservedNode, ObservedPod};
use crate::engine::{Plan, TaskState};

#[cfg(feature = "temporal")]
pub use workers::{of_workers, version_in_the_way};

/// Where the operator runs unless somebody put it elsewhere.
const OPERATORS: &str = "windlass-system";

/// One link: what speaks, what it says, and since when.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct Link {
    /// How deep it is: what it explains is one less.
    pub depth: usize,
    /// What speaks: `NodeDeployment db`, `plan 495ff12537`, `pod db-2-0` …
    pub of: String,
    /// What it says.
    pub says: String,
    /// Since when, or when.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<DateTime<Utc>>,
    /// How many bytes of what it says `since` is about, where that is not all: a condition's message is renewed while the condition
    /// stays as it is.
    #[serde(skip)]
    pub dated: Option<usize>,
}

impl Link {
    /// What it says, before and after the place where since when is told.
    #[must_use]
    pub fn parts(&self) -> (&str, &str) {
        self.says.split_at_checked(self.dated.unwrap_or(self.says.len())).unwrap_or((&self.says, ""))
    }
}

/// Something that a person can do.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct Remedy {
    /// What it is good for.
    pub to: String,
    /// The command.
    pub command: String,
}

/// That an object is being deleted, since when, and what keeps it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Deletion {
    of: String,
    since: Option<DateTime<Utc>>,
    finalizers: Vec<String>,
}

impl Deletion {
    /// Of an object as the API server has it; none where it is not being deleted.
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
            [one] => format!("it is being deleted, and kept by finalizer {one}"),
            many => format!("it is being deleted, and kept by finalizers {}", many.join(", ")),
        }
    }
}

/// An event, as far as a person is told of it.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct Happened {
    /// What it is about: `Pod db-2-0`.
    pub about: String,
    /// Its reason.
    pub reason: String,
    /// Its sentence.
    pub note: String,
    /// When it was last said.
    pub at: DateTime<Utc>,
}

/// The whole of it.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize)]
pub struct Chain {
    /// From what is asked about down to what is the cause.
    pub links: Vec<Link>,
    /// What to do; empty where nothing has to be done.
    pub remedies: Vec<Remedy>,
}

impl Chain {
    fn add(
        &mut self,
        depth: usize,
        of: impl Into<String>,
        says: impl Into<String>,
        since: Option<DateTime<Utc>>,
    ) {
        self.links.push(Link { depth, of: of.into(), says: says.into(), since, dated: None });
    }

    fn add_condition(&mut self, of: String, condition: &Condition) {
        let Condition { type_, status, reason, message, last_transition_time, .. } = condition;
        let status = format!("{type_}={status} {reason}");
        let dated = Some(status.len());
        let says = status + &after(message);
        self.links.push(Link { depth: 0, of, says, since: Some(*last_transition_time), dated });
    }

    /// The same, begun with the deletion of what it explains.
    #[must_use]
    pub fn of_deleted(mut self, deletion: Option<&Deletion>) -> Self {
        if let Some(deletion) = deletion {
            let (of, says, since) = (deletion.of.clone(), deletion.says(), deletion.since);
            self.links.insert(0, Link { depth: 0, of, says, since, dated: None });
        }
        self
    }

    /// The same, with the namespace in the commands that it speaks of.
    fn in_namespace(mut self, namespace: &str) -> Self {
        for link in &mut self.links {
            link.says = in_namespace(&link.says, namespace);
        }
        self
    }

    fn add_events(&mut self, depth: usize, events: &[Happened]) {
        for event in events {
            self.add(depth, format!("event {}", event.reason), event.note.clone(), Some(event.at));
        }
    }

    fn offer(&mut self, to: &str, command: String) {
        let remedy = Remedy { to: to.to_owned(), command };
        if !self.remedies.contains(&remedy) {
            self.remedies.push(remedy);
        }
    }
}

/// The node that stands most in a fleet's way, if one does.
#[must_use]
pub fn culprit(report: &FleetReport) -> Option<&str> {
    let worst = report.nodes.iter().filter(|node| node.health.is_ill()).min_by_key(|node| node.health);
    worst.map(|node| node.name.as_str())
}

/// Explains a fleet. `events`: those about the pod of its [`culprit`], or, where it has none, about the StatefulSet that is to make it.
#[must_use]
pub fn of_fleet(seen: &Seen, report: &FleetReport, events: &[Happened]) -> Chain {
    let mut chain = Chain::default();
    let (name, namespace) = (&report.name, &report.namespace);
    let target = format!("nd/{name} -n {namespace}");
    let status = &seen.fleet.status;
    let unseen = not_seen(&seen.fleet);
    if let Some(sentence) = &unseen {
        chain.add(0, format!("NodeDeployment {name}"), sentence, None);
    }
    let said: Vec<&Condition> = telling(&status.conditions);
    for condition in &said {
        chain.add_condition(format!("NodeDeployment {name}"), condition);
    }
    if said.is_empty() && unseen.is_none() {
        let says =
            if report.waiting_for.is_empty() { report.phase.clone() } else { report.waiting_for.clone() };
        chain.add(0, format!("NodeDeployment {name}"), says, None);
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
            of_task(&mut chain, task, &target);
        }
    }
    // Those of nodes are tasks of the nodes' own plans.
    for hook in report.hooks.iter().filter(|hook| hook.state == "Failed" && !hook.node.is_empty()) {
        let of = format!("hook {} of {}", hook.hook, hook.node);
        chain.add(2, of, hook.message.clone(), None);
        chain.offer("try the hook again", format!("windlass retry {target}"));
        chain.offer("go on without it", format!("windlass skip {target} --task {}", hook.task_id));
    }
    if let Some(node) =
        culprit(report).and_then(|name| seen.nodes.iter().find(|node| node.meta.name == *name))
    {
        let health =
            report.nodes.iter().find(|n| n.name == node.meta.name).map_or(Health::Down, |n| n.health);
        chain_of_node(&mut chain, 3, node, seen.looked_for(&node.meta.name), events);
        if matches!(health, Health::Failed | Health::Down) && status.rollout.is_some() {
            chain.offer("see what another image would do", format!("windlass plan {target} --image IMAGE"));
        }
    }
    changed_pods(&mut chain, seen, culprit(report));
    for condition in said {
        match condition.reason.as_str() {
            "ReadyToPromote" => chain.offer("move traffic to the new nodes", format!("windlass promote {target}")),
            "Aborted" | "RolledBack" | "PlanFailed" => {
                chain.offer("try the same target again", format!("windlass retry {target}"));
                if !status.current_revision.is_empty() {
                    chain.offer("go back to what ran before", format!("windlass rollback {target}"));
                }
            }
            "InvalidSpec" => chain.offer("put the spec right", format!("kubectl edit {target}")),
            "PartitionHeld" => chain.offer(
                "let the other nodes go, too",
                format!("kubectl patch {target} --type=merge -p 'spec: {{updateStrategy: {{inPlace: {{partition: 0}}}}}}'"),
            ),
            _ => {}
        }
    }
    if seen.fleet.meta.terminating {
        chain.remedies.clear();
        chain.offer("see what it is kept by", format!("kubectl describe {target}"));
        return chain.in_namespace(namespace);
    }
    // Nobody would carry out what follows from what was seen before.
    if unseen.is_some() {
        chain.remedies.clear();
        chain.offer("see whether an operator runs", format!("windlass version -n {OPERATORS}"));
        return chain.in_namespace(namespace);
    }
    let paused = seen.fleet.spec.as_ref().is_ok_and(|spec| spec.paused);
    if paused {
        chain.offer("go on", format!("windlass resume {target}"));
    }
    let has_way_back =
        status.rollout.as_ref().is_some_and(|r| !matches!(r.stage, Stage::Promoting | Stage::Retiring));
    if has_way_back {
        if !status.current_revision.is_empty() {
            chain.offer("go back to what ran before", format!("windlass rollback {target}"));
        }
        let is_of_set = status.rollout.as_ref().is_some_and(|rollout| !rollout.entrant_set.is_empty());
        let to = if is_of_set { "give the new nodes up" } else { "leave every node at what it runs" };
        chain.offer(to, format!("windlass abort {target}"));
        if !paused && report.verdict == Verdict::Progressing {
            chain.offer("begin nothing more until it is resumed", format!("windlass pause {target}"));
        }
    }
    chain.in_namespace(namespace)
}

/// The task that a fleet's plan is at, with what can be done about it.
fn of_task(chain: &mut Chain, task: &TaskReport, target: &str) {
    let hook = if task.hook.is_empty() { String::new() } else { format!(" of hook {}", task.hook) };
    let says = if task.message.is_empty() { format!("{:?}", task.state) } else { task.message.clone() };
    chain.add(2, format!("task {}{hook}", task.type_), says, task.started_at);
    if task.type_ == TaskType::AwaitApproval.as_str() && task.state != TaskState::Failed {
        chain.offer("let it go on", format!("windlass approve {target}"));
    }
    if task.state == TaskState::Failed {
        chain.offer("try the hook again", format!("windlass retry {target}"));
    }
    let may_be_skipped = matches!(task.type_.as_str(), "await-caught-up" | "await-nodes-at-height");
    if task.state == TaskState::Failed || may_be_skipped {
        chain.offer("go on without it", format!("windlass skip {target} --task {}", task.id));
    }
}

/// Explains a node. `events`: those about its pod, or, where it has none, about its StatefulSet.
#[must_use]
pub fn of_node(node: &ObservedNode, pod: SeenPod<'_>, events: &[Happened]) -> Chain {
    let mut chain = Chain::default();
    chain_of_node(&mut chain, 0, node, pod, events);
    chain.in_namespace(&node.meta.namespace)
}

fn chain_of_node(
    chain: &mut Chain,
    depth: usize,
    node: &ObservedNode,
    pod: SeenPod<'_>,
    events: &[Happened],
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
        let says = if task.message.is_empty() { format!("{:?}", task.state) } else { task.message.clone() };
        chain.add(
            depth + 1,
            format!("plan {} ({}), task {}", plan.id, plan.recipe, task.type_),
            says,
            task.started_at,
        );
        // Of a pod that is not Ready it would change nothing.
        if task.type_ == TaskType::MarkReady.as_str() && matches!(pod, SeenPod::Is(pod) if pod.is_ready()) {
            chain.offer("go on without marking it ready", format!("windlass skip sn/{name} -n {namespace}"));
        }
    }
    let pod = match pod {
        SeenPod::Is(pod) => pod,
        // What it does is said with what could not be read.
        SeenPod::Unread => return,
        SeenPod::IsNot => {
            chain.add(depth + 2, format!("pod {name}-0"), "it does not exist", None);
            chain.add_events(depth + 3, events);
            let command = format!("kubectl describe statefulset/{name} -n {namespace}");
            chain.offer("see why it is not made", command);
            return;
        }
    };
    let (words, since) = pod_words(pod);
    chain.add(depth + 2, format!("pod {}", pod.meta.name), words, since);
    let changed = changed_by_another(pod);
    if let Some(sentence) = &changed {
        chain.add(depth + 3, format!("pod {}", pod.meta.name), sentence, None);
    }
    chain.add_events(depth + 3, events);
    if changed.is_some() && !pod.is_ready() {
        let command = format!("kubectl delete pod {} -n {namespace}", pod.meta.name);
        chain.offer("have it made anew from its template", command);
    }
    let waiting =
        pod.containers.iter().find(|c| c.waiting.as_ref().is_some_and(|(r, _)| r == "CrashLoopBackOff"));
    let restarted = pod.containers.iter().filter(|c| !c.init).find(|c| c.restarts > 0);
    if let Some(container) = waiting.or(restarted) {
        let command =
            format!("kubectl logs {} -n {namespace} -c {} --previous", pod.meta.name, container.name);
        chain.offer("read what it said last", command);
    }
    if !pod.is_ready() {
        chain.offer(
            "see the pod with its events",
            format!("kubectl describe pod {} -n {namespace}", pod.meta.name),
        );
    }
}

/// Pods of other nodes than the one that was told of whose image is not their template's: of the first what it is, of the others
/// how many there are.
fn changed_pods(chain: &mut Chain, seen: &Seen, told: Option<&str>) {
    let others = seen.nodes.iter().map(|node| node.meta.name.as_str()).filter(|name| Some(*name) != told);
    let mut changed = others.filter_map(|name| {
        let pod = seen.pod(name)?;
        changed_by_another(pod).map(|sentence| (pod.meta.name.clone(), sentence))
    });
    let Some((pod, sentence)) = changed.next() else { return };
    let more = match changed.count() {
        0 => String::new(),
        more => format!(" (and so of {more} more)"),
    };
    chain.add(1, format!("pod {pod}"), sentence + &more, None);
}

/// What of a pod is another than its template says, if its main image is. Windlass compares neither: what admission writes into pods is
/// its own affair, and what a hand wrote there nobody undoes.
fn changed_by_another(pod: &ObservedPod) -> Option<String> {
    let made = pod.made_for().filter(|made| !made.image.is_empty())?;
    let (container, runs) = pod.images.iter().find(|(name, _)| *name == made.main_container)?;
    (*runs != made.image).then(|| {
        let asked = &made.image;
        format!("its container {container} has image {runs}, and its template says {asked}: a hand or a webhook changed it")
    })
}

/// What a pod says of itself: why a container waits, why it is not scheduled, or whether it is Ready.
fn pod_words(pod: &ObservedPod) -> (String, Option<DateTime<Utc>>) {
    let waits = pod.containers.iter().find_map(|c| Some((c, c.waiting.as_ref()?)));
    let unready = pod.ready.as_ref().and_then(|ready| ready.since);
    if pod.meta.terminating {
        return ("it terminates".to_owned(), None);
    }
    if let Some(scheduled) = pod.scheduled.as_ref().filter(|scheduled| !scheduled.holds) {
        return (format!("{}: {}", scheduled.reason, scheduled.message), scheduled.since);
    }
    match waits {
        Some((container, (reason, message))) => {
            (format!("container {}: {reason}{}", container.name, after(message)), unready)
        }
        None if pod.is_ready() => ("Ready".to_owned(), unready),
        None => {
            let said = pod.ready.as_ref().map(|ready| ready.message.clone()).unwrap_or_default();
            (format!("{}, not Ready{}", pod.phase, after(&said)), unready)
        }
    }
}

/// The conditions that tell why something is not as it should be.
fn telling(conditions: &[Condition]) -> Vec<&Condition> {
    let tells = |c: &&Condition| match c.type_.as_str() {
        "UpToDate" => c.status != "True",
        "Stalled" => c.status == "True",
        "Ready" => c.status == "False",
        _ => false,
    };
    conditions.iter().filter(tells).collect()
}

fn after(message: &str) -> String {
    if message.is_empty() { String::new() } else { format!(": {message}") }
}

#[cfg(test)]
mod tests;
