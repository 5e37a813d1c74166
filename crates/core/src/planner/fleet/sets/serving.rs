//! Determines the active set if the status does not name it or names a wrong one, and the sets that must not be removed
//! because they may be active.

use std::collections::{BTreeMap, BTreeSet};

use super::super::facts::FleetFacts;
use crate::api::{RetiringSet, SetName};

/// The nodes of a set, as observed.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Seen {
    /// The number of nodes.
    pub nodes: usize,
    /// The number of nodes that are Ready.
    pub ready: usize,
}

/// Everything that shows which set is active.
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
    /// The sets that are asked to halt although no rollout is recorded.
    pub halting: BTreeSet<SetName>,
    /// True if `spec.replicas` is 0.
    pub none_wanted: bool,
}

/// The active set. The error is a sentence: it is not known which set is active, or which set takes over from it, and a
/// user has to decide.
pub fn serving(deployment: &str, told: &ActiveSetEvidence) -> Result<SetName, String> {
    let recorded = told.recorded.as_ref();
    let others = |set: Option<&SetName>| -> Vec<(&SetName, &Seen)> {
        told.sets.iter().filter(|(other, _)| Some(*other) != set && !told.known.contains(*other)).collect()
    };
    let unknown = others(recorded);
    // A status that names a set without nodes, while a set that it does not know has some, is outdated. But if
    // `replicas` is 0, the active set has no nodes, and a node of an abandoned set may appear late.
    let fits = |set: &&SetName| told.sets.contains_key(*set) || unknown.is_empty() || told.none_wanted;
    let selected = || told.selected.as_ref().filter(|set| told.sets.contains_key(*set));
    let set = match (recorded.filter(fits), unknown.as_slice()) {
        (Some(recorded), _) => recorded.clone(),
        (None, [(only, _)]) => (*only).clone(),
        (None, _) if let Some(selected) = selected() => selected.clone(),
        (None, []) => SetName::FIRST,
        // It does not matter which of them is Ready: the active set may be unavailable for a moment.
        (None, unknown) => return Err(undecided(deployment, "is active", unknown)),
    };
    let others = others(Some(&set));
    if told.halting.contains(&set) && others.len() > 1 {
        return Err(undecided(deployment, "takes over from the halting nodes", &others));
    }
    Ok(set)
}

fn undecided(deployment: &str, what: &str, sets: &[(&SetName, &Seen)]) -> String {
    let of =
        |(set, seen): &(&SetName, &Seen)| format!("{set} ({} of {} nodes Ready)", seen.ready, seen.nodes);
    let sets = sets.iter().map(of).collect::<Vec<_>>().join(", ");
    format!(
        "status.activeSet: it is not known which of these sets of nodes {what}: {sets}; Windlass removes and \
         updates nothing until only one is left. For each set that you do not need, run: kubectl delete \
         statefulnodes -l windlass.dev/deployment={deployment},windlass.dev/set=SET -n NAMESPACE"
    )
}

impl FleetFacts {
    /// Why a set that left service is not removed although its time has come, in a sentence; `None` if it is removed.
    #[must_use]
    pub fn kept(&self, set: &RetiringSet) -> Option<String> {
        if self.service.selected.as_ref().is_some_and(|selected| *selected == *set.set) {
            let name = &set.set;
            return Some(format!("set {name} is not removed as long as the fleet's Service selects it"));
        }
        self.unproven(set)
    }

    /// A sentence, if a user has to decide about an inactive set: its purpose is not known, and it may be needed,
    /// because no Service selects the active set. Its nodes may be unavailable only for a moment.
    #[must_use]
    pub fn unproven(&self, set: &RetiringSet) -> Option<String> {
        if !set.is_stray() || self.service.selected == self.set {
            return None;
        }
        let (name, facts) = (&set.set, self.sets.get(set.set.as_str())?);
        let nodes = facts.children.iter().filter(|c| !c.terminating).count();
        (nodes > 0).then(|| {
            format!(
                "set {name} has {nodes} nodes that Windlass does not know, and set {} is active: delete the \
                 StatefulNodes with the label windlass.dev/set={name} if you do not need them",
                self.set
            )
        })
    }
}
