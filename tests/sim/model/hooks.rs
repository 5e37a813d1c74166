//! Hooks: the planner places them, and the world decides their result: success, failure (also by time-out), or none,
//! so nothing may depend on an answer. Hooks before a rollout are in the fleet's plan, those before a node in each
//! node's.

use windlass::api::{AtHook, Hook, HookPoint, OnHookFailure, TaskType};
use windlass::engine::{Plan, PlanSeed, Recipe, TaskState};
use windlass_core::planner::fleet::hooks::HookContext;
use windlass_core::planner::hooks::{HookPlacement, is_of_list};
use windlass_core::planner::node::NodeFacts;

use crate::model::executor::now;
use crate::model::state::{
    Child, Doing, Fleet, Goal, HookState, NO_VERSION, Node, Outcome, Pod, State, World,
};
use crate::model::step::Steps;

/// The shipped recipes of a fleet and of a node.
const IN_PLACE: &str = include_str!("../../../plans/in-place.yaml");
const NODE_UPDATE: &str = include_str!("../../../plans/node-update.yaml");

/// The hooks of a world, as in a spec.
fn list(world: &World) -> Vec<Hook> {
    let hook = |(at, on_failure): &(HookPoint, OnHookFailure)| {
        let name = at.as_str().to_lowercase();
        let hook = serde_json::json!({"name": name, "at": at, "onFailure": on_failure, "approval": {}});
        serde_json::from_value(hook).expect("a hook")
    };
    world.hooks.iter().map(hook).collect()
}

fn on_failure(world: &World, at: HookPoint) -> Option<OnHookFailure> {
    world.hooks.iter().find(|hook| hook.0 == at).map(|hook| hook.1)
}

/// A plan with this recipe and the world's hook at this point, in this state.
fn plan(world: &World, recipe: &str, target: &str, at: HookPoint, state: HookState) -> Plan {
    let hooks = list(world);
    let wanted = HookPlacement { hooks: &hooks, points: vec![at], ..HookPlacement::default() };
    let seed = PlanSeed { uid: "uid", target_hash: target, now: now(), attempt: 0, disambiguator: "" };
    let recipe = wanted.in_recipe(&Recipe::parse(recipe).expect("a recipe"));
    let mut plan = Plan { id: "plan".into(), ..recipe.plan(seed) };
    for task in plan.tasks.iter_mut().filter(|task| is_of_list(task)) {
        task.state = match state {
            HookState::None | HookState::Due => TaskState::Pending,
            HookState::Failed => TaskState::Failed,
            HookState::Over => TaskState::Complete,
        };
    }
    plan
}

/// A fleet's plan to a target; without a hook it equals the given one.
pub fn of_fleet(world: &World, fleet: &Fleet, plan_to: Plan) -> Plan {
    match fleet.hook {
        HookState::None => plan_to,
        state => plan(world, IN_PLACE, &plan_to.target_hash, HookPoint::BeforeRollout, state),
    }
}

/// True if the plan has reached its grants.
pub fn grants(plan: &Plan) -> bool {
    plan.current_task().is_some_and(|task| TaskType::UpdateNodeSpecs.is(task))
}

/// The state of a hook before the rollout when a plan of this context starts.
pub fn begins(world: &World, context: Option<HookContext>) -> HookState {
    let at = HookPoint::BeforeRollout;
    let runs =
        on_failure(world, at).is_some() && context.is_some_and(|context| context.points().contains(&at));
    if runs { HookState::Due } else { HookState::None }
}

/// The names of the hooks whose failure rolls back.
pub fn rolling_back(world: &World) -> Vec<String> {
    let hooks = list(world).into_iter().filter(|hook| hook.on_failure() == OnHookFailure::Rollback);
    hooks.map(|hook| hook.name).collect()
}

impl Child {
    /// True if its plan is at its hook.
    pub fn is_at_hook(&self) -> bool {
        let is_there = matches!(self.doing, Doing::Update { task: 1, .. } | Doing::Restart { task: 1, .. });
        is_there && self.hook.is_left()
    }

    /// As the orchestrator reads it.
    pub fn at_hook(&self) -> Option<AtHook> {
        let at = HookPoint::BeforeNode;
        self.is_at_hook().then(|| AtHook {
            hook: at.as_str().to_lowercase(),
            point: Some(at),
            failed: self.hook == HookState::Failed,
            ..AtHook::default()
        })
    }
}

/// The state of a node's hook in this reconcile: a plan that replaces its pod has one, unless the node is new.
pub fn of_node(world: &World, node: &Node, facts: &NodeFacts, doing: Doing, begins: bool) -> HookState {
    let before = if begins { HookState::None } else { node.child.hook };
    if on_failure(world, HookPoint::BeforeNode).is_none() || !doing.is_rolling() {
        return HookState::None;
    }
    let stays = facts.staying_pod().is_some_and(|pod| facts.is_at_grant(pod));
    let is_replaced = matches!(doing, Doing::Update { task: 2.., .. } | Doing::Restart { task: 2.., .. });
    let has_run = node.child.ever || (begins && node.child.hash != 0);
    let comes = before == HookState::None && has_run && !stays && !is_replaced;
    if comes { HookState::Due } else { before }
}

