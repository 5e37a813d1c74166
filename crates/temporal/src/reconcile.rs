//! One look at a WorkerDeployment: what is, what should be, what is done about it. A plan is persisted before its first
//! task acts, and what a task did is persisted before the next one does.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use chrono::{DateTime, Utc};
use serde_json::{Value, json};
use windlass_core::api::conditions::{self, STALLED, Truth, UP_TO_DATE};
use windlass_core::api::names::{
    ANNOTATION_ABORT, ANNOTATION_RESTARTED_AT, ANNOTATION_RETRY, ANNOTATION_SKIP,
};
use windlass_core::api::{HistoryEntry, RawPlan, Rejected};
use windlass_engine::{Advance, Env, Plan, control, executor};

use crate::api::names::FINALIZER;
use crate::api::{Reason, WorkerDeploymentSpec, WorkerDeploymentStatus};
use crate::children::Children;
use crate::cluster::{Cluster, ClusterError, Kind};
use crate::context::Context;
use crate::events::{News, send};
use crate::observe::{self, Read};
use crate::planner::decide::Asked;
use crate::planner::sunset::{Act, Wanted, act};
use crate::planner::{Decision, Facts, Temporal as Said, decide, recipe, routing, status};
use crate::port::{BuildId, Paced, Temporal, TemporalError};
use crate::scope::WorkerScope;
use crate::tasks::workflow_id;

/// How soon something that moves is looked at again.
const MOVING: Duration = Duration::from_secs(3);
/// How soon it is when a version's state changed lately.
const LIVELY: Duration = Duration::from_secs(5);
/// For so long that is lately.
const LATELY: chrono::TimeDelta = chrono::TimeDelta::minutes(2);
/// How soon what is at rest is looked at again; jitter is added.
const REST: Duration = Duration::from_secs(30);
/// Right away.
const AT_ONCE: Duration = Duration::from_millis(100);
/// Of how many gates of a plan that ends the workflows are ended.
const GATES: usize = 20;

/// Looks at an object, and answers how long after it is to be looked at again; none: it is gone.
pub async fn look(cx: &Context, namespace: &str, name: &str) -> Result<Option<Duration>, ClusterError> {
    let cluster = Cluster::new(cx.client.clone(), namespace);
    let Some(object) = cluster.get(Kind::Workers, name).await? else {
        cx.metrics.gone(namespace, name);
        return Ok(None);
    };
    let read = Read::of(object);
    let has_finalizer = finalizers(&read.object).iter().any(|finalizer| finalizer == FINALIZER);
    if read.deleted_at().is_some() && !has_finalizer {
        cx.metrics.gone(namespace, name);
        return Ok(None);
    }
    let spec = match &read.spec {
        Ok(spec) => spec.clone(),
        Err(sentence) => return unreadable(cx, &cluster, &read, sentence).await.map(Some),
    };
    if !has_finalizer {
        let mut all = finalizers(&read.object);
        all.push(json!(FINALIZER));
        let op = json!({"op": "add", "path": "/metadata/finalizers", "value": all});
        cluster.patch(Kind::Workers, &read.object, false, vec![op]).await?;
        return Ok(Some(AT_ONCE));
    }
    Box::pin(Look::new(cx, cluster, read, spec).await?.run()).await.map(Some)
}

pub(crate) fn finalizers(object: &Value) -> Vec<Value> {
    object["metadata"]["finalizers"].as_array().cloned().unwrap_or_default()
}

async fn unreadable(
    cx: &Context,
    cluster: &Cluster,
    read: &Read,
    sentence: &str,
) -> Result<Duration, ClusterError> {
    let (now, generation) =
        (cx.clock.now(), read.object["metadata"]["generation"].as_i64().unwrap_or_default());
    let mut status = read.status.clone();
    status.observed_generation = generation;
    for (type_, truth) in [(UP_TO_DATE, Truth::False), (STALLED, Truth::True)] {
        let word = Reason::InvalidSpec.as_str();
        conditions::set(&mut status.conditions, type_, truth, word, sentence, generation, now);
    }
    save(cluster, read, &status).await?;
    Ok(REST)
}

