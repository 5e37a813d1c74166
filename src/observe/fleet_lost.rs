//! Recovers what a fleet's status has lost of a rollout under way, or of a target that was given up, from what is left:
//! the plan, the history, the conditions and the nodes.

use chrono::{DateTime, Utc};

use super::FleetScope;
use crate::api::conditions::{self, ROLLOUT_IN_PROGRESS, Truth, UP_TO_DATE};
use crate::api::ids::field;
use crate::api::{Ending, NodeDeploymentStatus, RawPlan, Reason, Rejected, Rollout, RolloutHash, Stage};
use crate::engine::{Plan, PlanState};
use crate::planner::fleet::sets::lost::{may_be_past_return, promotion};
use crate::planner::fleet::sets::stage::{has_switched, stage_before_return};
use crate::planner::fleet::{Cause, Strategy};
use crate::revision::revision_name;

impl FleetScope {
    /// The status with its finished plan restored from the history, if the plan has lost fields. The remains of an
    /// unfinished plan are not enough to continue it.
    pub(super) fn with_whole_plan(&self) -> Option<NodeDeploymentStatus> {
        let known = &*self.fleet.status;
        let raw = known.plan.as_ref().filter(|raw| known.rollout.is_none() && raw.has_lost_fields())?;
        let plan = raw.as_it_ended(&known.history)?;
        Some(NodeDeploymentStatus { plan: Some(RawPlan::of(&plan)), ..known.clone() })
    }

    /// The status with the lost fields of its rollout restored, or without the rollout if its set of nodes cannot be
    /// determined. `None`: nothing was lost.
    pub(super) fn with_whole_rollout(&self) -> Option<NodeDeploymentStatus> {
        let known = &*self.fleet.status;
        let plan = self.plan_that_is_left().filter(Plan::is_active);
        let mut filled = known.rollout.clone()?;
        if filled.has_lost_a_time() {
            let or =
                |time: DateTime<Utc>, other| if time == DateTime::<Utc>::default() { other } else { time };
            let began = plan.as_ref().map_or(self.now, |plan| plan.started_at);
            filled.started_at = or(filled.started_at, began);
            filled.last_progress_at = or(filled.last_progress_at, self.now);
        }
        if let Some(plan) = &plan {
            filled = self.filled(&filled, plan);
        }
        let makes_set = |recipe: &str| Strategy::of_recipe(recipe).is_some_and(Strategy::makes_set);
        let is_nameless = filled.entrant_set.is_empty()
            && !matches!(filled.stage, Stage::Promoting | Stage::Retiring)
            && (makes_set(&filled.recipe) || makes_set(&filled.strategy) || filled.stage != Stage::Updating);
        let rollout = Some(filled).filter(|_| !is_nameless);
        (rollout != known.rollout).then(|| NodeDeploymentStatus { rollout, ..known.clone() })
    }

    /// The rollout that an active plan carries out, if the status has lost it. If the rollout creates a set, the set is
    /// identified by its nodes; `None` if they do not show which set it is.
    pub(super) fn lost_rollout(&self) -> Option<Rollout> {
        let (meta, status) = (&self.fleet.meta, &self.fleet.status);
        let plan = self.plan_that_is_left().filter(|plan| plan.is_active() && status.rollout.is_none())?;
        let strategy = Strategy::of_recipe(&plan.recipe);
        let (strategy, target) = (strategy?, RolloutHash::recorded(plan.target_hash.as_str())?);
        let said = conditions::find(&status.conditions, ROLLOUT_IN_PROGRESS);
        let cause = said.and_then(|said| said.reason.parse().ok());
        let rollout = Rollout {
            strategy: strategy.api_name().to_owned(),
            recipe: plan.recipe.clone(),
            target_revision: revision_name(&meta.name, &meta.uid, &target).into(),
            target_hash: plan.target_hash.clone(),
            cause: cause.unwrap_or(Cause::TemplateChanged).to_string(),
            started_at: plan.started_at,
            ..Rollout::begun(self.now)
        };
        if !strategy.makes_set() {
            return Some(Rollout { own_revisions: self.is_repair(&plan, cause), ..rollout });
        }
        if has_switched(&plan) && plan.target_hash == status.last_completed_rollout_hash {
            return None;
        }
        let incumbent = self.serving().ok()?;
        let traces = self.traces(&plan, Some(incumbent.clone()));
        let [(entrant, build_id)] = traces.holders.as_slice() else { return None };
        (!may_be_past_return(&plan, &traces)).then(|| Rollout {
            stage: stage_before_return(&plan, strategy.first_stage()),
            incumbent_set: incumbent.into(),
            entrant_set: entrant.to_string(),
            build_id: field(build_id.as_ref()).to_owned(),
            from_hash: status.last_completed_rollout_hash.clone(),
            ..rollout
        })
    }

