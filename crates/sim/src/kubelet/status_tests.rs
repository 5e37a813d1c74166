use std::{collections::BTreeSet, time::Duration};

use chrono::{DateTime, Utc};
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};
use tokio::time::Instant;
use windlass_clock::monotonic;

use super::*;
use crate::kubelet::{SIDECAR_URL, steering::Steering};

fn pod(spec: &Value) -> Pod {
    let pod = json!({
        "metadata": {"name": "db-0", "namespace": "ns", "uid": "u", "annotations": {SIDECAR_URL: "http://127.0.0.1:1"}},
        "spec": spec,
    });
    serde_json::from_value(pod).unwrap()
}

fn steering(data: &Value) -> Steering {
    let map = json!({"metadata": {"name": "steer", "namespace": "ns"}, "data": data});
    let mut steering = Steering::default();
    steering.set(serde_json::from_value(map).unwrap());
    steering
}

/// A pod under one kubelet, observed over time.
struct Watched {
    pod: Pod,
    life: Life,
    start: Instant,
}

impl Watched {
    fn new(spec: &Value) -> Self {
        let pod = pod(spec);
        Self { life: Life::adopt(&pod, "127.64.0.1".into()), pod, start: monotonic() }
    }

    fn after(&mut self, seconds: u32, said: &Value) -> (Value, Option<u64>) {
        let since: DateTime<Utc> = "2026-01-01T00:00:00Z".parse().unwrap();
        let instant = self.start + Duration::from_secs(seconds.into());
        let now = Now { instant, wall: since + Duration::from_secs(seconds.into()) };
        let outlook = self.life.outlook(&self.pod, &steering(said).orders(&self.pod), now).unwrap();
        // As the API server would store it.
        let mut status = serde_json::to_value(self.pod.status.clone().unwrap_or_default()).unwrap();
        for (key, value) in outlook.status.as_object().unwrap() {
            status[key] = value.clone();
        }
        self.pod.status = serde_json::from_value(status.clone()).unwrap();
        (status, outlook.again.map(|again| again.duration_since(self.start).as_secs()))
    }
}

fn truth(status: &Value, kind: &str) -> bool {
    status["conditions"].as_array().unwrap().iter().any(|c| c["type"] == kind && c["status"] == "True")
}

#[test]
fn crashing_container_restarts_with_exponential_backoff() {
    let mut watched = Watched::new(&json!({"containers": [{"name": "main", "image": "x:crash"}]}));
    let mut at = 0;
    let mut seen = Vec::new();
    for _ in 0..7 {
        let (status, again) = watched.after(at, &json!({}));
        seen.push((at, status["containerStatuses"][0]["restartCount"].as_i64().unwrap()));
        at = u32::try_from(again.unwrap()).unwrap();
    }
    assert_eq!(seen, [(0, 1), (10, 2), (30, 3), (70, 4), (150, 5), (310, 6), (610, 7)]);
}

#[test]
fn waiting_reasons_alternate_as_on_real_kubelets() {
    let mut watched = Watched::new(&json!({"containers": [{"name": "main", "image": "x:pull-loop"}]}));
    let mut reasons = Vec::new();
    for at in [0, 5, 12, 22, 34] {
        let (status, again) = watched.after(at, &json!({}));
        assert!(again.is_some_and(|again| again > at.into()) && status["phase"] == "Pending");
        let reason =
            status["containerStatuses"][0]["state"]["waiting"]["reason"].as_str().unwrap().to_owned();
        reasons.push(reason);
    }
    assert_eq!(
        reasons,
        ["ErrImagePull", "ErrImagePull", "ImagePullBackOff", "ErrImagePull", "ImagePullBackOff"]
    );

    let mut watched = Watched::new(&json!({"containers": [{"name": "main", "image": "x:crash-loop"}]}));
    let (mut seen, mut began) = (Vec::new(), BTreeSet::new());
    for at in [0, 3, 5, 15, 18] {
        let (status, _) = watched.after(at, &json!({}));
        assert!(status["phase"] == "Running" && !truth(&status, "Ready"), "{status:#}");
        let container = &status["containerStatuses"][0];
        let times = [&container["state"]["running"], &container["state"]["terminated"]];
        began.extend(times.iter().filter_map(|state| state["startedAt"].as_str()).map(str::to_owned));
        let state = container["state"].as_object().unwrap().keys().next().unwrap().clone();
        seen.push((state, container["restartCount"].as_i64().unwrap()));
    }
    let seen: Vec<(&str, i64)> = seen.iter().map(|(state, count)| (state.as_str(), *count)).collect();
    assert_eq!(seen, [("running", 0), ("terminated", 0), ("waiting", 0), ("running", 1), ("terminated", 1)]);
    assert_eq!(began.len(), 2, "each try has a time of its own: {began:?}");
    let (status, _) = watched.after(20, &json!({"db-0": "ready"}));
    assert!(truth(&status, "Ready") && status["containerStatuses"][0]["restartCount"] == 1);
}

