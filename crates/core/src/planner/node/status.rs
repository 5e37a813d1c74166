//! A node's status, computed from what was observed. Pure: the controller writes it.

use chrono::{DateTime, SecondsFormat, Utc};

use super::{
    decide::is_rolling,
    facts::{LiveStatefulSet, NodeFacts, PodFacts, StatefulSetFact, Template},
    problem::is_of_whole_pod,
};
use crate::api::TaskType;
use crate::api::conditions::{
    self, NODE_UPDATE_IN_PROGRESS, READY, RECONCILING, SIDECAR_READY, STALLED, Truth,
};
use crate::api::ids::field;
use crate::api::stateful_node::KNOWN_REVISIONS;
use crate::api::status::MAX_PROBLEM_BYTES;
use crate::api::{
    Ending, HistoryEntry, NodePhase, Problem, RawPlan, Reason, RestartTime, StatefulNodeStatus,
    StatefulSetRef,
};
use crate::engine::{self, Plan, PlanState, sentence::cut};
use crate::planner::hooks::{hook_of, message_of};

/// What the sidecar answered in this reconcile.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum SidecarAnswer {
    /// The node has no sidecar.
    NotConfigured,
    /// It reports that the node is ready.
    Ready,
    /// It reports that the node is not ready, or there is no pod to ask.
    NotReady,
    /// It cannot be reached, or does not speak the protocol.
    Unreachable(String),
    /// It was not asked.
    NotAsked,
    /// It is being polled, whatever the node does, and has not answered yet.
    Awaited,
}

/// What a status is computed from, in addition to the facts.
pub struct StatusInput<'a> {
    /// The previous status.
    pub previous: &'a StatefulNodeStatus,
    /// The generation of the spec that was read.
    pub generation: i64,
    /// The current plan.
    pub plan: Option<&'a Plan>,
    /// The plan in its stored form, if it cannot be read.
    pub raw_plan: Option<&'a RawPlan>,
    /// What the sidecar answered.
    pub sidecar: &'a SidecarAnswer,
    /// Why the spec cannot be carried out, in a sentence.
    pub invalid: Option<&'a str>,
    /// What else in the spec cannot be carried out, in a sentence; it keeps no pod from serving.
    pub not_applied: Option<&'a str>,
    /// The StatefulSet's name.
    pub set_name: &'a str,
    /// The latest accepted restart (RFC 3339); `None` if there is none.
    pub restarted_at: Option<&'a RestartTime>,
    /// True if this reconcile applied what the spec says about the node's claims; `None` if it did not get that far.
    pub claims: Option<bool>,
    /// True if the node has claims at all.
    pub has_claims: bool,
    /// The time.
    pub now: DateTime<Utc>,
}

/// Computes the status from what was observed.
#[must_use]
pub fn status(facts: &NodeFacts, input: &StatusInput<'_>) -> StatefulNodeStatus {
    let running = facts.running();
    let ready = facts.is_ready();
    let previous = input.previous;
    let first_ready_at = previous.first_ready_at.or_else(|| ready.then_some(input.now));
    let spent = if facts.is_converged() { facts.grant_id.clone() } else { previous.spent_grant_id() };
    let mut next = StatefulNodeStatus {
        observed_generation: input.generation,
        phase: String::new(),
        current_image: running.image,
        pod_template_hash: running.hash.map(String::from).unwrap_or_default(),
        pod_uid: running.pod_uid.unwrap_or_default(),
        // Set only for a node that is not Ready: for a Ready node it would cost a status write at an upgrade of
        // Windlass.
        pod_runs: facts.runs_unready(),
        spent_grant_id: spent.map(String::from).unwrap_or_default(),
        stateful_set: set_ref(facts, input),
        restarted_at: field(input.restarted_at).to_owned(),
        first_ready_at,
        edit_found_at: edit_found_at(facts, input),
        claims_pending: claims_pending(input),
        problem: problem(facts, input, ready).map(|problem| Problem {
            allowed_until: allowed_until(facts, previous.problem.as_ref(), input.now),
            ..problem
        }),
        sidecar: previous.sidecar.clone(),
        plan: input.plan.map(RawPlan::of).or_else(|| input.raw_plan.cloned()),
        history: previous.history.clone(),
        conditions: previous.conditions.clone(),
    };
    let failure = failure(facts, input);
    phase(facts, input, ready, first_ready_at.is_some(), failure.is_some())
        .as_ref()
        .clone_into(&mut next.phase);
    set_conditions(facts, input, ready, first_ready_at.is_some(), failure.as_deref(), &mut next);
    without_lone_knowledge(next, previous)
}

