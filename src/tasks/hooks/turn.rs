//! What all hook tasks have in common: which hook the task runs, whether it runs at all, and for how long.

use std::time::Duration;

use chrono::TimeDelta;

use super::{About, HookList, HookParams, HookScope};
use crate::api::{Hook, HookAction};
use crate::engine::{Due, Env, Outcome, TaskContext, TaskError};
use crate::hooks::Values;

/// The requeue delay of a task that was reached in the middle of a reconcile.
const AT_ONCE: Duration = Duration::from_millis(10);

/// How often a hook checks what it waits for. Most of it also causes an event.
const AWAITED: Duration = Duration::from_secs(5);

/// What the run of a hook's task returns.
pub(super) type Answer = Result<Outcome, TaskError>;

/// One run of a hook's task.
pub(super) struct Turn<'a> {
    pub cx: &'a TaskContext<'a>,
    pub scope: &'a HookScope,
    pub hook: &'a Hook,
}

impl<'a> Turn<'a> {
    /// The run of a hook whose action matches this task's type. An error is the task's outcome: it is skipped, or has
    /// to wait.
    pub(super) fn of(cx: &'a TaskContext<'a>, params: &HookParams) -> Result<Self, Outcome> {
        let nothing = |why: String| Err(Outcome::Skipped { message: why });
        let name = &params.hook;
        let Some((scope, hook)) = find(cx.env, params) else {
            // The hooks are not known, which does not mean that there are none.
            let unknown = cx.env.find::<HookScope>().filter(|scope| matches!(scope.hooks, HookList::Unknown));
            if let Some(why) = unknown.and_then(|scope| scope.hold.clone()) {
                return Err(Outcome::waiting(why));
            }
            let field =
                cx.env.find::<HookScope>().map_or("updateStrategy.hooks", |scope| scope.hooks.field());
            return nothing(format!("there is no hook {name} in {field}"));
        };
        let type_ = hook.action().map(HookAction::task_type).unwrap_or_default();
        if type_ != cx.record.type_ {
            return nothing(format!("the action of hook {name} has changed"));
        }
        if let About::Point(point) = scope.about
            && params.at.is_some()
            && params.at != point
        {
            // `skip` and `hold` are of another point: tasks of this reconcile have just moved the plan on.
            return Err(Outcome::recheck("waiting for the next reconcile", AT_ONCE));
        }
        if let Some(why) = &scope.skip {
            return nothing(why.clone());
        }
        Ok(Self { cx, scope, hook })
    }

    /// The attempt, from 1.
    pub(super) fn attempt(&self) -> u32 {
        self.cx.record.attempt.max(1)
    }

    /// The known values, including the IDs of the plan and of the task.
    pub(super) fn values(&self) -> Values {
        Values {
            plan_id: Some((&self.cx.plan.id).into()),
            task_id: Some(self.cx.record.id.clone()),
            ..self.scope.values.clone()
        }
    }

    pub(super) fn is_overdue(&self) -> bool {
        self.cx.record.deadline.is_some_and(|deadline| deadline <= self.cx.now)
    }

    /// The time-out of one request: an answer that takes longer than the hook may take is of no use.
    pub(super) fn request_timeout(&self, at_most: Duration) -> Duration {
        self.hook.timeout_seconds().map_or(at_most, |of_hook| seconds(of_hook).min(at_most))
    }

    /// Waits for something, and requeues in time for the timeout.
    pub(super) fn waits(&self, message: impl Into<String>, again: Duration) -> Outcome {
        Outcome::recheck(message, self.in_time(again))
    }

    /// Like `waits`, and persists `progress`.
    pub(super) fn keeps(
        &self,
        message: impl Into<String>,
        again: Duration,
        progress: serde_json::Value,
    ) -> Outcome {
        let recheck_after = Some(self.in_time(again));
        Outcome::Progress { message: message.into(), recheck_after, progress }
    }

    fn in_time(&self, again: Duration) -> Duration {
        let left = self.cx.record.deadline.map(|deadline| deadline - self.cx.now);
        // A moment after the deadline, so that it has passed.
        let left = left.and_then(|left| (left + TimeDelta::milliseconds(1)).to_std().ok());
        left.map_or(again, |left| left.min(again))
    }

    /// The answer of a hook that waits before it starts or goes on, if it does.
    pub(super) fn awaits(&self) -> Option<Answer> {
        let awaited = self.scope.awaits.as_ref()?;
        Some(if awaited.is_timed && self.is_overdue() {
            self.is_late(&awaited.sentence)
        } else {
            Ok(self.waits(awaited.sentence.clone(), AWAITED))
        })
    }

    /// The hook has failed because its timeout has passed.
    pub(super) fn is_late(&self, what: &str) -> Answer {
        let seconds = self.hook.timeout_seconds().unwrap_or_default();
        Err(TaskError::terminal(format!("no success within {seconds} s; {what}")))
    }

    /// The message of the task's last run, or the given text if there was none.
    pub(super) fn last_message_or(&self, else_: String) -> String {
        let said = &self.cx.record.message;
        if said.is_empty() { else_ } else { said.clone() }
    }
}

/// A time of a hook's spec, at least a second.
pub(super) fn seconds(seconds: i64) -> Duration {
    Duration::from_secs(u64::try_from(seconds).unwrap_or_default().max(1))
}

/// When a hook's task times out. The timeout does not run while the hook is on hold, and starts again after that.
pub(super) fn due(env: &Env, params: &HookParams) -> Due {
    let found = find(env, params).filter(|(scope, _)| {
        scope.hold.is_none() && scope.awaits.as_ref().is_none_or(|awaited| awaited.is_timed)
    });
    found.and_then(|(_, hook)| hook.timeout_seconds()).map_or(Due::Never, Due::After)
}

fn find<'a>(env: &'a Env, params: &HookParams) -> Option<(&'a HookScope, &'a Hook)> {
    let scope = env.find::<HookScope>()?;
    Some((scope, scope.hook(&params.hook)?))
}

/// Defines the task of a hook's action. When it runs, its possible outcomes and its timeout are the same for all
/// actions. An action that leaves something behind also says what to do if its task does not run.
macro_rules! hook_task {
    ($(#[$about:meta])* $task:ident = $name:literal, |$turn:ident| $carried_out:expr) => {
        hook_task! { $(#[$about])* $task = $name, |$turn| $carried_out, |_cx, outcome| Ok(outcome) }
    };
    (
        $(#[$about:meta])* $task:ident = $name:literal,
        |$turn:ident| $carried_out:expr, |$cx:ident, $outcome:ident| $not_run:expr
    ) => {
        $(#[$about])*
        #[derive(Debug, Default, serde::Deserialize, serde::Serialize)]
        #[serde(transparent)]
        pub struct $task(pub super::HookParams);

        #[typetag::serde(name = $name)]
        #[async_trait::async_trait]
        impl crate::engine::Task for $task {
            async fn run(
                &self,
                $cx: &crate::engine::TaskContext<'_>,
            ) -> Result<crate::engine::Outcome, crate::engine::TaskError> {
                match super::turn::Turn::of($cx, &self.0) {
                    Ok($turn) => match $turn.awaits() {
                        Some(answer) => answer,
                        None => $carried_out,
                    },
                    Err($outcome) => $not_run,
                }
            }

            fn policy(&self, env: &crate::engine::Env) -> crate::engine::Policy {
                // The answer of a peer is an event, and nothing is asked twice in between.
                crate::engine::Policy::default().skippable().holding().unpaced().due(super::turn::due(env, &self.0))
            }
        }
    };
}
pub(super) use hook_task;
