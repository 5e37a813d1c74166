//! Explains why a `WorkerDeployment` is in its state.

use serde_json::Value;
use windlass_temporal::api::{Reason, VersionRecord, VersionState, WorkerDeploymentStatus};

use super::report::WorkersReport;
use crate::report::chain::{Chain, TimelineEntry, pod_words, unhealthy_conditions};
use windlass_core::api::{Condition, TaskType};
use windlass_engine::{PlanState, TaskState};
use windlass_kube_port::observed::ObservedPod;

/// The version whose workers block the rollout most, if any do: the target, else one that takes tasks.
#[must_use]
pub fn version_in_the_way(report: &WorkersReport) -> Option<&VersionRecord> {
    let is_short = |version: &&VersionRecord| {
        let has_work = match version.state {
            VersionState::Current | VersionState::Ramping => true,
            VersionState::Draining => version.drained_since.is_none(),
            VersionState::Inactive | VersionState::NotRegistered | VersionState::Drained => false,
        };
        let is_wanted = !report.is_terminating && version.build_id.as_str() == report.target_build_id;
        (has_work || is_wanted) && (version.replicas == 0 || version.ready < version.replicas)
    };
    let mut short = report.versions.iter().filter(is_short);
    let first = short.next()?;
    let is_wanted = |version: &&VersionRecord| version.build_id.as_str() == report.target_build_id;
    Some(if is_wanted(&first) { first } else { short.find(is_wanted).unwrap_or(first) })
}

/// Explains a raw `WorkerDeployment`. `pod`: the worst pod of the [blocking version](version_in_the_way), with its
/// events.
#[must_use]
pub fn of_workers(
    object: &Value,
    report: &WorkersReport,
    pod: Option<&ObservedPod>,
    events: &[TimelineEntry],
) -> Chain {
    let mut chain = Chain::default();
    let target = format!("wwd/{} -n {}", report.name, report.namespace);
    let status: WorkerDeploymentStatus = serde_json::from_value(object["status"].clone()).unwrap_or_default();
    let unhealthy = unhealthy_conditions(&status.conditions);
    let of = format!("WorkerDeployment {}", report.name);
    for condition in &unhealthy {
        chain.add_condition(of.clone(), condition);
    }
    if unhealthy.is_empty() {
        let says = if report.waiting_for.is_empty() { &report.summary } else { &report.waiting_for };
        chain.add(0, &of, says, None);
    }
    if let Some(connection) = &report.connection {
        let last = status.connection.as_ref();
        let says = last.map_or("it was never found".to_owned(), |last| {
            format!("address {}, Temporal namespace {}", last.address, last.namespace)
        });
        chain.add(1, format!("connection {connection}"), says, None);
    }
    plan(&mut chain, report, &target);
    workers(&mut chain, report, pod, events);
    for condition in unhealthy {
        offer_for(&mut chain, condition, report, &target);
    }
    if object["metadata"]["deletionTimestamp"].is_string() {
        let command = format!("windlass delete {target} --now");
        chain.offer("delete it now: running workflows lose their workers", command);
    } else if object["spec"]["paused"] == true {
        chain.offer("resume the rollout", format!("windlass resume {target}"));
    }
    chain
}

fn plan(chain: &mut Chain, report: &WorkersReport, target: &str) {
    let Some(plan) = report.plan.as_ref().filter(|plan| plan.state == PlanState::Active) else {
        if let Some(evacuation) = report.evacuated() {
            chain.add(1, "last plan", evacuation, None);
        }
        return;
    };
    let says = format!("{} of {} is {:?}", plan.recipe, report.builds(), plan.state);
    chain.add(1, format!("plan {}", plan.id), says, Some(plan.started_at));
    let is_over = |state: TaskState| matches!(state, TaskState::Complete | TaskState::Skipped);
    let Some(task) = plan.tasks.iter().find(|task| !is_over(task.state)) else { return };
    let hook = if task.hook.is_empty() { String::new() } else { format!(" of hook {}", task.hook) };
    let says = if task.message.is_empty() { format!("{:?}", task.state) } else { task.message.clone() };
    chain.add(2, format!("task {}{hook}", task.type_), says, task.started_at);
    if task.type_ == TaskType::AwaitApproval.as_ref() {
        chain.offer("approve the hook", format!("windlass approve {target}"));
    }
    let is_evacuation = report.evacuation.is_some();
    if task.state == TaskState::Failed {
        let what = match (is_evacuation, task.hook.is_empty()) {
            (true, _) => "evacuation",
            (false, true) => "gate",
            (false, false) => "hook",
        };
        chain.offer(&format!("retry the {what}"), format!("windlass retry {target}"));
        chain.offer("skip the task", format!("windlass skip {target} --task {}", task.id));
    }
    if task.state == TaskState::Failed && is_evacuation {
        chain.offer(
            "end the evacuation; workflows that have moved stay there",
            format!("windlass abort {target}"),
        );
    } else if task.state == TaskState::Failed {
        chain.offer("roll back to the previous build ID", format!("windlass rollback {target}"));
        chain.offer("abort this version", format!("windlass abort {target}"));
    }
}

