//! `await-expansion`: the volumes of a node's claims have the sizes in its spec; for a fleet, those of every node do.

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use super::growing::{LATER, of_fleet};
use super::{FleetScope, NodeScope};
use crate::engine::{Env, Outcome, Policy, Task, TaskContext, TaskError};
use crate::planner::growth::Growth;

/// Waits until volumes are expanded. A pod whose file system grows only when it is started is replaced meanwhile, with a
/// plan of its own.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct AwaitExpansion {}

#[typetag::serde(name = "await-expansion")]
#[async_trait]
impl Task for AwaitExpansion {
    async fn run(&self, cx: &TaskContext<'_>) -> Result<Outcome, TaskError> {
        if let Some(fleet) = cx.env.find::<FleetScope>() {
            return Ok(of_fleet(&fleet.facts(), |growth| {
                !matches!(growth, Growth::Done | Growth::OldTemplate)
            }));
        }
        let scope = cx.env.get::<NodeScope>()?;
        let growth = scope.growth(&*scope.require()?);
        let why = growth.sentence();
        Ok(match &growth {
            Growth::Done | Growth::OldTemplate => Outcome::Done,
            Growth::Due { .. } => Outcome::recheck(why, LATER),
            Growth::NeedsNewPod { .. } => Outcome::waiting(format!("{why}, as the wave allows")),
            Growth::Expanding { until, .. } => {
                let left = until.and_then(|until| (until - scope.now).to_std().ok());
                Outcome::recheck(why, left.map_or(LATER, |left| left.min(LATER)))
            }
        })
    }

    fn policy(&self, _: &Env) -> Policy {
        Policy::default().replayable()
    }
}
