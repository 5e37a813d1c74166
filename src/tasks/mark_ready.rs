//! `mark-ready`: a node's pod is in service; for a fleet, every node at the target is.

use std::time::Duration;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use super::sidecar_peer::{ask, is_there};
use super::{CHILD_CHANGED, FleetScope, NodeScope, PodScope, UNSEEN, pods};
use crate::engine::sentence::some_of;
use crate::engine::{Env, Outcome, Policy, Task, TaskContext, TaskError};
use crate::observe::node_scope::spec_of;
use crate::planner::fleet::leave;
use crate::planner::node::{StatefulSetFact, decide::is_rolling, status::SidecarAnswer};
use crate::probe::{SIDECAR_VALIDITY, SidecarRequest};
use windlass_kube_port::observed::ObservedNode;

/// Marks a node's pod ready and waits until it is; for a fleet, waits for every node.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct MarkReady {}

#[typetag::serde(name = "mark-ready")]
#[async_trait]
impl Task for MarkReady {
    async fn run(&self, cx: &TaskContext<'_>) -> Result<Outcome, TaskError> {
        if let Some(scope) = cx.env.find::<PodScope>() {
            return Ok(pods::ready(scope, cx));
        }
        match cx.env.find::<FleetScope>() {
            Some(fleet) => Ok(fleet_ready(fleet)),
            None => node_ready(cx),
        }
    }

    fn policy(&self, _: &Env) -> Policy {
        Policy::default().replayable().skippable()
    }
}

fn fleet_ready(fleet: &FleetScope) -> Outcome {
    let facts = fleet.facts();
    let rollout_target = &fleet.rollout_target;
    if let Some(child) = facts.wanted().find(|c| !facts.is_granted(c, rollout_target)) {
        return Outcome::invalidated(CHILD_CHANGED, format!("{} no longer matches its grant", child.name));
    }
    if facts.is_converged(rollout_target) {
        return Outcome::Done;
    }
    let behind = facts.wanted().filter(|c| c.is_disrupted() || !facts.is_updated(c, rollout_target));
    let behind: Vec<&str> = behind.map(|c| c.name.as_str()).collect();
    if !behind.is_empty() {
        return Outcome::waiting(format!("waiting for {} to be ready", some_of(&behind)));
    }
    if !facts.is_completed(rollout_target) {
        return Outcome::waiting(
            "waiting for the StatefulSet controller to complete the update in status.currentRevision",
        );
    }
    // Nodes that leave do not become ready any more.
    let leaving = leave::waits_for(&facts);
    Outcome::waiting(leaving.unwrap_or_else(|| "waiting for every node to exist".to_owned()))
}

fn node_ready(cx: &TaskContext<'_>) -> Result<Outcome, TaskError> {
    let scope = cx.env.get::<NodeScope>()?;
    let node = scope.require()?;
    let facts = scope.facts(&node);
    let rolling = is_rolling(&cx.plan.recipe);
    let Some(set) = facts.live() else {
        return Ok(Outcome::invalidated(CHILD_CHANGED, "the node's StatefulSet no longer exists"));
    };
    let Some(pod) = facts.staying_pod() else {
        return Ok(if rolling {
            Outcome::waiting("waiting for the pod to be created again")
        } else {
            Outcome::invalidated(CHILD_CHANGED, "the pod that was to be marked ready no longer exists")
        });
    };
    if rolling && !set.observed {
        return Ok(Outcome::waiting(UNSEEN));
    }
    if rolling && !(facts.is_at_grant(pod) && facts.template_is_granted()) {
        return Ok(Outcome::invalidated(CHILD_CHANGED, "the pod no longer has the granted template"));
    }
    let marked = request_mark_ready(scope, &node, &cx.record.id)?;
    let again = marked.again;
    match (marked.said, pod.ready) {
        (SidecarReadiness::Ready, true) => Ok(Outcome::Done),
        (SidecarReadiness::Unreachable(sentence), _) => {
            Ok(Outcome::recheck(format!("waiting for the sidecar to answer: {sentence}"), again))
        }
        (SidecarReadiness::Unheard, true) => Ok(Outcome::recheck("waiting for the sidecar to answer", again)),
        (SidecarReadiness::NotReady, true) => Ok(Outcome::recheck(
            "waiting for the sidecar to report the node ready: the pod is Ready, but the sidecar reports that the \
             node is not",
            again,
        )),
        (_, false) => {
            let why = pod.problem.as_ref().map(|p| format!("{}: {}", p.reason, p.message));
            let message = format!("waiting for the pod to be Ready: {}", why.unwrap_or_default());
            Ok(Outcome::recheck(message, again))
        }
    }
}

/// The result of asking a node's sidecar to take the node into service.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum SidecarReadiness {
    /// The sidecar reported a moment ago that it has, or there is no sidecar.
    Ready,
    /// The sidecar reports that it has not, or there is no pod to query.
    NotReady,
    /// The sidecar has not answered yet, or not recently.
    Unheard,
    /// The sidecar cannot be queried; a sentence says why.
    Unreachable(String),
}

/// What a sidecar reports, and when to requeue if nothing else comes first.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct MarkReadyResult {
    /// What the sidecar reports.
    pub said: SidecarReadiness,
    /// When to requeue.
    pub again: Duration,
}

/// Asks the node's sidecar to take the node into service, unless it reports that it already has. Returns its last
/// answer at once; a new answer requeues the node.
pub fn request_mark_ready(
    scope: &NodeScope,
    node: &ObservedNode,
    task_id: &str,
) -> Result<MarkReadyResult, TaskError> {
    let of = |said| MarkReadyResult { said, again: SIDECAR_VALIDITY };
    let Some(sidecar) = &spec_of(node)?.sidecar else {
        scope.answered(SidecarAnswer::NotConfigured);
        return Ok(of(SidecarReadiness::Ready));
    };
    let facts = scope.facts(node);
    let Some(pod) =
        scope.pod().filter(|_| facts.staying_pod().is_some() && facts.set != StatefulSetFact::Missing)
    else {
        return Ok(of(SidecarReadiness::NotReady));
    };
    if !is_there(sidecar, &pod) {
        scope.answered(SidecarAnswer::NotReady);
        return Ok(of(SidecarReadiness::NotReady));
    }
    let heard =
        match ask(scope, node, sidecar, &pod, SidecarRequest::MarkReady { task_id: task_id.to_owned() }) {
            Ok(heard) => heard,
            Err(sentence) => {
                scope.answered(SidecarAnswer::Unreachable(sentence.clone()));
                return Ok(of(SidecarReadiness::Unreachable(sentence)));
            }
        };
    let said = match heard.last {
        None => SidecarReadiness::Unheard,
        Some(Ok(said)) => {
            scope.answered(if said.ready { SidecarAnswer::Ready } else { SidecarAnswer::NotReady });
            match (said.ready, heard.is_fresh) {
                (true, true) => SidecarReadiness::Ready,
                // An old answer may no longer be true.
                (true, false) => SidecarReadiness::Unheard,
                (false, _) => SidecarReadiness::NotReady,
            }
        }
        Some(Err(sentence)) => {
            scope.answered(SidecarAnswer::Unreachable(sentence.clone()));
            SidecarReadiness::Unreachable(sentence)
        }
    };
    Ok(MarkReadyResult { said, again: heard.again })
}
