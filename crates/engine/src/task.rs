//! What a task is: the trait that a step's code implements, and what it may answer.

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
/// The fields of an implementor are the task's params; they are wire format, and so is the name. Derive
/// `Serialize` and `Deserialize` with `deny_unknown_fields`, so that a misspelt param is refused and not
/// ignored.
///
/// A task must be idempotent: it may be run again after its effect and before its record.
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
    /// Looks at how things are, does what is missing, and says whether that is all.
    async fn run(&self, cx: &TaskContext<'_>) -> Result<Outcome, TaskError>;

    /// After how many seconds it counts as stalled; `None`: the plan's default.
    fn deadline_seconds(&self) -> Option<i64> {
        None
    }

    /// Whether it may be run again from the start even after later tasks have acted. Where not, its
    /// completion is persisted (a checkpoint) before the next task runs.
    fn replayable(&self) -> bool {
        false
    }

    /// Whether a person may say that it need not be done.
    fn skippable(&self) -> bool {
        false
    }

    /// Whether its plan holds when it has failed, until a person has it tried again or skips it, or the plan is given up.
    /// Where not, the plan fails with it.
    fn holds(&self) -> bool {
        false
    }

    /// Until when it is expected to be done.
    fn due(&self, _cx: &TaskContext<'_>) -> Due {
        self.deadline_seconds().map_or(Due::Default, Due::After)
    }
}

/// Until when a task is expected to be done, from when it first ran.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Due {
    /// As every task of the plan that says nothing itself.
    Default,
    /// After so many seconds.
    After(i64),
    /// However long it takes.
    Never,
}

/// What a task is handed when it runs.
#[derive(Clone, Copy, Debug)]
pub struct TaskContext<'a> {
    /// What it works with: clients, and what was observed.
    pub env: &'a Env,
    /// The time now. A task reads no clock.
    pub now: DateTime<Utc>,
    /// The plan that it is part of.
    pub plan: &'a Plan,
    /// Its own record in that plan. The ID is the same at every run, so that a peer can recognise a repeat.
    pub record: &'a TaskRecord,
}

impl<'a> TaskContext<'a> {
    /// A context of these parts.
    #[must_use]
    pub fn new(env: &'a Env, now: DateTime<Utc>, plan: &'a Plan, record: &'a TaskRecord) -> Self {
        Self { env, now, plan, record }
    }
}

/// What came of running a task.
#[derive(Clone, Debug, Eq, PartialEq)]
#[must_use]
pub enum Outcome {
    /// What it is there for is so.
    Done,
    /// It has to wait for something and will be run again.
    Waiting {
        /// "waiting for …", a sentence for the user.
        message: String,
        /// When to look again if no event comes first; `None`: an event will come.
        recheck_after: Option<Duration>,
    },
    /// As [`Outcome::Waiting`], and something is to be remembered until it is run again.
    Progress {
        /// "waiting for …", a sentence for the user.
        message: String,
        /// When to look again if no event comes first; `None`: an event will come.
        recheck_after: Option<Duration>,
        /// What is found in the record's `progress` next time.
        progress: Value,
    },
    /// It is not to be done here.
    Skipped {
        /// Why, in a sentence.
        message: String,
    },
    /// What it is there for was tried, and is not so. Of a task that [holds](Task::holds) its plan holds.
    Failed {
        /// What was found, in a sentence.
        message: String,
    },
    /// What an earlier, completed task established no longer holds: the plan ends.
    Invalidated {
        /// A word in camel case, for history.
        reason: String,
        /// What was found, in a sentence.
        message: String,
    },
}

impl Outcome {
    /// Waiting for something that will announce itself.
    pub fn waiting(message: impl Into<String>) -> Self {
        Self::Waiting { message: message.into(), recheck_after: None }
    }

    /// Waiting for something that must be asked for again.
    pub fn recheck(message: impl Into<String>, after: Duration) -> Self {
        Self::Waiting { message: message.into(), recheck_after: Some(after) }
    }

    /// What an earlier task established no longer holds.
    pub fn invalidated(reason: impl Into<String>, message: impl Into<String>) -> Self {
        Self::Invalidated { reason: reason.into(), message: message.into() }
    }
}
