//! The report of a fleet: its rollout, its plan, what it waits for, and its nodes.

use chrono::{DateTime, TimeDelta, Utc};
use serde::Serialize;

use super::images;
use super::node::{self, Goal};
use super::requests::not_begun;
use super::{Health, NodeReport, Seen, age, node_seconds};
use windlass_core::api::conditions::{
    self, DISRUPTION_BUDGET_READY, READY, RECONCILING, STALLED, TOPOLOGY_KNOWN, Truth, UP_TO_DATE,
};
use windlass_core::api::names::ANNOTATION_LAST_REQUEST;
use windlass_core::api::{
    FleetPhase, HookStatus, LastRequest, NodeDeploymentSpec, NodeDeploymentStatus, Reason, Rollout, Stage,
};
use windlass_core::planner::fleet::requests;
use windlass_core::planner::fleet::sets::stage::took_over;
use windlass_core::revision;
use windlass_engine::{PlanState, TaskState};
use windlass_kube_port::observed::ObservedFleet;

/// Whether a fleet's spec is carried out.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd, Serialize)]
pub enum Verdict {
    /// It cannot be: the spec is invalid, or the API server refuses it.
    Refused,
    /// It is blocked until somebody acts.
    Stalled,
    /// It is in progress, or waits for a person or a time.
    Progressing,
    /// It has 0 replicas and a target that has not completed: the target starts with the next scale-up.
    ScaledToZero,
    UpToDate,
}

impl Verdict {
    /// The exit code of `--exit-status` and `windlass wait`.
    #[must_use]
    pub fn exit_code(self) -> u8 {
        match self {
            Self::UpToDate => 0,
            Self::Refused | Self::Stalled => 1,
            Self::Progressing | Self::ScaledToZero => 3,
        }
    }

    /// True if nothing is in progress or wrong.
    #[must_use]
    pub fn is_at_rest(self) -> bool {
        matches!(self, Self::UpToDate | Self::ScaledToZero)
    }

    fn of(seen: &Seen) -> Self {
        let (meta, status) = (&seen.fleet.meta, &seen.fleet.status);
        let condition = |type_: &str| conditions::find(&status.conditions, type_);
        let is_current = status.observed_generation == meta.generation;
        if !is_current || meta.terminating {
            return Self::Progressing;
        }
        let refused = |c: &conditions::Condition| {
            c.reason == Reason::InvalidSpec.as_ref() && c.status != Truth::Unknown.as_ref()
        };
        if [STALLED, UP_TO_DATE].into_iter().filter_map(condition).any(refused) {
            return Self::Refused;
        }
        if not_begun(&seen.fleet).is_some() {
            return Self::Progressing;
        }
        if conditions::is_true(&status.conditions, STALLED) {
            return Self::Stalled;
        }
        let replicas = seen.fleet.spec.as_ref().map_or(0, |spec| spec.replicas);
        let is_settled = condition(RECONCILING).is_some_and(|c| c.status == Truth::False.as_ref());
        if replicas == 0 && is_settled {
            // What ran last may differ from the target.
            let has_completed = !status.requested_rollout_hash.is_empty()
                && status.last_completed_rollout_hash == status.requested_rollout_hash;
            return if has_completed { Self::UpToDate } else { Self::ScaledToZero };
        }
        // Once traffic has moved, the target serves; the removal of the old set is not waited for.
        let is_over = status.rollout.as_ref().is_none_or(|rollout| rollout.stage == Stage::Retiring);
        let serves = conditions::is_true(&status.conditions, READY) && status.replicas == replicas;
        if is_over && serves && conditions::is_true(&status.conditions, UP_TO_DATE) {
            return Self::UpToDate;
        }
        Self::Progressing
    }
}

/// The progress of an in-place rollout in waves.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
pub struct Wave {
    /// The current wave, from 1.
    pub number: i32,
    /// The number of waves.
    pub of: i32,
}

