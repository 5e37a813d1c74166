//! Why a pod does not serve, as the kubelet or the scheduler reports it.

use serde_json::{Value, json};

use super::super::problem::pod_facts;
use super::*;
use crate::observed::{Observed, ObservedPod};

fn observed(status: &Value) -> ObservedPod {
    let mut object = json!({
        "metadata": {
            "name": "db-0-0", "namespace": "shop", "uid": "pod-1",
            "labels": {"controller-revision-hash": "db-0-v1"},
            "ownerReferences": [{"kind": "StatefulSet", "name": "db-0", "uid": "set-uid", "controller": true}],
        },
        "spec": {"containers": [{"name": "log", "image": "log:1"}, {"name": "db", "image": "db:v1"}]},
    });
    object["status"] = status.clone();
    ObservedPod::read(&object)
}

fn read(status: &Value) -> PodFacts {
    pod_facts(&observed(status), "db", Some("set-uid"), None, None, now())
}

fn waiting(reason: &str, message: &str) -> Value {
    json!({"name": "db", "state": {"waiting": {"reason": reason, "message": message}}})
}

#[test]
fn problem_has_its_own_message_and_lasting_flag() {
    let (lasting, passing) = (true, false);
    let unscheduled = |reason: &str| json!({"conditions": [{"type": "PodScheduled", "status": "False", "reason": reason, "message": "0/3 nodes"}]});
    let table = [
        ("ready", json!({"conditions": [{"type": "Ready", "status": "True"}]}), None),
        (
            "image pull",
            json!({"containerStatuses": [waiting("ImagePullBackOff", "not found")]}),
            Some(("ImagePullBackOff", "not found", lasting)),
        ),
        (
            "crash loop",
            json!({"containerStatuses": [waiting("CrashLoopBackOff", "")]}),
            Some(("CrashLoopBackOff", "container db is waiting: CrashLoopBackOff", lasting)),
        ),
        (
            "an init container that crashes",
            json!({"initContainerStatuses": [waiting("CrashLoopBackOff", "back-off")]}),
            Some(("CrashLoopBackOff", "back-off", lasting)),
        ),
        (
            "creating",
            json!({"containerStatuses": [waiting("ContainerCreating", "")]}),
            Some(("NotReady", "container db of pod db-0-0 is not running yet", passing)),
        ),
        (
            "initializing",
            json!({"containerStatuses": [waiting("PodInitializing", "")]}),
            Some(("NotReady", "container db of pod db-0-0 is not running yet", passing)),
        ),
        ("unschedulable", unscheduled("Unschedulable"), Some(("Unschedulable", "0/3 nodes", lasting))),
        (
            "gated",
            unscheduled("SchedulingGated"),
            Some(("NotReady", "pod db-0-0 is not scheduled: SchedulingGated: 0/3 nodes", passing)),
        ),
        (
            "running",
            json!({"containerStatuses": [{"name": "db", "state": {"running": {}}}]}),
            Some(("NotReady", "container db of pod db-0-0 is running but not ready", passing)),
        ),
    ];
    for (what, status, expected) in table {
        let facts = read(&status);
        let found = facts.problem.as_ref().map(|p| (p.reason.as_str(), p.message.as_str(), facts.cannot_run));
        assert_eq!(found, expected, "{what}");
    }
}

#[test]
fn pod_runs_when_its_main_container_does_or_has_no_state() {
    let of = |container: Value| json!({"phase": "Running", "containerStatuses": [container]});
    let ready = json!([{"type": "Ready", "status": "True"}]);
    for (status, runs) in [
        (of(json!({"name": "db", "imageID": "sha256:1", "state": {"running": {}}})), true),
        (of(json!({"name": "db", "imageID": "", "state": {"running": {}}})), true),
        (of(json!({"name": "db", "state": {"terminated": {"exitCode": 1}}})), false),
        (of(json!({"name": "db", "state": {"waiting": {"reason": "ContainerCreating"}}})), false),
        // No state, and the default of one.
        (of(json!({"name": "db"})), true),
        (of(json!({"name": "db", "state": {"waiting": {}}})), true),
        (of(json!({"name": "log", "state": {"running": {}}})), true),
        (json!({"phase": "Running"}), true),
        (json!({"phase": "Pending"}), false),
        (json!({"phase": "Pending", "conditions": ready}), true),
        (json!({}), false),
        // An evicted pod, with the last that was seen of its containers.
        (json!({"phase": "Failed", "containerStatuses": [{"name": "db", "state": {"running": {}}}]}), false),
        (json!({"phase": "Succeeded"}), false),
    ] {
        let facts = read(&status);
        assert_eq!((facts.running, facts.never_started && runs), (runs, false), "{status}");
    }
}

