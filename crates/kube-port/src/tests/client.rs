//! The rules of the guarded client: a write is sent once, and only while it is allowed; a response comes in time or the
//! request fails; and signs of life are reported.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body::Frame;
use kube::client::{Body, retry::RetryPolicy};
use kube::{Client, core::Status};
use serde_json::json;
use tower::{BoxError, ServiceBuilder, retry::RetryLayer, service_fn};

use crate::client::{GuardedClient, REQUEST_TIMEOUT};
use crate::{Cluster, ClusterError, Kind, KubeCluster, Part, PatchOp, Target, View};
use windlass_clock::monotonic;
use windlass_core::observed::Meta;

/// Requests that reached a server, by method.
type Requests = Arc<Mutex<Vec<Method>>>;

/// A client that repeats requests, as that of kube-rs does, with a server that responds with these codes in turn, and
/// then with the last one forever.
fn persistent(codes: &'static [u16]) -> (Client, Requests) {
    let requests = Requests::default();
    let log = requests.clone();
    let server = service_fn(move |request: Request<Body>| {
        let log = log.clone();
        async move {
            let (parts, body) = request.into_parts();
            body.collect_bytes().await?;
            let count = {
                let mut log = log.lock().unwrap();
                log.push(parts.method);
                log.len()
            };
            let code = codes[(count - 1).min(codes.len() - 1)];
            let status =
                Status::failure("no", if code == 409 { "Conflict" } else { "Timeout" }).with_code(code);
            let body = Body::from(serde_json::to_vec(&status).unwrap());
            Ok::<_, BoxError>(Response::builder().status(code).body(body).unwrap())
        }
    });
    let service = ServiceBuilder::new().layer(RetryLayer::new(RetryPolicy::server_retry())).service(server);
    (Client::new(service, "shop"), requests)
}

#[tokio::test(start_paused = true)]
async fn write_that_timed_out_at_the_server_remains_pending() {
    let (client, requests) = persistent(&[504, 409]);
    let view = View::shared();
    let port = KubeCluster::new(GuardedClient::new(&client).client(), view.clone());
    let meta = Meta::read(
        &json!({"metadata": {"name": "db-0", "namespace": "shop", "uid": "u", "resourceVersion": "5"}}),
    );
    let target = Target::of(Kind::StatefulNode, &meta);
    let answer = port.patch(target, Part::Main, vec![PatchOp::set("/spec", json!({}))]).await;
    assert!(matches!(answer, Err(ClusterError::Transient { .. })), "{answer:?}");
    assert!(view.has_pending_outcome(Kind::StatefulNode, &meta), "the first may have been carried out");
    assert_eq!(*requests.lock().unwrap(), [Method::PATCH]);
}

#[tokio::test(start_paused = true)]
async fn writes_are_sent_once_and_a_dry_run_is_not_a_write() {
    for (method, path, once) in [
        (Method::POST, "/x", true),
        (Method::PUT, "/x", true),
        (Method::PATCH, "/x?fieldManager=w", true),
        (Method::DELETE, "/x", true),
        (Method::POST, "/x?dryRun=All", false),
        (Method::GET, "/x", false),
    ] {
        let (client, requests) = persistent(&[503]);
        let request =
            Request::builder().method(method.clone()).uri(path).body(Body::from(vec![b'{'])).unwrap();
        let _ = GuardedClient::new(&client).client().send(request).await;
        let sent = requests.lock().unwrap().len();
        assert_eq!(sent == 1, once, "{method} {path} was sent {sent} times");
    }
}

