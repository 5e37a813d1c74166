//! Serves the cluster on a socket, for clients in other processes: plain HTTP/1.1, without authentication. The
//! listener's address decides who can reach it.

use std::convert::Infallible;

use axum::body::Body;
use axum::http::{Request, Response, StatusCode};
use tokio::net::TcpListener;
use tower::{ServiceExt, service_fn};

use super::cluster::Cluster;
use super::service::ApiService;

/// The largest request body, in bytes, as in the real server.
const LARGEST_BODY: usize = 3 << 20;

impl Cluster {
    /// Serves the cluster until dropped.
    pub fn serve(&self, listener: TcpListener) -> impl Future<Output = ()> + Send + 'static {
        let service = self.service("unknown");
        async move {
            let answer = service_fn(move |request: Request<Body>| {
                let service = service.clone();
                async move { Ok::<_, Infallible>(pass(service, request).await) }
            });
            // Ends only with the listener.
            let _ = axum::serve(listener, tower::make::Shared::new(answer)).await;
        }
    }
}

async fn pass(service: ApiService, request: Request<Body>) -> Response<Body> {
    let (parts, body) = request.into_parts();
    let Ok(body) = axum::body::to_bytes(body, LARGEST_BODY).await else {
        return plain(StatusCode::PAYLOAD_TOO_LARGE, "the body is larger than 3 MiB\n");
    };
    let request = Request::from_parts(parts, kube::client::Body::from(body));
    match service.oneshot(request).await {
        Ok(response) => response.map(Body::new),
        // A fault plan's broken connection; a socket's peer gets a 502.
        Err(error) => plain(StatusCode::BAD_GATEWAY, &format!("{error}\n")),
    }
}

fn plain(code: StatusCode, text: &str) -> Response<Body> {
    let mut response = Response::new(Body::from(text.to_owned()));
    *response.status_mut() = code;
    response
}
