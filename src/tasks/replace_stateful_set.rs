//! `replace-stateful-set`: the claim templates in a node's StatefulSet have the sizes in its spec; for a fleet, those of
//! every node do. They cannot be changed, so the StatefulSet is deleted without its pod, and created again.

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use super::growing::{LATER, of_fleet, restarted};
use super::{FleetScope, NodeScope, create_stateful_set, not_written};
use crate::apply::node_objects::own_op;
use crate::engine::{Env, Outcome, Policy, Task, TaskContext, TaskError};
use crate::observe::node_scope::{deletes_claims, spec_of};
use crate::planner::growth::Growth;
use crate::planner::node::StatefulSetFact;
use crate::render;
use crate::revision::is_smaller;
use windlass_kube_port::observed::{Meta, Observed, ObservedNode, ObservedStatefulSet};
use windlass_kube_port::{ClusterError, Kind, Part, Target};

/// Creates the StatefulSet again, with the same pod template. Its pod stays, and belongs to the new one.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ReplaceStatefulSet {}

#[typetag::serde(name = "replace-stateful-set")]
#[async_trait]
impl Task for ReplaceStatefulSet {
    async fn run(&self, cx: &TaskContext<'_>) -> Result<Outcome, TaskError> {
        if let Some(fleet) = cx.env.find::<FleetScope>() {
            let facts = fleet.facts();
            let grown = of_fleet(&facts, Growth::is_pending);
            return Ok(if grown == Outcome::Done { restarted(&facts) } else { grown });
        }
        let scope = cx.env.get::<NodeScope>()?;
        let node = scope.require()?;
        let facts = scope.facts(&node);
        match facts.set {
            StatefulSetFact::Missing => return create_stateful_set(scope, &node, &facts).await,
            StatefulSetFact::Leaving => {
                return Ok(Outcome::waiting("waiting for the StatefulSet to be deleted; its pod stays"));
            }
            StatefulSetFact::Live(_) if facts.growth != Growth::OldTemplate => return Ok(Outcome::Done),
            StatefulSetFact::Live(_) => {}
        }
        // Otherwise it could not be created again as it is.
        if !facts.template_is_granted() || !facts.can_render() {
            return Ok(Outcome::waiting(
                "waiting for a grant: the StatefulSet cannot be replaced while its template is not the one that this \
                 version of Windlass renders",
            ));
        }
        let Some(set) = scope.set() else {
            return Err(TaskError::transient("the StatefulSet was deleted before it could be replaced"));
        };
        if deletes_claims(&set, &node) {
            return Ok(Outcome::recheck(
                "waiting for persistentVolumeClaimRetentionPolicy of the StatefulSet to be Retain",
                LATER,
            ));
        }
        // Without it, a pod that ends would not come back.
        if let Some(sentence) = refusal(scope, &node).await? {
            return Ok(Outcome::recheck(sentence, LATER));
        }
        if let Err(error) = keep_pod_with(scope, &node, &set).await {
            return not_written(error);
        }
        match scope.cluster.delete_and_orphan(Target::of(Kind::StatefulSet, &set.meta)).await {
            Ok(()) => Ok(Outcome::waiting("waiting for the StatefulSet to be deleted; its pod stays")),
            Err(error) => not_written(error),
        }
    }

    fn policy(&self, _: &Env) -> Policy {
        Policy::default().replayable()
    }
}

/// Makes the node an owner of its pod. Until the new StatefulSet adopts the pod, nothing else would delete it with the
/// node. Admission that refuses every change of a pod does not keep volumes from growing.
async fn keep_pod_with(
    scope: &NodeScope,
    node: &ObservedNode,
    set: &ObservedStatefulSet,
) -> Result<(), ClusterError> {
    let is_alone = |pod: &Meta| {
        pod.is_controlled_by(&set.meta.uid) && !pod.owners.iter().any(|owner| owner.uid == node.meta.uid)
    };
    let Some(pod) = scope.pod().filter(|pod| is_alone(&pod.meta)) else { return Ok(()) };
    let owns = vec![own_op(&pod.meta, &node.meta)];
    match scope.cluster.patch(Target::of(Kind::Pod, &pod.meta), Part::Main, owns).await {
        Ok(_) | Err(ClusterError::Refused { .. } | ClusterError::Forbidden { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Why the API server would not create the StatefulSet again with the new sizes, in a sentence. Asks it in a dry run.
async fn refusal(scope: &NodeScope, node: &ObservedNode) -> Result<Option<String>, TaskError> {
    let spec = spec_of(node)?;
    let rendered = scope.rendered(node).map_err(TaskError::terminal)?;
    let manifest = render::stateful_set(&scope.identity(node), spec, &rendered.template, &rendered.hash);
    let refused = |message: &str| {
        Some(format!("waiting for the API server to accept the StatefulSet with the new sizes: {message}"))
    };
    match scope.cluster.try_create(Kind::StatefulSet, manifest).await {
        Ok(stored) => {
            let sizes = ObservedStatefulSet::read(&stored).claim_sizes;
            let is_short =
                |(name, size): (&String, &String)| sizes.get(name).is_some_and(|of| is_smaller(of, size));
            let is_changed = spec.claim_sizes.iter().any(is_short);
            Ok(if is_changed { refused("admission makes them smaller") } else { None })
        }
        Err(error) if error.exceeds_quota() => Ok(None),
        Err(ClusterError::Refused { message, .. } | ClusterError::Forbidden { message, .. }) => {
            Ok(refused(&message))
        }
        Err(error) => Err(error.into()),
    }
}
