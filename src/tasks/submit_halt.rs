//! `submit-halt`: every node of the old set was asked to halt at the height.

use async_trait::async_trait;
use chrono::SecondsFormat;
use serde::{Deserialize, Serialize};

use super::entrants::Ensured;
use super::{FleetScope, entrants};
use crate::api::names::node_name;
use crate::engine::sentence::some_of;
use crate::engine::{Env, Outcome, Policy, Task, TaskContext, TaskError};
use crate::planner::fleet::progress::why_without_height;

/// A sentence if the old nodes cannot be asked to halt yet: the nodes whose height is not known, since when, and why
/// for the first of them, or else the nodes that do not exist.
fn heights(fleet: &FleetScope) -> Option<String> {
    let facts = fleet.facts();
    let Some(first) = facts.without_height().next() else {
        let name = |ordinal| node_name(&fleet.fleet.meta.name, &facts.set, ordinal);
        let absent: Vec<String> = facts.absent().into_iter().map(name).collect();
        let absent: Vec<&str> = absent.iter().map(String::as_str).collect();
        let why = "because no old node is asked to halt before each has reported a height";
        return (!absent.is_empty())
            .then(|| format!("waiting for {} to be recreated, {why}", some_of(&absent)));
    };
    let known = fleet.fleet.status.rollout.iter().flat_map(|rollout| &rollout.unconverged);
    let since = |name: &str| {
        let since = known.clone().filter(|node| node.name == name).map(|node| node.since).min();
        since.unwrap_or(fleet.now).min(fleet.now).to_rfc3339_opts(SecondsFormat::Secs, true)
    };
    let named: Vec<String> = facts
        .without_height()
        .map(|node| format!("{} (since {})", node.name, since(node.name.as_str())))
        .collect();
    let named: Vec<&str> = named.iter().map(String::as_str).collect();
    Some(format!(
        "waiting for {} to report a height, because no old node is asked to halt before each has: {}: {}",
        some_of(&named),
        first.name,
        why_without_height(first)
    ))
}

/// Asks the incumbents to halt, by fields of their specs; the executor of each node asks its sidecar.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct SubmitHalt {}

#[typetag::serde(name = "submit-halt")]
#[async_trait]
impl Task for SubmitHalt {
    async fn run(&self, cx: &TaskContext<'_>) -> Result<Outcome, TaskError> {
        let fleet = cx.env.get::<FleetScope>()?;
        let Some(rollout) = fleet.set_rollout() else { return Ok(Outcome::Done) };
        let running = match entrants::ensure_entrants(fleet, &cx.plan.id).await? {
            Ensured::Whole(entrants) => entrants.running(),
            Ensured::NotNow(outcome) => return Ok(outcome),
        };
        // This cannot be undone, so the stage has to be persisted first.
        if rollout.is_revocable() || rollout.halt_height == 0 {
            let missing = heights(fleet).or_else(|| entrants::why_traffic_stays(fleet));
            return Ok(match (running, missing) {
                (Outcome::Done, Some(missing)) => Outcome::waiting(missing),
                (Outcome::Done, None) => Outcome::waiting("waiting for the promotion to be recorded"),
                (waiting, _) => waiting,
            });
        }
        // The entrants ran when the stage was recorded. If some incumbents were asked already, the others have to halt
        // at the same height.
        if running != Outcome::Done && !entrants::is_begun(fleet, &rollout) {
            return Ok(running);
        }
        entrants::request_halt(fleet, &rollout, cx).await?;
        match entrants::unasked(fleet, &rollout).first() {
            Some(name) => Ok(Outcome::waiting(format!("waiting for the halt request to {name}"))),
            None => Ok(Outcome::Done),
        }
    }

    fn policy(&self, _: &Env) -> Policy {
        Policy::default().replayable()
    }
}
