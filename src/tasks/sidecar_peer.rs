//! How tasks query a node's sidecar: whether it can be queried yet, and at which URL.

use super::NodeScope;
use crate::api::Sidecar;
use crate::outward::{Origin, OutwardSettings};
use crate::probe::{AnswerState, Peer, Question, SidecarAnswer, SidecarRequest};
use crate::render::SIDECAR_CONTAINER;
use crate::sidecar::url_for;
use windlass_kube_port::observed::{ObservedNode, ObservedPod};

/// True if a pod's sidecar can be queried. Before it runs there is nothing to query, and a timeout would mean nothing.
pub(super) fn is_there(sidecar: &Sidecar, pod: &ObservedPod) -> bool {
    if sidecar.is_injected() {
        return pod.runs(SIDECAR_CONTAINER);
    }
    // A sidecar outside of the pod has no container status, so the application's containers are checked.
    pod.images.iter().any(|(container, _)| pod.runs(container))
}

/// The last answer of the running pod's sidecar to this request. An error is a sentence: there is no URL to query.
pub(super) fn ask(
    scope: &NodeScope,
    node: &ObservedNode,
    sidecar: &Sidecar,
    pod: &ObservedPod,
    request: SidecarRequest,
) -> Result<AnswerState<SidecarAnswer>, String> {
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
        settings: OutwardSettings {
            origin: Origin::Sidecar,
            tls: sidecar.tls.clone().unwrap_or_default(),
            auth: sidecar.auth.clone().unwrap_or_default(),
        },
    };
    Ok(scope.prober.ask_sidecar(&scope.key, Question { peer, request }))
}
