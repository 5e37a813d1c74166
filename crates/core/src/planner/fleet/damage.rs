//! Finds out whether a fleet's status contradicts itself, because somebody edited it or restored an old one. What
//! contradicts itself is discarded as a whole and read again from what exists: from the fleet's Service and its nodes.

use chrono::DateTime;

use super::decision::Strategy;
use crate::api::{NodeDeploymentStatus, RawPlan, Rollout, Stage};

/// The part of a status that cannot be trusted.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Damage {
    /// The rollout and its plan.
    Rollout,
    /// These, and the record of the active set and of what last completed on it.
    Record,
}

impl Damage {
    /// The damage of a status; `None` if it does not contradict itself.
    #[must_use]
    pub fn of(status: &NodeDeploymentStatus) -> Option<Self> {
        if status.last_completed_rollout_hash.is_empty() && !status.current_revision.is_empty() {
            return Some(Self::Record);
        }
        match (&status.rollout, &status.plan) {
            (None, None) => None,
            (Some(_), None) => Some(Self::Rollout),
            (None, Some(raw)) => Self::of_plan(raw, None),
            (Some(rollout), Some(raw)) => {
                Self::of_rollout(status, rollout).or_else(|| Self::of_plan(raw, Some(rollout)))
            }
        }
    }

    /// The damage of a plan. One that another version wrote, or that has an invalid value, is not damaged: it fails.
    fn of_plan(raw: &RawPlan, rollout: Option<&Rollout>) -> Option<Self> {
        let is_sound = match raw.parse() {
            Ok(plan) => rollout.map_or(!plan.is_active(), |rollout| plan.target_hash == rollout.target_hash),
            Err(_) => !raw.has_lost_fields(),
        };
        (!is_sound).then_some(Self::Rollout)
    }

    fn of_rollout(status: &NodeDeploymentStatus, rollout: &Rollout) -> Option<Self> {
        let texts = [&rollout.strategy, &rollout.recipe, &rollout.target_hash, &rollout.cause];
        let times = [rollout.started_at, rollout.last_progress_at];
        if texts.iter().any(|text| text.is_empty()) || times.contains(&DateTime::default()) {
            return Some(Self::Rollout);
        }
        if !Strategy::of_recipe(&rollout.recipe).is_some_and(Strategy::creates_set) {
            if rollout.entrant().is_some() || rollout.stage != Stage::Updating {
                return Some(Self::Rollout);
            }
            let has_lost_completed = status.last_completed().is_none() && !rollout.from_hash.is_empty();
            return has_lost_completed.then_some(Self::Record);
        }
        let (Some(incumbent), Some(entrant)) = (rollout.incumbent(), rollout.entrant()) else {
            return Some(Self::Rollout);
        };
        if rollout.stage == Stage::Updating {
            return Some(Self::Rollout);
        }
        // The record fits the time before traffic moves, or the time after.
        let (active, completed) = (status.active_set(), &status.last_completed_rollout_hash);
        let is_before = active == Some(incumbent) && [completed, ""].contains(&rollout.from_hash.as_str());
        let is_after = active == Some(entrant) && *completed == rollout.target_hash;
        let fits = if rollout.stage == Stage::Retiring { is_after } else { is_before };
        (!fits).then_some(if is_before || is_after { Self::Rollout } else { Self::Record })
    }
}

impl NodeDeploymentStatus {
    /// The status without what is damaged.
    #[must_use]
    pub fn without(&self, damage: Damage) -> Self {
        // A forced promotion that is not recorded any more may be repeated: its target is the same.
        let sound = Self { rollout: None, plan: None, spent_force_promote: String::new(), ..self.clone() };
        match damage {
            Damage::Rollout => sound,
            Damage::Record => Self {
                active_set: String::new(),
                active_build_id: String::new(),
                last_completed_rollout_hash: String::new(),
                current_revision: String::new(),
                initial_fill: None,
                scaled_to_zero: false,
                ..sound
            },
        }
    }
}
