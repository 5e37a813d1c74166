//! `await-removal`: the fleet deletes a node that was asked to leave.

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use super::NodeScope;
use crate::engine::{Due, Env, Outcome, Policy, Task, TaskContext, TaskError};

/// The deadline, ten years in seconds: a node does not stall because its fleet takes long to delete it, for example
/// while the fleet is paused or other nodes are down.
const NEVER_LATE: i64 = 315_360_000;

/// Waits until the node is deleted. The task never completes: either the node is deleted, or the request to leave is
/// withdrawn.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct AwaitRemoval {
    /// The request that the node leaves: `spec.removalID` when the plan began.
    #[serde(default, rename = "removalID", skip_serializing_if = "String::is_empty")]
    removal_id: String,
    /// True if the plan before this one owes its hooks at `BeforeCreate`. They run if the node stays.
    #[serde(default, rename = "beforeCreate", skip_serializing_if = "std::ops::Not::not")]
    before_create: bool,
    /// The same for its hooks at `AfterCreate`.
    #[serde(default, rename = "afterCreate", skip_serializing_if = "std::ops::Not::not")]
    after_create: bool,
    /// The same for its hooks at `AfterNode`, once it has replaced the pod.
    #[serde(default, rename = "afterNode", skip_serializing_if = "std::ops::Not::not")]
    after_node: bool,
}

#[typetag::serde(name = "await-removal")]
#[async_trait]
impl Task for AwaitRemoval {
    async fn run(&self, cx: &TaskContext<'_>) -> Result<Outcome, TaskError> {
        let node = cx.env.get::<NodeScope>()?.require()?;
        Ok(Outcome::waiting(match node.meta.controller() {
            Some(owner) => format!("waiting for {} {} to delete the node", owner.kind, owner.name),
            None => "waiting for its fleet to delete the node; if the fleet no longer exists, clear spec.removalID, \
                or delete the node"
                .to_owned(),
        }))
    }

    fn policy(&self, _: &Env) -> Policy {
        Policy::default().due(Due::After(NEVER_LATE))
    }
}
