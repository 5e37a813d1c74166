//! The cluster as a `tower::Service` for an ordinary `kube::Client`. This layer adds latency, faults and the audit
//! log; the server handles the requests.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::{Stream, StreamExt, stream};
use http::{Request, Response};
use http_body::Frame;
use kube::client::Body;
use serde::Deserialize;

use super::audit::{AuditEntry, is_write};
use super::faults::{After, Before, Failure, RequestInfo};
use super::random::Random;
use super::server::{Call, Payload, Reply};
use super::shared::{Shared, WatchView};

/// The error of a broken connection.
#[derive(Debug, thiserror::Error)]
#[error("connection to the API server was lost")]
pub struct Disconnected;

/// The latency of a request, in milliseconds: least and greatest. Half of it passes before the request is carried
/// out.
#[derive(Clone, Copy, Debug)]
pub struct Latency(pub u64, pub u64);

/// The counters that number requests for fault plans.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    requests: u64,
    writes: BTreeMap<String, u64>,
}

/// The service of one caller.
#[derive(Clone)]
pub struct ApiService {
    pub(super) shared: Arc<Shared>,
    pub(super) user_agent: Arc<str>,
    pub(super) counters: Arc<Mutex<Counters>>,
    pub(super) latency: Option<Latency>,
    pub(super) random: Arc<Mutex<Random>>,
}

impl tower::Service<Request<Body>> for ApiService {
    type Response = Response<SimBody>;
    type Error = Disconnected;
    type Future = BoxFuture<'static, Result<Self::Response, Disconnected>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Disconnected>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let service = self.clone();
        Box::pin(async move { service.serve(request).await })
    }
}

impl ApiService {
    async fn serve(self, request: Request<Body>) -> Result<Response<SimBody>, Disconnected> {
        let (parts, body) = request.into_parts();
        let body = body.collect_bytes().await.map_err(|_| Disconnected)?;
        let call = Call::read(&parts, body, &self.user_agent);
        let info = Arc::new(self.number(&call));
        let sent_micros = self.shared.elapsed().as_micros() as u64;
        let mut trail = Trail { sent_micros, guarded: is_guarded(&call), wrote: (0, 0) };
        let half = self.draw_latency() / 2;
        pause(half).await;
        match self.ask(|plan| plan.before(&info)) {
            Before::Pass => {}
            Before::Delay(delay) => pause(delay).await,
            Before::Fail(failure) => return self.fail(&info, &failure, trail),
        }
        let view = WatchView { shared: self.shared.clone(), request: info.clone() };
        let reply = {
            let mut world = self.shared.lock();
            trail.wrote.0 = world.store.version();
            let reply = world.answer(&self.shared, &call, view);
            trail.wrote.1 = world.store.version();
            reply
        };
        self.shared.wake.notify_one();
        pause(half).await;
        match self.ask(|plan| plan.after(&info, reply.code)) {
            After::Pass => {}
            After::Delay(delay) => pause(delay).await,
            After::Fail(failure) => return self.fail(&info, &failure, trail),
        }
        self.record(&info, reply.code, trail);
        Ok(response(reply))
    }

    fn ask<T>(&self, question: impl FnOnce(&mut dyn super::faults::FaultPlan) -> T) -> T {
        let mut plan = self.shared.faults.lock().unwrap_or_else(PoisonError::into_inner);
        question(plan.as_mut())
    }

    fn number(&self, call: &Call) -> RequestInfo {
        let mut counters = self.counters.lock().unwrap_or_else(PoisonError::into_inner);
        counters.requests += 1;
        let number = counters.requests;
        let dry_run = call.is_dry_run();
        let write_number = if is_write(call.verb) && !dry_run {
            let count = counters.writes.entry(call.user_agent.clone()).or_default();
            *count += 1;
            *count
        } else {
            0
        };
        RequestInfo {
            number,
            write_number,
            verb: call.verb.to_owned(),
            resource: call.resource(),
            subresource: call.subresource.clone(),
            namespace: call.namespace.clone(),
            name: call.name.clone(),
            user_agent: call.user_agent.clone(),
            dry_run,
        }
    }

