//! Determines the active set if the status does not name it or names a wrong one, and the sets that must not be removed
//! because they may be active.

use std::collections::{BTreeMap, BTreeSet};

use super::super::facts::FleetFacts;
use super::rollout::SetRollout;
use crate::api::{RetiringSet, SetName, Stage};

/// The nodes of a set, as observed.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Seen {
    /// The number of nodes.
    pub nodes: usize,
    /// The number of nodes that are Ready.
    pub ready: usize,
}

/// Everything that shows which set serves.
#[derive(Clone, Debug, Default)]
pub struct ActiveSetEvidence {
    /// The set that the status names, if it names one.
    pub recorded: Option<SetName>,
    /// The sets that do not serve, by the status.
    pub known: BTreeSet<SetName>,
    /// The set that the fleet's own Service selects, if it has one.
    pub selected: Option<SetName>,
    /// The sets that have nodes.
    pub sets: BTreeMap<SetName, Seen>,
    /// The two sets of the active rollout.
    pub rollout: Option<RolloutSets>,
    /// True if `spec.replicas` is 0.
    pub none_wanted: bool,
}

/// The two sets of a rollout.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct RolloutSets {
    /// The set that serves, by the rollout's stage.
    pub serves: SetName,
    /// The set that does not serve, or not yet.
    pub other: SetName,
    /// True if the stage says that traffic was switched.
    pub moved: bool,
}

impl RolloutSets {
    /// The two sets of a rollout, if both are recorded.
    #[must_use]
    pub fn of(rollout: &SetRollout) -> Option<Self> {
        let moved = rollout.stage == Stage::Retiring;
        let (incumbent, entrant) = (rollout.incumbent.clone()?, rollout.entrant.clone());
        let (serves, other) = if moved { (entrant, incumbent) } else { (incumbent, entrant) };
        Some(Self { serves, other, moved })
    }
}

/// The active set by the status. If the status contradicts itself, its rollout outranks a recorded set that has no
/// nodes, and the Service's selector outranks a rollout that claims that traffic was switched.
fn on_record(told: &ActiveSetEvidence) -> Option<&SetName> {
    let Some(pair) = &told.rollout else { return told.recorded.as_ref() };
    let Some(recorded) = &told.recorded else { return Some(&pair.serves) };
    if *recorded == pair.serves {
        return Some(recorded);
    }
    let selected = told.selected == *recorded;
    let is_believed = if *recorded == pair.other {
        pair.moved && selected
    } else {
        selected || !told.sets.contains_key(&pair.serves)
    };
    Some(if is_believed && told.sets.contains_key(recorded) { recorded } else { &pair.serves })
}

/// The set that serves. The error is a sentence: nothing shows which set it is, and a user has to decide.
pub fn serving(deployment: &str, told: &ActiveSetEvidence) -> Result<SetName, String> {
    let recorded = on_record(told);
    let known = |set: &SetName| {
        told.known.contains(set) || told.rollout.as_ref().is_some_and(|pair| pair.other == *set)
    };
    let unknown: Vec<(&SetName, &Seen)> =
        told.sets.iter().filter(|(set, _)| Some(*set) != recorded && !known(set)).collect();
    // A status that names a set without nodes, while a set that it does not know has some, is outdated. But if
    // `replicas` is 0, the active set has no nodes, and a node of an abandoned set may appear late.
    let fits = |set: &&SetName| told.sets.contains_key(*set) || unknown.is_empty() || told.none_wanted;
    if let Some(recorded) = recorded.filter(fits) {
        return Ok(recorded.clone());
    }
    if let [(only, _)] = unknown[..] {
        return Ok(only.clone());
    }
    if let Some(set) = told.selected.as_ref().filter(|set| told.sets.contains_key(*set)) {
        return Ok(set.clone());
    }
    // It does not matter which of them is Ready: the set that serves may be down for a moment.
    if unknown.is_empty() { Ok(SetName::FIRST) } else { Err(undecided(deployment, &unknown)) }
}

fn undecided(deployment: &str, sets: &[(&SetName, &Seen)]) -> String {
    let of =
        |(set, seen): &(&SetName, &Seen)| format!("{set} ({} of {} nodes Ready)", seen.ready, seen.nodes);
    let sets = sets.iter().map(of).collect::<Vec<_>>().join(", ");
    format!(
        "status.activeSet: nothing says which of these sets of nodes serves: {sets}; nothing is removed or rolled until \
         that is clear: delete the StatefulNodes of each set that is not wanted, by the labels \
         windlass.dev/deployment={deployment},windlass.dev/set=SET"
    )
}

impl FleetFacts {
    /// Why a set that left service is not removed although its time has come, in a sentence; `None` if it is removed.
    #[must_use]
    pub fn kept(&self, set: &RetiringSet) -> Option<String> {
        if self.selected.as_ref().is_some_and(|selected| *selected == *set.set) {
            let name = &set.set;
            return Some(format!("set {name} is not removed as long as the fleet's Service selects it"));
        }
        self.unproven(set)
    }

    /// A sentence, if a user has to decide about a set that does not serve: nobody knows what it was for, and nothing
    /// proves that it is not needed, since no Service selects the active set. Its nodes may be down only for a moment.
    #[must_use]
    pub fn unproven(&self, set: &RetiringSet) -> Option<String> {
        let nobody_knows = set.hash.is_empty() && !set.unpromoted;
        if !nobody_knows || self.selected == self.set {
            return None;
        }
        let (name, facts) = (&set.set, self.sets.get(set.set.as_str())?);
        let nodes = facts.children.iter().filter(|c| !c.terminating).count();
        (nodes > 0).then(|| {
            format!(
                "set {name} has {nodes} nodes and nothing says what they are for, while set {} serves: delete the \
                 StatefulNodes with the label windlass.dev/set={name} if they are not wanted",
                self.set
            )
        })
    }
}
