//! The most specific cause that a pod's status gives is told, and does not flap.

use serde_json::{Value, json};

use super::super::problem::{in_words, pod_facts};
use super::*;
use crate::observed::{Observed, ObservedPod};

const OOM: &str = "OOMKilled, exit code 137";

/// A pod with this status. `gates` are its readiness gates.
fn pod_with(gates: &[&str], uid: &str, status: &Value) -> ObservedPod {
    let gates: Vec<Value> = gates.iter().map(|gate| json!({"conditionType": gate})).collect();
    ObservedPod::read(&json!({
        "metadata": {"name": "db-0-0", "namespace": "shop", "uid": uid},
        "spec": {"containers": [{"name": "db", "image": "db:v1"}], "readinessGates": gates},
        "status": status,
    }))
}

fn words(gates: &[&str], status: &Value) -> String {
    in_words(&pod_with(gates, "pod-1", status)).unwrap()
}

fn oom() -> Value {
    json!({"terminated": {"exitCode": 137, "reason": "OOMKilled"}})
}

fn container(ready: bool, state: &Value, last: &Value, restarts: i64) -> Value {
    json!({"name": "db", "ready": ready, "restartCount": restarts, "state": state, "lastState": last})
}

fn running() -> Value {
    json!({"running": {"startedAt": "1970-01-01T00:00:00Z"}})
}

fn backs_off(seconds: u32) -> Value {
    let message = format!("back-off {seconds}s restarting failed container=db");
    json!({"waiting": {"reason": "CrashLoopBackOff", "message": message}})
}

#[test]
fn most_specific_cause_in_pod_status_is_reported() {
    let of = |containers: Value| json!({"phase": "Running", "containerStatuses": containers});
    let ready = |status: &str, message: &str| json!({"type": "Ready", "status": status, "reason": "ContainersNotReady", "message": message});
    let gate = |status: &str| json!({"type": "lb/healthy", "status": status, "reason": "Checking", "message": "0 of 2"});
    let serves = container(true, &running(), &json!({}), 0);
    let gated = |conditions: Value| json!({"phase": "Running", "conditions": conditions, "containerStatuses": [serves]});
    let signal = json!({"terminated": {"exitCode": 139, "signal": 11, "message": "core\n dumped\n"}});
    let init =
        json!({"name": "init", "ready": false, "state": {"terminated": {"exitCode": 3, "reason": "Error"}}});
    let done = json!({"name": "init", "ready": false, "state": {"terminated": {"exitCode": 0, "reason": "Completed"}}});
    let creating = json!({"name": "db", "state": {"waiting": {"reason": "PodInitializing"}}});
    let evicted = json!({"phase": "Failed", "reason": "Evicted", "message": "The node was low on resource: memory. ",
        "containerStatuses": [container(false, &oom(), &json!({}), 0)]});
    let replaced = "; the StatefulSet controller replaces it";
    let table: [(&[&str], Value, String); 17] = [
        (
            &[],
            of(json!([container(false, &backs_off(40), &oom(), 3)])),
            format!("container db: CrashLoopBackOff: back-off 40s restarting failed container=db; last termination: {OOM}"),
        ),
        (
            &[],
            of(json!([container(false, &oom(), &json!({}), 0)])),
            format!("container db of pod db-0-0 is not ready; last termination: {OOM}"),
        ),
        (
            &[],
            of(json!([container(false, &running(), &signal, 1)])),
            "container db of pod db-0-0 is not ready; last termination: exit code 139, signal 11: core dumped".into(),
        ),
        (&[], evicted, format!("pod db-0-0 has ended, Failed: Evicted: The node was low on resource: memory{replaced}")),
        (
            &[],
            json!({"phase": "Failed", "containerStatuses": [container(false, &oom(), &json!({}), 0)]}),
            format!("pod db-0-0 has ended, Failed: container db: {OOM}{replaced}"),
        ),
        (
            &[],
            json!({"phase": "Failed", "conditions": [{"type": "DisruptionTarget", "status": "True",
                "reason": "TerminationByKubelet", "message": "node is shutting down"}]}),
            format!("pod db-0-0 has ended, Failed: TerminationByKubelet: node is shutting down{replaced}"),
        ),
        (
            &[],
            json!({"phase": "Succeeded", "containerStatuses": [creating]}),
            format!("pod db-0-0 has ended, Succeeded{replaced}"),
        ),
        (
            &[],
            json!({"phase": "Pending", "initContainerStatuses": [init], "containerStatuses": [creating]}),
            "container init of pod db-0-0 is not ready; last termination: Error, exit code 3".into(),
        ),
        (
            &[],
            json!({"phase": "Pending", "initContainerStatuses": [done], "containerStatuses": [creating]}),
            "container db of pod db-0-0 is not running yet".into(),
        ),
        (
            &["lb/healthy"],
            gated(json!([ready("False", ""), gate("False")])),
            "readiness gate lb/healthy of pod db-0-0 is not True: Checking: 0 of 2".into(),
        ),
        (
            &["lb/other", "lb/healthy"],
            gated(json!([ready("False", ""), gate("True")])),
            "readiness gate lb/other of pod db-0-0 is not True: the pod does not have this condition".into(),
        ),
        (
            &["lb/healthy"],
            of(json!([container(false, &running(), &json!({}), 0)])),
            "container db of pod db-0-0 is running but not ready".into(),
        ),
        (
            &[],
            gated(json!([ready("False", "")])),
            "pod db-0-0 is not ready, although its containers are: its machine may be unreachable".into(),
        ),
        (
            &[],
            json!({"phase": "Running", "conditions": [ready("False", "unready: [db]")]}),
            "pod db-0-0 is not ready: ContainersNotReady: unready: [db]".into(),
        ),
        (&[], gated(json!([])), "pod db-0-0 is not ready: its status has no condition Ready".into()),
        (&[], json!({}), "pod db-0-0 is not ready: its status has no condition Ready".into()),
        (
            &[],
            json!({"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes"}]}),
            "Unschedulable: 0/3 nodes".into(),
        ),
    ];
    for (gates, status, expected) in table {
        assert_eq!(words(gates, &status), expected, "{status}");
    }
}

