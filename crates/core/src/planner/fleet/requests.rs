//! Finds requests of users that have no effect, and settings that the strategy cannot use. Each is a sentence for the
//! condition `UpToDate` and `windlass status`; for a request there is also an event. Computed from the object alone.
//! Pure.

use super::sets::SetRollout;
use super::sets::decide::may_go_back;
use crate::api::names::{
    ANNOTATION_ABORT, ANNOTATION_ABORT_ROLLBACK, ANNOTATION_APPROVE, ANNOTATION_OPEN_WINDOW,
    ANNOTATION_RESTARTED_AT, ANNOTATION_RETRY, ANNOTATION_SKIP,
};
use crate::api::status::HISTORY_LIMIT;
use crate::api::{
    Ending, HookState, NodeDeploymentSpec, NodeDeploymentStatus, OnStall, Promotion, RawPlan, Reason,
    RestartTime, Stage, StrategyType, TaskType,
};
use crate::engine::{Plan, PlanState, id::is_plan_id};
use crate::observed::{Meta, parse_time, retried_plan};

/// A sentence about an object that a person should read although nothing is wrong.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Remark {
    /// The sentence.
    pub sentence: String,
    /// The reason of its event, and the cause, of which there is one event; `None` if there is no event.
    pub event: Option<(Reason, String)>,
}

impl Remark {
    /// About a request that has no effect. `cause` is the request, with its value.
    #[must_use]
    pub fn ignored(cause: impl Into<String>, sentence: String) -> Self {
        Self::of(Reason::RequestIgnored, cause, sentence)
    }

    /// With an event of this reason.
    #[must_use]
    pub fn of(reason: Reason, cause: impl Into<String>, sentence: String) -> Self {
        Self { sentence, event: Some((reason, cause.into())) }
    }

    /// A remark without an event.
    #[must_use]
    pub fn message_only(sentence: impl Into<String>) -> Self {
        Self { sentence: sentence.into(), event: None }
    }
}

/// The remarks about a fleet. `status` is the status that the last reconcile has written, or is about to write.
#[must_use]
pub fn remarks(meta: &Meta, spec: &NodeDeploymentSpec, status: &NodeDeploymentStatus) -> Vec<Remark> {
    if meta.terminating {
        return Vec::new();
    }
    let requests = Requests { meta, spec, status };
    let by_annotation = [
        requests.restart(),
        requests.abort(),
        requests.retry(),
        requests.skip(),
        requests.open_window(),
        requests.approval(),
        requests.promotion(),
    ];
    by_annotation
        .into_iter()
        .flatten()
        .chain(requests.empty_type())
        .chain(of_strategy(spec))
        .chain(requests.partition())
        .collect()
}

/// The message for a `windlass.dev/restartedAt` that cannot be parsed.
#[must_use]
pub fn unreadable_restart(text: &str) -> String {
    format!(
        "{ANNOTATION_RESTARTED_AT}: {text:?} is not an RFC 3339 time such as 2030-01-31T12:00:00Z; nothing is restarted"
    )
}

/// Why the restart in an object's annotation is ignored: its time cannot be parsed, or is not later than the creation
/// or than the latest restart that was carried out. `None` if there is no such request.
#[must_use]
pub fn ignored_restart(meta: &Meta, obeyed: Option<&RestartTime>, is_made_by_fleet: bool) -> Option<Remark> {
    let text = meta.annotation(ANNOTATION_RESTARTED_AT)?;
    let Some(asked) = parse_time(text) else {
        return Some(Remark::of(Reason::InvalidSpec, text, unreadable_restart(text)));
    };
    let ignored = |why: String| {
        let sentence = format!(
            "{ANNOTATION_RESTARTED_AT}: {text} {why}, and nothing is restarted: set a later time, in UTC, or run windlass restart"
        );
        Some(Remark::ignored(format!("{ANNOTATION_RESTARTED_AT}={text}"), sentence))
    };
    let obeyed = obeyed.and_then(|obeyed| Some((obeyed, parse_time(obeyed.as_str())?)));
    match obeyed {
        Some((_, at)) if asked == at => None,
        Some((obeyed, at)) if asked < at => {
            ignored(format!("is not later than {obeyed}, the last accepted restart"))
        }
        _ => {
            let created = meta.created_at.filter(|created| !is_made_by_fleet && asked <= *created)?;
            let created = created.format("%Y-%m-%dT%H:%M:%SZ");
            ignored(format!("is not later than the creation of {}, {created}", meta.name))
        }
    }
}

