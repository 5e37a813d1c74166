//! The verbs for hooks. Which hooks wait or have failed is in the fleet's status.

use serde_json::Value;

use super::change::{Change, Write, annotation, next_retry};
use windlass_core::api::RawPlan;
use windlass_core::api::names::{ANNOTATION_APPROVE, ANNOTATION_RETRY};
use windlass_core::planner::fleet::Strategy;
use windlass_core::planner::fleet::sets::decide;
use windlass_engine::Plan;

/// The hooks of `status.hooks` in this state.
fn in_state<'a>(object: &'a Value, state: &'a str) -> impl Iterator<Item = &'a Value> {
    object["status"]["hooks"].as_array().into_iter().flatten().filter(move |hook| hook["state"] == state)
}

fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().unwrap_or_default()
}

/// A hook's name, such as `hook drain of node db-1`.
fn name(hook: &Value) -> String {
    match text(hook, "node") {
        "" => format!("hook {}", text(hook, "hook")),
        node => format!("hook {} of node {node}", text(hook, "hook")),
    }
}

/// The failed hook that holds the fleet: the one with this task, or the first.
pub fn failed<'a>(object: &'a Value, task: Option<&str>) -> Option<&'a Value> {
    in_state(object, "Failed").find(|hook| task.is_none_or(|task| text(hook, "taskID") == task))
}

/// True if the task is that of a hook that waits or has failed.
pub fn is_task(object: &Value, task: &str) -> bool {
    let hooks = object["status"]["hooks"].as_array();
    hooks.into_iter().flatten().any(|hook| text(hook, "taskID") == task)
}

/// Approves a hook: the one with this task, or the first that waits for a person.
pub fn approve(object: &Value, task: Option<&str>) -> Result<Change, String> {
    let mut waiting = in_state(object, "AwaitingApproval");
    let hook = match task {
        Some(task) => waiting
            .find(|hook| text(hook, "taskID") == task)
            .ok_or_else(|| format!("task {task} does not wait for an approval; see status.hooks"))?,
        None => match waiting.next() {
            Some(hook) => hook,
            None => return no_hook_waits(object),
        },
    };
    let id = text(hook, "taskID");
    let others = match waiting.count() {
        0 => String::new(),
        others => format!("; {others} more wait"),
    };
    if annotation(object, ANNOTATION_APPROVE) == Some(id) {
        return Ok(Change::already("approve", format!("{} is already approved{others}", name(hook))));
    }
    // The annotation holds one task ID; the operator may not have observed the previous one yet.
    let waits = |task: &&str| in_state(object, "AwaitingApproval").any(|hook| text(hook, "taskID") == *task);
    if let Some(before) = annotation(object, ANNOTATION_APPROVE).filter(waits) {
        return Err(format!(
            "the approval of task {before} is still pending, and a second approval would replace it; try again once it is done"
        ));
    }
    let message = format!("approved {}{others}", name(hook));
    Ok(Change::done("approve", Write::Annotation(ANNOTATION_APPROVE, id.to_owned()), message))
}

/// Approving again after the hook has continued is no error.
fn no_hook_waits(object: &Value) -> Result<Change, String> {
    let plan = text(&object["status"]["plan"], "id");
    let of_plan = |id: &&str| id.rsplit_once('-').is_some_and(|(of, _)| of == plan);
    match annotation(object, ANNOTATION_APPROVE).filter(of_plan) {
        Some(id) => Ok(Change::already(
            "approve",
            format!("task {id} is already approved, and no other hook waits for a person"),
        )),
        None => Err("no hook waits for an approval".to_owned()),
    }
}

/// Retries the failed hooks of the plan that holds, if any.
pub(super) fn retry(object: &Value) -> Option<Change> {
    let hook = failed(object, None)?;
    let plan = text(&object["status"]["plan"], "id");
    // Without a plan of the fleet, use the node's.
    let of_task = || text(hook, "taskID").rsplit_once('-').map_or("", |(plan, _)| plan);
    let plan = if plan.is_empty() { of_task() } else { plan };
    let Some(value) = next_retry(object, plan, object["status"]["hookRetry"]["request"].as_str()) else {
        return Some(Change::already("retry", format!("the retry of {} is already requested", name(hook))));
    };
    let message = format!("retry of {} requested", all_failed(object));
    Some(Change::done("retry", Write::Annotation(ANNOTATION_RETRY, value), message))
}

