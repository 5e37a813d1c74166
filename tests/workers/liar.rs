//! A proxy between the operator and a real Temporal that falsifies answers. Workers pass unchanged: only the
//! operator's own requests are affected.

use std::{
    convert::Infallible,
    pin::Pin,
    sync::{Arc, Mutex},
    task::{Context, Poll},
    time::Duration,
};

use axum::{body::Body, extract::Request, response::Response};
use bytes::{BufMut, Bytes, BytesMut};
use http::{HeaderMap, HeaderValue};
use http_body::Frame;
use prost::Message;
use tokio::{net::TcpListener, task::JoinHandle};
use tower::ServiceExt;
use windlass_temporal_grpc::{
    messages::temporal::api::workflowservice::v1::DescribeWorkerDeploymentResponse,
    tonic::{self, transport::Channel},
};

use windlass_harness::controlplane::Error;
use windlass_harness::temporal::frontend::{HOST, Server};

/// A method that only operators call.
const DESCRIBE: &str = "DescribeWorkerDeployment";
const ASKED: [&str; 5] = [
    DESCRIBE,
    "DescribeWorkerDeploymentVersion",
    "DescribeTaskQueue",
    "CountWorkflowExecutions",
    "SetWorkerDeploymentRampingVersion",
];

/// A falsification.
#[derive(Clone, Copy, Debug, Default)]
pub enum Lie {
    /// None.
    #[default]
    None,
    /// Deployments have no versions.
    Empty,
    /// Deployments are unknown.
    Unknown,
    /// A delay.
    Slow(Duration),
    /// Rate limiting.
    Limits,
}

#[derive(Default)]
struct State {
    lie: Mutex<Lie>,
    described: Mutex<Vec<tokio::time::Instant>>,
}

/// A proxy, closed on drop.
pub struct Liar {
    address: String,
    state: Arc<State>,
    serves: JoinHandle<()>,
}

impl Liar {
    /// A proxy to a server, without falsification.
    pub async fn before(server: &Server) -> Result<Self, Error> {
        let listener = TcpListener::bind((HOST, 0)).await?;
        let address = listener.local_addr()?.to_string();
        let channel = Channel::from_shared(format!("http://{}", server.address()))?.connect_lazy();
        let state = Arc::<State>::default();
        let known = state.clone();
        let router = axum::Router::new().fallback(move |request: Request| {
            let (channel, state) = (channel.clone(), known.clone());
            async move { answer(channel, &state, request).await }
        });
        let serves = tokio::spawn(async move {
            let _ = axum::serve(listener, router).await;
        });
        Ok(Self { address, state, serves })
    }

    /// Host and port.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Sets the falsification.
    pub fn tells(&self, lie: Lie) {
        *self.state.lie.lock().unwrap() = lie;
    }

    /// When deployments were described.
    pub fn described(&self) -> Vec<tokio::time::Instant> {
        self.state.described.lock().unwrap().clone()
    }
}

impl Drop for Liar {
    fn drop(&mut self) {
        self.serves.abort();
    }
}

async fn answer(channel: Channel, state: &State, request: Request) -> Result<Response, Infallible> {
    let method = request.uri().path().rsplit('/').next().unwrap_or_default().to_owned();
    let lie = *state.lie.lock().unwrap();
    if method == DESCRIBE {
        state.described.lock().unwrap().push(windlass::clock::monotonic());
    }
    match lie {
        Lie::Slow(by) if ASKED.contains(&method.as_str()) => tokio::time::sleep(by).await,
        Lie::Unknown if method == DESCRIBE => {
            return Ok(refused(5, "no Worker Deployment found with that name"));
        }
        Lie::Limits if ASKED.contains(&method.as_str()) => {
            return Ok(refused(8, "namespace rate limit exceeded"));
        }
        _ => {}
    }
    let answered = channel.oneshot(request.map(tonic::body::Body::new)).await;
    let Ok(answered) = answered else { return Ok(refused(14, "the server does not answer")) };
    let answered = answered.map(Body::new);
    if matches!(lie, Lie::Empty) && method == DESCRIBE {
        return Ok(without_versions(answered).await);
    }
    Ok(answered)
}

/// A gRPC response with a status only.
fn refused(status: u8, sentence: &'static str) -> Response {
    let mut response = Response::new(Body::empty());
    let headers = response.headers_mut();
    headers.insert("content-type", HeaderValue::from_static("application/grpc"));
    headers.insert("grpc-status", HeaderValue::from(u16::from(status)));
    headers.insert("grpc-message", HeaderValue::from_static(sentence));
    response
}

/// The same answer without the deployment's versions.
async fn without_versions(answered: Response) -> Response {
    let (parts, body) = answered.into_parts();
    let whole = axum::body::to_bytes(body, 16 << 20).await.expect("a whole answer");
    if whole.len() < 5 {
        // An error response.
        return Response::from_parts(parts, Body::from(whole));
    }
    let mut message = DescribeWorkerDeploymentResponse::decode(&whole[5..]).expect("a description");
    message.worker_deployment_info.as_mut().expect("it is about one").version_summaries.clear();
    let mut bytes = BytesMut::new();
    bytes.put_u8(0);
    bytes.put_u32(u32::try_from(message.encoded_len()).expect("it is short"));
    message.encode(&mut bytes).expect("there is room");
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", HeaderValue::from_static("0"));
    Response::from_parts(parts, Body::new(Told { data: Some(bytes.freeze()), trailers: Some(trailers) }))
}

/// A body of one piece, with its trailers.
struct Told {
    data: Option<Bytes>,
    trailers: Option<HeaderMap>,
}

impl http_body::Body for Told {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let data = self.data.take().map(Frame::data);
        Poll::Ready(data.or_else(|| self.trailers.take().map(Frame::trailers)).map(Ok))
    }
}
