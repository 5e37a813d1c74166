//! Whether a fleet's rollout may take down nodes that serve now.

use std::time::Duration;

use super::FleetScope;
use crate::api::names::ANNOTATION_OPEN_WINDOW;
use crate::api::{RawPlan, Stage};
use crate::planner::fleet::gate::Gate;
use crate::planner::fleet::{Blocker, Cause, FleetKind};
use crate::planner::window::{self, State};

/// The clock may be set: it is looked at again before a window opens or closes.
const LOOK_AT_CLOCK: Duration = Duration::from_mins(5);
/// A missing object may exist, which causes no event.
const LOOK_FOR_OBJECTS: Duration = Duration::from_secs(5);
/// A fleet of another kind may be done, which causes no event here.
const LOOK_AT_OTHERS: Duration = Duration::from_secs(30);

impl FleetScope {
    fn fleet_kind(&self) -> FleetKind {
        if self.pods.is_some() { FleetKind::Pods } else { FleetKind::Nodes }
    }

    /// The gate of the active rollout, or of one that would begin now.
    pub(super) fn gate(&self) -> Gate {
        let (meta, status, strategy) = (&self.fleet.meta, &self.fleet.status, &self.spec.update_strategy);
        let rollout = status.rollout.as_ref();
        // A promotion is finished.
        if rollout.is_some_and(|rollout| matches!(rollout.stage, Stage::Promoting | Stage::Retiring)) {
            return Gate::Open;
        }
        if let Some(sentence) = &self.missing {
            return Gate::Missing(sentence.clone());
        }
        let is_opened = self.opens_window() || rollout.is_some_and(|rollout| rollout.window_opened);
        if !is_opened && let State::Closed(opening) = window::state(&strategy.windows, self.now) {
            return Gate::Window(opening);
        }
        if rollout.is_some_and(|rollout| !rollout.waiting) {
            return Gate::Open;
        }
        if let Some(sentence) = self.neighbours.why_after(meta, &strategy.after) {
            return Gate::Others(sentence);
        }
        let Some(rollout) = rollout.filter(|_| !self.spec.paused) else { return Gate::Open };
        let Some(plan) = status.plan.as_ref().and_then(RawPlan::id) else { return Gate::Beginning };
        let cause = rollout.cause.parse().unwrap_or(Cause::TemplateChanged);
        match self.neighbours.why_no_turn(self.fleet_kind(), meta, &plan, cause) {
            Some(sentence) => Gate::Others(sentence),
            None => Gate::Beginning,
        }
    }

    /// True if a user asks that the window of the active plan opens now.
    pub(super) fn opens_window(&self) -> bool {
        let status = &self.fleet.status;
        let asked = self.fleet.meta.annotation(ANNOTATION_OPEN_WINDOW).filter(|asked| !asked.is_empty());
        let active = status.plan.as_ref().filter(|plan| status.rollout.is_some() && plan.may_be_active());
        asked.is_some_and(|asked| active.and_then(RawPlan::id).is_some_and(|id| id == *asked))
    }

    /// How soon the gate of the active rollout, or of one that would begin now, may change although no event says so.
    pub(crate) fn gate_changes_in(&self) -> Option<Duration> {
        if self.missing.is_some() && !self.spec.paused {
            return Some(LOOK_FOR_OBJECTS);
        }
        self.fleet.status.rollout.as_ref()?;
        let edge = match self.gate() {
            Gate::Others(_) => return Some(LOOK_AT_OTHERS),
            Gate::Missing(_) | Gate::Beginning => return None,
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
    pub fn check_gate(&self) -> Option<Blocker> {
        let strategy = &self.spec.update_strategy;
        let field = if self.pods.is_some() { "strategy" } else { "updateStrategy" };
        let why = window::why_not(&format!("{field}.windows"), &strategy.windows);
        let cycle = || self.neighbours.cycle(self.fleet_kind(), &self.fleet.meta, &strategy.after);
        why.or_else(|| cycle().map(|why| format!("{field}.after: {why}"))).map(Blocker::Spec)
    }
}
