//! Decides whether a node starts, keeps or supersedes its plan.

use chrono::{DateTime, TimeDelta, Utc};

use super::facts::{NodeFacts, StatefulSetFact};
use crate::api::{HookPoint, PodTemplateHash, Reason, RemovalId, TaskType};
use crate::engine::{Plan, PlanState, TaskState};
use crate::planner::hooks::{OWED, is_left_at};

/// The recipes of nodes.
pub mod recipes {
    /// A new StatefulSet, or another main image.
    pub const NODE_UPDATE: &str = "NodeUpdate";
    /// Another pod template with the same image.
    pub const RESTART_NODE: &str = "RestartNode";
    /// The same pod template on another machine.
    pub const MOVE_NODE: &str = "MoveNode";
    /// Volume claims that grow.
    pub const GROW_CLAIMS: &str = "GrowClaims";
    /// Only marking a running pod as ready.
    pub const MARK_READY: &str = "MarkReady";
    /// The removal of the node.
    pub const REMOVE_NODE: &str = "RemoveNode";
}

/// The longest wait before a failed plan is tried again, in seconds.
pub const RETRY_SECONDS_MAX: i64 = 600;

/// True if a plan of this recipe may replace the pod.
#[must_use]
pub fn is_rolling(recipe: &str) -> bool {
    !matches!(recipe, recipes::MARK_READY | recipes::REMOVE_NODE | recipes::GROW_CLAIMS)
}

/// The `removalID` that a plan was created for, if it is an active plan RemoveNode.
#[must_use]
pub fn removal_of(plan: &Plan) -> Option<&str> {
    let leaves = plan.is_active() && plan.recipe == recipes::REMOVE_NODE;
    let task = plan.tasks.iter().rev().find(|task| TaskType::AwaitRemoval.is(task)).filter(|_| leaves)?;
    task.params["removalID"].as_str()
}

/// The `removalID` for which a node may be deleted: its plan has done everything else and waits only for the deletion.
#[must_use]
pub fn awaited_removal(plan: &Plan) -> Option<&str> {
    let waits = plan.current_task().is_some_and(|task| TaskType::AwaitRemoval.is(task));
    removal_of(plan).filter(|_| waits)
}

/// Sets the params of a plan RemoveNode: its `removalID`, and the points of the hooks that the plan that it follows owes.
pub fn for_removal(plan: &mut Plan, removal_id: Option<&RemovalId>, owed: &[HookPoint]) {
    let removal_id = removal_id.map_or("", RemovalId::as_str);
    for task in plan.tasks.iter_mut().filter(|task| TaskType::AwaitRemoval.is(task)) {
        task.params = serde_json::json!({"removalID": removal_id});
        for (_, param) in OWED.iter().filter(|(point, _)| owed.contains(point)) {
            task.params[*param] = true.into();
        }
    }
}

/// The points of the hooks that a plan owes if it ends, or has ended, before they are done: the plan that follows runs them.
/// Those at `AfterNode` are owed once the pod is replaced, as what came before that waits for them.
#[must_use]
pub fn owed_hooks(plan: &Plan) -> Vec<HookPoint> {
    let is_replaced = || plan.tasks.iter().any(|task| TaskType::ReplacePod.is(task) && task.state.is_over());
    let removal = plan.tasks.iter().find(|task| TaskType::AwaitRemoval.is(task));
    let is_owed = |(point, param): &&(HookPoint, &str)| match removal {
        Some(task) => task.params[*param] == true,
        None => is_left_at(plan, *point) && (*point != HookPoint::AfterNode || is_replaced()),
    };
    OWED.iter().filter(is_owed).map(|(point, _)| *point).collect()
}

/// The plan of a node that waits only for its deletion, as it is stored in a status.
#[cfg(any(test, feature = "test-fixtures"))]
#[must_use]
pub fn leaving(removal_id: &str) -> serde_json::Value {
    serde_json::json!({
        "id": "5ea5ed0000", "recipe": recipes::REMOVE_NODE, "targetHash": "", "state": "Active",
        "startedAt": "2030-01-01T00:00:00Z",
        "tasks": [{"id": "5ea5ed0000-0", "type": TaskType::AwaitRemoval.as_ref(), "params": {"removalID": removal_id}, "state": "Pending"}],
    })
}