#[test]
fn unstartable_init_container_blocks_later_containers() {
    let spec = json!({
        "initContainers": [{"name": "setup", "image": "x:nope"}, {"name": "sidecar", "image": "x", "restartPolicy": "Always"}],
        "containers": [{"name": "main", "image": "x"}],
    });
    let mut watched = Watched::new(&spec);
    let (status, _) = watched.after(0, &json!({}));
    assert_eq!(status["phase"], "Pending");
    assert!(!truth(&status, "Initialized") && !truth(&status, "Ready"));
    let reason = |status: &Value, list: &str, n: usize| status[list][n]["state"]["waiting"]["reason"].clone();
    assert_eq!(reason(&status, "initContainerStatuses", 0), "ImagePullBackOff");
    assert_eq!(reason(&status, "initContainerStatuses", 1), "PodInitializing");
    assert_eq!(reason(&status, "containerStatuses", 0), "PodInitializing");
    let (status, _) = watched.after(1, &json!({"db-0.setup": "ready"}));
    assert!(status["phase"] == "Running" && truth(&status, "Ready"));
}

#[test]
fn unprobed_or_crashing_sidecar_affects_only_readiness() {
    let spec = json!({
        "initContainers": [{"name": "sidecar", "image": "x", "restartPolicy": "Always",
            "readinessProbe": {"httpGet": {"path": "/readyz", "port": 7777}}}],
        "containers": [{"name": "main", "image": "x"}],
    });
    let mut watched = Watched::new(&spec);
    let (status, _) = watched.after(0, &json!({}));
    assert!(status["phase"] == "Running" && truth(&status, "Initialized") && !truth(&status, "Ready"));
    watched.life.probed = true;
    assert!(truth(&watched.after(1, &json!({})).0, "Ready"));
    let (status, _) = watched.after(2, &json!({"db-0.sidecar": "crash"}));
    assert!(status["phase"] == "Running" && !truth(&status, "Ready"));
}

#[test]
fn restarted_kubelet_adopts_running_pod_unchanged() {
    let spec = json!({"containers": [{"name": "main", "image": "x:slow"}]});
    let mut first = Watched::new(&spec);
    first.after(0, &json!({"db-0": "crash"}));
    let (_, again) = first.after(3, &json!({}));
    assert_eq!(again, Some(8), "slow from its restart on");
    let (left, again) = first.after(8, &json!({}));
    assert!(truth(&left, "Ready") && again.is_none());

    let mut second = Watched::new(&spec);
    second.pod = first.pod;
    second.life = Life::adopt(&second.pod, "10.64.0.9".into());
    assert_eq!(second.after(20, &json!({})).0, left);
}

#[test]
fn oom_killed_container_is_reported_after_its_restart() {
    let mut watched = Watched::new(&json!({"containers": [{"name": "main", "image": "x:oom"}]}));
    let state = |status: &Value| status["containerStatuses"][0].clone();
    let killed = |state: &Value| {
        (state["terminated"]["reason"] == "OOMKilled") && state["terminated"]["exitCode"] == 137
    };
    assert!(state(&watched.after(0, &json!({})).0)["state"]["running"].is_object());
    assert!(killed(&state(&watched.after(4, &json!({})).0)["state"]));
    for seconds in [6, 16] {
        let seen = state(&watched.after(seconds, &json!({})).0);
        assert!(killed(&seen["lastState"]), "{seen}");
    }
}

