//! The verbs of a `WorkerDeployment`.

use chrono::{DateTime, Utc};
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, ListParams};
use serde_json::{Value, json};
use windlass_temporal::api::names::LABEL_WORKERS;
use windlass_temporal::planner::build::revision_name;
use windlass_temporal::planner::evacuate::{self, PlanKind};

use crate::verbs::at_hooks;
use crate::verbs::change::{self, Change, Verb, Write, annotation};
use crate::verbs::revisions::StoredRevision;
use crate::verbs::{Needs, VerbArgs, carry_out_on};
use windlass_core::api::names::{ANNOTATION_ABORT, ANNOTATION_RETRY, ANNOTATION_SKIP};
use windlass_kube_port::observed::parse_time;

/// The tasks that may be skipped, besides those of hooks. set-current only if the target is the current version.
const SKIPPABLE: [&str; 5] = ["run-gate", "ramp", "set-current", evacuate::MOVE, evacuate::AWAIT];

/// Decides what a verb changes in a `WorkerDeployment`.
pub fn change(verb: &Verb, object: &Value, now: DateTime<Utc>) -> Result<Change, String> {
    match verb {
        Verb::Pause => Ok(change::paused(object, true)),
        Verb::Resume => Ok(change::paused(object, false)),
        Verb::OpenWindow => {
            Err("a WorkerDeployment has no windows: run windlass resume without --now".to_owned())
        }
        Verb::Restart => Ok(change::restart(object, false, now)),
        Verb::Abort { rollback: false } => abort(object),
        Verb::Abort { rollback: true } => Err(change::ROLLBACK_OF_TEMPLATE.to_owned()),
        Verb::Retry => retry(object, now),
        Verb::Skip { task } => skip(object, task.as_deref()),
        Verb::Promote { hash } => promote(object, hash.as_deref()),
        Verb::Approve { task } => at_hooks::approve(object, task.as_deref()),
    }
}

fn plan(object: &Value) -> (&str, &str) {
    let plan = &object["status"]["plan"];
    (plan["id"].as_str().unwrap_or_default(), plan["state"].as_str().unwrap_or_default())
}

fn abort(object: &Value) -> Result<Change, String> {
    let (id, state) = plan(object);
    match state {
        "Active" if annotation(object, ANNOTATION_ABORT) == Some(id) => {
            Ok(Change::already("abort", format!("the abort of plan {id} is already requested")))
        }
        "Active" => {
            let write = Write::Annotation(ANNOTATION_ABORT, id.to_owned());
            Ok(Change::done("abort", write, format!("abort of plan {id} requested")))
        }
        "Aborted" => Ok(Change::already("abort", format!("plan {id} is already aborted"))),
        _ => Err("no rollout or evacuation is active: there is nothing to abort".to_owned()),
    }
}

fn retry(object: &Value, now: DateTime<Utc>) -> Result<Change, String> {
    let (id, state) = plan(object);
    let tasks = object["status"]["plan"]["tasks"].as_array().map(Vec::as_slice).unwrap_or_default();
    let rejected = object["status"]["rejected"]["planID"].as_str();
    let is_late = |task: &Value| task["deadline"].as_str().and_then(parse_time).is_some_and(|at| at <= now);
    let is_stuck = |task: &Value| match task["state"].as_str() {
        Some("Failed") => true,
        Some("Complete" | "Skipped") => false,
        _ => is_late(task),
    };
    let has_failed = state == "Active" && tasks.iter().any(is_stuck);
    let id = match rejected {
        _ if has_failed => id,
        Some(id) => id,
        None => {
            return Err("no target is rejected, no gate, hook or evacuation has failed, and no task is stalled: there is \
                        nothing to retry"
                .to_owned());
        }
    };
    let Some(value) = change::next_retry(object, id, object["status"]["spentRetry"].as_str()) else {
        return Ok(Change::already("retry", format!("the retry of plan {id} is already requested")));
    };
    Ok(Change::done(
        "retry",
        Write::Annotation(ANNOTATION_RETRY, value),
        format!("retry of plan {id} requested"),
    ))
}

