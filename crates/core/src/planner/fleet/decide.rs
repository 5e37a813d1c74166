//! Whether a rollout starts, is superseded, is aborted or taken back.

use super::facts::{ChildFacts, FleetFacts, Scope};
use super::hooks::rolls_back;
use super::sets::{self, Way};
use crate::api::Stage;
use crate::engine::{Plan, PlanState};

/// Why a rollout was started: a reason of the condition RolloutInProgress.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Cause {
    /// The template changed.
    TemplateChanged,
    /// This version of Windlass renders another template.
    OperatorDrift,
    /// A node or its StatefulSet was changed by hand.
    ChildDrift,
    /// A restart was asked for.
    RestartRequested,
    /// A rejected target is tried again.
    RetryRequested,
    /// A new target took the place of another in the middle of a rollout.
    Superseded,
}

impl Cause {
    /// The cause of this word in the API, if it is one.
    #[must_use]
    pub fn of(word: &str) -> Option<Self> {
        let causes = [
            Self::TemplateChanged,
            Self::OperatorDrift,
            Self::ChildDrift,
            Self::RestartRequested,
            Self::RetryRequested,
            Self::Superseded,
        ];
        causes.into_iter().find(|cause| cause.as_str() == word)
    }

    /// The word in the API.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::TemplateChanged => "TemplateChanged",
            Self::OperatorDrift => "OperatorDrift",
            Self::ChildDrift => "ChildDrift",
            Self::RestartRequested => "RestartRequested",
            Self::RetryRequested => "RetryRequested",
            Self::Superseded => "Superseded",
        }
    }
}

/// A rollout to be started.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Start {
    /// Where it goes.
    pub scope: Scope,
    /// The rollout hash that its plan names.
    pub target: String,
    /// Why.
    pub cause: Cause,
    /// How.
    pub way: Way,
}

/// What is to be done about a fleet's plan.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum FleetDecision {
    /// Go on with the plan that there is, if there is one.
    Keep,
    /// Start a rollout.
    Start(Start),
    /// End the active plan as Superseded and start another in the same write.
    Supersede(Start),
    /// End the active plan as Aborted, and reject its target.
    Abort,
    /// End the active plan as RolledBack, reject its target and start the way back in the same write.
    RollBack(Start),
    /// End the active plan as Superseded: no node is wanted any more.
    ScaledToZero,
    /// End the active plan as Superseded, with its entrants: what serves is what is wanted.
    Withdraw,
    /// End the active plan as RolledBack, with its entrants, and reject its target. Where they carry the traffic already, it
    /// goes back first.
    TakeBack,
    /// End the active plan as Complete, since traffic has moved, and start another in the same write.
    CompleteAndStart(Start),
    /// Go on with a promotion whose plan has failed, by another plan.
    Resume(Start),
}

/// Decides. `plan` is the persisted plan, `scope` where it goes, `stalled` whether its clock has run out.
#[must_use]
pub fn decide(facts: &FleetFacts, plan: Option<&Plan>, scope: &Scope, stalled: bool) -> FleetDecision {
    if facts.terminating || facts.undecided.is_some() {
        return FleetDecision::Keep;
    }
    match (plan.filter(|p| p.is_active()), &facts.set_rollout) {
        (Some(plan), Some(rollout)) => sets::decide::during(facts, plan, rollout, stalled),
        (Some(plan), None) => during(facts, plan, scope, stalled),
        (None, Some(rollout)) if rollout.stage == Stage::Promoting => {
            sets::decide::held(facts, plan, rollout)
        }
        (None, _) if let Some(cause) = facts.under_way => without_plan(facts, scope, cause),
        (None, _) if facts.replicas == 0 => FleetDecision::Keep,
        (None, _) => repair_that_ended_badly(facts, plan).unwrap_or_else(|| idle(facts)),
    }
}

/// A rollout whose plan is lost goes on by another, to where it went; whether that is still wanted is decided then.
fn without_plan(facts: &FleetFacts, scope: &Scope, cause: Cause) -> FleetDecision {
    if facts.replicas == 0 {
        return FleetDecision::ScaledToZero;
    }
    let way = facts.set_rollout.as_ref().map_or(Way::InPlace, |rollout| rollout.way);
    match scope {
        Scope::Target(target) if facts.is_known(target) => {
            FleetDecision::Start(Start { scope: scope.clone(), target: target.clone(), cause, way })
        }
        // Nobody knows any more where it went, or could carry that out.
        Scope::Target(_) => FleetDecision::Start(to(facts, facts.steady_revision(), cause)),
        Scope::Own => own(facts, cause),
    }
}

fn during(facts: &FleetFacts, plan: &Plan, scope: &Scope, stalled: bool) -> FleetDecision {
    if !facts.abort.is_empty() && facts.abort == plan.id {
        return FleetDecision::Abort;
    }
    if facts.replicas == 0 {
        return FleetDecision::ScaledToZero;
    }
    let goal = facts.goal();
    let moved = match scope {
        Scope::Target(target) => target != goal,
        // What drifted is put right first only as long as nothing else is wanted.
        Scope::Own if facts.rejected.is_some() => false,
        // Where nothing completed yet, what else is wanted shows on the nodes alone.
        Scope::Own if facts.last_completed.is_empty() => others(facts, goal).next().is_some(),
        Scope::Own => goal != facts.last_completed,
    };
    if moved && facts.invalid.is_none() {
        return FleetDecision::Supersede(to(facts, goal, Cause::Superseded));
    }
    // What is tried again comes after the way back, unless that stands still and may never end. A repair goes first: what
    // is asked to be tried again may be the repair before it.
    if stalled && matches!(scope, Scope::Target(_)) && is_retried(facts) {
        return FleetDecision::Supersede(to(facts, &facts.requested, Cause::RetryRequested));
    }
    if facts.restart_request.is_some() {
        let start = Start {
            scope: scope.clone(),
            target: plan.target_hash.clone(),
            cause: Cause::RestartRequested,
            way: Way::InPlace,
        };
        return FleetDecision::Supersede(start);
    }
    if ((stalled && facts.on_stall == crate::api::OnStall::Rollback) || rolls_back(facts))
        && facts.rejected.is_none()
        && !facts.last_completed.is_empty()
        && plan.target_hash != facts.last_completed
        && matches!(scope, Scope::Target(_))
    {
        return FleetDecision::RollBack(to(facts, &facts.last_completed, Cause::Superseded));
    }
    FleetDecision::Keep
}

