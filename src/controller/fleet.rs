//! The orchestrator: one fleet's reconcile.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};

use super::events::Tone;
use super::fleet_change::is_passing;
use super::save::{Urgency, save};
use super::{Context, Next, ReconcileError};
use crate::api::conditions::{self, Truth};
use crate::api::names::ANNOTATION_RETRY;
use crate::api::{NodeDeploymentStatus, RetiringSet, Stage};
use crate::apply::{fleet_children, fleet_objects};
use crate::cluster::observed::{ObservedFleet, ObservedNode};
use crate::cluster::{Key, Kind};
use crate::engine::{self, Advance, Plan};
use crate::observe::fleet_scope::Told;
use crate::planner::fleet::hooks::AtHook;
use crate::planner::fleet::status::{
    RefreshInput, generated_build_id, is_stalled, refresh, scope_of, short, stall_deadline,
};
use crate::planner::fleet::{FleetDecision, FleetFacts, SetRollout, decide, possible, progress, release};
use crate::planner::hooks::step_of;
use crate::tasks::FleetScope;

/// How soon a spec that cannot be carried out is looked at again: somebody may remove what is in its way.
const LOOK_AGAIN: Duration = Duration::from_secs(30);
/// How soon it is looked again where the API server did not answer for a moment, and for what no watch shows.
const LOOK_SOON: Duration = Duration::from_secs(5);

/// One look at a fleet: what is, what should be, what is done about it.
pub async fn reconcile(cx: &Context, key: &Key) -> Result<Next, ReconcileError> {
    let Some(fleet) = cx.view.fleets.get(key) else { return Ok(Next::on_event()) };
    let now = cx.clock.now();
    match cx.fleet_scope(&fleet, now) {
        Some(scope) => Reconcile::new(cx, &fleet, scope, now).run().await,
        None => unreadable_spec(cx, &fleet, now).await,
    }
}

async fn unreadable_spec(
    cx: &Context,
    fleet: &Arc<ObservedFleet>,
    now: DateTime<Utc>,
) -> Result<Next, ReconcileError> {
    let sentence = fleet.spec.as_ref().err().cloned().unwrap_or_default();
    let mut status = (*fleet.status).clone();
    let generation = fleet.meta.generation;
    for (type_, truth) in [(conditions::UP_TO_DATE, Truth::False), (conditions::STALLED, Truth::True)] {
        conditions::set(&mut status.conditions, type_, truth, "InvalidSpec", &sentence, generation, now);
    }
    let others = [
        (conditions::READY, "NotStarted"),
        (conditions::ROLLOUT_IN_PROGRESS, "NotStarted"),
        (conditions::RECONCILING, "Settled"),
    ];
    for (type_, reason) in others {
        if conditions::find(&status.conditions, type_).is_none() {
            conditions::set(&mut status.conditions, type_, Truth::False, reason, "", generation, now);
        }
    }
    status.observed_generation = generation;
    let next = save(cx, Kind::NodeDeployment, &fleet.meta, &*fleet.status, &status, Urgency::Now).await?;
    let cause = format!("{generation}/{sentence}");
    cx.events.send(Kind::NodeDeployment, &fleet.meta, Tone::Warning, "InvalidSpec", &cause, &sentence);
    Ok(next)
}

/// What is told in an event: its reason, what tells it from others, and a sentence.
pub(super) type News = (Tone, &'static str, String, String);

pub(super) struct Reconcile<'a> {
    pub(super) cx: &'a Context,
    /// The fleet as it is stored. The scope's may have a status that was put right.
    stored: Arc<ObservedFleet>,
    pub(super) scope: FleetScope,
    pub(super) now: DateTime<Utc>,
    /// The ControllerRevision of what is wanted.
    revision: String,
    /// Whether a task of the plan was skipped in this reconcile.
    skipped: bool,
    /// What cannot be done although the rest goes on, in a sentence.
    beside: Option<String>,
    /// What a set that should be gone waits for, in a sentence.
    waits: Option<String>,
    /// Whether `scope.invalid` says no more than what the API server did not answer for a moment.
    pub(super) passing: bool,
    /// Whether something is left of a set that goes which no watch shows, or a node that leaves rests on others that are
    /// not as they were taken to be: it is looked at again.
    unmarked: bool,
    /// What failed beside the plan: it is tried again.
    trouble: Option<ReconcileError>,
}