fn workers(chain: &mut Chain, report: &WorkersReport, pod: Option<&ObservedPod>, events: &[TimelineEntry]) {
    let Some(version) = version_in_the_way(report) else { return };
    let VersionRecord { build_id, state, ready, replicas, .. } = version;
    let says = format!("{state:?}, {ready} of {replicas} workers are ready");
    chain.add(3, format!("version {build_id}"), says, version.since);
    let namespace = &report.namespace;
    let Some(pod) = pod else {
        let Some(deployment) = &version.deployment else { return };
        chain.add(4, format!("Deployment {deployment}"), "it has no pod", None);
        let command = format!("kubectl describe deployment/{deployment} -n {namespace}");
        chain.offer("see why no pod is created", command);
        return;
    };
    let name = &pod.meta.name;
    let (words, since) = pod_words(pod);
    chain.add(4, format!("pod {name}"), words, since);
    chain.add_events(5, events);
    if let Some(container) = pod.containers.iter().find(|container| !container.init && container.restarts > 0)
    {
        let command = format!("kubectl logs {name} -n {namespace} -c {} --previous", container.name);
        chain.offer("read the logs before its last restart", command);
    }
    if !pod.is_ready() {
        chain.offer("see the pod with its events", format!("kubectl describe pod {name} -n {namespace}"));
    }
}

