//! What a fleet's status has lost of a rollout under way, or of a target that was given up, read again from what is left:
//! its plan, its history, its conditions and its nodes.

use super::FleetScope;
use crate::api::conditions::{self, UP_TO_DATE};
use crate::api::{NodeDeploymentStatus, Rejected, Rollout, Stage};
use crate::engine::{Plan, PlanState};
use crate::planner::fleet::sets::lost::promotion;
use crate::planner::fleet::sets::stage::{has_switched, stage_before_return};
use crate::planner::fleet::{Cause, Way};
use crate::revision::revision_name;

impl FleetScope {
    /// The status with a rollout that is whole again, where it lost something.
    pub(super) fn with_whole_rollout(&self) -> Option<NodeDeploymentStatus> {
        let known = &*self.fleet.status;
        let plan = self.plan_that_is_left().filter(Plan::is_active)?;
        let rollout = Some(self.filled(known.rollout.as_ref()?, &plan));
        (rollout != known.rollout).then(|| NodeDeploymentStatus { rollout, ..known.clone() })
    }

    /// The status with a target that stays given up, where it lost that. A promotion that holds is none: its rollout is
    /// looked for first.
    pub(super) fn with_what_was_given_up(&self) -> Option<NodeDeploymentStatus> {
        let known = &*self.fleet.status;
        if known.rejected.is_some() || known.rollout.is_some() {
            return None;
        }
        let rejected = Some(self.given_up(self.plan_that_is_left().as_ref())?);
        Some(NodeDeploymentStatus { rejected, ..known.clone() })
    }

    fn plan_that_is_left(&self) -> Option<Plan> {
        self.fleet.status.plan.as_ref()?.parse().ok()
    }

    /// What a rollout says, and where it says nothing what its plan says of it.
    fn filled(&self, rollout: &Rollout, plan: &Plan) -> Rollout {
        let (meta, status) = (&self.fleet.meta, &self.fleet.status);
        let Some(way) = Way::of_recipe(&plan.recipe) else { return rollout.clone() };
        let or = |text: &str, otherwise: &str| if text.is_empty() { otherwise } else { text }.to_owned();
        let target = or(&rollout.target_hash, &plan.target_hash);
        let mut filled = Rollout {
            strategy: or(&rollout.strategy, way.strategy()),
            recipe: or(&rollout.recipe, &plan.recipe),
            target_revision: or(&rollout.target_revision, &revision_name(&meta.name, &meta.uid, &target)),
            cause: or(&rollout.cause, Cause::TemplateChanged.as_str()),
            target_hash: target,
            ..rollout.clone()
        };
        if !way.makes_set() {
            return filled;
        }
        let moved = has_switched(plan) || status.last_completed_rollout_hash == filled.target_hash;
        if filled.incumbent_set.is_empty() && !moved {
            filled.incumbent_set.clone_from(&status.active_set);
        }
        let traces = self.traces(plan, filled.incumbent_set.clone());
        if filled.entrant_set.is_empty() {
            if moved {
                filled.entrant_set.clone_from(&status.active_set);
            } else if let [(set, build_id)] = traces.holders.as_slice() {
                filled.entrant_set.clone_from(set);
                filled.build_id.clone_from(build_id);
            }
        }
        // Nodes of a set are never updated where they are by it.
        if filled.stage == Stage::Updating {
            filled.stage = match promotion(plan, &traces) {
                _ if moved => Stage::Retiring,
                Some(promotion) => promotion.stage,
                None => stage_before_return(plan, way.first_stage()),
            };
        }
        filled
    }

    /// The target that the conditions still say was given up, while it is what is wanted: it is not tried again by itself
    /// because a field is gone.
    fn given_up(&self, plan: Option<&Plan>) -> Option<Rejected> {
        let status = &self.fleet.status;
        let requested = &status.requested_rollout_hash;
        if requested.is_empty()
            || *requested != self.requested()
            || *requested == status.last_completed_rollout_hash
        {
            return None;
        }
        let said = conditions::find(&status.conditions, UP_TO_DATE).filter(|c| c.status == "False")?;
        let outcome = match said.reason.as_str() {
            "Aborted" => "Aborted",
            "RolledBack" => "RolledBack",
            "PlanFailed" => "Failed",
            _ => return None,
        };
        let ended = status.history.iter().rev().find(|h| h.outcome == outcome && h.target_hash == *requested);
        let of_plan = plan.filter(|p| matches!(p.state, PlanState::Aborted | PlanState::Failed));
        let of_plan = of_plan.filter(|p| p.target_hash == *requested).map(|p| p.id.clone());
        let plan_id = ended.map(|h| h.plan_id.clone()).or(of_plan)?;
        Some(Rejected {
            hash: requested.clone(),
            build_id: status.build_id.clone(),
            plan_id,
            outcome: outcome.to_owned(),
            message: String::new(),
        })
    }
}
