//! How a fleet's plans end and begin: each in one write, which does nothing else.

use std::time::Duration;

use super::events::Tone;
use super::fleet::{News, Reconcile};
use super::save::Urgency;
use super::{Next, ReconcileError};
use crate::api::{NodeDeploymentStatus, RawPlan, Stage};
use crate::clock::monotonic;
use crate::cluster::Kind;
use crate::cluster::memory::Nameless;
use crate::engine::{self, Plan, PlanSeed, PlanState};
use crate::planner::fleet::decide::Start;
use crate::planner::fleet::failed::fail;
use crate::planner::fleet::hooks::{self, Course};
use crate::planner::fleet::sets::{naming, stage, status as set_status};
use crate::planner::fleet::status::{Ending, begin, complete, end, note_asked, reject, short};
use crate::planner::fleet::verdicts::why_stalled;
use crate::planner::fleet::{Cause, FleetDecision, FleetFacts, Scope, SetRollout, Way};

/// The kinds of objects whose names a set's could meet.
pub const KINDS_OF_A_SET: [Kind; 5] =
    [Kind::StatefulNode, Kind::StatefulSet, Kind::Service, Kind::Pod, Kind::PersistentVolumeClaim];

/// How soon it is asked again which names are taken, where none was free.
const ASK_FOR_NAMES: Duration = Duration::from_secs(25);
/// How soon it is asked again where that was not answered just now.
const ASK_ONCE_MORE: Duration = Duration::from_secs(4);
/// For how long it may stay unanswered before that is more than a moment.
const A_MOMENT: Duration = Duration::from_secs(10);

/// How soon it is looked at again where traffic could not be moved back yet.
const LOOK_ONCE_MORE: Duration = Duration::from_secs(1);

/// Why an active plan without its rollout cannot be carried out.
const NO_ROLLOUT: &str = "status.rollout, which says where the plan goes, is missing or cannot be read";
/// Why a promotion without its plan cannot be carried on.
const NO_PLAN: &str = "status.plan, which says how the promotion goes, is missing";

