//! Decides the next step of the tasks that change the routing.

use chrono::{DateTime, TimeDelta, Utc};

use windlass_engine::{Plan, TaskState};

use super::facts::Facts;
use crate::api::Reason;
use crate::port::{BuildId, DescribedDeployment, Percent, Ramp, RampTarget, RoutingWrite};

/// The next step of a task.
#[derive(Clone, Debug, PartialEq)]
pub enum Next {
    /// The task is done.
    Done,
    /// The task is not needed; the reason, as a sentence.
    Skip(String),
    /// Write this to Temporal.
    Write(RoutingWrite),
    /// Wait.
    Wait {
        /// The reason of the wait.
        reason: Reason,
        /// The condition that the task waits for, as a sentence.
        message: String,
        /// When to check again at the latest.
        until: Option<DateTime<Utc>>,
    },
}

impl Next {
    pub(crate) fn wait(reason: Reason, message: impl Into<String>) -> Self {
        Self::Wait { reason, message: message.into(), until: None }
    }
}

/// How long Temporal's description may lag behind a write: a difference within that time is ignored.
pub const LAG: TimeDelta = TimeDelta::seconds(3);

/// How long Windlass waits for Temporal to report that all task queues use the routing. Some Temporal servers never do,
/// although they do use it.
pub const SETTLES_IN: TimeDelta = TimeDelta::seconds(60);

/// True if a routing that has not changed since `set_at` is in use, or Temporal has had enough time to report that it is.
fn is_settled(described: &DescribedDeployment, set_at: Option<DateTime<Utc>>, now: DateTime<Utc>) -> bool {
    described.is_settled || set_at.is_some_and(|at| now - at >= SETTLES_IN)
}

/// The next step of a ramp task. `set_at`: when Windlass first observed the ramp in Temporal; the task persists it.
#[must_use]
pub fn ramp(
    facts: &Facts,
    percent: u8,
    pause: TimeDelta,
    set_at: Option<DateTime<Utc>>,
    now: DateTime<Utc>,
) -> Next {
    let described = match begin(facts) {
        Ok(described) => described,
        Err(wait) => return wait,
    };
    let target = &facts.target.build;
    if described.routing.current.as_ref() == Some(target) {
        return Next::Skip(format!("{target} is already the current version"));
    }
    if facts.is_promoted() {
        return Next::Skip(format!("spec.forcePromote promotes {target} and skips the steps"));
    }
    if described.routing.current.is_none() && described.routing.ramp.is_none() {
        match facts.target_version().and_then(|version| version.unversioned) {
            Some(0) => return Next::Skip("no other workers poll the task queues".to_owned()),
            Some(_) => {}
            None => {
                return Next::wait(
                    Reason::WaitingForPollers,
                    "waiting for Temporal to report other pollers of the task queues",
                );
            }
        }
    }
    let wanted = Percent(f32::from(percent));
    let holds = is_ramped(described, target, wanted);
    if !holds {
        if let Some(wait) = not_served(facts) {
            return wait;
        }
        return Next::Write(RoutingWrite::Ramp { to: target.clone(), percent: wanted });
    }
    let Some(set_at) = set_at.map(|at| at.min(now)) else {
        return Next::Wait {
            reason: Reason::Ramping,
            message: format!("{percent} % of the tasks go to {target}"),
            until: Some(now + pause),
        };
    };
    if !is_settled(described, Some(set_at), now) {
        return Next::wait(Reason::Ramping, unsettled());
    }
    let until = set_at + pause;
    if now < until {
        return Next::Wait {
            reason: Reason::Ramping,
            message: format!(
                "{percent} % of the tasks go to {target}; the next step starts at {}",
                at(until)
            ),
            until: Some(until),
        };
    }
    // Increase the share only if workers can receive it.
    not_served(facts).unwrap_or(Next::Done)
}

/// True if this share of the tasks goes to this version.
fn is_ramped(described: &DescribedDeployment, target: &BuildId, percent: Percent) -> bool {
    let is_this_ramp =
        |ramp: &Ramp| ramp.to == RampTarget::Version(target.clone()) && ramp.percent == percent;
    described.routing.ramp.as_ref().is_some_and(is_this_ramp)
}

/// The write that restores the ramp of a plan's last completed step, if a person changed it while the plan is at a
/// task between two steps: no task of the plan would restore it.
#[must_use]
pub fn ramp_to_restore(facts: &Facts, plan: &Plan, now: DateTime<Utc>) -> Option<(RoutingWrite, u8)> {
    let current = plan.current().filter(|_| plan.is_active())?;
    let is_of_routing = |type_: &str| matches!(type_, "ramp" | "set-current" | "clear-ramp");
    let task = &plan.tasks[current];
    if is_of_routing(&task.type_) || plan.tasks[..current].iter().any(|task| task.type_ == "set-current") {
        return None;
    }
    let step = plan.tasks[..current].iter().rfind(|task| task.type_ == "ramp")?;
    let percent = step.params["percent"].as_u64().and_then(|percent| u8::try_from(percent).ok())?;
    let described = begin(facts).ok().filter(|_| step.state == TaskState::Complete)?;
    let target = &facts.target.build;
    let wanted = Percent(f32::from(percent));
    let holds = is_ramped(described, target, wanted);
    let is_elsewhere = described.routing.current.as_ref() == Some(target);
    let is_known = is_settled(described, step.finished_at, now);
    (!holds && !is_elsewhere && is_known && not_served(facts).is_none())
        .then(|| (RoutingWrite::Ramp { to: target.clone(), percent: wanted }, percent))
}