/// What has to be done with a node's plan.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum NodeDecision {
    /// Continue with the existing plan, if there is one.
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
        /// The reason, in one word.
        reason: &'static str,
        /// The recipe of the plan that follows at once, if one does.
        next: Option<&'static str>,
    },
}

/// Decides about a node. `plan` is the persisted plan, if it can be read.
#[must_use]
pub fn decide(facts: &NodeFacts, plan: Option<&Plan>, now: DateTime<Utc>) -> NodeDecision {
    if facts.terminating {
        return NodeDecision::Keep;
    }
    if let Some(decision) = removal(facts, plan, now) {
        return decision;
    }
    if let Some(plan) = plan.filter(|p| p.is_active()) {
        return decide_with_active_plan(facts, plan);
    }
    let recipe = if let Some(recipe) = rolling_recipe(facts) {
        recipe
    } else if facts.needs_mark() && !was_skipped(facts, plan) {
        recipes::MARK_READY
    } else if facts.needs_growth() {
        recipes::GROW_CLAIMS
    } else {
        return NodeDecision::Keep;
    };
    start(failed_before(plan, recipe, target(facts)), recipe, now)
}

/// Starts a plan, unless a plan like it has failed and its retry is not due yet.
fn start(failed: Option<&Plan>, recipe: &'static str, now: DateTime<Utc>) -> NodeDecision {
    match failed {
        // A wait that is longer than any can be was written before the clock was set back.
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

/// The decision about a node that is, or was, asked to leave. It comes before everything else: it no longer matters
/// whether the spec can be carried out. `None` if the node is not asked to leave and has no plan RemoveNode.
#[must_use]
pub fn removal(facts: &NodeFacts, plan: Option<&Plan>, now: DateTime<Utc>) -> Option<NodeDecision> {
    if facts.terminating {
        return None;
    }
    let active = plan.filter(|p| p.is_active());
    if active.is_some_and(|plan| replaces_its_set(facts, plan)) {
        return None;
    }
    let leaves = active.filter(|p| p.recipe == recipes::REMOVE_NODE);
    let Some(wish) = &facts.removal_id else {
        let leaves = leaves?;
        // An update that was interrupted when the node was asked to leave continues.
        let unfinished = facts.needs_roll()
            || (!facts.is_converged() && !facts.is_spent())
            || !owed_hooks(leaves).is_empty();
        return Some(NodeDecision::Supersede {
            reason: "Kept",
            next: unfinished.then(|| roll_recipe(facts)),
        });
    };
    Some(match (leaves, active) {
        (Some(leaves), _) if removal_of(leaves) == Some(wish.as_str()) => NodeDecision::Keep,
        (None, None) => {
            let failed = |p: &&Plan| p.state == PlanState::Failed && p.recipe == recipes::REMOVE_NODE;
            start(plan.filter(failed), recipes::REMOVE_NODE, now)
        }
        (_, Some(_)) => NodeDecision::Supersede { reason: "Removal", next: Some(recipes::REMOVE_NODE) },
        (Some(_), None) => return None,
    })
}

/// The target hash of a plan of this node; empty if nothing can be rendered and nothing is granted.
#[must_use]
pub fn target(facts: &NodeFacts) -> &str {
    facts.grant().map_or("", PodTemplateHash::as_str)
}

/// True if a plan GrowClaims has deleted the StatefulSet, which it is about to create again. Until then the pod has no
/// owner that would delete it.
fn replaces_its_set(facts: &NodeFacts, plan: &Plan) -> bool {
    plan.recipe == recipes::GROW_CLAIMS
        && facts.live().is_none()
        && !facts.growth.is_pending()
        && plan.target_hash == target(facts)
}

fn decide_with_active_plan(facts: &NodeFacts, plan: &Plan) -> NodeDecision {
    if replaces_its_set(facts, plan) {
        return NodeDecision::Keep;
    }
    if facts.suspended {
        return NodeDecision::Supersede { reason: Reason::Suspended.as_ref(), next: None };
    }
    let wants = facts.needs_roll();
    if !is_rolling(&plan.recipe) {
        // Claims may take long to grow.
        let waits =
            plan.recipe == recipes::GROW_CLAIMS && facts.needs_mark() && !was_skipped(facts, Some(plan));
        let next = rolling_recipe(facts).or(waits.then_some(recipes::MARK_READY));
        return match next {
            Some(_) => NodeDecision::Supersede { reason: "NewTarget", next },
            None => NodeDecision::Keep,
        };
    }
    if facts.grant().is_some_and(|grant| *grant != *plan.target_hash) {
        // Even if no difference is seen a plan follows, unless it is known that the node has converged.
        let next = (wants || !facts.is_converged()).then(|| roll_recipe(facts));
        return NodeDecision::Supersede { reason: "NewTarget", next };
    }
    // Before the StatefulSet controller has observed the StatefulSet, the revision of the pod means nothing: a new
    // node's pod may already be Ready by then.
    let observed = facts.live().is_some_and(|set| set.observed);
    if !wants && observed && !facts.is_converged() && facts.is_kept_by_grant() {
        return NodeDecision::Supersede { reason: "GrantSpent", next: None };
    }
    NodeDecision::Keep
}

/// The recipe of a plan that replaces the pod, if one is needed. A pod that is replaced leaves its machine, too.
fn rolling_recipe(facts: &NodeFacts) -> Option<&'static str> {
    if facts.needs_roll() {
        return Some(roll_recipe(facts));
    }
    facts
        .needs_move()
        .then(|| if facts.leaves_its_machine() { recipes::MOVE_NODE } else { recipes::RESTART_NODE })
}

fn roll_recipe(facts: &NodeFacts) -> &'static str {
    let StatefulSetFact::Live(set) = &facts.set else { return recipes::NODE_UPDATE };
    let Ok(wanted) = &facts.wanted else { return recipes::RESTART_NODE };
    let pod_differs = facts.staying_pod().is_some_and(|p| facts.pod_image(p) != wanted.image);
    if facts.template_image(set) != wanted.image || pod_differs {
        recipes::NODE_UPDATE
    } else {
        recipes::RESTART_NODE
    }
}