/// What is known about the plan that a request names.
enum Named {
    /// The plan in the status.
    Current(PlanState),
    /// A plan of the history, at this place of it.
    Ended(usize),
    /// It may be a plan that the history has forgotten, or one of a node.
    Forgotten,
    /// This fleet never had it.
    Unknown,
}

struct Requests<'a> {
    meta: &'a Meta,
    spec: &'a NodeDeploymentSpec,
    status: &'a NodeDeploymentStatus,
}

impl Requests<'_> {
    fn annotation(&self, key: &str) -> Option<&str> {
        self.meta.annotation(key).filter(|value| !value.is_empty())
    }

    fn plan(&self) -> Option<Plan> {
        self.status.plan.as_ref().and_then(|raw| raw.parse().ok())
    }

    fn named(&self, id: &str) -> Named {
        let status = self.status;
        let is_current = status.plan.as_ref().and_then(RawPlan::id).is_some_and(|current| current == *id);
        if let Some(plan) = self.plan().filter(|_| is_current) {
            return Named::Current(plan.state);
        }
        if let Some(at) = status.history.iter().rposition(|entry| entry.plan_id == id) {
            return Named::Ended(at);
        }
        let is_rejected = status.rejected.as_ref().is_some_and(|rejected| rejected.plan_id == id);
        let is_cut = status.history.len() >= HISTORY_LIMIT && is_plan_id(id);
        let is_known = is_current || is_rejected || is_cut || self.may_be_of_a_node(id);
        if is_known { Named::Forgotten } else { Named::Unknown }
    }

    /// True if this may be the ID of a plan of one of the fleet's nodes, or of a task of such a plan. The node itself
    /// reads the annotation from its fleet.
    fn may_be_of_a_node(&self, id: &str) -> bool {
        may_be_of_a_node(self.spec, id)
    }

    fn unknown(&self, key: &str, id: &str) -> Remark {
        let current = self.status.plan.as_ref().and_then(RawPlan::id);
        let is = current.map_or_else(String::new, |id| format!("; its current plan is {id}"));
        let sentence = format!("{key}: {id:?} is not a plan of this fleet and has no effect{is}");
        Remark::of(Reason::InvalidSpec, format!("{key}={id}"), sentence)
    }

    fn restart(&self) -> Option<Remark> {
        let obeyed = self.status.restarted_at();
        let ignored = ignored_restart(self.meta, obeyed.as_ref(), false);
        if ignored.is_some() || self.spec.replicas > 0 {
            return ignored;
        }
        let text = self.annotation(ANNOTATION_RESTARTED_AT)?;
        let is_obeyed = obeyed.is_some_and(|obeyed| parse_time(obeyed.as_str()) == parse_time(text));
        let sentence = format!("{ANNOTATION_RESTARTED_AT}: {text} restarts nothing: replicas is 0");
        let cause = format!("{ANNOTATION_RESTARTED_AT}={text} at 0 replicas");
        (!is_obeyed).then(|| Remark::ignored(cause, sentence))
    }

    fn abort(&self) -> Option<Remark> {
        let id = self.annotation(ANNOTATION_ABORT)?;
        let over = |how: &str| {
            let sentence =
                format!("{ANNOTATION_ABORT}: plan {id} has already ended ({how}), and nothing is aborted");
            Some(Remark::ignored(format!("{ANNOTATION_ABORT}={id}"), sentence))
        };
        match self.named(id) {
            Named::Current(PlanState::Active) => self.promotes(id),
            Named::Current(PlanState::Aborted) | Named::Forgotten => None,
            Named::Current(state) => over(&format!("{state:?}")),
            Named::Ended(at) => {
                let entry = &self.status.history[at];
                let rolls_back = self.annotation(ANNOTATION_ABORT_ROLLBACK) == Some(id);
                match entry.ending() {
                    Some(Ending::Aborted) => None,
                    Some(Ending::RolledBack) if rolls_back => None,
                    _ => over(&entry.outcome),
                }
            }
            Named::Unknown => Some(self.unknown(ANNOTATION_ABORT, id)),
        }
    }

    /// A promotion that can no longer be rolled back is not aborted.
    fn promotes(&self, id: &str) -> Option<Remark> {
        let rollout = SetRollout::of(self.status).filter(|rollout| rollout.stage == Stage::Promoting)?;
        if may_go_back(&self.plan()?, rollout.strategy) {
            return None;
        }
        let sentence = format!(
            "{ANNOTATION_ABORT}: plan {id} is not aborted, because a promotion cannot be reverted: set the template \
             to the desired revision, and Windlass rolls it out after the promotion"
        );
        Some(Remark::of(Reason::InvalidSpec, format!("{ANNOTATION_ABORT}={id} promotes"), sentence))
    }

    fn retry(&self) -> Option<Remark> {
        let asked = self.annotation(ANNOTATION_RETRY)?;
        let (id, status) = (retried_plan(asked), self.status);
        let is_spent = status.hook_retry.as_ref().is_some_and(|retry| retry.request == asked);
        if is_spent || status.rejected.as_ref().is_some_and(|rejected| rejected.plan_id == id) {
            return None;
        }
        let ignored = |why: &str| {
            let sentence = format!("{ANNOTATION_RETRY}: plan {id} {why}, and nothing is retried");
            Some(Remark::ignored(format!("{ANNOTATION_RETRY}={asked}"), sentence))
        };
        match self.named(id) {
            Named::Current(PlanState::Active) => {
                let has_failed = status.hooks.iter().any(|hook| hook.state == HookState::Failed.as_ref());
                if has_failed { None } else { ignored("is active, and none of its hooks has failed") }
            }
            Named::Current(state @ (PlanState::Complete | PlanState::Superseded)) => {
                ignored(&format!("has already ended ({state:?})"))
            }
            Named::Current(PlanState::Failed | PlanState::Aborted) | Named::Forgotten => None,
            Named::Ended(at) => {
                let entry = &status.history[at];
                let ended_well = matches!(entry.ending(), Some(Ending::Complete | Ending::Superseded));
                let later = status.history[at + 1..].iter().map(|entry| entry.target_hash.clone());
                let current = self.plan().map(|plan| plan.target_hash);
                let is_retried = later.chain(current).any(|target| target == entry.target_hash);
                if ended_well {
                    ignored(&format!("has already ended ({})", entry.outcome))
                } else if is_retried {
                    None
                } else {
                    ignored("had a target that is no longer desired")
                }
            }
            Named::Unknown => Some(self.unknown(ANNOTATION_RETRY, id)),
        }
    }

    /// A name that was never one of a task. The annotation stays until somebody removes it, so it may name a task of an
    /// earlier plan.
    fn skip(&self) -> Option<Remark> {
        let task = self.annotation(ANNOTATION_SKIP)?;
        let is_unknown = matches!(self.named(plan_of(task)), Named::Unknown);
        let sentence = format!("{task:?} is not a task of a plan of this fleet, and nothing is skipped");
        is_unknown.then(|| Remark::of(Reason::SkipRefused, task, sentence))
    }

    fn open_window(&self) -> Option<Remark> {
        let id = self.annotation(ANNOTATION_OPEN_WINDOW)?;
        matches!(self.named(id), Named::Unknown).then(|| self.unknown(ANNOTATION_OPEN_WINDOW, id))
    }

    fn approval(&self) -> Option<Remark> {
        let task = self.annotation(ANNOTATION_APPROVE)?;
        if self.may_be_of_a_node(task) {
            return None;
        }
        let what = match self.named(plan_of(task)) {
            Named::Current(_) => {
                let plan = self.plan()?;
                match plan.tasks.iter().find(|known| known.id == task) {
                    Some(known) if TaskType::AwaitApproval.is(known) => return None,
                    Some(known) => format!("is of type {}", known.type_),
                    None => format!("is not a task of plan {}", plan.id),
                }
            }
            Named::Ended(_) | Named::Forgotten => return None,
            Named::Unknown => "is not a task of a plan of this fleet".to_owned(),
        };
        let sentence = format!("{ANNOTATION_APPROVE}: {task:?} {what}, and nothing is approved");
        Some(Remark::ignored(format!("{ANNOTATION_APPROVE}={task}"), sentence))
    }

    fn promotion(&self) -> Option<Remark> {
        let (asked, status) = (&self.spec.force_promote, self.status);
        let rollout = SetRollout::of(status);
        let promotes = rollout.as_ref().is_some_and(|rollout| rollout.stage == Stage::Promoting);
        if asked.is_empty() || *asked == status.spent_force_promote || promotes {
            return None;
        }
        if *asked != status.requested_rollout_hash {
            let sentence = format!(
                "forcePromote {asked:?} is ignored: it is not the desired rollout hash; set it to {}",
                status.requested_rollout_hash
            );
            return Some(Remark::of(Reason::StaleForcePromote, asked, sentence));
        }
        let is_in_place = self.spec.update_strategy.strategy() == Some(StrategyType::InPlace);
        let sentence =
            "forcePromote has no effect: updateStrategy.type is InPlace, and nothing is promoted".to_owned();
        (is_in_place && rollout.is_none())
            .then(|| Remark::ignored(format!("forcePromote={asked} in place"), sentence))
    }

    fn partition(&self) -> Option<Remark> {
        let (partition, replicas) = (self.spec.partition(), self.spec.replicas);
        let rollout = self.status.rollout.as_ref()?;
        let is_in_place = rollout.entrant_set.is_empty() && !rollout.own_revisions;
        let holds_all = is_in_place && replicas > 0 && partition >= replicas;
        let sentence = format!(
            "inPlace.partition {partition} is not below replicas {replicas}: no node is updated until you lower the \
             partition"
        );
        (holds_all && self.status.last_completed().is_some())
            .then(|| Remark::ignored(format!("partition={partition}/{replicas}"), sentence))
    }

    /// An empty type cannot be written any more, so the fleet was stored by an earlier version.
    fn empty_type(&self) -> Option<Remark> {
        self.spec
            .update_strategy
            .type_
            .is_empty()
            .then(|| Remark::message_only("updateStrategy.type is empty and is treated as InPlace; set it"))
    }
}

