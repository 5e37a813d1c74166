//! `apply-stateful-set`: the node's StatefulSet exists, and its template is the granted one.

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use super::hooks::{JobOwner, LOOK_AT_JOB, waits_for_job};
use super::{KEPT_BY_GRANT, SET_OF_EARLIER, UNSEEN, not_written};
use crate::api::HookPoint;
use crate::api::TemplateMeta;
use crate::api::at_hook::point_of;
use crate::api::names::ANNOTATION_TEMPLATE_HASH;
use crate::apply::node_objects;
use crate::apply::patches::{metadata_ops, own_field_ops, set_target};
use crate::engine::{Env, Outcome, Policy, Task, TaskContext, TaskError, TaskRecord};
use crate::observe::node_scope::{Belongs, NodeScope, spec_of};
use crate::planner::node::{NodeFacts, StatefulSetFact};
use crate::render;
use windlass_kube_port::observed::ObservedNode;
use windlass_kube_port::{ClusterError, Kind, Part, PatchOp};

/// Writes the granted template into the node's StatefulSet, or creates the StatefulSet.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ApplyStatefulSet {}

#[typetag::serde(name = "apply-stateful-set")]
#[async_trait]
impl Task for ApplyStatefulSet {
    async fn run(&self, cx: &TaskContext<'_>) -> Result<Outcome, TaskError> {
        let scope = cx.env.get::<NodeScope>()?;
        let node = scope.require()?;
        let facts = scope.facts(&node);
        if let StatefulSetFact::Live(set) = &facts.set
            && facts.template_is_granted()
        {
            return Ok(written_and_seen(cx, set.observed));
        }
        if facts.set == StatefulSetFact::Leaving {
            return Ok(Outcome::waiting(SET_OF_EARLIER));
        }
        if facts.set == StatefulSetFact::Missing {
            let meta = &node.meta;
            let owner = JobOwner::itself(Kind::StatefulNode, &meta.namespace, &meta.name, &meta.uid);
            if let Some(sentence) = waits_for_job(scope.cluster.as_ref(), &owner, cx.plan, None).await? {
                return Ok(Outcome::recheck(sentence, LOOK_AT_JOB));
            }
            return create_stateful_set(scope, &node, &facts).await;
        }
        if !facts.can_render() {
            return Ok(waits_for_a_grant());
        }
        let identity = scope.identity(&node);
        let rendered = scope.rendered(&node).map_err(TaskError::terminal)?;
        // With a spent grant, the template is not changed while a Ready pod runs that does not match the grant:
        // otherwise the pod's next crash would update the node outside of any wave.
        if facts.is_kept_by_grant() {
            return Ok(Outcome::waiting(KEPT_BY_GRANT));
        }
        let Some(set) = scope.set() else {
            return Err(TaskError::transient("the StatefulSet was deleted before it could be updated"));
        };
        let stamp = TemplateMeta {
            annotations: [(ANNOTATION_TEMPLATE_HASH.to_owned(), rendered.hash.to_string())].into(),
            ..TemplateMeta::default()
        };
        let mut ops = metadata_ops(
            &set.meta,
            &render::MetadataChange {
                annotations: stamp.annotations.into_iter().map(|(k, v)| (k, Some(v))).collect(),
                ..render::MetadataChange::default()
            },
        );
        let spec = spec_of(&node)?;
        let made_for = render::made_for(spec, &rendered.hash);
        let template = render::stateful_set_template(&identity, spec, &rendered.template, &made_for);
        ops.push(PatchOp::set("/spec/template", template));
        ops.extend(own_field_ops(&set, None));
        let answer = match scope.cluster.patch(set_target(&set), Part::Main, ops).await {
            Ok(answer) => answer,
            Err(error) => return not_written(error),
        };
        scope.wrote_template(&answer, &rendered.hash);
        Ok(written_and_seen(cx, false))
    }

    fn policy(&self, _: &Env) -> Policy {
        Policy::default().replayable()
    }
}

/// Creates the StatefulSet of a node that has none, with the granted template.
pub async fn create_stateful_set(
    scope: &NodeScope,
    node: &ObservedNode,
    facts: &NodeFacts,
) -> Result<Outcome, TaskError> {
    if !facts.can_render() {
        return Ok(waits_for_a_grant());
    }
    let identity = scope.identity(node);
    let rendered = scope.rendered(node).map_err(TaskError::terminal)?;
    if let Some(sentence) = scope.awaits(node) {
        return Ok(Outcome::waiting(sentence));
    }
    node_objects::release_first_start(scope, node).await?;
    let manifest = render::stateful_set(&identity, spec_of(node)?, &rendered.template, &rendered.hash);
    match scope.cluster.create(Kind::StatefulSet, manifest).await {
        Ok(created) => {
            scope.wrote_template(&created, &rendered.hash);
            Ok(Outcome::Done)
        }
        Err(ClusterError::AlreadyExists { .. }) => match scope.whose(Kind::StatefulSet, node).await? {
            Some(Belongs::Elsewhere(sentence)) => Err(TaskError::terminal(sentence)),
            _ => Err(TaskError::transient("waiting for the cache to show the existing StatefulSet")),
        },
        Err(error) => Err(error.into()),
    }
}

fn waits_for_a_grant() -> Outcome {
    Outcome::waiting(
        "waiting for a grant: this version of Windlass renders a different template from the granted one",
    )
}

/// The outcome once the template is written. If the plan has a hook before the pod is deleted, that hook and its
/// timeout start only after the StatefulSet controller has observed the template. This task waits for that, so its
/// deadline reports a controller that does nothing.
fn written_and_seen(cx: &TaskContext<'_>, observed: bool) -> Outcome {
    let before_node =
        |task: &TaskRecord| !task.state.is_over() && point_of(task) == Some(HookPoint::BeforeNode);
    if !observed && cx.plan.tasks.iter().any(before_node) {
        return Outcome::waiting(UNSEEN);
    }
    Outcome::Done
}
