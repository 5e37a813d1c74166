//! The recipe of a rollout: its tasks without the hooks.

use serde_json::{Map, Value, json};
use windlass_engine::{Recipe, Step};

use super::facts::{Facts, Version, Workers};
use crate::api::{Gate, Strategy};

/// The name of the recipe.
pub const WORKER_ROLLOUT: &str = "WorkerRollout";

/// The parameter of a ramp task after which hooks run.
pub const HOOKS: &str = "hooks";

/// The kind of a rollout.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Direction {
    /// To a version that was not current before, or whose workers do not run.
    New,
    /// To a version that was current before and whose workers run, or that is current: it receives all tasks at once.
    Back,
}

/// The direction of a rollout to the target.
#[must_use]
pub fn direction(facts: &Facts) -> Direction {
    let lives = |version: &&Version| {
        version.workers.as_ref().is_some_and(|workers| {
            !workers.is_terminating()
                && (workers.template_hash() == Some(&facts.target.template_hash)
                    || facts.current() == Some(&version.build))
        })
    };
    let is_back = facts.target_version().filter(lives).is_some_and(|version| {
        facts.current() == Some(&version.build)
            || (version.was_current() && facts.ramping() != Some(&version.build))
    });
    if is_back { Direction::Back } else { Direction::New }
}

/// True if the target's build ID has workers of another template.
#[must_use]
pub fn runs_another_template(facts: &Facts) -> bool {
    let is_other = |hash: &String| *hash != facts.target.template_hash;
    let workers = facts.target_version().and_then(|version| version.workers.as_ref());
    let mut pools = workers.into_iter().flat_map(Workers::pools);
    pools.any(|pool| pool.template_hash.as_ref().is_some_and(is_other))
}

/// The recipe of a rollout to the target.
#[must_use]
pub fn recipe(facts: &Facts) -> Recipe {
    let rollout = &facts.spec.rollout;
    let direction = direction(facts);
    let mut tasks = Vec::new();
    // With a fixed build ID, the ramp may have started with another template: the new one receives no tasks before the
    // gate.
    let is_another = runs_another_template(facts);
    let ramps = facts.routing().is_some_and(|routing| routing.ramp.is_some());
    if ramps && (facts.ramping() != Some(&facts.target.build) || is_another) {
        tasks.push(step("clear-ramp"));
    }
    tasks.extend(["create-version", "await-available", "await-registered"].map(step));
    let gate = rollout.gate.as_ref().filter(|gate| direction == Direction::New || gate.on_rollback);
    let strategy = rollout.strategy();
    let run_gate = |gate: &Gate| {
        let mut params = json!({
            "workflowType": gate.workflow_type, "taskQueues": gate.task_queues, "input": gate.input,
            "timeoutSeconds": gate.timeout_seconds,
        });
        if let Some(from) = &gate.input_from {
            params["inputFrom"] = json!(from);
        }
        with("run-gate", &params)
    };
    if strategy == Strategy::Manual {
        // Until a person promotes it, the rollout changes nothing in the routing.
        tasks.extend(gate.map(run_gate));
        tasks.extend(["await-promote", "claim-manager", "set-current"].map(step));
        return Recipe { name: WORKER_ROLLOUT.to_owned(), tasks };
    }
    tasks.push(step("claim-manager"));
    tasks.extend(gate.map(run_gate));
    if strategy == Strategy::Progressive && direction == Direction::New {
        for (index, ramp) in rollout.steps.iter().enumerate() {
            if ramp.gate && index > 0 {
                tasks.extend(gate.map(run_gate));
            }
            let mut params = json!({"percent": ramp.percent, "pauseSeconds": ramp.pause_seconds});
            if ramp.hooks {
                params[HOOKS] = json!(true);
            }
            tasks.push(with("ramp", &params));
        }
    }
    tasks.push(step("set-current"));
    Recipe { name: WORKER_ROLLOUT.to_owned(), tasks }
}

fn step(type_: &str) -> Step {
    with(type_, &Value::Null)
}

fn with(type_: &str, params: &Value) -> Step {
    let params = params.as_object().cloned().unwrap_or_else(Map::new);
    Step { type_: type_.to_owned(), params }
}