/// When a change of the StatefulSet by somebody else was last found: a plan begins under a spent grant, to repair a
/// template that somebody else wrote. By this time the fleet reports the drift, even if the plan is over when the fleet
/// is reconciled.
fn edit_found_at(facts: &NodeFacts, input: &StatusInput<'_>) -> Option<DateTime<Utc>> {
    let plan = input.plan.filter(|plan| plan.is_active() && is_rolling(&plan.recipe));
    let begins = plan.is_some_and(|plan| {
        plan.started_at == input.now && input.previous.plan.as_ref().and_then(RawPlan::id) != plan.id
    });
    let edited = facts.live().is_some_and(|set| set.template == Template::Unknown);
    let found = begins && edited && facts.is_spent() && facts.is_ready();
    if found { Some(input.now) } else { input.previous.edit_found_at }
}

/// True if the observed generation may contain something about claims that is not applied yet. A node that never wrote
/// a status has changed no claims.
fn claims_pending(input: &StatusInput<'_>) -> bool {
    let previous = input.previous;
    let is_new = previous.observed_generation != 0 && previous.observed_generation != input.generation;
    let unknown = || input.has_claims && (previous.claims_pending || is_new);
    input.claims.map_or_else(unknown, |done| !done)
}

/// Newly learned revisions of the StatefulSet alone cause no status write; they are written with the next one. So a
/// fleet at rest costs nothing, after an upgrade of Windlass too.
fn without_lone_knowledge(mut next: StatefulNodeStatus, previous: &StatefulNodeStatus) -> StatefulNodeStatus {
    let (Some(set), Some(before)) = (&mut next.stateful_set, &previous.stateful_set) else { return next };
    let learned = std::mem::replace(set, before.clone());
    let says_more =
        (&learned.name, &learned.uid, learned.generation) != (&set.name, &set.uid, set.generation);
    if says_more || next != *previous {
        next.stateful_set = Some(learned);
    }
    next
}

fn set_ref(facts: &NodeFacts, input: &StatusInput<'_>) -> Option<StatefulSetRef> {
    let set = match &facts.set {
        StatefulSetFact::Missing | StatefulSetFact::Leaving => return None,
        StatefulSetFact::Live(set) => set,
    };
    let before = input.previous.stateful_set.as_ref().filter(|s| s.uid == set.uid);
    let (generation, template_digest) = match &set.template {
        Template::At(_) => (set.generation, set.template_digest.clone()),
        // A manual edit must stay recognisable as one.
        Template::Unknown => before.map(|s| (s.generation, s.template_digest.clone())).unwrap_or_default(),
    };
    let revisions = known_revisions(facts, set);
    let (name, uid) = (input.set_name.to_owned(), set.uid.clone());
    Some(StatefulSetRef { name, uid, generation, template_digest, revisions })
}

