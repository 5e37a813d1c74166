//! Task types whose names begin with `test-`, and a world that they change.

use std::collections::BTreeMap;
use std::future::pending;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use chrono::{DateTime, TimeDelta, Utc};
use proptest::prelude::*;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::{
    Due, Env, Outcome, Plan, PlanSeed, Policy, Recipe, Step, Task, TaskContext, TaskError, TaskState,
};

/// What tasks change. It outlives the process that runs them.
#[derive(Debug, Default)]
pub struct World {
    /// The effects. They are idempotent: repeating one changes nothing.
    state: Mutex<BTreeMap<String, u32>>,
    /// The ID of the task of each run, in order.
    runs: Mutex<Vec<String>>,
}

pub type SharedWorld = Arc<World>;

impl World {
    pub fn state(&self) -> BTreeMap<String, u32> {
        self.state.lock().unwrap().clone()
    }

    pub fn runs(&self) -> Vec<String> {
        self.runs.lock().unwrap().clone()
    }

    /// Records a run of a task, and returns the number of its runs so far.
    fn ran(&self, id: &str) -> u32 {
        let mut runs = self.runs.lock().unwrap();
        runs.push(id.to_owned());
        runs.iter().filter(|run| *run == id).count() as u32
    }
}

/// The number of steps until a simulated crash. It is in the environment of a process that is to crash.
#[derive(Debug)]
pub struct Fuse(AtomicU32);

impl Fuse {
    pub fn new(instants: u32) -> Self {
        Self(AtomicU32::new(instants))
    }

    /// Takes one step; false if the process crashes instead.
    pub fn burn(&self) -> bool {
        self.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok()
    }

    async fn burn_in_task(cx: &TaskContext<'_>) {
        if cx.env.find::<Arc<Self>>().is_some_and(|fuse| !fuse.burn()) {
            pending::<()>().await;
        }
    }
}

/// Sets `key` to `value`. It is done after it has waited `waits` times and then returned `failures` transient errors.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default, rename_all = "camelCase")]
pub struct Put {
    pub key: String,
    pub value: u32,
    pub replayable: bool,
    pub skippable: bool,
    pub waits: u32,
    pub failures: u32,
}

#[typetag::serde(name = "test-put")]
#[async_trait]
impl Task for Put {
    async fn run(&self, cx: &TaskContext<'_>) -> Result<Outcome, TaskError> {
        Fuse::burn_in_task(cx).await;
        let world: &SharedWorld = cx.env.get()?;
        world.state.lock().unwrap().insert(self.key.clone(), self.value);
        let run = world.ran(&cx.record.id);
        Fuse::burn_in_task(cx).await;
        if run <= self.waits {
            return Ok(Outcome::recheck("waiting for another turn", Duration::from_secs(1)));
        }
        if run <= self.waits + self.failures {
            return Err(TaskError::transient("not this time"));
        }
        Ok(Outcome::Done)
    }

    fn policy(&self, _: &Env) -> Policy {
        Policy { is_replayable: self.replayable, is_skippable: self.skippable, ..Policy::default() }
    }
}

/// Returns the outcome that its params name.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Say {
    pub answer: Answer,
    #[serde(default)]
    pub message: String,
    #[serde(default)]
    pub retry_after_seconds: Option<u64>,
}

#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub enum Answer {
    Wait,
    Fail,
    Retry,
    Invalidate,
}

#[typetag::serde(name = "test-say")]
#[async_trait]
impl Task for Say {
    async fn run(&self, cx: &TaskContext<'_>) -> Result<Outcome, TaskError> {
        if let Some(world) = cx.env.find::<SharedWorld>() {
            world.ran(&cx.record.id);
        }
        match (self.answer, self.retry_after_seconds) {
            (Answer::Wait, None) => Ok(Outcome::waiting(&self.message)),
            (Answer::Wait, Some(after)) => Ok(Outcome::recheck(&self.message, Duration::from_secs(after))),
            (Answer::Fail, _) => Err(TaskError::terminal(&self.message)),
            (Answer::Retry, None) => Err(TaskError::transient(&self.message)),
            (Answer::Retry, Some(after)) => {
                Err(TaskError::transient_after(&self.message, Duration::from_secs(after)))
            }
            (Answer::Invalidate, _) => Ok(Outcome::invalidated("TestChanged", &self.message)),
        }
    }

    fn policy(&self, _: &Env) -> Policy {
        Policy::default().due(Due::After(7))
    }
}

/// Returns one answer after another: the next one for each recorded run and each new attempt.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Try {
    answers: Vec<String>,
    #[serde(default)]
    holds: bool,
    /// The deadline in seconds; negative for never.
    #[serde(default)]
    due: Option<i64>,
    /// When to run again after progress, in seconds; negative for on an event.
    #[serde(default = "one")]
    recheck: i64,
    #[serde(default)]
    any_event: bool,
}

