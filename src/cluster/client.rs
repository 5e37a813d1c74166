//! How Windlass speaks with an API server: nothing waits for ever, and no write is sent twice.
//!
//! [`connect`] makes the connections of the shipped program. [`GuardedClient`] is put around any client, that of an embedding
//! program and that of a simulated cluster too, so that all of them keep the same rules:
//!
//! - An answer begins within [`REQUEST_TIMEOUT`], and its body, unless it is a watch, does not stand still for longer.
//! - A write goes out once. kube-rs' own layer sends a request again after 429, 503 and 504. The first may have been
//!   carried out by then; the second is refused with a conflict, and the write would count as one that was not made.
//!   What came of a write that was not answered is seen by looking.
//! - A write that the replica may not make any more, or whose time is up, does not leave the process, wherever it waited.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body::{Frame, SizeHint};
use hyper_timeout::TimeoutConnector;
use hyper_util::client::legacy::{Client as Http, connect::HttpConnector};
use hyper_util::rt::TokioExecutor;
use kube::client::{Body, ConfigExt};
use kube::{Client, Config};
use thiserror::Error;
use tokio::time::{Instant, Sleep, sleep_until, timeout_at};
use tower::{BoxError, ServiceBuilder, service_fn};

use super::proxy::Route;
use super::request;
use crate::clock::monotonic;
use crate::metrics::Metrics;

/// How long a request may take before it counts as lost, and how long the body of an answer may stand still.
pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// How long an answer that is no watch may take in all: the API server itself gives up then.
const ANSWER_TIMEOUT: Duration = Duration::from_mins(1);
/// How long it may take to connect.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a connection may bring nothing before it is closed, idle ones included: longer than the longest silence
/// of a watch whose other side lives ([`super::watch`]).
const SILENCE: Duration = Duration::from_secs(29);
/// After how much silence the other machine is asked for a sign, how often then, and how often in vain.
const KEEPALIVE: Duration = Duration::from_secs(10);
const KEEPALIVE_EVERY: Duration = Duration::from_secs(5);
const KEEPALIVE_TIMES: u32 = 3;
/// How much of an answer is taken off a connection at once, in bytes. Each connection keeps a buffer as large as it ever
/// needed, and there are dozens: hyper's own limit is 400 KB, and the buffers were half of what the operator held.
const BUFFER: usize = 32 << 10;

/// A client for a cluster, whose connections are closed when their other side is gone, and which sends no request twice.
/// It goes through the proxy that the kubeconfig or the environment names.
pub fn connect(config: Config) -> kube::Result<Client> {
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_keepalive(Some(KEEPALIVE));
    tcp.set_keepalive_interval(Some(KEEPALIVE_EVERY));
    tcp.set_keepalive_retries(Some(KEEPALIVE_TIMES));
    // What was not acknowledged by then is thrown away. Otherwise the kernel might deliver a write long after it was given
    // up here, and after another replica has taken over.
    #[cfg(target_os = "linux")]
    tcp.set_tcp_user_timeout(Some(REQUEST_TIMEOUT));
    let way = Route::of(&config, tcp)?;
    let mut connector = TimeoutConnector::new(config.rustls_https_connector_with_connector(way)?);
    connector.set_connect_timeout(Some(CONNECT_TIMEOUT));
    connector.set_read_timeout(Some(SILENCE));
    connector.set_write_timeout(Some(REQUEST_TIMEOUT));
    connector.set_reset_reader_on_write(true);
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?)
        .map_err(BoxError::from)
        .service(Http::builder(TokioExecutor::new()).http1_max_buf_size(BUFFER).build::<_, Body>(connector));
    Ok(Client::new(service, config.default_namespace))
}

/// What a request that was not answered in time, or not sent, came to.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
enum Unanswered {
    #[error("the API server did not answer within {} s", REQUEST_TIMEOUT.as_secs())]
    Late,
    #[error("the answer of the API server came to a stop")]
    Stopped,
    #[error("not sent: this replica does not lead any more, or the request's time was up")]
    NotSent,
}

type May = Arc<dyn Fn() -> bool + Send + Sync>;
type Ear = Arc<dyn Fn(Sign) + Send + Sync>;

/// What is heard of an API server.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Sign {
    /// That it carries a request out: the answer begins.
    Begun,
    /// A piece of that answer.
    Progress,
    /// That it is there, and carries the request not out.
    Refusal,
}

/// A client that keeps the rules of this module.
pub struct GuardedClient {
    client: Client,
    may_write: May,
    ear: Option<Ear>,
    metrics: Option<Metrics>,
}

impl GuardedClient {
    /// Puts the rules around a client.
    #[must_use]
    pub fn new(client: &Client) -> Self {
        Self { client: client.clone(), may_write: Arc::new(|| true), ear: None, metrics: None }
    }

    /// Sends no write while this answers no.
    #[must_use]
    pub fn fenced(mut self, may_write: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        self.may_write = Arc::new(may_write);
        self
    }

    /// Tells whenever something is heard of the API server: how an answer begins, and each piece of it.
    #[must_use]
    pub fn heard_by(mut self, ear: impl Fn(Sign) + Send + Sync + 'static) -> Self {
        self.ear = Some(Arc::new(ear));
        self
    }

