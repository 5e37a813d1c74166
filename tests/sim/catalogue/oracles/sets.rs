//! What must hold of sets after every change: one is active, a serving set is complete when it starts to serve and
//! stays so, and nothing irreversible happens before it is persisted.

use std::collections::BTreeSet;

use serde_json::Value;
use windlass::api::names::place_of;
use windlass_sim::Step;

use super::state::{self, FleetState, RolloutState, Stored};

/// The sets so far.
#[derive(Default)]
pub struct Sets {
    /// Sets that once served.
    served: BTreeSet<String>,
    /// True while the fleet's Service is as a person changed or deleted it.
    turned: bool,
    namespace_goes: bool,
}

/// The context of a change.
pub struct Around<'a> {
    pub stored: &'a Stored,
    /// `spec.replicas` when an operator last wrote that it had observed the spec; `None`: never.
    pub read_replicas: Option<i64>,
    /// True if a node was touched by a person, or is new, and has not served since.
    pub disturbed: &'a dyn Fn(&str) -> bool,
    pub by_operator: bool,
    pub by_person: bool,
    /// True if a node is ill.
    pub ill: bool,
    /// True if a restart was requested meanwhile: it rolls the active set.
    pub restarts: bool,
}

/// The set in a node's name.
pub fn set_of(node: &str) -> String {
    place_of("db", node).map(|(set, _)| set.into()).unwrap_or_default()
}

fn is_wanted(node: &str, fleet: &FleetState) -> bool {
    is_below(node, fleet.replicas)
}

fn is_below(node: &str, replicas: i64) -> bool {
    place_of("db", node).is_some_and(|(_, ordinal)| i64::from(ordinal) < replicas)
}

fn is_before_promotion(rollout: &RolloutState) -> bool {
    matches!(rollout.stage.as_str(), "CreatingEntrants" | "AwaitingEntrants" | "AwaitingPromotion")
}

/// Traffic moves to nodes that run the target; under BlueGreen, to nodes that are Ready.
fn is_whole(rollout: &RolloutState, fleet: &FleetState, around: &Around<'_>) -> Option<String> {
    let ready = fleet.plan.recipe == "BlueGreen" && !around.ill;
    for ordinal in 0..fleet.replicas {
        let name = windlass::api::names::node_name("db", &rollout.entrant.as_str().into(), ordinal as i32);
        if (around.disturbed)(&name) {
            continue;
        }
        let node = around.stored.nodes.get(&name);
        let pod = around.stored.pods.get(&format!("{name}-0"));
        let runs = node.is_some_and(|node| !node.granted.is_empty() && node.running == node.granted);
        let serves = pod.is_some_and(|pod| pod.ready && !pod.leaving);
        if !runs || ready && !serves {
            return Some(format!("oracle 4: traffic moves to {name}, which is {node:?} {pod:?}"));
        }
    }
    None
}

fn is_not_to_be_touched(name: &str, fleet: &FleetState, around: &Around<'_>) -> bool {
    let rollout = fleet.rollout.as_ref();
    let waits = rollout.is_some_and(|r| is_before_promotion(r) && r.incumbent == set_of(name));
    waits && !around.restarts && !(around.disturbed)(name)
}

impl Sets {
    /// Records a change without a check.
    pub fn take_in(&mut self, stored: &Stored) {
        self.served.extend(stored.fleet.iter().map(|fleet| fleet.active_set.clone()));
    }

    /// Checks a change of the fleet.
    pub fn fleet(&mut self, step: Step<'_>, around: &Around<'_>) -> Option<String> {
        let (before, now) = (around.stored.fleet.as_ref()?, state::fleet(step.after?));
        if !around.by_operator {
            return None;
        }
        let moved = before.active_set != now.active_set && !before.active_set.is_empty();
        let entering = before.rollout.as_ref().filter(|rollout| rollout.stage != "Retiring");
        let switches = entering.is_some_and(|rollout| {
            rollout.stage == "Promoting"
                && now.active_set == rollout.entrant
                && now.completed == rollout.target
        });
        // A rollout that creates a set began after a completion: its record was lost, and is read again.
        let was_lost = entering.is_some() && before.completed.is_empty();
        if moved && !switches && !was_lost {
            return Some(format!("oracle 4: the active set changes without a promotion: {before:?} {now:?}"));
        }
        // A lost field that is read again from what exists did not complete now.
        let is_lost = now.completed.is_empty();
        if entering.is_some() && before.completed != now.completed && !moved && !was_lost && !is_lost {
            return Some(format!("oracle 4: a rollout completes without its switch: {before:?} {now:?}"));
        }
        self.one_set(&now, around.stored.selected.as_deref())
    }