impl Reconcile<'_> {
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

    pub(super) async fn end_unreadable(
        &self,
        facts: &FleetFacts,
        mut plan: Plan,
    ) -> Result<Next, ReconcileError> {
        let mut status = (*self.scope.fleet.status).clone();
        if let Some(rollout) = status.rollout.as_ref().filter(|_| plan.recipe.is_empty()) {
            plan.recipe.clone_from(&rollout.recipe);
            plan.target_hash.clone_from(&rollout.target_hash);
        }
        if plan.state == PlanState::Superseded {
            end(&mut status, &plan, Ending::Superseded, "RolloutLost", self.now);
            let next = self.write(status, Some(&plan), Urgency::Now).await?;
            let to = short(&plan.target_hash);
            let note = format!(
                "the plan to {to} is given up: status.rollout is lost, and nothing tells which nodes it has made; what is \
                 wanted is begun anew"
            );
            self.tell(Tone::Normal, "RolloutSuperseded", &plan.id, &note);
            return Ok(next);
        }
        if plan.state == PlanState::Complete {
            end(&mut status, &plan, Ending::Complete, "", self.now);
            status.rollout = None;
            let next = self.write(status, Some(&plan), Urgency::Now).await?;
            let (tone, reason, cause, note) = completed(facts, &plan);
            self.tell(tone, reason, &cause, &note);
            return Ok(next);
        }
        fail(&mut status, facts, &plan, "Unreadable", self.now);
        let next = self.write(status, Some(&plan), Urgency::Now).await?;
        self.tell(Tone::Warning, "RolloutFailed", &plan.id, &plan.failure);
        Ok(next)
    }

    /// The name of the set that a decision makes; empty where it makes none. An error is why there is no name.
    pub(super) async fn name_for(
        &self,
        facts: &FleetFacts,
        decision: &FleetDecision,
    ) -> Result<String, Nameless> {
        let (FleetDecision::Start(start)
        | FleetDecision::Supersede(start)
        | FleetDecision::CompleteAndStart(start)) = decision
        else {
            return Ok(String::new());
        };
        if !start.way.makes_set() {
            return Ok(String::new());
        }
        if let Some(rollout) = facts.same_set(start) {
            return Ok(rollout.entrant.clone());
        }
        if let Some(set) = facts.living_set(self.now) {
            return Ok(set.to_owned());
        }
        let meta = &self.scope.fleet.meta;
        // Lists cost much where there is much; a name that was not free a moment ago is not asked for again.
        let known = &self.scope.memory.nameless;
        let question = (meta.uid.clone(), start.target.clone());
        let (before, asked) = (known.get(&question), monotonic());
        let age = |nameless: &Nameless| asked.duration_since(nameless.asked);
        let wait = |nameless: &Nameless| if is_passing(nameless) { ASK_ONCE_MORE } else { ASK_FOR_NAMES };
        if let Some(nameless) = before.as_ref().filter(|nameless| age(nameless) < wait(nameless)) {
            return Err(nameless.clone());
        }
        let nameless = match self.taken_names().await {
            Ok(taken) => {
                let first_choice = naming::first_choice(&start.target, &facts.build_id);
                match naming::choose(&meta.name, &first_choice, facts.replicas, &taken) {
                    Ok(set) => {
                        known.take(&question);
                        return Ok(set);
                    }
                    Err(sentence) => Nameless { sentence, asked, unanswered_since: None },
                }
            }
            Err(sentence) => {
                // What was not answered long ago is another matter.
                let lately = before.filter(|nameless| age(nameless) < ASK_FOR_NAMES * 2);
                let since = lately.and_then(|nameless| nameless.unanswered_since).unwrap_or(asked);
                Nameless { sentence, asked, unanswered_since: Some(since) }
            }
        };
        known.put(question, nameless.clone());
        Err(nameless)
    }

    async fn taken_names(&self) -> Result<Vec<String>, String> {
        let mut taken = Vec::new();
        for kind in KINDS_OF_A_SET {
            let names = self.scope.cluster.names(kind, &self.scope.fleet.meta.namespace).await;
            taken.extend(names.map_err(|error| {
                format!(
                    "a new set of nodes cannot be named now: listing every {} failed: {error}",
                    kind.name()
                )
            })?);
        }
        Ok(taken)
    }

    /// Ends and starts plans, in one write, and does nothing else.
    pub(super) async fn change_plan(
        &self,
        facts: &FleetFacts,
        plan: Option<Plan>,
        decision: FleetDecision,
        entrant: &str,
    ) -> Result<Next, ReconcileError> {
        let mut status = (*self.scope.fleet.status).clone();
        // What was wanted before is observed for the last time under the hashes of now.
        status.requested_rollout_hash.clone_from(&facts.requested);
        let (ending, start) = match decision {
            FleetDecision::Start(start) => (None, Some(start)),
            FleetDecision::Supersede(start) => (Some((Ending::Superseded, "NewTarget")), Some(start)),
            FleetDecision::CompleteAndStart(start) => (Some((Ending::Complete, "")), Some(start)),
            FleetDecision::RollBack(start) => (Some((Ending::RolledBack, why_back(facts))), Some(start)),
            FleetDecision::TakeBack => (Some((Ending::RolledBack, why_back(facts))), None),
            FleetDecision::Withdraw => (Some((Ending::Superseded, "BackToCompleted")), None),
            FleetDecision::Abort => (Some((Ending::Aborted, "AbortRequested")), None),
            FleetDecision::ScaledToZero => (Some((Ending::Superseded, "ScaledToZero")), None),
            FleetDecision::Resume(start) => return self.resume(facts, plan.as_ref(), &start).await,
            FleetDecision::Keep => (None, None),
        };
        let mut shown = plan.clone();
        let mut told: Vec<News> = Vec::new();
        if let Some(old) = plan.as_ref().filter(|_| ending.is_some()) {
            self.delete_jobs(old).await?;
            let gives_up = matches!(ending, Some((Ending::RolledBack | Ending::Aborted, _)));
            let rollout = facts.set_rollout.as_ref().filter(|r| r.stage == Stage::Promoting);
            if let Some(rollout) = rollout.filter(|_| gives_up) {
                if !self.move_back(rollout).await? {
                    return Ok(Next::on_event().within(LOOK_ONCE_MORE));
                }
                set_status::moved_back(&mut status, self.now);
            }
        }
        if let (Some(mut old), Some((ending, reason))) = (plan.clone(), ending) {
            match ending {
                Ending::Aborted => drop(engine::abort(&mut old, self.now)),
                Ending::Complete => {
                    old.state = PlanState::Complete;
                    old.finished_at = Some(self.now);
                }
                _ => drop(engine::supersede(&mut old, self.now)),
            }
            if start.is_none() {
                // What ends it was asked of it, and not of what comes after.
                note_asked(&mut status, facts);
            }
            end(&mut status, &old, ending, reason, self.now);
            told.extend(ended(&mut status, facts, &old, ending, start.as_ref()));
            if start.as_ref().is_none_or(|start| facts.same_set(start).is_none()) {
                set_status::give_up(&mut status, facts, self.now);
            }
            shown = Some(old);
        }
        // One that lost its plan and goes elsewhere by another gives up what it made as well.
        let goes_on = start.as_ref().is_some_and(|start| facts.same_set(start).is_some());
        if facts.under_way.is_some() && !goes_on && !plan.as_ref().is_some_and(Plan::is_active) {
            set_status::give_up(&mut status, facts, self.now);
        }
        if let Some(start) = &start {
            let before = plan.as_ref().map(|p| p.id.clone()).unwrap_or_default();
            let course = Course {
                cause: Some(start.cause),
                own: start.scope == Scope::Own,
                is_way_back: matches!(ending, Some((Ending::RolledBack, _))),
                is_past_return: false,
            };
            let plan = self.plan_for(start, &before, course)?;
            begin(&mut status, facts, start, &plan, &self.revision_of(&start.target), self.now);
            if start.way.makes_set() {
                set_status::begin(&mut status, facts, start.way, entrant);
            }
            if !matches!(ending, Some((Ending::Superseded | Ending::RolledBack, _))) {
                let note = format!("{} to {} ({})", plan.recipe, short(&start.target), start.cause.as_str());
                told.push((Tone::Normal, "RolloutStarted", plan.id.clone(), note));
            }
            shown = Some(plan);
        } else {
            status.rollout = None;
        }
        let next = self.write(status, shown.as_ref(), Urgency::Now).await?;
        for (tone, reason, cause, note) in told {
            self.tell(tone, reason, &cause, &note);
        }
        Ok(next)
    }

    /// Another plan for a promotion whose plan has failed: the same way, to the same target, over the same nodes and at
    /// the same height. It stays past taking back.
    async fn resume(
        &self,
        facts: &FleetFacts,
        failed: Option<&Plan>,
        start: &Start,
    ) -> Result<Next, ReconcileError> {
        let mut status = (*self.scope.fleet.status).clone();
        let before = failed.map(|plan| plan.id.as_str()).unwrap_or_default();
        let course =
            Course { cause: Some(start.cause), own: false, is_way_back: false, is_past_return: true };
        let plan = self.plan_for(start, before, course)?;
        status.plan = Some(RawPlan::of(&plan));
        if let Some(rollout) = status.rollout.as_mut() {
            start.cause.as_str().clone_into(&mut rollout.cause);
            rollout.last_progress_at = self.now;
        }
        note_asked(&mut status, facts);
        let next = self.write(status, Some(&plan), Urgency::Now).await?;
        let note = format!("{} to {} ({})", plan.recipe, short(&start.target), start.cause.as_str());
        self.tell(Tone::Normal, "RolloutStarted", &plan.id, &note);
        Ok(next)
    }

    /// The plan that a rollout is carried out by.
    pub(super) fn plan_for(
        &self,
        start: &Start,
        before: &str,
        course: Course,
    ) -> Result<Plan, ReconcileError> {
        let recipe = self.cx.registry.recipe(start.way.recipe());
        let recipe = recipe.map_err(|e| ReconcileError::Plan(e.to_string()))?;
        Ok(self.wanted_hooks(course).in_recipe(recipe).plan(PlanSeed {
            uid: &self.scope.fleet.meta.uid,
            target_hash: &start.target,
            now: self.now,
            attempt: 0,
            disambiguator: before,
        }))
    }

    /// Ends a plan whose completed steps no longer hold, and begins another to the same target.
    pub(super) fn begin_again(
        &self,
        status: &mut NodeDeploymentStatus,
        facts: &FleetFacts,
        scope: &Scope,
        old: &Plan,
        reason: &str,
    ) -> Result<Plan, ReconcileError> {
        end(status, old, Ending::Superseded, reason, self.now);
        let set = SetRollout::of(status);
        let start = Start {
            scope: scope.clone(),
            target: old.target_hash.clone(),
            cause: Cause::ChildDrift,
            way: set.as_ref().map_or(Way::InPlace, |set| set.way),
        };
        // Before the rollout is begun anew below.
        let cause = status.rollout.as_ref().and_then(|r| Cause::of(&r.cause)).or(Some(start.cause));
        let course = Course::of(status)
            .map_or(Course { cause, own: false, is_way_back: false, is_past_return: false }, |course| {
                Course { cause, ..course }
            });
        let next = self.plan_for(&start, &old.id, course)?;
        let Some(set) = set else {
            let cause = status.rollout.as_ref().map(|r| r.cause.clone()).unwrap_or_default();
            begin(status, facts, &start, &next, &self.revision_of(&start.target), self.now);
            if let Some(rollout) = status.rollout.as_mut().filter(|_| !cause.is_empty()) {
                rollout.cause = cause;
            }
            return Ok(next);
        };
        // Its set of nodes stays, and so does that it cannot be taken back where that is so.
        status.plan = Some(RawPlan::of(&next));
        if let Some(rollout) = status.rollout.as_mut().filter(|_| set.is_revocable()) {
            rollout.stage = set.way.first_stage();
        }
        Ok(next)
    }

    /// Takes into the status how far the plan of a rollout that makes a set came. What cannot be undone is only done
    /// once this says so.
    pub(super) fn move_on(
        &self,
        status: &mut NodeDeploymentStatus,
        facts: &FleetFacts,
        plan: &Plan,
    ) -> Option<News> {
        let rollout = SetRollout::of(status)?;
        if rollout.stage == Stage::Promoting && stage::has_promoted(plan) {
            return Some(self.promoted(status, facts, &rollout, plan));
        }
        let next = stage::stage_of(plan, rollout.stage, rollout.way);
        if next == Stage::Promoting && rollout.is_revocable() {
            // The tasks beyond wait until this is recorded.
            if facts.may_pass_no_return(&rollout) {
                set_status::pass_no_return(status, facts);
            }
        } else if let Some(rollout) = status.rollout.as_mut() {
            rollout.stage = next;
        }
        None
    }

    fn promoted(
        &self,
        status: &mut NodeDeploymentStatus,
        facts: &FleetFacts,
        rollout: &SetRollout,
        plan: &Plan,
    ) -> News {
        set_status::switched(status, facts, self.now);
        let (set, before) = (&rollout.entrant, &rollout.incumbent);
        let note = format!("set {set} serves {} in place of set {before}", short(&rollout.target));
        (Tone::Normal, "Promoted", plan.id.clone(), note)
    }

    /// Takes the end of a plan into the status.
    pub(super) fn plan_ended(
        &self,
        status: &mut NodeDeploymentStatus,
        facts: &FleetFacts,
        plan: &Plan,
        scope: &Scope,
    ) -> Vec<News> {
        if plan.state != PlanState::Complete {
            fail(status, facts, plan, &plan.failure, self.now);
            return vec![(Tone::Warning, "RolloutFailed", plan.id.clone(), plan.failure.clone())];
        }
        let mut told = Vec::new();
        end(status, plan, Ending::Complete, "", self.now);
        if let Some(rollout) = SetRollout::of(status) {
            if rollout.stage != Stage::Retiring {
                told.push(self.promoted(status, facts, &rollout, plan));
            }
            status.rollout = None;
        } else {
            complete(status, scope);
            if *scope == Scope::Target(facts.requested.clone()) {
                status.active_build_id.clone_from(&facts.build_id);
            }
        }
        told.push(completed(facts, plan));
        told
    }
}

