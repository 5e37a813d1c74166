//! Determines the active set if the status does not name it or names a wrong one, and the sets that must not be removed
//! because they may be active.

use std::collections::{BTreeMap, BTreeSet};

use super::super::facts::FleetFacts;
use super::rollout::SetRollout;
use crate::api::{RetiringSet, SetName, Stage};

/// What is seen of a set's nodes.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Seen {
    /// How many there are.
    pub nodes: usize,
    /// How many of them are Ready.
    pub ready: usize,
}

/// Everything that says which set serves.
#[derive(Clone, Debug, Default)]
pub struct ActiveSetEvidence {
    /// The set that the status names, if it names one.
    pub recorded: Option<SetName>,
    /// Sets that the status knows not to serve.
    pub known: BTreeSet<SetName>,
    /// The set that the fleet's own Service selects, if it has one.
    pub selected: Option<SetName>,
    /// The sets that have nodes.
    pub sets: BTreeMap<SetName, Seen>,
    /// What a rollout under way says of its two sets.
    pub rollout: Option<RolloutSets>,
    /// Whether the spec asks for no nodes.
    pub none_wanted: bool,
}

/// The two sets of a rollout.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct RolloutSets {
    /// The one that serves, by its stage.
    pub serves: SetName,
    /// The one that does not, or not yet.
    pub other: SetName,
    /// Whether it says that traffic has moved.
    pub moved: bool,
}

impl RolloutSets {
    /// What the rollout that a status tells of says, if it names both.
    #[must_use]
    pub fn of(rollout: &SetRollout) -> Option<Self> {
        let moved = rollout.stage == Stage::Retiring;
        let (incumbent, entrant) = (rollout.incumbent.clone()?, rollout.entrant.clone());
        let (serves, other) = if moved { (entrant, incumbent) } else { (incumbent, entrant) };
        Some(Self { serves, other, moved })
    }
}

/// The active set by the status. If the status contradicts itself, its rollout outranks a recorded set that has no nodes,
/// and the Service's selector outranks a rollout that claims that traffic has moved.
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

/// The set that serves. An error is a sentence: nothing tells which, and a person has to.
pub fn serving(deployment: &str, told: &ActiveSetEvidence) -> Result<SetName, String> {
    let recorded = on_record(told);
    let known = |set: &SetName| {
        told.known.contains(set) || told.rollout.as_ref().is_some_and(|pair| pair.other == *set)
    };
    let unknown: Vec<(&SetName, &Seen)> =
        told.sets.iter().filter(|(set, _)| Some(*set) != recorded && !known(set)).collect();
    // A status that names a set without nodes, while others have some that it knows nothing of, is not of now. Where no
    // node is wanted it has none, and one of a set that was given up may come late.
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
    // Which of them is Ready says nothing: the one that serves may be down for a moment.
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
    /// Why a set that left service is not removed although its time has come, in a sentence, if so.
    #[must_use]
    pub fn kept(&self, set: &RetiringSet) -> Option<String> {
        if self.selected.as_ref().is_some_and(|selected| *selected == *set.set) {
            let name = &set.set;
            return Some(format!("set {name} is not removed as long as the fleet's Service selects it"));
        }
        self.unproven(set)
    }

    /// Whether nobody knows what a set that does not serve was for, and nothing proves that it is not needed: no Service
    /// selects another. Its nodes may be down for a moment only. A person has to decide, by the sentence.
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
