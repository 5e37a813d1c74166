//! `apply-service`: the node's headless Service is there and says what the spec says.

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use super::node_scope::{Belongs, NodeScope, belongs, metadata_change, metadata_ops, service_ops, spec_of};
use super::not_written;
use crate::api::TemplateMeta;
use crate::cluster::observed::ObservedNode;
use crate::cluster::{ClusterError, Kind, Part, Target};
use crate::engine::{Outcome, Task, TaskContext, TaskError};
use crate::render;

/// Creates the node's headless Service, or brings it to what the spec says.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ApplyService {}

#[typetag::serde(name = "apply-service")]
#[async_trait]
impl Task for ApplyService {
    async fn run(&self, cx: &TaskContext<'_>) -> Result<Outcome, TaskError> {
        let scope = cx.env.get::<NodeScope>()?;
        let node = scope.require()?;
        match apply(scope, &node).await {
            Ok(outcome) => Ok(outcome),
            Err(NotApplied::Conflict(error)) => not_written(error),
            Err(NotApplied::Failed(error)) => Err(error),
        }
    }

    fn replayable(&self) -> bool {
        true
    }
}

/// Why a node's Service could not be brought to what its spec says.
#[derive(Debug)]
pub enum NotApplied {
    /// It is another one than it was known as: a plan waits to see it, and outside of one it is tried again soon.
    Conflict(ClusterError),
    /// Anything else.
    Failed(TaskError),
}

impl From<TaskError> for NotApplied {
    fn from(error: TaskError) -> Self {
        Self::Failed(error)
    }
}

impl From<ClusterError> for NotApplied {
    fn from(error: ClusterError) -> Self {
        Self::Failed(error.into())
    }
}

/// Brings the node's Service to what its spec says. A Service is not part of a rollout: what differs
/// applies at once, within a plan and outside of one.
pub async fn apply(scope: &NodeScope, node: &ObservedNode) -> Result<Outcome, NotApplied> {
    let spec = spec_of(node)?;
    let identity = scope.identity(node);
    let wanted = render::headless_service(&identity, spec);
    let Some(service) = scope.service() else {
        return match scope.cluster.create(Kind::Service, wanted).await {
            Ok(_) => Ok(Outcome::Done),
            Err(ClusterError::AlreadyExists { .. }) => match scope.whose(Kind::Service, node).await? {
                Some(Belongs::Elsewhere(sentence)) => Err(TaskError::terminal(sentence).into()),
                Some(Belongs::Earlier) => Ok(leaving()),
                _ => Err(TaskError::transient("waiting to see the Service that exists already").into()),
            },
            Err(error) => Err(error.into()),
        };
    };
    match belongs(&service.meta, &node.meta, "Service") {
        Belongs::Elsewhere(sentence) => return Err(TaskError::terminal(sentence).into()),
        Belongs::Earlier => return Ok(leaving()),
        Belongs::Here if service.meta.terminating => return Ok(leaving()),
        Belongs::Here => {}
    }
    let own = TemplateMeta { labels: identity.labels(), ..TemplateMeta::default() };
    let users = render::headless_service_metadata(&identity, spec);
    let mut ops = metadata_ops(&service.meta, &metadata_change(&service.meta, &users, &own));
    ops.extend(service_ops(&service, &wanted));
    if !ops.is_empty() {
        let target = Target::of(Kind::Service, &service.meta);
        match scope.cluster.patch(target, Part::Main, ops).await {
            Ok(_) => {}
            Err(error) if error.is_conflict() => return Err(NotApplied::Conflict(error)),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(Outcome::Done)
}

fn leaving() -> Outcome {
    Outcome::waiting("waiting for the Service of an earlier node of this name to be removed")
}
