//! Creates and updates a node's headless Service.

use super::patches::{metadata_change, metadata_ops, service_ops};
use super::reverted::{self, service_of};
use crate::api::TemplateMeta;
use crate::engine::{Outcome, TaskError};
use crate::observe::node_scope::{Belongs, NodeScope, belongs, spec_of};
use crate::render;
use windlass_kube_port::observed::{ObservedNode, ObservedService};
use windlass_kube_port::{ClusterError, Kind, Target};

/// Why a node's Service could not be updated.
#[derive(Debug)]
pub enum NotApplied {
    /// The Service has changed since it was read. In a plan the task waits with a requeue; without a plan the reconcile
    /// is retried.
    Conflict(ClusterError),
    /// The API server did not carry out another request.
    Failed(ClusterError),
    /// Anything else.
    Other(TaskError),
}

impl From<TaskError> for NotApplied {
    fn from(error: TaskError) -> Self {
        Self::Other(error)
    }
}

impl From<ClusterError> for NotApplied {
    fn from(error: ClusterError) -> Self {
        Self::Failed(error)
    }
}

/// Brings the node's Service to what its spec says. A Service is not part of a rollout: differences are applied at
/// once, with or without a plan.
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
                _ => Err(TaskError::transient("waiting for the cache to show the existing Service").into()),
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
    let ops_of = |service: &ObservedService| {
        let mut ops = metadata_ops(&service.meta, &metadata_change(&service.meta, &users, &own));
        ops.extend(service_ops(service, &wanted));
        ops
    };
    let id = service_of(&node.meta.uid);
    let ops = reverted::due(&scope.caches.probes, &id, &service.meta, ops_of(&service));
    if !ops.is_empty() {
        let target = Target::of(Kind::Service, &service.meta);
        let port = (scope.cluster.as_ref(), &scope.caches.probes);
        match reverted::write(port, &id, target, ops, ops_of).await {
            Ok(_) => {}
            Err(error) if error.is_conflict() => return Err(NotApplied::Conflict(error)),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(Outcome::Done)
}

/// What admission changes of what Windlass depends on in the node's Service, in a sentence.
#[must_use]
pub fn reverted_by_admission(scope: &NodeScope, node: &ObservedNode) -> Option<String> {
    let service = scope.service()?;
    reverted::sentence(&scope.caches.probes, &service_of(&node.meta.uid), &service.meta)
}

fn leaving() -> Outcome {
    Outcome::waiting("waiting for the Service of an earlier node with this name to be deleted")
}
