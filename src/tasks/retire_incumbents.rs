//! `retire-incumbents`: the old set is gone.

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use super::{FleetScope, entrants};
use crate::api::{SetName, Stage};
use crate::apply::fleet_pods::REQUEUE_STALE_PODS;
use crate::apply::unwatched::ask_again;
use crate::engine::sentence::some_of;
use crate::engine::{Outcome, Task, TaskContext, TaskError};
use crate::planner::fleet::sets::stage::has_switched;
use crate::planner::fleet::{SetRollout, Strategy, WAITS_TO_BE_RESUMED};

/// Waits until the incumbents are gone. If the strategy removes them before their successors are created, this task
/// removes them.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct RetireIncumbents {}

#[typetag::serde(name = "retire-incumbents")]
#[async_trait]
impl Task for RetireIncumbents {
    async fn run(&self, cx: &TaskContext<'_>) -> Result<Outcome, TaskError> {
        let fleet = cx.env.get::<FleetScope>()?;
        let Some(rollout) = fleet.set_rollout() else { return Ok(Outcome::Done) };
        let facts = fleet.facts();
        // If the status has lost the old set, it is the active one, as long as no other has taken over.
        let active =
            || Some(&facts.set).filter(|set| rollout.stage == Stage::Promoting && **set != rollout.entrant);
        let Some(set) = rollout.incumbent.as_ref().or_else(active) else { return Ok(Outcome::Done) };
        let left = || fleet.left_of(set);
        if left().is_empty() {
            return old_set_is_deleted(fleet, &rollout, set).await;
        }
        if facts.spec.paused {
            return Ok(Outcome::waiting(WAITS_TO_BE_RESUMED));
        }
        if let Some(sentence) = facts.rollout.gate.sentence() {
            return Ok(Outcome::waiting(sentence));
        }
        if rollout.stage != Stage::Retiring {
            // The delay of the old set begins with the status that records that traffic has moved.
            if has_switched(cx.plan) {
                return Ok(Outcome::waiting("waiting for the promotion to be recorded"));
            }
            if let Some(sentence) = why_they_stay(fleet, &rollout) {
                return Ok(Outcome::waiting(sentence));
            }
        }
        if rollout.stage == Stage::Promoting {
            let children = if *set == facts.set { Some(&facts.children) } else { None };
            let children = children.or_else(|| facts.sets.get(set).map(|set| &set.children));
            if let Some(children) = children
                && let Some(differs) = fleet.find_stale_pods(children, &[]).await?
            {
                return Ok(Outcome::recheck(differs, REQUEUE_STALE_PODS));
            }
            let kept = fleet.remove_set(set, "another set takes over").await?;
            let left = left();
            if left.is_empty() {
                return old_set_is_deleted(fleet, &rollout, set).await;
            }
            // Nothing else reports what keeps the incumbents: the rollout's status is about nodes that do not exist
            // yet.
            let why = kept.map(|why| format!("; {why}")).unwrap_or_default();
            return Ok(Outcome::waiting(still_there(set, &left) + &why));
        }
        let retiring = facts.sets.get(set).and_then(|s| s.retiring.as_ref());
        if let Some(sentence) = retiring.and_then(|retiring| facts.kept(retiring)) {
            return Ok(Outcome::waiting(format!("waiting: {sentence}")));
        }
        // The removal does not depend on this plan: it continues if a new plan replaces this one.
        let due = retiring.map(|r| facts.removal_of(r));
        Ok(match due.and_then(|due| (due - cx.now).to_std().ok()).filter(|wait| !wait.is_zero()) {
            Some(wait) => {
                let at = due.unwrap_or(cx.now).format("%H:%M:%S UTC");
                Outcome::recheck(format!("waiting until {at} to remove set {set}"), wait)
            }
            None => Outcome::waiting(still_there(set, &left())),
        })
    }
}

/// Done, once no pod of the old set runs. If the new nodes are created only then, none of the old ones may write any
/// more. This order guarantees it, so the API server itself is asked.
async fn old_set_is_deleted(
    fleet: &FleetScope,
    rollout: &SetRollout,
    set: &SetName,
) -> Result<Outcome, TaskError> {
    if rollout.strategy != Strategy::BlueGreenImmediate || rollout.stage != Stage::Promoting {
        return Ok(Outcome::Done);
    }
    let left = fleet.live_pods_of(set).await?;
    // No watch shows these pods, so nothing else says when they are gone.
    Ok(if left.is_empty() {
        Outcome::Done
    } else {
        Outcome::recheck(still_there(set, &left), ask_again(true))
    })
}

/// Why the old nodes may not be removed yet, if so. Once the promotion has begun, some of them may already be deleted:
/// only what
/// keeps traffic from moving keeps the others then, and other problems of the spec concern the next rollout.
fn why_they_stay(fleet: &FleetScope, rollout: &SetRollout) -> Option<String> {
    entrants::why_traffic_stays(fleet).or_else(|| {
        let blocker = fleet.blocker.as_ref().filter(|_| rollout.is_revocable())?;
        Some(format!("waiting: {blocker}"))
    })
}

/// An object that is not removed blocks the rollout, so the message names it.
fn still_there(set: &SetName, left: &[String]) -> String {
    let names: Vec<&str> = left.iter().map(String::as_str).collect();
    format!("waiting for the deletion of set {set} to complete; remaining objects: {}", some_of(&names))
}