#[test]
fn scheduling_gate_names_are_reported() {
    let pod = ObservedPod::read(&json!({
        "metadata": {"name": "db-0-0"}, "spec": {"schedulingGates": [{"name": "kueue/admission"}]},
        "status": {"conditions": [{"type": "PodScheduled", "status": "False", "reason": "SchedulingGated", "message": "blocked"}]},
    }));
    let expected = "pod db-0-0 is not scheduled: SchedulingGated: blocked: scheduling gates: kueue/admission";
    assert_eq!(in_words(&pod).unwrap(), expected);
}

#[test]
fn reason_for_pod_deletion_is_reported() {
    let mut object = json!({"metadata": {"name": "db-0-0", "deletionTimestamp": "2030-01-01T00:00:00Z"}});
    for (status, expected) in [
        (json!({}), "pod db-0-0 is terminating"),
        (
            json!({"reason": "NodeLost", "message": "Node m-1 is unresponsive"}),
            "pod db-0-0 is terminating: NodeLost: Node m-1 is unresponsive",
        ),
        (
            json!({"conditions": [{"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler",
                "message": "a higher priority pod"}]}),
            "pod db-0-0 is terminating: PreemptionByScheduler: a higher priority pod",
        ),
    ] {
        object["status"] = status;
        assert_eq!(in_words(&ObservedPod::read(&object)).unwrap(), expected);
    }
}

/// The reasons and messages while a node's pods have these statuses, one after the other, each with a warning.
fn told(shown: &[(&str, Value, Option<&str>)]) -> Vec<String> {
    let (mut before, mut told): (Option<Problem>, Vec<String>) = (None, Vec::new());
    for (uid, status, warning) in shown {
        let pod = pod_with(&[], uid, status);
        let problem = pod_facts(&pod, "db", None, before.as_ref(), *warning, now()).problem.unwrap();
        assert!(before.as_ref().is_none_or(|before| before.since == problem.since), "{problem:?}");
        told.push(format!("{}: {}", problem.reason, problem.message));
        before = Some(problem);
    }
    told.dedup();
    told
}

