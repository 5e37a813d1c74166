//! An API server that has no objects of Windlass, for tests.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use http::{Request, Response};
use kube::Client;
use kube::client::Body;
use serde_json::json;
use tower::{BoxError, service_fn};

use super::kind::Kind;

pub fn without_objects() -> Client {
    let server = service_fn(|request: Request<Body>| async move {
        let last = request.uri().path().rsplit('/').next().unwrap_or_default();
        let (code, answer) = match Kind::called(last) {
            Some(_) => (200, json!({"kind": "List", "apiVersion": "v1", "metadata": {}, "items": []})),
            None => (
                404,
                json!({"kind": "Status", "status": "Failure", "code": 404, "reason": "NotFound", "message": last}),
            ),
        };
        let answer = Response::builder().status(code).body(Body::from(answer.to_string().into_bytes()));
        Ok::<_, BoxError>(answer.unwrap())
    });
    Client::new(server, "shop")
}
