//! Requests that have no effect, and strategies that cannot do what their names promise.

use serde_json::{Value, json};

use crate::api::{NodeDeploymentSpec, NodeDeploymentStatus, Reason};
use crate::observed::Meta;
use crate::planner::fleet::requests::remarks;

const EARLY: &str = "2030-01-02T00:00:00Z";
const LATE: &str = "2030-01-03T00:00:00Z";

/// An annotation with its value, changes of the spec and of the status, and the answer.
type Request = (&'static str, &'static str, Value, Value, Option<(Reason, &'static str)>);

/// Changes of the spec and of the status, and the answer.
type Setting<'a> = (Value, &'a Value, Option<(Option<Reason>, &'static str)>);

/// Merges a change as JSON merge patch does.
fn merge(into: &mut Value, change: &Value) {
    let Some(fields) = change.as_object() else {
        *into = change.clone();
        return;
    };
    for (key, field) in fields {
        if field.is_null() {
            into.as_object_mut().unwrap().remove(key);
        } else {
            merge(&mut into[key.as_str()], field);
        }
    }
}

/// The reasons and sentences about a fleet with these annotations, and these changes of its spec and status. It has
/// completed v2 after an aborted, a completed and a superseded plan.
fn said(annotations: &Value, spec: &Value, status: &Value) -> Vec<(Option<Reason>, String)> {
    let entry = |id: &str, outcome: &str, target: &str| json!({"planID": id, "outcome": outcome, "targetHash": target});
    let plan = |state: &str| {
        let task = |index: i32, type_: &str| json!({"id": format!("dddddddddd-{index}"), "type": type_, "params": {}, "state": "Pending"});
        json!({"id": "dddddddddd", "recipe": "InPlace", "targetHash": "v1:2", "state": state,
            "startedAt": EARLY, "tasks": [task(0, "update-node-specs"), task(1, "await-approval")]})
    };
    let mut fleet = json!({
        "metadata": {"name": "db", "creationTimestamp": "2030-01-01T00:00:00Z", "annotations": annotations},
        "spec": {"replicas": 3, "updateStrategy": {"type": "InPlace"}, "template": {"spec": {"podTemplate": {}}}},
        "status": {
            "requestedRolloutHash": "v1:2", "lastCompletedRolloutHash": "v1:2", "restartedAt": EARLY,
            "plan": plan("Complete"),
            "history": [
                entry("aaaaaaaaaa", "Aborted", "v1:0"), entry("bbbbbbbbbb", "Complete", "v1:1"),
                entry("cccccccccc", "Superseded", "v1:1"), entry("dddddddddd", "Complete", "v1:2"),
            ],
        },
    });
    merge(&mut fleet, &json!({"spec": spec, "status": status}));
    let spec: NodeDeploymentSpec = serde_json::from_value(fleet["spec"].clone()).unwrap();
    let status: NodeDeploymentStatus = serde_json::from_value(fleet["status"].clone()).unwrap();
    let all = remarks(&Meta::read(&fleet), &spec, &status);
    all.into_iter().map(|remark| (remark.event.map(|(reason, _)| reason), remark.sentence)).collect()
}

#[test]
fn only_requests_without_effect_are_reported() {
    let none = || json!({});
    let active = || json!({"plan": {"state": "Active"}, "history": [], "lastCompletedRolloutHash": "v1:1"});
    let failed_hook = json!({"hooks": [{"hook": "h", "taskID": "dddddddddd-1", "state": "Failed"}]});
    let with = |mut left: Value, right: &Value| {
        merge(&mut left, right);
        left
    };
    let (ignored, invalid) = (Reason::RequestIgnored, Reason::InvalidSpec);
    let rows: Vec<Request> = vec![
        // Restarts.
        ("restartedAt", LATE, none(), none(), None),
        ("restartedAt", EARLY, none(), none(), None),
        ("restartedAt", "2030-01-02T01:00:00+01:00", none(), none(), None),
        ("restartedAt", "2030-01-01T23:59:59Z", none(), none(), Some((ignored, EARLY))),
        (
            "restartedAt",
            LATE,
            none(),
            json!({"restartedAt": "2099-01-01T00:00:00Z"}),
            Some((ignored, "2099-")),
        ),
        (
            "restartedAt",
            "2029-01-01T00:00:00Z",
            none(),
            json!({"restartedAt": null}),
            Some((ignored, "creation of db")),
        ),
        ("restartedAt", "soon", none(), none(), Some((invalid, "is not an RFC 3339 time"))),
        ("restartedAt", LATE, json!({"replicas": 0}), none(), Some((ignored, "replicas is 0"))),
        ("restartedAt", EARLY, json!({"replicas": 0}), none(), None),
        // Aborts.
        ("abort", "aaaaaaaaaa", none(), none(), None),
        ("abort", "bbbbbbbbbb", none(), none(), Some((ignored, "has already ended (Complete)"))),
        ("abort", "cccccccccc", none(), none(), Some((ignored, "has already ended (Superseded)"))),
        ("abort", "dddddddddd", none(), none(), Some((ignored, "has already ended (Complete)"))),
        ("abort", "dddddddddd", none(), active(), None),
        ("abort", "dddddddddd", none(), json!({"plan": {"state": "Aborted"}}), None),
        ("abort", "0123456789", none(), none(), Some((invalid, "is not a plan of this fleet"))),
        // Retries.
        ("retry", "aaaaaaaaaa", none(), none(), Some((ignored, "had a target that is no longer desired"))),
        ("retry", "aaaaaaaaaa", none(), json!({"plan": {"targetHash": "v1:0"}}), None),
        (
            "retry",
            "aaaaaaaaaa/2",
            none(),
            json!({"rejected": {"hash": "v1:2", "buildID": "", "planID": "aaaaaaaaaa", "outcome": "Aborted"}}),
            None,
        ),
        ("retry", "bbbbbbbbbb", none(), none(), Some((ignored, "has already ended (Complete)"))),
        ("retry", "dddddddddd/3", none(), none(), Some((ignored, "has already ended (Complete)"))),
        ("retry", "dddddddddd", none(), active(), Some((ignored, "none of its hooks has failed"))),
        ("retry", "dddddddddd", none(), with(active(), &failed_hook), None),
        (
            "retry",
            "dddddddddd",
            none(),
            with(active(), &json!({"hookRetry": {"request": "dddddddddd"}})),
            None,
        ),
        ("retry", "nonsense", none(), none(), Some((invalid, "is not a plan of this fleet"))),
        // Skips and approvals.
        ("skip", "dddddddddd-1", none(), none(), None),
        ("skip", "nonsense-1", none(), none(), Some((Reason::SkipRefused, "nothing is skipped"))),
        ("approve", "dddddddddd-1", none(), none(), None),
        ("approve", "aaaaaaaaaa-1", none(), none(), None),
        ("approve", "dddddddddd-0", none(), none(), Some((ignored, "is of type update-node-specs"))),
        ("approve", "dddddddddd-7", none(), none(), Some((ignored, "is not a task of plan dddddddddd"))),
        ("approve", "nonsense", none(), none(), Some((ignored, "nothing is approved"))),
    ];
    for (key, value, spec, status, expected) in rows {
        let annotations = json!({format!("windlass.dev/{key}"): value});
        let said = said(&annotations, &spec, &status);
        let what = format!("{key}={value} {spec} {status}: {said:?}");
        match expected {
            None => assert!(said.is_empty(), "{what}"),
            Some((reason, words)) => {
                assert!(said.len() == 1 && said[0].0 == Some(reason) && said[0].1.contains(words), "{what}");
                assert!(said[0].1.contains(value) || value.contains('/'), "{what}");
            }
        }
    }
}

#[test]
fn plan_dropped_from_history_is_not_unknown() {
    let entry = json!({"planID": "aaaaaaaaaa", "outcome": "Complete", "targetHash": "v1:0"});
    let full = json!({"history": vec![entry; 10]});
    for key in ["abort", "retry", "skip", "approve"] {
        let annotations = json!({format!("windlass.dev/{key}"): "0123456789"});
        assert_eq!(said(&annotations, &json!({}), &full), [], "{key}");
    }
}

#[test]
fn only_settings_without_effect_are_reported() {
    let set = |settings: Value| json!({"updateStrategy": settings});
    let service = json!({"ports": [{"port": 80}]});
    let blue_green = |settings: Value| json!({"service": service, "updateStrategy": {"type": "BlueGreen", "blueGreen": settings}});
    let rolling = json!({"rollout": {"stage": "Updating", "targetHash": "v1:2", "startedAt": EARLY, "lastProgressAt": EARLY},
        "lastCompletedRolloutHash": "v1:1"});
    let fork =
        json!({"type": "HardFork", "hardFork": {"haltHeight": 8}, "blueGreen": {"retireDelaySeconds": 5}});
    let (ignored, none) = (Some(Reason::RequestIgnored), json!({}));
    let rows: Vec<Setting<'_>> = vec![
        (set(json!({"inPlace": {"partition": 5, "maxUnavailable": "1%"}})), &none, None),
        (
            set(json!({"inPlace": {"partition": 5}})),
            &rolling,
            Some((ignored, "partition 5 is not below replicas 3")),
        ),
        (set(json!({"inPlace": {"partition": 2}})), &rolling, None),
        (
            set(json!({"blueGreen": {"promotion": "Manual"}})),
            &none,
            Some((ignored, "blueGreen has no effect")),
        ),
        (set(json!({"hardFork": {"haltHeight": 8}})), &none, Some((ignored, "hardFork has no effect"))),
        (set(json!({"type": ""})), &none, Some((None, "is treated as InPlace"))),
        (blue_green(json!({})), &none, None),
        (blue_green(json!({"promotion": "Immediately"})), &none, None),
        (
            json!({"service": service, "updateStrategy": {"type": "BlueGreen", "onStall": "Rollback",
                "blueGreen": {"promotion": "Immediately"}}}),
            &none,
            Some((ignored, "onStall has no effect")),
        ),
        (set(json!({"type": "BlueGreen"})), &none, Some((None, "switches no traffic"))),
        (set(fork.clone()), &none, Some((None, "switches no traffic"))),
        (json!({"service": service, "updateStrategy": fork}), &none, None),
        (json!({"forcePromote": "v1:0"}), &none, Some((Some(Reason::StaleForcePromote), "is ignored"))),
        (json!({"forcePromote": "v1:2"}), &none, Some((ignored, "forcePromote has no effect"))),
        (
            json!({"forcePromote": "v1:2", "service": service, "updateStrategy": {"type": "BlueGreen"}}),
            &none,
            None,
        ),
        (json!({"paused": true}), &none, None),
    ];
    for (spec, status, expected) in rows {
        let said = said(&json!({}), &spec, status);
        match expected {
            None => assert!(said.is_empty(), "{spec}: {said:?}"),
            Some((reason, words)) => {
                assert!(
                    said.len() == 1 && said[0].0 == reason && said[0].1.contains(words),
                    "{spec}: {said:?}"
                );
            }
        }
    }
}
