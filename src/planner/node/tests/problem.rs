//! Why a pod does not serve, in the kubelet's or the scheduler's own words.

use serde_json::{Value, json};

use super::super::problem::pod_facts;
use super::*;
use crate::cluster::observed::{Observed, ObservedPod};

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
    pod_facts(&observed(status), "db", Some("set-uid"), None, "", now())
}

fn waiting(reason: &str, message: &str) -> Value {
    json!({"name": "db", "state": {"waiting": {"reason": reason, "message": message}}})
}

#[test]
fn a_problem_is_told_in_the_kubelets_or_schedulers_words_and_says_whether_it_can_pass() {
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
            Some(("CrashLoopBackOff", "container db waits: CrashLoopBackOff", lasting)),
        ),
        (
            "an init container that crashes",
            json!({"initContainerStatuses": [waiting("CrashLoopBackOff", "back-off")]}),
            Some(("CrashLoopBackOff", "back-off", lasting)),
        ),
        (
            "creating",
            json!({"containerStatuses": [waiting("ContainerCreating", "")]}),
            Some(("NotReady", "container db of pod db-0-0 does not run yet", passing)),
        ),
        (
            "initializing",
            json!({"containerStatuses": [waiting("PodInitializing", "")]}),
            Some(("NotReady", "container db of pod db-0-0 does not run yet", passing)),
        ),
        ("unschedulable", unscheduled("Unschedulable"), Some(("Unschedulable", "0/3 nodes", lasting))),
        ("gated", unscheduled("SchedulingGated"), Some(("NotReady", "0/3 nodes", passing))),
        (
            "unscheduled without a word",
            unscheduled(""),
            Some(("NotReady", "pod db-0-0 is not ready", passing)),
        ),
        ("failed", json!({"phase": "Failed"}), Some(("NotReady", "pod db-0-0 has failed", passing))),
        (
            "running",
            json!({"containerStatuses": [{"name": "db", "state": {"running": {}}}]}),
            Some(("NotReady", "container db of pod db-0-0 runs and is not ready", passing)),
        ),
        ("nothing known", json!({}), Some(("NotReady", "pod db-0-0 is not ready", passing))),
    ];
    for (what, status, expected) in table {
        let facts = read(&status);
        let found = facts.problem.as_ref().map(|p| (p.reason.as_str(), p.message.as_str(), facts.cannot_run));
        assert_eq!(found, expected, "{what}");
    }
}

#[test]
fn a_pod_runs_when_its_main_container_does_and_has_an_image_id() {
    let container = |name: &str, image_id: &str| json!({"containerStatuses": [{"name": name, "imageID": image_id, "state": {"running": {}}}]});
    assert!(read(&container("db", "sha256:1")).running);
    assert!(!read(&container("db", "")).running);
    assert!(!read(&container("log", "sha256:1")).running);
    assert!(!read(&json!({"containerStatuses": [{"name": "db", "imageID": "sha256:1", "state": {"terminated": {}}}]})).running);
}

#[test]
fn a_pods_image_is_the_one_in_its_spec_and_never_the_runtimes_text() {
    let facts = read(
        &json!({"containerStatuses": [{"name": "db", "image": "docker.io/library/db:v1", "imageID": "x", "state": {"running": {}}}]}),
    );
    assert_eq!((facts.main_image.as_str(), facts.revision.as_str(), facts.owned), ("db:v1", "db-0-v1", true));
    let first = pod_facts(&observed(&json!({})), "", Some("other"), None, "", now());
    assert_eq!((first.main_image.as_str(), first.owned), ("log:1", false));
}

#[test]
fn a_crash_loop_stays_one_while_the_container_runs_for_a_moment() {
    let looping =
        Problem { reason: "CrashLoopBackOff".to_owned(), message: "back-off".to_owned(), since: later(-60) };
    let trying = json!({"containerStatuses": [{"name": "db", "imageID": "x", "restartCount": 3, "state": {"running": {}}}]});
    let again = pod_facts(&observed(&trying), "db", None, Some(&looping), "pod-1", now());
    assert_eq!((again.problem, again.cannot_run), (Some(looping.clone()), true));
    let other_pod = pod_facts(&observed(&trying), "db", None, Some(&looping), "pod-0", now());
    assert!(!other_pod.cannot_run);
    // One that never restarted, that does not run, or that is Ready itself, is not looping.
    for container in [
        json!({"name": "db", "restartCount": 0, "state": {"running": {}}}),
        json!({"name": "db", "restartCount": 3, "state": {"terminated": {"exitCode": 0}}}),
        json!({"name": "db", "restartCount": 3, "ready": true, "state": {"running": {}}}),
    ] {
        let status = json!({"containerStatuses": [container]});
        let facts = pod_facts(&observed(&status), "db", None, Some(&looping), "pod-1", now());
        assert_eq!(
            (facts.problem.unwrap().reason.as_str(), facts.cannot_run),
            ("NotReady", false),
            "{status}"
        );
    }
    let ready = json!({"conditions": [{"type": "Ready", "status": "True"}], "containerStatuses": [{"name": "db", "ready": true, "restartCount": 3, "state": {"running": {}}}]});
    assert_eq!(pod_facts(&observed(&ready), "db", None, Some(&looping), "pod-1", now()).problem, None);
}

#[test]
fn a_problem_keeps_its_time_while_its_reason_stays() {
    let before =
        Problem { reason: "ImagePullBackOff".to_owned(), message: "x".to_owned(), since: later(-60) };
    let status = json!({"containerStatuses": [waiting("ImagePullBackOff", "y")]});
    let found = pod_facts(&observed(&status), "db", None, Some(&before), "pod-1", now()).problem.unwrap();
    assert_eq!((found.since, found.message.as_str()), (later(-60), "y"));
    let status = json!({"containerStatuses": [waiting("ErrImagePull", "y")]});
    assert_eq!(
        pod_facts(&observed(&status), "db", None, Some(&before), "pod-1", now()).problem.unwrap().since,
        now()
    );
    let set_back = Problem { reason: "ErrImagePull".to_owned(), since: later(3600), ..before };
    let found = pod_facts(&observed(&status), "db", None, Some(&set_back), "pod-1", now()).problem.unwrap();
    assert_eq!(found.since, now(), "the clock that wrote it was set back: nobody waits for that time");
}

#[test]
fn only_a_running_sidecar_that_is_not_ready_keeps_a_pod_out() {
    let sidecar = |field: &str, state: &str, ready: bool| json!({field: [{"name": "windlass-sidecar", "ready": ready, "state": {state: {}}}]});
    assert!(read(&sidecar("initContainerStatuses", "running", false)).sidecar_unready);
    assert!(!read(&sidecar("initContainerStatuses", "running", true)).sidecar_unready);
    assert!(!read(&sidecar("initContainerStatuses", "waiting", false)).sidecar_unready);
    assert!(!read(&sidecar("containerStatuses", "running", false)).sidecar_unready);
}