impl<'a> Reconcile<'a> {
    pub(super) fn new(
        cx: &'a Context,
        fleet: &Arc<ObservedFleet>,
        scope: FleetScope,
        now: DateTime<Utc>,
    ) -> Self {
        let revision = String::new();
        let stored = fleet.clone();
        let (skipped, passing, unmarked) = (false, false, false);
        let (beside, waits, trouble) = (None, None, None);
        Self { cx, stored, scope, now, revision, skipped, beside, waits, passing, unmarked, trouble }
    }

    pub(super) async fn run(mut self) -> Result<Next, ReconcileError> {
        // Observe.
        let before = self.scope.fleet.status.clone();
        self.check().await?;
        let facts = self.scope.facts();
        if facts.undecided.is_some() {
            self.scope.invalid.clone_from(&facts.undecided);
            self.passing = false;
        }
        let plan = match self.stored_plan() {
            Ok(plan) => plan,
            Err(failed) => return self.end_unreadable(&facts, *failed).await,
        };
        let mut plan = plan;
        self.skipped = plan.as_mut().is_some_and(|plan| self.skip(plan));
        let retried = self.obey_retry(plan.as_mut(), &facts);
        let followed = plan.as_mut().is_some_and(|plan| self.follow_hooks(plan));
        self.refuse_what_cannot_be_done(&facts);

        // Plan.
        let scope = scope_of(&before);
        let stalled = is_stalled(&before, &facts, self.now);
        let mut decision = decide(&facts, plan.as_ref(), &scope, stalled);
        let mut entrant = self.name_for(&facts, &decision).await;
        if let Err(nameless) = entrant {
            // A set that cannot be named is not begun; all that has nothing to do with it goes on.
            self.passing = is_passing(&nameless);
            self.scope.invalid = Some(nameless.sentence);
            let facts = self.scope.facts();
            decision = decide(&facts, plan.as_ref(), &scope, stalled);
            entrant = self.name_for(&facts, &decision).await;
        }
        if let Ok(entrant) = entrant
            && decision != FleetDecision::Keep
        {
            return self.change_plan(&self.scope.facts(), plan, decision, &entrant).await;
        }
        if retried.is_some() || followed {
            return self.write_followed(plan, retried).await;
        }

        // Execute.
        if facts.terminating || facts.undecided.is_some() {
            return self.finish(plan, Advance::Waiting { recheck_after: None }).await;
        }
        let active = plan.as_ref().is_some_and(Plan::is_active);
        // None of these rests on another, nor the plan on them: one that fails is tried again, and meanwhile the
        // rollout goes on and the status says what is so.
        match fleet_objects::apply_service(&self.scope).await {
            Ok(Some(sentence)) => {
                self.scope.invalid.get_or_insert(sentence);
            }
            Ok(None) => {}
            Err(error) => self.note(error),
        }
        if let Err(error) = fleet_children::apply_at_once(&self.scope).await {
            self.note(error);
        }
        match fleet_children::remove(&self.scope, &self.scope.facts(), active).await {
            Ok((waits, differs)) => (self.waits, self.unmarked) = (waits, differs),
            Err(error) => self.note(error),
        }
        match fleet_children::forget_unmarked(&self.scope, &self.scope.facts()).await {
            Ok(left) => self.unmarked |= left,
            Err(error) => self.note(error),
        }
        let facts = self.scope.facts();
        let of_nodes = (active && facts.set_rollout.is_none()).then_some(&scope);
        // Where no plan asks nodes to halt, those that are lost are not made again to run past the height.
        let unasked = !active && facts.set_rollout.as_ref().is_some_and(SetRollout::is_halting);
        if !unasked && let Err(error) = fleet_children::create_missing(&self.scope, &facts, of_nodes).await {
            self.note(error);
        }
        if !active {
            if let Err(error) = fleet_children::pin(&self.scope, &facts).await {
                self.note(error);
            }
            if let Err(error) = fleet_objects::prune_revisions(&self.scope).await {
                self.note(error);
            }
        }
        let next = self.carry_on(plan).await;
        self.tell_of_nodes();
        let next = next?;
        self.trouble.map_or(Ok(next), Err)
    }

