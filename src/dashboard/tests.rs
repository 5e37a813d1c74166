//! The page over HTTP, without a socket, before a played API server.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::body::Body as Asked;
use axum::http::{Request, StatusCode};
use futures::StreamExt;
use futures::stream::BoxStream;
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use tower::{BoxError, ServiceExt, service_fn};

use super::Source;
use super::guard::Guard;
use super::http::{Page, router};
use crate::clock::SystemClock;
use crate::cluster::watch::Scope;
use crate::report::tests::fleet;

/// An answer of the played API server.
struct Answer(BoxStream<'static, Vec<u8>>);

impl http_body::Body for Answer {
    type Data = bytes::Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<http_body::Frame<bytes::Bytes>, BoxError>>> {
        self.0.poll_next_unpin(context).map(|part| part.map(|part| Ok(http_body::Frame::data(part.into()))))
    }
}

/// An API server with one fleet, whose watches bring nothing and end when they were asked to. While it is gone it refuses
/// connections, and those that it had fall silent.
fn played(gone: &Arc<AtomicBool>) -> Client {
    let gone = gone.clone();
    let server = service_fn(move |request: http::Request<Body>| {
        let gone = gone.clone();
        async move {
            if gone.load(Ordering::Relaxed) {
                return Err(BoxError::from("connection refused"));
            }
            let (path, query) = (request.uri().path(), request.uri().query().unwrap_or_default());
            let seconds = query.split('&').find_map(|part| part.strip_prefix("timeoutSeconds="));
            let body = if query.contains("watch=true") {
                let seconds = seconds.and_then(|seconds| seconds.parse().ok()).unwrap_or(60);
                let silence = async move {
                    tokio::time::sleep(Duration::from_secs(seconds)).await;
                    if gone.load(Ordering::Relaxed) {
                        std::future::pending::<()>().await;
                    }
                    Vec::new()
                };
                futures::stream::once(silence).boxed()
            } else {
                let items: Vec<Value> =
                    if path.ends_with("/nodedeployments") { vec![at_rest()] } else { Vec::new() };
                let list = json!({"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": "9"}, "items": items});
                futures::stream::once(std::future::ready(list.to_string().into_bytes())).boxed()
            };
            Ok(http::Response::new(Answer(body)))
        }
    });
    Client::new(server, "prod")
}

/// A fleet of which all that is wanted is so.
fn at_rest() -> Value {
    let mut fleet = fleet();
    let is = |type_: &str, status: &str, reason: &str| json!({"type": type_, "status": status, "reason": reason, "message": "", "lastTransitionTime": "2026-01-01T04:00:00Z"});
    fleet["status"]["rollout"] = json!(null);
    fleet["status"]["plan"] = json!(null);
    fleet["status"]["conditions"] =
        json!([is("Ready", "True", "AllNodesReady"), is("UpToDate", "True", "Applied")]);
    fleet
}

/// A page that whoever reaches it may read, of this API server.
fn page(client: Client) -> axum::Router {
    let source = Source::new(client, vec![Scope::Namespace("prod".into())], Arc::new(SystemClock));
    router(Page::new(Arc::new(source), None, Guard::open(Vec::new())))
}

fn request(method: &str, path: &str) -> Request<Asked> {
    Request::builder().method(method).uri(path).header("host", "localhost").body(Asked::empty()).unwrap()
}

async fn answered(page: &axum::Router, request: Request<Asked>) -> (StatusCode, String) {
    let answer = page.clone().oneshot(request).await.unwrap();
    let status = answer.status();
    let body = axum::body::to_bytes(answer.into_body(), 1 << 20).await.unwrap();
    (status, String::from_utf8(body.to_vec()).unwrap())
}

#[tokio::test(start_paused = true)]
async fn a_page_that_hears_nothing_says_since_when_and_that_it_hears_again() {
    const SAID: &str = "Nothing is heard of the API server since";
    const PAGES: [&str; 3] = ["/", "/fleets/prod/db", "/fleets/prod/db/nodes"];
    let gone = Arc::new(AtomicBool::new(false));
    let page = page(played(&gone));
    let live = page.clone().oneshot(request("GET", "/live")).await.unwrap();
    let mut told = live.into_body().into_data_stream();
    let seconds = async |seconds| tokio::time::sleep(Duration::from_secs(seconds)).await;
    for _ in 0..12 {
        for path in PAGES {
            let (status, body) = answered(&page, request("GET", path)).await;
            assert!(status == StatusCode::OK && !body.contains(SAID), "{path}: {body}");
        }
        assert_eq!(answered(&page, request("GET", "/healthz")).await, (StatusCode::OK, "ok\n".to_owned()));
        seconds(10).await;
    }
    while let Ok(Some(part)) = tokio::time::timeout(Duration::from_millis(1), told.next()).await {
        assert!(!String::from_utf8_lossy(&part.unwrap()).contains(SAID));
    }

    gone.store(true, Ordering::Relaxed);
    seconds(30).await;
    for path in PAGES {
        let (status, body) = answered(&page, request("GET", path)).await;
        assert!(status == StatusCode::OK && body.contains(SAID), "{path}: {body}");
    }
    let (status, body) = answered(&page, request("GET", "/healthz")).await;
    assert!(status == StatusCode::SERVICE_UNAVAILABLE && body.starts_with("nothing is heard"), "{body}");
    let mut live = String::new();
    while let Ok(Some(part)) = tokio::time::timeout(Duration::from_millis(1), told.next()).await {
        live += &String::from_utf8_lossy(&part.unwrap());
    }
    assert!(live.contains(SAID) && live.contains("when last heard of"), "{live}");

    gone.store(false, Ordering::Relaxed);
    seconds(30).await;
    for path in PAGES {
        let (_, body) = answered(&page, request("GET", path)).await;
        assert!(!body.contains(SAID), "{path}: {body}");
    }
    assert_eq!(answered(&page, request("GET", "/healthz")).await.0, StatusCode::OK);
    let mut live = String::new();
    while let Ok(Some(part)) = tokio::time::timeout(Duration::from_millis(1), told.next()).await {
        live += &String::from_utf8_lossy(&part.unwrap());
    }
    assert!(live.contains(r#"{"html":"","id":"silence"}"#), "{live}");
}
