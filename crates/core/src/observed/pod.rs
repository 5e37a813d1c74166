//! The parts of a pod that are read.

use chrono::{DateTime, TimeDelta, Utc};
use serde::Deserialize;

use super::meta::Meta;
use crate::api::interned::pooled;
use crate::api::names::{LABEL_NODE, SIDECAR_CONTAINER};
use crate::api::{BuiltFor, Shared};

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
    /// Why it waits: reason and message. A state without a reason is ignored.
    pub waiting: Option<(String, String)>,
    /// How it ended, now or before its last restart; `None` for a container that is ready.
    pub termination: Option<Box<Termination>>,
    /// How often it was restarted.
    pub restarts: i64,
}

/// How a container ended.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq)]
#[serde(rename_all = "camelCase", default)]
pub struct Termination {
    /// The kubelet's reason: `OOMKilled`, `Error`, `Completed`.
    pub reason: String,
    /// Its exit code.
    pub exit_code: i64,
    /// The signal that ended it; 0 if none is known.
    pub signal: i64,
    /// Its termination message.
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

pooled!(Vec<StartTime>, Vec<String>);

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
    /// The machine that it is bound to: `spec.nodeName`; empty if it is not scheduled.
    pub machine: String,
    /// The keys of the taints that keep no pod off its machine; an empty key stands for all.
    pub tolerations: Shared<Vec<String>>,
    /// The states of its containers, init containers first.
    pub containers: Vec<ContainerState>,
    /// The condition Ready.
    pub ready: Option<PodCondition>,
    /// The condition PodScheduled. If scheduling gates hold the pod, its message names them.
    pub scheduled: Option<PodCondition>,
    /// True if its sandbox was created, which is after its volumes were mounted. Not every kubelet reports it.
    pub has_sandbox: bool,
    /// Its readiness gates that are not open.
    pub closed_gates: Vec<ClosedGate>,
}

impl ObservedPod {
    /// What it was created for, by its annotations.
    #[must_use]
    pub fn made_for(&self) -> Option<BuiltFor> {
        BuiltFor::read(|key| self.meta.annotation(key))
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

    /// True if a taint with this key would not keep it off a machine.
    #[must_use]
    pub fn tolerates(&self, taint: &str) -> bool {
        self.tolerations.iter().any(|key| key.is_empty() || key == taint)
    }

    /// True if its condition Ready is `True`.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.ready.as_ref().is_some_and(|c| c.holds)
    }
}