fn offer_for(chain: &mut Chain, condition: &Condition, report: &WorkersReport, target: &str) {
    let (name, namespace) = (&report.name, &report.namespace);
    let edit = || format!("kubectl edit wwd/{name} -n {namespace}");
    let wanted = || {
        let build = report.versions.iter().find(|v| v.build_id.as_str() == report.target_build_id);
        build.and_then(|version| version.deployment.as_deref())
    };
    match condition.reason.parse().ok() {
        Some(Reason::ReadyToPromote) => {
            chain.offer("send all new workflows to it", format!("windlass promote {target}"));
        }
        Some(Reason::Aborted | Reason::RolledBack | Reason::PlanFailed) => {
            chain.offer("try the same target again", format!("windlass retry {target}"));
        }
        Some(Reason::InvalidSpec) => chain.offer("fix the spec", edit()),
        Some(Reason::TemporalUnreachable) => {
            let see = "see the address of Temporal, and check that it runs there";
            if let Some(connection) = &report.connection {
                chain.offer(see, format!("kubectl get {connection} -n {namespace}"));
                chain.offer("change its address", format!("kubectl edit {connection} -n {namespace}"));
            } else {
                let spec = "-o jsonpath='{.spec.connection}'";
                chain.offer(see, format!("kubectl get wwd/{name} -n {namespace} {spec}"));
                chain.offer("change the address in spec.connection", edit());
            }
        }
        Some(Reason::CredentialsInvalid | Reason::ConnectionSecretNotFound) => {
            match report.connection.as_deref().filter(|of| of.starts_with("clustertemporalconnection")) {
                Some(connection) => {
                    let field = "-o jsonpath='{.spec.secretNamespace}'";
                    chain.offer(
                        "find the namespace of the Secrets",
                        format!("kubectl get {connection} {field}"),
                    );
                }
                None => chain.offer("list the Secrets", format!("kubectl get secrets -n {namespace}")),
            }
            let edit = match &report.connection {
                Some(connection) => format!("kubectl edit {connection} -n {namespace}"),
                None => edit(),
            };
            chain.offer("change the Secrets of the connection", edit);
        }
        Some(Reason::ConnectionNotFound) => {
            let kinds = "temporalconnections,clustertemporalconnections";
            chain.offer("list the connections", format!("kubectl get {kinds} -n {namespace}"));
            chain.offer("name another connection", edit());
        }
        Some(Reason::ConnectionNotAllowed) => {
            if let Some(connection) = &report.connection {
                chain.offer("allow the namespace", format!("kubectl edit {connection}"));
            }
            chain.offer("name another connection", edit());
        }
        Some(Reason::VersionLimitReached) => {
            chain.offer("see which versions still run workflows", format!("windlass status {target}"));
            chain.offer("raise spec.maxVersions", edit());
        }
        Some(Reason::OwnedByOther) => chain.offer(
            "remove the other manager, if it no longer exists",
            "temporal worker deployment manager-identity unset".to_owned(),
        ),
        Some(Reason::WaitingForPollers | Reason::MissingTaskQueues) => {
            if let Some(deployment) = wanted() {
                let command = format!("kubectl logs deployment/{deployment} -n {namespace}");
                chain.offer("read the logs of its workers", command);
            }
            if condition.reason == Reason::MissingTaskQueues.as_ref() {
                chain.offer("roll back to the previous build ID", format!("windlass rollback {target}"));
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use chrono::{DateTime, Utc};
    use serde_json::json;

    use super::*;
    use crate::extension::built_in::report::tests::ramping;
    use crate::report::chain::Link;
    use windlass_kube_port::observed::Observed;

    fn explained(change: &Value, pod: Option<&Value>) -> (Vec<String>, Vec<String>) {
        let now: DateTime<Utc> = "2026-01-01T04:15:11Z".parse().unwrap();
        let mut object = ramping();
        json_patch::merge(&mut object, change);
        let report = WorkersReport::of(&object, now);
        let event = TimelineEntry {
            about: crate::report::chain::Subject::of("Pod", "p"),
            reason: "Failed".into(),
            note: "no image".into(),
            at: now,
        };
        let pod = pod.map(ObservedPod::read);
        let chain = of_workers(
            &object,
            &report,
            pod.as_ref(),
            if pod.is_some() { std::slice::from_ref(&event) } else { &[] },
        );
        let link = |link: &Link| format!("{} {}: {}", link.depth, link.of, link.says);
        (chain.links.iter().map(link).collect(), chain.remedies.iter().map(|r| r.command.clone()).collect())
    }

    #[test]
    fn failed_evacuation_offers_retry_skip_and_abort() {
        let failed = json!({"status": {
        "plan": {"recipe": "Evacuate", "tasks": [{"id": "0123456789-1", "type": "move-workflows", "state": "Failed",
            "message": "could not move 3"}]},
        "evacuation": {"request": "x", "phase": "Failed", "from": "1.0-z", "to": "1.1-a"},
        "conditions": [
            {"type": "UpToDate", "status": "True", "reason": "Applied", "lastTransitionTime": "2026-01-01T04:15:08Z"},
            {"type": "Stalled", "status": "True", "reason": "EvacuationFailed", "message": "could not move 3",
                "lastTransitionTime": "2026-01-01T04:15:08Z"},
        ]}});
        let (links, commands) = explained(&failed, None);
        assert!(links.iter().any(|link| link.contains("workflows move from 1.0-z to 1.1-a")), "{links:?}");
        let target = "wwd/orders -n shop";
        for command in [
            format!("windlass retry {target}"),
            format!("windlass skip {target} --task 0123456789-1"),
            format!("windlass abort {target}"),
        ] {
            assert!(commands.contains(&command), "{command}: {commands:?}");
        }
        assert!(!commands.iter().any(|command| command.starts_with("windlass rollback")), "{commands:?}");
    }

    #[test]
    fn unreachable_temporal_and_blocked_deletion_offer_remedies() {
        let away = json!({"status": {"plan": null, "conditions": [{"type": "UpToDate", "status": "Unknown",
            "reason": "TemporalUnreachable", "message": "no response",
            "lastTransitionTime": "2026-01-01T04:15:08Z"}]}});
        let (_, commands) = explained(&away, None);
        let edit = "kubectl edit wwd/orders -n shop";
        let look = "kubectl get wwd/orders -n shop -o jsonpath='{.spec.connection}'";
        assert!(commands.iter().any(|c| c == look) && commands.iter().any(|c| c == edit), "{commands:?}");
        let (_, commands) =
            explained(&json!({"metadata": {"deletionTimestamp": "2026-01-01T04:15:00Z"}}), None);
        assert!(commands.iter().any(|c| c == "windlass delete wwd/orders -n shop --now"), "{commands:?}");
    }

    #[test]
    fn named_connection_is_shown_and_changed_where_it_is() {
        let away = |field: &str, reason: &str| {
            json!({"spec": {"connection": {"address": null, field: "main"}}, "status": {
                "plan": null, "connection": {"address": "temporal:7233", "namespace": "orders"}, "versions": null,
                "conditions": [{"type": "UpToDate", "status": "False", "reason": reason, "message": "why",
                    "lastTransitionTime": "2026-01-01T04:15:08Z"}]}})
        };
        let (links, commands) = explained(&away("name", "TemporalUnreachable"), None);
        let link = "1 connection temporalconnection/main: address temporal:7233, Temporal namespace orders";
        assert!(links.iter().any(|known| known == link), "{links:?}");
        let edit = "kubectl edit temporalconnection/main -n shop";
        assert!(commands.iter().any(|command| command == edit), "{commands:?}");
        let (_, commands) = explained(&away("clusterName", "ConnectionNotAllowed"), None);
        assert_eq!(commands[0], "kubectl edit clustertemporalconnection/main");
    }

    #[test]
    fn chain_leads_from_condition_to_pod_of_blocking_version() {
        let pod = json!({"metadata": {"name": "orders-1.2-b-x", "namespace": "shop"}, "status": {"phase": "Pending",
            "conditions": [{"type": "Ready", "status": "False"}],
            "containerStatuses": [{"name": "worker", "state": {"waiting": {"reason": "ImagePullBackOff", "message": "Back-off"}}}]}});
        let (links, commands) = explained(&json!({}), Some(&pod));
        assert_eq!(
            links,
            [
                "0 WorkerDeployment orders: UpToDate=Unknown Ramping: at 5% for 3s of 60s",
                "1 plan 0123456789: WorkerRollout of 1.1-a → 1.2-b is Active",
                "2 task ramp: at 5% for 3s of 60s",
                "3 version 1.2-b: Ramping, 1 of 2 workers are ready",
                "4 pod orders-1.2-b-x: container worker: ImagePullBackOff: Back-off",
                "5 event Failed: no image",
            ]
        );
        assert_eq!(commands, ["kubectl describe pod orders-1.2-b-x -n shop"]);
        let (links, _) = explained(&json!({}), None);
        assert_eq!(links.last().map(String::as_str), Some("4 Deployment orders-1.2-b: it has no pod"));
    }

    #[test]
    fn manual_step_offers_the_next_command() {
        let first = |reason: &str, truth: &str| {
            let conditions = json!([{"type": "UpToDate", "status": truth, "reason": reason,
                "lastTransitionTime": "2026-01-01T04:00:00Z"}]);
            let versions = json!([{"buildID": "1.2-b", "state": "Inactive", "replicas": 1, "ready": 1,
                "deployment": "orders-1.2-b"}]);
            let (_, commands) =
                explained(&json!({"status": {"conditions": conditions, "versions": versions}}), None);
            commands.first().cloned().unwrap_or_default()
        };
        for (reason, truth, command) in [
            ("ReadyToPromote", "Unknown", "windlass promote wwd/orders -n shop"),
            ("RolledBack", "False", "windlass retry wwd/orders -n shop"),
            ("InvalidSpec", "False", "kubectl edit wwd/orders -n shop"),
            ("ConnectionSecretNotFound", "False", "kubectl get secrets -n shop"),
            (
                "ConnectionNotFound",
                "False",
                "kubectl get temporalconnections,clustertemporalconnections -n shop",
            ),
            ("VersionLimitReached", "False", "windlass status wwd/orders -n shop"),
            ("OwnedByOther", "False", "temporal worker deployment manager-identity unset"),
            ("WaitingForPollers", "Unknown", "kubectl logs deployment/orders-1.2-b -n shop"),
            ("MissingTaskQueues", "False", "kubectl logs deployment/orders-1.2-b -n shop"),
            ("Ramping", "Unknown", ""),
        ] {
            assert_eq!(first(reason, truth), command, "{reason}");
        }
        let failed = json!({"status": {"plan": {"tasks": [{"id": "0123456789-1", "type": "run-gate", "state": "Failed",
            "message": "the smoke test failed"}]}, "versions": []}, "spec": {"paused": true}});
        let (_, commands) = explained(&failed, None);
        assert_eq!(
            commands,
            [
                "windlass retry wwd/orders -n shop",
                "windlass skip wwd/orders -n shop --task 0123456789-1",
                "windlass rollback wwd/orders -n shop",
                "windlass abort wwd/orders -n shop",
                "windlass resume wwd/orders -n shop",
            ]
        );
    }
}
