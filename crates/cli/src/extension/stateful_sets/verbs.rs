//! The verbs of a StatefulSetRollout: those of a fleet, except where another owner controls the template or the nodes.

use chrono::{DateTime, Utc};
use serde_json::{Value, json};

use crate::target::Kind;
use crate::verbs::change::{self, Change, Verb, Write, annotation};
use crate::verbs::{Needs, VerbArgs, at_hooks, carry_out_on};
use windlass_core::api::names::{ANNOTATION_ABORT, ANNOTATION_ABORT_ROLLBACK};

/// The answer to a rollback.
const NO_ROLLBACK: &str = "the template belongs to the owner of the StatefulSet: revert it there, or, while a rollout is \
     active, run windlass abort --rollback";
/// The answer to a promotion.
const NO_PROMOTION: &str = "pods are updated in place: there is nothing to promote; to roll back, change the template \
     at the owner of the StatefulSet, or run windlass abort --rollback";

/// The answer to an abort with a rollback if there is nothing to abort.
const NOTHING_ACTIVE: &str = "no rollout is active: there is nothing to abort; to roll back, change the template at the \
     owner of the StatefulSet";

/// Decides what a verb changes in a StatefulSetRollout.
pub fn change(verb: &Verb, object: &Value, now: DateTime<Utc>) -> Result<Change, String> {
    match verb {
        Verb::Pause => Ok(change::paused(object, true)),
        Verb::Resume => Ok(change::paused(object, false)),
        Verb::OpenWindow => change::open_window(object, "/spec/strategy/windows"),
        Verb::Restart => Ok(change::restart(object, false, now)),
        Verb::Abort { rollback: false } => change::abort(object),
        Verb::Abort { rollback: true } => abort_and_roll_back(object),
        Verb::Retry => change::retry(object),
        Verb::Skip { task } => skip(object, task.as_deref()),
        Verb::Approve { task } => at_hooks::approve(object, task.as_deref()),
        Verb::Promote { .. } => Err(NO_PROMOTION.to_owned()),
    }
}

/// Refuses, for each selected object, to set a template back.
pub async fn rollback(arguments: &VerbArgs) -> Result<(), String> {
    let cluster = arguments.named.flags.cluster().await?;
    for located in arguments.named.located(&cluster).await? {
        let refused = |_: &[_], _: &Value| Err(NO_ROLLBACK.to_owned());
        carry_out_on(arguments, &cluster, &located, Needs::Object, refused).await?;
    }
    Ok(())
}

/// Both annotations are written at once: the operator never sees the abort alone.
fn abort_and_roll_back(object: &Value) -> Result<Change, String> {
    let plan = &object["status"]["plan"];
    let id = plan["id"].as_str().unwrap_or_default();
    let asked = |key: &str| annotation(object, key) == Some(id);
    if plan["state"] == "Aborted" && asked(ANNOTATION_ABORT_ROLLBACK) {
        return Ok(Change::already(
            "abort",
            format!("plan {id} is already aborted, and its pods are being rolled back"),
        ));
    }
    if plan["state"] != "Active" {
        return Err(NOTHING_ACTIVE.to_owned());
    }
    if asked(ANNOTATION_ABORT) && asked(ANNOTATION_ABORT_ROLLBACK) {
        return Ok(Change::already(
            "abort",
            format!("the abort of plan {id} and its rollback are already requested"),
        ));
    }
    let write =
        Write::Annotations([ANNOTATION_ABORT, ANNOTATION_ABORT_ROLLBACK].map(|key| (key, id.to_owned())));
    let message = format!("abort of plan {id} and rollback of its pods requested; the template is unchanged");
    Ok(Change::done("abort", write, message))
}

/// A task of an active plan.
struct Found<'a> {
    task: &'a Value,
    /// Its pod; empty if it is a task of the rollout itself.
    pod: &'a str,
    /// True if the plan waits in it.
    is_current: bool,
}