/// An active rollout.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RolloutReport {
    /// Why it started: a reason of the condition RolloutInProgress.
    pub cause: String,
    pub stage: Stage,
    /// When it started.
    pub started_at: DateTime<Utc>,
    /// The desired number of nodes.
    pub total: i32,
    /// The nodes observed at the target.
    pub updated: i32,
    /// The Ready nodes, whatever they run.
    pub ready: i32,
    /// The disrupted nodes.
    pub disrupted: i32,
    /// The nodes that cannot run what they were granted.
    pub failed: i32,
    /// The wave; absent unless nodes are updated in place.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wave: Option<Wave>,
    /// How many failure domains may have unavailable nodes, if nodes are updated in place and there is such a limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub domains_at_once: Option<i32>,
    /// Its age, in seconds.
    pub elapsed_seconds: i64,
    /// The estimated remaining time, in seconds, from the nodes that it has moved; absent without an estimate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub about_left_seconds: Option<i64>,
    /// How long until it counts as stalled without progress, in seconds; 0 if it does; absent while its clock is
    /// stopped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stalls_in_seconds: Option<i64>,
    /// The image that it replaces, if nodes still run it; else empty.
    pub from_image: String,
    /// The target's image; empty if no object that was read has it.
    pub to_image: String,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PlanReport {
    pub id: String,
    pub recipe: String,
    pub state: PlanState,
    /// When it started.
    pub started_at: DateTime<Utc>,
    /// When it ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<DateTime<Utc>>,
    pub tasks: Vec<TaskReport>,
    /// Why it failed.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub failure: String,
}

/// A task of a plan.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TaskReport {
    pub id: String,
    #[serde(rename = "type")]
    pub type_: String,
    /// Its hook; empty if it has none.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub hook: String,
    pub state: TaskState,
    /// What it waits for, or why it failed.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// When it started.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started_at: Option<DateTime<Utc>>,
    /// When it ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<DateTime<Utc>>,
}

impl PlanReport {
    /// Reports on a stored plan; `None` if it cannot be read.
    #[must_use]
    pub fn of(plan: &windlass_core::api::RawPlan) -> Option<Self> {
        let plan = plan.parse().ok()?;
        let tasks = plan.tasks.into_iter().map(|task| TaskReport {
            hook: task.params["hook"].as_str().unwrap_or_default().to_owned(),
            id: task.id,
            type_: task.type_,
            state: task.state,
            message: task.message,
            started_at: task.started_at,
            finished_at: task.finished_at,
        });
        Some(Self {
            id: plan.id.into(),
            recipe: plan.recipe,
            state: plan.state,
            started_at: plan.started_at,
            finished_at: plan.finished_at,
            tasks: tasks.collect(),
            failure: plan.failure,
        })
    }
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FleetReport {
    pub namespace: String,
    pub name: String,
    /// InPlace, BlueGreen or HardFork.
    pub strategy: String,
    pub phase: String,
    /// Whether its spec is carried out.
    pub verdict: Verdict,
    /// A short summary: `Updating 2/5`, or the phase.
    pub summary: String,
    /// What it waits for, or what blocks it, in a sentence; may be empty.
    pub waiting_for: String,
    /// Since when, if a node blocks it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waiting_since: Option<DateTime<Utc>>,
    /// Requests without effect, what its strategy does not support, why it has no PodDisruptionBudget, and what it
    /// waits for in addition to its rollout, such as a drain, each in a sentence.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub remarks: Vec<String>,
    /// Who paused it and why, if `windlass pause` recorded that: `alice: vacuum first`; empty while it is not paused.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub paused_by: String,
    /// `spec.replicas`.
    pub replicas: i32,
    /// The image of its template.
    pub image: String,
    pub active_set: String,
    /// The set that gets traffic: it differs from the active set until the hooks of a promotion are done.
    #[serde(skip)]
    pub traffic_set: String,
    /// The active rollout.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rollout: Option<RolloutReport>,
    /// The active plan, or the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plan: Option<PlanReport>,
    /// The hooks that failed, and those that wait for a person.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub hooks: Vec<HookStatus>,
    /// Its nodes, by set and ordinal; missing nodes at the end.
    pub nodes: Vec<NodeReport>,
    /// What could not be read, and is therefore left out, each in a sentence.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unread: Vec<String>,
}

impl FleetReport {
    /// Reports on a fleet.
    #[must_use]
    pub fn of(seen: &Seen, now: DateTime<Utc>) -> Self {
        let (meta, status) = (&seen.fleet.meta, &seen.fleet.status);
        let goal = Goal::of(seen);
        let mut nodes: Vec<NodeReport> =
            seen.nodes.iter().map(|node| node::report(seen, &goal, node, now)).collect();
        let is_known = |name: &str| nodes.iter().any(|node| node.name == name);
        let unconverged = status.rollout.iter().flat_map(|rollout| &rollout.unconverged);
        let others: Vec<NodeReport> = unconverged
            .filter(|unconverged| !is_known(&unconverged.name))
            .map(|unconverged| NodeReport::named(&meta.name, unconverged))
            .collect();
        nodes.extend(others);
        Self::with(seen, nodes, now)
    }

