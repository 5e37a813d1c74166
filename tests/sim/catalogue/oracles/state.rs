//! The few fields that safety depends on, read from each object as it changes.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::end::condition;

/// A plan in a status.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct PlanState {
    pub id: String,
    pub recipe: String,
    pub target: String,
    pub state: String,
    /// The first task that is not over.
    pub current: usize,
    /// The removal ID of a plan whose current task only waits for the removal.
    pub leaves_for: String,
}

impl PlanState {
    pub fn is_rolling(&self) -> bool {
        self.state == "Active" && self.recipe != "MarkReady" && self.recipe != "RemoveNode"
    }

    /// True if hooks are to be done before the node is removed.
    pub fn has_hooks_before_removal(&self) -> bool {
        self.state == "Active" && self.recipe == "RemoveNode" && self.leaves_for.is_empty()
    }
}

#[derive(Clone, Debug, Default)]
pub struct FleetState {
    pub replicas: i64,
    pub max_unavailable: i64,
    pub paused: bool,
    pub completed: String,
    /// The active set.
    pub active_set: String,
    pub outcome: String,
    pub plan: PlanState,
    /// The rollout of a set, if any.
    pub rollout: Option<RolloutState>,
    pub claims_go: bool,
    pub leaving: bool,
    /// True if the status was written by an operator that had observed this spec.
    pub observed: bool,
}

/// The rollout of a set, in the status.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct RolloutState {
    pub stage: String,
    pub target: String,
    pub entrant: String,
    pub incumbent: String,
    pub halt_height: i64,
}

#[derive(Clone, Debug, Default)]
pub struct NodeState {
    pub behind: bool,
    pub granted: String,
    pub grant_id: String,
    /// The ID of the last spent grant.
    pub spent_id: String,
    pub running: String,
    pub ready: bool,
    pub ever_ready: bool,
    pub failed: bool,
    pub plan: PlanState,
    /// `removalID`; empty without one.
    pub removal_id: String,
    /// The UID of the pod that it is to move to another machine.
    pub moves: String,
    /// What its spec asks for.
    pub template: Value,
}

impl NodeState {
    pub fn is_in_flight(&self) -> bool {
        self.behind || self.granted != self.running || self.plan.is_rolling()
    }
}

#[derive(Clone, Debug, Default)]
pub struct SetState {
    pub observed: bool,
    pub update_revision: String,
    pub stamp: String,
}

#[derive(Clone, Debug, Default)]
pub struct PodState {
    pub ready: bool,
    /// Its main container runs and is in no crash loop.
    pub runs: bool,
    pub leaving: bool,
    pub revision: String,
    pub uid: String,
}

/// The stored objects, as far as safety depends on them.
#[derive(Debug, Default)]
pub struct Stored {
    pub fleet: Option<FleetState>,
    pub nodes: BTreeMap<String, NodeState>,
    pub sets: BTreeMap<String, SetState>,
    pub pods: BTreeMap<String, PodState>,
    /// The set that the fleet's Service selects; `None`: there is no such Service.
    pub selected: Option<String>,
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

pub fn plan(value: &Value) -> PlanState {
    let tasks = value["tasks"].as_array().map(Vec::as_slice).unwrap_or_default();
    let over = |task: &Value| matches!(task["state"].as_str(), Some("Complete" | "Skipped" | "Failed"));
    let current = tasks.iter().position(|t| !over(t)).unwrap_or(tasks.len());
    let waits =
        value["state"] == "Active" && tasks.get(current).is_some_and(|t| t["type"] == "await-removal");
    PlanState {
        leaves_for: if waits { text(&tasks[current]["params"]["removalID"]) } else { String::new() },
        id: text(&value["id"]),
        recipe: text(&value["recipe"]),
        target: text(&value["targetHash"]),
        state: text(&value["state"]),
        current,
    }
}

pub fn fleet(object: &Value) -> FleetState {
    let (spec, status) = (&object["spec"], &object["status"]);
    FleetState {
        replicas: spec["replicas"].as_i64().unwrap_or(1),
        max_unavailable: max_unavailable(spec),
        paused: spec["paused"] == true,
        completed: text(&status["lastCompletedRolloutHash"]),
        active_set: text(&status["activeSet"]),
        outcome: text(&status["rejected"]["outcome"]),
        plan: plan(&status["plan"]),
        rollout: rollout(&status["rollout"]),
        claims_go: spec["template"]["spec"]["volumeClaimRetention"] == "Delete",
        leaving: object["metadata"]["deletionTimestamp"].is_string(),
        observed: status["observedGeneration"] == object["metadata"]["generation"],
    }
}

/// A number, or a percentage of the replicas, rounded down but at least one.
fn max_unavailable(spec: &Value) -> i64 {
    let value = &spec["updateStrategy"]["inPlace"]["maxUnavailable"];
    let percent = value.as_str().and_then(|text| text.strip_suffix('%')?.parse::<i64>().ok());
    let of_all = percent.map(|percent| (spec["replicas"].as_i64().unwrap_or(1) * percent / 100).max(1));
    of_all.or(value.as_i64()).unwrap_or(1)
}

fn rollout(value: &Value) -> Option<RolloutState> {
    let entrant = text(&value["entrantSet"]);
    (!entrant.is_empty()).then(|| RolloutState {
        stage: text(&value["stage"]),
        target: text(&value["targetHash"]),
        entrant,
        incumbent: text(&value["incumbentSet"]),
        halt_height: value["haltHeight"].as_i64().unwrap_or_default(),
    })
}

/// The set that a Service selects.
pub fn selected(object: &Value) -> String {
    text(&object["spec"]["selector"]["windlass.dev/set"])
}

pub fn node(object: &Value) -> NodeState {
    let (spec, status) = (&object["spec"], &object["status"]);
    NodeState {
        behind: status["observedGeneration"] != object["metadata"]["generation"],
        granted: text(&spec["grantedHash"]),
        grant_id: text(&spec["grantID"]),
        spent_id: text(&status["spentGrantID"]),
        running: text(&status["podTemplateHash"]),
        ready: condition(object, "Ready").0 == "True",
        ever_ready: status["firstReadyAt"].is_string(),
        failed: status["phase"] == "Failed",
        plan: plan(&status["plan"]),
        removal_id: text(&spec["removalID"]),
        moves: text(&spec["move"]["podUID"]),
        template: main_template(spec),
    }
}

/// The part of a node's spec that the scenarios and the faults change.
pub fn main_template(spec: &Value) -> Value {
    let container = &spec["podTemplate"]["spec"]["containers"][0];
    let image = if text(&spec["image"]).is_empty() { &container["image"] } else { &spec["image"] };
    json!([image, container["env"]])
}

pub fn set(object: &Value) -> SetState {
    let status = &object["status"];
    SetState {
        observed: status["observedGeneration"] == object["metadata"]["generation"],
        update_revision: text(&status["updateRevision"]),
        stamp: text(&object["metadata"]["annotations"]["windlass.dev/pod-template-hash"]),
    }
}

pub fn pod(object: &Value) -> PodState {
    let ready = condition(object, "Ready").0 == "True";
    let main = &object["status"]["containerStatuses"][0];
    let runs = main["state"]["running"].is_object() && main["restartCount"].as_i64().unwrap_or_default() == 0;
    PodState {
        ready,
        runs: ready || runs,
        leaving: object["metadata"]["deletionTimestamp"].is_string(),
        revision: text(&object["metadata"]["labels"]["controller-revision-hash"]),
        uid: text(&object["metadata"]["uid"]),
    }
}
