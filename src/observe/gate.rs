//! Whether a fleet's rollout may take down nodes that serve now.

use std::time::Duration;

use super::FleetScope;
use super::neighbours::Turn;
use crate::api::names::ANNOTATION_OPEN_WINDOW;
use crate::api::{PlanId, RawPlan, Rollout, Stage};
use crate::planner::fleet::gate::Gate;
use crate::planner::fleet::{Blocker, Cause, FleetFacts, FleetKind, Strategy};
use crate::planner::window::{self, State};

/// The clock may be set: it is looked at again before a window opens or closes.
const LOOK_AT_CLOCK: Duration = Duration::from_mins(5);
/// A missing object may exist, which causes no event.
const LOOK_FOR_OBJECTS: Duration = Duration::from_secs(5);
/// A fleet of another kind may be done, which causes no event here.
const LOOK_AT_OTHERS: Duration = Duration::from_secs(30);
/// The same for a StatefulSetRollout: no other fleet causes an event here. There are few.
const PODS_LOOK_AT_OTHERS: Duration = Duration::from_secs(5);
/// How long a rollout waits for fleets in `after`, in case what began it is about to change them as well: an apply of several
/// files, or a new version of Windlass.
const OTHERS_CHANGE_WITHIN: Duration = Duration::from_secs(10);

impl FleetScope {
    fn fleet_kind(&self) -> FleetKind {
        if self.pods.is_some() { FleetKind::Pods } else { FleetKind::Nodes }
    }

    /// The gate of the active rollout, or of one that would begin now. `facts`: all others.
    pub(super) fn gate(&self, facts: &FleetFacts) -> Gate {
        let gate = self.closed_gate(facts).unwrap_or_default();
        if gate != Gate::Beginning {
            // If the status does not record by now that the rollout is admitted, it waits again.
            self.neighbours.give_back(self.fleet_kind(), &self.fleet.meta);
        }
        gate
    }

    fn closed_gate(&self, facts: &FleetFacts) -> Option<Gate> {
        let (meta, status, strategy) = (&self.fleet.meta, &self.fleet.status, &self.spec.update_strategy);
        let rollout = status.rollout.as_ref();
        // A promotion is finished. The height of a hard fork sets the time of all that comes after the creation of its nodes.
        let is_fork = facts.rollout.now.set().is_some_and(|set| set.strategy == Strategy::HardFork);
        if rollout.is_some_and(|rollout| {
            matches!(rollout.stage, Stage::Promoting | Stage::Retiring)
                || (is_fork && rollout.stage != Stage::CreatingEntrants)
        }) {
            return None;
        }
        if let Some(obstacle) = self.obstacle() {
            return Some(obstacle);
        }
        if facts.rollout.now.cause().is_some_and(Cause::only_creates) {
            return None;
        }
        let is_opened = self.open_window().is_some() || rollout.is_some_and(|rollout| rollout.window_opened);
        if !is_opened && let State::Closed(opening) = window::state(&strategy.windows, self.now) {
            return Some(Gate::Window(opening));
        }
        let rollout = rollout?;
        let cause = rollout.cause.parse().unwrap_or(Cause::TemplateChanged);
        if facts.rollout.limits.apply_to(cause) && facts.is_left_to_a_person(status) {
            return Some(Gate::Person);
        }
        if rollout.waiting_for.is_empty() {
            return None;
        }
        if let Some(sentence) = self.neighbours.why_after(self.fleet_kind(), meta, &strategy.after) {
            return Some(Gate::Predecessors(sentence));
        }
        if !strategy.after.is_empty() && self.others_may_change().is_some() {
            let sentence = "waiting a moment, in case the objects in after change, too";
            return Some(Gate::Predecessors(sentence.to_owned()));
        }
        let Some(plan) = status.plan.as_ref().and_then(RawPlan::id) else {
            return Some(Gate::Turn("waiting for the plan of the rollout".to_owned()));
        };
        let turn = Turn { kind: self.fleet_kind(), meta, plan: &plan, cause, began: rollout.started_at };
        Some(self.neighbours.why_no_turn(&turn).map_or(Gate::Beginning, Gate::Turn))
    }

    /// The gate that is closed because of what this reconcile has found about the spec.
    pub(super) fn obstacle(&self) -> Option<Gate> {
        match &self.missing {
            Some(blocker) if blocker.is_transient() => return Some(Gate::Unanswered(blocker.to_string())),
            Some(blocker) => return Some(Gate::Missing(blocker.to_string())),
            None => {}
        }
        // What is rolled out is no longer desired, and what is desired cannot be rolled out.
        let is_desired = |rollout: &Rollout| rollout.own_revisions || rollout.target() == self.requested();
        self.fleet.status.rollout.as_ref().filter(|rollout| !is_desired(rollout))?;
        let blocker = self.blocker.as_ref().filter(|blocker| blocker.is_of_spec())?;
        Some(Gate::Refused(format!("waiting for the spec to be corrected: {blocker}")))
    }

    /// How long the fleets in `after` may still change because of what began the active rollout.
    fn others_may_change(&self) -> Option<Duration> {
        let began = self.fleet.status.rollout.as_ref()?.started_at;
        // A clock that was set back delays nothing.
        let passed = (self.now - began).to_std().ok()?;
        OTHERS_CHANGE_WITHIN.checked_sub(passed).filter(|left| !left.is_zero())
    }

    /// The active plan, if a user asks that its window opens now.
    pub(super) fn open_window(&self) -> Option<PlanId> {
        let status = &self.fleet.status;
        let asked = self.fleet.meta.annotation(ANNOTATION_OPEN_WINDOW).filter(|asked| !asked.is_empty())?;
        let active = status.plan.as_ref().filter(|plan| status.rollout.is_some() && plan.may_be_active());
        active.and_then(RawPlan::id).filter(|id| *id == *asked)
    }

    /// How soon the gate of the active rollout may change although no event says so. `gate`: as it is now.
    pub(crate) fn gate_changes_in(&self, gate: &Gate) -> Option<Duration> {
        if self.missing.is_some() && !self.spec.paused {
            return Some(LOOK_FOR_OBJECTS);
        }
        self.fleet.status.rollout.as_ref()?;
        let edge = match gate {
            Gate::Predecessors(_) | Gate::Turn(_) => {
                let others = if self.pods.is_some() { PODS_LOOK_AT_OTHERS } else { LOOK_AT_OTHERS };
                return self.others_may_change().into_iter().chain([others]).min();
            }
            Gate::Missing(_) | Gate::Unanswered(_) | Gate::Refused(_) | Gate::Beginning | Gate::Person => {
                return None;
            }
            Gate::Window(opening) => opening.at,
            Gate::Open => match window::state(&self.spec.update_strategy.windows, self.now) {
                State::Open(until) => until,
                State::Closed(_) => None,
            },
        };
        let left = (edge? - self.now).to_std().unwrap_or_default();
        Some(left.clamp(Duration::from_millis(1), LOOK_AT_CLOCK))
    }

    /// Why the windows, or the fleets that come first, make no sense, if so.
    #[must_use]
    #[doc(hidden)]
    pub fn check_windows_and_order(&self) -> Option<Blocker> {
        let strategy = &self.spec.update_strategy;
        let field = if self.pods.is_some() { "strategy" } else { "updateStrategy" };
        let why = window::why_not(&format!("{field}.windows"), &strategy.windows);
        let cycle = || self.neighbours.cycle(self.fleet_kind(), &self.fleet.meta, &strategy.after);
        why.or_else(|| cycle().map(|why| format!("{field}.after: {why}"))).map(Blocker::Spec)
    }
}