    /// Reports on a fleet with these nodes.
    pub(super) fn with(seen: &Seen, nodes: Vec<NodeReport>, now: DateTime<Utc>) -> Self {
        let (meta, status) = (&seen.fleet.meta, &seen.fleet.status);
        let spec = seen.fleet.spec.as_deref().ok();
        let plan = status.plan.as_ref().and_then(PlanReport::of);
        let image = spec.and_then(|spec| revision::main_image(&spec.template.spec)).unwrap_or_default();
        let rollout = status.rollout.as_ref().map(|rollout| rollout_report(seen, rollout, &nodes, now));
        let stored = Verdict::of(seen);
        // The status may be from before its pods went down.
        let unseen = nodes.iter().find(|node| node.unseen).filter(|_| stored == Verdict::UpToDate);
        let verdict = if unseen.is_some() { Verdict::Progressing } else { stored };
        let (waiting_for, waiting_since) = match (verdict, unseen) {
            (_, Some(node)) => (format!("{}: {}; {VERSION_ADVICE}", node.name, node.message), None),
            (Verdict::ScaledToZero, _) => (NOTHING_RUNS.to_owned(), None),
            _ => waiting_for(seen, verdict),
        };
        let summary = status.rollout.as_ref().map(|rollout| rollout.summary.clone());
        let remarks = said_besides(seen, &waiting_for);
        Self {
            namespace: meta.namespace.clone(),
            name: meta.name.clone(),
            strategy: strategy(seen),
            phase: status.phase.clone(),
            verdict,
            summary: summary.filter(|summary| !summary.is_empty()).unwrap_or_else(|| status.phase.clone()),
            waiting_for,
            waiting_since,
            remarks,
            paused_by: paused_by(seen).unwrap_or_default(),
            replicas: spec.map_or(0, |spec| spec.replicas),
            image: image.to_owned(),
            active_set: status.active_set.clone(),
            traffic_set: took_over(status).map_or_else(|| status.active_set.clone(), String::from),
            rollout,
            plan,
            hooks: status.hooks.clone(),
            nodes,
            unread: seen.unread.clone(),
        }
    }

    /// True if a node has failed, or none serves although some should.
    fn is_unavailable(&self) -> bool {
        let has_failed = self.phase == FleetPhase::Failed.as_ref()
            || self.rollout.as_ref().is_some_and(|rollout| rollout.failed > 0)
            || self.nodes.iter().any(|node| node.health == Health::Failed);
        let serves = |node: &NodeReport| !node.health.is_listed_by_name();
        has_failed || (self.replicas > 0 && !self.nodes.is_empty() && !self.nodes.iter().any(serves))
    }

    /// What it waits for, how long, and when that counts as a stall.
    #[must_use]
    pub fn waiting(&self, now: DateTime<Utc>) -> String {
        let Some(since) = self.waiting_since else { return self.waiting_for.clone() };
        let stalls = match self.rollout.as_ref().and_then(|rollout| rollout.stalls_in_seconds) {
            Some(0) => " (stalled)".to_owned(),
            Some(left) => format!(" (stalls in {})", age(TimeDelta::seconds(left))),
            None => String::new(),
        };
        format!("{} for {}{stalls}", self.waiting_for, age(now - since))
    }

    /// The number of serving nodes by image tag, largest group first.
    #[must_use]
    pub fn serving(&self) -> Vec<(Health, String, usize)> {
        serving(&self.nodes)
    }
}

/// The number of serving nodes by what they run, largest group first.
pub(super) fn serving<'a>(nodes: impl IntoIterator<Item = &'a NodeReport>) -> Vec<(Health, String, usize)> {
    let mut groups: Vec<(Health, String, usize)> = Vec::new();
    let serves = |node: &&NodeReport| !node.health.is_listed_by_name() && node.health != Health::Settling;
    for node in nodes.into_iter().filter(serves) {
        let runs = node.runs();
        match groups.iter_mut().find(|(health, known, _)| *health == node.health && *known == runs) {
            Some((_, _, count)) => *count += 1,
            None => groups.push((node.health, runs, 1)),
        }
    }
    groups.sort_by(|a, b| b.2.cmp(&a.2).then(a.0.cmp(&b.0)));
    groups
}

/// The advice if no operator seems to run.
const VERSION_ADVICE: &str = "windlass version shows whether one runs";
/// The message of a fleet with 0 replicas whose target has not completed.
const NOTHING_RUNS: &str = "has 0 replicas: the target starts with the next scale-up";

