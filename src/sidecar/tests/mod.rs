//! The sidecar's server and client over loopback connections, and the tests' servers: a sidecar, and a server with
//! scripted answers.

mod application;
mod client;
mod command;
mod endpoints;
mod shutdown;
mod tokens;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::State;
use axum::http::header::LOCATION;
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use reqwest::Url;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::{SidecarArgs, SidecarServer, serve};

fn args() -> SidecarArgs {
    SidecarArgs {
        bind: SocketAddr::from(([127, 0, 0, 1], 0)),
        caught_up_url: None,
        height_url: None,
        role_url: None,
        token_file: None,
    }
}

async fn free_port() -> (TcpListener, String) {
    let listener = TcpListener::bind(args().bind).await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    (listener, url)
}

/// A URL without a listener.
async fn dead_url() -> String {
    free_port().await.1
}

/// A sidecar's server, stopped on drop.
struct Sidecar {
    url: String,
    stop: Option<oneshot::Sender<()>>,
    serving: JoinHandle<std::io::Result<()>>,
}

impl Sidecar {
    async fn start(args: SidecarArgs) -> Self {
        Self::serve(SidecarServer::new(&args)).await
    }

    async fn serve(server: SidecarServer) -> Self {
        let (listener, url) = free_port().await;
        let (stop, stopped) = oneshot::channel();
        let serving = tokio::spawn(serve(listener, server, async move {
            let _ = stopped.await;
        }));
        Self { url, stop: Some(stop), serving }
    }

    fn stop(&mut self) {
        self.stop.take().unwrap().send(()).unwrap();
    }

    async fn get(&self, path: &str) -> (u16, String) {
        ask(http().get(format!("{}{path}", self.url))).await
    }

    async fn get_json(&self, path: &str) -> Value {
        let (status, body) = self.get(path).await;
        assert_eq!(status, 200, "{path}: {body}");
        serde_json::from_str(&body).unwrap()
    }

    async fn post(&self, body: impl ToString) -> (u16, Value) {
        let (status, body) = ask(http().post(format!("{}/v1/tasks", self.url)).body(body.to_string())).await;
        (status, serde_json::from_str(&body).unwrap())
    }
}

impl Drop for Sidecar {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

/// A client that shares nothing with the one under test.
fn http() -> reqwest::Client {
    reqwest::Client::builder().no_proxy().timeout(Duration::from_secs(20)).build().unwrap()
}

async fn ask(request: reqwest::RequestBuilder) -> (u16, String) {
    let response = request.send().await.unwrap();
    (response.status().as_u16(), response.text().await.unwrap())
}

#[derive(Clone)]
enum Answer {
    Say(u16, String),
    SayAfter(Duration, String),
    RedirectTo(String),
    Never,
}

struct Heard {
    request: String,
    authorization: Option<String>,
    body: String,
}

#[derive(Clone)]
struct Script {
    answer: Arc<Mutex<Answer>>,
    heard: Arc<Mutex<Vec<Heard>>>,
}

/// A server with one scripted answer, stopped on drop.
struct FakeServer {
    url: String,
    script: Script,
    serving: JoinHandle<()>,
}

impl FakeServer {
    async fn start(answer: Answer) -> Self {
        let (listener, url) = free_port().await;
        let script = Script { answer: Arc::new(Mutex::new(answer)), heard: Arc::new(Mutex::new(Vec::new())) };
        let router = axum::Router::new().fallback(play).with_state(script.clone());
        let serving = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { url, script, serving }
    }

    async fn saying(body: &str) -> Self {
        Self::start(Answer::Say(200, body.to_owned())).await
    }

    fn now(&self, answer: Answer) {
        *self.script.answer.lock().unwrap() = answer;
    }

    fn now_says(&self, body: &str) {
        self.now(Answer::Say(200, body.to_owned()));
    }

    fn url(&self) -> Url {
        self.url.parse().unwrap()
    }

    fn heard(&self) -> Vec<Heard> {
        std::mem::take(&mut self.script.heard.lock().unwrap())
    }

    async fn until_asked(&self) {
        while self.script.heard.lock().unwrap().is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

impl Drop for FakeServer {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

async fn play(
    State(script): State<Script>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    script.heard.lock().unwrap().push(Heard {
        request: format!("{method} {uri}"),
        authorization: headers.get("authorization").map(|value| value.to_str().unwrap().to_owned()),
        body: String::from_utf8(body.to_vec()).unwrap(),
    });
    let answer = script.answer.lock().unwrap().clone();
    match answer {
        Answer::Say(status, body) => (StatusCode::from_u16(status).unwrap(), body).into_response(),
        Answer::SayAfter(delay, body) => {
            tokio::time::sleep(delay).await;
            body.into_response()
        }
        Answer::RedirectTo(url) => (StatusCode::TEMPORARY_REDIRECT, [(LOCATION, url)]).into_response(),
        Answer::Never => std::future::pending().await,
    }
}

/// A file, deleted on drop.
struct File(PathBuf);

impl File {
    fn with(content: &str) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let n = COUNT.fetch_add(1, Ordering::Relaxed);
        let file = Self(std::env::temp_dir().join(format!("windlass-token-{}-{n}", std::process::id())));
        file.write(content);
        file
    }

    fn write(&self, content: &str) {
        std::fs::write(&self.0, content).unwrap();
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}
