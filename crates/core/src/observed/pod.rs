//! The parts of a pod that are read.

use chrono::{DateTime, TimeDelta, Utc};
use serde_json::Value;

use super::meta::{Meta, text, time};
use crate::api::kept_once::pooled;
use crate::api::names::{LABEL_NODE, SIDECAR_CONTAINER};
use crate::api::{MadeFor, Shared};
use crate::parts::Parts;

/// The state of a container.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct ContainerState {
    /// Its name.
    pub name: String,
    /// True if it is an init container.
    pub init: bool,
    /// True if it runs.
    pub running: bool,
    /// Since when it runs, if it does.
    pub running_since: Option<DateTime<Utc>>,
    /// True if it has terminated, successfully or not, and does not wait to be restarted yet.
    pub ended: bool,
    /// True if it is ready.
    pub ready: bool,
    /// True if its startup probe has succeeded, or it runs and has none.
    pub started: bool,
    /// Why it waits: reason and message. A state without a reason says nothing.
    pub waiting: Option<(String, String)>,
    /// How it ended, now or before its last restart; `None` for a container that is ready.
    pub termination: Option<Box<Termination>>,
    /// How often it was restarted.
    pub restarts: i64,
}

/// How a container ended.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Termination {
    /// The kubelet's reason: `OOMKilled`, `Error`, `Completed`.
    pub reason: String,
    /// Its exit code.
    pub exit_code: i64,
    /// The signal that ended it; 0 if none is known.
    pub signal: i64,
    /// Its last words.
    pub message: String,
}

/// A readiness gate of a pod that is not open.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct ClosedGate {
    /// The type of its condition.
    pub name: String,
    /// That condition, if the pod has it.
    pub condition: Option<PodCondition>,
}

/// A pod's condition.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct PodCondition {
    /// True if its status is `True`.
    pub holds: bool,
    /// Its reason.
    pub reason: String,
    /// Its message.
    pub message: String,
    /// Since when.
    pub since: Option<DateTime<Utc>>,
}

/// When a pod's deletion was requested, and when its grace period is over.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Deletion {
    /// When it was requested.
    pub requested_at: DateTime<Utc>,
    /// `metadata.deletionTimestamp`.
    pub due_at: DateTime<Utc>,
}

/// The time that the probes of a container give it after each start.
#[derive(Clone, Debug, Default, Eq, Hash, PartialEq)]
pub struct StartTime {
    /// The container.
    pub container: String,
    /// Until its startup probe has failed for good, in seconds; 0 without one.
    pub startup_seconds: i64,
    /// Until its readiness probe is asked for the first time, in seconds.
    pub delay_seconds: i64,
}

pooled!(Vec<StartTime>);

/// A pod.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct ObservedPod {
    /// Its metadata.
    pub meta: Meta,
    /// The label `controller-revision-hash`.
    pub revision: String,
    /// Container names and images of its spec, in order.
    pub images: Shared<Vec<(String, String)>>,
    /// True if Windlass's sidecar is one of its init containers.
    pub has_sidecar: bool,
    /// The containers of its spec whose probes give them time to start.
    pub start_times: Shared<Vec<StartTime>>,
    /// Its deletion, if it is being deleted.
    pub deletion: Option<Deletion>,
    /// `status.phase`.
    pub phase: String,
    /// Why it ended or is being ended: `status.reason`, or the reason of its condition `DisruptionTarget`.
    pub reason: String,
    /// The message that belongs to `reason`.
    pub message: String,
    /// Its IP address.
    pub ip: String,
    /// The states of its containers, init containers first.
    pub containers: Vec<ContainerState>,
    /// The condition Ready.
    pub ready: Option<PodCondition>,
    /// The condition PodScheduled. If scheduling gates hold the pod, its message names them.
    pub scheduled: Option<PodCondition>,
    /// True if its sandbox was created, which is after its volumes were mounted. Not every kubelet says so.
    pub has_sandbox: bool,
    /// Its readiness gates that are not open.
    pub closed_gates: Vec<ClosedGate>,
}

impl ObservedPod {
    /// What it was created for, by its annotations.
    #[must_use]
    pub fn made_for(&self) -> Option<MadeFor> {
        MadeFor::read(|key| self.meta.annotation(key))
    }