#[test]
fn steered_pod_is_evicted_or_waits_for_its_volume() {
    let spec = json!({"containers": [{"name": "main", "image": "x"}]});
    let mut watched = Watched::new(&spec);
    let said = json!({"db-0": "evicted"});
    let (status, again) = watched.after(0, &said);
    assert_eq!((&status["phase"], again), (&json!("Pending"), Some(3)), "it is not started");
    let (status, again) = watched.after(3, &said);
    assert_eq!((&status["phase"], &status["reason"], again), (&json!("Failed"), &json!("Evicted"), None));
    assert!(truth(&status, "DisruptionTarget") && !truth(&status, "Ready"), "{status}");
    let status = Watched::new(&spec).after(0, &json!({"db-0": "creating"})).0;
    assert!(!truth(&status, "PodReadyToStartContainers"), "{status}");
}

#[test]
fn kubelet_flavours_omit_status_fields() {
    let spec = json!({"containers": [{"name": "main", "image": "x"}]});
    let status = Watched::new(&spec).after(0, &json!({"kubelet": "kwok"})).0;
    let container = &status["containerStatuses"][0];
    assert!(container["state"]["running"].is_object() && container["ready"] == true, "{container}");
    assert!(container["imageID"] == "" && container["containerID"].is_null(), "{container}");
    let status = Watched::new(&spec).after(0, &json!({"kubelet": "virtual"})).0;
    assert!(truth(&status, "Ready") && status["phase"] == "Running", "{status}");
    assert!(status["containerStatuses"].is_null() && status["hostIP"].is_null(), "{status}");
}

#[test]
fn readiness_gate_waits_for_its_condition() {
    let spec = json!({"readinessGates": [{"conditionType": "gate"}], "containers": [{"name": "main", "image": "x"}]});
    let mut watched = Watched::new(&spec);
    let (status, _) = watched.after(0, &json!({}));
    assert!(truth(&status, "ContainersReady") && !truth(&status, "Ready"));
    let gate = json!({"type": "gate", "status": "True"});
    let mut conditions = serde_json::to_value(watched.pod.status.clone().unwrap().conditions).unwrap();
    conditions.as_array_mut().unwrap().push(gate);
    watched.pod.status.as_mut().unwrap().conditions = serde_json::from_value(conditions).unwrap();
    assert!(truth(&watched.after(1, &json!({})).0, "Ready"));
}

#[test]
fn container_with_startup_probe_is_started_once_ready() {
    let container = json!({"name": "db", "image": "db:slow", "startupProbe": {"failureThreshold": 30}});
    let mut pod = Watched::new(&json!({"containers": [container]}));
    let started = |(status, _): (Value, Option<u64>)| status["containerStatuses"][0]["started"] == true;
    assert!(!started(pod.after(0, &json!({}))) && !started(pod.after(4, &json!({}))));
    assert!(started(pod.after(5, &json!({}))));
}

#[test]
fn pod_can_use_its_whole_grace_period_to_terminate() {
    let mut pod = pod(&json!({"containers": [{"name": "db", "image": "db:1"}]}));
    let wall: DateTime<Utc> = "2026-01-01T00:00:00Z".parse().unwrap();
    pod.metadata.deletion_timestamp = serde_json::from_value(json!("2026-01-01T00:30:00Z")).unwrap();
    let now = Now { instant: monotonic(), wall };
    let gone = |data: &Value| {
        let orders = steering(data).orders(&pod);
        Life::adopt(&pod, String::new()).gone_at(&pod, &orders, now).duration_since(now.instant).as_secs()
    };
    assert_eq!((gone(&json!({})), gone(&json!({"db-0": "whole-grace"}))), (0, 1800));
}