/// A pod, as the API server sends it. Environment variables and volumes, which are most of it, are not read.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct PodJson {
    metadata: DeletionJson,
    spec: PodSpecJson,
    status: PodStatusJson,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct DeletionJson {
    deletion_timestamp: Option<DateTime<Utc>>,
    deletion_grace_period_seconds: Option<i64>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct PodSpecJson {
    node_name: String,
    tolerations: Vec<TolerationJson>,
    containers: Vec<ContainerJson>,
    init_containers: Vec<ContainerJson>,
    readiness_gates: Vec<ReadinessGateJson>,
    scheduling_gates: Vec<SchedulingGateJson>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct TolerationJson {
    key: String,
    effect: String,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ContainerJson {
    name: String,
    image: String,
    startup_probe: Option<ProbeJson>,
    readiness_probe: Option<ProbeJson>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ProbeJson {
    initial_delay_seconds: i64,
    period_seconds: i64,
    failure_threshold: i64,
}

impl Default for ProbeJson {
    fn default() -> Self {
        Self { initial_delay_seconds: 0, period_seconds: 10, failure_threshold: 3 }
    }
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ReadinessGateJson {
    condition_type: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct SchedulingGateJson {
    name: String,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct PodStatusJson {
    phase: String,
    reason: String,
    message: String,
    #[serde(rename = "podIP")]
    pod_ip: String,
    conditions: Vec<ConditionJson>,
    init_container_statuses: Vec<ContainerStatusJson>,
    container_statuses: Vec<ContainerStatusJson>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ConditionJson {
    #[serde(rename = "type")]
    type_: String,
    status: String,
    reason: String,
    message: String,
    last_transition_time: Option<DateTime<Utc>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ContainerStatusJson {
    name: String,
    state: StateJson,
    last_state: StateJson,
    ready: bool,
    started: Option<bool>,
    restart_count: i64,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct StateJson {
    waiting: Option<WaitingJson>,
    running: Option<RunningJson>,
    terminated: Option<Box<Termination>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct WaitingJson {
    reason: String,
    message: String,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct RunningJson {
    started_at: Option<DateTime<Utc>>,
}

impl PodStatusJson {
    fn condition(&self, type_: &str) -> Option<PodCondition> {
        let found = self.conditions.iter().find(|c| c.type_ == type_)?;
        Some(PodCondition {
            holds: found.status == "True",
            reason: found.reason.clone(),
            message: found.message.clone(),
            since: found.last_transition_time,
        })
    }
}

pub(super) fn read_pod(pod: PodJson, meta: Meta) -> ObservedPod {
    let PodJson { metadata, spec, status } = pod;
    let ready = status.condition("Ready");
    let scheduled = status.condition("PodScheduled").map(|c| with_gates(c, &spec));
    let has_sandbox = status.condition("PodReadyToStartContainers").is_some_and(|c| c.holds);
    let disruption = status.condition("DisruptionTarget").filter(|c| c.holds && status.reason.is_empty());
    let (reason, message) = match disruption {
        Some(disruption) => (disruption.reason, disruption.message),
        None if status.reason.is_empty() => Default::default(),
        None => (status.reason.clone(), status.message.clone()),
    };
    ObservedPod {
        revision: meta.label("controller-revision-hash").unwrap_or_default().to_owned(),
        images: images(&spec),
        has_sidecar: spec.init_containers.iter().any(|c| c.name == SIDECAR_CONTAINER)
            || status.init_container_statuses.iter().any(|c| c.name == SIDECAR_CONTAINER),
        start_times: start_times(&spec),
        deletion: deletion(&metadata),
        closed_gates: closed_gates(&spec, &status),
        phase: status.phase,
        reason,
        message,
        ip: status.pod_ip,
        machine: spec.node_name,
        tolerations: {
            let schedules =
                |toleration: &TolerationJson| matches!(toleration.effect.as_str(), "" | "NoSchedule");
            let keys = spec.tolerations.into_iter().filter(schedules).map(|toleration| toleration.key);
            keys.collect::<Vec<_>>().into()
        },
        containers: {
            let init = status.init_container_statuses.into_iter().map(|c| container_state(c, true));
            init.chain(status.container_statuses.into_iter().map(|c| container_state(c, false))).collect()
        },
        ready,
        scheduled,
        has_sandbox,
        meta,
    }
}

/// The condition PodScheduled, with the names of the scheduling gates that hold the pod.
fn with_gates(mut scheduled: PodCondition, spec: &PodSpecJson) -> PodCondition {
    let gates: Vec<&str> = spec.scheduling_gates.iter().map(|gate| gate.name.as_str()).collect();
    if !scheduled.holds && !gates.is_empty() {
        let names = format!("scheduling gates: {}", gates.join(", "));
        scheduled.message =
            if scheduled.message.is_empty() { names } else { format!("{}: {names}", scheduled.message) };
    }
    scheduled
}

fn closed_gates(spec: &PodSpecJson, status: &PodStatusJson) -> Vec<ClosedGate> {
    let gates = spec.readiness_gates.iter().map(|gate| ClosedGate {
        condition: status.condition(&gate.condition_type),
        name: gate.condition_type.clone(),
    });
    gates.filter(|gate| !gate.condition.as_ref().is_some_and(|c| c.holds)).collect()
}

fn container_state(status: ContainerStatusJson, init: bool) -> ContainerState {
    let StateJson { waiting, running, terminated } = status.state;
    ContainerState {
        name: status.name,
        init,
        running: running.is_some(),
        running_since: running.and_then(|running| running.started_at),
        ended: terminated.is_some(),
        ready: status.ready,
        started: status.started.unwrap_or_default(),
        waiting: waiting.map(|w| (w.reason, w.message)).filter(|(reason, _)| !reason.is_empty()),
        termination: terminated.or(status.last_state.terminated).filter(|_| !status.ready),
        restarts: status.restart_count,
    }
}

fn deletion(metadata: &DeletionJson) -> Option<Deletion> {
    let due_at = metadata.deletion_timestamp?;
    let grace = metadata.deletion_grace_period_seconds.unwrap_or_default();
    let requested_at = due_at.checked_sub_signed(TimeDelta::try_seconds(grace)?).unwrap_or(due_at);
    Some(Deletion { requested_at, due_at })
}

/// By default a probe runs every 10 s and may fail three times in a row.
fn start_times(spec: &PodSpecJson) -> Shared<Vec<StartTime>> {
    let of = |container: &ContainerJson| {
        let tries = |probe: &ProbeJson| {
            let tries = probe.period_seconds.saturating_mul(probe.failure_threshold);
            tries.saturating_add(probe.initial_delay_seconds)
        };
        StartTime {
            container: container.name.clone(),
            startup_seconds: container.startup_probe.as_ref().map_or(0, tries),
            delay_seconds: container.readiness_probe.as_ref().map_or(0, |probe| probe.initial_delay_seconds),
        }
    };
    let all = spec.init_containers.iter().chain(&spec.containers).map(of);
    all.filter(|time| time.startup_seconds > 0 || time.delay_seconds > 0).collect::<Vec<_>>().into()
}

pub(super) fn images(spec: &PodSpecJson) -> Shared<Vec<(String, String)>> {
    spec.containers.iter().map(|c| (c.name.clone(), c.image.clone())).collect::<Vec<_>>().into()
}
