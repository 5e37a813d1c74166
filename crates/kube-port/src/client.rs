//! How Windlass talks to an API server: no request waits forever, and no write is sent twice.
//!
//! [`connect`] makes the connections of the shipped program. [`GuardedClient`] wraps any client, including that of an
//! embedding program and that of a simulated cluster, so that the same rules apply to all of them:
//!
//! - A response begins within [`REQUEST_TIMEOUT`], and its body, unless it is a watch, does not pause for longer.
//! - A write is sent once. The retry layer of kube-rs sends a request again after 429, 503 and 504. The first request
//!   may have been carried out by then; the second is refused with a conflict, and the write would count as failed.
//!   The outcome of a write without a response is found by reading.
//! - A write that the replica may not make any more, or that has timed out, does not leave the process, wherever it
//!   waited.

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

use crate::metrics::SharedMetrics;
use crate::proxy::Route;
use crate::request;
use windlass_clock::monotonic;

/// How long a request may wait for its response, and how long the body of a response may pause.
pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a response that is not a watch may take as a whole: the API server itself gives up then.
const ANSWER_TIMEOUT: Duration = Duration::from_mins(1);
/// The time-out of a connect.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a connection may be silent before it is closed, including idle ones: longer than the longest silence of a
/// watch whose other side is alive ([`super::watch`]).
const SILENCE: Duration = Duration::from_secs(29);
/// TCP keepalive: the silence before the first probe, the interval of probes, and the number of unanswered probes.
const KEEPALIVE: Duration = Duration::from_secs(10);
const KEEPALIVE_EVERY: Duration = Duration::from_secs(5);
const KEEPALIVE_TIMES: u32 = 3;
/// How much of a response is read from a connection at once, in bytes. Each connection keeps a buffer as large as it
/// ever needed, and there are dozens of connections: with hyper's own limit of 400 KB the buffers were half of the
/// operator's memory.
const BUFFER: usize = 32 << 10;

/// Creates a client for a cluster that closes connections whose other side is gone, and that sends no request twice. It
/// uses the proxy of the kubeconfig or of the environment.
pub fn connect(config: Config) -> kube::Result<Client> {
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_keepalive(Some(KEEPALIVE));
    tcp.set_keepalive_interval(Some(KEEPALIVE_EVERY));
    tcp.set_keepalive_retries(Some(KEEPALIVE_TIMES));
    // Unacknowledged data is dropped by then. Otherwise the kernel might deliver a write long after its time-out, when
    // another replica has taken over.
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

/// Why a request was not answered in time, or not sent.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
enum Unanswered {
    #[error("the API server did not answer within {} s", REQUEST_TIMEOUT.as_secs())]
    Late,
    #[error("the API server stopped sending its response")]
    Stopped,
    #[error("not sent: this replica is no longer the leader, or the request timed out")]
    NotSent,
}

type WriteGate = Arc<dyn Fn() -> bool + Send + Sync>;
type ResponseObserver = Arc<dyn Fn(Sign) + Send + Sync>;

/// A sign of life from an API server.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Sign {
    /// It carries out a request: the response begins.
    Begun,
    /// A part of that response.
    Progress,
    /// It refuses a request: it is alive, but does not carry the request out.
    Refusal,
}

/// A client that applies the rules of this module.
pub struct GuardedClient {
    client: Client,
    may_write: WriteGate,
    observer: Option<ResponseObserver>,
    metrics: Option<SharedMetrics>,
}

impl GuardedClient {
    /// Wraps a client.
    #[must_use]
    pub fn new(client: &Client) -> Self {
        Self { client: client.clone(), may_write: Arc::new(|| true), observer: None, metrics: None }
    }

    /// Sends no write while this function returns false.
    #[must_use]
    pub fn fenced(mut self, may_write: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        self.may_write = Arc::new(may_write);
        self
    }

    /// Calls this function for each sign of life: when a response begins, and for each part of it.
    #[must_use]
    pub fn on_response(mut self, observer: impl Fn(Sign) + Send + Sync + 'static) -> Self {
        self.observer = Some(Arc::new(observer));
        self
    }

    /// Counts requests in these metrics, if any.
    #[must_use]
    pub fn counted(mut self, metrics: impl Into<Option<SharedMetrics>>) -> Self {
        self.metrics = metrics.into();
        self
    }

    /// Builds the client.
    #[must_use]
    pub fn client(self) -> Client {
        let namespace = self.client.default_namespace().to_owned();
        let bodies = bodies_sent_once(self.may_write);
        let (client, observer, metrics) = (self.client, self.observer, self.metrics);
        let service = service_fn(move |request: Request<Body>| {
            let (verb, resource) = (request::verb(&request), request::resource(&request));
            let asked = ask(client.clone(), bodies.clone(), observer.clone(), request);
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
    observer: Option<ResponseObserver>,
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
    if let Some(observer) = &observer {
        observer(if is_carried_out { Sign::Begun } else { Sign::Refusal });
    }
    let sign = if is_carried_out { Sign::Progress } else { Sign::Refusal };
    let until = (!is_watch).then_some(began + ANSWER_TIMEOUT);
    Ok(response.map(|body| Limited { body, observer, sign, until, timer: None }))
}

/// The same request with a body that cannot be cloned, so that no layer can send it again.
async fn sent_once(bodies: &Client, request: Request<Body>) -> kube::Result<Request<Body>> {
    let (parts, body) = request.into_parts();
    let body = bodies.send(Request::new(body)).await?.into_body();
    Ok(Request::from_parts(parts, body))
}

/// Converts each request body into one that cannot be cloned, so that kube-rs cannot send it twice. Goes through a stub
/// service, because kube-rs accepts custom body types in responses only.
fn bodies_sent_once(may_write: WriteGate) -> Client {
    let service = service_fn(move |request: Request<Body>| {
        let may_write = may_write.clone();
        async move {
            let bytes = request.into_body().collect_bytes().await?;
            let bytes = Some(bytes).filter(|bytes| !bytes.is_empty());
            Ok::<_, BoxError>(Response::new(WriteBody {
                bytes,
                may_write,
                until: monotonic() + REQUEST_TIMEOUT,
            }))
        }
    });
    Client::new(service, "")
}

/// The body of a write. It is polled when the connection is established and the request goes out, and checks then
/// whether the write is still allowed: the process may have been suspended in between.
struct WriteBody {
    bytes: Option<Bytes>,
    may_write: WriteGate,
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
        if monotonic() >= self.until || !(self.may_write)() {
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

/// The body of a response. It fails if it pauses for too long.
struct Limited {
    body: Body,
    observer: Option<ResponseObserver>,
    /// The sign of life that each part of the body is.
    sign: Sign,
    /// When the body has to be complete; `None` for a watch, whose watcher knows how long it may be silent.
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
            if let (Some(Ok(_)), Some(observer)) = (&frame, &this.observer) {
                observer(this.sign);
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
