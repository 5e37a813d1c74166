//! Table tests of requests that follow one another: which one is new to the operator, and which one would be lost.

use chrono::{DateTime, Utc};
use serde_json::{Value, json};

use super::change::{Change, Verb, Write, change};
use crate::target::Kind;

fn now() -> DateTime<Utc> {
    "2030-01-01T12:00:00.9Z".parse().unwrap()
}

fn of(verb: &Verb, kind: Kind, object: &Value) -> Result<Change, String> {
    change(verb, kind, object, now())
}

/// The value of the annotation that a change writes; `None` if it writes nothing.
fn annotated(change: &Change) -> Option<&str> {
    match &change.write {
        None => None,
        Some(Write::Annotation(_, value)) => Some(value),
        Some(other) => panic!("{other:?}"),
    }
}

#[test]
fn plan_can_be_retried_after_its_retry_was_spent_on_a_hook() {
    let aborted = json!({"plan": {"id": "p", "state": "Aborted"}, "rejected": {"planID": "p"}});
    let promoting = json!({"plan": {"id": "p", "state": "Failed"}, "rollout": {"stage": "Promoting"}});
    for status in [aborted, promoting] {
        for (asked, spent, expected) in [
            (Value::Null, Value::Null, Some("p")),
            (json!("p"), Value::Null, None),
            (json!("p"), json!("p"), Some("p/2")),
            (json!("p/2"), json!("p"), None),
            (json!("p/2"), json!("p/2"), Some("p/3")),
            (json!("o"), json!("o"), Some("p")),
        ] {
            let mut object =
                json!({"metadata": {"annotations": {"windlass.dev/retry": asked}}, "status": status});
            object["status"]["hookRetry"] = json!({"request": spent});
            let change = of(&Verb::Retry, Kind::Fleet, &object).unwrap();
            assert_eq!(annotated(&change), expected, "{asked} after {spent}: {}", change.message);
        }
    }
}

#[test]
fn restart_request_time_is_accepted_by_the_operator() {
    let made = "2030-01-01T12:00:00Z";
    let owner = json!({"ownerReferences": [{"kind": "NodeDeployment", "controller": true}]});
    let released = json!({"annotations": {"windlass.dev/owner-uid": "u"}});
    let (before, open) = ("2029-12-31T00:00:00Z", "2030-01-01T12:00:01Z");
    for (kind, meta, asked, obeyed, expected) in [
        // The time of creation has whole seconds, and so has the annotation.
        (Kind::Fleet, json!({}), None, "", Some("2030-01-01T12:00:01Z")),
        (Kind::Fleet, json!({}), Some(before), "", Some("2030-01-01T12:00:01Z")),
        (Kind::Fleet, json!({}), Some(made), "", Some("2030-01-01T12:00:01Z")),
        (Kind::Fleet, json!({}), Some(open), "", None),
        (Kind::Fleet, json!({}), Some(open), open, Some("2030-01-01T12:00:02Z")),
        (Kind::Fleet, json!({}), Some("soon"), "", Some("2030-01-01T12:00:01Z")),
        (
            Kind::Fleet,
            json!({"creationTimestamp": "2030-01-01T13:00:00Z"}),
            None,
            "",
            Some("2030-01-01T13:00:01Z"),
        ),
        (Kind::Fleet, json!({"creationTimestamp": null}), Some(before), "", None),
        (Kind::Fleet, json!({"creationTimestamp": null}), None, made, Some("2030-01-01T12:00:01Z")),
        (Kind::Node, json!({}), Some(before), "", Some("2030-01-01T12:00:01Z")),
        // A fleet creates its nodes with a restart of before.
        (Kind::Node, owner, Some(before), "", None),
        (Kind::Node, released, Some(before), "", None),
    ] {
        let mut object = json!({"metadata": {"creationTimestamp": made}, "status": {"restartedAt": obeyed}});
        json_patch::merge(&mut object["metadata"], &meta);
        if let Some(asked) = asked {
            object["metadata"]["annotations"]["windlass.dev/restartedAt"] = json!(asked);
        }
        let change = of(&Verb::Restart, kind, &object).unwrap();
        assert_eq!(annotated(&change), expected, "{:#}: {}", object, change.message);
    }
}

#[test]
fn pending_skip_is_not_overwritten_by_the_next() {
    let skip = |task: &str| Verb::Skip { task: Some(task.to_owned()) };
    let hook = |task: &str| json!({"hook": "h", "taskID": task, "state": "Failed", "node": "db-0"});
    let task = |id: &str, type_: &str, state: &str| json!({"id": id, "type": type_, "state": state});
    let fleet = |asked: &str, hooks: Value, tasks: Value| {
        json!({"metadata": {"annotations": {"windlass.dev/skip": asked}},
            "status": {"hooks": hooks, "plan": {"id": "p", "state": "Active", "tasks": tasks}}})
    };
    let at_hook =
        json!([task("p-0", "update-node-specs", "Running"), task("p-1", "await-caught-up", "Pending")]);
    let waits =
        json!([task("p-0", "await-caught-up", "Running"), task("p-1", "await-nodes-at-height", "Pending")]);
    let done =
        json!([task("p-0", "await-caught-up", "Skipped"), task("p-1", "await-nodes-at-height", "Running")]);
    let own = json!([task("p-0", "await-backup", "Running"), task("p-1", "await-caught-up", "Pending")]);
    for (asked, hooks, tasks, next, is_kept) in [
        ("a-1", json!([hook("a-1"), hook("b-1")]), &at_hook, "b-1", true),
        ("a-1", json!([hook("b-1")]), &at_hook, "b-1", false),
        ("a-1", json!([hook("a-1")]), &at_hook, "p-1", true),
        ("p-0", json!([]), &waits, "p-1", true),
        ("p-0", json!([]), &done, "p-1", false),
        // The operator has refused it, or may have.
        ("p-0", json!([hook("b-1")]), &at_hook, "b-1", false),
        ("p-0", json!([]), &own, "p-1", false),
    ] {
        let object = fleet(asked, hooks, tasks.clone());
        let change = of(&skip(next), Kind::Fleet, &object);
        match change {
            Err(sentence) if is_kept => {
                assert!(sentence.contains(&format!("the skip of task {asked} is still pending")));
            }
            change => assert_eq!((annotated(&change.unwrap()), is_kept), (Some(next), false), "{object:#}"),
        }
        let again = of(&skip(asked), Kind::Fleet, &object);
        assert!(
            again.is_err() || annotated(&again.unwrap()).is_none(),
            "a repeated request changes nothing: {object:#}"
        );
    }
}
