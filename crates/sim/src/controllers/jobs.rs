//! The Job and TTL controllers, after Kubernetes 1.36, for Jobs with one pod at a time: pods, back-off, deadlines,
//! completion. Without finalizers on pods, which nobody here reads.

use std::sync::Arc;

use chrono::{DateTime, Utc};
use serde_json::{Map, Value, json};

use super::super::agenda::Job;
use super::super::server::{DeleteOptions, WriteOptions};
use super::super::store::{Change, Key, Object, controller_of};
use super::super::world::World;

/// The first back-off of a failed pod, in milliseconds; doubled up to the last.
const BACK_OFF_MS: u64 = 10_000;
const BACK_OFF_LAST_MS: u64 = 600_000;

/// Queues the Job of a changed pod.
pub(crate) fn note_pod(world: &mut World, change: &Change) {
    let Some(owner) = controller_of(&change.shown.value).filter(|owner| owner["kind"] == "Job") else {
        return;
    };
    let name = owner["name"].as_str().unwrap_or_default().to_owned();
    world.agenda.soon(Job::Work((change.key.0.clone(), name)));
}

/// Reconciles a Job.
pub(crate) fn step(world: &mut World, key: &Key) {
    let Some(kind) = world.kind("Job") else { return };
    let Some(job) = world.store.get(kind.shelf, key).cloned() else { return };
    if job.is_terminating() {
        return;
    }
    if is(&job.value, "Complete") || is(&job.value, "Failed") {
        return remove_in_time(world, key, &job);
    }
    let now = world.now();
    let pods = pods_of(world, key, &job);
    let (ended, active): (Vec<_>, Vec<_>) = pods.into_iter().partition(|pod| !phase(pod).is_empty());
    let active: Vec<_> = active.into_iter().filter(|pod| !pod.is_terminating()).collect();
    let count = |wanted: &str| ended.iter().filter(|pod| phase(pod) == wanted).count() as i64;
    let (succeeded, failed) = (count("Succeeded"), count("Failed"));
    let mut next = job.value.clone();
    let status = &mut next["status"];
    let suspended = job.value["spec"]["suspend"] == true;
    if status["startTime"].is_null() && !suspended {
        status["startTime"] = world.timestamp();
    }
    let number = |field: &str, default: i64| job.value["spec"][field].as_i64().unwrap_or(default);
    let (wanted, limit) = (number("completions", 1).max(1), number("backoffLimit", 6));
    let started = time(&status["startTime"]).unwrap_or(now);
    let deadline = job.value["spec"]["activeDeadlineSeconds"].as_i64();
    let is_late = deadline.is_some_and(|seconds| (now - started).num_seconds() >= seconds);
    let over = if succeeded >= wanted {
        Some((
            "SuccessCriteriaMet",
            "Complete",
            "CompletionsReached",
            "Reached expected number of succeeded pods",
        ))
    } else if failed > limit {
        Some((
            "FailureTarget",
            "Failed",
            "BackoffLimitExceeded",
            "Job has reached the specified backoff limit",
        ))
    } else if is_late {
        Some(("FailureTarget", "Failed", "DeadlineExceeded", "Job was active longer than specified deadline"))
    } else {
        None
    };
    set_count(status, "succeeded", succeeded);
    set_count(status, "failed", failed);
    let mut running = active.len() as i64;
    if let Some((target, end, reason, message)) = over {
        for pod in &active {
            delete(world, "Pod", key, pod);
        }
        running = 0;
        let at = world.timestamp();
        if end == "Complete" {
            status["completionTime"] = at.clone();
        }
        let condition = |type_: &str| {
            json!({"type": type_, "status": "True", "lastProbeTime": at, "lastTransitionTime": at,
                "reason": reason, "message": message})
        };
        status["conditions"] = json!([condition(target), condition(end)]);
    } else if !suspended && running == 0 {
        let last = ended.iter().filter_map(|pod| ended_at(&pod.value)).max();
        let wait = if failed == 0 { 0 } else { (BACK_OFF_MS << (failed - 1).min(16)).min(BACK_OFF_LAST_MS) };
        let since = last.and_then(|last| u64::try_from((now - last).num_milliseconds()).ok()).unwrap_or(wait);
        if since >= wait {
            running = i64::from(create_pod_or_say(world, key, &job));
        } else {
            world.agenda.after(Job::Work(key.clone()), wait - since);
        }
    }
    set_count(status, "active", running);
    status["ready"] =
        active.iter().filter(|_| over.is_none()).filter(|pod| is(&pod.value, "Ready")).count().into();
    status["terminating"] = 0.into();
    status["uncountedTerminatedPods"] = json!({});
    if let Some(seconds) = deadline.filter(|_| over.is_none()) {
        let left = seconds * 1_000 - (now - started).num_milliseconds();
        world.agenda.after(Job::Work(key.clone()), u64::try_from(left).unwrap_or_default() + 1);
    }
    let completes = is(&next, "Complete");
    if next != job.value {
        world.put(&kind, key.clone(), next);
    }
    if completes {
        world.record_event(&job.value, "Completed", "Job completed");
    }
}