/// The names of all failed hooks: a retry applies to each.
fn all_failed(object: &Value) -> String {
    let hooks = object["status"]["hooks"].as_array().map(Vec::as_slice).unwrap_or_default();
    hooks.iter().filter(|hook| hook["state"] == "Failed").map(name).collect::<Vec<_>>().join(", ")
}

/// True if a promotion may still be rolled back, as the planner decides it.
pub(super) fn may_go_back(object: &Value) -> bool {
    let plan = serde_json::from_value::<RawPlan>(object["status"]["plan"].clone()).ok();
    let plan: Option<Plan> = plan.and_then(|raw| raw.parse().ok());
    plan.is_some_and(|plan| {
        Strategy::of_recipe(&plan.recipe).is_some_and(|strategy| decide::may_go_back(&plan, strategy))
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn fleet(hooks: &Value, annotations: &Value) -> Value {
        json!({"metadata": {"annotations": annotations}, "status": {
            "plan": {"id": "p", "state": "Active"}, "hooks": hooks,
        }})
    }

    fn hook(task: &str, state: &str, node: &str) -> Value {
        json!({"hook": "h", "taskID": task, "state": state, "node": node})
    }

    fn written(change: &Change) -> (&'static str, String) {
        match &change.write {
            Some(Write::Annotation(key, value)) => (key, value.clone()),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn approve_selects_the_waiting_hook_or_the_named_task() {
        let hooks = json!([
            hook("a-1", "Failed", "db-0"),
            hook("b-1", "AwaitingApproval", "db-1"),
            hook("c-1", "AwaitingApproval", "")
        ]);
        let object = fleet(&hooks, &json!({}));
        let first = approve(&object, None).unwrap();
        assert_eq!(written(&first), ("windlass.dev/approve", "b-1".to_owned()));
        assert_eq!(first.message, "approved hook h of node db-1; 1 more wait");
        assert_eq!(first.reason(), "ApproveRequested");
        let named = approve(&object, Some("c-1")).unwrap();
        assert_eq!((written(&named).1, named.message.as_str()), ("c-1".to_owned(), "approved hook h"));
        assert!(approve(&object, Some("a-1")).unwrap_err().contains("does not wait for an approval"));
        let again = fleet(&hooks, &json!({"windlass.dev/approve": "b-1"}));
        assert_eq!(approve(&again, None).unwrap().write, None);
        // A pending approval is not replaced; one that is done is.
        let lost = approve(&again, Some("c-1")).unwrap_err();
        assert!(lost.contains("the approval of task b-1 is still pending"), "{lost}");
        let heard = fleet(&hooks, &json!({"windlass.dev/approve": "d-1"}));
        assert_eq!(written(&approve(&heard, Some("c-1")).unwrap()).1, "c-1");
        assert_eq!(
            approve(&fleet(&json!([]), &json!({})), None),
            Err("no hook waits for an approval".to_owned())
        );
    }

    #[test]
    fn repeated_retry_of_a_failed_hook_writes_a_new_value() {
        let hooks = json!([hook("a-1", "Failed", "db-0")]);
        for (asked, obeyed, expected) in [
            (Value::Null, Value::Null, Some("p")),
            (json!("other"), json!("other"), Some("p")),
            (json!("p"), Value::Null, None),
            (json!("p"), json!("p"), Some("p/2")),
            (json!("p/2"), json!("p/2"), Some("p/3")),
            (json!("p/2"), json!("p"), None),
        ] {
            let mut object = fleet(&hooks, &json!({}));
            object["metadata"]["annotations"]["windlass.dev/retry"] = asked.clone();
            object["status"]["hookRetry"]["request"] = obeyed;
            let change = retry(&object).unwrap();
            let value = change.write.as_ref().map(|_| written(&change).1);
            assert_eq!(value.as_deref(), expected, "{asked}");
        }
        assert_eq!(retry(&fleet(&json!([hook("a-1", "AwaitingApproval", "")]), &json!({}))), None);
        let mut without_plan = fleet(&hooks, &json!({}));
        without_plan["status"]["plan"] = Value::Null;
        assert_eq!(written(&retry(&without_plan).unwrap()).1, "a");
    }
}
