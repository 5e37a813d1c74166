//! What keeps a change that was made from taking effect: a closed window, or a refused spec. Pure.

use chrono::{DateTime, Utc};
use serde_json::Value;

use super::change::{Change, is_promoting};
use windlass_core::api::conditions::{Truth, UP_TO_DATE};
use windlass_core::api::names::ANNOTATION_OPEN_WINDOW;
use windlass_core::api::{Reason, Window};
use windlass_core::planner::window::{State, state};

/// The remarks about a change, each in a sentence. `object`: with the change. `target`: the object in a command.
pub fn remarks(change: &Change, object: &Value, target: &str, now: DateTime<Utc>) -> Vec<String> {
    let closed = (waits_for_window(change, object) && !is_open(object, now)).then(|| {
        format!("no window is open: to begin now, run windlass resume {target} --now --reason TEXT")
    });
    closed.into_iter().chain(refusal(change, object)).collect()
}

/// True if the change leads to a rollout that updates nodes in windows only.
fn waits_for_window(change: &Change, object: &Value) -> bool {
    let (status, rollout) = (&object["status"], &object["status"]["rollout"]);
    let is_promotion =
        !is_promoting(object) && rollout["stage"] != "Retiring" && rollout["recipe"] != "HardFork";
    let is_opened = rollout["windowOpened"] == true
        || (rollout.is_object()
            && object["metadata"]["annotations"][ANNOTATION_OPEN_WINDOW] == status["plan"]["id"]);
    let is_paused = object["spec"]["paused"] == true;
    !is_paused
        && match change.verb {
            // The way back to what was completed last waits for nothing.
            "rollback" => change.back_to.as_deref().is_some_and(|to| status["currentRevision"] != to),
            "promote" => is_promotion && !is_opened,
            "restart" => true,
            "retry" => status["rejected"].is_object(),
            "resume" => {
                let is_new = rollout["targetHash"] != status["lastCompletedRolloutHash"];
                rollout.is_object() && is_new && is_promotion && !is_opened
            }
            _ => false,
        }
}

/// True if a window is open, or there are none.
fn is_open(object: &Value, now: DateTime<Utc>) -> bool {
    let spec = &object["spec"];
    let windows = [&spec["updateStrategy"]["windows"], &spec["strategy"]["windows"]];
    let windows = windows.into_iter().find(|windows| windows.is_array()).cloned().unwrap_or_default();
    let windows: Vec<Window> = serde_json::from_value(windows).unwrap_or_default();
    matches!(state(&windows, now), State::Open(_))
}

/// That the spec is refused, for a verb that starts or continues a rollout. A rollback may have corrected it.
fn refusal(change: &Change, object: &Value) -> Option<String> {
    let conditions = object["status"]["conditions"].as_array()?;
    let refused = conditions.iter().find(|condition| {
        condition["type"] == UP_TO_DATE
            && condition["status"] == Truth::False.as_ref()
            && condition["reason"] == Reason::InvalidSpec.as_ref()
    })?;
    let message = refused["message"].as_str().unwrap_or_default();
    match change.verb {
        "rollback" => Some(format!("the spec was refused before this change: {message}")),
        "promote" | "restart" | "resume" | "retry" => {
            Some(format!("the spec is refused, so nothing is rolled out until it is corrected: {message}"))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::change::Write;
    use super::*;

    const CLOSED: &str =
        "no window is open: to begin now, run windlass resume nd/db -n shop --now --reason TEXT";

    /// A fleet whose window is from 2:00 to 5:00, with a rollout that waits for its promotion.
    fn fleet(changes: &Value) -> Value {
        let mut fleet = json!({
            "metadata": {"name": "db", "namespace": "shop"},
            "spec": {"updateStrategy": {"type": "BlueGreen",
                "windows": [{"schedule": "0 2 * * *", "duration": "3h"}]}},
            "status": {"currentRevision": "db-1", "lastCompletedRolloutHash": "v1:a", "plan": {"id": "p1"},
                "rollout": {"recipe": "BlueGreen", "stage": "AwaitingPromotion", "targetHash": "v1:b"}},
        });
        json_patch::merge(&mut fleet, changes);
        fleet
    }

    fn told(verb: &'static str, back_to: Option<&str>, changes: &Value, at: &str) -> Vec<String> {
        let write = Write::Annotation("a", String::new());
        let change = Change { back_to: back_to.map(str::to_owned), ..Change::done(verb, write, "done") };
        remarks(&change, &fleet(changes), "nd/db -n shop", at.parse().unwrap())
    }

    #[test]
    fn verb_whose_rollout_waits_for_a_closed_window_says_so() {
        let (noon, night) = ("2030-01-01T12:00:00Z", "2030-01-01T03:00:00Z");
        for (verb, back_to, changes, is_told) in [
            ("rollback", Some("db-0"), json!({}), true),
            ("rollback", Some("db-1"), json!({}), false),
            ("rollback", None, json!({}), false),
            ("promote", None, json!({}), true),
            ("promote", None, json!({"status": {"rollout": {"stage": "Promoting"}}}), false),
            ("promote", None, json!({"status": {"rollout": {"recipe": "HardFork"}}}), false),
            ("promote", None, json!({"status": {"rollout": {"windowOpened": true}}}), false),
            (
                "promote",
                None,
                json!({"metadata": {"annotations": {"windlass.dev/open-window": "p1"}}}),
                false,
            ),
            ("promote", None, json!({"spec": {"updateStrategy": {"windows": null}}}), false),
            ("restart", None, json!({}), true),
            ("restart", None, json!({"spec": {"paused": true}}), false),
            ("retry", None, json!({"status": {"rejected": {"planID": "p1"}}}), true),
            ("retry", None, json!({}), false),
            ("resume", None, json!({}), true),
            ("resume", None, json!({"status": {"rollout": {"targetHash": "v1:a"}}}), false),
            ("resume", None, json!({"status": {"rollout": null}}), false),
            ("pause", None, json!({}), false),
            ("abort", None, json!({}), false),
        ] {
            let expected: &[&str] = if is_told { &[CLOSED] } else { &[] };
            assert_eq!(told(verb, back_to, &changes, noon), expected, "{verb} {back_to:?} {changes}");
            assert_eq!(told(verb, back_to, &changes, night), [""; 0], "{verb} {back_to:?} {changes}");
        }
        let of_sets = json!({"spec": {"updateStrategy": null,
            "strategy": {"windows": [{"schedule": "0 2 * * *", "duration": "3h"}]}}});
        assert_eq!(told("restart", None, &of_sets, noon), [CLOSED]);
    }

    #[test]
    fn verb_on_a_refused_spec_says_so() {
        let refused = json!({"spec": {"updateStrategy": {"windows": null}}, "status": {"conditions": [
            {"type": "UpToDate", "status": "False", "reason": "InvalidSpec", "message": "hook drain: no"}]}});
        let now = "2030-01-01T12:00:00Z";
        for verb in ["promote", "restart", "resume", "retry"] {
            assert_eq!(
                told(verb, None, &refused, now),
                ["the spec is refused, so nothing is rolled out until it is corrected: hook drain: no"],
                "{verb}"
            );
        }
        let back = told("rollback", Some("db-1"), &refused, now);
        assert_eq!(back, ["the spec was refused before this change: hook drain: no"]);
        assert_eq!(told("pause", None, &refused, now), [""; 0]);
    }
}