/// The revisions of templates that Windlass is known to have written: those that were known, that of a pod whose hash
/// is known, and the update revision of a StatefulSet whose template is still as Windlass wrote it.
fn known_revisions(facts: &NodeFacts, set: &LiveStatefulSet) -> Vec<String> {
    let mut known = set.known_revisions.clone();
    let mut learn = |revision: &String| {
        known.retain(|other| other != revision);
        known.push(revision.clone());
    };
    let says_so = |pod: &&PodFacts| {
        let says = pod.made_for.as_ref().map(|made_for| &made_for.hash);
        pod.owned && !pod.revision.is_empty() && says.is_some() && says == facts.pod_hash(pod)
    };
    if let Some(pod) = facts.staying_pod().filter(says_so) {
        learn(&pod.revision);
    }
    // If the template has no annotations, its pods have none that could be trusted.
    let ours = set.made_for.is_some() && set.template != Template::Unknown;
    if ours && set.observed && !set.update_revision.is_empty() {
        learn(&set.update_revision);
    }
    let surplus = known.len().saturating_sub(KNOWN_REVISIONS);
    known.drain(..surplus);
    known
}

fn failure(facts: &NodeFacts, input: &StatusInput<'_>) -> Option<String> {
    facts.failure().or_else(|| {
        let plan = input.plan.filter(|p| p.state == PlanState::Failed)?;
        (facts.grant().is_some_and(|grant| *grant == *plan.target_hash) && !facts.is_converged())
            .then(|| plan.failure.clone())
    })
}

fn problem(facts: &NodeFacts, input: &StatusInput<'_>, ready: bool) -> Option<Problem> {
    if facts.suspended || (ready && !marks(input)) {
        return None;
    }
    let before = input.previous.problem.as_ref();
    let since = down_since(facts, input);
    let named = |reason: Reason, message: String| Problem {
        reason: reason.to_string(),
        message: cut(&message, MAX_PROBLEM_BYTES),
        since,
        ..Problem::default()
    };
    if let Some(invalid) = input.invalid {
        return Some(named(Reason::InvalidSpec, invalid.to_owned()));
    }
    let asks = facts.needs_mark() || marks(input);
    if let (SidecarAnswer::Unreachable(why), true) = (input.sidecar, asks) {
        return Some(named(Reason::SidecarUnreachable, why.clone()));
    }
    // A sidecar is not asked in every reconcile; its last answer holds until it is asked again.
    let unreachable = before.filter(|p| p.reason == Reason::SidecarUnreachable.as_ref());
    let unheard = matches!(input.sidecar, SidecarAnswer::NotAsked | SidecarAnswer::Awaited);
    if let (true, true, Some(problem)) = (unheard, asks, unreachable) {
        return Some(named(Reason::SidecarUnreachable, problem.message.clone()));
    }
    if ready {
        return None;
    }
    if let Some(pod) = &facts.pod {
        return Some(match &pod.problem {
            Some(problem) => Problem { since, ..problem.clone() },
            None => named(Reason::NotReady, "its pod is not ready".to_owned()),
        });
    }
    let awaits = facts.awaits.as_ref().map(|awaits| format!("it has no pod: {awaits}"));
    let known = failure(facts, input).or(awaits);
    // Its last pod has ended, and its StatefulSet is about to make another.
    if let (None, Some(before)) = (&known, before.filter(|before| is_of_whole_pod(before))) {
        return Some(Problem { since, ..before.clone() });
    }
    Some(named(Reason::Missing, known.unwrap_or_else(|| "it has no pod".to_owned())))
}

/// Since when the node does not serve. It is the same time for all reasons and pods of an outage, since a deadline is
/// counted from it. If the node was Ready, the kubelet knows when it went down, even if no reconcile happened at that
/// time.
fn down_since(facts: &NodeFacts, input: &StatusInput<'_>) -> DateTime<Utc> {
    let (previous, now) = (input.previous, input.now);
    if let Some(problem) = &previous.problem {
        // A time in the future was written before the clock was set back.
        return problem.since.min(now);
    }
    let Some(ready) =
        conditions::find(&previous.conditions, READY).filter(|c| c.reason != Reason::Suspended.as_ref())
    else {
        return now;
    };
    let at_last = ready.last_transition_time.min(now);
    if ready.status != Truth::True.as_ref() {
        return at_last;
    }
    let known = facts.pod.as_ref().filter(|p| p.uid == previous.pod_uid);
    known.and_then(|pod| pod.unready_since).map_or(now, |since| since.clamp(at_last, now))
}