#[test]
fn repeated_oom_kills_are_reported_as_one_problem() {
    let of = |state: &Value, last: &Value, restarts: i64| {
        (
            "pod-1",
            json!({"phase": "Running", "containerStatuses": [container(false, state, last, restarts)]}),
            None,
        )
    };
    let started = json!({"running": {"startedAt": now().to_rfc3339()}});
    let shown = [
        of(&oom(), &json!({}), 0),
        of(&started, &oom(), 1),
        of(&oom(), &oom(), 1),
        of(&backs_off(10), &oom(), 1),
        of(&started, &oom(), 2),
        of(&oom(), &oom(), 2),
        of(&backs_off(20), &oom(), 2),
    ];
    let first = format!("NotReady: container db of pod db-0-0 is not ready; last termination: {OOM}");
    let then =
        format!("CrashLoopBackOff: back-off 10s restarting failed container=db; last termination: {OOM}");
    assert_eq!(told(&shown), [first, then.clone()]);
    // It may end in another way, but not only with other last words.
    let says = |code: i64, words: &str| json!({"terminated": {"exitCode": code, "reason": "Error", "message": words}});
    let others = [
        of(&backs_off(10), &says(1, "at 10:01"), 1),
        of(&backs_off(20), &says(1, "at 10:02"), 2),
        of(&backs_off(40), &says(137, ""), 3),
    ];
    let of = |end: &str| {
        format!("CrashLoopBackOff: back-off 10s restarting failed container=db; last termination: {end}")
    };
    assert_eq!(told(&others), [of("Error, exit code 1: at 10:01"), of("Error, exit code 137")]);
}

#[test]
fn old_crash_is_not_the_cause_of_a_container_not_being_ready() {
    let started = json!({"running": {"startedAt": (now() - TimeDelta::minutes(11)).to_rfc3339()}});
    let status = json!({"phase": "Running", "containerStatuses": [container(false, &started, &oom(), 1)]});
    let told = told(&[("pod-1", status, None)]);
    assert_eq!(told, ["NotReady: container db of pod db-0-0 is running but not ready"]);
}

#[test]
fn successive_pods_with_the_same_failure_share_one_problem() {
    let rejected = |used: u32| {
        let message =
            format!("Pod was rejected: Node didn't have enough resource: cpu, requested: 2000, used: {used}");
        json!({"phase": "Failed", "reason": "OutOfcpu", "message": message})
    };
    let shown = [
        ("pod-1", rejected(3900), None),
        ("pod-2", json!({"phase": "Pending"}), None),
        ("pod-2", rejected(3950), None),
        (
            "pod-3",
            json!({"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "True"}]}),
            None,
        ),
        ("pod-3", rejected(3900), None),
    ];
    let told_of = told(&shown);
    assert_eq!(told_of.len(), 1, "{told_of:?}");
    assert!(told_of[0].contains("OutOfcpu: Pod was rejected"), "{told_of:?}");
    // Once the kubelet has accepted a pod, that is over.
    let accepted = json!({"phase": "Pending", "containerStatuses": [{"name": "db", "state": {"waiting": {"reason": "ContainerCreating"}}}]});
    let told_of = told(&[("pod-1", rejected(3900), None), ("pod-2", accepted, None)]);
    assert_eq!(told_of[1], "NotReady: container db of pod db-0-0 is not running yet");
}

#[test]
fn cluster_size_does_not_change_the_unschedulable_problem() {
    let of = |message: &str| {
        let condition =
            json!({"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message});
        ("pod-1", json!({"conditions": [condition]}), None)
    };
    let told = told(&[
        of("0/3 nodes are available: 3 Insufficient memory."),
        of("0/4 nodes are available: 4 Insufficient memory."),
        of("0/4 nodes are available: 4 Insufficient cpu."),
    ]);
    assert_eq!(told.len(), 2, "{told:?}");
}

#[test]
fn pod_warning_applies_until_a_container_starts() {
    let creating = json!({"name": "db", "state": {"waiting": {"reason": "ContainerCreating"}}});
    let creates = json!({"phase": "Pending", "containerStatuses": [creating]});
    let mut has_sandbox = creates.clone();
    has_sandbox["conditions"] = json!([{"type": "PodReadyToStartContainers", "status": "True"}]);
    let starts =
        json!({"phase": "Running", "containerStatuses": [container(false, &running(), &json!({}), 0)]});
    let mount = Some("FailedMount: no volume");
    let says = "NotReady: container db of pod db-0-0 is not running yet";
    let known = format!("{says}; last warning: FailedMount: no volume");
    for (after, expected) in [
        (("pod-1", creates.clone(), mount), None),
        // An operator that was restarted does not know the event.
        (("pod-1", creates.clone(), None), None),
        (("pod-1", has_sandbox, mount), Some(says)),
        (("pod-2", creates.clone(), None), Some(says)),
        (("pod-1", starts, mount), Some("NotReady: container db of pod db-0-0 is running but not ready")),
    ] {
        let told = told(&[("pod-1", creates.clone(), mount), after]);
        assert_eq!(told[0], known);
        assert_eq!(told.get(1).map(String::as_str), expected);
    }
}
