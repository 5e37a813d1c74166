//! The operator's client of sidecars: a port, and its implementation over HTTP.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderValue, Method, StatusCode};
use serde::de::DeserializeOwned;
use url::Url;

use super::exchange::{Failure, client, excerpt, exchange, get};
use super::protocol::{RefusalBody, Status, TaskAnswer, TaskRequest};
use super::url::parse_web;
use crate::outward::{Access, HttpClient, Origin, Reply, Request};

/// Why a sidecar's answer cannot be used. The text is a sentence that names the URL.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SidecarError {
    /// The request could not be sent, or got no answer.
    #[error("{0}")]
    Unreachable(String),
    /// The status is not a 2xx.
    #[error("{message}")]
    Refused {
        /// The HTTP status.
        status: u16,
        /// A sentence with the sidecar's message.
        message: String,
    },
    /// The answer does not follow the protocol.
    #[error("{0}")]
    Garbled(String),
}

/// A client of sidecars. `base_url` is what [`url_for`](super::url_for) returned.
#[cfg_attr(test, mockall::automock)]
#[cfg_attr(test, allow(clippy::ref_option_ref, reason = "in the mock that is generated"))]
#[async_trait]
pub trait SidecarClient: Send + Sync {
    /// The current status of the node.
    async fn status(&self, base_url: &str) -> Result<Status, SidecarError>;

    /// Submits a task. `Ok` means that the sidecar has accepted it, now or before, not that it is done: query
    /// [`task`](Self::task) or [`status`](Self::status) for that. Submitting twice is harmless.
    async fn submit<'a>(
        &self,
        base_url: &str,
        request: &TaskRequest,
        token: Option<&'a str>,
    ) -> Result<(), SidecarError>;

    /// The state of a task; `None` if the sidecar does not know it, as after a restart.
    async fn task(&self, base_url: &str, id: &str) -> Result<Option<TaskAnswer>, SidecarError>;

    /// The same client with certificates and headers for its requests; `None` if it supports neither.
    fn with_access(&self, access: Access) -> Option<Arc<dyn SidecarClient>> {
        drop(access);
        None
    }
}

/// The client over HTTP, with one connection pool for all sidecars. Clones share the pool.
#[derive(Clone, Debug)]
pub struct HttpSidecar {
    http: HttpClient,
    timeout: Duration,
    access: Access,
}

impl HttpSidecar {
    /// The default time-out of an exchange.
    pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(2);

    /// A client whose exchanges, connecting included, end after `timeout`.
    #[must_use]
    pub fn new(timeout: Duration) -> Self {
        Self { http: client(), timeout, access: Access::of(Origin::Sidecar) }
    }

    /// Sends a request with the access of this client.
    async fn ask(&self, request: Request) -> Result<Reply, SidecarError> {
        let (url, Access { trust, headers }) = (request.url.clone(), self.access.clone());
        let mut request = Request { trust, ..request };
        for (name, value) in &headers {
            request.headers.insert(name, value.clone());
        }
        exchange(&self.http, request).await.map_err(|failure| {
            let sentence = format!("the sidecar at {url} {failure}");
            match failure {
                Failure::NoAnswer(_) => SidecarError::Unreachable(sentence),
                Failure::TooLong => SidecarError::Garbled(sentence),
            }
        })
    }
}

#[async_trait]
impl SidecarClient for HttpSidecar {
    async fn status(&self, base_url: &str) -> Result<Status, SidecarError> {
        let url = endpoint(base_url, &["v1", "status"])?;
        let reply = accepted(&url, self.ask(get(url.clone(), self.timeout)).await?)?;
        read(&url, &reply)
    }

    async fn submit<'a>(
        &self,
        base_url: &str,
        request: &TaskRequest,
        token: Option<&'a str>,
    ) -> Result<(), SidecarError> {
        let url = endpoint(base_url, &["v1", "tasks"])?;
        let body = serde_json::to_vec(request).map(Bytes::from).unwrap_or_default();
        let mut post = Request { method: Method::POST, body, ..get(url.clone(), self.timeout) };
        post.headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Some(token) = token {
            post.headers.insert(AUTHORIZATION, bearer(&url, token)?);
        }
        accepted(&url, self.ask(post).await?).map(drop)
    }

    async fn task(&self, base_url: &str, id: &str) -> Result<Option<TaskAnswer>, SidecarError> {
        let url = endpoint(base_url, &["v1", "tasks", id])?;
        let reply = self.ask(get(url.clone(), self.timeout)).await?;
        if reply.status == StatusCode::NOT_FOUND {
            return Ok(None);
        }
        let reply = accepted(&url, reply)?;
        let mut answer: TaskAnswer = read(&url, &reply)?;
        answer.message = reply.credentials.hide(&answer.message);
        if answer.id != id {
            let other = excerpt(answer.id.as_bytes());
            return Err(SidecarError::Garbled(format!("the sidecar at {url} answered for task {other}")));
        }
        Ok(Some(answer))
    }

    fn with_access(&self, access: Access) -> Option<Arc<dyn SidecarClient>> {
        Some(Arc::new(Self { access, ..self.clone() }))
    }
}

fn endpoint(base_url: &str, path: &[&str]) -> Result<Url, SidecarError> {
    let mut url = parse_web(base_url)
        .map_err(|fault| SidecarError::Unreachable(format!("the sidecar's URL `{base_url}` {fault}")))?;
    if let Ok(mut segments) = url.path_segments_mut() {
        segments.pop_if_empty().extend(path);
    }
    Ok(url)
}

/// Secrets often end in a newline, which is not part of the token.
fn bearer(url: &Url, token: &str) -> Result<HeaderValue, SidecarError> {
    let mut value = HeaderValue::from_str(&format!("Bearer {}", token.trim())).map_err(|_| {
        SidecarError::Unreachable(format!(
            "the sidecar at {url} cannot be queried: its token has characters that are not allowed in an HTTP header"
        ))
    })?;
    value.set_sensitive(true);
    Ok(value)
}

fn accepted(url: &Url, reply: Reply) -> Result<Reply, SidecarError> {
    let status = StatusCode::from_u16(reply.status).unwrap_or_default();
    if status.is_success() {
        return Ok(reply);
    }
    let mut message = format!("the sidecar at {url} answered {status}");
    if let Ok(refusal) = serde_json::from_slice::<RefusalBody>(&reply.body) {
        message = format!("{message}: {}", excerpt(reply.credentials.hide(&refusal.message).as_bytes()));
    } else {
        log_unquoted(url, &reply);
    }
    Err(SidecarError::Refused { status: status.as_u16(), message })
}

fn read<T: DeserializeOwned>(url: &Url, reply: &Reply) -> Result<T, SidecarError> {
    serde_json::from_slice(&reply.body).map_err(|error| {
        log_unquoted(url, reply);
        let fault = if error.is_data() {
            "JSON that does not match the protocol"
        } else {
            "something that is not JSON"
        };
        let (line, column) = (error.line(), error.column());
        SidecarError::Garbled(format!("the sidecar at {url} answered {fault} (line {line}, column {column})"))
    })
}

/// Unexpected bodies go to the log and never into an error, which ends in a status: a user who may write `sidecar.url`
/// could otherwise read, through the operator, what only the operator can reach.
fn log_unquoted(url: &Url, reply: &Reply) {
    tracing::debug!(%url, answer = excerpt(reply.shown().as_bytes()), "an answer outside the sidecar's protocol");
}
