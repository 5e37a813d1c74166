//! A write that the API server answers with "there is no such object" tells as much as a watch: what is known of the
//! object is forgotten, however late its watch is.

use http::{Request, Response};
use kube::{Client, client::Body};
use serde_json::{Value, json};

use super::super::{Cluster, Kind, KubeCluster, Part, PatchOp, Target, View};

fn object(kind: Kind) -> Value {
    json!({"kind": kind.name(),
        "metadata": {"name": "db-0", "namespace": "shop", "uid": "u", "resourceVersion": "5"}})
}

fn client(answer: &Value) -> Client {
    let answer = answer.to_string();
    let service = tower::service_fn(move |_: Request<Body>| {
        let body = Body::from(answer.clone().into_bytes());
        async move { Response::builder().status(404).body(body).map_err(|error| error.to_string()) }
    });
    Client::new(service, "shop")
}

async fn known_after(kind: Kind, part: Part, answer: &Value) -> usize {
    let view = View::shared();
    view.observe(kind, &object(kind));
    let port = KubeCluster::new(client(answer), view.clone());
    let meta = super::super::observed::Meta::read(&object(kind));
    let patched = port.patch(Target::of(kind, &meta), part, vec![PatchOp::set("/status", json!({}))]).await;
    assert!(patched.is_err());
    match kind {
        Kind::NodeDeployment => view.fleets.count("shop"),
        Kind::StatefulNode => view.nodes.count("shop"),
        Kind::StatefulSet => view.sets.count("shop"),
        _ => view.services.count("shop"),
    }
}

#[tokio::test]
async fn an_object_that_a_write_finds_gone_is_not_known_any_more() {
    let gone = json!({"kind": "Status", "status": "Failure", "code": 404, "reason": "NotFound",
        "message": "not found", "details": {"name": "db-0"}});
    let no_path = json!({"kind": "Status", "status": "Failure", "code": 404, "reason": "NotFound",
        "message": "the server could not find the requested resource"});
    for kind in [Kind::NodeDeployment, Kind::StatefulNode, Kind::StatefulSet, Kind::Service] {
        for part in [Part::Main, Part::Status] {
            assert_eq!(known_after(kind, part, &gone).await, 0, "{kind:?} {part:?}");
            assert_eq!(known_after(kind, part, &no_path).await, 1, "{kind:?} {part:?}");
        }
    }
}
