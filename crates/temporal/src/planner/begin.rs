//! Builds the plan of a new rollout: the recipe and its hooks, fixed when the rollout begins.

use windlass_engine::{Plan, PlanSeed, Recipe};

use super::facts::Facts;
use super::hooks;
use super::recipe::recipe;
use crate::api::Reason;

/// A new plan to the target, with the hooks that apply to a rollout with this cause.
#[must_use]
pub fn plan(
    facts: &Facts,
    before: Option<&Plan>,
    cause: Reason,
    attempt: u32,
    now: chrono::DateTime<chrono::Utc>,
) -> Plan {
    let recipe = recipe(facts);
    let tasks = hooks::interleave(hooks::wanted(facts, cause), &recipe.tasks);
    Recipe { tasks, ..recipe }.plan(PlanSeed {
        uid: &facts.uid,
        target_hash: &facts.target.hash,
        now,
        attempt,
        disambiguator: before.map_or("", |plan| plan.id.as_str()),
    })
}