fn skip(object: &Value, named: Option<&str>) -> Result<Change, String> {
    let (_, state) = plan(object);
    if state != "Active" {
        return Err("no plan is active: there is nothing to skip".to_owned());
    }
    let tasks = object["status"]["plan"]["tasks"].as_array().map(Vec::as_slice).unwrap_or_default();
    let is_over = |task: &&Value| matches!(task["state"].as_str(), Some("Complete" | "Skipped"));
    let task = match named {
        Some(id) => tasks.iter().find(|task| task["id"] == id),
        None => tasks.iter().find(|task| !is_over(task)),
    };
    let task = task.ok_or("its plan does not have this task; see status.plan.tasks")?;
    let (id, type_) = (task["id"].as_str().unwrap_or_default(), task["type"].as_str().unwrap_or_default());
    if is_over(&task) {
        return Ok(Change::already("skip", format!("task {id} ({type_}) has already ended")));
    }
    let may_be_skipped = |task: &Value| {
        task["type"].as_str().is_some_and(|type_| SKIPPABLE.contains(&type_))
            || task["params"]["hook"].is_string()
    };
    if !may_be_skipped(task) {
        return Err(format!(
            "task {id} ({type_}) cannot be skipped; only {} and hooks can be",
            SKIPPABLE.join(", ")
        ));
    }
    let status = &object["status"];
    if type_ == "set-current" && status["currentBuildID"] != status["targetBuildID"] {
        let target = status["targetBuildID"].as_str().unwrap_or_default();
        return Err(format!(
            "task {id} ({type_}) cannot be skipped: {target} is not the current version in Temporal yet"
        ));
    }
    if annotation(object, ANNOTATION_SKIP) == Some(id) {
        return Ok(Change::already("skip", format!("the skip of task {id} is already requested")));
    }
    change::keep_skip(object, may_be_skipped)?;
    let write = Write::Annotation(ANNOTATION_SKIP, id.to_owned());
    Ok(Change::done("skip", write, format!("skip of task {id} ({type_}) requested")))
}

fn promote(object: &Value, looked_at: Option<&str>) -> Result<Change, String> {
    let status = &object["status"];
    let wanted = status["requestedRolloutHash"].as_str().unwrap_or_default();
    if status["observedGeneration"] != object["metadata"]["generation"] || wanted.is_empty() {
        return Err("the operator has not observed the latest spec yet; try again in a moment".to_owned());
    }
    let digits = wanted.split_once(':').map_or(wanted, |(_, digits)| digits);
    if let Some(hash) = looked_at
        && !wanted.starts_with(hash)
        && !digits.starts_with(hash)
    {
        return Err(format!(
            "--hash {hash} does not match the current target {wanted}; check the change again"
        ));
    }
    let (_, state) = plan(object);
    let recipe = status["plan"]["recipe"].as_str().unwrap_or_default();
    let is_rolling = state == "Active" && PlanKind::of_recipe(recipe) == PlanKind::Rollout;
    if status["lastCompletedRolloutHash"] == wanted && !is_rolling {
        return Ok(Change::already("promote", format!("{wanted} is already current")));
    }
    if object["spec"]["forcePromote"] == wanted {
        return Ok(Change::already("promote", format!("the promotion of {wanted} is already requested")));
    }
    let write = Write::Field("/spec/forcePromote", json!(wanted));
    Ok(Change::done("promote", write, format!("promotion of {wanted} requested")))
}

/// Rolls back the template of each selected object to a stored revision.
pub async fn rollback(arguments: &VerbArgs, to: Option<&str>) -> Result<(), String> {
    let cluster = arguments.named.flags.cluster().await?;
    for located in arguments.named.located(&cluster).await? {
        let stored = stored_of(&cluster.client, &located.namespace, &located.target.name).await?;
        let decide = |_: &[StoredRevision], object: &Value| back(object, &stored, to);
        let done = carry_out_on(arguments, &cluster, &located, Needs::Object, decide).await?;
        crate::print(&done)?;
    }
    Ok(())
}

/// The revisions of a `WorkerDeployment`, oldest first.
pub async fn stored(client: &kube::Client, namespace: &str, object: &Value) -> Result<Vec<Value>, String> {
    stored_of(client, namespace, object["metadata"]["name"].as_str().unwrap_or_default()).await
}

async fn stored_of(client: &kube::Client, namespace: &str, name: &str) -> Result<Vec<Value>, String> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("apps", "v1", "ControllerRevision"));
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &resource);
    let params = ListParams::default().labels(&format!("{LABEL_WORKERS}={name}"));
    let list = api.list(&params).await.map_err(|error| format!("its revisions cannot be listed: {error}"))?;
    let mut stored: Vec<Value> = list.items.into_iter().map(|item| json!(item)).collect();
    stored.sort_by_key(|revision| revision["revision"].as_i64());
    Ok(stored)
}

