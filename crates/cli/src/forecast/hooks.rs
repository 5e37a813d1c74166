//! Which hooks a change would run.

use super::{Action, Forecast};
use windlass_core::api::{Hook, HookPoint};
use windlass_core::planner::fleet::hooks::{HookContext, NewNodes};
use windlass_core::planner::fleet::{Cause, FleetDecision, FleetFacts, RolloutTarget};

impl Forecast {
    /// Adds the hooks of the rollout that starts, and of the nodes that are created, updated or removed.
    pub(super) fn add_hooks(&mut self, hooks: &[Hook], facts: &FleetFacts, decision: &FleetDecision) {
        let mut points = points_of_rollout(facts, decision);
        let does = |action| self.waves.iter().flat_map(|wave| &wave.nodes).any(|node| node.action == action);
        if does(Action::Create) {
            points.extend([HookPoint::BeforeCreate, HookPoint::AfterCreate]);
        }
        if does(Action::Update) {
            points.extend([HookPoint::BeforeNode, HookPoint::AfterNode]);
        }
        if does(Action::Remove) {
            points.push(HookPoint::BeforeRemove);
        }
        let at = |point: HookPoint| hooks.iter().filter(move |hook| hook.at == point);
        let due = HookPoint::ALL.into_iter().filter(|point| points.contains(point)).flat_map(at);
        self.hooks = due.map(|hook| format!("{} ({})", hook.name, hook.at.as_str())).collect();
    }
}

/// The points of the fleet's plan.
fn points_of_rollout(facts: &FleetFacts, decision: &FleetDecision) -> Vec<HookPoint> {
    let (FleetDecision::Start(start)
    | FleetDecision::Supersede(start)
    | FleetDecision::RollBack(start)
    | FleetDecision::CompleteAndStart(start)) = decision
    else {
        return Vec::new();
    };
    let of_scale_up = facts.record.last_completed.is_some() && facts.adds_nodes();
    let context = HookContext {
        cause: Some(start.cause),
        own: start.rollout_target == RolloutTarget::Own,
        creates_set: start.strategy.creates_set(),
        is_way_back: matches!(decision, FleetDecision::RollBack(_)) && start.cause == Cause::Superseded,
        new_nodes: NewNodes { of_scale_up, ..NewNodes::default() },
        ..HookContext::default()
    };
    let is_there = |point: &HookPoint| match point {
        HookPoint::AfterStep => !facts.spec.steps.is_empty() && !start.strategy.creates_set(),
        HookPoint::BeforePromotion | HookPoint::AfterPromotion => start.strategy.creates_set(),
        _ => true,
    };
    context.owing(None).points().into_iter().filter(is_there).collect()
}
