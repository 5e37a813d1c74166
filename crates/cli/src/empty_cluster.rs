//! API servers without objects of Windlass, and with a few, for tests.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use http::{Request, Response};
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
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

/// An API server with these objects, of which each kind may be read unless its plural is forbidden. It stores nothing that
/// is written, and knows no selectors.
pub fn with_objects(objects: Vec<Value>, forbidden: &'static [&'static str]) -> Client {
    let server = service_fn(move |request: Request<Body>| {
        let objects = objects.clone();
        async move {
            let is_post = request.method() == http::Method::POST;
            let is_patch = request.method() == http::Method::PATCH;
            let path = request.uri().path().to_owned();
            let body = request.into_body().collect_bytes().await.unwrap();
            let below = path.rsplit_once("/namespaces/").map_or(path.as_str(), |(_, below)| below);
            let mut parts = below.split('/').skip(1);
            let (plural, name) = (parts.next().unwrap_or_default(), parts.next());
            let is_of = |object: &&Value| {
                let kind = object["kind"].as_str().unwrap().to_lowercase();
                plural == format!("{kind}s")
            };
            let mut of_kind = objects.iter().filter(is_of);
            let status = |code: u16, reason: &str| {
                let message = format!("{plural}: {reason}");
                json!({"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": message})
            };
            let answer = if path == "/apis/windlass.dev/v1alpha1" {
                let installed = |kind: Kind| {
                    let plural = format!("{}s", kind.name().to_lowercase());
                    json!({"name": plural, "singularName": "", "namespaced": true, "kind": kind.name(), "verbs": ["list"]})
                };
                let resources: Vec<Value> = Kind::all().map(installed).collect();
                json!({"kind": "APIResourceList", "groupVersion": "windlass.dev/v1alpha1", "resources": resources})
            } else if forbidden.contains(&plural) {
                status(403, "Forbidden")
            } else if is_post {
                let object: Value = serde_json::from_slice(&body).unwrap();
                let is_there = of_kind.any(|known| known["metadata"]["name"] == object["metadata"]["name"]);
                if is_there { status(409, "AlreadyExists") } else { object }
            } else if let Some(name) = name {
                let found = of_kind.find(|object| object["metadata"]["name"] == name);
                let mut found = found.cloned().unwrap_or_else(|| status(404, "NotFound"));
                if is_patch && body.starts_with(b"[") {
                    json_patch::patch(
                        &mut found,
                        &serde_json::from_slice::<json_patch::Patch>(&body).unwrap(),
                    )
                    .unwrap();
                } else if is_patch {
                    json_patch::merge(&mut found, &serde_json::from_slice(&body).unwrap());
                }
                found
            } else {
                let items: Vec<&Value> = of_kind.collect();
                json!({"kind": "List", "apiVersion": "v1", "metadata": {}, "items": items})
            };
            let code = answer["code"].as_u64().map_or(200, |code| u16::try_from(code).unwrap());
            let answer = Response::builder().status(code).body(Body::from(answer.to_string().into_bytes()));
            Ok::<_, BoxError>(answer.unwrap())
        }
    });
    Client::new(server, "shop")
}