    /// Counts requests there, if anywhere.
    #[must_use]
    pub fn counted(mut self, metrics: impl Into<Option<Metrics>>) -> Self {
        self.metrics = metrics.into();
        self
    }

    /// The client.
    #[must_use]
    pub fn client(self) -> Client {
        let namespace = self.client.default_namespace().to_owned();
        let bodies = bodies_sent_once(self.may_write);
        let (client, ear, metrics) = (self.client, self.ear, self.metrics);
        let service = service_fn(move |request: Request<Body>| {
            let (verb, resource) = (request::verb(&request), request::resource(&request));
            let asked = ask(client.clone(), bodies.clone(), ear.clone(), request);
            let metrics = metrics.clone();
            async move {
                let began = monotonic();
                let answer = asked.await;
                if let Some(metrics) = metrics {
                    let code = answer.as_ref().ok().map(|answer| answer.status().as_u16());
                    metrics.count_request(verb, resource, code, monotonic().duration_since(began));
                }
                answer
            }
        });
        Client::new(service, namespace)
    }
}

async fn ask(
    client: Client,
    bodies: Client,
    ear: Option<Ear>,
    request: Request<Body>,
) -> Result<Response<Limited>, BoxError> {
    let began = monotonic();
    let query = request.uri().query().unwrap_or_default();
    let names = |parameter: &str| query.split('&').any(|part| part == parameter);
    let (is_watch, is_trial) = (names("watch=true"), names("dryRun=All"));
    let is_write = !matches!(*request.method(), Method::GET | Method::HEAD) && !is_trial;
    let answer = async {
        let request = if is_write { sent_once(&bodies, request).await? } else { request };
        client.send(request).await
    };
    let response = timeout_at(began + REQUEST_TIMEOUT, answer).await.map_err(|_| Unanswered::Late)??;
    let is_carried_out = response.status().is_success();
    if let Some(ear) = &ear {
        ear(if is_carried_out { Sign::Begun } else { Sign::Refusal });
    }
    let sign = if is_carried_out { Sign::Progress } else { Sign::Refusal };
    let until = (!is_watch).then_some(began + ANSWER_TIMEOUT);
    Ok(response.map(|body| Limited { body, ear, sign, until, timer: None }))
}

/// The same request with a body that cannot be copied: what would send it again has to let it be.
async fn sent_once(bodies: &Client, request: Request<Body>) -> kube::Result<Request<Body>> {
    let (parts, body) = request.into_parts();
    let body = bodies.send(Request::new(body)).await?.into_body();
    Ok(Request::from_parts(parts, body))
}

/// Converts each request body into one that cannot be cloned, so that kube-rs cannot send it twice. Goes through a stub
/// service, because kube-rs accepts custom body types in responses only.
fn bodies_sent_once(may_write: May) -> Client {
    let service = service_fn(move |request: Request<Body>| {
        let may = may_write.clone();
        async move {
            let bytes = request.into_body().collect_bytes().await?;
            let bytes = Some(bytes).filter(|bytes| !bytes.is_empty());
            Ok::<_, BoxError>(Response::new(WriteBody { bytes, may, until: monotonic() + REQUEST_TIMEOUT }))
        }
    });
    Client::new(service, "")
}

/// The body of a write. It is asked for when the connection is there and the request goes out: a process that was stopped
/// meanwhile asks anew whether it may.
struct WriteBody {
    bytes: Option<Bytes>,
    may: May,
    until: Instant,
}

impl http_body::Body for WriteBody {
    type Data = Bytes;
    type Error = Unanswered;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Unanswered>>> {
        let Some(bytes) = self.bytes.take() else { return Poll::Ready(None) };
        if monotonic() >= self.until || !(self.may)() {
            return Poll::Ready(Some(Err(Unanswered::NotSent)));
        }
        Poll::Ready(Some(Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        self.bytes.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.bytes.as_ref().map_or(0, |bytes| bytes.len() as u64))
    }
}

/// The body of an answer, which is given up when it stands still.
struct Limited {
    body: Body,
    ear: Option<Ear>,
    /// What each piece of it is a sign of.
    sign: Sign,
    /// When it has to be over; none for a watch, of which the watcher itself knows how long it may be silent.
    until: Option<Instant>,
    timer: Option<Pin<Box<Sleep>>>,
}

impl http_body::Body for Limited {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = &mut *self;
        let polled = Pin::new(&mut this.body).poll_frame(context);
        if let Poll::Ready(frame) = polled {
            this.timer = None;
            if let (Some(Ok(_)), Some(ear)) = (&frame, &this.ear) {
                ear(this.sign);
            }
            return Poll::Ready(frame.map(|frame| frame.map_err(BoxError::from)));
        }
        let Some(until) = this.until else { return Poll::Pending };
        let timer =
            this.timer.get_or_insert_with(|| Box::pin(sleep_until(until.min(monotonic() + REQUEST_TIMEOUT))));
        match timer.as_mut().poll(context) {
            Poll::Ready(()) => Poll::Ready(Some(Err(Unanswered::Stopped.into()))),
            Poll::Pending => Poll::Pending,
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
