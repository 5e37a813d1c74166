//! Which statuses contradict themselves.

use serde_json::{Value, json};

use super::super::damage::Damage;
use crate::api::NodeDeploymentStatus;

/// A status amid a rollout from `v1`, as it is written.
fn status(recipe: &str, stage: &str) -> Value {
    let creates_set = recipe != "InPlace";
    let has_moved = stage == "Retiring";
    json!({
        "activeSet": if has_moved { "v2" } else { "first" },
        "lastCompletedRolloutHash": if has_moved { "v1:2" } else { "v1:1" },
        "currentRevision": if has_moved { "db-2" } else { "db-1" },
        "spentForcePromote": "v1:2",
        "retiring": [{"set": "old", "hash": "v1:0", "since": "2030-01-01T00:00:00Z"}],
        "rollout": {
            "strategy": if recipe == "BlueGreenImmediate" { "BlueGreen" } else { recipe },
            "recipe": recipe, "targetHash": "v1:2", "cause": "TemplateChanged", "stage": stage, "fromHash": "v1:1",
            "startedAt": "2030-01-01T00:00:00Z", "lastProgressAt": "2030-01-01T00:00:00Z",
            "incumbentSet": if creates_set { "first" } else { "" }, "entrantSet": if creates_set { "v2" } else { "" },
        },
        "plan": {"id": "0123456789", "recipe": recipe, "targetHash": "v1:2", "state": "Active",
            "startedAt": "2030-01-01T00:00:00Z", "tasks": []},
    })
}

fn read(status: Value) -> NodeDeploymentStatus {
    serde_json::from_value(status).unwrap()
}

/// The status with other values at these JSON pointers; null removes a field.
fn with(mut status: Value, changes: &[(&str, Value)]) -> NodeDeploymentStatus {
    for (pointer, value) in changes {
        let (parent, field) = pointer.rsplit_once('/').unwrap();
        let parent = status.pointer_mut(parent).unwrap().as_object_mut().unwrap();
        parent.insert(field.to_owned(), value.clone());
        parent.retain(|_, value| !value.is_null());
    }
    read(status)
}

#[test]
fn operator_written_status_is_not_damaged() {
    for (recipe, stages) in [
        ("InPlace", &["Updating"][..]),
        (
            "BlueGreen",
            &["CreatingEntrants", "AwaitingEntrants", "AwaitingPromotion", "Promoting", "Retiring"],
        ),
        ("BlueGreenImmediate", &["CreatingEntrants", "Promoting", "Retiring"]),
        ("HardFork", &["CreatingEntrants", "AwaitingEntrants", "Promoting", "Retiring"]),
    ] {
        for stage in stages {
            assert_eq!(Damage::of(&read(status(recipe, stage))), None, "{recipe} {stage}");
        }
    }
    let none = [("/rollout", Value::Null), ("/plan", Value::Null)];
    let over = [("/rollout", Value::Null), ("/plan/state", json!("Complete"))];
    let first = [("/lastCompletedRolloutHash", Value::Null), ("/currentRevision", Value::Null)];
    let foreign = [("/plan/tasks", json!("of another version"))];
    let failed = [("/plan/state", json!("Failed"))];
    for changes in [&none[..], &over, &[&none[..], &first].concat(), &foreign, &failed] {
        assert_eq!(Damage::of(&with(status("BlueGreen", "Promoting"), changes)), None, "{changes:?}");
    }
    assert_eq!(Damage::of(&NodeDeploymentStatus::default()), None);
}

#[test]
fn status_with_a_lost_field_is_damaged() {
    use Damage::{Record, Rollout};
    for (recipe, stage, pointer, value, damage) in [
        ("InPlace", "Updating", "/rollout", Value::Null, Rollout),
        ("InPlace", "Updating", "/plan", Value::Null, Rollout),
        ("InPlace", "Updating", "/plan/tasks", Value::Null, Rollout),
        ("InPlace", "Updating", "/plan/targetHash", json!("v1:3"), Rollout),
        ("InPlace", "Updating", "/rollout/startedAt", Value::Null, Rollout),
        ("InPlace", "Updating", "/rollout/recipe", Value::Null, Rollout),
        ("InPlace", "Updating", "/rollout/stage", json!("Retiring"), Rollout),
        ("InPlace", "Updating", "/lastCompletedRolloutHash", Value::Null, Record),
        ("BlueGreen", "AwaitingPromotion", "/rollout/entrantSet", Value::Null, Rollout),
        ("BlueGreen", "AwaitingPromotion", "/rollout/incumbentSet", Value::Null, Rollout),
        ("BlueGreen", "AwaitingPromotion", "/rollout/stage", Value::Null, Rollout),
        ("BlueGreen", "AwaitingPromotion", "/rollout/stage", json!("Retiring"), Rollout),
        ("BlueGreen", "Retiring", "/rollout/stage", json!("Promoting"), Rollout),
        ("BlueGreen", "Promoting", "/activeSet", json!("bogus"), Record),
        ("BlueGreen", "Promoting", "/activeSet", Value::Null, Record),
        ("HardFork", "Promoting", "/plan", Value::Null, Rollout),
    ] {
        let found = Damage::of(&with(status(recipe, stage), &[(pointer, value.clone())]));
        assert_eq!(found, Some(damage), "{recipe} {stage}: {pointer} is {value}");
    }
    let forgotten =
        [("/rollout", Value::Null), ("/plan", Value::Null), ("/lastCompletedRolloutHash", Value::Null)];
    assert_eq!(Damage::of(&with(status("InPlace", "Updating"), &forgotten)), Some(Record));
}

#[test]
fn only_damaged_fields_are_discarded() {
    let status = read(status("BlueGreen", "Promoting"));
    let left = status.without(Damage::Rollout);
    assert_eq!((&left.rollout, &left.plan, left.spent_force_promote.as_str()), (&None, &None, ""));
    assert_eq!((left.active_set.as_str(), left.current_revision.as_str()), ("first", "db-1"));
    let left = status.without(Damage::Record);
    assert_eq!((left.active_set.as_str(), left.last_completed_rollout_hash.as_str()), ("", ""));
    assert_eq!(left.retiring, status.retiring);
}
