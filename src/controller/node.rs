//! The executor: one node's reconcile.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};

use super::events::Tone;
use super::hooks::has_moved;
use super::node_hooks::OfFleet;
use super::save::{Urgency, save};
use super::{Context, Next, ReconcileError};
use crate::api::conditions::{self, READY};
use crate::api::names::{ANNOTATION_RESTARTED_AT, ANNOTATION_SKIP};
use crate::api::status::remember;
use crate::api::{ClaimRetention, HistoryEntry, StatefulNodeSpec, StatefulNodeStatus};
use crate::apply::node_objects;
use crate::apply::node_objects::Applied;
use crate::cluster::observed::ObservedNode;
use crate::cluster::{Key, Kind};
use crate::engine::{self, Advance, Plan, PlanSeed, PlanState, TaskState};
use crate::observe::node_scope::{effective_restart, parse_time};
use crate::planner::node::decide::{RETRY_SECONDS_MAX, for_removal, is_rolling, recipes, removal, target};
use crate::planner::node::status::{StatusInput, status};
use crate::planner::node::{NodeDecision, NodeFacts, decide};
use crate::tasks::watch_sidecar::watch;
use crate::tasks::{NodeScope, mark};

/// How soon a spec that cannot be carried out is looked at again: somebody may remove what is in its way.
const LOOK_AGAIN: Duration = Duration::from_secs(30);
/// The shortest wait before a failed plan is tried again, in seconds; doubled at each attempt.
const RETRY_SECONDS: i64 = 10;

/// One look at a node: what is, what should be, what is done about it.
pub async fn reconcile(cx: &Context, key: &Key) -> Result<Next, ReconcileError> {
    let Some(node) = cx.view.nodes.get(key) else { return Ok(Next::on_event()) };
    let now = cx.clock.now();
    let scope = cx.node_scope(key, &node, now);
    let of_fleet = OfFleet::of(cx.fleet_of(&node.meta));
    let reconcile =
        Reconcile { cx, scope, node, of_fleet, now, beside: Mutex::default(), claims: Mutex::default() };
    reconcile.run().await
}

pub(super) struct Reconcile<'a> {
    pub(super) cx: &'a Context,
    pub(super) scope: NodeScope,
    pub(super) node: Arc<ObservedNode>,
    pub(super) of_fleet: OfFleet,
    pub(super) now: DateTime<Utc>,
    /// What of the spec cannot be carried out although the plan can, in a sentence.
    beside: Mutex<Option<String>>,
    /// Whether what the spec says of claims was carried out, where it came to that.
    claims: Mutex<Option<bool>>,
}

