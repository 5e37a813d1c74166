//! One exchange with a sidecar: the requests of a question, and the token for a POST.

use k8s_openapi::ByteString;
use serde_json::Value;

use super::question::{Halt, Peer, Question, SidecarReport, Wish};
use crate::cluster::{Cluster, ClusterError, Kind};
use crate::sidecar::{SidecarClient, Status, TaskAnswer, TaskRequest, TaskState};

/// The key in the Secret that `sidecar.tokenSecret` names.
const KEY: &str = "token";

/// A connection to a sidecar. Each error is a sentence.
pub(super) struct SidecarConnection<'a> {
    pub sidecars: &'a dyn SidecarClient,
    pub cluster: &'a dyn Cluster,
    pub namespace: &'a str,
    pub peer: &'a Peer,
}

impl SidecarConnection<'_> {
    pub(super) async fn ask(&self, question: &Question) -> Result<SidecarReport, String> {
        match &question.wish {
            Wish::MarkReady { task_id } => self.mark(task_id).await,
            Wish::Watch { halt } => self.watch(halt.as_ref()).await,
        }
    }

    async fn mark(&self, task_id: &str) -> Result<SidecarReport, String> {
        let status = self.status().await?;
        if status.ready {
            return Ok(report(&status));
        }
        self.submit(&TaskRequest::mark_ready(task_id)).await?;
        self.status().await.map(|status| report(&status))
    }

    async fn watch(&self, halt: Option<&Halt>) -> Result<SidecarReport, String> {
        let mut answer = None;
        if let Some(Halt { task_id, height }) = halt {
            // A sidecar that restarted has forgotten the task.
            answer = self.task(task_id).await?;
            if answer.is_none() {
                self.submit(&TaskRequest::halt_at_height(task_id, *height)).await?;
                answer = self.task(task_id).await?;
            }
        }
        let halted = answer.as_ref().is_some_and(|task| task.state == TaskState::Complete);
        let failed = answer.filter(|task| task.state == TaskState::Failed);
        let refusal = failed.map(|task| task.message).unwrap_or_default();
        Ok(SidecarReport { halted, refusal, ..report(&self.status().await?) })
    }

    async fn status(&self) -> Result<Status, String> {
        self.sidecars.status(&self.peer.url).await.map_err(|e| e.to_string())
    }

    async fn task(&self, id: &str) -> Result<Option<TaskAnswer>, String> {
        self.sidecars.task(&self.peer.url, id).await.map_err(|e| e.to_string())
    }

    /// Submits a task with the token that the Secret has now, so that a changed token needs no restart.
    async fn submit(&self, request: &TaskRequest) -> Result<(), String> {
        let token = self.token().await?;
        self.sidecars.submit(&self.peer.url, request, token.as_deref()).await.map_err(|e| e.to_string())
    }

    async fn token(&self) -> Result<Option<String>, String> {
        let (namespace, name) = (self.namespace, self.peer.token_secret.as_str());
        if name.is_empty() {
            return Ok(None);
        }
        let found = self.cluster.get(Kind::Secret, namespace, name).await;
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

fn report(status: &Status) -> SidecarReport {
    let Status { ready, caught_up, height, halted: _ } = *status;
    SidecarReport { ready, caught_up, height, ..SidecarReport::default() }
}

/// The decoded value of the Secret's key, without surrounding white space.
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
