//! Reads the stored plan, or finds out why it ends now.

use super::context::Fleet;
use crate::api::{RawPlan, Stage};
use crate::engine::{self, Plan, PlanState};
use crate::planner::fleet::sets::stage;

/// Why an active plan without its rollout cannot be carried out.
const NO_ROLLOUT: &str = "status.rollout, which says where the plan goes, is missing or cannot be read";
/// Why a promotion without its plan cannot continue.
const NO_PLAN: &str = "status.plan, which says how the promotion goes, is missing";

impl Fleet<'_> {
    /// The persisted plan. The error is a plan that ends now: failed if it cannot be read and is not known to be over,
    /// complete if the status shows that it is done, superseded if its rollout is lost and can start again.
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
        // Once the status has recorded the switch, the promotion is done, whatever else the plan has left.
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
            Ok(plan) if plan.is_active() && status.rollout.is_none() && self.scope.may_start_again(&plan) => {
                Err(Box::new(Plan { state: PlanState::Superseded, finished_at: Some(self.now), ..plan }))
            }
            Ok(plan) if plan.is_active() && status.rollout.is_none() => {
                Err(Box::new(raw.failed(uid, NO_ROLLOUT, self.now)))
            }
            Ok(plan) => Ok(Some(plan)),
            Err(_) if raw.is_over() && !promoting => Ok(None),
            // The rollout has the target, and continues with another plan.
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

/// True if a rollout in this stage can still be taken back.
fn is_before_return(stage: Stage) -> bool {
    !matches!(stage, Stage::Promoting | Stage::Retiring)
}
