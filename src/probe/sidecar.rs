//! The prober of sidecars, and one exchange with a sidecar: the requests of a question, and the token for a POST.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use k8s_openapi::ByteString;
use serde_json::Value;

use super::question::{Halt, Peer, Question, RequestKind, SidecarReport, SidecarRequest};
use super::{AnswerState, Limits, Peers, Prober};
use crate::sidecar::{SidecarClient, Status, TaskAnswer, TaskRequest, TaskState};
use windlass_kube_port::{Cluster, ClusterError, Key, Kind};

/// The key in the Secret that `sidecar.tokenSecret` names.
const KEY: &str = "token";

/// How long the answer of a sidecar counts as current.
pub const SIDECAR_VALIDITY: Duration = Duration::from_secs(5);
/// A sidecar that needs longer than this is asked in the patient lane. It is the time for all requests of a question.
const LIMITS: Limits = Limits { prompt: Some(Duration::from_millis(250)), concurrency: 64 };

/// The answer of a sidecar; an error is a sentence that says why there is none.
pub type SidecarAnswer = Result<SidecarReport, String>;
/// The prober of sidecars.
pub type SidecarProber = Prober<SidecarKey, Question, SidecarAnswer>;

/// A node, and the kind of a request to its sidecar.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct SidecarKey {
    /// The node.
    pub node: Key,
    /// The kind.
    pub kind: RequestKind,
}

impl fmt::Display for SidecarKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.node.fmt(f)
    }
}

impl SidecarProber {
    /// A prober that sends requests with this client. Tokens are read through this port.
    #[must_use]
    pub fn of_sidecars(sidecars: Arc<dyn SidecarClient>, cluster: Arc<dyn Cluster>) -> Arc<Self> {
        Self::new(Arc::new(Sidecars { sidecars, cluster }), LIMITS)
    }

    /// The last answer of a node's sidecar to a question. Queues the question if it is due.
    pub fn ask_sidecar(&self, node: &Key, question: Question) -> AnswerState<SidecarAnswer> {
        let key = SidecarKey { node: node.clone(), kind: question.request.kind() };
        self.ask(&key, question, Duration::ZERO)
    }

    /// Drops a node's question of this kind.
    pub fn settle(&self, node: &Key, kind: RequestKind) {
        self.forget(&SidecarKey { node: node.clone(), kind });
    }

    /// Drops all questions of a node.
    pub fn forget_node(&self, node: &Key) {
        for kind in [RequestKind::MarkReady, RequestKind::Watch] {
            self.settle(node, kind);
        }
    }
}

struct Sidecars {
    sidecars: Arc<dyn SidecarClient>,
    cluster: Arc<dyn Cluster>,
}

#[async_trait]
impl Peers<SidecarKey, Question, SidecarAnswer> for Sidecars {
    async fn ask(&self, key: &SidecarKey, question: &Question, _: Option<SidecarAnswer>) -> SidecarAnswer {
        let connection = SidecarConnection {
            sidecars: &*self.sidecars,
            cluster: &*self.cluster,
            namespace: &key.node.namespace,
            peer: &question.peer,
        };
        connection.ask(question).await
    }

    fn panicked(&self, why: String) -> SidecarAnswer {
        Err(why)
    }

    fn validity(&self, _: &Question, answer: &SidecarAnswer) -> Option<Duration> {
        answer.is_ok().then_some(SIDECAR_VALIDITY)
    }

    fn have_same_peer(&self, one: &Question, other: &Question) -> bool {
        one.peer == other.peer
    }
}

/// A connection to a sidecar. Each error is a sentence.
struct SidecarConnection<'a> {
    sidecars: &'a dyn SidecarClient,
    cluster: &'a dyn Cluster,
    namespace: &'a str,
    peer: &'a Peer,
}

impl SidecarConnection<'_> {
    async fn ask(&self, question: &Question) -> Result<SidecarReport, String> {
        match &question.request {
            SidecarRequest::MarkReady { task_id } => self.mark(task_id).await,
            SidecarRequest::Watch { halt } => self.watch(halt.as_ref()).await,
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
        let secret = format!("Secret {namespace}/{name}, which sidecar.tokenSecret refers to,");
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
                "the operator may not read {secret} because its role lacks the verb get on secrets: apply deploy/rbac"
            )),
            Err(error) => Err(error.to_string()),
        }
    }
}

fn report(status: &Status) -> SidecarReport {
    let Status { ready, caught_up, height, halted: _, role } = status.clone();
    SidecarReport { ready, caught_up, height, role, ..SidecarReport::default() }
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
    fn token_is_the_text_under_its_key() {
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