/// The next step of the task that makes the target the current version. `set_at`: when Windlass first observed in Temporal
/// that it is; the task persists it.
#[must_use]
pub fn set_current(facts: &Facts, set_at: Option<DateTime<Utc>>, now: DateTime<Utc>) -> Next {
    let described = match begin(facts) {
        Ok(described) => described,
        Err(wait) => return wait,
    };
    let target = &facts.target.build;
    let is_current = described.routing.current.as_ref() == Some(target);
    if is_current && described.routing.ramp.is_none() {
        if !is_settled(described, set_at.map(|at| at.min(now)), now) {
            return Next::wait(Reason::Promoting, unsettled());
        }
        // If Temporal has not reported the routing, pollers have to show that it is in use.
        return not_served(facts).filter(|_| !described.is_settled).unwrap_or(Next::Done);
    }
    if is_current {
        return Next::Write(RoutingWrite::ClearRamp);
    }
    if let Some(wait) = not_served(facts) {
        return wait;
    }
    Next::Write(RoutingWrite::Current(Some(target.clone())))
}

/// The next step of the task that ends a ramp to an obsolete version.
#[must_use]
pub fn clear_ramp(facts: &Facts) -> Next {
    let Some(described) = facts.described() else { return lost(facts) };
    match &described.routing.ramp {
        None => Next::Done,
        // Windlass does not change what another identity manages; the task that claims the deployment reports it.
        Some(_) if facts.other_manager().is_some() => owned(facts),
        Some(_) if facts.spec.paused => Next::wait(Reason::Paused, PAUSED),
        Some(_) => Next::Write(RoutingWrite::ClearRamp),
    }
}

/// The write that ends a ramp which belongs to no plan.
#[must_use]
pub fn stray_ramp(facts: &Facts, planned: bool) -> Option<RoutingWrite> {
    let described = facts.described()?;
    let is_ours = facts.is_manager() && !facts.spec.paused && facts.deleted_at.is_none();
    (is_ours && !planned && described.routing.ramp.is_some()).then_some(RoutingWrite::ClearRamp)
}

/// The description, if Windlass may change the routing; else the wait.
fn begin(facts: &Facts) -> Result<&DescribedDeployment, Next> {
    let Some(described) = facts.described() else { return Err(lost(facts)) };
    if facts.other_manager().is_some() {
        return Err(owned(facts));
    }
    if facts.spec.paused {
        return Err(Next::wait(Reason::Paused, PAUSED));
    }
    Ok(described)
}

/// A wait for workers, if the target has none that can receive tasks. Temporal itself would route to a version without
/// pollers.
fn not_served(facts: &Facts) -> Option<Next> {
    let target = &facts.target.build;
    let version = facts.target_version();
    if version.is_some_and(|version| facts.is_scaled_to_zero(version)) {
        return None;
    }
    let unserved = version
        .filter(|version| version.workers.is_some())
        .map(|version| facts.pools_in_need(version).find(|pool| pool.available == 0));
    if unserved.is_none_or(|pool| pool.is_some()) {
        let of = match unserved.flatten() {
            Some(pool) if !pool.pool.is_empty() => format!("{target} in pool {}", pool.pool),
            _ => target.to_string(),
        };
        return Some(Next::wait(
            Reason::WorkersNotReady,
            format!("no worker of {of} is available: Windlass routes no further tasks to it"),
        ));
    }
    match version.and_then(|version| version.pollers) {
        Some(0) | None => Some(Next::wait(
            Reason::WaitingForPollers,
            format!(
                "no worker of {target} has polled Temporal recently: Windlass routes no further tasks to it"
            ),
        )),
        Some(_) => None,
    }
}

pub(crate) const PAUSED: &str = "waiting for the WorkerDeployment to be resumed: spec.paused is true";

/// A wait for Temporal.
#[must_use]
pub fn lost(facts: &Facts) -> Next {
    match &facts.temporal {
        super::TemporalState::Lost { reason, message } => Next::wait(*reason, message.clone()),
        super::TemporalState::Known(_) => Next::wait(Reason::Applying, "waiting for Temporal to respond"),
    }
}

/// A wait for a person to decide who manages the deployment.
#[must_use]
pub fn owned(facts: &Facts) -> Next {
    let manager = facts.other_manager().map(ToString::to_string).unwrap_or_default();
    Next::wait(
        Reason::OwnedByOther,
        format!(
            "{} is managed by {manager:?} in Temporal, so Windlass does not change its routing. Remove that manager \
             (temporal worker deployment manager-identity unset), or set it to {:?}",
            facts.deployment,
            facts.identity.to_string()
        ),
    )
}

fn unsettled() -> &'static str {
    "waiting for all task queues in Temporal to use the new routing"
}

fn at(time: DateTime<Utc>) -> String {
    time.to_rfc3339_opts(chrono::SecondsFormat::Secs, true)
}
