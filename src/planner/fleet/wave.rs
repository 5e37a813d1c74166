//! Who may be granted a new template. The clauses are those of BEHAVIOUR §4; each was shown to be needed
//! by the model in `shared/model`.

use super::facts::{ChildFacts, FleetFacts, Scope};

/// The clause under which a grant is given.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Clause {
    /// (a) It already runs the target.
    RunsTarget,
    /// (b) It is in flight, and its grant is unspent.
    InFlightUnspent,
    /// (c) It is Failed.
    Failed,
    /// (d) It is down, or in flight on a spent grant, and the others in flight leave room.
    Down,
    /// (e) It serves, or has drifted, and the disrupted leave room.
    Serving,
    /// (f) Nothing has completed yet, and it was never ready.
    NeverReady,
}

/// A grant to be given.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Grant {
    /// The node.
    pub name: String,
    /// The rollout hash of the revision that its spec is to hold.
    pub revision: String,
    /// The pod template hash.
    pub hash: String,
    /// Why it may be given.
    pub clause: Clause,
}

/// The clause under which the node at `index` may now be granted `target`, if there is one.
#[must_use]
pub fn may_grant(facts: &FleetFacts, index: usize, target: &str) -> Option<Clause> {
    let child = facts.children.get(index)?;
    if child.running == target {
        return Some(Clause::RunsTarget);
    }
    if facts.last_completed.is_empty() && !child.ever_ready {
        return Some(Clause::NeverReady);
    }
    let others = || facts.children.iter().enumerate().filter(|(i, _)| *i != index).map(|(_, c)| c);
    if child.is_in_flight() && !child.is_spent() {
        return Some(Clause::InFlightUnspent);
    }
    if !child.unreachable || child.is_in_flight() {
        let down = child.is_in_flight() || !child.is_serving();
        if down && !child.is_drifted() {
            if child.failed {
                return Some(Clause::Failed);
            }
            let in_flight = others().filter(|c| c.is_in_flight()).count() as i32;
            return (in_flight < facts.max_unavailable).then_some(Clause::Down);
        }
    }
    let others_disrupted = facts.disrupted() - i32::from(child.is_disrupted());
    (others_disrupted < facts.max_unavailable).then_some(Clause::Serving)
}

/// Every grant that may be given now, in the order in which to give them: nodes that already run the
/// target, then those that are down, then those that serve, each from the highest ordinal. Each grant is
/// counted before the next is looked for.
#[must_use]
pub fn next_grants(facts: &FleetFacts, scope: &Scope) -> Vec<Grant> {
    let mut facts = facts.clone();
    let mut grants = Vec::new();
    while let Some((index, grant)) = next_grant(&facts, scope) {
        let child = &mut facts.children[index];
        child.held.clone_from(&grant.revision);
        child.granted.clone_from(&grant.hash);
        child.behind = true;
        // Any ID that is not the spent one: the grant that is about to be written has a new one.
        child.grant_id = format!("{}+", child.spent_id);
        grants.push(grant);
    }
    grants
}

fn next_grant(facts: &FleetFacts, scope: &Scope) -> Option<(usize, Grant)> {
    let candidates = || {
        let all = facts.children.iter().enumerate().rev();
        all.filter(|(_, c)| !c.surplus && !c.terminating && !facts.is_granted(c, scope))
    };
    let passes: [fn(&ChildFacts, &str) -> bool; 3] = [
        |child, target| child.running == target,
        |child, _| child.is_disrupted(),
        |child, _| !child.is_disrupted(),
    ];
    for pass in passes {
        for (index, child) in candidates() {
            let revision = facts.revision_for(child, scope);
            let Some(rendering) = facts.target_for(child, scope) else { continue };
            if !pass(child, &rendering.hash) {
                continue;
            }
            if let Some(clause) = may_grant(facts, index, &rendering.hash) {
                let grant = Grant {
                    name: child.name.clone(),
                    revision: revision.to_owned(),
                    hash: rendering.hash.clone(),
                    clause,
                };
                return Some((index, grant));
            }
        }
    }
    None
}
