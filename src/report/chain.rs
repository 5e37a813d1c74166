//! Why a fleet or a node is as it is: the chain from what its conditions say down to the kubelet's own words, each link with
//! since when, and what a person can do about it, as commands. Pure.

#[cfg(feature = "temporal")]
mod workers;

use chrono::{DateTime, Utc};
use serde::Serialize;

use super::{FleetReport, Health, Seen, Verdict};
use crate::api::{Condition, Stage, TaskType};
use crate::cluster::observed::{ObservedNode, ObservedPod};
use crate::engine::{Plan, TaskState};

#[cfg(feature = "temporal")]
pub use workers::{of_workers, version_in_the_way};

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
}

/// Something that a person can do.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct Remedy {
    /// What it is good for.
    pub to: String,
    /// The command.
    pub command: String,
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
        self.links.push(Link { depth, of: of.into(), says: says.into(), since });
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

/// Explains a fleet. `events`: those about the pod of its [`culprit`].
#[must_use]
pub fn of_fleet(seen: &Seen, report: &FleetReport, events: &[Happened]) -> Chain {
    let mut chain = Chain::default();
    let (name, namespace) = (&report.name, &report.namespace);
    let target = format!("nd/{name} -n {namespace}");
    let status = &seen.fleet.status;
    let said: Vec<&Condition> = telling(&status.conditions);
    for condition in &said {
        let says = format!(
            "{}={} {}{}",
            condition.type_,
            condition.status,
            condition.reason,
            after(&condition.message)
        );
        chain.add(0, format!("NodeDeployment {name}"), says, Some(condition.last_transition_time));
    }
    if said.is_empty() {
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
            let hook = if task.hook.is_empty() { String::new() } else { format!(" of hook {}", task.hook) };
            let says =
                if task.message.is_empty() { format!("{:?}", task.state) } else { task.message.clone() };
            chain.add(2, format!("task {}{hook}", task.type_), says, task.started_at);
            if task.type_ == TaskType::AwaitApproval.as_str() {
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
        chain_of_node(&mut chain, 3, node, seen.pod(&node.meta.name).map(AsRef::as_ref), events);
        if matches!(health, Health::Failed | Health::Down) && status.rollout.is_some() {
            chain.offer("see what another image would do", format!("windlass plan {target} --image IMAGE"));
        }
    }
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
        chain.offer("leave every node at what it runs", format!("windlass abort {target}"));
        if !paused && report.verdict == Verdict::Progressing {
            chain.offer("begin nothing more until it is resumed", format!("windlass pause {target}"));
        }
    }
    chain
}

/// Explains a node. `events`: those about its pod.
#[must_use]
pub fn of_node(node: &ObservedNode, pod: Option<&ObservedPod>, events: &[Happened]) -> Chain {
    let mut chain = Chain::default();
    chain_of_node(&mut chain, 0, node, pod, events);
    chain
}