/// Writes a status if it says something new, guarded by the resourceVersion that it was decided on.
pub(crate) async fn save(
    cluster: &Cluster,
    read: &Read,
    status: &WorkerDeploymentStatus,
) -> Result<(), ClusterError> {
    if *status == read.status && read.object["status"].is_object() {
        return Ok(());
    }
    let op = json!({"op": "add", "path": "/status", "value": observe::status_value(status)});
    cluster.patch(Kind::Workers, &read.object, true, vec![op]).await.map(drop)
}

/// One look.
pub(crate) struct Look<'a> {
    pub cx: &'a Context,
    pub cluster: Cluster,
    pub read: Read,
    pub facts: Facts,
    pub children: Arc<Children>,
    pub temporal: Option<Arc<dyn Temporal>>,
    pub told: Arc<Mutex<Vec<News>>>,
    pub now: DateTime<Utc>,
    retry_after: Option<Duration>,
}

impl<'a> Look<'a> {
    async fn new(
        cx: &'a Context,
        cluster: Cluster,
        read: Read,
        spec: WorkerDeploymentSpec,
    ) -> Result<Self, ClusterError> {
        let children = Children::read(&cluster, read.meta("name"), cx.compared.clone()).await?;
        let connection = spec.connection.clone();
        let port = cx.connections.connect(read.meta("namespace"), &connection).await;
        let port = port.map(|port| {
            let paced = Paced::new(port, connection, cx.pace.clone(), cx.metrics.clone());
            Arc::new(paced) as Arc<dyn Temporal>
        });
        let facts = observe::facts(&read, spec, &children, &port).await;
        let retry_after = match &port {
            Err(TemporalError::RateLimited { retry_after, .. }) => *retry_after,
            _ => None,
        };
        let children = Arc::new(children);
        let now = cx.clock.now();
        Ok(Self {
            cx,
            cluster,
            read,
            facts,
            children,
            temporal: port.ok(),
            told: Arc::default(),
            now,
            retry_after,
        })
    }

    pub(crate) fn tell(&self, news: News) {
        self.told.lock().unwrap_or_else(PoisonError::into_inner).push(news);
    }

    async fn run(mut self) -> Result<Duration, ClusterError> {
        if let Some(temporal) = self.temporal.clone() {
            observe::ask_for_missing(&mut self.facts, &*temporal).await;
        }
        if self.facts.deleted_at.is_some() {
            return crate::goodbye::go(self).await;
        }
        let plan = match self.read.status.plan.as_ref().map(RawPlan::parse).transpose() {
            Ok(plan) => plan,
            Err(sentence) => return self.end_unreadable(&sentence).await,
        };
        self.check(plan.as_ref()).await?;
        self.obey_restart();
        let asked = self.asked();
        let decision = decide(&self.facts, plan.as_ref(), &asked);
        match decision {
            Decision::Keep | Decision::Refuse { .. } => self.carry_on(plan, decision, &asked).await,
            decision => self.change(plan, decision).await,
        }
    }

