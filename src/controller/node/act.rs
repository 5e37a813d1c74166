//! The third stage: carries out the decision, except for the write of the status.

use std::time::Duration;

use super::change::StatusChange;
use super::context::{Failed, Node};
use super::decide::{Action, CarryOut, Decided};
use super::plans::of_outcome;
use crate::api::at_hook::point_of;
use crate::api::{ClaimRetention, Ending, HookPoint, TaskType};
use crate::apply::claim_growth;
use crate::apply::node_objects;
use crate::apply::node_objects::AppliedAtOnce;
use crate::controller::{Next, ReconcileError};
use crate::engine::{self, Advance, Deadline, Plan, TaskError, TaskState};
use crate::planner::node::decide::recipes;
use crate::planner::node::status::allowed_until;
use crate::planner::node::{NodeDecision, NodeFacts, StatefulSetFact, decide};
use crate::probe::RequestKind;
use crate::render;
use crate::tasks::watch_sidecar::{Watched, watch};
use crate::tasks::{create_stateful_set, request_mark_ready};
use windlass_kube_port::{ClusterError, Kind};

/// The requeue delay for a spec that cannot be carried out: a person may remove the obstacle.
const LOOK_AGAIN: Duration = Duration::from_secs(30);

/// The node after the writes to its child objects and before the write of its status.
#[must_use]
pub(super) struct Acted<'a> {
    pub(super) node: Node<'a>,
    pub(super) change: StatusChange,
    /// The first error of the work outside the plan. The reconcile returns it after the status is written, and is
    /// retried.
    pub(super) error: Option<ReconcileError>,
}

impl<'a> Decided<'a> {
    pub(super) async fn act(self) -> Result<Acted<'a>, Box<Failed<'a>>> {
        let Self { mut node, action } = self;
        if matches!(action, Action::EndStored(_) | Action::ChangePlan { .. } | Action::StorePlan { .. }) {
            node.report.not_applied = node.still_not_applied();
        }
        let mut error = None;
        let change = match action {
            Action::RefuseSpec(sentence) => {
                Ok(StatusChange { invalid: Some(sentence), ..StatusChange::of(None) })
            }
            Action::EndStored(plan) => Ok(node.end_unreadable(*plan)),
            Action::ChangePlan { plan, facts, decision } => node.change_plan(&facts, plan, decision).await,
            Action::StorePlan { plan, invalid } => Ok(StatusChange { invalid, ..StatusChange::of(plan) }),
            Action::Hold { plan, spec, is_terminating, invalid } => {
                if spec.volume_claim_retention == ClaimRetention::Retain && !is_terminating {
                    error = node.apply_to_claims(&spec).await.err();
                }
                let next = Next::on_event().within(LOOK_AGAIN);
                Ok(StatusChange { invalid: Some(invalid), next, ..StatusChange::of(plan) })
            }
            Action::CarryOut(work) => {
                let (change, failed) = node.carry_out(*work).await;
                error = failed;
                change
            }
        };
        match change {
            Ok(change) => Ok(Acted { node, change, error }),
            Err(error) => Err(node.failed(error)),
        }
    }
}

