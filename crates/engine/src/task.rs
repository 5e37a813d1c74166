//! The trait that the code of a step implements, and the outcomes that it may return.

use std::fmt::Debug;
use std::time::Duration;

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use serde_json::Value;

use super::env::Env;
use super::error::TaskError;
use super::plan::{Plan, TaskRecord};

/// The code of one step of a plan.
///
/// The fields of an implementor are the task's params. They are part of the wire format, and so is the name. Derive
/// `Serialize` and `Deserialize` with `deny_unknown_fields`, so that a misspelt param is rejected instead of ignored.
///
/// A task must be idempotent: it runs again if the process dies after its effect and before its record is persisted.
///
/// ```
/// use async_trait::async_trait;
/// use serde::{Deserialize, Serialize};
/// use windlass_engine::{Outcome, Task, TaskContext, TaskError};
///
/// #[derive(Debug, Deserialize, Serialize)]
/// #[serde(deny_unknown_fields)]
/// struct RingBell {
///     times: u32,
/// }
///
/// #[typetag::serde(name = "ring-bell")]
/// #[async_trait]
/// impl Task for RingBell {
///     async fn run(&self, cx: &TaskContext<'_>) -> Result<Outcome, TaskError> {
///         let bell: &String = cx.env.get()?;
///         println!("{} rings {bell} {} times", cx.record.id, self.times);
///         Ok(Outcome::Done)
///     }
/// }
/// ```
#[typetag::serde(tag = "type", content = "params")]
#[async_trait]
pub trait Task: Debug + Send + Sync {
    /// Observes the current state, does what is missing, and reports whether the task is done.
    async fn run(&self, cx: &TaskContext<'_>) -> Result<Outcome, TaskError>;

    /// How plans treat it. `env`: what its run works with; empty where only its failure or a skip is at stake.
    fn policy(&self, _env: &Env) -> Policy {
        Policy::default()
    }
}

/// How plans treat a task.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[must_use]
pub struct Policy {
    pub(super) is_replayable: bool,
    pub(super) is_skippable: bool,
    pub(super) holds: bool,
    pub(super) is_unpaced: bool,
    pub(super) due: Due,
}

impl Policy {
    /// It may run again from the start even after later tasks have acted. Otherwise its completion is persisted (a
    /// checkpoint) before the next task runs.
    pub fn replayable(self) -> Self {
        Self { is_replayable: true, ..self }
    }

    /// A user may skip it.
    pub fn skippable(self) -> Self {
        Self { is_skippable: true, ..self }
    }

    /// True if a user may skip it.
    #[must_use]
    pub fn is_skippable(self) -> bool {
        self.is_skippable
    }

    /// Its failure holds the plan: the plan stays active until a user retries or skips the task, or the plan is ended.
    /// Otherwise the plan fails with the task.
    pub fn holding(self) -> Self {
        Self { holds: true, ..self }
    }

    /// An event may run it again right after a run that changed its progress. Otherwise it rests first: for its
    /// `recheck_after`, but for two seconds at most. The write of the progress is such an event, so that a task whose
    /// progress changes with each run would run without a pause. Only for a task whose progress changes because something
    /// else did.
    pub fn unpaced(self) -> Self {
        Self { is_unpaced: true, ..self }
    }

    /// When it is expected to be done.
    pub fn due(self, due: Due) -> Self {
        Self { due, ..self }
    }
}

/// When a task is expected to be done, counted from its first run.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Due {
    /// After the plan's default deadline.
    #[default]
    Default,
    /// After this many seconds.
    After(i64),
    /// It may take any time.
    Never,
}

/// The input of a task's run.
#[derive(Clone, Copy, Debug)]
pub struct TaskContext<'a> {
    /// Its dependencies: clients, and the observed state.
    pub env: &'a Env,
    /// The current time. A task reads no clock.
    pub now: DateTime<Utc>,
    /// The plan that it is part of.
    pub plan: &'a Plan,
    /// Its own record in that plan. The ID is the same for every run, so that a peer can recognise a repeated request.
    pub record: &'a TaskRecord,
}

impl<'a> TaskContext<'a> {
    /// Creates a context.
    #[must_use]
    pub fn new(env: &'a Env, now: DateTime<Utc>, plan: &'a Plan, record: &'a TaskRecord) -> Self {
        Self { env, now, plan, record }
    }
}

/// The outcome of a task's run.
#[derive(Clone, Debug, Eq, PartialEq)]
#[must_use]
pub enum Outcome {
    /// It is done.
    Done,
    /// It has to wait for something and will run again.
    Waiting {
        /// "waiting for …", a sentence for the user.
        message: String,
        /// When to requeue if no event arrives first; `None` if an event will arrive.
        recheck_after: Option<Duration>,
    },
    /// As [`Outcome::Waiting`], with state that is kept until the next run. If it differs from what was kept before, the
    /// task [rests](Policy::unpaced) for a moment, whatever events arrive.
    Progress {
        /// "waiting for …", a sentence for the user.
        message: String,
        /// When to requeue if no event arrives first; `None` if an event will arrive.
        recheck_after: Option<Duration>,
        /// The value of the record's `progress` in the next run.
        progress: Value,
    },
    /// It does not apply here.
    Skipped {
        /// Why, in a sentence.
        message: String,
    },
    /// The result of an earlier, completed task no longer holds: the plan ends as Superseded.
    Invalidated {
        /// The reason for the history, in camel case.
        reason: String,
        /// What was found, in a sentence.
        message: String,
    },
}

impl Outcome {
    /// Waiting for something that will cause an event.
    pub fn waiting(message: impl Into<String>) -> Self {
        Self::Waiting { message: message.into(), recheck_after: None }
    }

    /// Waiting for something that has to be polled.
    pub fn recheck(message: impl Into<String>, after: Duration) -> Self {
        Self::Waiting { message: message.into(), recheck_after: Some(after) }
    }

    /// The result of an earlier task no longer holds.
    pub fn invalidated(reason: impl Into<String>, message: impl Into<String>) -> Self {
        Self::Invalidated { reason: reason.into(), message: message.into() }
    }
}