/// Until when the node is given time, by its pod. What it was given before ends now at the latest: its pod has ended, or
/// its container has crashed. `before`: the problem in its status.
#[must_use]
pub fn allowed_until(
    facts: &NodeFacts,
    before: Option<&Problem>,
    now: DateTime<Utc>,
) -> Option<DateTime<Utc>> {
    let wait = facts.pod.as_ref().and_then(|pod| pod.wait.as_ref());
    wait.map(|wait| wait.until).or_else(|| Some(before?.allowed_until?.min(now)))
}

/// True if a plan waits for the sidecar to accept that the node should serve.
fn marks(input: &StatusInput<'_>) -> bool {
    let current = input.plan.filter(|p| p.is_active()).and_then(Plan::current_task);
    current.is_some_and(|task| TaskType::MarkReady.is(task))
}

fn phase(facts: &NodeFacts, input: &StatusInput<'_>, ready: bool, ever: bool, failed: bool) -> NodePhase {
    let rolling = input.plan.is_some_and(|p| p.is_active() && is_rolling(&p.recipe));
    if facts.terminating {
        NodePhase::Terminating
    } else if facts.is_suspended() {
        NodePhase::Suspended
    } else if failed {
        NodePhase::Failed
    } else if rolling {
        NodePhase::Updating
    } else if ready {
        NodePhase::Running
    } else if !ever && facts.set != StatefulSetFact::Missing {
        NodePhase::Initializing
    } else {
        NodePhase::Pending
    }
}