/// The tasks of the active plans of the rollout and of its pods.
fn tasks(object: &Value) -> Vec<Found<'_>> {
    let status = &object["status"];
    let of_pods = status["nodes"].as_array().into_iter().flatten();
    let of_pods = of_pods.map(|pod| (pod["name"].as_str().unwrap_or_default(), &pod["plan"]));
    let plans = [("", &status["plan"])].into_iter().chain(of_pods);
    let mut found = Vec::new();
    for (pod, plan) in plans.filter(|(_, plan)| plan["state"] == "Active") {
        let tasks = plan["tasks"].as_array().map(Vec::as_slice).unwrap_or_default();
        let is_over = |task: &Value| matches!(task["state"].as_str(), Some("Complete" | "Skipped"));
        let current = tasks.iter().position(|task| !is_over(task));
        let of_plan = tasks.iter().enumerate();
        found.extend(of_plan.map(|(index, task)| Found { task, pod, is_current: Some(index) == current }));
    }
    found
}

fn skip(object: &Value, named: Option<&str>) -> Result<Change, String> {
    let all = tasks(object);
    let may_be_skipped = |task: &&Found<'_>| change::may_be_skipped(Kind::Node, task.task);
    let failed = || at_hooks::failed(object, None).and_then(|hook| hook["taskID"].as_str());
    let id = if let Some(id) = named.or_else(failed) {
        id
    } else {
        let waits = all.iter().filter(|task| task.is_current);
        match waits.filter(may_be_skipped).collect::<Vec<_>>().as_slice() {
            [] if all.is_empty() => return Err("no plan is active: there is nothing to skip".to_owned()),
            [] => return Err(format!("no plan waits for a task that can be skipped: {ONLY}")),
            [one] => one.task["id"].as_str().unwrap_or_default(),
            several => return Err(choice(several)),
        }
    };
    match all.iter().find(|task| task.task["id"] == id) {
        None if at_hooks::is_task(object, id) => change::skip(Kind::Fleet, object, Some(id)),
        None => Err(format!("no active plan has a task {id}; see status.plan.tasks and status.nodes")),
        Some(task) if !may_be_skipped(&task) => Err(format!("task {id} cannot be skipped: {ONLY}")),
        Some(_) => {
            // One list of all tasks, so that a skip of another pod's task that is not done yet is not replaced.
            let mut flat = object.clone();
            flat["status"]["plan"]["tasks"] = all.iter().map(|task| task.task.clone()).collect();
            flat["status"]["plan"]["state"] = json!("Active");
            change::skip(Kind::Node, &flat, Some(id))
        }
    }
}

/// What may be skipped.
const ONLY: &str = "only hooks and a pod's task mark-ready can be";