fn failed_before<'a>(plan: Option<&'a Plan>, recipe: &str, target: &str) -> Option<&'a Plan> {
    plan.filter(|p| p.state == PlanState::Failed && p.recipe != recipes::REMOVE_NODE)
        .filter(|p| p.target_hash == target)
        .filter(|p| p.recipe == *recipe || (is_rolling(&p.recipe) && is_rolling(recipe)))
}

/// True if a user skipped marking this pod as ready.
fn was_skipped(facts: &NodeFacts, plan: Option<&Plan>) -> bool {
    let skipped = plan
        .is_some_and(|p| p.tasks.iter().any(|t| TaskType::MarkReady.is(t) && t.state == TaskState::Skipped));
    skipped && facts.pod.as_ref().is_some_and(|p| facts.previous.pod_uid.as_ref() == Some(&p.uid))
}

#[cfg(test)]
mod tests {
    use super::super::facts::{LiveStatefulSet, PodFacts, RenderedTarget, Running, Template};
    use super::*;
    use crate::engine::{PlanSeed, Registry};
    use crate::planner::growth::Growth;

    /// A new node: its StatefulSet is written, its pod is Ready, and the StatefulSet's status is as given.
    fn new_node(observed: bool, update_revision: &str) -> NodeFacts {
        NodeFacts {
            wanted: Ok(RenderedTarget { hash: "v1:a".into(), image: "db:1".to_owned() }),
            granted_hash: Some("v1:a".into()),
            grant_id: None,
            spent_grant_id: None,
            set: StatefulSetFact::Live(LiveStatefulSet {
                uid: "set".to_owned(),
                generation: 1,
                template: Template::At("v1:a".into()),
                observed,
                replicas: 1,
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
            awaits: None,
            previous: Running::default(),
            terminating: false,
            suspended: false,
            removal_id: None,
            move_: None,
            growth: Growth::Done,
        }
    }

    fn update() -> Plan {
        let recipe = Registry::builtin_recipes();
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
    fn ready_pod_does_not_end_plan_before_its_set_is_observed() {
        let decided = |facts: &NodeFacts| decide(facts, Some(&update()), DateTime::UNIX_EPOCH);
        assert_eq!(decided(&new_node(false, "")), NodeDecision::Keep);
        assert_eq!(decided(&new_node(true, "db-0-1")), NodeDecision::Keep);
        let spent = NodeDecision::Supersede { reason: "GrantSpent", next: None };
        assert_eq!(decided(&new_node(true, "db-0-2")), spent, "the pod is at another revision");
    }
}
