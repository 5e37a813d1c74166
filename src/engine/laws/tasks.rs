//! Task types whose names begin with `test-`, and a world for them to act on.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use chrono::{DateTime, TimeDelta, Utc};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::engine::{Env, Outcome, Plan, PlanSeed, Recipe, Step, Task, TaskContext, TaskError};

/// Where tasks leave their effects, by the name that they were given, and the order in which they acted.
#[derive(Debug, Default)]
pub struct World {
    /// What is so now. An effect is idempotent: the same again changes nothing.
    pub state: Mutex<BTreeMap<String, u32>>,
    /// Every time that a task ran, by ID.
    pub runs: Mutex<Vec<String>>,
}

pub type SharedWorld = Arc<World>;

/// Sets `key` to `value`, after having waited or failed in passing for so many runs.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct Put {
    pub key: String,
    pub value: u32,
    #[serde(default)]
    pub replayable: bool,
    #[serde(default)]
    pub waits: u32,
    #[serde(default)]
    pub failures: u32,
}

#[typetag::serde(name = "test-put")]
#[async_trait]
impl Task for Put {
    async fn run(&self, cx: &TaskContext<'_>) -> Result<Outcome, TaskError> {
        let world: &SharedWorld = cx.env.get()?;
        world.runs.lock().unwrap().push(cx.record.id.clone());
        let seen = {
            let mut state = world.state.lock().unwrap();
            state.insert(self.key.clone(), self.value);
            let seen = state.entry(format!("{} runs", cx.record.id)).or_default();
            *seen += 1;
            *seen
        };
        if seen <= self.waits {
            return Ok(Outcome::recheck("waiting for another turn", Duration::from_secs(1)));
        }
        if seen <= self.waits + self.failures {
            return Err(TaskError::transient("not this time"));
        }
        Ok(Outcome::Done)
    }

    fn replayable(&self) -> bool {
        self.replayable
    }
}

/// Answers what it is told to.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Say {
    pub answer: Answer,
    #[serde(default)]
    pub message: String,
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
    async fn run(&self, _: &TaskContext<'_>) -> Result<Outcome, TaskError> {
        match self.answer {
            Answer::Wait => Ok(Outcome::waiting(&self.message)),
            Answer::Fail => Err(TaskError::terminal(&self.message)),
            Answer::Retry => Err(TaskError::transient_after(&self.message, Duration::from_hours(24))),
            Answer::Invalidate => Ok(Outcome::invalidated("TestChanged", &self.message)),
        }
    }

    fn deadline_seconds(&self) -> Option<i64> {
        Some(7)
    }

    fn skippable(&self) -> bool {
        true
    }
}

/// Has no params.
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

pub fn put(key: &str, value: u32) -> Step {
    step("test-put", json!({"key": key, "value": value}))
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
    recipe(tasks).plan(seed("uid", at(0)))
}

pub fn seed(uid: &str, now: DateTime<Utc>) -> PlanSeed<'_> {
    PlanSeed { uid, target_hash: "v1:0", now, attempt: 0, disambiguator: "" }
}

/// So many seconds after the tests began.
pub fn at(seconds: i64) -> DateTime<Utc> {
    DateTime::UNIX_EPOCH + TimeDelta::seconds(1_700_000_000 + seconds)
}

pub fn world() -> (SharedWorld, Env) {
    let world = SharedWorld::default();
    (world.clone(), Env::new().with(world))
}