/// Sorts unhealthy fleets first, then those in progress; within these, fleets with failed or without serving nodes
/// first, then by name.
pub fn worst_first<T>(reports: &mut [T])
where
    T: std::borrow::Borrow<FleetReport>,
{
    let key = |report: &T| {
        let report = report.borrow();
        (report.verdict, !report.is_unavailable(), report.namespace.clone(), report.name.clone())
    };
    reports.sort_by_cached_key(key);
}

/// The remarks about a fleet whose current spec the operator has seen.
fn said_besides(seen: &Seen, waiting_for: &str) -> Vec<String> {
    let fleet = &seen.fleet;
    let Some(spec) = fleet.spec.as_deref().ok().filter(|_| not_seen(fleet).is_none()) else {
        return Vec::new();
    };
    let remarks = requests::remarks(&fleet.meta, spec, &fleet.status);
    let besides = [DISRUPTION_BUDGET_READY, TOPOLOGY_KNOWN];
    let besides = besides.iter().filter_map(|of| conditions::find(&fleet.status.conditions, of));
    let besides = besides.map(|condition| condition.message.clone());
    let waits = waits_besides(&fleet.status, waiting_for);
    remarks.into_iter().map(|remark| remark.sentence).chain(besides).chain(waits).collect()
}

/// The sentences of the condition Reconciling that this text does not contain. During a rollout, only that condition
/// names machines that are being drained.
pub fn waits_besides(status: &NodeDeploymentStatus, said: &str) -> Option<String> {
    let reconciling = conditions::find(&status.conditions, RECONCILING)?;
    let is_said = |sentence: &str| said.contains(sentence.strip_prefix("waiting: ").unwrap_or(sentence));
    let others = reconciling.message.split("; ").filter(|sentence| !is_said(sentence));
    let others = others.collect::<Vec<_>>().join("; ");
    (!others.is_empty()).then_some(others)
}

fn paused_by(seen: &Seen) -> Option<String> {
    let fleet = &seen.fleet;
    fleet.spec.as_ref().ok().filter(|spec| spec.paused)?;
    let asked: LastRequest = serde_json::from_str(fleet.meta.annotation(ANNOTATION_LAST_REQUEST)?).ok()?;
    let why = if asked.why.is_empty() { String::new() } else { format!(": {}", asked.why) };
    (asked.verb == "pause").then(|| format!("{}{why}", asked.by))
}

fn strategy(seen: &Seen) -> String {
    let of_spec =
        || seen.fleet.spec.as_ref().map(|spec| spec.update_strategy.type_.clone()).unwrap_or_default();
    let of_rollout = seen.fleet.status.rollout.as_ref().map(|rollout| rollout.strategy.clone());
    of_rollout.filter(|strategy| !strategy.is_empty()).unwrap_or_else(of_spec)
}

fn rollout_report(seen: &Seen, rollout: &Rollout, nodes: &[NodeReport], now: DateTime<Utc>) -> RolloutReport {
    let spec = seen.fleet.spec.as_deref().ok();
    let counts = &rollout.nodes;
    let in_place = rollout.entrant_set.is_empty() && rollout.stage == Stage::Updating;
    let held = spec.map_or(0, NodeDeploymentSpec::partition);
    let to_move = (counts.total - held).max(0);
    let most = spec.map_or(1, NodeDeploymentSpec::max_unavailable);
    // The waves of a fleet with a topology follow from its domains.
    let topology = spec.and_then(|spec| spec.topology()).filter(|_| in_place);
    let counts_waves = in_place && to_move > 0 && topology.is_none();
    let wave = counts_waves.then(|| {
        let of = (to_move + most - 1) / most;
        // A wave is over once its nodes serve; without read access to pods, once they run the target.
        let serve = nodes.iter().filter(|node| node.health == Health::Serving).count();
        // In a rollback, nodes that match the spec are the old ones.
        let is_wanted =
            rollout.target_hash.is_empty() || rollout.target_hash == seen.fleet.status.requested_rollout_hash;
        let is_told = !seen.nodes.is_empty() && is_wanted;
        let done = if is_told { counts.updated.min(serve as i32) } else { counts.updated };
        Wave { number: (done / most + 1).min(of), of }
    });
    let moved = seen.nodes.iter().map(AsRef::as_ref);
    let each = node_seconds(moved, Some(rollout.started_at)).filter(|_| in_place && topology.is_none());
    let settle = spec.map_or(0, |spec| spec.min_ready_seconds);
    let left = each.map(|each| {
        let waves = ((to_move - counts.updated).max(0) + most - 1) / most;
        i64::from(waves) * (each + settle)
    });
    let deadline = spec.map_or(0, |spec| spec.update_strategy.progress_deadline_seconds);
    let stalls_at = rollout.last_progress_at + TimeDelta::seconds(deadline);
    let paused = spec.is_some_and(|spec| spec.paused);
    let runs = !rollout.progress_paused
        && rollout.not_counted_since.is_none()
        && !paused
        && rollout.stage != Stage::Retiring;
    let (from_image, to_image) = images::of(seen, rollout, nodes);
    RolloutReport {
        cause: rollout.cause.clone(),
        stage: rollout.stage,
        started_at: rollout.started_at,
        total: counts.total,
        updated: counts.updated,
        ready: counts.ready,
        disrupted: counts.disrupted,
        failed: counts.failed,
        wave,
        domains_at_once: topology.map(|topology| topology.max_unavailable_domains),
        elapsed_seconds: (now - rollout.started_at).num_seconds().max(0),
        about_left_seconds: left.filter(|_| runs && (counts.failed == 0 || counts.disrupted < most)),
        stalls_in_seconds: runs.then(|| (stalls_at - now).num_seconds().max(0)),
        from_image,
        to_image,
    }
}

