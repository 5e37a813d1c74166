//! Why a Job makes no progress: what its pods report or, if none could be created, the events about that.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::api::status::MAX_PROBLEM_BYTES;
use crate::engine::sentence::cut;
use windlass_kube_port::observed::Meta;
use windlass_kube_port::{Cluster, ClusterError, EventNote, Kind, Selector};

/// Waiting reasons that pass by themselves.
const PASSING: [&str; 2] = ["PodInitializing", "ContainerCreating"];

/// The reasons that a kubelet alternates between while an image cannot be pulled. The first says most: the pull was
/// retried.
const OF_IMAGES: [&str; 3] = ["ImagePullBackOff", "ErrImagePull", "RegistryUnavailable"];

/// The reason of the events of a Job's controller when it cannot create pods.
const NO_PODS: &str = "FailedCreate";

/// The problem with one of a Job's pods, or with creating them.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(default)]
pub(super) struct JobProblem {
    /// Identifies the problem. As long as the problem stays the same, its first text is kept: kubelets change the
    /// wording every few seconds, and each change would be a write.
    key: String,
    /// A sentence about the problem.
    text: String,
}

impl JobProblem {
    fn new(about: &[&str], text: &str) -> Self {
        Self { key: about.join("/"), text: cut(text, MAX_PROBLEM_BYTES) }
    }

    /// True if this is the problem that was known before, and its text does not say more.
    fn is_known(&self, before: &Self) -> bool {
        let says_more = |word: &str| self.text.contains(word) && !before.text.contains(word);
        self.key == before.key && !says_more(OF_IMAGES[0])
    }

    pub(super) fn is_none(&self) -> bool {
        self.text.is_empty()
    }

    /// A sentence about the Job, followed by the problem if there is one.
    pub(super) fn after(&self, sentence: &str) -> String {
        if self.is_none() { sentence.to_owned() } else { format!("{sentence}; {}", self.text) }
    }
}

/// Checks a Job's pods, unless the Job makes progress. If they cannot be read now, the known problem is kept: it is
/// only reported, no decision is based on it.
pub(super) async fn look(cluster: &dyn Cluster, job: &Value, before: &JobProblem) -> JobProblem {
    if gets_on(job) {
        return JobProblem::default();
    }
    let found = match pods(cluster, job).await {
        // There are many events, so they are not listed every few seconds: an event that was found once is kept.
        Ok(pods) if pods.is_empty() && before.key == NO_PODS => return before.clone(),
        Ok(pods) if pods.is_empty() => refused(cluster, job).await,
        Ok(pods) => Ok(of_pods(&pods)),
        Err(error) => Err(error),
    };
    match found {
        Ok(Some(found)) if !found.is_known(before) => found,
        // Once the Job has failed, its failed pods may be deleted together with the others: the known problem is kept.
        Ok(None) if !has_failed(&job["status"]) => JobProblem::default(),
        Ok(_) | Err(_) => before.clone(),
    }
}

fn count(status: &Value, field: &str) -> i64 {
    status[field].as_i64().unwrap_or_default()
}

fn gets_on(job: &Value) -> bool {
    let status = &job["status"];
    let active = count(status, "active");
    let is_well = active > 0 && count(status, "ready") == active && count(status, "failed") == 0;
    is_well || job["spec"]["suspend"] == true
}

fn has_failed(status: &Value) -> bool {
    let conditions = status["conditions"].as_array().into_iter().flatten();
    conditions.into_iter().any(|c| c["type"] == "Failed" && c["status"] == "True")
}

/// A Job's pods, the newest first, found by the Job's own selector.
async fn pods(cluster: &dyn Cluster, job: &Value) -> Result<Vec<Value>, ClusterError> {
    let meta = Meta::read(job);
    let labels = job["spec"]["selector"]["matchLabels"].as_object().into_iter().flatten();
    let labels: Vec<String> =
        labels.filter_map(|(key, value)| Some(format!("{key}={}", value.as_str()?))).collect();
    if labels.is_empty() {
        return Ok(Vec::new());
    }
    let by = Selector::Labels(labels.join(","));
    let mut pods = cluster.selected(Kind::Pod, &meta.namespace, by).await?;
    pods.retain(|pod| Meta::read(pod).is_controlled_by(&meta.uid));
    let age = |pod: &Value| {
        let text = |field: &str| pod["metadata"][field].as_str().unwrap_or_default().to_owned();
        (text("creationTimestamp"), text("name"))
    };
    pods.sort_by_key(|pod| std::cmp::Reverse(age(pod)));
    Ok(pods)
}