/// A count in the status is absent if it is zero.
fn set_count(status: &mut Value, field: &str, count: i64) {
    if count > 0 {
        status[field] = count.into();
    } else if let Some(fields) = status.as_object_mut() {
        fields.remove(field);
    }
}

fn remove_in_time(world: &mut World, key: &Key, job: &Arc<Object>) {
    let Some(seconds) = job.value["spec"]["ttlSecondsAfterFinished"].as_i64() else { return };
    let conditions = job.value["status"]["conditions"].as_array().into_iter().flatten();
    let at = conditions.filter_map(|c| time(&c["lastTransitionTime"])).max();
    let Some(at) = at else { return };
    let left = seconds * 1_000 - (world.now() - at).num_milliseconds();
    match u64::try_from(left) {
        Ok(left) if left > 0 => world.agenda.after(Job::Work(key.clone()), left),
        _ => delete(world, "Job", key, job),
    }
}

fn delete(world: &mut World, kind: &str, of: &Key, object: &Arc<Object>) {
    let Some(kind) = world.kind(kind) else { return };
    let name = object.value["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    // On a conflict it is queued again.
    let _ = world.delete(&kind, &(of.0.clone(), name), &DeleteOptions::of_uid(object.uid()));
}

fn pods_of(world: &World, key: &Key, job: &Object) -> Vec<Arc<Object>> {
    let Some(kind) = world.kind("Pod") else { return Vec::new() };
    let prefix = format!("{}-", key.1);
    let found = world.store.list_named(kind.shelf, &key.0, &prefix);
    let is_own = |pod: &Object| controller_of(&pod.value).is_some_and(|owner| owner["uid"] == job.uid());
    found.filter(|(_, pod)| is_own(pod)).map(|(_, pod)| pod.clone()).collect()
}

/// Creates a pod; false if it was refused, with an event and a retry.
fn create_pod_or_say(world: &mut World, key: &Key, job: &Arc<Object>) -> bool {
    let Err(message) = create_pod(world, key, job) else {
        world.failures.remove(key);
        return true;
    };
    let count = world.failures.entry(key.clone()).or_default();
    *count += 1;
    let (is_first, wait) = (*count == 1, BACK_OFF_MS << (*count - 1).min(16));
    if is_first {
        world.record_event(&job.value, "FailedCreate", &format!("Error creating: {message}"));
    }
    world.agenda.after(Job::Work(key.clone()), wait.min(BACK_OFF_LAST_MS));
    false
}

fn create_pod(world: &mut World, key: &Key, job: &Arc<Object>) -> Result<(), String> {
    let Some(kind) = world.kind("Pod") else { return Err("there are no pods here".to_owned()) };
    let template = &job.value["spec"]["template"];
    let labels: Map<String, Value> = template["metadata"]["labels"].as_object().cloned().unwrap_or_default();
    let reference = json!({"apiVersion": "batch/v1", "kind": "Job", "name": key.1, "uid": job.uid(),
        "controller": true, "blockOwnerDeletion": true});
    let mut metadata = json!({"generateName": format!("{}-", key.1), "namespace": key.0, "labels": labels,
        "ownerReferences": [reference]});
    if !template["metadata"]["annotations"].is_null() {
        metadata["annotations"] = template["metadata"]["annotations"].clone();
    }
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]});
    let made = world.create(&kind, &key.0, pod, &WriteOptions::default());
    made.map(drop).map_err(|refusal| refusal.message)
}

/// The phase of a terminated pod, or an empty string.
fn phase(pod: &Object) -> &str {
    let phase = pod.value["status"]["phase"].as_str().unwrap_or_default();
    if matches!(phase, "Succeeded" | "Failed") { phase } else { "" }
}

fn ended_at(pod: &Value) -> Option<DateTime<Utc>> {
    let containers = pod["status"]["containerStatuses"].as_array().into_iter().flatten();
    containers.filter_map(|c| time(&c["state"]["terminated"]["finishedAt"])).max()
}

fn is(object: &Value, condition: &str) -> bool {
    let conditions = object["status"]["conditions"].as_array().into_iter().flatten();
    conditions.into_iter().any(|c| c["type"] == condition && c["status"] == "True")
}

fn time(value: &Value) -> Option<DateTime<Utc>> {
    value.as_str()?.parse().ok()
}