/// The word in history for why a rollout goes back.
fn why_back(facts: &FleetFacts) -> &'static str {
    if hooks::rolls_back(facts) { "HookFailed" } else { "Stalled" }
}

/// Whether what a rollout that is there has done can still be taken back.
fn is_before_return(stage: Stage) -> bool {
    !matches!(stage, Stage::Promoting | Stage::Retiring)
}

/// Whether a set has no name only because it could not be asked for a moment which names are taken.
pub(super) fn is_passing(nameless: &Nameless) -> bool {
    nameless.unanswered_since.is_some_and(|since| nameless.asked.duration_since(since) < A_MOMENT)
}

fn completed(facts: &FleetFacts, plan: &Plan) -> News {
    let note = format!("the rollout to {} is complete on {} nodes", short(&plan.target_hash), facts.replicas);
    (Tone::Normal, "RolloutComplete", plan.id.clone(), note)
}

fn ended(
    status: &mut NodeDeploymentStatus,
    facts: &FleetFacts,
    old: &Plan,
    ending: Ending,
    start: Option<&Start>,
) -> Option<News> {
    let from = short(&old.target_hash);
    match (ending, start) {
        (Ending::Superseded, Some(start)) => {
            let (to, why) = (short(&start.target), start.cause.as_str());
            let note = format!("the rollout to {from} is superseded by one to {to} ({why})");
            Some((Tone::Normal, "RolloutSuperseded", old.id.clone(), note))
        }
        (Ending::Superseded, None) if facts.set_rollout.is_some() && facts.replicas > 0 => {
            let to = short(&facts.last_completed);
            let note = format!("the rollout to {from} is superseded: {to} is wanted again, and serves");
            Some((Tone::Normal, "RolloutSuperseded", old.id.clone(), note))
        }
        (Ending::Complete, _) => Some(completed(facts, old)),
        (Ending::Aborted, _) => {
            reject(status, facts, old, Ending::Aborted);
            let note = format!("the rollout to {from} was aborted; nodes stay at what they run");
            Some((Tone::Warning, "RolloutAborted", old.id.clone(), note))
        }
        (Ending::RolledBack, _) => {
            let by_hook = hooks::failure(facts).filter(|_| hooks::rolls_back(facts));
            let what = if by_hook.is_some() { "failed at a hook" } else { "stalled" };
            let stalled = || status.rollout.as_ref().map(why_stalled).unwrap_or_default();
            let why = by_hook.unwrap_or_else(stalled);
            reject(status, facts, old, Ending::RolledBack);
            let to = short(&facts.last_completed);
            let note = format!("the rollout to {from} {what} and is rolled back to {to}: {why}");
            if let Some(rejected) = status.rejected.as_mut() {
                rejected.message.clone_from(&why);
            }
            if let Some(entry) = status.history.last_mut() {
                let said = [why, std::mem::take(&mut entry.message)];
                entry.message = said.iter().filter(|s| !s.is_empty()).cloned().collect::<Vec<_>>().join("; ");
            }
            Some((Tone::Warning, "RolledBack", old.id.clone(), note))
        }
        _ => None,
    }
}
