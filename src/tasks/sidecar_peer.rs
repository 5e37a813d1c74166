//! A node's sidecar as tasks ask it: where it answers, and which one it is.

use super::NodeScope;
use crate::api::Sidecar;
use crate::asking::{AnswerState, Peer, Question, Wish};
use crate::cluster::observed::{ContainerState, ObservedNode, ObservedPod};
use crate::render::SIDECAR_CONTAINER;
use crate::sidecar::url_for;

/// Whether a pod's sidecar can be asked yet. Before it runs there is nothing to ask: a time-out would say nothing.
pub(super) fn is_there(sidecar: &Sidecar, pod: &ObservedPod) -> bool {
    let runs = |c: &&ContainerState| c.running;
    if sidecar.is_injected() {
        return pod.containers.iter().filter(runs).any(|c| c.name == SIDECAR_CONTAINER);
    }
    // Nobody shows when one runs that is not in the pod; its application is.
    pod.containers.iter().filter(runs).any(|c| !c.init)
}

/// What the sidecar of a node's running pod last said to this wish. An error is a sentence: there is nowhere to ask.
pub(super) fn ask(
    scope: &NodeScope,
    node: &ObservedNode,
    sidecar: &Sidecar,
    pod: &ObservedPod,
    wish: Wish,
) -> Result<AnswerState, String> {
    let template = (!sidecar.url.is_empty()).then_some(sidecar.url.as_str());
    let port = u16::try_from(sidecar.port).unwrap_or(7777);
    let url = url_for(template, &node.meta.name, &node.meta.namespace, port, Some(&pod.ip))
        .map_err(|e| e.to_string())?;
    let own = pod.containers.iter().find(|c| c.name == SIDECAR_CONTAINER);
    let peer = Peer {
        pod_uid: pod.meta.uid.clone(),
        restarts: own.map_or(0, |c| c.restarts),
        url,
        token_secret: sidecar.token_secret.clone(),
    };
    Ok(scope.askers.ask(&scope.key, Question { peer, wish }))
}