    fn draw_latency(&self) -> Duration {
        let Some(Latency(low, high)) = self.latency else { return Duration::ZERO };
        let mut random = self.random.lock().unwrap_or_else(PoisonError::into_inner);
        Duration::from_millis(random.between(low, high))
    }

    fn fail(
        &self,
        info: &RequestInfo,
        failure: &Failure,
        trail: Trail,
    ) -> Result<Response<SimBody>, Disconnected> {
        let Some((refusal, retry_after)) = failure.refusal(info) else {
            self.record(info, 0, trail);
            return Err(Disconnected);
        };
        self.record(info, refusal.code, trail);
        let mut response = response(Reply::refusal(&refusal));
        if let Some(seconds) = retry_after {
            response.headers_mut().insert(http::header::RETRY_AFTER, seconds.into());
        }
        Ok(response)
    }

    fn record(&self, info: &RequestInfo, code: u16, trail: Trail) {
        let mut world = self.shared.lock();
        let entry = AuditEntry {
            sent_micros: trail.sent_micros,
            at_micros: self.shared.elapsed().as_micros() as u64,
            verb: info.verb.clone(),
            resource: info.resource.clone(),
            subresource: info.subresource.clone(),
            namespace: info.namespace.clone(),
            name: info.name.clone(),
            user_agent: info.user_agent.clone(),
            dry_run: info.dry_run,
            code,
            version: world.store.version(),
            wrote: trail.wrote,
            guarded: trail.guarded,
        };
        world.audit.push(entry);
    }
}

/// What the audit log records of a request's execution.
#[derive(Clone, Copy)]
struct Trail {
    sent_micros: u64,
    wrote: (u64, u64),
    guarded: bool,
}

/// True if a write has a precondition. Ignores the rest of its body.
fn is_guarded(call: &Call) -> bool {
    #[derive(Deserialize)]
    struct Operation {
        path: String,
    }
    #[derive(Default, Deserialize)]
    #[serde(default, rename_all = "camelCase")]
    struct Named {
        resource_version: Option<String>,
        uid: Option<String>,
    }
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Guard {
        metadata: Named,
        preconditions: Named,
    }
    if !is_write(call.verb) {
        return false;
    }
    let of_object = || serde_json::from_slice::<Guard>(&call.body).unwrap_or_default();
    match call.verb {
        "create" | "deletecollection" => false,
        "delete" => of_object().preconditions.uid.is_some(),
        _ if call.body.starts_with(b"[") => serde_json::from_slice::<Vec<Operation>>(&call.body)
            .is_ok_and(|operations| operations.iter().any(|op| op.path == "/metadata/resourceVersion")),
        _ => of_object().metadata.resource_version.is_some(),
    }
}

async fn pause(time: Duration) {
    if !time.is_zero() {
        tokio::time::sleep(time).await;
    }
}

fn response(reply: Reply) -> Response<SimBody> {
    let body = match reply.payload {
        Payload::Json(bytes) => stream::once(std::future::ready(bytes)).boxed(),
        Payload::Watch(stream) => stream.boxed(),
    };
    let mut response = Response::new(SimBody(body));
    *response.status_mut() =
        http::StatusCode::from_u16(reply.code).unwrap_or(http::StatusCode::INTERNAL_SERVER_ERROR);
    let headers = response.headers_mut();
    headers.insert(http::header::CONTENT_TYPE, http::HeaderValue::from_static("application/json"));
    for warning in reply.warnings {
        if let Ok(value) = http::HeaderValue::from_str(&format!("299 - {warning:?}")) {
            headers.append(http::header::WARNING, value);
        }
    }
    response
}

/// The body of a response: one piece, or the lines of a watch.
pub struct SimBody(Pin<Box<dyn Stream<Item = Bytes> + Send>>);

impl http_body::Body for SimBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.as_mut().poll_next(context).map(|next| next.map(|bytes| Ok(Frame::data(bytes))))
    }
}
