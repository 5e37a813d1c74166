//! A person's requests by annotations and fields: skips a task, and reports why a request is not carried out.

use super::context::Fleet;
use crate::api::names::{ANNOTATION_ABORT, ANNOTATION_RETRY, ANNOTATION_SKIP};
use crate::api::status::HISTORY_LIMIT;
use crate::api::{PlanId, Reason, Stage, TaskType};
use crate::engine::{self, Plan, SkipRefused, TaskState};
use crate::observe::restart::{parse_time, unreadable_restart};
use crate::planner::fleet::FleetFacts;
use crate::planner::fleet::sets::decide::may_go_back;

/// The task type that may be skipped on a node, where it concerns one pod, but not on a fleet, where it asserts that
/// every node serves.
const OF_NODES_ONLY: TaskType = TaskType::MarkReady;

impl Fleet<'_> {
    /// Skips the task that the annotation names, if it may be skipped. Returns true if the plan changed.
    pub(super) fn skip(&self, plan: &mut Plan) -> bool {
        let Some(task_id) = self.scope.fleet.meta.annotation(ANNOTATION_SKIP) else { return false };
        let named = plan.tasks.iter().find(|t| t.id == task_id);
        if !plan.is_active() {
            if named.is_some_and(|t| t.state != TaskState::Skipped) {
                let refused = SkipRefused::PlanOver { task_id: task_id.to_owned(), state: plan.state };
                self.warn(Reason::SkipRefused, task_id, refused.to_string());
            }
            // The annotation stays until somebody removes it, so it may name a task of an earlier plan.
            return false;
        }
        if named.is_none() && self.may_be_of_a_node(task_id) {
            return false;
        }
        if named.is_some_and(|t| t.state == TaskState::Skipped) {
            return false;
        }
        let what = named.map_or_else(|| "no task of its plan".to_owned(), |t| t.type_.clone());
        let skipped = named
            .is_some_and(|task| !OF_NODES_ONLY.is(task))
            .then(|| engine::skip(plan, task_id, &self.cx.registry, self.now));
        let note = match skipped {
            Some(Ok(())) => return true,
            None | Some(Err(SkipRefused::NotSkippable { .. })) => format!(
                "{task_id} ({what}) is not skipped: of a fleet's tasks only await-caught-up and await-nodes-at-height may \
                 be, hooks, and those of your own that say so; a node's mark-ready may, named on the node"
            ),
            Some(Err(refused)) => refused.to_string(),
        };
        self.warn(Reason::SkipRefused, task_id, note);
        false
    }

    /// True if this may be the ID of a plan of one of the fleet's nodes, or of a task of such a plan. The node itself
    /// reads the annotation from its fleet.
    fn may_be_of_a_node(&self, id: &str) -> bool {
        let plan = id.split('-').next().unwrap_or_default();
        let hooks = &self.scope.spec.update_strategy.hooks;
        hooks.iter().any(|hook| hook.at.is_of_node()) && engine::id::is_plan_id(plan)
    }

    pub(super) fn warn_of_impossible_requests(&self, facts: &FleetFacts) {
        let meta = &self.scope.fleet.meta;
        let (asked, spent) = (&self.scope.spec.force_promote, &self.scope.fleet.status.spent_force_promote);
        let promoting = facts.set_rollout.as_ref().is_some_and(|r| r.stage == Stage::Promoting);
        if !asked.is_empty() && facts.requested != **asked && asked != spent && !promoting {
            let note = format!(
                "forcePromote {asked:?} is ignored: what is wanted is {}, and a promotion names that, in full",
                facts.requested
            );
            self.warn(Reason::StaleForcePromote, asked, note);
        }
        let current = self.scope.fleet.status.plan.as_ref().and_then(crate::api::RawPlan::id);
        let plan =
            self.scope.fleet.status.plan.as_ref().filter(|_| promoting).and_then(|raw| raw.parse().ok());
        let goes_back =
            plan.zip(facts.set_rollout.as_ref()).is_some_and(|(plan, set)| may_go_back(&plan, set.strategy));
        let is_current = |id: &&PlanId| current == **id;
        if let Some(id) = facts.abort.as_ref().filter(is_current).filter(|_| promoting && !goes_back) {
            let note = format!(
                "{ANNOTATION_ABORT}: plan {id} is not aborted: it promotes, and that cannot be taken back; set the \
                 template to what is wanted, and it follows the promotion"
            );
            self.warn(Reason::InvalidSpec, format!("{ANNOTATION_ABORT}={id} promotes"), note);
        }
        self.refuse_unknown_plans(facts);
        let restart = meta.annotation(crate::api::names::ANNOTATION_RESTARTED_AT);
        if let Some(text) = restart.filter(|text| parse_time(text).is_none()) {
            self.warn(Reason::InvalidSpec, text, unreadable_restart(text));
        }
    }

    /// Reports annotations that name a plan that this fleet never had. The history is bounded, so a plan that may have
    /// been dropped from it is not reported.
    fn refuse_unknown_plans(&self, facts: &FleetFacts) {
        let status = &self.scope.fleet.status;
        if facts.unrecorded {
            return;
        }
        let current = status.plan.as_ref().and_then(crate::api::RawPlan::id);
        let is_known = |id: &str| {
            current.as_ref().is_some_and(|current| *current == *id)
                || status.rejected.as_ref().is_some_and(|r| r.plan_id == id)
                || status.history.iter().any(|h| h.plan_id == id)
        };
        let may_be_forgotten = |id: &str| {
            (status.history.len() >= HISTORY_LIMIT && engine::id::is_plan_id(id)) || self.may_be_of_a_node(id)
        };
        for (key, id) in [(ANNOTATION_ABORT, &facts.abort), (ANNOTATION_RETRY, &facts.retry)] {
            let Some(id) = id.as_ref().map(PlanId::as_str) else { continue };
            if is_known(id) || may_be_forgotten(id) {
                continue;
            }
            let is = current.as_ref().map_or_else(String::new, |id| format!("; its plan is {id}"));
            let note = format!("{key}: {id:?} is no plan of this fleet, and nothing comes of it{is}");
            self.warn(Reason::InvalidSpec, format!("{key}={id}"), note);
        }
        // The annotation stays until somebody removes it, so it may name a task of an earlier plan. Any other name is
        // wrong.
        let skip = self.scope.fleet.meta.annotation(ANNOTATION_SKIP).unwrap_or_default();
        let plan = skip.rsplit_once('-').map_or(skip, |(plan, _)| plan);
        if !skip.is_empty() && !is_known(plan) && !may_be_forgotten(plan) {
            let note = format!("{skip:?} is no task of a plan of this fleet, and nothing is skipped");
            self.warn(Reason::SkipRefused, skip, note);
        }
    }
}
