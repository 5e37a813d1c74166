//! `expand-claims`: the claims of a node request the sizes in its spec; for a fleet, those of every node do.

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use super::growing::{LATER, of_fleet};
use super::{FleetScope, NodeScope};
use crate::apply::claim_growth;
use crate::engine::{Env, Outcome, Policy, Task, TaskContext, TaskError};
use crate::planner::growth::Growth;

/// Raises the requests of a node's claims; for a fleet, waits for every node.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ExpandClaims {}

#[typetag::serde(name = "expand-claims")]
#[async_trait]
impl Task for ExpandClaims {
    async fn run(&self, cx: &TaskContext<'_>) -> Result<Outcome, TaskError> {
        if let Some(fleet) = cx.env.find::<FleetScope>() {
            return Ok(of_fleet(&fleet.facts(), |growth| matches!(growth, Growth::Due { .. })));
        }
        let scope = cx.env.get::<NodeScope>()?;
        let node = scope.require()?;
        let refused = claim_growth::expand(scope, &node).await?;
        Ok(refused.map_or(Outcome::Done, |sentence| Outcome::recheck(sentence, LATER)))
    }

    fn policy(&self, _: &Env) -> Policy {
        Policy::default().replayable()
    }
}
