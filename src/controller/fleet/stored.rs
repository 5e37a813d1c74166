//! The stored plan: what it is, or why it ends now.

use super::context::Fleet;
use crate::api::{RawPlan, Stage};
use crate::engine::{self, Plan, PlanState};
use crate::planner::fleet::sets::stage;

/// Why an active plan without its rollout cannot be carried out.
const NO_ROLLOUT: &str = "status.rollout, which says where the plan goes, is missing or cannot be read";
/// Why a promotion without its plan cannot be carried on.
const NO_PLAN: &str = "status.plan, which says how the promotion goes, is missing";

impl Fleet<'_> {
    /// The persisted plan. Where it cannot be read and is not known to be over, or what is left of it says that it is done,
    /// the plan that says so.
    pub(super) fn stored_plan(&self) -> Result<Option<Plan>, Box<Plan>> {
        let status = &self.scope.fleet.status;
        let stage = self.scope.set_rollout().map(|r| r.stage);
        let promoting = stage == Some(Stage::Promoting);
        let uid = &self.scope.fleet.meta.uid;
        let Some(raw) = &status.plan else {
            let gone = || RawPlan::default().failed(uid, NO_PLAN, self.now);
            return match stage {
                Some(Stage::Promoting) => Err(Box::new(gone())),
                Some(Stage::Retiring) => Err(Box::new(self.done(gone()))),
                _ => Ok(None),
            };
        };
        // With the switch the promotion is done, whatever is left to tell of it.
        let has_promoted =
            |plan: &Plan| stage::has_switched(plan) && plan.target_hash == status.last_completed_rollout_hash;
        match raw.parse() {
            Ok(plan)
                if plan.is_active()
                    && status.rollout.is_none()
                    && has_promoted(&plan)
                    && engine::check_shape(&plan, &self.cx.registry).is_ok() =>
            {
                Err(Box::new(self.done(plan)))
            }
            Ok(plan) if plan.is_active() && status.rollout.is_none() && self.scope.may_begin_anew(&plan) => {
                Err(Box::new(Plan { state: PlanState::Superseded, finished_at: Some(self.now), ..plan }))
            }
            Ok(plan) if plan.is_active() && status.rollout.is_none() => {
                Err(Box::new(raw.failed(uid, NO_ROLLOUT, self.now)))
            }
            Ok(plan) => Ok(Some(plan)),
            Err(_) if raw.is_over() && !promoting => Ok(None),
            // The rollout says where it goes, and goes on by another plan.
            Err(_)
                if raw.has_lost_fields()
                    && status.rollout.is_some()
                    && stage.is_none_or(is_before_return) =>
            {
                Ok(None)
            }
            Err(sentence) if raw.has_lost_fields() && stage == Some(Stage::Retiring) => {
                Err(Box::new(self.done(raw.failed(uid, &sentence, self.now))))
            }
            Err(sentence) => Err(Box::new(raw.failed(uid, &sentence, self.now))),
        }
    }

    fn done(&self, plan: Plan) -> Plan {
        Plan { state: PlanState::Complete, finished_at: Some(self.now), failure: String::new(), ..plan }
    }
}

/// Whether what a rollout that is there has done can still be taken back.
fn is_before_return(stage: Stage) -> bool {
    !matches!(stage, Stage::Promoting | Stage::Retiring)
}