    /// True if a plan whose rollout is lost can be abandoned for a new one, because nothing shows that it may be past
    /// the point of no return.
    #[must_use]
    pub fn may_start_again(&self, plan: &Plan) -> bool {
        self.serving().is_ok_and(|incumbent| !may_be_past_return(plan, &self.traces(plan, Some(incumbent))))
    }

    /// True if a plan repairs each node in place, at the revision that the node holds. A rollback is not a repair. Nor
    /// is a restart, unless another target was given up: nodes may then hold that target, and stay at it.
    fn is_repair(&self, plan: &Plan, cause: Option<Cause>) -> bool {
        let status = &self.fleet.status;
        if plan.target_hash != status.last_completed_rollout_hash {
            return false;
        }
        match &status.rejected {
            Some(rejected) => {
                let ended = status.history.iter().rev().find(|h| h.plan_id == rejected.plan_id);
                let back = Some(Ending::RolledBack);
                rejected.ending() != back || ended.is_none_or(|h| h.ending() != back)
            }
            None => matches!(cause, Some(Cause::ChildDrift | Cause::OperatorDrift)),
        }
    }

    /// The status with the target that was given up, if the status has lost it. A promotion that stays in force
    /// although its plan has failed is not given up: its rollout is restored first.
    pub(super) fn with_rejected_target(&self) -> Option<NodeDeploymentStatus> {
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

    /// The rollout, with empty fields filled in from its plan.
    fn filled(&self, rollout: &Rollout, plan: &Plan) -> Rollout {
        let (meta, status) = (&self.fleet.meta, &self.fleet.status);
        let Some(strategy) = Strategy::of_recipe(&plan.recipe) else { return rollout.clone() };
        let or = |text: &str, otherwise: &str| if text.is_empty() { otherwise } else { text }.to_owned();
        let target = or(&rollout.target_hash, &plan.target_hash);
        let name = revision_name(&meta.name, &meta.uid, &RolloutHash::recorded_or_lost(target.as_str()));
        let mut filled = Rollout {
            strategy: or(&rollout.strategy, strategy.api_name()),
            recipe: or(&rollout.recipe, &plan.recipe),
            target_revision: or(&rollout.target_revision, name.as_str()),
            cause: or(&rollout.cause, Cause::TemplateChanged.as_ref()),
            target_hash: target,
            ..rollout.clone()
        };
        if !strategy.makes_set() {
            return filled;
        }
        let moved = has_switched(plan) || status.last_completed_rollout_hash == filled.target_hash;
        if filled.incumbent_set.is_empty() && !moved {
            filled.incumbent_set.clone_from(&status.active_set);
        }
        let traces = self.traces(plan, filled.incumbent());
        if filled.entrant_set.is_empty() {
            if moved {
                filled.entrant_set.clone_from(&status.active_set);
            } else if let [(set, build_id)] = traces.holders.as_slice() {
                filled.entrant_set = set.to_string();
                field(build_id.as_ref()).clone_into(&mut filled.build_id);
            }
        }
        // A rollout that creates a set never updates nodes in place, so the real stage was lost.
        if filled.stage == Stage::Updating {
            filled.stage = match promotion(plan, &traces) {
                _ if moved => Stage::Retiring,
                Some(promotion) => promotion.stage,
                None => stage_before_return(plan, strategy.first_stage()),
            };
        }
        filled
    }

    /// The target that the conditions still report as given up, if it is the desired one: it must not be retried just
    /// because a field was lost.
    fn given_up(&self, plan: Option<&Plan>) -> Option<Rejected> {
        let status = &self.fleet.status;
        let requested = &status.requested_rollout_hash;
        if requested.is_empty()
            || self.requested() != **requested
            || *requested == status.last_completed_rollout_hash
        {
            return None;
        }
        let said =
            conditions::find(&status.conditions, UP_TO_DATE).filter(|c| c.status == Truth::False.as_ref())?;
        let outcome = match said.reason.parse().ok()? {
            Reason::Aborted => Ending::Aborted,
            Reason::RolledBack => Ending::RolledBack,
            Reason::PlanFailed => Ending::Failed,
            _ => return None,
        };
        let ended = status
            .history
            .iter()
            .rev()
            .find(|h| h.outcome == outcome.as_ref() && h.target_hash == *requested);
        let of_plan = plan.filter(|p| matches!(p.state, PlanState::Aborted | PlanState::Failed));
        let of_plan = of_plan.filter(|p| p.target_hash == *requested).map(|p| p.id.to_string());
        let plan_id = ended.map(|h| h.plan_id.clone()).or(of_plan)?;
        Some(Rejected {
            hash: requested.clone(),
            build_id: status.build_id.clone(),
            plan_id,
            outcome: outcome.to_string(),
            message: String::new(),
        })
    }
}