impl Reconcile<'_> {
    async fn run(&self) -> Result<Next, ReconcileError> {
        let result = self.act().await;
        if let Err(error) = &result
            && !error.is_conflict()
            && !matches!(error, ReconcileError::Persist(_))
        {
            // What was observed is told even so: the waves of a fleet rest on it. Where nothing could be decided, why.
            let undecided = matches!(error, ReconcileError::Observe(_) | ReconcileError::Check(_));
            let invalid = self.denial(error).filter(|_| undecided);
            let plan = self.stored_plan().ok().flatten();
            self.persist(plan.as_ref(), &[], invalid.as_deref(), Urgency::Now).await?;
        }
        result
    }

    async fn act(&self) -> Result<Next, ReconcileError> {
        // Observe.
        let Ok(spec) = self.node.spec.as_deref() else {
            let sentence = self.node.spec.as_ref().err().cloned().unwrap_or_default();
            return self.persist(None, &[], Some(&sentence), Urgency::Now).await;
        };
        self.refuse_what_cannot_be_read();
        // A node that leaves waits for nothing that only matters to one that stays.
        let facts = self.scope.facts(&self.node);
        let mut plan = match self.stored_plan() {
            Ok(plan) => plan,
            Err(failed) => return self.end_unreadable(*failed).await,
        };
        if let Some(decision) = removal(&facts, plan.as_ref(), self.now).filter(|d| *d != NodeDecision::Keep)
        {
            return self.change_plan(&facts, plan, decision).await;
        }
        let followed = plan.as_mut().is_some_and(|plan| self.follow_fleet(plan));
        node_objects::forget_unmarked(&self.scope, &self.node).await?;
        node_objects::check_template(&self.scope, &self.node).await?;
        let ask_again = node_objects::why_no_pod(&self.scope, &self.node).await;
        let facts = self.scope.facts(&self.node);
        let skipped = plan.as_mut().is_some_and(|p| self.skip(p));
        let mut invalid = facts.wanted.as_ref().err().cloned();
        if invalid.is_none() && facts.live().is_none() && !facts.terminating {
            invalid = node_objects::foreign(&self.scope, &self.node).await?;
        }
        let taken = || self.scope.memory.no_pod.get(&self.node.meta.uid).and_then(|known| known.taken);
        invalid = invalid.or_else(taken);

        // Plan.
        let decision =
            if invalid.is_some() { NodeDecision::Keep } else { decide(&facts, plan.as_ref(), self.now) };
        if Self::moves_to_unchecked_template(&facts, &decision)
            && let Err(sentence) = node_objects::verdict(&self.scope, &self.node, spec).await?
        {
            invalid = Some(sentence);
        } else if decision != NodeDecision::Keep {
            return self.change_plan(&facts, plan, decision).await;
        }
        if followed {
            return self.persist(plan.as_ref(), &[], invalid.as_deref(), Urgency::Now).await;
        }
        if let Some(sentence) = &invalid {
            // It takes nothing, and lets go of what it is to leave.
            let released = match spec.volume_claim_retention {
                ClaimRetention::Retain if !facts.terminating => self.apply_to_claims(spec).await,
                _ => Ok(None),
            };
            let next = self.persist(plan.as_ref(), &[], Some(sentence), Urgency::Now).await?;
            return released.map(|_| next.within(LOOK_AGAIN));
        }

        // Execute.
        let applied = if facts.terminating {
            Ok(Applied::default())
        } else {
            // First: a node may be deleted as soon as its claims are let go of, whatever else cannot be applied.
            let shared = self.apply_to_claims(spec).await;
            let applied = node_objects::apply_at_once(&self.scope, &self.node, spec, &facts).await;
            applied.and_then(|applied| {
                let refused = shared?.or(applied.refused);
                Ok(Applied { refused, ..applied })
            })
        };
        let asked = watch(&self.scope, &self.node);
        // What applies at once has nothing to do with the plan, and does not hold it up.
        let beside = match &applied {
            Ok(applied) => applied.refused.clone(),
            Err(error) => self.denial(error),
        };
        *self.beside.lock().unwrap_or_else(PoisonError::into_inner) = beside;
        let next = self.execute(plan, skipped).await?.within_some(ask_again).within_some(asked);
        let next = next.within_some(node_objects::await_unmarked(&self.scope, &self.node));
        applied.map(|applied| {
            let refused = applied.refused.map(|_| LOOK_AGAIN);
            next.within_some(refused).within_some(applied.again)
        })
    }

    async fn apply_to_claims(&self, spec: &StatefulNodeSpec) -> Result<Option<String>, ReconcileError> {
        let applied = node_objects::apply_to_claims(&self.scope, &self.node, spec).await;
        *self.claims.lock().unwrap_or_else(PoisonError::into_inner) = Some(applied.is_ok());
        applied
    }

    /// What the API server does not allow, in a sentence, if that is so for the second time: it may pass.
    fn denial(&self, error: &ReconcileError) -> Option<String> {
        error.denial().filter(|_| self.cx.memory.has_failed(Kind::StatefulNode, &self.scope.key))
    }

    /// The persisted plan. Where it cannot be read and is not known to be over, the plan that says so.
    fn stored_plan(&self) -> Result<Option<Plan>, Box<Plan>> {
        let Some(raw) = &self.node.status.plan else { return Ok(None) };
        let sentence = match raw.parse() {
            Ok(plan) => return Ok(Some(plan)),
            Err(sentence) => sentence,
        };
        if raw.is_over() {
            return Ok(None);
        }
        Err(Box::new(raw.failed(&self.node.meta.uid, &sentence, self.now)))
    }

    async fn end_unreadable(&self, mut plan: Plan) -> Result<Next, ReconcileError> {
        plan.retry_at = Some(self.now + TimeDelta::seconds(RETRY_SECONDS));
        let entry = self.entry(&plan, "Failed", "Unreadable");
        let next = self.persist(Some(&plan), &[entry], None, Urgency::Now).await?;
        self.tell(Tone::Warning, "PlanFailed", &plan.id, &plan.failure);
        Ok(next.at(plan.retry_at, self.now))
    }

    /// Skips the task that the annotation names. Answers whether the plan changed.
    fn skip(&self, plan: &mut Plan) -> bool {
        let own = self.node.meta.annotation(ANNOTATION_SKIP);
        let Some(task_id) = self.skipped_by_fleet(plan).or(own) else { return false };
        let is_skipped =
            |plan: &Plan| plan.tasks.iter().any(|t| t.id == task_id && t.state == TaskState::Skipped);
        if is_skipped(plan) {
            return false;
        }
        match engine::skip(plan, task_id, &self.cx.registry, self.now) {
            Ok(()) => true,
            // The task of a plan that is over stays named until somebody removes the annotation.
            Err(engine::SkipRefused::PlanOver { .. }) => false,
            Err(refused) => {
                self.tell(Tone::Warning, "SkipRefused", task_id, &refused.to_string());
                false
            }
        }
    }

    fn refuse_what_cannot_be_read(&self) {
        let restart = self.node.meta.annotation(ANNOTATION_RESTARTED_AT);
        if let Some(text) = restart.filter(|text| parse_time(text).is_none()) {
            let note = format!(
                "windlass.dev/restartedAt: {text:?} is not a time in RFC 3339, for example \
                 2030-01-31T12:00:00Z; nothing is restarted"
            );
            self.tell(Tone::Warning, "InvalidSpec", text, &note);
        }
    }

    fn moves_to_unchecked_template(facts: &NodeFacts, decision: &NodeDecision) -> bool {
        let recipe = match decision {
            NodeDecision::Keep => return false,
            NodeDecision::Start { recipe, .. } => Some(*recipe),
            NodeDecision::Supersede { next, .. } => *next,
        };
        recipe.is_some_and(is_rolling) && facts.can_render() && !facts.template_is_granted()
    }

    /// Ends and starts plans, in one write, and does nothing else.
    async fn change_plan(
        &self,
        facts: &NodeFacts,
        plan: Option<Plan>,
        decision: NodeDecision,
    ) -> Result<Next, ReconcileError> {
        let mut entries = Vec::new();
        let (recipe, attempt) = match decision {
            NodeDecision::Keep => return Ok(Next::on_event()),
            NodeDecision::Start { recipe, attempt } => (Some(recipe), attempt),
            NodeDecision::Supersede { reason, next } => {
                if let Some(old) = &plan {
                    self.delete_jobs(old).await?;
                    entries.push(self.entry(old, "Superseded", reason));
                }
                (next, 0)
            }
        };
        let before = plan.as_ref().map(|p| p.id.clone()).unwrap_or_default();
        if let Some(recipe) = recipe {
            let plan = self.new_plan(recipe, facts, attempt, &before)?;
            return self.start(&plan, &entries).await;
        }
        let ended = plan.map(|mut old| {
            engine::supersede(&mut old, self.now);
            old
        });
        self.persist(ended.as_ref(), &entries, None, Urgency::Now).await
    }

    fn new_plan(
        &self,
        recipe: &str,
        facts: &NodeFacts,
        attempt: u32,
        before: &str,
    ) -> Result<Plan, ReconcileError> {
        let recipe = self.cx.registry.recipe(recipe).map_err(|e| ReconcileError::Plan(e.to_string()))?;
        let mut plan = self.wanted_hooks(&recipe.name, None).in_recipe(recipe).plan(PlanSeed {
            uid: &self.node.meta.uid,
            target_hash: target(facts),
            now: self.now,
            attempt,
            disambiguator: before,
        });
        for_removal(&mut plan, &facts.removal_id);
        Ok(plan)
    }

    async fn start(&self, plan: &Plan, entries: &[HistoryEntry]) -> Result<Next, ReconcileError> {
        let next = self.persist(Some(plan), entries, None, Urgency::Now).await?;
        let target = crate::planner::fleet::status::short(&plan.target_hash);
        let note = format!("{} to {target} ({} tasks)", plan.recipe, plan.tasks.len());
        self.tell(Tone::Normal, "PlanStarted", &plan.id, &note);
        Ok(next)
    }

    async fn execute(&self, plan: Option<Plan>, skipped: bool) -> Result<Next, ReconcileError> {
        let Some(mut plan) = plan.filter(Plan::is_active) else {
            return self.persist(self.stored_plan().ok().flatten().as_ref(), &[], None, Urgency::Now).await;
        };
        let env = self.cx.env.layer().with(self.scope.clone());
        let env = match self.hook_scope(&plan) {
            Some(hooks) => env.with(hooks),
            None => env,
        };
        let deadline = self.node.spec.as_ref().map_or(600, |s| s.progress_deadline_seconds);
        let advance = if self.scope.facts(&self.node).terminating {
            Advance::Waiting { recheck_after: None }
        } else {
            engine::advance(&mut plan, &self.cx.registry, &env, self.now, deadline).await
        };
        match advance {
            Advance::Waiting { recheck_after } => {
                let marked = self.mark_while_waiting(&plan);
                let after = self.compute(Some(&plan), &[], None);
                let urgency = if skipped { Urgency::Now } else { self.urgency(&plan, &after) };
                let next = self.write(&after, None, urgency).await?;
                let next = next.within_some(recheck_after).within_some(marked);
                Ok(next.at(engine::next_deadline(&plan), self.now))
            }
            Advance::Held => {
                self.pass_over(&mut plan);
                self.persist(Some(&plan), &[], None, Urgency::Now).await
            }
            Advance::Checkpoint => self.persist(Some(&plan), &[], None, Urgency::Now).await,
            Advance::Ended => self.end(plan, advance).await,
            Advance::Invalidated { .. } => {
                self.delete_jobs(&plan).await?;
                self.after_invalidated(plan, advance).await
            }
        }
    }

    async fn after_invalidated(&self, plan: Plan, advance: Advance) -> Result<Next, ReconcileError> {
        match decide(&self.scope.facts(&self.node), None, self.now) {
            // In the same write: between two the node would not count as in flight.
            NodeDecision::Start { recipe, .. } => self.follow(&plan, &advance, recipe).await,
            _ => self.end(plan, advance).await,
        }
    }

    /// Ends a plan whose completed steps no longer hold, and starts the one that follows.
    async fn follow(&self, old: &Plan, advance: &Advance, recipe: &str) -> Result<Next, ReconcileError> {
        let reason = match advance {
            Advance::Invalidated { reason, .. } => reason.as_str(),
            _ => "",
        };
        let entry = self.entry(old, "Superseded", reason);
        let next = self.new_plan(recipe, &self.scope.facts(&self.node), 0, &old.id)?;
        self.start(&next, &[entry]).await
    }

    async fn end(&self, mut plan: Plan, advance: Advance) -> Result<Next, ReconcileError> {
        let (outcome, reason) = match (&advance, plan.state) {
            (Advance::Invalidated { reason, .. }, _) => ("Superseded", reason.clone()),
            (_, PlanState::Complete) => ("Complete", String::new()),
            _ => ("Failed", plan.failure.clone()),
        };
        if plan.state == PlanState::Failed {
            let doubled = RETRY_SECONDS.saturating_mul(1_i64.checked_shl(plan.attempt.min(16)).unwrap_or(1));
            plan.retry_at = Some(self.now + TimeDelta::seconds(doubled.min(RETRY_SECONDS_MAX)));
        }
        let entry = self.entry(&plan, outcome, &reason);
        let next = self.persist(Some(&plan), &[entry], None, Urgency::Now).await?;
        match outcome {
            "Complete" => {
                self.tell(Tone::Normal, "PlanComplete", &plan.id, &format!("{} is complete", plan.recipe));
            }
            "Failed" => {
                self.tell(Tone::Warning, "PlanFailed", &plan.id, &plan.failure);
                if let Some(task) = plan.tasks.iter().find(|t| t.state == TaskState::Failed) {
                    let note = format!("{} failed: {}", task.type_, task.message);
                    self.tell(Tone::Warning, "TaskFailed", &task.id, &note);
                }
            }
            _ => {}
        }
        Ok(next.at(plan.retry_at, self.now))
    }

    /// A running pod is marked ready even while its plan waits for something else: no grant is needed for
    /// that, and a node that could serve should. Answers when to look again.
    fn mark_while_waiting(&self, plan: &Plan) -> Option<Duration> {
        let facts = self.scope.facts(&self.node);
        let is_next = plan.current_task().is_some_and(|t| t.type_ == "mark-ready");
        if is_next || !facts.needs_mark() {
            return None;
        }
        let task = plan.tasks.iter().find(|t| t.type_ == "mark-ready" && !t.state.is_over());
        // A node that was asked to leave serves until it goes, and may be asked to stay.
        // As does one that was marked before, and whose plan goes on with what comes after.
        let is_marked = plan.tasks.iter().any(|t| t.type_ == "mark-ready" && t.state == TaskState::Complete);
        let leaves =
            || (plan.recipe == recipes::REMOVE_NODE || is_marked).then(|| format!("{}-mark", plan.id));
        let task_id = task.map(|task| task.id.clone()).or_else(leaves)?;
        // What the sidecar answered is in the scope; an unreachable one is reported from there.
        mark(&self.scope, &self.node, &task_id).ok().map(|mark| mark.again)
    }

    /// Progress within a plan may wait; that a node cannot run what it was granted may not: other grants
    /// rest on it.
    fn urgency<'p>(&self, plan: &'p Plan, next: &StatefulNodeStatus) -> Urgency<'p> {
        let before = &self.node.status;
        let failed = |s: &StatefulNodeStatus| s.phase == "Failed";
        let runs = |s: &StatefulNodeStatus| s.pod_runs || conditions::is_true(&s.conditions, READY);
        // Traffic may be about to move to it. In a rollout the pod that goes is not at the grant.
        let at_grant = || self.scope.facts(&self.node).grant() == Some(before.pod_template_hash.as_str());
        let urgent = has_moved(plan, before.plan.as_ref())
            || failed(next) != failed(before)
            || next.observed_generation != before.observed_generation
            || (runs(before) && !runs(next) && at_grant());
        if urgent {
            return Urgency::Now;
        }
        Urgency::Progress(plan.current_task().map_or("", |task| &task.message))
    }

    fn compute(
        &self,
        plan: Option<&Plan>,
        entries: &[HistoryEntry],
        invalid: Option<&str>,
    ) -> StatefulNodeStatus {
        // Read anew: what this reconcile itself did is already known.
        let facts = self.scope.facts(&self.node);
        let mut previous = (*self.node.status).clone();
        for entry in entries {
            remember(&mut previous.history, entry.clone());
        }
        let beside = self.beside.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let answer = self.scope.answer.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let input = StatusInput {
            previous: &previous,
            generation: self.node.meta.generation,
            plan,
            raw_plan: self.node.status.plan.as_ref(),
            sidecar: &answer,
            invalid,
            beside: beside.as_deref(),
            set_name: &self.node.meta.name,
            restarted_at: &effective_restart(&self.node),
            claims: *self.claims.lock().unwrap_or_else(PoisonError::into_inner),
            has_claims: self.node.spec.as_ref().is_ok_and(|spec| !spec.volume_claim_templates.is_empty()),
            now: self.now,
        };
        let said = self.scope.said.lock().unwrap_or_else(PoisonError::into_inner).clone();
        StatefulNodeStatus { sidecar: said, ..status(&facts, &input) }
    }

    async fn persist(
        &self,
        plan: Option<&Plan>,
        entries: &[HistoryEntry],
        invalid: Option<&str>,
        urgency: Urgency<'_>,
    ) -> Result<Next, ReconcileError> {
        self.write(&self.compute(plan, entries, invalid), invalid, urgency).await
    }

    async fn write(
        &self,
        after: &StatefulNodeStatus,
        invalid: Option<&str>,
        urgency: Urgency<'_>,
    ) -> Result<Next, ReconcileError> {
        let before = &*self.node.status;
        let next = save(self.cx, Kind::StatefulNode, &self.node.meta, before, after, urgency).await?;
        let beside = self.beside.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(sentence) = invalid.or(beside.as_deref()) {
            let cause = format!("{}/{sentence}", self.node.meta.generation);
            self.tell(Tone::Warning, "InvalidSpec", &cause, sentence);
        }
        Ok(next)
    }

    fn entry(&self, plan: &Plan, outcome: &str, reason: &str) -> HistoryEntry {
        HistoryEntry {
            plan_id: plan.id.clone(),
            recipe: plan.recipe.clone(),
            from_hash: self.node.status.pod_template_hash.clone(),
            target_hash: plan.target_hash.clone(),
            outcome: outcome.to_owned(),
            reason: reason.to_owned(),
            message: String::new(),
            started_at: Some(plan.started_at),
            finished_at: Some(self.now),
        }
    }

    fn tell(&self, tone: Tone, reason: &str, cause: &str, note: &str) {
        self.cx.events.send(Kind::StatefulNode, &self.node.meta, tone, reason, cause, note);
    }
}