fn choice(several: &[&Found<'_>]) -> String {
    let name = |task: &&Found<'_>| {
        let id = task.task["id"].as_str().unwrap_or_default();
        if task.pod.is_empty() { id.to_owned() } else { format!("{id} of {}", task.pod) }
    };
    let names: Vec<String> = several.iter().map(name).collect();
    format!("several plans wait for a task that can be skipped; select one with --task: {}", names.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rollout(changes: &Value) -> Value {
        let task = |id: &str, type_: &str, state: &str| json!({"id": id, "type": type_, "state": state});
        let plan = |id: &str, tasks: Value| json!({"id": id, "state": "Active", "tasks": tasks});
        let mut object = json!({
            "metadata": {"name": "ledger", "namespace": "shop", "generation": 2, "annotations": {}},
            "spec": {"statefulSets": {"names": ["ledger"]}},
            "status": {"observedGeneration": 2, "rollout": {"cause": "TemplateChanged"},
                "plan": plan("p", json!([task("p-0", "update-node-specs", "Running")])),
                "nodes": [
                    {"name": "ledger-2", "plan": plan("a", json!([
                        task("a-0", "replace-pod", "Complete"), task("a-1", "mark-ready", "Running")]))},
                    {"name": "ledger-1", "plan": plan("b", json!([
                        task("b-0", "replace-pod", "Running"), task("b-1", "mark-ready", "Pending")]))}]},
        });
        json_patch::merge(&mut object, changes);
        object
    }

    fn at() -> DateTime<Utc> {
        "2030-01-01T12:00:00Z".parse().unwrap()
    }

    fn written(verb: &Verb, changes: &Value) -> Result<Vec<(&'static str, String)>, String> {
        change(verb, &rollout(changes), at()).map(|change| match change.write {
            None => Vec::new(),
            Some(Write::Field(path, value)) => vec![(path, value.to_string())],
            Some(Write::Annotation(key, value)) => vec![(key, value)],
            Some(Write::Annotations(annotations)) => annotations.to_vec(),
            Some(Write::Fields(fields)) => panic!("{fields:?}"),
        })
    }

    #[test]
    fn verbs_write_the_same_fields_as_for_a_fleet() {
        let one = |key: &'static str, value: &str| vec![(key, value.to_owned())];
        let abort = |rollback| Verb::Abort { rollback };
        let both =
            vec![("windlass.dev/abort", "p".to_owned()), ("windlass.dev/abort-rollback", "p".to_owned())];
        let annotated = |annotations: Value| json!({"metadata": {"annotations": annotations}});
        let skip = |task: Option<&str>| Verb::Skip { task: task.map(str::to_owned) };
        for (verb, changes, expected) in [
            (Verb::Pause, json!({}), one("/spec/paused", "true")),
            (Verb::Resume, json!({"spec": {"paused": true}}), one("/spec/paused", "false")),
            (Verb::Restart, json!({}), one("windlass.dev/restartedAt", "2030-01-01T12:00:00Z")),
            (abort(false), json!({}), one("windlass.dev/abort", "p")),
            (abort(false), annotated(json!({"windlass.dev/abort": "p"})), vec![]),
            (abort(true), json!({}), both.clone()),
            // The earlier request was an abort without a rollback.
            (abort(true), annotated(json!({"windlass.dev/abort": "p"})), both),
            (
                abort(true),
                annotated(json!({"windlass.dev/abort": "p", "windlass.dev/abort-rollback": "p"})),
                vec![],
            ),
            (
                Verb::Retry,
                json!({"status": {"plan": {"state": "Aborted"}, "rejected": {"planID": "p"}}}),
                one("windlass.dev/retry", "p"),
            ),
            (skip(None), json!({}), one("windlass.dev/skip", "a-1")),
            (skip(Some("b-1")), json!({}), one("windlass.dev/skip", "b-1")),
            (skip(None), annotated(json!({"windlass.dev/skip": "a-1"})), vec![]),
            (
                skip(None),
                json!({"status": {"hooks": [{"hook": "h", "taskID": "c-3", "node": "ledger-0", "state": "Failed"}]}}),
                one("windlass.dev/skip", "c-3"),
            ),
            (
                Verb::Approve { task: None },
                json!({"status": {"hooks": [{"hook": "h", "taskID": "c-3", "state": "AwaitingApproval"}]}}),
                one("windlass.dev/approve", "c-3"),
            ),
        ] {
            assert_eq!(written(&verb, &changes), Ok(expected), "{verb:?} {changes}");
        }
    }

    #[test]
    fn unsupported_verb_is_refused_with_an_alternative() {
        let skip = |task: Option<&str>| Verb::Skip { task: task.map(str::to_owned) };
        let waits_too = json!({"status": {"nodes": [
            {"name": "ledger-2", "plan": {"state": "Active", "tasks": [{"id": "a-1", "type": "mark-ready"}]}},
            {"name": "ledger-1", "plan": {"state": "Active", "tasks": [{"id": "b-1", "type": "mark-ready"}]}}]}});
        for (verb, changes, expected) in [
            (
                Verb::Promote { hash: None },
                json!({}),
                "nothing to promote; to roll back, change the template",
            ),
            (
                Verb::Abort { rollback: true },
                json!({"status": {"plan": {"state": "Complete"}}}),
                "change the template",
            ),
            (Verb::Abort { rollback: false }, json!({"status": {"plan": null}}), "nothing to abort"),
            (Verb::Retry, json!({}), "no target is rejected"),
            (skip(Some("x-1")), json!({}), "no active plan has a task x-1"),
            (
                skip(Some("p-0")),
                json!({}),
                "task p-0 cannot be skipped: only hooks and a pod's task mark-ready",
            ),
            (skip(None), waits_too, "--task: a-1 of ledger-2, b-1 of ledger-1"),
            (
                skip(Some("b-1")),
                json!({"metadata": {"annotations": {"windlass.dev/skip": "a-1"}}}),
                "the skip of task a-1 is still pending",
            ),
            (
                skip(None),
                json!({"status": {"plan": {"state": "Complete"}, "nodes": null}}),
                "no plan is active",
            ),
        ] {
            let refused = written(&verb, &changes);
            assert!(
                refused.as_ref().is_err_and(|error| error.contains(expected) && !error.contains('\n')),
                "{verb:?} {changes}: {refused:?}"
            );
        }
    }
}