fn plan_of(task: &str) -> &str {
    task.rsplit_once('-').map_or(task, |(plan, _)| plan)
}

/// True if this may be the ID of a plan of one of the fleet's nodes, or of a task of such a plan.
#[must_use]
pub fn may_be_of_a_node(spec: &NodeDeploymentSpec, id: &str) -> bool {
    let plan = id.split('-').next().unwrap_or_default();
    spec.update_strategy.hooks.iter().any(|hook| hook.at.is_of_node()) && is_plan_id(plan)
}

/// The settings that the strategy does not use, and what it cannot do with these settings.
#[must_use]
pub fn of_strategy(spec: &NodeDeploymentSpec) -> Vec<Remark> {
    let strategy = &spec.update_strategy;
    let mut remarks = Vec::new();
    let type_ = strategy.strategy();
    let mut unused = |field: &str, why: &str| {
        let sentence = format!("updateStrategy.{field} has no effect: {why}");
        remarks.push(Remark::ignored(format!("updateStrategy.{field}: {why}"), sentence));
    };
    if strategy.blue_green.is_some() && type_ == Some(StrategyType::InPlace) {
        unused("blueGreen", "updateStrategy.type is InPlace");
    }
    match type_ {
        Some(StrategyType::InPlace) if strategy.hard_fork.is_some() => {
            unused("hardFork", "updateStrategy.type is InPlace");
        }
        Some(StrategyType::BlueGreen) if strategy.hard_fork.is_some() => {
            unused("hardFork", "updateStrategy.type is BlueGreen");
        }
        _ => {}
    }
    let is_immediate = type_ == Some(StrategyType::BlueGreen) && spec.promotion() == Promotion::Immediately;
    if is_immediate && strategy.on_stall == OnStall::Rollback {
        unused("onStall", "blueGreen.promotion is Immediately, which leaves no old nodes to roll back to");
    }
    if matches!(type_, Some(StrategyType::BlueGreen | StrategyType::HardFork)) && spec.service.is_none() {
        remarks.push(Remark::message_only(
            "spec.service is not set, so a promotion switches no traffic: your Service has to select the label \
             windlass.dev/set with the value of status.activeSet",
        ));
    }
    remarks
}
