//! `mark-ready`: a node's pod is in service; of a fleet, every node of the target is.

use std::time::Duration;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use super::sidecar_peer::{SidecarPeer, is_there};
use super::{CHILD_CHANGED, FleetScope, NodeScope, node_scope::spec_of};
use crate::cluster::observed::ObservedNode;
use crate::engine::{Outcome, Task, TaskContext, TaskError};
use crate::planner::node::{SetFact, decide::is_rolling, status::SidecarAnswer};
use crate::sidecar::{TaskRequest, TaskType};

/// How long until a sidecar that took the task is asked again, if no event comes first.
const ASK_AGAIN: Duration = Duration::from_secs(5);

/// Marks a node's pod ready and waits until it is; of a fleet, waits for every node.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct MarkReady {}

#[typetag::serde(name = "mark-ready")]
#[async_trait]
impl Task for MarkReady {
    async fn run(&self, cx: &TaskContext<'_>) -> Result<Outcome, TaskError> {
        match cx.env.find::<FleetScope>() {
            Some(fleet) => Ok(fleet_ready(fleet)),
            None => node_ready(cx).await,
        }
    }

    fn replayable(&self) -> bool {
        true
    }

    fn skippable(&self) -> bool {
        true
    }
}

fn fleet_ready(fleet: &FleetScope) -> Outcome {
    let facts = fleet.facts();
    let scope = &fleet.scope;
    if let Some(child) = facts.wanted().find(|c| !facts.is_granted(c, scope)) {
        return Outcome::invalidated(CHILD_CHANGED, format!("{} is no longer at its grant", child.name));
    }
    if facts.is_converged(scope) {
        return Outcome::Done;
    }
    let waiting: Vec<&str> = facts
        .children
        .iter()
        .filter(|c| c.surplus || c.is_disrupted() || !facts.is_updated(c, scope))
        .map(|c| c.name.as_str())
        .collect();
    Outcome::waiting(format!("waiting for {} to be ready", super::fleet_scope::some_of(&waiting)))
}

async fn node_ready(cx: &TaskContext<'_>) -> Result<Outcome, TaskError> {
    let scope = cx.env.get::<NodeScope>()?;
    let node = scope.require()?;
    let facts = scope.facts(&node);
    let rolling = is_rolling(&cx.plan.recipe);
    let Some(set) = facts.live() else {
        return Ok(Outcome::invalidated(CHILD_CHANGED, "the node's StatefulSet is gone"));
    };
    let Some(pod) = facts.staying_pod() else {
        return Ok(if rolling {
            Outcome::waiting("waiting for the pod to be created again")
        } else {
            Outcome::invalidated(CHILD_CHANGED, "the pod that was to be marked ready is gone")
        });
    };
    if rolling && !set.observed {
        return Ok(Outcome::waiting("waiting for the StatefulSet controller to see the template"));
    }
    if rolling && !(facts.is_at_grant(pod) && facts.template_is_granted()) {
        return Ok(Outcome::invalidated(CHILD_CHANGED, "the pod is not at the granted template any more"));
    }
    let said = mark(scope, &node, &cx.record.id).await?;
    match (said, pod.ready) {
        (true, true) => Ok(Outcome::Done),
        (false, true) => Ok(Outcome::recheck(
            "waiting for the sidecar to say that the node is ready: the pod is, the sidecar says it is not",
            ASK_AGAIN,
        )),
        (_, false) => {
            let why = pod.problem.as_ref().map(|p| format!("{}: {}", p.reason, p.message));
            let message = format!("waiting for the pod to be Ready: {}", why.unwrap_or_default());
            Ok(Outcome::recheck(message, ASK_AGAIN))
        }
    }
}

/// Asks the node's sidecar to take the node into service, unless it says that it already has. Answers
/// whether it says so; true where there is no sidecar. An error is a sidecar that cannot be asked.
pub async fn mark(scope: &NodeScope, node: &ObservedNode, task_id: &str) -> Result<bool, TaskError> {
    let Some(sidecar) = &spec_of(node)?.sidecar else {
        scope.answered(SidecarAnswer::NotConfigured);
        return Ok(true);
    };
    let facts = scope.facts(node);
    let Some(pod) = scope.pod().filter(|_| facts.staying_pod().is_some() && facts.set != SetFact::Missing)
    else {
        return Ok(false);
    };
    // Before it runs there is nothing to ask; a time-out would only hold up the reconcile.
    if !is_there(sidecar, &pod) {
        scope.answered(SidecarAnswer::NotReady);
        return Ok(false);
    }
    let asked = match SidecarPeer::of(scope, node, sidecar, &pod.ip) {
        Ok(peer) => ask(&peer, task_id).await,
        Err(sentence) => Err(sentence),
    };
    match asked {
        Ok(ready) => {
            scope.answered(if ready { SidecarAnswer::Ready } else { SidecarAnswer::NotReady });
            Ok(ready)
        }
        Err(sentence) => {
            scope.answered(SidecarAnswer::Unreachable(sentence.clone()));
            Err(TaskError::transient(sentence))
        }
    }
}

async fn ask(peer: &SidecarPeer<'_>, task_id: &str) -> Result<bool, String> {
    if peer.status().await?.ready {
        return Ok(true);
    }
    let request =
        TaskRequest { id: task_id.to_owned(), kind: TaskType::MarkReady, params: serde_json::Map::new() };
    peer.submit(&request).await?;
    Ok(peer.status().await?.ready)
}