#[test]
fn pod_image_is_read_from_its_spec_and_not_from_its_status() {
    let facts = read(
        &json!({"containerStatuses": [{"name": "db", "image": "docker.io/library/db:v1", "imageID": "x", "state": {"running": {}}}]}),
    );
    assert_eq!((facts.main_image.as_str(), facts.revision.as_str(), facts.owned), ("db:v1", "db-0-v1", true));
    let first = pod_facts(&observed(&json!({})), "", Some("other"), None, None, now());
    assert_eq!((first.main_image.as_str(), first.owned), ("log:1", false));
}

/// What is reported when the kubelet shows these states of the container db of pod-1, one after the other.
fn told(shown: &[Value]) -> Vec<(String, bool)> {
    told_of(shown, &[])
}

/// As [`told`], with other containers before db.
fn told_of(shown: &[Value], others: &[Value]) -> Vec<(String, bool)> {
    let (mut before, mut told): (Option<Problem>, Vec<(String, bool)>) = (None, Vec::new());
    for container in shown {
        let mut all = others.to_vec();
        all.push(container.clone());
        let pod = observed(&json!({"containerStatuses": all}));
        let facts = pod_facts(&pod, "db", None, before.as_ref(), None, now());
        let problem = facts.problem.unwrap();
        told.push((format!("{}: {}", problem.reason, problem.message), facts.cannot_run));
        before = Some(problem);
    }
    told
}

fn runs(restarts: i64) -> Value {
    json!({"name": "db", "imageID": "x", "restartCount": restarts, "state": {"running": {}}})
}

fn ended(code: i64) -> Value {
    let reason = if code == 0 { "Completed" } else { "Error" };
    json!({"name": "db", "imageID": "x", "restartCount": 3, "state": {"terminated": {"exitCode": code, "reason": reason}}})
}

#[test]
fn alternating_kubelet_reasons_are_reported_as_one_problem() {
    let loops = || waiting("CrashLoopBackOff", "back-off 10s");
    let cycle =
        [loops(), runs(1), ended(1), waiting("CrashLoopBackOff", "back-off 20s"), runs(2), ended(0), loops()];
    let found = told(&cycle);
    assert!(
        found.iter().all(|(says, lasting)| says.starts_with("CrashLoopBackOff: back-off 10s") && *lasting)
    );
    let ends = |says: &str| says.split_once("; last termination: ").map(|(_, end)| end.to_owned());
    let ends: Vec<_> = found.iter().map(|(says, _)| ends(says)).collect();
    let [failed, done] = ["Error, exit code 1", "Completed, exit code 0"].map(|end| Some(end.to_owned()));
    assert_eq!(ends, [None, None, failed.clone(), failed.clone(), failed, done.clone(), done]);

    let backs_off = || waiting("ImagePullBackOff", "Back-off pulling image \"db:2\"");
    let fails = |why: &str| waiting(why, "not found");
    let pulls = [
        fails("ErrImagePull"),
        backs_off(),
        fails("ErrImagePull"),
        backs_off(),
        fails("RegistryUnavailable"),
    ];
    let found = told(&pulls);
    assert_eq!(found[0], ("ErrImagePull: not found".to_owned(), true));
    let once = ("ImagePullBackOff: Back-off pulling image \"db:2\"; not found".to_owned(), true);
    assert_eq!(found[1..], vec![once; 4], "the more telling word, once, and with its cause");
    let newer =
        [fails("ErrImagePull"), waiting("ImagePullBackOff", "Back-off pulling: ErrImagePull: not found")];
    assert_eq!(told(&newer)[1].0, "ImagePullBackOff: Back-off pulling: ErrImagePull: not found");

    let starts = [waiting("RunContainerError", "no such file"), ended(128), loops(), runs(4)];
    let found = told(&starts);
    let end = "; last termination: Error, exit code 128";
    assert_eq!(found[1].0, format!("{}{end}", found[0].0), "it did not even start");
    assert_eq!(found[2].0, "CrashLoopBackOff: back-off 10s; no such file");
    assert_eq!(found[3], found[2]);
}