    /// Takes in that something beside the plan failed. What the API server refuses for good is the spec's fault.
    fn note(&mut self, error: ReconcileError) {
        if let Some(sentence) = error.refused_delete() {
            // Nothing of the template is wrong with that, and it may be allowed later.
            self.beside.get_or_insert(sentence);
            return;
        }
        if let Some(sentence) = error.refusal() {
            let sentence = format!("template: the API server refuses it: {sentence}");
            self.scope.invalid.get_or_insert(sentence);
            return;
        }
        if let Some(sentence) = self.denial(&error) {
            self.beside.get_or_insert(sentence);
        }
        self.trouble.get_or_insert(error);
    }

    /// What the API server does not allow, in a sentence, if the last look failed as well: it may pass.
    fn denial(&self, error: &ReconcileError) -> Option<String> {
        let key = self.scope.fleet.meta.key();
        error.denial().filter(|_| self.cx.memory.has_failed(Kind::NodeDeployment, &key))
    }

    async fn carry_on(&self, plan: Option<Plan>) -> Result<Next, ReconcileError> {
        let Some(mut plan) = plan.filter(Plan::is_active) else {
            return self
                .finish(self.stored_plan().ok().flatten(), Advance::Waiting { recheck_after: None })
                .await;
        };
        let env = self.cx.env.layer().with(self.scope.clone());
        let env = match self.hook_scope(&plan) {
            Some(hooks) => env.with(hooks),
            None => env,
        };
        let deadline = self.scope.spec.update_strategy.progress_deadline_seconds;
        let advance = engine::advance(&mut plan, &self.cx.registry, &env, self.now, deadline).await;
        self.pass_over(&mut plan);
        let advance = self.unless_disrupted(&mut plan, advance);
        if matches!(advance, Advance::Invalidated { .. }) {
            self.delete_jobs(&plan).await?;
        }
        self.finish(Some(plan), advance).await
    }

    /// Whether what is wanted can be started; if so, its revision is stored.
    async fn check(&mut self) -> Result<(), ReconcileError> {
        self.revision.clone_from(&self.scope.fleet.status.update_revision);
        if self.scope.fleet.meta.terminating {
            return Ok(());
        }
        // Much can be done without what is missing.
        match fleet_objects::restore_revisions(&self.scope).await {
            Ok(sentence) => self.beside = sentence,
            Err(error) if error.is_conflict() => {}
            Err(error) => self.note(error),
        }
        // What is promoted is what was persisted; what is wanted by now is looked at when that is done.
        if self.scope.set_rollout().is_some_and(|r| r.stage == Stage::Promoting) {
            return Ok(());
        }
        if let Some(sentence) = possible::why_not(&self.scope.spec) {
            self.scope.invalid = Some(sentence);
            return Ok(());
        }
        let of_hooks = self.check_hooks().await;
        match fleet_objects::ensure_revision(&self.scope).await {
            Ok(Ok(revision)) => {
                self.revision = revision;
                let invalid = of_hooks.or_else(|| self.scope.unchangeable_claims());
                self.scope.invalid = self.scope.invalid.take().or(invalid);
            }
            Ok(Err(sentence)) => self.scope.invalid = Some(sentence),
            Err(error) if error.is_conflict() => return Err(error),
            // Nothing of it is begun before that is known, and all that has nothing to do with it goes on.
            Err(error) => {
                let sentence =
                    format!("whether the API server takes spec.template is not known yet: {error}");
                self.scope.invalid = Some(sentence);
                self.passing = true;
                self.note(error);
            }
        }
        Ok(())
    }

    pub(super) fn revision_of(&self, hash: &str) -> String {
        self.scope.revisions().remove(hash).map(|r| r.meta.name.clone()).unwrap_or_default()
    }