#[tokio::test(start_paused = true)]
async fn write_after_closed_fence_or_late_connect_is_not_sent() {
    // The server reads the body once the connection is established, which takes this long.
    for (connects_after, open, is_sent) in [(0, true, true), (0, false, false), (11, true, false)] {
        let sent = Arc::new(AtomicUsize::new(0));
        let count = sent.clone();
        let server = service_fn(move |request: Request<Body>| {
            let count = count.clone();
            async move {
                // A suspended process sees the response and the time-out at the same time.
                tokio::time::advance(Duration::from_secs(connects_after)).await;
                let body = request.into_body().collect_bytes().await?;
                count.fetch_add(body.len(), Ordering::SeqCst);
                Ok::<_, BoxError>(Response::new(Body::empty()))
            }
        });
        let fence = Arc::new(AtomicBool::new(open));
        let client = GuardedClient::new(&Client::new(server, "shop"))
            .fenced(move || fence.load(Ordering::SeqCst))
            .client();
        let request = Request::builder().method(Method::POST).uri("/x").body(Body::from(vec![b'{'])).unwrap();
        let answer = client.send(request).await;
        assert_eq!(
            (sent.load(Ordering::SeqCst) == 1, answer.is_ok()),
            (is_sent, is_sent),
            "{connects_after} {open}"
        );
    }
}

/// A body of two frames, the second of which never comes.
struct Stuck(Option<Bytes>);

impl http_body::Body for Stuck {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        self.0.take().map_or(Poll::Pending, |bytes| Poll::Ready(Some(Ok(Frame::data(bytes)))))
    }
}

#[tokio::test(start_paused = true)]
async fn response_arrives_in_time_or_fails() {
    let silent = service_fn(|_: Request<Body>| std::future::pending::<Result<Response<Body>, BoxError>>());
    let stuck = service_fn(|_: Request<Body>| async {
        Ok::<_, BoxError>(Response::new(Stuck(Some(Bytes::from("[")))))
    });
    for client in [Client::new(silent, ""), Client::new(stuck, "")] {
        let began = monotonic();
        let request = Request::builder().uri("/api/v1/pods?limit=500").body(Body::empty()).unwrap();
        let answer = async {
            GuardedClient::new(&client).client().send(request).await?.into_body().collect_bytes().await
        };
        assert!(answer.await.is_err());
        assert_eq!(began.elapsed().as_secs(), REQUEST_TIMEOUT.as_secs());
    }
}

#[tokio::test(start_paused = true)]
async fn watch_can_be_silent_and_all_its_responses_are_reported() {
    let stuck = service_fn(|_: Request<Body>| async {
        Ok::<_, BoxError>(Response::new(Stuck(Some(Bytes::from("{}")))))
    });
    let heard = Arc::new(AtomicUsize::new(0));
    let ear = heard.clone();
    let client = GuardedClient::new(&Client::new(stuck, ""))
        .on_response(move |_| ear.store(ear.load(Ordering::SeqCst) + 1, Ordering::SeqCst))
        .client();
    let request = Request::builder().uri("/api/v1/pods?&watch=true").body(Body::empty()).unwrap();
    let body = client.send(request).await.unwrap().into_body();
    assert_eq!(heard.load(Ordering::SeqCst), 1, "the watch was begun");
    let rest = tokio::time::timeout(Duration::from_mins(10), body.collect_bytes()).await;
    assert!(rest.is_err(), "it is still open");
    assert_eq!(heard.load(Ordering::SeqCst), 2, "and brought something");
}

#[tokio::test(start_paused = true)]
async fn error_response_does_not_refresh_a_cache() {
    for code in [403, 404, 429, 500, 503] {
        let server = service_fn(move |_: Request<Body>| async move {
            Response::builder().status(code).body(Body::from(b"no".to_vec()))
        });
        let view = View::shared();
        view.freshness.listen(Kind::Pod);
        let ear = view.clone();
        let client = GuardedClient::new(&Client::new(server, ""))
            .on_response(move |sign| ear.freshness.record(Kind::Pod, sign))
            .client();
        tokio::time::advance(Duration::from_secs(50)).await;
        let answer = client.send(Request::new(Body::empty())).await.unwrap();
        // Each part of a refusal is a refusal as well.
        answer.into_body().collect_bytes().await.unwrap();
        assert_eq!(view.freshness.ages(), [(Kind::Pod, Duration::from_secs(50))], "{code}");
        assert_eq!(view.freshness.without_response(), [(Kind::Pod, Duration::ZERO)], "{code}");
    }
}