impl Node<'_> {
    /// Applies the parts of the spec that are independent of the plan, then advances the plan even if they failed. Also
    /// returns the error of the independent part.
    async fn carry_out(
        &mut self,
        work: CarryOut,
    ) -> (Result<StatusChange, ReconcileError>, Option<ReconcileError>) {
        let CarryOut { plan, spec, facts, skipped, ask_again } = work;
        let AppliedAtOnce { refused, again, error } = if facts.terminating {
            AppliedAtOnce::default()
        } else {
            // Claims come first: a node may be deleted as soon as its claims are released, whatever else cannot be
            // applied.
            let claims = AppliedAtOnce::from(self.apply_to_claims(&spec).await);
            let applied =
                claims.and(node_objects::apply_at_once(&self.scope, &self.stored, &spec, &facts).await);
            let created = self.create_claims_for_hooks(plan.as_ref(), &facts).await;
            self.report.unclaimed = created.error.as_ref().map(ToString::to_string);
            applied
                .and(self.restore_for_hooks(plan.as_ref(), &facts).await)
                .and(created)
                .and(self.expand_claims(plan.as_ref()).await)
        };
        let Watched { status, again: asked } = watch(&self.scope, &self.stored);
        self.report.sidecar = status;
        // This part is independent of the plan and does not block it.
        let refused = refused.or_else(|| self.refusal(error.as_ref()?));
        // A failed step has its own backoff.
        let refused_again = refused.as_ref().filter(|_| error.is_none()).map(|_| LOOK_AGAIN);
        self.report.not_applied = refused;
        let change = self.execute(plan, skipped).await.map(|change| {
            let next = change.next.within_some(ask_again).within_some(asked);
            let next = next.within_some(node_objects::await_unlabelled(&self.scope, &self.stored));
            let next = next.within_some(refused_again).within_some(again);
            StatusChange { next, ..change }
        });
        (change, error)
    }

    /// Raises the requests of claims while a plan is about something else. A pod may wait for the room.
    async fn expand_claims(&self, plan: Option<&Plan>) -> AppliedAtOnce {
        let plan = plan.filter(|plan| plan.is_active());
        if plan.is_none_or(|plan| TaskType::next_of(plan) == Some(TaskType::ExpandClaims)) {
            return AppliedAtOnce::default();
        }
        match claim_growth::expand(&self.scope, &self.stored).await {
            // The plan GrowClaims that follows reports it.
            Ok(_) => AppliedAtOnce::default(),
            Err(error) => Err(ReconcileError::Children(error)).into(),
        }
    }

    /// Recreates the StatefulSet of a node that somebody deleted while hooks at `BeforeRemove` run. Until they are done
    /// the node serves, and they may need its pod. The plan has no task that creates it.
    async fn restore_for_hooks(&self, plan: Option<&Plan>, facts: &NodeFacts) -> AppliedAtOnce {
        let takes_leave = plan.filter(|plan| plan.is_active()).is_some_and(|plan| {
            plan.current_task().and_then(point_of) == Some(HookPoint::BeforeRemove)
                && facts.grant().is_some_and(|grant| *grant == *plan.target_hash)
        });
        if !takes_leave || facts.set != StatefulSetFact::Missing || facts.suspended || self.never_ran() {
            return AppliedAtOnce::default();
        }
        match create_stateful_set(&self.scope, &self.stored, facts).await {
            Ok(_) => AppliedAtOnce::default(),
            Err(TaskError::Terminal { message }) => Ok(Some(message)).into(),
            Err(TaskError::Transient { message, .. }) => Err(ReconcileError::Plan(message)).into(),
        }
    }

    /// Creates the node's volume claims for hooks at `BeforeCreate`, as the StatefulSet controller would.
    async fn create_claims_for_hooks(&self, plan: Option<&Plan>, facts: &NodeFacts) -> AppliedAtOnce {
        let point = plan.filter(|plan| plan.is_active()).and_then(Plan::current_task).and_then(point_of);
        let is_first = point == Some(HookPoint::BeforeCreate) && facts.set == StatefulSetFact::Missing;
        if !is_first || facts.suspended || self.scope.awaits(&self.stored).is_some() {
            return AppliedAtOnce::default();
        }
        let missing = self.scope.missing_claims(&self.stored);
        let Ok(spec) = &self.stored.spec else { return AppliedAtOnce::default() };
        for claim in render::claims(&self.scope.identity(&self.stored), spec) {
            if !claim["metadata"]["name"].as_str().is_some_and(|name| missing.iter().any(|m| m == name)) {
                continue;
            }
            match self.scope.cluster.create(Kind::PersistentVolumeClaim, claim).await {
                Ok(_) | Err(ClusterError::AlreadyExists { .. }) => {}
                Err(error) => return Err(ReconcileError::Children(error)).into(),
            }
        }
        AppliedAtOnce::default()
    }

    /// Advances the plan until one of its tasks has to wait.
    pub(super) async fn execute(
        &self,
        plan: Option<Plan>,
        skipped: bool,
    ) -> Result<StatusChange, ReconcileError> {
        let Some(mut plan) = plan.filter(Plan::is_active) else {
            // Not before the end is stored: while that write conflicts, each attempt would send the request to the
            // sidecar again.
            self.scope.prober.settle(&self.scope.key, RequestKind::MarkReady);
            let ended = self.stored_plan().ok().flatten();
            // An event must not make the node forget when a failed plan is tried again.
            let retry_at = ended.as_ref().and_then(|plan| plan.retry_at);
            let next = Next::on_event().at(retry_at, self.now);
            return Ok(StatusChange { next, ..StatusChange::of(ended) });
        };
        let env = self.cx.env.layer().with(self.scope.clone());
        let env = match self.hook_scope(&plan) {
            Some(hooks) => env.with(hooks).with(self.cx.deleted_jobs.clone()),
            None => env,
        };
        let facts = self.facts();
        let deadline = Deadline {
            seconds: self.stored.spec.as_ref().map_or(600, |s| s.progress_deadline_seconds),
            not_before: allowed_until(&facts, self.status().problem.as_ref(), self.now),
        };
        let advance = if facts.terminating {
            Advance::Waiting { recheck_after: None }
        } else {
            engine::advance(&mut plan, &self.cx.registry, &env, self.now, deadline).await
        };
        match advance {
            Advance::Waiting { recheck_after } => {
                let marked = self.mark_while_waiting(&plan);
                let next = Next::on_event().within_some(recheck_after).within_some(marked);
                let next = next.at(engine::next_deadline(&plan), self.now);
                Ok(StatusChange { is_progress: !skipped, next, ..StatusChange::of(Some(plan)) })
            }
            Advance::Held => {
                let of_fleet = self.pass_over(&mut plan);
                Ok(StatusChange { of_fleet, ..StatusChange::of(Some(plan)) })
            }
            Advance::Checkpoint => Ok(StatusChange::of(Some(plan))),
            Advance::Ended => {
                let ended = of_outcome(&plan);
                Ok(self.end(plan, ended))
            }
            Advance::Invalidated { reason, .. } => {
                self.delete_jobs(&plan).await?;
                match decide(&self.facts(), None, self.now) {
                    // The old plan ends and the new one starts in the same write: between two writes the node would not
                    // count as in flight.
                    NodeDecision::Start { recipe, .. } => self.follow(&plan, &reason, recipe),
                    _ => Ok(self.end(plan, (Ending::Superseded, reason))),
                }
            }
        }
    }

    /// Marks a running pod ready even while its plan waits for something else: that needs no grant, and a node that
    /// could serve should. Returns when to requeue.
    fn mark_while_waiting(&self, plan: &Plan) -> Option<Duration> {
        let is_next = plan.current_task().is_some_and(|t| TaskType::MarkReady.is(t));
        if is_next || !self.facts().needs_mark() {
            return None;
        }
        let task = plan.tasks.iter().find(|t| TaskType::MarkReady.is(t) && !t.state.is_over());
        // A node that was asked to leave serves until it is deleted, and the request may be withdrawn. The same holds
        // for a node that this plan has already marked, and whose plan continues with later tasks.
        let is_marked =
            plan.tasks.iter().any(|t| TaskType::MarkReady.is(t) && t.state == TaskState::Complete);
        let leaves =
            || (plan.recipe == recipes::REMOVE_NODE || is_marked).then(|| format!("{}-mark", plan.id));
        let task_id = task.map(|task| task.id.clone()).or_else(leaves)?;
        // The scope has the sidecar's last answer; if the sidecar is unreachable, that is reported from there.
        request_mark_ready(&self.scope, &self.stored, &task_id).ok().map(|mark| mark.again)
    }
}