fn chain_of_node(
    chain: &mut Chain,
    depth: usize,
    node: &ObservedNode,
    pod: Option<&ObservedPod>,
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
        if task.type_ == TaskType::MarkReady.as_str() && pod.is_some_and(ObservedPod::is_ready) {
            chain.offer("go on without marking it ready", format!("windlass skip sn/{name} -n {namespace}"));
        }
    }
    let Some(pod) = pod else {
        chain.add(depth + 2, format!("pod {name}-0"), "it does not exist", None);
        chain.offer("see why it is not made", format!("kubectl describe statefulset/{name} -n {namespace}"));
        return;
    };
    let (words, since) = pod_words(pod);
    chain.add(depth + 2, format!("pod {}", pod.meta.name), words, since);
    for event in events {
        chain.add(depth + 3, format!("event {}", event.reason), event.note.clone(), Some(event.at));
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
mod tests {
    use serde_json::json;

    use super::super::tests::{fleet, nodes, seen};
    use super::*;
    use crate::cluster::observed::Observed;

    #[test]
    fn a_chain_leads_from_the_condition_to_the_kubelets_words_and_ends_in_commands() {
        let (mut fleet, nodes) = (fleet(), nodes());
        fleet["status"]["plan"]["tasks"][1]["message"] = json!("waiting for db-2 to run the target");
        fleet["status"]["currentRevision"] = json!("db-1");
        let mut seen = seen(&fleet, &nodes);
        let pod = json!({"metadata": {"name": "db-2-0", "namespace": "prod"}, "status": {"phase": "Pending",
            "conditions": [{"type": "Ready", "status": "False", "lastTransitionTime": "2026-01-01T04:12:09Z"}],
            "containerStatuses": [{"name": "db", "state": {"waiting": {"reason": "ImagePullBackOff", "message": "Back-off"}}}]}});
        seen.pods.insert("db-2-0".into(), std::sync::Arc::new(Observed::read(&pod)));
        let report = FleetReport::of(&seen, "2026-01-01T04:15:11Z".parse().unwrap());
        assert_eq!(culprit(&report), Some("db-2"));
        let event = Happened {
            about: "Pod db-2-0".into(),
            reason: "Failed".into(),
            note: "Failed to pull image".into(),
            at: "2026-01-01T04:12:10Z".parse().unwrap(),
        };
        let chain = of_fleet(&seen, &report, &[event]);
        let of: Vec<(usize, &str, &str)> =
            chain.links.iter().map(|link| (link.depth, link.of.as_str(), link.says.as_str())).collect();
        assert_eq!(
            of,
            [
                (0, "NodeDeployment db", "Ready=False NodesFailed"),
                (0, "NodeDeployment db", "UpToDate=Unknown Applying"),
                (1, "plan 495ff12537", "InPlace is Active"),
                (2, "task await-spec-update", "waiting for db-2 to run the target"),
                (3, "StatefulNode db-2", "Failed: ImagePullBackOff: Back-off pulling image \"db:1.2\""),
                (5, "pod db-2-0", "container db: ImagePullBackOff: Back-off"),
                (6, "event Failed", "Failed to pull image"),
            ]
        );
        let commands: Vec<&str> = chain.remedies.iter().map(|remedy| remedy.command.as_str()).collect();
        assert_eq!(
            commands,
            [
                "kubectl describe pod db-2-0 -n prod",
                "windlass plan nd/db -n prod --image IMAGE",
                "windlass rollback nd/db -n prod",
                "windlass abort nd/db -n prod",
                "windlass pause nd/db -n prod",
            ]
        );
    }

    #[test]
    fn a_hook_that_failed_on_a_node_is_a_link_and_ends_in_what_can_be_done() {
        let mut fleet = fleet();
        fleet["status"]["hooks"] = json!([{"hook": "drain", "node": "db-1", "taskID": "0123456789-1", "state": "Failed", "message": "no"}]);
        let seen = seen(&fleet, &[]);
        let chain = of_fleet(&seen, &FleetReport::of(&seen, "2026-01-01T04:15:11Z".parse().unwrap()), &[]);
        assert!(
            chain.links.iter().any(|link| link.of == "hook drain of db-1" && link.says == "no"),
            "{chain:#?}"
        );
        let commands: Vec<&str> = chain.remedies.iter().map(|remedy| remedy.command.as_str()).collect();
        assert!(
            commands.starts_with(&[
                "windlass retry nd/db -n prod",
                "windlass skip nd/db -n prod --task 0123456789-1"
            ]),
            "{commands:?}"
        );
        assert!(commands.contains(&"windlass abort nd/db -n prod"), "{commands:?}");
    }

    #[test]
    fn where_there_is_no_way_back_none_is_offered() {
        for stage in ["Promoting", "Retiring"] {
            let mut fleet = fleet();
            fleet["status"]["rollout"]["stage"] = json!(stage);
            let seen = seen(&fleet, &[]);
            let chain =
                of_fleet(&seen, &FleetReport::of(&seen, "2026-01-01T04:15:11Z".parse().unwrap()), &[]);
            let goes_back =
                |remedy: &Remedy| remedy.command.contains("abort") || remedy.command.contains("rollback");
            assert!(!chain.remedies.iter().any(goes_back), "{stage}: {:?}", chain.remedies);
        }
    }

    #[test]
    fn what_waits_for_a_person_says_how_to_go_on() {
        let first = |status: serde_json::Value, paused: bool| {
            let mut fleet = fleet();
            json_patch::merge(&mut fleet, &json!({"spec": {"paused": paused}, "status": status}));
            let seen = seen(&fleet, &[]);
            let report = FleetReport::of(&seen, "2026-01-01T04:15:11Z".parse().unwrap());
            of_fleet(&seen, &report, &[]).remedies.first().map(|remedy| remedy.command.clone())
        };
        let condition = |type_: &str, status: &str, reason: &str| json!([{"type": type_, "status": status, "reason": reason, "lastTransitionTime": "2026-01-01T04:00:00Z"}]);
        let quiet = json!({"unconverged": []});
        let said = |conditions| first(json!({"rollout": quiet, "conditions": conditions}), false);
        assert_eq!(
            said(condition("UpToDate", "Unknown", "ReadyToPromote")).as_deref(),
            Some("windlass promote nd/db -n prod")
        );
        assert_eq!(
            said(condition("UpToDate", "False", "Aborted")).as_deref(),
            Some("windlass retry nd/db -n prod")
        );
        assert_eq!(
            said(condition("UpToDate", "False", "InvalidSpec")).as_deref(),
            Some("kubectl edit nd/db -n prod")
        );
        assert_eq!(
            first(json!({"rollout": quiet, "conditions": []}), true).as_deref(),
            Some("windlass resume nd/db -n prod")
        );
        assert_eq!(first(json!({"rollout": null, "conditions": []}), false), None, "nothing has to be done");
    }
}