    /// Writes what came of carrying the plan out, and of looking at the fleet where there is none.
    async fn finish(&self, plan: Option<Plan>, advance: Advance) -> Result<Next, ReconcileError> {
        let mut status = (*self.scope.fleet.status).clone();
        let scope = scope_of(&status);
        let facts = self.scope.facts();
        let mut told: Vec<News> = Vec::new();
        let mut shown = plan.clone();
        let (mut urgency, mut recheck) = (Urgency::Progress(""), None);
        match (&advance, plan) {
            (Advance::Waiting { recheck_after }, Some(plan)) => {
                recheck = *recheck_after;
                if plan.is_active() {
                    status.plan = Some(crate::api::RawPlan::of(&plan));
                    told.extend(self.move_on(&mut status, &facts, &plan));
                }
                if self.skipped || self.has_moved_at_hook(&plan) {
                    urgency = Urgency::Now;
                }
            }
            (Advance::Checkpoint | Advance::Held, Some(plan)) => {
                status.plan = Some(crate::api::RawPlan::of(&plan));
                urgency = Urgency::Now;
                told.extend(self.move_on(&mut status, &facts, &plan));
            }
            (Advance::Ended, Some(plan)) => {
                urgency = Urgency::Now;
                told.extend(self.plan_ended(&mut status, &facts, &plan, &scope));
            }
            (Advance::Invalidated { reason, message }, Some(old)) => {
                urgency = Urgency::Now;
                let to = short(&old.target_hash);
                let note = format!("the plan to {to} is superseded by a new one to {to}: {message}");
                told.push((Tone::Normal, "RolloutSuperseded", old.id.clone(), note));
                shown = Some(self.begin_again(&mut status, &facts, &scope, &old, reason)?);
            }
            (_, None) => {}
        }
        // A change of what is wanted, or of the spec at all, is not progress of a plan.
        let before = &self.scope.fleet.status;
        if before.observed_generation != self.scope.fleet.meta.generation || self.scope.invalid.is_some() {
            urgency = Urgency::Now;
        }
        let next = self.write(status, shown.as_ref(), urgency).await?;
        for (tone, reason, cause, note) in told {
            self.tell(tone, reason, &cause, &note);
        }
        Ok(self.wake(next.within_some(recheck), &facts))
    }

    pub(super) async fn write(
        &self,
        mut status: NodeDeploymentStatus,
        plan: Option<&Plan>,
        urgency: Urgency<'_>,
    ) -> Result<Next, ReconcileError> {
        let meta = &self.scope.fleet.meta;
        // The facts are those of the status that is about to be written: what it newly obeys counts.
        let mut facts = self.scope.facts().activated(&status.active_set);
        facts.set_rollout = SetRollout::of(&status);
        facts.at_hook = plan.and_then(AtHook::of);
        facts.step = plan.and_then(step_of);
        facts.beside.clone_from(&self.beside);
        facts.waits.clone_from(&self.waits);
        if self.passing {
            // It is no fault of the spec.
            facts.waits = facts.invalid.take();
        }
        facts.last_completed.clone_from(&status.last_completed_rollout_hash);
        facts.rejected = status.rejected.clone().filter(|r| facts.stays_rejected(r));
        let spec = &self.scope.spec;
        let image = crate::revision::main_image(&spec.template.spec).unwrap_or_default();
        let remark = if spec.update_strategy.type_.is_empty() {
            "updateStrategy.type is empty and is treated as InPlace; set it"
        } else {
            ""
        };
        let promoting = facts.set_rollout.as_ref().is_some_and(|r| r.stage == Stage::Promoting);
        let build_id = match facts.build_id.as_str() {
            "" if promoting && !status.build_id.is_empty() => status.build_id.clone(),
            "" => generated_build_id(image, &facts.requested),
            own => own.to_owned(),
        };
        let retry = meta.annotation(ANNOTATION_RETRY).unwrap_or_default();
        status.hook_retry = status.hook_retry.take().filter(|obeyed| obeyed.asked == retry);
        if status.spent_force_promote != spec.force_promote {
            status.spent_force_promote.clear();
        }
        let input = RefreshInput {
            name: &meta.name,
            generation: meta.generation,
            update_revision: &self.revision,
            build_id: &build_id,
            plan,
            superseded: facts.requested != self.scope.specified(),
            remark,
            now: self.now,
        };
        refresh(&mut status, &facts, &input);
        let before = &*self.stored.status;
        if !facts.terminating {
            let release = self.scope.release();
            release::refresh(&mut status, &release);
            if release::can_wait(before, &status, &release) {
                (status.deletion_policy, status.volume_claim_retention) = (None, None);
            }
        }
        // What a condition newly says is told at once, and never by an event before the status says it.
        let news = [conditions::UP_TO_DATE, conditions::ROLLOUT_IN_PROGRESS, conditions::STALLED];
        let says = |status: &NodeDeploymentStatus, type_: &str| {
            conditions::find(&status.conditions, type_).map(|c| (c.status.clone(), c.reason.clone()))
        };
        let is_news = news.iter().any(|type_| says(before, type_) != says(&status, type_));
        let stage = |status: &NodeDeploymentStatus| status.rollout.as_ref().map(|r| r.stage);
        let is_news = is_news || stage(before) != stage(&status);
        let carried = |status: &NodeDeploymentStatus| (status.deletion_policy, status.volume_claim_retention);
        let is_news = is_news || carried(before) != carried(&status);
        let urgency = if is_news { Urgency::Now } else { urgency };
        let next = save(self.cx, Kind::NodeDeployment, meta, before, &status, urgency).await?;
        for sentence in facts.invalid.iter().chain(&facts.beside) {
            self.tell(Tone::Warning, "InvalidSpec", &format!("{}/{sentence}", meta.generation), sentence);
        }
        for conflict in &facts.conflicts {
            self.tell(Tone::Warning, "InvalidSpec", &conflict.message, &conflict.message);
        }
        self.tell_of_hooks(&facts);
        let stalled =
            conditions::find(&status.conditions, conditions::STALLED).filter(|c| c.reason == "NoProgress");
        // A stall after some progress is another one.
        if let (Some(condition), Some(plan), Some(rollout)) = (stalled, plan, &status.rollout) {
            let cause = format!("{}/{}", plan.id, rollout.last_progress_at);
            self.tell(Tone::Warning, "RolloutStalled", &cause, &condition.message);
        }
        Ok(next)
    }