#[test]
fn container_running_past_the_crash_window_is_not_a_crash_loop() {
    let started = |minutes: i64| {
        let mut runs = runs(2);
        runs["state"]["running"]["startedAt"] = json!((now() - TimeDelta::minutes(minutes)).to_rfc3339());
        told(&[waiting("CrashLoopBackOff", "back-off"), runs]).pop().unwrap()
    };
    assert_eq!(started(9), ("CrashLoopBackOff: back-off".to_owned(), true));
    assert_eq!(
        started(10),
        ("NotReady: container db of pod db-0-0 is running but not ready".to_owned(), false)
    );
}

#[test]
fn different_problem_replaces_the_reported_one() {
    let loops = || waiting("CrashLoopBackOff", "back-off");
    let cases = [
        (vec![loops(), waiting("ImagePullBackOff", "x")], "ImagePullBackOff: x", true),
        (vec![waiting("ImagePullBackOff", "x"), loops()], "CrashLoopBackOff: back-off", true),
        (
            vec![waiting("ImagePullBackOff", "x"), waiting("ContainerCreating", "")],
            "NotReady: container db of pod db-0-0 is not running yet",
            false,
        ),
        (
            vec![waiting("ErrImagePull", "x"), runs(0)],
            "NotReady: container db of pod db-0-0 is running but not ready",
            false,
        ),
        (
            vec![
                waiting("CreateContainerConfigError", "no Secret"),
                waiting("CreateContainerConfigError", "no key"),
            ],
            "CreateContainerConfigError: no key",
            true,
        ),
        (vec![waiting("InvalidImageName", "x"), waiting("ErrImagePull", "y")], "ErrImagePull: y", true),
        // A single exit is not a crash loop yet, and a container that never ran before is not in one either.
        (
            vec![runs(0), ended(1)],
            "NotReady: container db of pod db-0-0 is not ready; last termination: Error, exit code 1",
            false,
        ),
        (vec![loops(), runs(0)], "NotReady: container db of pod db-0-0 is running but not ready", false),
    ];
    for (shown, last, cannot_run) in cases {
        assert_eq!(told(&shown).pop().unwrap(), (last.to_owned(), cannot_run), "{shown:?}");
    }
}

#[test]
fn first_of_two_crashing_containers_stays_the_reported_one() {
    let mut log = waiting("CrashLoopBackOff", "back-off of log");
    log["name"] = json!("log");
    let mut log_runs = runs(3);
    log_runs["name"] = json!("log");
    let both = |log: &Value, db: Value, before: Option<&Problem>| {
        let pod = observed(&json!({"containerStatuses": [log, db]}));
        pod_facts(&pod, "db", None, before, None, now()).problem.unwrap()
    };
    let first = both(&log, waiting("CrashLoopBackOff", "back-off of db"), None);
    assert_eq!((first.message.as_str(), first.container.as_str()), ("back-off of log", "log"));
    assert_eq!(both(&log_runs, waiting("CrashLoopBackOff", "back-off of db"), Some(&first)), first);
    // Once that one is ready, the other is reported.
    log_runs["ready"] = json!(true);
    let then = both(&log_runs, waiting("CrashLoopBackOff", "back-off of db"), Some(&first));
    assert_eq!(then.message, "back-off of db");
}

