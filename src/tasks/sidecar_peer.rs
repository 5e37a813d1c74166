//! A node's sidecar as tasks ask it: where it answers, and the token that it wants with a POST.

use k8s_openapi::ByteString;
use serde_json::Value;

use super::NodeScope;
use crate::api::Sidecar;
use crate::cluster::observed::{ContainerState, ObservedNode, ObservedPod};
use crate::cluster::{ClusterError, Kind};
use crate::render::SIDECAR_CONTAINER;
use crate::sidecar::{Status, TaskAnswer, TaskRequest, url_for};

/// The key of the Secret that `sidecar.tokenSecret` names.
const KEY: &str = "token";

/// The sidecar of a node's running pod. Each error is a sentence.
pub(super) struct SidecarPeer<'a> {
    scope: &'a NodeScope,
    url: String,
    token_secret: &'a str,
}

impl<'a> SidecarPeer<'a> {
    pub(super) fn of(
        scope: &'a NodeScope,
        node: &ObservedNode,
        sidecar: &'a Sidecar,
        pod_ip: &str,
    ) -> Result<Self, String> {
        let template = (!sidecar.url.is_empty()).then_some(sidecar.url.as_str());
        let port = u16::try_from(sidecar.port).unwrap_or(7777);
        let url = url_for(template, &node.meta.name, &node.meta.namespace, port, Some(pod_ip))
            .map_err(|e| e.to_string())?;
        Ok(Self { scope, url, token_secret: &sidecar.token_secret })
    }

    pub(super) async fn status(&self) -> Result<Status, String> {
        self.scope.sidecars.status(&self.url).await.map_err(|e| e.to_string())
    }

    pub(super) async fn task(&self, id: &str) -> Result<Option<TaskAnswer>, String> {
        self.scope.sidecars.task(&self.url, id).await.map_err(|e| e.to_string())
    }

    /// Hands it a task, with the token as it stands in the Secret now: one that was changed needs no restart.
    pub(super) async fn submit(&self, request: &TaskRequest) -> Result<(), String> {
        let token = self.token().await?;
        self.scope.sidecars.submit(&self.url, request, token.as_deref()).await.map_err(|e| e.to_string())
    }

    async fn token(&self) -> Result<Option<String>, String> {
        let name = self.token_secret;
        if name.is_empty() {
            return Ok(None);
        }
        let namespace = &self.scope.key.namespace;
        let found = self.scope.cluster.get(Kind::Secret, namespace, name).await;
        let secret = format!("Secret {namespace}/{name}, which sidecar.tokenSecret names,");
        match found {
            Ok(Some(object)) => match token_in(&object) {
                Some(token) => Ok(Some(token)),
                None => {
                    Err(format!("{secret} has no text under its key `{KEY}`: put the sidecar's token there"))
                }
            },
            Ok(None) => Err(format!(
                "{secret} does not exist: create it with the sidecar's token under its key `{KEY}`"
            )),
            Err(ClusterError::Forbidden { .. }) => Err(format!(
                "the operator may not read {secret} as deploy/rbac would let it: give its role the verb get on secrets"
            )),
            Err(error) => Err(error.to_string()),
        }
    }
}

/// Whether a pod's sidecar can be asked yet. Before it runs there is nothing to ask: a time-out would say nothing.
pub(super) fn is_there(sidecar: &Sidecar, pod: &ObservedPod) -> bool {
    let runs = |c: &&ContainerState| c.running;
    if sidecar.is_injected() {
        return pod.containers.iter().filter(runs).any(|c| c.name == SIDECAR_CONTAINER);
    }
    // Nobody shows when one runs that is not in the pod; its application is.
    pod.containers.iter().filter(runs).any(|c| !c.init)
}

/// What the object's key says, without its Base64. Spaces and newlines around it are no part of a token.
fn token_in(secret: &Value) -> Option<String> {
    let encoded = secret.get("data")?.get(KEY)?.clone();
    let ByteString(bytes) = serde_json::from_value(encoded).ok()?;
    let token = String::from_utf8(bytes).ok()?.trim().to_owned();
    (!token.is_empty()).then_some(token)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_token_is_the_text_under_its_key() {
        let table = [
            (json!({"data": {"token": "czNjcmV0Cg=="}}), Some("s3cret")),
            (json!({"data": {"token": ""}}), None),
            (json!({"data": {"token": "//79"}}), None),
            (json!({"data": {"password": "czNjcmV0"}}), None),
            (json!({"data": null}), None),
            (json!({}), None),
        ];
        for (object, token) in table {
            assert_eq!(token_in(&object).as_deref(), token, "{object}");
        }
    }
}
