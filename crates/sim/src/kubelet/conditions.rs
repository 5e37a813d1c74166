//! A pod's phase and conditions, computed from its containers' statuses.

use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use super::outlook::{Now, Outlook, text};

pub(super) fn phase(restart_policy: Option<&str>, mains: &[Value]) -> &'static str {
    let is = |status: &Value, state: &str| status["state"].get(state).is_some();
    if mains.iter().any(|status| is(status, "waiting") && status["imageID"] == "") {
        return "Pending";
    }
    if restart_policy.is_some_and(|policy| policy != "Always") && mains.iter().all(|s| is(s, "terminated")) {
        let failed = mains.iter().any(|status| status["state"]["terminated"]["exitCode"] != 0);
        return if failed { "Failed" } else { "Succeeded" };
    }
    "Running"
}

pub(super) fn conditions(
    pod: &Pod,
    phase: &str,
    initialized: bool,
    has_sandbox: bool,
    unready: &[&str],
    now: Now,
) -> Vec<Value> {
    let present = present_conditions(pod);
    let (reason, message) = match phase {
        "Succeeded" => ("PodCompleted", String::new()),
        "Failed" => ("PodFailed", String::new()),
        _ => ("ContainersNotReady", format!("containers with unready status: [{}]", unready.join(" "))),
    };
    let not_ready = || Some((reason, message.clone()));
    let containers = if unready.is_empty() { None } else { not_ready() };
    let conditions_asked =
        pod.spec.as_ref().and_then(|spec| spec.readiness_gates.as_ref()).into_iter().flatten();
    let shut: Vec<&str> = conditions_asked
        .map(|gate| gate.condition_type.as_str())
        .filter(|gate| !present.iter().any(|c| c["type"] == *gate && c["status"] == "True"))
        .collect();
    let told = |gate: &&str| match present.iter().find(|c| c["type"] == **gate) {
        None => format!("corresponding condition of pod readiness gate \"{gate}\" does not exist."),
        Some(found) => {
            let status = found["status"].as_str().unwrap_or_default();
            format!("the status of pod readiness gate \"{gate}\" is not \"True\", but {status}")
        }
    };
    let gated = || Some(("ReadinessGatesNotReady", shut.iter().map(told).collect::<Vec<_>>().join(", ")));
    let ready = if containers.is_none() && !shut.is_empty() { gated() } else { containers.clone() };
    let initializing =
        || Some(("ContainersNotInitialized", "containers with incomplete status: see them".to_owned()));
    let ours = [
        ("PodReadyToStartContainers", if has_sandbox { None } else { Some(("", String::new())) }),
        ("Initialized", if initialized { None } else { initializing() }),
        ("Ready", ready),
        ("ContainersReady", containers),
    ];
    let mut conditions: Vec<Value> =
        present.iter().filter(|c| !ours.iter().any(|(kind, _)| c["type"] == *kind)).cloned().collect();
    if !conditions.iter().any(|c| c["type"] == "PodScheduled") {
        conditions.push(condition(&present, "PodScheduled", None, now));
    }
    conditions.extend(ours.into_iter().map(|(kind, wrong)| condition(&present, kind, wrong, now)));
    conditions
}

/// A condition that is True unless `wrong`; its transition time only moves with its status.
fn condition(present: &[Value], kind: &str, wrong: Option<(&str, String)>, now: Now) -> Value {
    let status = if wrong.is_none() { "True" } else { "False" };
    let same = present.iter().find(|c| c["type"] == kind && c["status"] == status);
    let since = same.and_then(|c| c["lastTransitionTime"].as_str());
    let since = since.map_or_else(|| text(now.wall), str::to_owned);
    let mut condition = json!({"type": kind, "status": status, "lastTransitionTime": since});
    if let Some((reason, message)) = wrong {
        if !reason.is_empty() {
            condition["reason"] = reason.into();
        }
        if !message.is_empty() {
            condition["message"] = message.into();
        }
    }
    condition
}

fn present_conditions(pod: &Pod) -> Vec<Value> {
    let present = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    present.filter_map(|condition| serde_json::to_value(condition).ok()).collect()
}

/// A lost node writes nothing; the node lifecycle controller sets Ready=False on its last status.
pub(super) fn dead(pod: &Pod, now: Now) -> Option<Outlook> {
    let mut conditions = present_conditions(pod);
    let ready = conditions.iter_mut().find(|condition| condition["type"] == "Ready")?;
    if ready["status"] == "True" {
        *ready = json!({"type": "Ready", "status": "False", "lastTransitionTime": text(now.wall)});
    }
    Some(Outlook { status: json!({"conditions": conditions}), again: None, warning: None })
}

/// The last status of a pod that its kubelet has evicted.
pub(super) fn evicted(pod: &Pod, now: Now) -> Value {
    let present = present_conditions(pod);
    let message = "The node was low on resource: memory. Threshold quantity: 100Mi, available: 8Mi. ";
    let mut conditions: Vec<Value> =
        present.iter().filter(|c| c["type"] != "Ready" && c["type"] != "ContainersReady").cloned().collect();
    for kind in ["Ready", "ContainersReady"] {
        conditions.push(condition(&present, kind, Some(("PodFailed", String::new())), now));
    }
    let disrupted = json!({"type": "DisruptionTarget", "status": "True", "reason": "TerminationByKubelet",
        "message": message, "lastTransitionTime": text(now.wall)});
    conditions.push(disrupted);
    json!({"phase": "Failed", "reason": "Evicted", "message": message, "conditions": conditions})
}
