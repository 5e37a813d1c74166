use serde_json::{Value, json};

use super::*;
use crate::observed::Observed;

fn at(seconds: i64) -> DateTime<Utc> {
    DateTime::from_timestamp(1_900_000_000 + seconds, 0).unwrap()
}

/// A pod that was created at 0 and whose containers have these probes and statuses.
fn wait(containers: &[(Value, Value)], metadata: &Value) -> Option<(i64, i64)> {
    let name = |object: &Value, name: &str| {
        let mut object = object.clone();
        object["name"] = name.into();
        object
    };
    let named = |which: fn(&(Value, Value)) -> &Value| -> Vec<Value> {
        containers.iter().enumerate().map(|(index, c)| name(which(c), &format!("c{index}"))).collect()
    };
    let mut meta = json!({"name": "db-0-0", "creationTimestamp": at(0)});
    meta.as_object_mut().unwrap().extend(metadata.as_object().cloned().unwrap_or_default());
    let pod = ObservedPod::read(&json!({
        "metadata": meta,
        "spec": {"initContainers": [], "containers": named(|c| &c.0)},
        "status": {"containerStatuses": named(|c| &c.1)},
    }));
    of_pod(&pod, at(100)).map(|wait| ((wait.from - at(0)).num_seconds(), (wait.until - at(0)).num_seconds()))
}

fn running(since: i64) -> Value {
    json!({"state": {"running": {"startedAt": at(since)}}, "ready": false, "started": false, "restartCount": 0})
}

fn with(mut status: Value, field: &str, value: impl Into<Value>) -> Value {
    status[field] = value.into();
    status
}

/// What is tested, the containers with their statuses, and the wait.
type Row<'a> = (&'a str, Vec<(Value, Value)>, Option<(i64, i64)>);

#[test]
fn container_wait_follows_its_probes_until_started_or_crashed() {
    let startup =
        || json!({"startupProbe": {"failureThreshold": 180, "periodSeconds": 10, "initialDelaySeconds": 5}});
    let delayed = || json!({"readinessProbe": {"initialDelaySeconds": 900}});
    let waiting =
        |reason: &str| json!({"state": {"waiting": {"reason": reason}}, "ready": false, "restartCount": 0});
    let ended = || json!({"state": {"terminated": {"exitCode": 1}}, "ready": false, "restartCount": 0});
    let none = Value::Null;
    let table: Vec<Row<'_>> = vec![
        ("no probe", vec![(none.clone(), running(10))], None),
        ("a startup probe", vec![(startup(), running(10))], Some((10, 1815))),
        ("its defaults", vec![(json!({"startupProbe": {}}), running(10))], Some((10, 40))),
        ("a readiness probe that begins late", vec![(delayed(), running(10))], Some((10, 910))),
        (
            "one that begins at once",
            vec![(json!({"readinessProbe": {"periodSeconds": 60}}), running(10))],
            None,
        ),
        ("it has started", vec![(startup(), with(running(10), "started", true))], None),
        ("it is ready", vec![(startup(), with(running(10), "ready", true))], None),
        ("it was restarted", vec![(startup(), with(running(10), "restartCount", 1))], Some((0, 1805))),
        ("it starts a day ahead", vec![(startup(), running(86_400))], None),
        ("it does not run yet", vec![(startup(), waiting("ContainerCreating"))], None),
        (
            "no start time is said",
            vec![(startup(), with(running(10), "state", json!({"running": {}})))],
            Some((0, 1805)),
        ),
        ("the longest of two", vec![(startup(), running(10)), (delayed(), running(20))], Some((10, 1815))),
        (
            "another one crashes",
            vec![(startup(), running(10)), (none.clone(), waiting("CrashLoopBackOff"))],
            None,
        ),
        ("another one has ended", vec![(startup(), running(10)), (none.clone(), ended())], None),
        (
            "another one is ready",
            vec![(startup(), running(10)), (none, with(running(5), "ready", true))],
            Some((10, 1815)),
        ),
    ];
    for (what, containers, expected) in table {
        assert_eq!(wait(&containers, &Value::Null), expected, "{what}");
    }
}

#[test]
fn terminating_pod_waits_for_its_grace_period() {
    let deleted = json!({"deletionTimestamp": at(1900), "deletionGracePeriodSeconds": 1800});
    assert_eq!(wait(&[(Value::Null, running(0))], &deleted), Some((100, 1900)));
    let forced = json!({"deletionTimestamp": at(100), "deletionGracePeriodSeconds": 0});
    assert_eq!(wait(&[], &forced), Some((100, 100)), "it has none");
    assert!(!Wait { from: at(100), until: at(100) }.is_on(at(100)));
}

#[test]
fn native_sidecar_wait_equals_that_of_a_main_container() {
    let startup =
        json!({"name": "proxy", "restartPolicy": "Always", "startupProbe": {"failureThreshold": 30}});
    let pod = ObservedPod::read(&json!({
        "metadata": {"name": "db-0-0"},
        "spec": {"initContainers": [startup], "containers": [{"name": "db"}]},
        "status": {
            "initContainerStatuses": [with(running(10), "name", "proxy")],
            "containerStatuses": [{"name": "db", "state": {"waiting": {"reason": "PodInitializing"}}}],
        },
    }));
    assert_eq!(of_pod(&pod, at(10)), Some(Wait { from: at(10), until: at(310) }));
}