    /// The node that its label names.
    #[must_use]
    pub fn node(&self) -> Option<&str> {
        self.meta.label(LABEL_NODE)
    }

    /// The container with this name.
    #[must_use]
    pub fn container(&self, name: &str) -> Option<&ContainerState> {
        self.containers.iter().find(|c| c.name == name)
    }

    /// True if it has run to its end. Its containers never run again.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        matches!(self.phase.as_str(), "Failed" | "Succeeded")
    }

    /// True if a container with this name runs. A kubelet may report no containers, or no state of one; then the phase
    /// counts.
    #[must_use]
    pub fn runs(&self, container: &str) -> bool {
        let told = |c: &&ContainerState| c.running || c.ended || c.waiting.is_some();
        match self.container(container).filter(told) {
            _ if self.has_ended() => false,
            Some(container) => container.running,
            None => self.phase == "Running" || self.is_ready(),
        }
    }

    /// True if its condition Ready is `True`.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.ready.as_ref().is_some_and(|c| c.holds)
    }
}

/// The parts of a pod that are read. Environment variables and volumes, which are most of it, are not.
pub(super) const POD: Parts = Parts::Only(&[
    (
        "metadata",
        Parts::Only(&[("deletionTimestamp", Parts::All), ("deletionGracePeriodSeconds", Parts::All)]),
    ),
    (
        "spec",
        Parts::Only(&[
            ("containers", SPEC_OF_CONTAINER),
            ("initContainers", SPEC_OF_CONTAINER),
            ("readinessGates", Parts::All),
            ("schedulingGates", Parts::All),
        ]),
    ),
    (
        "status",
        Parts::Only(&[
            ("phase", Parts::All),
            ("reason", Parts::All),
            ("message", Parts::All),
            ("podIP", Parts::All),
            ("conditions", Parts::All),
            ("initContainerStatuses", CONTAINER),
            ("containerStatuses", CONTAINER),
        ]),
    ),
]);

const SPEC_OF_CONTAINER: Parts = Parts::Only(&[
    ("name", Parts::All),
    ("image", Parts::All),
    ("startupProbe", PROBE),
    ("readinessProbe", PROBE),
]);

const PROBE: Parts = Parts::Only(&[
    ("initialDelaySeconds", Parts::All),
    ("periodSeconds", Parts::All),
    ("failureThreshold", Parts::All),
]);

const CONTAINER: Parts = Parts::Only(&[
    ("name", Parts::All),
    ("state", Parts::All),
    ("lastState", Parts::All),
    ("ready", Parts::All),
    ("started", Parts::All),
    ("restartCount", Parts::All),
]);

pub(super) fn read_pod(object: &Value, meta: Meta) -> ObservedPod {
    let status = &object["status"];
    let states = |field: &str, init: bool| {
        list(&status[field]).iter().map(move |c| container_state(c, init)).collect::<Vec<_>>()
    };
    let mut containers = states("initContainerStatuses", true);
    containers.extend(states("containerStatuses", false));
    let own = Some((text(&status["reason"]), text(&status["message"]))).filter(|own| !own.0.is_empty());
    let disruption = || condition(status, "DisruptionTarget").filter(|c| c.holds);
    let why = own.or_else(|| disruption().map(|c| (c.reason, c.message)));
    let (reason, message) = why.unwrap_or_default();
    ObservedPod {
        revision: meta.label("controller-revision-hash").unwrap_or_default().to_owned(),
        images: images(&object["spec"]),
        has_sidecar: [&object["spec"]["initContainers"], &status["initContainerStatuses"]]
            .iter()
            .any(|containers| list(containers).iter().any(|c| c["name"] == SIDECAR_CONTAINER)),
        start_times: start_times(&object["spec"]),
        deletion: deletion(&object["metadata"]),
        phase: text(&status["phase"]),
        reason,
        message,
        ip: text(&status["podIP"]),
        containers,
        ready: condition(status, "Ready"),
        scheduled: condition(status, "PodScheduled").map(|c| with_gates(c, &object["spec"])),
        has_sandbox: condition(status, "PodReadyToStartContainers").is_some_and(|c| c.holds),
        closed_gates: closed_gates(object),
        meta,
    }
}

