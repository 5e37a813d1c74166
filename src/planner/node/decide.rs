//! Whether a node starts, keeps or replaces its plan.

use chrono::{DateTime, TimeDelta, Utc};

use super::facts::{NodeFacts, SetFact};
use crate::engine::{Plan, PlanState, TaskState};

/// The recipes of nodes.
pub mod recipes {
    /// A new StatefulSet, or another main image.
    pub const NODE_UPDATE: &str = "NodeUpdate";
    /// Another pod template under the same image.
    pub const RESTART_NODE: &str = "RestartNode";
    /// Nothing but marking a running pod ready.
    pub const MARK_READY: &str = "MarkReady";
}

/// The longest wait before a failed plan is tried again, in seconds.
pub const RETRY_SECONDS_MAX: i64 = 600;

/// Whether a plan of this recipe may replace the pod.
#[must_use]
pub fn is_rolling(recipe: &str) -> bool {
    recipe != recipes::MARK_READY
}

/// What is to be done about a node's plan.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum NodeDecision {
    /// Go on with the plan that there is, if there is one.
    Keep,
    /// Start a plan.
    Start {
        /// Its recipe.
        recipe: &'static str,
        /// How many plans to this target failed before.
        attempt: u32,
    },
    /// End the active plan as Superseded.
    Supersede {
        /// One word.
        reason: &'static str,
        /// The recipe of the plan that follows at once, if one does.
        next: Option<&'static str>,
    },
}

/// Decides. `plan` is the persisted plan, where it can be read.
#[must_use]
pub fn decide(facts: &NodeFacts, plan: Option<&Plan>, now: DateTime<Utc>) -> NodeDecision {
    if facts.terminating {
        return NodeDecision::Keep;
    }
    if let Some(plan) = plan.filter(|p| p.is_active()) {
        return during(facts, plan);
    }
    let recipe = if facts.wants_roll() {
        roll_recipe(facts)
    } else if facts.needs_mark() && !was_skipped(facts, plan) {
        recipes::MARK_READY
    } else {
        return NodeDecision::Keep;
    };
    match failed_before(plan, recipe, target(facts)) {
        // A wait that is longer than any was written by a clock that has since been set back.
        Some(failed)
            if failed
                .retry_at
                .is_some_and(|at| now < at && at - now <= TimeDelta::seconds(RETRY_SECONDS_MAX)) =>
        {
            NodeDecision::Keep
        }
        Some(failed) => NodeDecision::Start { recipe, attempt: failed.attempt + 1 },
        None => NodeDecision::Start { recipe, attempt: 0 },
    }
}

/// The hash that a plan of this node goes to.
#[must_use]
pub fn target(facts: &NodeFacts) -> &str {
    facts.grant().unwrap_or_default()
}

fn during(facts: &NodeFacts, plan: &Plan) -> NodeDecision {
    if facts.suspended {
        return NodeDecision::Supersede { reason: "Suspended", next: None };
    }
    let wants = facts.wants_roll();
    if !is_rolling(&plan.recipe) {
        let next = wants.then(|| roll_recipe(facts));
        return match next {
            Some(_) => NodeDecision::Supersede { reason: "NewTarget", next },
            None => NodeDecision::Keep,
        };
    }
    if facts.grant().is_some_and(|grant| plan.target_hash != grant) {
        // Even where nothing seems to differ a plan follows, until it is known that nothing does.
        let next = (wants || !facts.is_converged()).then(|| roll_recipe(facts));
        return NodeDecision::Supersede { reason: "NewTarget", next };
    }
    // Before the controller has seen the StatefulSet nothing is known of the pod's revision: a new node's pod may
    // well be Ready by then.
    let observed = facts.live().is_some_and(|set| set.observed);
    if !wants && observed && !facts.is_converged() && facts.is_kept_by_spent_grant() {
        return NodeDecision::Supersede { reason: "GrantSpent", next: None };
    }
    NodeDecision::Keep
}

fn roll_recipe(facts: &NodeFacts) -> &'static str {
    let SetFact::Live(set) = &facts.set else { return recipes::NODE_UPDATE };
    let Ok(wanted) = &facts.wanted else { return recipes::RESTART_NODE };
    let pod_differs = facts.staying_pod().is_some_and(|p| facts.pod_image(p) != wanted.image);
    if facts.template_image(set) != wanted.image || pod_differs {
        recipes::NODE_UPDATE
    } else {
        recipes::RESTART_NODE
    }
}

fn failed_before<'a>(plan: Option<&'a Plan>, recipe: &str, target: &str) -> Option<&'a Plan> {
    plan.filter(|p| p.state == PlanState::Failed)
        .filter(|p| p.target_hash == target && is_rolling(&p.recipe) == is_rolling(recipe))
}

/// A person said of this very pod that it need not be marked ready.
fn was_skipped(facts: &NodeFacts, plan: Option<&Plan>) -> bool {
    let skipped = plan
        .is_some_and(|p| p.tasks.iter().any(|t| t.type_ == "mark-ready" && t.state == TaskState::Skipped));
    skipped && facts.pod.as_ref().is_some_and(|p| p.uid == facts.previous.pod_uid)
}

#[cfg(test)]
mod tests {
    use super::super::facts::{LiveSet, PodFacts, Running, Template, Wanted};
    use super::*;
    use crate::engine::{PlanSeed, Registry};

    /// A new node: its StatefulSet is written, its pod is Ready, and the controller's status is as told.
    fn new_node(observed: bool, update_revision: &str) -> NodeFacts {
        NodeFacts {
            wanted: Ok(Wanted { hash: "v1:a".to_owned(), image: "db:1".to_owned() }),
            granted_hash: "v1:a".to_owned(),
            grant_id: String::new(),
            spent_grant_id: String::new(),
            set: SetFact::Live(LiveSet {
                uid: "set".to_owned(),
                generation: 1,
                template: Template::At("v1:a".to_owned()),
                observed,
                update_revision: update_revision.to_owned(),
                known_revisions: Vec::new(),
                made_for: None,
                template_digest: String::new(),
                main_image: "db:1".to_owned(),
            }),
            pod: Some(PodFacts {
                uid: "pod".to_owned(),
                revision: "db-0-1".to_owned(),
                owned: true,
                ready: true,
                running: true,
                main_image: "db:1".to_owned(),
                ..PodFacts::default()
            }),
            refused: None,
            previous: Running::default(),
            terminating: false,
            suspended: false,
        }
    }

    fn update() -> Plan {
        let recipe = Registry::builtin_recipes().unwrap();
        let seed = PlanSeed {
            uid: "node",
            target_hash: "v1:a",
            now: DateTime::UNIX_EPOCH,
            attempt: 0,
            disambiguator: "",
        };
        recipe.recipe(recipes::NODE_UPDATE).unwrap().plan(seed)
    }

    #[test]
    fn a_ready_pod_ends_no_plan_before_the_controller_has_seen_the_set() {
        let decided = |facts: &NodeFacts| decide(facts, Some(&update()), DateTime::UNIX_EPOCH);
        assert_eq!(decided(&new_node(false, "")), NodeDecision::Keep);
        assert_eq!(decided(&new_node(true, "db-0-1")), NodeDecision::Keep);
        let spent = NodeDecision::Supersede { reason: "GrantSpent", next: None };
        assert_eq!(decided(&new_node(true, "db-0-2")), spent, "the pod is at another revision");
    }
}
