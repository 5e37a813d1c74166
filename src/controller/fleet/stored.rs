//! Reads the stored plan, or finds out why it ends now.

use super::context::Fleet;
use crate::api::{RawPlan, Stage};
use crate::engine::Plan;

/// Why a promotion without its plan cannot continue.
const NO_PLAN: &str = "status.plan is missing, so the promotion cannot continue";

impl Fleet<'_> {
    /// The persisted plan. The error is a plan that has failed: it cannot be read and is not known to be over, or a
    /// promotion has lost it.
    pub(super) fn stored_plan(&self) -> Result<Option<Plan>, Box<Plan>> {
        let uid = &self.scope.fleet.meta.uid;
        let is_promoting = self.scope.set_rollout().is_some_and(|r| r.stage == Stage::Promoting);
        let Some(raw) = &self.scope.fleet.status.plan else {
            let failed = || Box::new(RawPlan::default().failed(uid, NO_PLAN, self.now));
            return if is_promoting { Err(failed()) } else { Ok(None) };
        };
        match raw.parse() {
            Ok(plan) => Ok(Some(plan)),
            Err(_) if raw.is_over() && !is_promoting => Ok(None),
            Err(sentence) => Err(Box::new(raw.failed(uid, &sentence, self.now))),
        }
    }
}