    /// When to look again although no event comes.
    fn wake(&self, next: Next, facts: &FleetFacts) -> Next {
        let status = &self.scope.fleet.status;
        let deadline = stall_deadline(status, facts).filter(|at| *at > self.now);
        let min_ready = TimeDelta::seconds(self.scope.spec.min_ready_seconds);
        let entrants = facts.entrants().into_iter().flat_map(|set| &set.children);
        let available = facts
            .children
            .iter()
            .chain(entrants)
            .filter(|c| !c.available)
            .filter_map(|c| c.ready_since)
            .map(|since| since + min_ready)
            .min();
        let overdue = progress::overdue_at(facts, self.now);
        let removals = status.retiring.iter().map(|set| facts.removal_of(set));
        let removal = removals.filter(|at| *at > self.now).min();
        let next = next.at(deadline, self.now).at(available, self.now).at(overdue, self.now);
        let next = next.at(removal, self.now);
        let next = if self.passing || self.unmarked { next.within(LOOK_SOON) } else { next };
        let in_doubt = |n: &Arc<ObservedNode>| self.scope.view.is_in_doubt(Kind::StatefulNode, &n.meta);
        let in_doubt = self.scope.children().iter().any(in_doubt);
        // Nodes that should be gone wait for their claims to be let go of, which not every watch shows.
        let is_kept = |set: &RetiringSet| {
            let nodes = facts.sets.get(&set.set).map(|s| s.children.as_slice()).unwrap_or_default();
            facts.removal_of(set) <= self.now && nodes.iter().any(|c| !c.terminating)
        };
        let kept = status.retiring.iter().any(is_kept)
            || (facts.active_set_goes() && facts.children.iter().any(|c| !c.terminating));
        if in_doubt || kept || facts.invalid.is_some() || self.beside.is_some() || !facts.conflicts.is_empty()
        {
            next.within(LOOK_AGAIN)
        } else {
            next
        }
    }

    fn tell_of_nodes(&self) {
        let told = std::mem::take(&mut *self.scope.told.lock().unwrap_or_else(PoisonError::into_inner));
        for Told { reason, cause, note } in told {
            self.tell(Tone::Normal, reason, &cause, &note);
        }
    }

    pub(super) fn tell(&self, tone: Tone, reason: &str, cause: &str, note: &str) {
        self.cx.events.send(Kind::NodeDeployment, &self.scope.fleet.meta, tone, reason, cause, note);
    }
}
