//! Table tests of requests that follow one another: which one is new to the operator, and which one would be lost.

use chrono::{DateTime, Utc};
use serde_json::{Value, json};

use super::change::{Change, Verb, Write, change};
use crate::cli::target::Kind;

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
fn a_retry_that_was_used_up_for_a_hook_does_not_keep_the_plan_from_being_retried() {
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
            object["status"]["hookRetry"] = json!({"asked": spent});
            let change = of(&Verb::Retry, Kind::Fleet, &object).unwrap();
            assert_eq!(annotated(&change), expected, "{asked} after {spent}: {}", change.message);
        }
    }
}

#[test]
fn a_restart_is_asked_for_at_a_time_that_the_operator_obeys() {
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