/// The revisions of completed rollouts, except `wanted`, last first: a rejected one is no target of a rollback.
fn completed_before(object: &Value, wanted: &str) -> Vec<String> {
    let owner = object["metadata"]["name"].as_str().unwrap_or_default();
    let history = object["status"]["history"].as_array().into_iter().flatten().rev();
    let is_rollout = |entry: &&Value| {
        PlanKind::of_recipe(entry["recipe"].as_str().unwrap_or_default()) == PlanKind::Rollout
    };
    let completed = history.filter(is_rollout).filter(|entry| entry["outcome"] == "Complete");
    let named = completed.filter_map(|entry| Some(revision_name(owner, entry["targetHash"].as_str()?)));
    named.filter(|name| name != wanted).collect()
}

fn back(object: &Value, stored: &[Value], to: Option<&str>) -> Result<Change, String> {
    let status = &object["status"];
    let name = |revision: &Value| revision["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let wanted = status["updateRevision"].as_str().unwrap_or_default();
    let revision = match to {
        Some(to) => stored
            .iter()
            .find(|r| name(r) == to || r["revision"].as_i64().is_some_and(|n| n.to_string() == to)),
        // The last completed one, or, if that is the target already, the one before it.
        None => match status["currentRevision"].as_str() {
            Some(current) if current != wanted => stored.iter().find(|r| name(r) == current),
            _ => completed_before(object, wanted)
                .into_iter()
                .find_map(|before| stored.iter().find(|revision| name(revision) == before)),
        },
    };
    let revision = revision.ok_or_else(|| {
        let names: Vec<String> = stored.iter().map(name).collect();
        format!("no revision to roll back to was found; stored revisions: {}", names.join(", "))
    })?;
    let (template, id) =
        (revision["data"]["template"].clone(), revision["data"]["unsafeCustomBuildID"].clone());
    let id = if id.is_string() { id } else { json!("") };
    let has_id = object["spec"]["unsafeCustomBuildID"].as_str().unwrap_or_default();
    let pools = pools_of(revision, &object["spec"]["pools"]);
    let has_pools = object["spec"]["pools"].as_array().map_or(&[][..], Vec::as_slice);
    let is_same = object["spec"]["template"] == template && has_pools == pools.as_slice();
    if is_same && has_id == id.as_str().unwrap_or_default() {
        return Ok(Change::already("rollback", format!("the target is already {}", name(revision))));
    }
    let is_manual = object["spec"]["rollout"]["strategy"] == "Manual";
    let asks = if is_manual { "; its strategy is Manual: it waits for windlass promote" } else { "" };
    let message = format!(
        "rolled back to {} (build ID {}){asks}",
        name(revision),
        revision["data"]["buildID"].as_str().unwrap_or_default()
    );
    let mut fields = vec![("/spec/template", template), ("/spec/unsafeCustomBuildID", id)];
    if has_pools != pools.as_slice() {
        fields.push(("/spec/pools", json!(pools)));
    }
    Ok(Change::done("rollback", Write::Fields(fields), message))
}

/// The pools of a revision. Replicas are not part of a version: those of the spec stay.
fn pools_of(revision: &Value, current: &Value) -> Vec<Value> {
    let mut pools = revision["data"]["pools"].as_array().cloned().unwrap_or_default();
    for pool in &mut pools {
        let of_same_name = |other: &&Value| other["name"] == pool["name"];
        let Some(now) = current.as_array().into_iter().flatten().find(of_same_name) else { continue };
        let replicas = now.get("replicas").cloned();
        let Some(fields) = pool.as_object_mut() else { continue };
        fields.remove("replicas");
        fields.extend(replicas.map(|replicas| ("replicas".to_owned(), replicas)));
    }
    pools
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rolled() -> Value {
        json!({
            "metadata": {"generation": 3},
            "spec": {"template": {"spec": "new"}},
            "status": {
                "observedGeneration": 3, "requestedRolloutHash": "v1:bbbb", "lastCompletedRolloutHash": "v1:aaaa",
                "currentRevision": "w-a", "updateRevision": "w-b",
                "plan": {"id": "0123456789", "state": "Active", "tasks": [
                    {"id": "0123456789-0", "type": "create-version", "state": "Complete"},
                    {"id": "0123456789-1", "type": "run-gate", "state": "Failed"},
                ]},
            },
        })
    }

    #[test]
    fn each_verb_writes_its_own_field_or_annotation() {
        let now = DateTime::from_timestamp(1_900_000_000, 0).unwrap();
        let written = |verb: Verb| change(&verb, &rolled(), now).unwrap().write.unwrap();
        assert_eq!(
            written(Verb::Abort { rollback: false }),
            Write::Annotation(ANNOTATION_ABORT, "0123456789".into())
        );
        assert_eq!(written(Verb::Retry), Write::Annotation(ANNOTATION_RETRY, "0123456789".into()));
        assert_eq!(
            written(Verb::Skip { task: None }),
            Write::Annotation(ANNOTATION_SKIP, "0123456789-1".into())
        );
        assert_eq!(
            written(Verb::Promote { hash: None }),
            Write::Field("/spec/forcePromote", json!("v1:bbbb"))
        );
        assert_eq!(written(Verb::Pause), Write::Field("/spec/paused", json!(true)));
        let mut hooked = rolled();
        hooked["status"]["hooks"] =
            json!([{"hook": "h", "taskID": "0123456789-1", "state": "AwaitingApproval"}]);
        let approval = change(&Verb::Approve { task: None }, &hooked, now).unwrap();
        let approve = windlass_core::api::names::ANNOTATION_APPROVE;
        assert_eq!(approval.write.unwrap(), Write::Annotation(approve, "0123456789-1".into()));
        assert!(change(&Verb::Approve { task: None }, &rolled(), now).is_err(), "no hook waits");
        assert!(change(&Verb::Promote { hash: Some("cccc".into()) }, &rolled(), now).is_err());
    }

    #[test]
    fn repeated_retry_gets_a_new_counter() {
        let mut object = rolled();
        for (asked, spent, expected) in [
            (Value::Null, Value::Null, Some("0123456789")),
            (json!("0123456789"), Value::Null, None),
            (json!("0123456789"), json!("0123456789"), Some("0123456789/2")),
            (json!("0123456789/2"), json!("0123456789/2"), Some("0123456789/3")),
            (json!("other"), json!("other"), Some("0123456789")),
        ] {
            object["metadata"]["annotations"]["windlass.dev/retry"] = asked.clone();
            object["status"]["spentRetry"] = spent;
            let write = retry(&object, DateTime::UNIX_EPOCH).unwrap().write;
            let expected = expected.map(|value| Write::Annotation(ANNOTATION_RETRY, value.to_owned()));
            assert_eq!(write, expected, "{asked}");
        }
    }

    #[test]
    fn failed_evacuation_is_retried_before_a_rejected_target() {
        let mut object = rolled();
        object["status"]["rejected"] = json!({"planID": "aaaaaaaaaa"});
        let plan = json!({"id": "0123456789", "recipe": "Evacuate", "state": "Active",
            "tasks": [{"id": "0123456789-1", "type": "move-workflows", "state": "Failed"}]});
        object["status"]["plan"] = plan;
        let write = retry(&object, DateTime::UNIX_EPOCH).unwrap().write;
        assert_eq!(write, Some(Write::Annotation(ANNOTATION_RETRY, "0123456789".to_owned())));
        let write = skip(&object, None).unwrap().write;
        assert_eq!(write, Some(Write::Annotation(ANNOTATION_SKIP, "0123456789-1".to_owned())));
        object["status"]["lastCompletedRolloutHash"] = json!("v1:bbbb");
        assert_eq!(promote(&object, None).unwrap().write, None, "no rollout is active");
    }

    #[test]
    fn stalled_task_of_the_routing_may_be_retried_and_skipped() {
        let mut object = rolled();
        object["status"]["targetBuildID"] = json!("two");
        let now = DateTime::from_timestamp(1_900_000_000, 0).unwrap();
        for (type_, late, current, may_retry, may_skip) in [
            ("ramp", true, "one", true, true),
            ("ramp", false, "one", false, true),
            ("set-current", true, "two", true, true),
            ("set-current", true, "one", true, false),
            ("create-version", true, "one", true, false),
        ] {
            let deadline = now + chrono::TimeDelta::seconds(if late { -1 } else { 1 });
            object["status"]["currentBuildID"] = json!(current);
            object["status"]["plan"]["tasks"][1] =
                json!({"id": "0123456789-1", "type": type_, "state": "Running", "deadline": deadline});
            let may = |verb: Verb| change(&verb, &object, now).is_ok();
            assert_eq!(
                (may(Verb::Retry), may(Verb::Skip { task: None })),
                (may_retry, may_skip),
                "{type_} {current}"
            );
        }
    }

    #[test]
    fn only_hook_tasks_may_be_skipped() {
        let mut object = rolled();
        object["status"]["plan"]["tasks"][1] = json!({"id": "0123456789-1", "type": "await-approval",
            "params": {"hook": "h", "at": "BeforePromotion"}, "state": "Running"});
        let write = skip(&object, None).unwrap().write.unwrap();
        assert_eq!(write, Write::Annotation(ANNOTATION_SKIP, "0123456789-1".into()));
        object["status"]["plan"]["tasks"][1]["params"] = Value::Null;
        assert!(skip(&object, None).is_err());
    }

    #[test]
    fn rollback_restores_last_completed_template_and_build_id() {
        let revision = |name: &str, number: i64, template: &str, id: Value| {
            json!({"metadata": {"name": name}, "revision": number,
                "data": {"template": {"spec": template}, "unsafeCustomBuildID": id, "buildID": name}})
        };
        let stored = [revision("w-a", 1, "old", json!("blue")), revision("w-b", 2, "new", Value::Null)];
        let write = back(&rolled(), &stored, None).unwrap().write.unwrap();
        let mut fields =
            vec![("/spec/template", json!({"spec": "old"})), ("/spec/unsafeCustomBuildID", json!("blue"))];
        assert_eq!(write, Write::Fields(fields.clone()));
        assert_eq!(back(&rolled(), &stored, Some("2")).unwrap().write, None);
        let pool = |template: &str, replicas: i32| json!([{"name": "gpu", "replicas": replicas, "template": template}]);
        let mut with_pools = stored.clone();
        with_pools[0]["data"]["pools"] = pool("old", 1);
        let mut object = rolled();
        object["spec"]["pools"] = pool("new", 5);
        fields.push(("/spec/pools", pool("old", 5)));
        assert_eq!(back(&object, &with_pools, None).unwrap().write, Some(Write::Fields(fields)));
        assert!(back(&rolled(), &stored, Some("9")).unwrap_err().contains("w-a, w-b"));
    }

    #[test]
    fn rollback_from_completed_passes_over_rejected_revisions() {
        let revision = |hash: &str, number: i64| {
            json!({"metadata": {"name": format!("w-{}", hash.repeat(10))}, "revision": number,
                "data": {"template": {"spec": hash}, "buildID": hash}})
        };
        let stored = [revision("a", 1), revision("b", 2), revision("c", 3)];
        let ended = |hash: &str, outcome: &str| json!({"targetHash": format!("v1:{}", hash.repeat(10)), "outcome": outcome});
        let object = json!({
            "metadata": {"name": "w"}, "spec": {"template": {"spec": "c"}},
            "status": {"currentRevision": "w-cccccccccc", "updateRevision": "w-cccccccccc",
                "history": [ended("a", "Complete"), ended("b", "Failed"), ended("c", "Complete")]},
        });
        let Some(Write::Fields(fields)) = back(&object, &stored, None).unwrap().write else { panic!() };
        assert_eq!(fields[0].1, json!({"spec": "a"}));
        let mut first = object;
        let mut evacuation = ended("a", "Complete");
        evacuation["recipe"] = json!("Evacuate");
        first["status"]["history"] = json!([evacuation, ended("b", "Failed"), ended("c", "Complete")]);
        assert!(back(&first, &stored, None).unwrap_err().contains("no revision to roll back to"));
    }

    #[test]
    fn pending_skip_of_a_gate_is_not_overwritten() {
        let tasks = json!([{"id": "p-0", "type": "run-gate", "state": "Failed"},
            {"id": "p-1", "type": "await-approval", "state": "Pending", "params": {"hook": "h"}}]);
        let mut object = json!({"metadata": {"annotations": {"windlass.dev/skip": "p-0"}},
            "status": {"plan": {"id": "p", "state": "Active", "tasks": tasks}}});
        let now = DateTime::from_timestamp(1_900_000_000, 0).unwrap();
        let second = Verb::Skip { task: Some("p-1".to_owned()) };
        let sentence = change(&second, &object, now).unwrap_err();
        assert!(sentence.contains("the skip of task p-0 is still pending"), "{sentence}");
        object["status"]["plan"]["tasks"][0]["state"] = json!("Skipped");
        let write = change(&second, &object, now).unwrap().write;
        assert_eq!(write, Some(Write::Annotation(ANNOTATION_SKIP, "p-1".to_owned())));
    }
}