/// True if a hook blocks the replacement of the pod.
pub fn is_in_the_way(world: &World, hook: HookState) -> bool {
    hook.is_left() && {
        let plan = plan(world, NODE_UPDATE, "", HookPoint::BeforeNode, hook);
        let replaces = plan.tasks.iter().position(|task| TaskType::ReplacePod.is(task));
        plan.tasks.iter().position(is_of_list) < replaces
    }
}

/// Adds the possible results of running hooks, and a person's actions.
pub fn add(world: &World, state: &State, steps: &mut Steps) {
    if world.hooks.is_empty() {
        return;
    }
    // While the fleet is paused the clock stands, and no hook is asked.
    let fleet = &state.fleet;
    let failed = |at| match on_failure(world, at) {
        Some(OnHookFailure::Continue) => HookState::Over,
        _ => HookState::Failed,
    };
    let mut becomes = |what: &'static str, node: Option<usize>, hook: HookState, spend: fn(&mut State)| {
        let mut next = *state;
        spend(&mut next);
        match node {
            Some(index) => next.nodes[index].write(|child| child.hook = hook),
            None => next.fleet.hook = hook,
        }
        steps.world(what, node.unwrap_or_default(), next);
    };
    let places = (0..world.nodes).filter(|i| state.nodes[*i].child.is_at_hook()).map(Some);
    for node in places.chain(fleet.hook.is_left().then_some(None)) {
        let (hook, at, is_asked) = match node {
            Some(index) => (state.nodes[index].child.hook, HookPoint::BeforeNode, true),
            None => (fleet.hook, HookPoint::BeforeRollout, !fleet.paused),
        };
        if hook == HookState::Due && is_asked {
            becomes("HOOK succeeds", node, HookState::Over, |_| {});
            becomes("HOOK fails", node, failed(at), |_| {});
        }
        if hook == HookState::Failed && state.left.retry > 0 {
            becomes("USER retries what failed", node, HookState::Due, |s| s.left.retry -= 1);
        }
        if state.left.skip > 0 {
            becomes("USER skips the hook", node, HookState::Over, |s| s.left.skip -= 1);
        }
    }
}

/// H1 and H3: nothing gets the target before the hook of the rollout is over, nor while a failed hook holds it.
pub fn check_given(state: &State, known: &[Child], what: &str, steps: &mut Steps) {
    let fleet = &state.fleet;
    if fleet.hook.is_left() {
        steps.violations.push(format!("H1: a node was {what} before the rollout's hook was over"));
    }
    // As far as the orchestrator knows; a node that was left at an obsolete target blocks nothing.
    let holds = |child: &&Child| {
        let goal = match fleet.rollout {
            Some(Goal::Version(version)) => version,
            _ => child.version,
        };
        child.hook == HookState::Failed && child.is_at_hook() && child.version == goal
    };
    let surplus = usize::from(fleet.replicas);
    if known[..surplus].iter().any(|child| holds(&child)) {
        steps.violations.push(format!("H3: a node was {what} while a node's hook had failed"));
    }
}

/// H2: a running pod is deleted only after the hook before it.
pub fn check_goes(world: &World, state: &State, index: usize, steps: &mut Steps) {
    let node = &state.nodes[index];
    let runs = match node.pod {
        Pod::Ready => true,
        Pod::Running => !node.dead && !state.is_broken(node.pod_revision),
        _ => false,
    };
    let has_hook = on_failure(world, HookPoint::BeforeNode).is_some() && node.child.ever;
    if has_hook && runs && node.child.hook != HookState::Over {
        steps.violations.push(format!("H2: the pod of node {index} went before its hook was over"));
    }
}

/// L, if a rollout is blocked by a hook.
pub fn is_held(world: &World, fleet: &Fleet) -> Result<(), String> {
    let goes_on = matches!(fleet.rollout, Some(Goal::Version(version)) if version != fleet.completed)
        && fleet.completed != NO_VERSION;
    let back = on_failure(world, HookPoint::BeforeRollout) == Some(OnHookFailure::Rollback);
    if fleet.hook == HookState::Failed && back && goes_on && fleet.rejected.is_none() {
        return Err("L: the rollout's hook has failed, and nothing is taken back".to_owned());
    }
    Ok(())
}

/// H4: a rollback has no hook before it.
pub fn check_way_back(fleet: &Fleet, steps: &mut Steps) {
    let goes_back = fleet.rollout == Some(Goal::Version(fleet.completed));
    let is_rolled_back = matches!(fleet.rejected, Some((_, Outcome::RolledBack)));
    if goes_back && is_rolled_back && fleet.hook != HookState::None {
        steps.violations.push("H4: the way back waits for a hook before it".to_owned());
    }
}
