//! The stage, the summary and the score of a rollout that creates a set.

use super::super::decision::{RolloutTarget, Strategy};
use super::super::facts::FleetFacts;
use super::super::progress;
use super::rollout::{SetRollout, has_halted};
use crate::api::TaskType;
use crate::api::{HookPoint, NodeDeploymentStatus, Rollout, SetName, Stage};
use crate::engine::{Plan, PlanState, TaskState};
use crate::planner::hooks::{is_left_at, is_of_list};

/// The stage that a plan's current task belongs to. Custom tasks belong to the stage before them.
#[must_use]
pub fn stage_of(plan: &Plan, before: Stage, strategy: Strategy) -> Stage {
    // The stages that cannot be undone are handled below: they are kept, whatever the current task is.
    let next = match TaskType::next_of(plan) {
        Some(TaskType::CreateEntrants) => Stage::CreatingEntrants,
        Some(TaskType::AwaitNodesRunning | TaskType::AwaitCaughtUp) => Stage::AwaitingEntrants,
        Some(TaskType::AwaitPromotion) => Stage::AwaitingPromotion,
        Some(TaskType::SubmitHalt | TaskType::AwaitNodesAtHeight | TaskType::SwitchTraffic) => {
            Stage::Promoting
        }
        // A hook does not change the stage. Under BlueGreenImmediate nothing but hooks comes before the removal of the
        // old nodes.
        _ if plan.current_task().is_none_or(is_of_list) => before,
        _ if strategy == Strategy::BlueGreenImmediate => Stage::Promoting,
        _ => before,
    };
    match before {
        Stage::Promoting | Stage::Retiring => before,
        _ => next,
    }
}

/// True if a plan has switched traffic.
#[must_use]
pub fn has_switched(plan: &Plan) -> bool {
    plan.tasks.iter().any(|t| TaskType::SwitchTraffic.is(t) && t.state == crate::engine::TaskState::Complete)
}

/// True if a promotion is done: traffic was switched, and no hooks at `AfterPromotion` are left.
#[must_use]
pub fn has_promoted(plan: &Plan) -> bool {
    has_switched(plan) && !is_left_at(plan, HookPoint::AfterPromotion)
}

/// The new set, if it receives traffic although its promotion is not complete yet: hooks are left, after which the old
/// set is removed, or instead of which traffic is moved back to it.
#[must_use]
pub fn took_over(status: &NodeDeploymentStatus) -> Option<SetName> {
    let promotes =
        |rollout: &SetRollout| rollout.stage == Stage::Promoting && rollout.entrant != *status.active_set;
    let rollout = SetRollout::of(status).filter(promotes)?;
    // A plan that has failed has switched traffic all the same.
    let holds = |plan: &Plan| matches!(plan.state, PlanState::Active | PlanState::Failed);
    let plan = status.plan.as_ref()?.parse().ok().filter(holds)?;
    (has_switched(&plan) && is_left_at(&plan, HookPoint::AfterPromotion)).then_some(rollout.entrant)
}

/// True if a user has skipped the wait for the new nodes to catch up.
#[must_use]
pub fn skips_caught_up(plan: &Plan) -> bool {
    plan.tasks.iter().any(|t| TaskType::AwaitCaughtUp.is(t) && t.state == TaskState::Skipped)
}

/// A score that grows with progress.
#[must_use]
pub fn score(facts: &FleetFacts, rollout: &SetRollout) -> i32 {
    if rollout.stage == Stage::Retiring {
        return -left(facts, rollout);
    }
    let view = facts.as_set(&rollout.entrant);
    let caught_up = view.wanted().filter(|c| c.is_caught_up()).count();
    let halted = facts.children.iter().filter(|c| has_halted(c, rollout)).count();
    progress::score(&view, &rollout.rollout_target()) + (caught_up + halted) as i32
}

/// The number of new nodes that are updated and Ready, available or not; `None` once only the old ones are waited for.
#[must_use]
pub fn ready(facts: &FleetFacts, rollout: &SetRollout) -> Option<i32> {
    let view = || facts.as_set(&rollout.entrant);
    (rollout.stage != Stage::Retiring).then(|| progress::ready(&view(), &rollout.rollout_target()))
}

/// How far a rollout is, by [`score`] and [`ready`]; `set`: if it creates a set.
#[must_use]
pub fn reached(
    facts: &FleetFacts,
    set: Option<&SetRollout>,
    rollout_target: &RolloutTarget,
) -> (i32, Option<i32>) {
    match set {
        Some(set) => (score(facts, set), ready(facts, set)),
        None => (progress::score(facts, rollout_target), Some(progress::ready(facts, rollout_target))),
    }
}

/// The number of nodes of the old set that are left; 1 if only their StatefulSets or pods are.
#[must_use]
pub fn left(facts: &FleetFacts, rollout: &SetRollout) -> i32 {
    let incumbent = rollout.incumbent.as_ref().and_then(|set| facts.sets.get(set));
    let Some(set) = incumbent else { return 0 };
    (set.children.len() as i32).max(i32::from(set.remains > 0))
}

/// The lowest height that an old node is known to be at; 0 if none is known.
#[must_use]
pub fn lowest_height(facts: &FleetFacts) -> i64 {
    let heights = facts.children.iter().filter_map(|c| c.sidecar.as_ref()?.height);
    heights.min().unwrap_or_default()
}

/// A short summary for the printer column. `is_ready`: true if nothing but a user is waited for.
#[must_use]
pub fn summary(facts: &FleetFacts, set: &SetRollout, rollout: &Rollout, is_ready: bool) -> String {
    let (nodes, entrants) = (rollout.nodes, facts.entrants());
    let made = entrants.map_or(0, |s| s.children.iter().filter(|c| !c.surplus).count());
    match set.stage {
        Stage::Updating => format!("Updating {}/{}", nodes.updated, nodes.total),
        Stage::CreatingEntrants => format!("Creating {made}/{}", nodes.total),
        Stage::AwaitingPromotion if is_ready => "Ready to promote".to_owned(),
        Stage::AwaitingEntrants | Stage::AwaitingPromotion => {
            format!("Awaiting {}/{}", nodes.ready, nodes.total)
        }
        Stage::Promoting if set.strategy == Strategy::HardFork => {
            let halted = facts.children.iter().filter(|c| has_halted(c, set)).count();
            format!("Halting {halted}/{}", facts.children.len())
        }
        Stage::Promoting => format!("Promoting {}/{}", nodes.updated, nodes.total),
        Stage::Retiring => format!("Retiring, {} left", left(facts, set)),
    }
}
