//! The plan of a rollout that begins: its recipe with the hooks among it, frozen from then on.

use windlass_engine::{Plan, PlanSeed, Recipe};

use super::facts::Facts;
use super::hooks;
use super::recipe::recipe;
use crate::api::Reason;

/// A new plan to what is wanted, with the hooks that there are for why it begins.
#[must_use]
pub fn plan(
    facts: &Facts,
    before: Option<&Plan>,
    cause: Reason,
    attempt: u32,
    now: chrono::DateTime<chrono::Utc>,
) -> Plan {
    let recipe = recipe(facts);
    let tasks = hooks::among(hooks::wanted(facts, cause), &recipe.tasks);
    Recipe { tasks, ..recipe }.plan(PlanSeed {
        uid: &facts.uid,
        target_hash: &facts.target.hash,
        now,
        attempt,
        disambiguator: before.map_or("", |plan| plan.id.as_str()),
    })
}
