//! The server of `windlass sidecar`: its routes and responses.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{DefaultBodyLimit, Path, Request, State};
use axum::http::header::WWW_AUTHENTICATE;
use axum::http::{HeaderMap, StatusCode};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use tokio::net::TcpListener;
use tokio::sync::oneshot;

use super::application::Application;
use super::args::SidecarArgs;
use super::memory::{Memory, Submitted};
use super::protocol::{RefusalBody, Status, TaskAnswer, TaskRequest};
use super::token::{self, TokenFile};

/// The longest request body, in bytes.
const MAX_REQUEST_BYTES: usize = 16 * 1024;

/// The time-out of a request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// How long open requests may take after shutdown began.
const DRAIN: Duration = Duration::from_secs(5);

/// The server's state. Clones share it.
#[derive(Clone, Debug)]
pub struct SidecarServer {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    application: Application,
    token: Option<TokenFile>,
    request_timeout: Duration,
    memory: Mutex<Memory>,
}

impl SidecarServer {
    /// A sidecar that is not marked ready.
    #[must_use]
    pub fn new(args: &SidecarArgs) -> Self {
        Self::with_request_timeout(args, REQUEST_TIMEOUT)
    }

    pub(super) fn with_request_timeout(args: &SidecarArgs, request_timeout: Duration) -> Self {
        let application = Application::new(args);
        let token = args.token_file.clone().map(TokenFile);
        let memory = Mutex::default();
        Self { inner: Arc::new(Inner { application, token, request_timeout, memory }) }
    }

    /// Never held across an await. After a panic the state is still consistent: each change is one step.
    fn memory(&self) -> MutexGuard<'_, Memory> {
        self.inner.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn authorize(&self, headers: &HeaderMap) -> Result<(), Refusal> {
        let Some(file) = &self.inner.token else { return Ok(()) };
        let wanted =
            file.read().await.map_err(|sentence| Refusal(StatusCode::SERVICE_UNAVAILABLE, sentence))?;
        match token::presented(headers) {
            Some(token) if token::same(token, &wanted) => Ok(()),
            Some(_) => Err(Refusal(
                StatusCode::UNAUTHORIZED,
                "the bearer token does not match this sidecar's token: check the node's \
                 sidecar.tokenSecret"
                    .to_owned(),
            )),
            None => Err(Refusal(
                StatusCode::UNAUTHORIZED,
                "this sidecar accepts tasks only with `Authorization: Bearer <token>`: set the node's \
                 sidecar.tokenSecret"
                    .to_owned(),
            )),
        }
    }

    /// Queries the application's height, if it has a URL, and updates the waiting tasks.
    async fn refresh_height(&self) -> Option<i64> {
        let observed = self.inner.application.height().await?;
        self.memory().observe_height(&observed);
        observed.ok()
    }
}

/// The sidecar's routes.
pub fn router(server: SidecarServer) -> Router {
    Router::new()
        .route("/healthz", get(|| async { "ok" }))
        .route("/readyz", get(readyz))
        .route("/v1/status", get(status))
        .route("/v1/tasks", post(submit))
        .route("/v1/tasks/{id}", get(task))
        .layer(DefaultBodyLimit::max(MAX_REQUEST_BYTES))
        .layer(from_fn_with_state(server.clone(), bounded))
        .with_state(server)
}

/// Serves on `listener` until `shutdown` resolves and the open requests are answered, or 5 s later.
pub async fn serve(
    listener: TcpListener,
    server: SidecarServer,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> std::io::Result<()> {
    let (stopping, stopped) = oneshot::channel();
    let serving = axum::serve(listener, router(server)).with_graceful_shutdown(async move {
        shutdown.await;
        let _ = stopping.send(());
    });
    let overdue = async {
        let _ = stopped.await;
        tokio::time::sleep(DRAIN).await;
    };
    tokio::select! {
        ended = serving.into_future() => ended,
        () = overdue => Ok(()),
    }
}

/// Why a request was refused.
struct Refusal(StatusCode, String);

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let Self(status, message) = self;
        let mut response = (status, Json(RefusalBody { message })).into_response();
        if status == StatusCode::UNAUTHORIZED {
            response.headers_mut().insert(WWW_AUTHENTICATE, axum::http::HeaderValue::from_static("Bearer"));
        }
        response
    }
}

/// A time-out for slow senders.
async fn bounded(State(server): State<SidecarServer>, request: Request, next: Next) -> Response {
    tokio::time::timeout(server.inner.request_timeout, next.run(request)).await.unwrap_or_else(|_| {
        Refusal(StatusCode::REQUEST_TIMEOUT, "the request took too long: send it again".to_owned())
            .into_response()
    })
}

async fn readyz(State(server): State<SidecarServer>) -> (StatusCode, &'static str) {
    if server.memory().ready() {
        (StatusCode::OK, "ready")
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "not yet marked ready")
    }
}

async fn status(State(server): State<SidecarServer>) -> Json<Status> {
    let application = &server.inner.application;
    let (caught_up, role, height) =
        tokio::join!(application.caught_up(), application.role(), server.refresh_height());
    let memory = server.memory();
    let ready = memory.ready();
    Json(Status { ready, caught_up: caught_up.unwrap_or(ready), height, halted: memory.halted(), role })
}

async fn submit(
    State(server): State<SidecarServer>,
    headers: HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Result<(StatusCode, Json<TaskAnswer>), Refusal> {
    server.authorize(&headers).await?;
    let body = body.map_err(|rejection| Refusal(rejection.status(), rejection.body_text()))?;
    let request = serde_json::from_slice::<serde_json::Value>(&body)
        .map_err(|error| format!("the request is not JSON: {error}"))
        .and_then(TaskRequest::try_from)
        .map_err(|sentence| Refusal(StatusCode::BAD_REQUEST, sentence))?;
    let id = request.id.clone();
    match server.memory().submit(request, server.inner.application.reports_height()) {
        Submitted::New(answer) => Ok((StatusCode::ACCEPTED, Json(answer))),
        Submitted::Again(answer) => Ok((StatusCode::OK, Json(answer))),
        Submitted::OtherContent(kind) => Err(Refusal(
            StatusCode::CONFLICT,
            format!("the ID {id} belongs to a {kind} task with different content: use another ID"),
        )),
        Submitted::Full => Err(Refusal(
            StatusCode::SERVICE_UNAVAILABLE,
            "the sidecar has too many unfinished tasks: wait, or restart the sidecar".to_owned(),
        )),
    }
}

async fn task(
    State(server): State<SidecarServer>,
    Path(id): Path<String>,
) -> Result<Json<TaskAnswer>, Refusal> {
    if server.memory().awaits_height() {
        server.refresh_height().await;
    }
    server.memory().task(&id).map(Json).ok_or_else(|| {
        Refusal(
            StatusCode::NOT_FOUND,
            "no task with this ID was submitted since the sidecar started: submit it again".to_owned(),
        )
    })
}