    /// The Service selects the active set or, during the promotion, the entrant set.
    fn one_set(&self, fleet: &FleetState, selected: Option<&str>) -> Option<String> {
        let selected = selected.filter(|set| !self.turned && !set.is_empty())?;
        let enters = |r: &RolloutState| r.stage == "Promoting" && r.entrant == selected;
        let fits = fleet.active_set == selected
            || fleet.active_set.is_empty()
            || fleet.rollout.as_ref().is_some_and(enters);
        (!fits).then(|| format!("oracle 4: the Service selects {selected}, and the status says {fleet:?}"))
    }

    /// Checks a change of the fleet's Service.
    pub fn service(&mut self, step: Step<'_>, around: &Around<'_>) -> Option<String> {
        if around.by_person || step.after.is_none() {
            self.turned = true;
            return None;
        }
        let fleet = around.stored.fleet.as_ref().filter(|_| around.by_operator)?;
        let selected = state::selected(step.after?);
        let before = step.before.map(state::selected);
        if std::mem::take(&mut self.turned) || before.as_deref() == Some(&selected) {
            return self.one_set(fleet, Some(&selected));
        }
        let enters = |r: &&RolloutState| r.stage == "Promoting" && r.entrant == selected;
        let entering = fleet.rollout.as_ref().filter(enters);
        if let (Some(_), Some(rollout)) = (before, entering) {
            return is_whole(rollout, fleet, around);
        }
        self.one_set(fleet, Some(&selected))
    }

    /// Checks a change of a node.
    pub fn node(name: &str, step: Step<'_>, leaves: bool, around: &Around<'_>) -> Option<String> {
        let fleet = around.stored.fleet.as_ref().filter(|f| around.by_operator && !f.leaving)?;
        let set = set_of(name);
        let rollout = fleet.rollout.as_ref();
        let promoting = rollout.filter(|r| r.stage == "Promoting");
        if leaves && is_wanted(name, fleet) && around.read_replicas.is_none_or(|read| is_below(name, read)) {
            let goes_first =
                fleet.plan.recipe == "BlueGreenImmediate" && promoting.is_some_and(|r| r.incumbent == set);
            if set == fleet.active_set && !goes_first {
                return Some(format!("oracle 4: {name} is removed, of the set that serves: {fleet:?}"));
            }
            if promoting.is_some_and(|r| r.entrant == set) {
                return Some(format!("oracle 4: {name} is removed, of the set that is promoted: {fleet:?}"));
            }
        }
        let (before, after) = (step.before?, step.after?);
        let height = |object: &Value| object["spec"]["haltHeight"].as_i64().unwrap_or_default();
        if height(after) != height(before)
            && height(after) > 0
            && promoting.is_none_or(|r| r.halt_height != height(after))
        {
            return Some(format!("oracle 4: {name} is to halt, and that is not persisted: {fleet:?}"));
        }
        let held = |object: &Value| {
            ["image", "podTemplate", "grantedHash", "grantID"].map(|field| object["spec"][field].clone())
        };
        (held(before) != held(after) && is_not_to_be_touched(name, fleet, around))
            .then(|| format!("oracle 4: {name} is changed before any promotion: {fleet:?}"))
    }

    /// Checks a deleted pod, or a write of a StatefulSet's template.
    pub fn effect(name: &str, around: &Around<'_>) -> Option<String> {
        let fleet = around.stored.fleet.as_ref().filter(|_| around.by_operator)?;
        let pod = around.stored.pods.get(&format!("{name}-0"));
        let was_ready = pod.is_some_and(|pod| pod.ready);
        // An existing grant is continued; whether it may be given is checked elsewhere.
        let granted = around.stored.nodes.get(name).is_some_and(|node| node.grant_id != node.spent_id);
        let moves = around.stored.nodes.get(name).map(|node| node.moves.as_str()).unwrap_or_default();
        let is_moved = pod.is_some_and(|pod| pod.uid == moves);
        (was_ready && !granted && !is_moved && is_not_to_be_touched(name, fleet, around))
            .then(|| format!("oracle 4: {name} is taken down before any promotion: {fleet:?}"))
    }

    /// Records that everything is deleted.
    pub fn namespace_goes(&mut self) -> Option<String> {
        self.namespace_goes = true;
        None
    }

    /// Checks the deletion of a claim, by whomever.
    pub fn claim(&self, claim: &str, around: &Around<'_>) -> Option<String> {
        if around.by_person || self.namespace_goes {
            return None;
        }
        let node = claim.strip_prefix("data-").and_then(|pod| pod.strip_suffix("-0")).unwrap_or(claim);
        let Some(fleet) = around.stored.fleet.as_ref().filter(|fleet| !fleet.leaving) else {
            return around.by_operator.then(|| format!("oracle 4: Windlass deletes the claim {claim}"));
        };
        let set = set_of(node);
        let has_served = self.served.contains(&set) && set != fleet.active_set;
        let may_go = fleet.claims_go
            && !around.by_operator
            && (has_served || !is_wanted(node, fleet) || (around.disturbed)(node));
        (!may_go).then(|| format!("oracle 4: the claim {claim} is deleted: {fleet:?}"))
    }
}