/// What is decided after a repair that failed or was aborted while another target is rejected: it waits to be asked for
/// again, as every other plan does. `None` where it is over with that, or there was none.
fn repair_that_ended_badly(facts: &FleetFacts, plan: Option<&Plan>) -> Option<FleetDecision> {
    let rejected = facts.rejected.as_ref()?;
    let is_it = |plan: &&Plan| plan.id == rejected.plan_id && plan.target_hash != rejected.hash;
    plan.filter(is_it).filter(|plan| plan.state != PlanState::Complete)?;
    if facts.restart_request.is_some() {
        return Some(own(facts, Cause::RestartRequested));
    }
    Some(if is_retried(facts) { own(facts, Cause::RetryRequested) } else { FleetDecision::Keep })
}

/// Whether a person asks for the rejected target to be tried again, and it can be.
fn is_retried(facts: &FleetFacts) -> bool {
    let named = |plan: &str| !plan.is_empty() && plan == facts.retry;
    facts.rejected.as_ref().is_some_and(|r| named(&r.plan_id)) && facts.invalid.is_none()
}

/// What is decided where no rollout is active.
pub(super) fn idle(facts: &FleetFacts) -> FleetDecision {
    if let Some(rejected) = &facts.rejected {
        if is_retried(facts) {
            return FleetDecision::Start(to(facts, &facts.requested, Cause::RetryRequested));
        }
        if facts.restart_request.is_some() {
            return own(facts, Cause::RestartRequested);
        }
        // A drift whose repair was aborted is not taken up again by itself.
        if rejected.hash == facts.last_completed {
            return FleetDecision::Keep;
        }
        return drift(facts);
    }
    if facts.invalid.is_some() {
        return drift(facts);
    }
    let goal = facts.goal();
    // The first creation of a fleet, and its filling again from nothing, are not rollouts: they are
    // complete when that is observed.
    let filling = facts.last_completed.is_empty() || (facts.scaled_to_zero && !facts.way(goal).makes_set());
    if goal != facts.last_completed && !filling {
        let cause = if facts.unrecorded { Cause::ChildDrift } else { Cause::TemplateChanged };
        return FleetDecision::Start(to(facts, goal, cause));
    }
    if others(facts, goal).next().is_some() {
        // A grant that is not for the revision that the node holds was not given by us: the spec is edited.
        let edited =
            |c: &ChildFacts| facts.rendering(&c.held, &c.restart).is_some_and(|held| held.hash != c.granted);
        let cause = if facts.unrecorded || others(facts, goal).all(edited) {
            Cause::ChildDrift
        } else {
            Cause::TemplateChanged
        };
        return FleetDecision::Start(to(facts, goal, cause));
    }
    if facts.restart_request.is_some() {
        return FleetDecision::Start(to(facts, goal, Cause::RestartRequested));
    }
    drift(facts)
}

/// The nodes that hold another revision than this one, and one that is known.
fn others<'a>(facts: &'a FleetFacts, goal: &'a str) -> impl Iterator<Item = &'a ChildFacts> {
    facts.wanted().filter(move |c| facts.is_known(&c.held) && c.held != goal)
}

fn drift(facts: &FleetFacts) -> FleetDecision {
    if facts.paused {
        return FleetDecision::Keep;
    }
    match facts.wanted().filter(|c| !c.terminating).find_map(|c| drift_of(facts, c)) {
        Some(cause) => own(facts, cause),
        None => FleetDecision::Keep,
    }
}

/// Why a node that no rollout is about is not at what it is to be, if so.
fn drift_of(facts: &FleetFacts, child: &ChildFacts) -> Option<Cause> {
    let scope = Scope::Own;
    if facts.is_granted(child, &scope) {
        // The node itself puts right what is not its pod; the rollout waits for that, and says so.
        return child.was_edited.then_some(Cause::ChildDrift);
    }
    // What it is to run cannot be told, so neither can whether it drifted.
    facts.target_for(child, &scope)?;
    if !facts.is_known(&child.held) || child.is_drifted() {
        return Some(Cause::ChildDrift);
    }
    let before_restart = facts.rendering(&child.held, &facts.restarted_at);
    if child.restart != facts.restarted_at && before_restart.is_some_and(|r| r.hash == child.granted) {
        return Some(Cause::RestartRequested);
    }
    let was_granted_by_us =
        !child.granted.is_empty() && (child.granted == child.running || child.running.is_empty());
    Some(if was_granted_by_us { Cause::OperatorDrift } else { Cause::ChildDrift })
}

/// A rollout of every node to a target.
pub(super) fn to(facts: &FleetFacts, target: &str, cause: Cause) -> Start {
    let (scope, way) = (Scope::Target(target.to_owned()), facts.way(target));
    Start { scope, target: target.to_owned(), cause, way }
}

fn own(facts: &FleetFacts, cause: Cause) -> FleetDecision {
    let target = facts.steady_revision().to_owned();
    FleetDecision::Start(Start { scope: Scope::Own, target, cause, way: Way::InPlace })
}