    /// Whether what is wanted can be begun. The API server is asked once for each generation.
    async fn check(&mut self, plan: Option<&Plan>) -> Result<(), ClusterError> {
        let is_begun = plan.is_some_and(|plan| plan.target_hash == self.facts.target.hash);
        let exists = self.facts.target_version().is_some_and(|version| version.workers.is_some());
        if is_begun && exists || self.facts.is_at_target() {
            return Ok(());
        }
        match self.children.try_target(&self.facts).await {
            Ok(()) => Ok(()),
            Err(ClusterError::Refused(sentence)) => {
                let sentence = format!("spec.template: the API server refuses it: {sentence}");
                let cause = format!("{}/{sentence}", self.facts.generation);
                self.tell(News::warning("InvalidSpec", cause, sentence.clone()));
                self.facts.invalid = Some(sentence);
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// Only a restart later than the last one, and than the object itself, is obeyed.
    fn obey_restart(&mut self) {
        let Some(text) = self.read.annotation(ANNOTATION_RESTARTED_AT) else { return };
        let Ok(at) = text.parse::<DateTime<Utc>>() else {
            let note = format!(
                "{ANNOTATION_RESTARTED_AT} is {text:?}, which is no time (RFC 3339): nothing is restarted"
            );
            self.tell(News::warning("InvalidSpec", note.clone(), note));
            return;
        };
        let time = |text: Option<&str>| text.and_then(|text| text.parse::<DateTime<Utc>>().ok());
        let obeyed = time(self.facts.status.restarted_at.as_deref());
        let created = time(Some(self.read.meta("creationTimestamp")));
        if obeyed.max(created).is_none_or(|before| at > before) && !self.facts.spec.paused {
            self.facts.status.restarted_at = Some(text.to_owned());
        }
    }

    fn asked(&self) -> Asked {
        let retry = self.read.annotation(ANNOTATION_RETRY).map(str::to_owned);
        let spent = &self.read.status.spent_retry;
        Asked {
            abort: self.read.annotation(ANNOTATION_ABORT).map(str::to_owned),
            retry: retry.filter(|asked| spent.as_ref() != Some(asked)),
        }
    }

    /// Ends a plan, begins one, or both: in one write, before anything is done.
    async fn change(self, plan: Option<Plan>, decision: Decision) -> Result<Duration, ClusterError> {
        let (now, target) = (self.now, self.facts.target.clone());
        let mut status = self.facts.status.clone();
        let mut plan = plan;
        let mut new = None;
        let before = status.current_build_id.clone();
        match &decision {
            Decision::Record => {
                self.complete(&mut status);
            }
            Decision::Start(cause) => {
                let last = plan.as_ref().filter(|plan| plan.target_hash == target.hash);
                let attempt = last.map_or(0, |plan| plan.attempt.saturating_add(1));
                let fresh = recipe::plan(&self.facts, plan.as_ref(), attempt, now);
                let from = before.as_ref().map_or("nothing".to_owned(), ToString::to_string);
                let note = format!("rollout {} from {from} to {} begins", fresh.id, target.build);
                self.tell(News::normal("RolloutStarted", fresh.id.clone(), note));
                if let Some(rejected) = status.rejected.take() {
                    status.spent_retry = Some(rejected.plan_id);
                }
                status.cause = Some(cause.reason().as_str().to_owned());
                new = Some(fresh);
            }
            Decision::Supersede | Decision::End => {
                if let Some(old) = plan.as_mut() {
                    self.end_gates(old).await;
                    control::supersede(old, now);
                    let note = format!(
                        "the rollout to {} makes room for one to {} ({})",
                        old.target_hash, target.hash, target.build
                    );
                    self.tell(News::normal("RolloutSuperseded", old.id.clone(), note));
                    self.record(&mut status, old, "Superseded", "Superseded", "");
                }
                if decision == Decision::Supersede {
                    let fresh = recipe::plan(&self.facts, plan.as_ref(), 0, now);
                    status.cause = Some(Reason::Superseded.as_str().to_owned());
                    new = Some(fresh);
                }
            }
            Decision::Abort | Decision::RollBack { .. } => {
                if let Some(old) = plan.as_mut() {
                    self.give_up(&mut status, old, &decision).await;
                }
            }
            Decision::Keep | Decision::Refuse { .. } => {}
        }
        let shown = new.or(plan);
        status.plan = shown.as_ref().map(RawPlan::of).or(status.plan);
        status.update_revision = Some(Children::target_revision(&self.facts));
        self.finish(status, shown.as_ref(), &decision, &[]).await?;
        Ok(AT_ONCE)
    }

    async fn give_up(&self, status: &mut WorkerDeploymentStatus, old: &mut Plan, decision: &Decision) {
        let build = status.target_build_id.clone().unwrap_or_else(|| self.facts.target.build.clone());
        self.end_gates(old).await;
        let (outcome, reason, message) = if let Decision::RollBack { message } = decision {
            control::supersede(old, self.now);
            ("RolledBack", Reason::GateFailed, message.clone())
        } else {
            control::abort(old, self.now);
            ("Aborted", Reason::Aborted, String::new())
        };
        let event = if outcome == "RolledBack" { "RolledBack" } else { "RolloutAborted" };
        let why = if message.is_empty() { "a person asked for it" } else { &message };
        let note = format!("rollout {} to {build} is taken back: {why}", old.id);
        self.tell(News::warning(event, old.id.clone(), note));
        self.record(status, old, outcome, reason.as_str(), &message);
        status.rejected = Some(Rejected {
            hash: old.target_hash.clone(),
            build_id: build.to_string(),
            plan_id: old.id.clone(),
            outcome: outcome.to_owned(),
            message,
        });
    }

    fn complete(&self, status: &mut WorkerDeploymentStatus) {
        status.last_completed_rollout_hash = Some(self.facts.target.hash.clone());
        status.current_revision = Some(Children::target_revision(&self.facts));
        status.rejected = None;
        status.cause = None;
        if self.facts.is_promoted() {
            status.spent_force_promote.clone_from(&self.facts.spec.force_promote);
        }
    }

    fn record(
        &self,
        status: &mut WorkerDeploymentStatus,
        plan: &Plan,
        outcome: &str,
        reason: &str,
        message: &str,
    ) {
        self.cx.metrics.ended(outcome);
        let entry = HistoryEntry {
            plan_id: plan.id.clone(),
            recipe: plan.recipe.clone(),
            from_hash: status.last_completed_rollout_hash.clone().unwrap_or_default(),
            target_hash: plan.target_hash.clone(),
            outcome: outcome.to_owned(),
            reason: reason.to_owned(),
            message: windlass_engine::sentence::cut(message, 512),
            started_at: Some(plan.started_at),
            finished_at: plan.finished_at.or(Some(self.now)),
        };
        windlass_core::api::status::remember(&mut status.history, entry);
    }

    /// Ends the workflows of gates that nobody waits for any more: as long as one runs, its version is not retired. One that
    /// is missed ends at its time-out.
    async fn end_gates(&self, plan: &Plan) {
        let Some(temporal) = &self.temporal else { return };
        let Some(task) = plan.current_task().filter(|task| task.type_ == "run-gate") else { return };
        for index in 0..GATES {
            let id = workflow_id(task, index);
            match temporal.describe_gate(&id).await {
                Ok(crate::port::GateState::Running) => {
                    let reason = "the rollout that it was a gate of has ended";
                    let _ = temporal.end_gate(&id, reason, &self.facts.identity).await;
                }
                Ok(_) => {}
                // There are no more of them.
                Err(_) => return,
            }
        }
    }

    async fn end_unreadable(self, sentence: &str) -> Result<Duration, ClusterError> {
        let mut status = self.facts.status.clone();
        let raw = status.plan.clone().unwrap_or_default();
        let failed = raw.failed(&self.facts.uid, sentence, self.now);
        self.record(&mut status, &failed, "Failed", Reason::PlanFailed.as_str(), sentence);
        status.rejected = Some(Rejected {
            hash: self.facts.target.hash.clone(),
            build_id: self.facts.target.build.to_string(),
            plan_id: failed.id.clone(),
            outcome: "Failed".to_owned(),
            message: sentence.to_owned(),
        });
        status.plan = Some(RawPlan::of(&failed));
        self.tell(News::warning("RolloutFailed", failed.id.clone(), sentence));
        self.finish(status, Some(&failed), &Decision::Keep, &[]).await?;
        Ok(AT_ONCE)
    }

    /// Carries an active plan out, and beside it does what versions need.
    async fn carry_on(
        mut self,
        plan: Option<Plan>,
        decision: Decision,
        asked: &Asked,
    ) -> Result<Duration, ClusterError> {
        let mut status = self.facts.status.clone();
        let mut plan = plan;
        let active = plan.as_ref().is_some_and(Plan::is_active);
        if let Decision::Refuse { message, .. } = &decision {
            let cause = format!("{}/{}", self.facts.target.hash, self.facts.generation);
            self.tell(News::warning("VersionLimitReached", cause, message.clone()));
        }
        if let Some(plan) = plan.as_mut().filter(|plan| plan.is_active()) {
            self.skip(plan);
            if asked.retry.as_deref() == Some(plan.id.as_str()) && control::try_again(plan) {
                status.spent_retry.clone_from(&asked.retry);
                status.plan = Some(RawPlan::of(plan));
                // It is written before the gate is started anew.
                let shown = plan.clone();
                self.finish(status, Some(&shown), &decision, &[]).await?;
                return Ok(AT_ONCE);
            }
        }
        self.warn_of_stale_promotion();
        self.ask_for_pollers(active).await;
        let (forgotten, pending) = self.tend(active, plan.as_ref()).await?;
        let mut next = None;
        if let Some(plan) = plan.as_mut().filter(|plan| plan.is_active()) {
            // A plan to what is not wanted any more waits for its end, and does nothing.
            if plan.target_hash == self.facts.target.hash {
                next = self.advance(plan, &mut status).await;
            }
        } else {
            self.clear_stray_ramp().await;
            self.children.prune(&self.facts).await?;
        }
        status.update_revision = Some(Children::target_revision(&self.facts));
        self.tell_of_stall(plan.as_ref());
        let rest = self.rest(&status, plan.as_ref(), pending, next);
        self.finish(status, plan.as_ref(), &decision, &forgotten).await?;
        Ok(rest)
    }

    fn skip(&self, plan: &mut Plan) {
        let Some(task) = self.read.annotation(ANNOTATION_SKIP) else { return };
        if !task.starts_with(&plan.id) {
            return;
        }
        if let Err(refused) = control::skip(plan, task, &self.cx.registry, self.now) {
            let is_over = matches!(refused, control::SkipRefused::TaskOver { .. });
            if !is_over {
                self.tell(News::warning("SkipRefused", task, refused.to_string()));
            }
        }
    }

    fn warn_of_stale_promotion(&self) {
        let (Some(asked), target) = (&self.facts.spec.force_promote, &self.facts.target) else { return };
        let is_spent = self.facts.status.spent_force_promote.as_ref() == Some(asked)
            || self.facts.status.last_completed_rollout_hash.as_ref() == Some(asked)
            || self.facts.current().map(BuildId::as_str) == Some(asked.as_str());
        if *asked != target.hash && asked != target.build.as_str() && !is_spent {
            let note = format!(
                "spec.forcePromote is {asked}, and what is wanted is {} ({})",
                target.hash, target.build
            );
            self.tell(News::warning("StaleForcePromote", asked.clone(), note));
        }
    }

    /// The pollers of the version that a plan is about; and at rest, seldom, those of the current one.
    async fn ask_for_pollers(&mut self, active: bool) {
        let Some(temporal) = self.temporal.clone() else { return };
        let build =
            if active { Some(self.facts.target.build.clone()) } else { self.facts.current().cloned() };
        let Some(build) = build else { return };
        if active || self.cx.pollers_are_due(&self.facts.uid, &build) {
            observe::ask_for_pollers(&mut self.facts, &build, &*temporal).await;
        }
    }

    /// Does what versions need, each for itself. Answers with those of which nothing is left, and whether some is to go
    /// soon.
    async fn tend(
        &mut self,
        active: bool,
        plan: Option<&Plan>,
    ) -> Result<(Vec<BuildId>, bool), ClusterError> {
        let target = self.facts.target.build.clone();
        let is_target_planned = active && plan.is_some_and(|plan| plan.target_hash == self.facts.target.hash);
        let is_rejected = self.facts.status.rejected.is_some();
        let wanted = || Wanted {
            target: is_target_planned || (self.facts.is_at_target() && !is_rejected),
            planned: is_target_planned.then_some(&target),
        };
        let acts = |facts: &Facts, wanted: &Wanted<'_>| -> Vec<(BuildId, Act)> {
            facts.versions.values().map(|v| (v.build.clone(), act(facts, v, wanted, self.now))).collect()
        };
        let first = acts(&self.facts, &wanted());
        if let Some(temporal) = self.temporal.clone() {
            let counted = first.iter().filter(|(_, act)| *act == Act::Count);
            for build in counted.map(|(build, _)| build.clone()).collect::<Vec<_>>() {
                observe::count(&mut self.facts, &build, &*temporal).await;
            }
        }
        let wanted = Wanted {
            target: is_target_planned || (self.facts.is_at_target() && !is_rejected),
            planned: is_target_planned.then_some(&target),
        };
        let decided: Vec<(BuildId, Act)> = self
            .facts
            .versions
            .values()
            .map(|version| (version.build.clone(), act(&self.facts, version, &wanted, self.now)))
            .collect();
        let mut forgotten = Vec::new();
        let mut pending = false;
        for (build, act) in decided {
            // The plan's own task makes and updates the version that it is about.
            let is_planned = is_target_planned && build == target;
            match act {
                Act::Serve if is_planned => {}
                Act::Serve => {
                    let was_sunset =
                        self.facts.versions[&build].workers.as_ref().is_some_and(|w| w.is_sunset);
                    if self.children.serve(&self.facts, &build).await? && was_sunset {
                        let note = format!("workflows run on {build} again: its workers are given back");
                        self.tell(News::normal("VersionRevived", format!("{build}/{}", self.now), note));
                    }
                }
                Act::ScaleDown => {
                    self.children.scale_down(&build).await?;
                    let note = format!("no workflow runs on {build}: it has no more pods");
                    self.tell(News::normal("VersionScaledDown", format!("{build}/{}", self.now), note));
                    pending = true;
                }
                Act::DeleteWorkers => {
                    self.children.delete(&build).await?;
                    let note = format!("no workflow runs on {build}: its Deployment is deleted");
                    self.tell(News::normal("VersionDeleted", format!("{build}/{}", self.now), note));
                    pending = true;
                }
                Act::DeleteRecord => {
                    pending = true;
                    self.delete_record(&build, false).await;
                }
                Act::Forget => forgotten.push(build),
                Act::Count => pending = true,
                Act::Leave => {}
            }
        }
        Ok((forgotten, pending))
    }

    /// Asks Temporal to forget a version: seldom, since each time it looks at the drainage anew.
    pub(crate) async fn delete_record(&self, build: &BuildId, skip_drainage: bool) {
        let (Some(temporal), None) = (&self.temporal, self.facts.other_manager()) else { return };
        if !self.cx.may_delete(&self.facts.uid, build) {
            return;
        }
        let of = &self.facts.deployment;
        if let Err(error) = temporal.delete_version(of, build, skip_drainage, &self.facts.identity).await {
            tracing::debug!(%of, %build, %error, "Temporal does not forget a version yet");
        }
    }

    async fn clear_stray_ramp(&self) {
        let (Some(write), Some(temporal)) = (routing::stray_ramp(&self.facts, false), &self.temporal) else {
            return;
        };
        let Some(guard) = self.scope().guard() else { return };
        if temporal.set_routing(&self.facts.deployment, &write, &guard).await.is_ok() {
            let note = "a ramp that belongs to no rollout is taken back: all tasks go to the current version";
            self.tell(News::normal("RampCleared", self.now.to_string(), note));
        }
    }

    pub(crate) fn scope(&self) -> WorkerScope {
        WorkerScope {
            facts: Arc::new(self.facts.clone()),
            temporal: self.temporal.clone(),
            children: self.children.clone(),
            told: self.told.clone(),
        }
    }

    async fn advance(&self, plan: &mut Plan, status: &mut WorkerDeploymentStatus) -> Option<Duration> {
        let env = Env::new().with(self.scope());
        let patience = i64::from(self.facts.spec.progress_deadline_seconds);
        let advance = executor::advance(plan, &self.cx.registry, &env, self.now, patience).await;
        status.plan = Some(RawPlan::of(plan));
        match advance {
            Advance::Waiting { recheck_after } => recheck_after,
            Advance::Checkpoint | Advance::Held | Advance::Invalidated { .. } => Some(AT_ONCE),
            Advance::Ended => {
                if plan.state == windlass_engine::PlanState::Complete {
                    let note = format!("{} is the current version", self.facts.target.build);
                    self.tell(News::normal("RolloutComplete", plan.id.clone(), note));
                    self.record(status, plan, "Complete", Reason::RolloutComplete.as_str(), "");
                    self.complete(status);
                } else {
                    self.tell(News::warning("RolloutFailed", plan.id.clone(), plan.failure.clone()));
                    self.record(status, plan, "Failed", Reason::PlanFailed.as_str(), &plan.failure);
                    status.rejected = Some(Rejected {
                        hash: plan.target_hash.clone(),
                        build_id: self.facts.target.build.to_string(),
                        plan_id: plan.id.clone(),
                        outcome: "Failed".to_owned(),
                        message: plan.failure.clone(),
                    });
                }
                Some(AT_ONCE)
            }
        }
    }

    fn tell_of_stall(&self, plan: Option<&Plan>) {
        let Some(task) = plan.and_then(|plan| windlass_engine::stalled(plan, self.now)) else { return };
        let note = format!("task {} gets no further: {}", task.type_, task.message);
        self.tell(News::warning("RolloutStalled", task.id.clone(), note));
    }

    fn rest(
        &self,
        status: &WorkerDeploymentStatus,
        plan: Option<&Plan>,
        pending: bool,
        next: Option<Duration>,
    ) -> Duration {
        let jitter = Duration::from_millis(self.cx.jitter(&self.facts.uid, 10_000));
        let is_lost = matches!(self.facts.temporal, Said::Lost { .. });
        if is_lost {
            let since = status.temporal_lost_at.map_or(0, |at| (self.now - at).num_seconds().max(0));
            let wait = Duration::from_secs((since as u64 / 4).clamp(3, 30));
            return self.retry_after.map_or(wait, |asked| asked.max(wait));
        }
        if let Some(next) = next {
            let waits_for_somebody = plan.and_then(Plan::current_task).is_some_and(|task| {
                task.type_ == "await-promote" || task.state == windlass_engine::TaskState::Failed
            });
            return if waits_for_somebody { REST + jitter } else { next };
        }
        if pending {
            return MOVING;
        }
        let changed =
            |since: Option<DateTime<Utc>>| since.is_some_and(|at| at <= self.now && self.now - at < LATELY);
        let is_lively = status.versions.iter().any(|version| changed(version.since));
        let wanted = if is_lively { LIVELY } else { REST + jitter };
        let dues = self.facts.versions.values().filter_map(|v| crate::planner::sunset::due(&self.facts, v));
        let soonest = dues.flat_map(|due| [due.scale_down, due.delete]).filter(|at| *at > self.now).min();
        let left = soonest.and_then(|at| (at - self.now).to_std().ok());
        left.map_or(wanted, |left| wanted.min(left.max(AT_ONCE)))
    }

    /// Writes the status, and tells what is to be told once it is written.
    pub(crate) async fn finish(
        &self,
        mut status: WorkerDeploymentStatus,
        plan: Option<&Plan>,
        decision: &Decision,
        forgotten: &[BuildId],
    ) -> Result<(), ClusterError> {
        let mut facts = self.facts.clone();
        facts.status = status.clone();
        status::refresh(&mut status, &facts, plan, decision, forgotten, self.now);
        let lost = matches!(facts.temporal, Said::Lost { .. });
        let with_workers = facts.versions.values().filter(|version| version.workers.is_some()).count();
        self.cx.metrics.seen(&facts.namespace, &facts.name, with_workers, lost);
        save(&self.cluster, &self.read, &status).await?;
        let told = std::mem::take(&mut *self.told.lock().unwrap_or_else(PoisonError::into_inner));
        for news in told {
            if self.cx.is_news(&facts.uid, &news) {
                send(&self.cluster, &self.read.object, &news, &self.cx.instance, self.now).await;
            }
        }
        Ok(())
    }
}
