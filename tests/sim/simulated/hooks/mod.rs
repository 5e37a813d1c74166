//! Fleets with hooks on the simulated cluster, with the unmodified operator. The hooks here wait for a time or a
//! person: an approval that never comes is a failed hook.

mod back;
mod failure;
mod first_start;
mod owed;
mod points;
mod promotion;
mod stalled;
mod steps;

use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use super::sets::world::{NODE, World, condition, fleet, is_up_to_date, play, text, to_text};

/// A hook that waits for a time.
fn rest(name: &str, at: &str, seconds: i64) -> Value {
    json!({"name": name, "at": at, "wait": {"seconds": seconds}})
}

/// A hook that waits for a person.
fn person(name: &str, at: &str) -> Value {
    json!({"name": name, "at": at, "approval": {}})
}

/// A hook that fails after three seconds.
fn fails(name: &str, at: &str, on_failure: &str) -> Value {
    json!({"name": name, "at": at, "approval": {}, "timeoutSeconds": 3, "onFailure": on_failure})
}

#[allow(clippy::needless_pass_by_value, reason = "a literal reads better so")]
fn in_place(replicas: i32, settings: Value, hooks: Value) -> Value {
    fleet(replicas, json!({"type": "InPlace", "inPlace": settings, "hooks": hooks}))
}

/// The tasks of a plan: a hook's name or the task's type, and its state unless Pending.
fn tasks(plan: &Value) -> Vec<String> {
    let word = |task: &Value| {
        let name = task["params"]["hook"].as_str().unwrap_or_else(|| text(task, "type"));
        match text(task, "state") {
            "Pending" => name.to_owned(),
            state => format!("{name}={state}"),
        }
    };
    plan["tasks"].as_array().map(|tasks| tasks.iter().map(word).collect()).unwrap_or_default()
}

/// The message of a condition.
fn message<'a>(status: &'a Value, type_: &str) -> &'a str {
    let list = status["conditions"].as_array().unwrap();
    text(list.iter().find(|c| c["type"] == type_).unwrap(), "message")
}

/// The task of a hook in a plan.
fn task<'a>(plan: &'a Value, hook: &str) -> &'a Value {
    let tasks = plan["tasks"].as_array().unwrap();
    tasks
        .iter()
        .find(|task| task["params"]["hook"] == hook)
        .unwrap_or_else(|| panic!("{hook}: {}", to_text(plan)))
}

impl World {
    fn node_plan(&self, node: &str) -> Value {
        self.get(NODE, node)["status"]["plan"].clone()
    }

    /// Waits until a node's plan is at a hook, in this state.
    async fn until_node_at(&self, node: &str, hook: &str, state: &str) -> Value {
        let mut found = Value::Null;
        let is_at = |plan: &Value| {
            let tasks = plan["tasks"].as_array().cloned().unwrap_or_default();
            let found = tasks.iter().any(|t| t["params"]["hook"] == hook && t["state"] == state);
            found && plan["state"] == "Active"
        };
        self.until(&format!("{node} is at {hook}, {state}"), |_| {
            found = self.node_plan(node);
            is_at(&found)
        })
        .await;
        found
    }

    async fn approve(&self, task_id: &str) {
        self.annotate("windlass.dev/approve", task_id).await;
    }
}
