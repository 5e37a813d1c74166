//! A pod's table row: its state as one word.

use chrono::{DateTime, Utc};
use serde_json::Value;

use super::cell::{number, or, restarts, since, text};

/// The combined state of a pod's containers.
struct Tally {
    ready: usize,
    reason: String,
    restarts: i64,
    /// When a container last terminated.
    ended: Value,
}

impl Tally {
    fn count(&mut self, status: &Value) {
        self.restarts += number(&status["restartCount"]);
        let ended = &status["lastState"]["terminated"]["finishedAt"];
        if text(ended) > text(&self.ended) {
            self.ended = ended.clone();
        }
    }
}

/// The cells of a pod.
pub(super) fn cells(pod: &Value, now: DateTime<Utc>) -> Vec<Value> {
    let (spec, status) = (&pod["spec"], &pod["status"]);
    let all = |value: &Value| value.as_array().map_or(0, Vec::len);
    let sidecars: Vec<&str> = spec["initContainers"]
        .as_array()
        .into_iter()
        .flatten()
        .filter(|container| container["restartPolicy"] == "Always")
        .map(|container| text(&container["name"]))
        .collect();
    let total = all(&spec["containers"]) + sidecars.len();
    let reason = or(text(&status["reason"]), text(&status["phase"]));
    let mut tally = Tally { ready: 0, reason, restarts: 0, ended: Value::Null };
    if gated(status) {
        "SchedulingGated".clone_into(&mut tally.reason);
    }
    let initializing = initial(pod, &sidecars, &mut tally);
    if !initializing || is_true(status, "Initialized") {
        main(status, &mut tally);
    }
    let phase = text(&status["phase"]);
    if pod["metadata"]["deletionTimestamp"].is_string() && !matches!(phase, "Succeeded" | "Failed") {
        tally.reason =
            if status["reason"] == "NodeLost" { "Unknown".to_owned() } else { "Terminating".to_owned() };
    }
    vec![
        pod["metadata"]["name"].clone(),
        format!("{}/{total}", tally.ready).into(),
        tally.reason.into(),
        restarts(tally.restarts, &tally.ended, now),
        since(&pod["metadata"]["creationTimestamp"], now).into(),
        or(text(&status["podIP"]), "<none>").into(),
        or(text(&spec["nodeName"]), "<none>").into(),
        or(text(&status["nominatedNodeName"]), "<none>").into(),
        gates(spec, status).into(),
    ]
}

/// Evaluates the init containers; true if one is still running.
fn initial(pod: &Value, sidecars: &[&str], tally: &mut Tally) -> bool {
    let total = pod["spec"]["initContainers"].as_array().map_or(0, Vec::len);
    let statuses = pod["status"]["initContainerStatuses"].as_array();
    for (index, container) in statuses.into_iter().flatten().enumerate() {
        let (waiting, ended) = (&container["state"]["waiting"], &container["state"]["terminated"]);
        let is_sidecar = sidecars.contains(&text(&container["name"]));
        if ended["exitCode"] == 0 {
            tally.count(container);
            continue;
        }
        tally.count(container);
        if is_sidecar && container["started"] == true {
            if container["ready"] == true {
                tally.ready += 1;
            }
            continue;
        }
        tally.reason = if ended.is_object() {
            format!("Init:{}", ending(ended))
        } else if !matches!(text(&waiting["reason"]), "" | "PodInitializing") {
            format!("Init:{}", text(&waiting["reason"]))
        } else {
            format!("Init:{index}/{total}")
        };
        return true;
    }
    false
}

fn main(status: &Value, tally: &mut Tally) {
    let mut running = false;
    for container in status["containerStatuses"].as_array().into_iter().flatten().rev() {
        tally.count(container);
        let (waiting, ended) = (&container["state"]["waiting"], &container["state"]["terminated"]);
        if !text(&waiting["reason"]).is_empty() {
            text(&waiting["reason"]).clone_into(&mut tally.reason);
        } else if ended.is_object() {
            tally.reason = ending(ended);
        } else if container["ready"] == true && container["state"]["running"].is_object() {
            running = true;
            tally.ready += 1;
        }
    }
    if tally.reason == "Completed" && running {
        tally.reason = if is_true(status, "Ready") { "Running".to_owned() } else { "NotReady".to_owned() };
    }
}

fn ending(ended: &Value) -> String {
    match (text(&ended["reason"]), number(&ended["signal"])) {
        ("", 0) => format!("ExitCode:{}", number(&ended["exitCode"])),
        ("", signal) => format!("Signal:{signal}"),
        (reason, _) => reason.to_owned(),
    }
}

fn condition<'a>(status: &'a Value, kind: &str) -> Option<&'a Value> {
    status["conditions"].as_array()?.iter().find(|condition| condition["type"] == kind)
}

fn is_true(status: &Value, kind: &str) -> bool {
    condition(status, kind).is_some_and(|condition| condition["status"] == "True")
}

fn gated(status: &Value) -> bool {
    condition(status, "PodScheduled").is_some_and(|condition| condition["reason"] == "SchedulingGated")
}

fn gates(spec: &Value, status: &Value) -> String {
    let Some(gates) = spec["readinessGates"].as_array().filter(|gates| !gates.is_empty()) else {
        return "<none>".to_owned();
    };
    let open = gates.iter().filter(|gate| is_true(status, text(&gate["conditionType"]))).count();
    format!("{open}/{}", gates.len())
}