/// The last event of the Job controller about pods that it could not create.
async fn refused(cluster: &dyn Cluster, job: &Value) -> Result<Option<JobProblem>, ClusterError> {
    let meta = Meta::read(job);
    let by = format!("regarding.kind=Job,regarding.name={},reason={NO_PODS}", meta.name);
    let events = cluster.selected(Kind::Event, &meta.namespace, Selector::Fields(by)).await?;
    let of_it = events.iter().filter(|event| event["regarding"]["uid"] == meta.uid.as_str());
    let told = of_it.filter_map(EventNote::read).max_by_key(|told| told.at);
    Ok(told.map(|told| JobProblem::new(&[NO_PODS], &format!("{NO_PODS}: {}", told.note))))
}

fn of_pods(pods: &[Value]) -> Option<JobProblem> {
    // A pod that cannot run now says more than one that has ended.
    let waits = pods.iter().filter(|pod| pod["metadata"]["deletionTimestamp"].is_null());
    waits.clone().find_map(waits_for).or_else(|| pods.iter().find_map(ended_badly))
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn containers(pod: &Value) -> impl Iterator<Item = &Value> {
    let lists = ["initContainerStatuses", "containerStatuses"].into_iter();
    lists.flat_map(|list| pod["status"][list].as_array().into_iter().flatten())
}

/// What a pod waits for, unless that passes by itself.
fn waits_for(pod: &Value) -> Option<JobProblem> {
    let (name, uid) = (text(&pod["metadata"]["name"]), text(&pod["metadata"]["uid"]));
    for container in containers(pod) {
        let (waiting, of) = (&container["state"]["waiting"], text(&container["name"]));
        let (reason, message) = (text(&waiting["reason"]), text(&waiting["message"]));
        // For a container that has failed, the way it ended says more.
        if reason.is_empty() || PASSING.contains(&reason) || end(container).is_some() {
            continue;
        }
        let says = if message.is_empty() { String::new() } else { format!(": {message}") };
        let text = format!("container {of} of pod {name} is waiting: {reason}{says}");
        let class = if OF_IMAGES.contains(&reason) { OF_IMAGES[0] } else { reason };
        return Some(JobProblem::new(&[uid, of, class], &text));
    }
    let conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
    let mut unscheduled = conditions.filter(|c| c["type"] == "PodScheduled" && c["status"] == "False");
    let unscheduled = unscheduled.next()?;
    let reason = text(&unscheduled["reason"]);
    let says = format!("pod {name} is not scheduled: {reason}: {}", text(&unscheduled["message"]));
    Some(JobProblem::new(&[uid, reason], &says))
}

/// How one of a pod's containers last failed, or why the pod itself failed.
fn ended_badly(pod: &Value) -> Option<JobProblem> {
    let (name, uid) = (text(&pod["metadata"]["name"]), text(&pod["metadata"]["uid"]));
    for container in containers(pod) {
        let Some((code, end)) = end(container) else { continue };
        let (of, code) = (text(&container["name"]), code.to_string());
        let reason = text(&end["reason"]);
        let mut says = format!("container {of} of pod {name} ended with exit code {code}");
        for word in [reason, text(&end["message"]).trim()].into_iter().filter(|word| !word.is_empty()) {
            says.push_str(": ");
            says.push_str(word);
        }
        return Some(JobProblem::new(&[uid, of, &code, reason], &says));
    }
    if pod["status"]["phase"] != "Failed" {
        return None;
    }
    let (reason, message) = (text(&pod["status"]["reason"]), text(&pod["status"]["message"]));
    let reason = if reason.is_empty() { "Failed" } else { reason };
    Some(JobProblem::new(&[uid, reason], &format!("pod {name} failed: {reason}: {message}")))
}

/// How a container ended, now or before its last restart, if it failed.
fn end(container: &Value) -> Option<(i64, &Value)> {
    let ends = ["state", "lastState"].map(|state| &container[state]["terminated"]);
    let end = ends.into_iter().find(|end| end.is_object())?;
    let code = end["exitCode"].as_i64().unwrap_or_default();
    (code != 0).then_some((code, end))
}

#[cfg(test)]
#[allow(clippy::needless_pass_by_value, reason = "a literal reads better this way")]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(status: Value) -> Value {
        let mut pod = json!({"metadata": {"name": "p", "uid": "u"}});
        pod["status"] = status;
        pod
    }

    fn with(state: Value, last: Value) -> Value {
        pod(
            json!({"phase": "Running", "containerStatuses": [{"name": "a", "state": state, "lastState": last}]}),
        )
    }

    fn waiting(reason: &str, message: &str) -> Value {
        json!({"waiting": {"reason": reason, "message": message}})
    }

    fn ended(code: i64, reason: &str) -> Value {
        json!({"terminated": {"exitCode": code, "reason": reason}})
    }

    fn said(pod: Value) -> String {
        of_pods(&[pod]).unwrap_or_default().text
    }

    #[test]
    fn pod_problem_describes_waiting_and_terminated_containers() {
        let none = json!({});
        let unscheduled = json!([{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes"}]);
        let evicted = json!({"phase": "Failed", "reason": "Evicted", "message": "low on memory"});
        for (pod, sentence) in [
            (
                with(waiting("ImagePullBackOff", "not found"), none.clone()),
                "container a of pod p is waiting: ImagePullBackOff: not found",
            ),
            (
                with(waiting("CreateContainerConfigError", ""), none.clone()),
                "container a of pod p is waiting: CreateContainerConfigError",
            ),
            (with(waiting("ContainerCreating", ""), none.clone()), ""),
            (pod(json!({"conditions": unscheduled})), "pod p is not scheduled: Unschedulable: 0/3 nodes"),
            (with(ended(3, "Error"), none.clone()), "container a of pod p ended with exit code 3: Error"),
            (
                with(waiting("CrashLoopBackOff", "back-off 40s"), ended(137, "OOMKilled")),
                "container a of pod p ended with exit code 137: OOMKilled",
            ),
            (
                with(json!({"running": {}}), ended(137, "OOMKilled")),
                "container a of pod p ended with exit code 137: OOMKilled",
            ),
            (with(ended(0, "Completed"), none), ""),
            (pod(evicted), "pod p failed: Evicted: low on memory"),
        ] {
            assert_eq!(said(pod), sentence);
        }
    }

    #[test]
    fn pod_that_cannot_run_takes_precedence_over_terminated_pods() {
        let ended = with(ended(1, "Error"), json!({}));
        let waits = with(waiting("ImagePullBackOff", "not found"), json!({}));
        let found = of_pods(&[ended, waits]).unwrap();
        assert!(found.text.contains("ImagePullBackOff"), "{found:?}");
    }

    #[test]
    fn unchanged_problem_keeps_its_first_message() {
        let says =
            |reason: &str, message: &str| of_pods(&[with(waiting(reason, message), json!({}))]).unwrap();
        let (pull, backs_off) = (says("ErrImagePull", "not found"), says("ImagePullBackOff", "Back-off 10s"));
        assert!(!backs_off.is_known(&pull), "it says more");
        assert!(pull.is_known(&backs_off));
        assert!(says("ImagePullBackOff", "Back-off 20s").is_known(&backs_off));
        assert!(!says("CreateContainerConfigError", "no secret").is_known(&backs_off));
        let again = with(waiting("CrashLoopBackOff", "back-off 10s"), ended(1, "Error"));
        let runs = with(json!({"running": {}}), ended(1, "Error"));
        assert_eq!(of_pods(&[again]), of_pods(&[runs]));
    }
}