/// A message if the operator has not observed the current spec: the whole status is about an older one.
#[must_use]
pub fn not_seen(fleet: &ObservedFleet) -> Option<String> {
    observer_behind(fleet).map(|who| format!("waiting for {who}"))
}

/// The same, without `waiting for`.
pub fn observer_behind(fleet: &ObservedFleet) -> Option<String> {
    let (meta, status) = (&fleet.meta, &fleet.status);
    if status.observed_generation >= meta.generation {
        return None;
    }
    let known = match status.observed_generation {
        0 => "has not reconciled it yet".to_owned(),
        seen => format!("has not observed generation {} (observed: {seen})", meta.generation),
    };
    Some(format!("the operator, which {known}; {VERSION_ADVICE}"))
}

/// What a fleet waits for, and since when, if a node blocks it.
fn waiting_for(seen: &Seen, verdict: Verdict) -> (String, Option<DateTime<Utc>>) {
    let (meta, status) = (&seen.fleet.meta, &seen.fleet.status);
    let condition = |type_: &str| conditions::find(&status.conditions, type_);
    if let Some(sentence) = not_seen(&seen.fleet) {
        return (sentence, None);
    }
    if let Some(sentence) = not_begun(&seen.fleet).filter(|_| verdict == Verdict::Progressing) {
        return (sentence.to_owned(), None);
    }
    // The rollout that is active is to an earlier target.
    let invalid = |c: &&conditions::Condition| {
        c.status == Truth::False.as_ref() && c.reason == Reason::InvalidSpec.as_ref()
    };
    if let Some(refused) = condition(UP_TO_DATE).filter(invalid).filter(|_| status.rollout.is_some()) {
        return (format!("{}: {}", refused.reason, refused.message), None);
    }
    let Some(rollout) = &status.rollout else {
        let stalled = condition(STALLED).filter(|c| c.status == Truth::True.as_ref());
        if let Some(stalled) = stalled {
            let why = condition(UP_TO_DATE).filter(|c| c.status == Truth::False.as_ref()).unwrap_or(stalled);
            return (format!("{}: {}", why.reason, why.message), None);
        }
        let reconciling = condition(RECONCILING).filter(|c| c.status == Truth::True.as_ref());
        return (reconciling.map(|c| c.message.clone()).unwrap_or_default(), None);
    };
    let is_stalled = condition(STALLED).is_some_and(|c| c.status == Truth::True.as_ref());
    // All new nodes were ready once. As long as the clock runs, the rollout waits for those that are no longer ready, and
    // no promotion is requested.
    let has_fallen_back = rollout.stage == Stage::AwaitingPromotion && !rollout.progress_paused;
    let ill = |reason: &str| match reason.parse().ok() {
        Some(Reason::WaitingForWave) => false,
        Some(Reason::NotReady | Reason::Missing | Reason::Terminating) => is_stalled || has_fallen_back,
        _ => true,
    };
    let worst =
        rollout.unconverged.first().filter(|node| ill(&node.reason) && rollout.stage != Stage::Retiring);
    let asks_for_promotion =
        condition(UP_TO_DATE).is_some_and(|c| c.reason == Reason::ReadyToPromote.as_ref());
    match worst {
        Some(node) => (format!("waiting for {}: {}", node.name, node.reason), Some(node.since)),
        None if asks_for_promotion => {
            let command = format!("windlass promote nd/{} -n {}", meta.name, meta.namespace);
            (format!("the new nodes are ready: {command} moves traffic to them"), None)
        }
        None => (rollout.message.clone(), None),
    }
}