fn set_conditions(
    facts: &NodeFacts,
    input: &StatusInput<'_>,
    ready: bool,
    ever: bool,
    failure: Option<&str>,
    next: &mut StatefulNodeStatus,
) {
    let plan = input.plan;
    let active = plan.filter(|p| p.is_active());
    let problem = next.problem.as_ref().map(|p| format!("{}: {}", p.reason, p.message)).unwrap_or_default();
    let list = &mut next.conditions;
    let mut set = |type_: &str, truth, reason: Reason, message: &str| {
        conditions::set(list, type_, truth, reason, message, input.generation, input.now);
    };

    match (ready, failure) {
        (true, _) => set(READY, Truth::True, Reason::NodeReady, ""),
        (_, _) if facts.is_suspended() => {
            set(READY, Truth::False, Reason::Suspended, "the node is suspended");
        }
        (_, _) if facts.suspended => {
            set(READY, Truth::False, Reason::Suspended, "the node is being suspended");
        }
        (_, Some(why)) => set(READY, Truth::False, Reason::NodesFailed, why),
        (_, None) if ever => set(READY, Truth::False, Reason::PodNotReady, &problem),
        (_, None) if facts.set == StatefulSetFact::Missing && active.is_none() => {
            set(READY, Truth::False, Reason::NotStarted, &problem);
        }
        (_, None) => set(READY, Truth::False, Reason::NodesInitializing, &problem),
    }

    let last_roll = next.history.iter().rev().find(|h| is_rolling(&h.recipe)).map(HistoryEntry::ending);
    if let Some(plan) = active.filter(|p| is_rolling(&p.recipe)) {
        let waiting = plan.current_task().map(message_of).unwrap_or_default();
        set(NODE_UPDATE_IN_PROGRESS, Truth::True, Reason::UpdateStarted, &waiting);
    } else {
        let reason = match last_roll {
            None => Reason::NotStarted,
            Some(Some(Ending::Failed)) => Reason::UpdateFailed,
            Some(Some(Ending::Superseded | Ending::Aborted)) => Reason::UpdateSuperseded,
            Some(_) => Reason::UpdateComplete,
        };
        set(NODE_UPDATE_IN_PROGRESS, Truth::False, reason, "");
    }

    let (truth, reason, message) = sidecar_condition(facts, input, ready);
    set(SIDECAR_READY, truth, reason, &message);

    let held_by = active.and_then(engine::held_by);
    // A hook has its own time-out, and fails by it.
    let overdue = active.and_then(|p| engine::stalled(p, input.now)).filter(|task| hook_of(task).is_none());
    let failed_plan = plan.filter(|p| p.state == PlanState::Failed && !facts.is_converged());
    if let Some(sentence) = input.invalid {
        set(STALLED, Truth::True, Reason::InvalidSpec, sentence);
    } else if let Some(plan) = failed_plan {
        set(STALLED, Truth::True, Reason::PlanFailed, &plan.failure);
    } else if let Some(task) = held_by {
        set(STALLED, Truth::True, Reason::HookFailed, &message_of(task));
    } else if let Some(task) = overdue {
        let since = task.deadline.map(|deadline| deadline.to_rfc3339_opts(SecondsFormat::Secs, true));
        let since = since.unwrap_or_default();
        let why = format!("no progress, overdue since {since}: {}: {}", task.type_, task.message);
        set(STALLED, Truth::True, Reason::NoProgress, &why);
    } else if let Some(sentence) = input.not_applied {
        set(STALLED, Truth::True, Reason::InvalidSpec, sentence);
    } else {
        set(STALLED, Truth::False, Reason::Progressing, "");
    }
    let stalled = input.not_applied.is_some()
        || input.invalid.is_some()
        || failed_plan.is_some()
        || held_by.is_some()
        || overdue.is_some();
    let is_as_wanted = if facts.suspended { facts.is_suspended() } else { ready };
    if !stalled && (active.is_some() || !is_as_wanted) {
        set(RECONCILING, Truth::True, Reason::Progressing, "");
    } else {
        set(RECONCILING, Truth::False, Reason::Settled, "");
    }

    // Availability is counted from when the kubelet saw the pod Ready, not from when Windlass did.
    if let Some(since) = facts.staying_pod().and_then(|p| p.ready_since).filter(|_| ready)
        && let Some(condition) = next.conditions.iter_mut().find(|c| c.type_ == READY)
    {
        condition.last_transition_time = since;
    }
}

fn sidecar_condition(facts: &NodeFacts, input: &StatusInput<'_>, ready: bool) -> (Truth, Reason, String) {
    match input.sidecar {
        SidecarAnswer::NotConfigured => (Truth::False, Reason::NotConfigured, String::new()),
        SidecarAnswer::Ready => (Truth::True, Reason::Ready, String::new()),
        SidecarAnswer::Unreachable(why) => (Truth::Unknown, Reason::Unreachable, why.clone()),
        // The kubelet probes the sidecar all the time: the sidecar of a Ready pod reports that it is ready.
        SidecarAnswer::NotAsked if ready && !marks(input) => (Truth::True, Reason::Ready, String::new()),
        // Its last answer holds until it answers again.
        SidecarAnswer::NotAsked | SidecarAnswer::Awaited
            if *input.sidecar == SidecarAnswer::Awaited || facts.needs_mark() || marks(input) =>
        {
            let before = conditions::find(&input.previous.conditions, SIDECAR_READY);
            match before.filter(|c| c.reason == Reason::Unreachable.as_ref()) {
                Some(condition) => (Truth::Unknown, Reason::Unreachable, condition.message.clone()),
                None if ready => (Truth::True, Reason::Ready, String::new()),
                None => (Truth::False, Reason::NotReady, String::new()),
            }
        }
        SidecarAnswer::NotReady | SidecarAnswer::NotAsked | SidecarAnswer::Awaited => {
            (Truth::False, Reason::NotReady, String::new())
        }
    }
}