fn one() -> i64 {
    1
}

#[typetag::serde(name = "test-try")]
#[async_trait]
impl Task for Try {
    async fn run(&self, cx: &TaskContext<'_>) -> Result<Outcome, TaskError> {
        let (attempt, runs) =
            (cx.record.attempt.max(1), cx.record.progress["runs"].as_u64().unwrap_or_default());
        let answer = &self.answers[attempt as usize - 1 + runs as usize];
        let message = format!("try {attempt}: {answer}");
        Ok(match answer.as_str() {
            "Failed" => return Err(TaskError::terminal(message)),
            "Skipped" => Outcome::Skipped { message },
            "Progress" | "Same" => {
                let recheck_after = u64::try_from(self.recheck).ok().map(Duration::from_secs);
                let moved = json!({"runs": runs + 1});
                let progress = if answer == "Same" { cx.record.progress.clone() } else { moved };
                Outcome::Progress { message, recheck_after, progress }
            }
            _ => Outcome::Done,
        })
    }

    fn policy(&self, _: &Env) -> Policy {
        let due = match self.due {
            None => Due::Default,
            Some(seconds) if seconds < 0 => Due::Never,
            Some(seconds) => Due::After(seconds),
        };
        Policy { holds: self.holds, is_unpaced: self.any_event, ..Policy::default().skippable().due(due) }
    }
}

/// Panics.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Panic {
    with: Payload,
}

/// What a panic says.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
enum Payload {
    Literal,
    Formatted,
    Long,
    NoText,
}

#[typetag::serde(name = "test-panic")]
#[async_trait]
impl Task for Panic {
    async fn run(&self, cx: &TaskContext<'_>) -> Result<Outcome, TaskError> {
        match self.with {
            Payload::Literal => panic!("a bug"),
            Payload::Formatted => panic!("a bug in {}", cx.record.type_),
            Payload::Long => panic!("{}", "é".repeat(5_000)),
            Payload::NoText => std::panic::panic_any(7),
        }
    }
}

/// Has no params, and no deadline of its own.
#[derive(Debug, Deserialize, Serialize)]
pub struct Nothing;

#[typetag::serde(name = "test-nothing")]
#[async_trait]
impl Task for Nothing {
    async fn run(&self, _: &TaskContext<'_>) -> Result<Outcome, TaskError> {
        Ok(Outcome::Done)
    }
}

pub fn step(type_: &str, params: Value) -> Step {
    let Value::Object(params) = params else { panic!("params are an object") };
    Step { type_: type_.to_owned(), params }
}

pub fn put(put: &Put) -> Step {
    step("test-put", serde_json::to_value(put).unwrap())
}

/// Sets the key to 1.
pub fn put_key(key: &str) -> Step {
    put(&Put { key: key.to_owned(), value: 1, ..Put::default() })
}

pub fn say(answer: Answer, message: &str) -> Step {
    step("test-say", json!({"answer": answer, "message": message}))
}

pub fn nothing() -> Step {
    Step { type_: "test-nothing".to_owned(), params: Map::new() }
}

pub fn recipe(tasks: Vec<Step>) -> Recipe {
    Recipe { name: "Test".to_owned(), tasks }
}

pub fn plan_of(tasks: Vec<Step>) -> Plan {
    recipe(tasks).plan(seed("uid"))
}

pub fn seed(uid: &str) -> PlanSeed<'_> {
    PlanSeed { uid, target_hash: "v1:0", now: at(0), attempt: 0, disambiguator: "" }
}

pub fn states(plan: &Plan) -> Vec<TaskState> {
    plan.tasks.iter().map(|task| task.state).collect()
}

/// The index of the first task that has not ended; the number of tasks if all have.
pub fn index(plan: &Plan) -> usize {
    plan.current().unwrap_or(plan.tasks.len())
}

/// The time `seconds` after the start of the tests.
pub fn at(seconds: i64) -> DateTime<Utc> {
    DateTime::UNIX_EPOCH + TimeDelta::seconds(1_700_000_000 + seconds)
}

pub fn world() -> (SharedWorld, Env) {
    let world = SharedWorld::default();
    (world.clone(), Env::new().with(world))
}

prop_compose! {
    /// A task that sets one of few keys, so that tasks of one plan overwrite each other.
    pub fn any_put()(
        key in "[a-c]",
        value in 1_u32..5,
        replayable: bool,
        skippable: bool,
        waits in 0_u32..3,
        failures in 0_u32..3,
    ) -> Put {
        Put { key, value, replayable, skippable, waits, failures }
    }
}