/// The condition PodScheduled, with the names of the scheduling gates that hold the pod.
fn with_gates(mut scheduled: PodCondition, spec: &Value) -> PodCondition {
    let gates: Vec<String> = list(&spec["schedulingGates"]).iter().map(|gate| text(&gate["name"])).collect();
    if !scheduled.holds && !gates.is_empty() {
        let names = format!("scheduling gates: {}", gates.join(", "));
        scheduled.message =
            if scheduled.message.is_empty() { names } else { format!("{}: {names}", scheduled.message) };
    }
    scheduled
}

fn closed_gates(pod: &Value) -> Vec<ClosedGate> {
    let gates = list(&pod["spec"]["readinessGates"]).iter().map(|gate| text(&gate["conditionType"]));
    let gates = gates.map(|name| ClosedGate { condition: condition(&pod["status"], &name), name });
    gates.filter(|gate| !gate.condition.as_ref().is_some_and(|c| c.holds)).collect()
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

fn container_state(status: &Value, init: bool) -> ContainerState {
    let waiting = &status["state"]["waiting"];
    let waiting = (text(&waiting["reason"]), text(&waiting["message"]));
    let ready = status["ready"].as_bool().unwrap_or_default();
    let ends = ["state", "lastState"].map(|state| &status[state]["terminated"]);
    let end = ends.into_iter().find(|end| end.is_object() && !ready);
    ContainerState {
        name: text(&status["name"]),
        init,
        running: status["state"]["running"].is_object(),
        running_since: time(&status["state"]["running"]["startedAt"]),
        ended: status["state"]["terminated"].is_object(),
        ready,
        started: status["started"].as_bool().unwrap_or_default(),
        waiting: Some(waiting).filter(|(reason, _)| !reason.is_empty()),
        termination: end.map(|end| Box::new(termination(end))),
        restarts: status["restartCount"].as_i64().unwrap_or_default(),
    }
}

fn termination(end: &Value) -> Termination {
    Termination {
        reason: text(&end["reason"]),
        exit_code: end["exitCode"].as_i64().unwrap_or_default(),
        signal: end["signal"].as_i64().unwrap_or_default(),
        message: text(&end["message"]),
    }
}

fn condition(status: &Value, type_: &str) -> Option<PodCondition> {
    let found = list(&status["conditions"]).iter().find(|c| c["type"] == type_)?;
    Some(PodCondition {
        holds: found["status"] == "True",
        reason: text(&found["reason"]),
        message: text(&found["message"]),
        since: time(&found["lastTransitionTime"]),
    })
}

fn deletion(metadata: &Value) -> Option<Deletion> {
    let due_at = time(&metadata["deletionTimestamp"])?;
    let grace = metadata["deletionGracePeriodSeconds"].as_i64().unwrap_or_default();
    let requested_at = due_at.checked_sub_signed(TimeDelta::try_seconds(grace)?).unwrap_or(due_at);
    Some(Deletion { requested_at, due_at })
}

/// By default a probe runs every 10 s and may fail three times in a row.
fn start_times(pod_spec: &Value) -> Shared<Vec<StartTime>> {
    let lists = ["initContainers", "containers"].into_iter().filter_map(|list| pod_spec[list].as_array());
    let of = |container: &Value| {
        let (startup, readiness) = (&container["startupProbe"], &container["readinessProbe"]);
        let number = |value: &Value, default: i64| value.as_i64().unwrap_or(default);
        let delay = |probe: &Value| number(&probe["initialDelaySeconds"], 0);
        let tries = number(&startup["periodSeconds"], 10)
            .saturating_mul(number(&startup["failureThreshold"], 3))
            .saturating_add(delay(startup));
        let startup_seconds = if startup.is_object() { tries } else { 0 };
        let container = text(&container["name"]);
        StartTime { container, startup_seconds, delay_seconds: delay(readiness) }
    };
    let all = lists.flatten().map(of).filter(|time| time.startup_seconds > 0 || time.delay_seconds > 0);
    all.collect::<Vec<_>>().into()
}

pub(super) fn images(pod_spec: &Value) -> Shared<Vec<(String, String)>> {
    list(&pod_spec["containers"])
        .iter()
        .map(|c| (text(&c["name"]), text(&c["image"])))
        .collect::<Vec<_>>()
        .into()
}
