//! What the tasks of volume claims that grow share.

use std::time::Duration;

use crate::engine::Outcome;
use crate::engine::sentence::some_of;
use crate::planner::fleet::FleetFacts;
use crate::planner::growth::Growth;

/// How soon a claim is looked at again, if no event comes first.
pub(super) const LATER: Duration = Duration::from_secs(30);

/// Waits for the nodes of a fleet that are not as far yet. The nodes carry it out.
pub(super) fn of_fleet(facts: &FleetFacts, is_behind: impl Fn(&Growth) -> bool) -> Outcome {
    let behind: Vec<_> = facts.wanted().filter(|child| is_behind(&child.growth)).collect();
    let Some(first) = behind.first() else { return Outcome::Done };
    let names: Vec<&str> = behind.iter().map(|child| child.name.as_str()).collect();
    let sentence = first.growth.sentence();
    Outcome::recheck(format!("waiting for the claims of {} to grow: {sentence}", some_of(&names)), LATER)
}

/// Waits for the nodes whose pods were restarted: a file system has grown before its new pod is ready.
pub(super) fn restarted(facts: &FleetFacts) -> Outcome {
    let restarting = facts.wanted().filter(|child| child.controller.rolling);
    let names: Vec<&str> = restarting.map(|child| child.name.as_str()).collect();
    if names.is_empty() {
        return Outcome::Done;
    }
    Outcome::waiting(format!("waiting for {} to become ready after the restart", some_of(&names)))
}
