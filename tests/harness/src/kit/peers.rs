//! Fake peers of hooks: one server on loopback with scripted answers that records its requests. Simulated pods have
//! addresses in 127.64.0.0/10, and it listens on all of them.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

/// The behavior of a peer.
#[derive(Clone, Debug)]
pub enum Manner {
    /// Answers with a status and a body.
    Says(u16, String),
    /// The same, after a delay.
    Late(Duration, u16, String),
    /// Accepts the request and never answers.
    Swallows,
    /// Answers with an endless body.
    Endless,
    /// Redirects.
    Elsewhere(String),
}

/// A request as received.
#[derive(Clone, Debug)]
pub struct Asked {
    pub method: String,
    /// Path and query.
    pub path: String,
    /// By name, in lower case.
    pub headers: BTreeMap<String, String>,
    pub body: String,
}

#[derive(Default)]
struct Kept {
    manner: Option<Manner>,
    asked: Vec<Asked>,
}

/// A peer, stopped on drop.
pub struct Peer {
    pub port: u16,
    kept: Arc<Mutex<Kept>>,
    server: JoinHandle<()>,
}

impl Peer {
    pub async fn start(manner: Manner) -> Self {
        let listener = TcpListener::bind("0.0.0.0:0").await.expect("a free port");
        let port = listener.local_addr().expect("an address").port();
        let kept = Arc::new(Mutex::new(Kept { manner: Some(manner), asked: Vec::new() }));
        let routes = Router::new().fallback(answer).with_state(kept.clone());
        let server = tokio::spawn(async move { axum::serve(listener, routes).await.expect("it serves") });
        Self { port, kept, server }
    }

    /// Sets the behavior.
    pub fn answers(&self, manner: Manner) {
        self.kept.lock().unwrap().manner = Some(manner);
    }

    pub fn asked(&self) -> Vec<Asked> {
        self.kept.lock().unwrap().asked.clone()
    }

    /// The tasks that sent requests, in the order of the first.
    pub fn tasks(&self) -> Vec<String> {
        let mut tasks = Vec::new();
        for task in self.asked().iter().filter_map(|asked| asked.headers.get("windlass-task").cloned()) {
            if !tasks.contains(&task) {
                tasks.push(task);
            }
        }
        tasks
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.server.abort();
    }
}

async fn answer(State(kept): State<Arc<Mutex<Kept>>>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let body = axum::body::to_bytes(body, 1 << 20).await.unwrap_or_default();
    let headers = parts.headers.iter();
    let asked = Asked {
        method: parts.method.to_string(),
        path: parts.uri.path_and_query().map(ToString::to_string).unwrap_or_default(),
        headers: headers
            .map(|(name, value)| (name.to_string(), String::from_utf8_lossy(value.as_bytes()).into_owned()))
            .collect(),
        body: String::from_utf8_lossy(&body).into_owned(),
    };
    let manner = {
        let mut kept = kept.lock().unwrap();
        kept.asked.push(asked);
        kept.manner.clone().expect("a manner")
    };
    let says = |status: u16, body: String| {
        (axum::http::StatusCode::from_u16(status).expect("a status"), body).into_response()
    };
    match manner {
        Manner::Says(status, body) => says(status, body),
        Manner::Late(after, status, body) => {
            tokio::time::sleep(after).await;
            says(status, body)
        }
        Manner::Swallows => std::future::pending().await,
        Manner::Endless => {
            let chunk = Ok::<_, Infallible>(Bytes::from_static(&[b'x'; 8192]));
            Response::new(Body::from_stream(futures::stream::repeat(chunk)))
        }
        Manner::Elsewhere(url) => (axum::http::StatusCode::FOUND, [("location", url)]).into_response(),
    }
}

/// Prometheus' response with one sample of this value.
pub fn sample(value: &str) -> Manner {
    Manner::Says(
        200,
        format!(
            r#"{{"status":"success","data":{{"resultType":"vector","result":[{{"metric":{{}},"value":[1,"{value}"]}}]}}}}"#
        ),
    )
}

/// Prometheus' response without data.
pub fn no_data() -> Manner {
    Manner::Says(200, r#"{"status":"success","data":{"resultType":"vector","result":[]}}"#.to_owned())
}
