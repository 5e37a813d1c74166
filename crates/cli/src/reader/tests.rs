//! Reads from an unhealthy API server.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use http::{Request, Response};
use kube::client::Body;
use serde_json::{Value, json};
use tower::{BoxError, service_fn};

use super::*;

const REFUSALS: [(u16, &str); 6] = [
    (404, "404 page not found"),
    (503, "the request has been made before all known HTTP paths have been installed, please try again"),
    (500, "etcdserver: leader changed"),
    (429, "storage is (re)initializing"),
    (410, "the provided continue parameter is too old"),
    (403, "statefulnodes is forbidden: cannot list resource: RBAC: role \"viewer\" not found"),
];

fn refusal(code: u16, message: &str) -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "message": message, "reason": "Unknown"})
}

/// An API server with a fleet of one node, which answers the first `times` lists of nodes with this error. Its
/// watches send nothing.
fn server(times: usize, code: u16, message: &'static str) -> (Client, Arc<AtomicUsize>) {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = asked.clone();
    let of_fleet = |kind: &str, name: &str, owner: Value| {
        json!({"apiVersion": "windlass.dev/v1alpha1", "kind": kind, "metadata": {
            "name": name, "namespace": "shop", "uid": format!("uid-{name}"), "resourceVersion": "7", "generation": 1,
            "labels": {LABEL_DEPLOYMENT: "db"}, "ownerReferences": owner,
        }, "spec": {"replicas": 1, "template": {"spec": {"image": "db:1"}}}})
    };
    let owner = json!([{"apiVersion": "windlass.dev/v1alpha1", "kind": "NodeDeployment", "name": "db", "uid": "uid-db", "controller": true}]);
    let (fleet, node) =
        (of_fleet("NodeDeployment", "db", json!([])), of_fleet("StatefulNode", "db-0", owner));
    let server = service_fn(move |request: Request<Body>| {
        let (count, fleet, node) = (count.clone(), fleet.clone(), node.clone());
        async move {
            let path = request.uri().path().to_owned();
            if request.uri().query().is_some_and(|query| query.contains("watch=true")) {
                return std::future::pending().await;
            }
            let list = |items: Value| json!({"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": "7"}, "items": items});
            let answer = if path.ends_with("/nodedeployments/db") {
                fleet
            } else if path.ends_with("/statefulnodes") && count.fetch_add(1, Ordering::Relaxed) < times {
                refusal(code, message)
            } else if path.ends_with("/statefulnodes") {
                list(json!([node]))
            } else {
                list(json!([]))
            };
            let code = answer["code"].as_u64().map_or(200, |code| u16::try_from(code).unwrap());
            let answer = Response::builder().status(code).body(Body::from(answer.to_string().into_bytes()));
            Ok::<_, BoxError>(answer.unwrap())
        }
    });
    (Client::new(server, "shop"), asked)
}

async fn read(client: &Client) -> Sight {
    let wanted =
        FleetSelection { scope: Namespaces::Namespace("shop".to_owned()), names: vec!["db".to_owned()] };
    Sight::read(client, &wanted, &OF_REPORTS).await.unwrap()
}

fn names(sight: &Sight) -> Vec<String> {
    let fleets = sight.view.fleets.list_all(|_| true);
    let seen = sight.seen(&fleets[0]);
    seen.nodes.iter().map(|node| node.meta.name.clone()).collect()
}

#[tokio::test(start_paused = true)]
async fn transient_api_server_refusals_are_retried() {
    for (code, message) in REFUSALS {
        let (client, asked) = server(3, code, message);
        let sight = read(&client).await;
        assert_eq!((names(&sight), sight.unread.clone()), (vec!["db-0".to_owned()], Vec::new()), "{code}");
        assert_eq!(asked.load(Ordering::Relaxed), 4, "{code}");
    }
}

#[tokio::test(start_paused = true)]
async fn permanent_refusal_is_requested_once_and_reported() {
    let message =
        "statefulnodes.windlass.dev is forbidden: User \"eve\" cannot list resource \"statefulnodes\"";
    let (client, asked) = server(usize::MAX, 403, message);
    let sight = read(&client).await;
    assert_eq!(asked.load(Ordering::Relaxed), 1);
    assert_eq!(sight.unread, [format!("left out, because StatefulNodes cannot be listed: {message}")]);
    let (client, _) = server(usize::MAX, 503, "please try again");
    let began = monotonic();
    let sight = read(&client).await;
    assert_eq!(sight.unread, ["left out, because StatefulNodes cannot be listed: please try again"]);
    assert!(monotonic() - began >= PATIENCE);
}
