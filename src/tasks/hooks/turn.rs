//! What all tasks of hooks have in common: which hook it is, whether it is to be carried out at all, and for how long.

use std::time::Duration;

use chrono::TimeDelta;

use super::{About, HookParams, HookScope};
use crate::api::{Hook, HookAction};
use crate::engine::{Due, Outcome, TaskContext};
use crate::hooks::Values;

/// How soon a task is run again that was reached in the middle of a reconcile.
const AT_ONCE: Duration = Duration::from_millis(10);

/// One run of a hook's task.
pub(super) struct Turn<'a> {
    pub cx: &'a TaskContext<'a>,
    pub scope: &'a HookScope,
    pub hook: &'a Hook,
}

impl<'a> Turn<'a> {
    /// The run of a hook whose action is of this task's type. An error is the answer where there is nothing to do.
    pub(super) fn of(cx: &'a TaskContext<'a>, params: &HookParams) -> Result<Self, Outcome> {
        let nothing = |why: String| Err(Outcome::Skipped { message: why });
        let name = &params.hook;
        let Some((scope, hook)) = find(cx, params) else {
            let field =
                cx.env.find::<HookScope>().map_or("updateStrategy.hooks", |scope| scope.hooks.field());
            return nothing(format!("there is no hook {name} in {field}"));
        };
        let type_ = hook.action().map(HookAction::task_type).unwrap_or_default();
        if type_ != cx.record.type_ {
            return nothing(format!("hook {name} does something else by now"));
        }
        if let About::Point(point) = scope.about
            && params.at.is_some()
            && params.at != point
        {
            // Tasks before this one have just acted: what was found out of it before is not so any more.
            return Err(Outcome::recheck(format!("waiting for hook {name} to be looked at"), AT_ONCE));
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

    /// What is known of the values, those of plan and task included.
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

    /// Waits for something, and looks again in time for the time-out.
    pub(super) fn waits(&self, message: impl Into<String>, again: Duration) -> Outcome {
        Outcome::recheck(message, self.in_time(again))
    }

    /// The same, and has something kept.
    pub(super) fn keeps(
        &self,
        message: impl Into<String>,
        again: Duration,
        progress: serde_json::Value,
    ) -> Outcome {
        Outcome::Progress { message: message.into(), recheck_after: Some(self.in_time(again)), progress }
    }

    fn in_time(&self, again: Duration) -> Duration {
        let left = self.cx.record.deadline.map(|deadline| deadline - self.cx.now);
        // A moment after it, so that it has passed.
        let left = left.and_then(|left| (left + TimeDelta::milliseconds(1)).to_std().ok());
        left.map_or(again, |left| left.min(again))
    }

    /// It failed, in a sentence that begins with the hook and whose it is.
    pub(super) fn fails(&self, what: &str) -> Outcome {
        Outcome::Failed { message: format!("hook {} of {}: {what}", self.hook.name, self.scope.owner.name) }
    }

    /// It failed because its time is up.
    pub(super) fn is_late(&self, what: &str) -> Outcome {
        let seconds = self.hook.timeout_seconds().unwrap_or_default();
        self.fails(&format!("no success within {seconds} s; {what}"))
    }

    /// What was said when it was last looked at; the text where nothing was.
    pub(super) fn said_before(&self, else_: String) -> String {
        let said = &self.cx.record.message;
        if said.is_empty() { else_ } else { said.clone() }
    }
}

/// When a task of a hook has failed unless it was done before. Its clock stands while it is held, and begins anew after that.
pub(super) fn due(cx: &TaskContext<'_>, params: &HookParams) -> Due {
    let found = find(cx, params).filter(|(scope, _)| scope.hold.is_none());
    found.and_then(|(_, hook)| hook.timeout_seconds()).map_or(Due::Never, Due::After)
}

fn find<'a>(cx: &'a TaskContext<'a>, params: &HookParams) -> Option<(&'a HookScope, &'a Hook)> {
    let scope = cx.env.find::<HookScope>()?;
    Some((scope, scope.hook(&params.hook)?))
}

/// The task of a hook's action: whether it is its turn, what may become of it, and until when, is the same for all of them.
macro_rules! hook_task {
    ($(#[$about:meta])* $task:ident = $name:literal, |$turn:ident| $carried_out:expr) => {
        $(#[$about])*
        #[derive(Debug, Default, serde::Deserialize, serde::Serialize)]
        #[serde(transparent)]
        pub struct $task(pub super::HookParams);

        #[typetag::serde(name = $name)]
        #[async_trait::async_trait]
        impl crate::engine::Task for $task {
            async fn run(
                &self,
                cx: &crate::engine::TaskContext<'_>,
            ) -> Result<crate::engine::Outcome, crate::engine::TaskError> {
                match super::turn::Turn::of(cx, &self.0) {
                    Ok($turn) => $carried_out,
                    Err(outcome) => Ok(outcome),
                }
            }

            fn skippable(&self) -> bool {
                true
            }

            fn holds(&self) -> bool {
                true
            }

            fn due(&self, cx: &crate::engine::TaskContext<'_>) -> crate::engine::Due {
                super::turn::due(cx, &self.0)
            }
        }
    };
}
pub(super) use hook_task;