#[test]
fn completed_init_container_ends_a_crash_loop() {
    let init = |state: Value, ready: bool| {
        json!({"initContainerStatuses": [{"name": "init", "restartCount": 2, "ready": ready, "state": state}],
            "containerStatuses": [waiting("PodInitializing", "")]})
    };
    let read = |status: &Value, before: Option<&Problem>| {
        pod_facts(&observed(status), "db", None, before, None, now())
    };
    let loops = read(&init(json!({"waiting": {"reason": "CrashLoopBackOff", "message": "m"}}), false), None);
    let loops = loops.problem.unwrap();
    for (state, ready, goes_on) in [
        (json!({"running": {}}), false, true),
        (json!({"terminated": {"exitCode": 1}}), false, true),
        (json!({"terminated": {"exitCode": 0}}), true, false),
        (json!({"running": {}}), true, false),
    ] {
        let facts = read(&init(state.clone(), ready), Some(&loops));
        assert_eq!(facts.cannot_run, goes_on, "{state} {ready}");
    }
}

#[test]
fn crash_loop_belongs_to_one_pod_and_ends_when_it_is_ready() {
    let looping = Problem {
        reason: "CrashLoopBackOff".to_owned(),
        message: "back-off".to_owned(),
        since: later(-60),
        container: "db".to_owned(),
        pod_uid: "pod-1".to_owned(),
        ..Problem::default()
    };
    let status = json!({"containerStatuses": [runs(3)]});
    let again = pod_facts(&observed(&status), "db", None, Some(&looping), None, now());
    assert_eq!((again.problem, again.cannot_run), (Some(looping.clone()), true));
    let other = Problem { pod_uid: "pod-0".to_owned(), ..looping.clone() };
    assert!(!pod_facts(&observed(&status), "db", None, Some(&other), None, now()).cannot_run);
    let gone = Problem { container: "old".to_owned(), ..looping.clone() };
    assert!(!pod_facts(&observed(&status), "db", None, Some(&gone), None, now()).cannot_run);
    let mut ready = runs(3);
    ready["ready"] = json!(true);
    let status = json!({"containerStatuses": [ready]});
    let facts = pod_facts(&observed(&status), "db", None, Some(&looping), None, now());
    assert_eq!((facts.problem.unwrap().reason.as_str(), facts.cannot_run), ("NotReady", false));
    let status = json!({"conditions": [{"type": "Ready", "status": "True"}], "containerStatuses": [ready]});
    assert_eq!(pod_facts(&observed(&status), "db", None, Some(&looping), None, now()).problem, None);
}

#[test]
fn problem_time_is_when_the_node_stopped_serving() {
    let before = Problem { reason: "NotReady".to_owned(), since: later(-60), ..Problem::default() };
    let since = |before: &Problem, status: &Value| {
        pod_facts(&observed(status), "db", None, Some(before), None, now()).problem.unwrap().since
    };
    for status in [
        json!({"containerStatuses": [waiting("ImagePullBackOff", "y")]}),
        json!({"containerStatuses": [waiting("ErrImagePull", "y")]}),
        json!({"containerStatuses": [runs(0)]}),
    ] {
        assert_eq!(since(&before, &status), later(-60), "{status}");
    }
    let set_back = Problem { since: later(3600), ..before };
    let status = json!({"containerStatuses": [waiting("ErrImagePull", "y")]});
    assert_eq!(
        since(&set_back, &status),
        now(),
        "the clock that wrote it was set back: nobody waits for that time"
    );
}

#[test]
fn only_running_unready_sidecar_keeps_a_pod_unready() {
    let unready = |has_sidecar: bool, status: &Value| {
        let mut pod = observed(status);
        pod.has_sidecar = has_sidecar;
        pod_facts(&pod, "db", None, None, None, now()).sidecar_unready
    };
    let sidecar = |state: &str, ready: bool| json!({"initContainerStatuses": [{"name": "windlass-sidecar", "ready": ready, "state": {state: {"reason": "x"}}}]});
    assert!(unready(true, &sidecar("running", false)));
    assert!(!unready(true, &sidecar("running", true)));
    assert!(!unready(true, &sidecar("waiting", false)));
    assert!(!unready(false, &sidecar("running", false)), "it is a container of the user's");
    // A kubelet that reports no containers.
    let of = |ready: &str| json!({"phase": "Running", "conditions": [{"type": "Ready", "status": ready}]});
    assert!(unready(true, &of("False")));
    assert!(!unready(true, &of("True")));
    assert!(!unready(true, &json!({"phase": "Pending"})));
}
