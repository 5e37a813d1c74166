//! Fake peers of hooks: one server on loopback with scripted answers that records its requests. Simulated pods have
//! addresses in 127.64.0.0/10, and it listens on all of them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

/// The answer of a peer: a status and a body.
#[derive(Clone, Debug)]
pub struct Says(pub u16, pub String);

/// A request as received.
#[derive(Clone, Debug)]
pub struct ReceivedRequest {
    pub method: String,
    /// Path and query.
    pub path: String,
    /// By name, in lower case.
    pub headers: BTreeMap<String, String>,
    pub body: String,
}

struct Kept {
    says: Says,
    asked: Vec<ReceivedRequest>,
}

/// A peer, stopped on drop.
pub struct Peer {
    pub port: u16,
    kept: Arc<Mutex<Kept>>,
    server: JoinHandle<()>,
}

impl Peer {
    pub async fn start(says: Says) -> Self {
        let listener = TcpListener::bind("0.0.0.0:0").await.expect("a free port");
        let port = listener.local_addr().expect("an address").port();
        let kept = Arc::new(Mutex::new(Kept { says, asked: Vec::new() }));
        let routes = Router::new().fallback(answer).with_state(kept.clone());
        let server = tokio::spawn(async move { axum::serve(listener, routes).await.expect("it serves") });
        Self { port, kept, server }
    }

    /// Sets the answer.
    pub fn answers(&self, says: Says) {
        self.kept.lock().unwrap().says = says;
    }

    pub fn asked(&self) -> Vec<ReceivedRequest> {
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
    let asked = ReceivedRequest {
        method: parts.method.to_string(),
        path: parts.uri.path_and_query().map(ToString::to_string).unwrap_or_default(),
        headers: headers
            .map(|(name, value)| (name.to_string(), String::from_utf8_lossy(value.as_bytes()).into_owned()))
            .collect(),
        body: String::from_utf8_lossy(&body).into_owned(),
    };
    let mut kept = kept.lock().unwrap();
    kept.asked.push(asked);
    let Says(status, body) = kept.says.clone();
    (axum::http::StatusCode::from_u16(status).expect("a status"), body).into_response()
}

/// Prometheus' response with one sample of this value.
pub fn sample(value: &str) -> Says {
    Says(
        200,
        format!(
            r#"{{"status":"success","data":{{"resultType":"vector","result":[{{"metric":{{}},"value":[1,"{value}"]}}]}}}}"#
        ),
    )
}

/// Prometheus' response without data.
pub fn no_data() -> Says {
    Says(200, r#"{"status":"success","data":{"resultType":"vector","result":[]}}"#.to_owned())
}
