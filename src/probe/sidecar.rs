//! The prober of sidecars, and one exchange with a sidecar: the requests of a question, and the token for a POST.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::question::{Halt, Peer, Question, RequestKind, SidecarReport, SidecarRequest};
use super::{AnswerState, Limits, Peers, Prober};
use crate::outward::{OutwardSettings, SecretKey, Secrets};
use crate::sidecar::{SidecarClient, Status, TaskAnswer, TaskRequest, TaskState};
use async_trait::async_trait;
use windlass_kube_port::{Cluster, Key};

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
        // The nodes of a fleet share their Secrets, and are asked again when their answer is that old.
        let secrets = Secrets::new(cluster, SIDECAR_VALIDITY);
        Self::new(Arc::new(Sidecars { sidecars, secrets }), LIMITS)
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
    secrets: Secrets,
}

#[async_trait]
impl Peers<SidecarKey, Question, SidecarAnswer> for Sidecars {
    async fn ask(&self, key: &SidecarKey, question: &Question, _: Option<SidecarAnswer>) -> SidecarAnswer {
        let (namespace, peer) = (key.node.namespace.as_str(), &question.peer);
        let sidecars = self.client(namespace, peer).await?;
        let connection = SidecarConnection { sidecars: &*sidecars, secrets: &self.secrets, namespace, peer };
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

impl Sidecars {
    /// The client for a sidecar, with the certificates and credentials that its Secrets have now.
    async fn client(&self, namespace: &str, peer: &Peer) -> Result<Arc<dyn SidecarClient>, String> {
        let settings = &peer.settings;
        if *settings == (OutwardSettings { origin: settings.origin, ..OutwardSettings::default() }) {
            return Ok(self.sidecars.clone());
        }
        let access = self.secrets.access(namespace, settings).await.map_err(|why| about(peer, &why))?;
        let client = self.sidecars.with_access(access);
        client.ok_or_else(|| {
            about(peer, "cannot be sent: this client supports neither sidecar.tls nor sidecar.auth")
        })
    }
}

/// A sentence about a request to a sidecar.
fn about(peer: &Peer, said: &str) -> String {
    format!("the request to the sidecar at {} {said}", peer.url)
}

/// A connection to a sidecar. Each error is a sentence.
struct SidecarConnection<'a> {
    sidecars: &'a dyn SidecarClient,
    secrets: &'a Secrets,
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
        let key = SecretKey { namespace, name, key: KEY, field: "sidecar.tokenSecret" };
        let said = |why: String| about(self.peer, &why);
        let token = self.secrets.value_now(key).await.map_err(said)?;
        let token = String::from_utf8(token).unwrap_or_default().trim().to_owned();
        if token.is_empty() {
            return Err(said(format!("cannot be sent: Secret {namespace}/{name} has no text in key {KEY}")));
        }
        Ok(Some(token))
    }
}

fn report(status: &Status) -> SidecarReport {
    let Status { ready, caught_up, height, halted: _, role } = status.clone();
    SidecarReport { ready, caught_up, height, role, ..SidecarReport::default() }
}
