//! A 404 for a write is as good as a watch event: the object is removed from the cache, however late its watch is.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use http::{Request, Response};
use kube::{Client, client::Body};
use serde_json::{Value, json};

use crate::{Cluster, Kind, KubeCluster, Part, PatchOp, Target, View};

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
    let meta = windlass_core::observed::Meta::read(&object(kind));
    let patched = port.patch(Target::of(kind, &meta), part, vec![PatchOp::set("/status", json!({}))]).await;
    assert!(patched.is_err());
    match kind {
        Kind::NodeDeployment => view.fleets.list("shop", |_| true).len(),
        Kind::StatefulNode => view.nodes.list("shop", |_| true).len(),
        Kind::StatefulSet => view.stateful_sets.list("shop", |_| true).len(),
        _ => view.services.list("shop", |_| true).len(),
    }
}

#[tokio::test]
async fn object_that_a_write_finds_deleted_leaves_the_cache() {
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

/// Creates a StatefulSet twice for a node, for which the server then returns this UID. Returns how often the
/// StatefulSet was created, and how many nodes are cached afterwards.
async fn made_for(answer: Option<&str>, pause: Duration) -> (u32, usize) {
    let made = Arc::new(AtomicU32::new(0));
    let (count, answer) = (made.clone(), answer.map(str::to_owned));
    let service = tower::service_fn(move |request: Request<Body>| {
        let (code, body) = if request.method() == http::Method::POST {
            count.fetch_add(1, Ordering::SeqCst);
            (201, object(Kind::StatefulSet))
        } else {
            // Listed, because the operator has no permission to get a node.
            assert_eq!(request.uri().path(), "/apis/windlass.dev/v1alpha1/namespaces/shop/statefulnodes");
            assert!(
                request.uri().query().is_some_and(|query| query.contains("metadata.name%3Ddb-0")),
                "{request:?}"
            );
            let node = answer.as_ref().map(|uid| {
                let mut node = object(Kind::StatefulNode);
                node["metadata"]["uid"] = json!(uid);
                node["metadata"]["resourceVersion"] = json!("9");
                node
            });
            let items: Vec<Value> = node.into_iter().collect();
            (200, json!({"kind": "List", "metadata": {"resourceVersion": "9"}, "items": items}))
        };
        let body = Body::from(body.to_string().into_bytes());
        async move { Response::builder().status(code).body(body).map_err(|error| error.to_string()) }
    });
    let view = View::shared();
    view.observe(Kind::StatefulNode, &object(Kind::StatefulNode));
    let port = KubeCluster::new(Client::new(service, "shop"), view.clone());
    let mut manifest = object(Kind::StatefulSet);
    manifest["metadata"]["ownerReferences"] =
        json!([{"kind": "StatefulNode", "name": "db-0", "uid": "u", "controller": true}]);
    port.create(Kind::StatefulSet, manifest.clone()).await.unwrap();
    tokio::time::sleep(pause).await;
    let again = port.create(Kind::StatefulSet, manifest).await;
    let count = made.load(Ordering::SeqCst);
    assert_eq!(again.is_ok(), count == 2);
    assert!(again.err().is_none_or(|error| error.is_conflict()));
    let known = view.nodes.list("shop", |node| node.meta.uid == "u");
    (count, known.len())
}

#[tokio::test(start_paused = true)]
async fn object_deleted_soon_is_recreated_if_its_owner_exists() {
    let soon = Duration::from_secs(1);
    assert_eq!(made_for(Some("u"), soon).await, (2, 1));
    assert_eq!(made_for(None, soon).await, (1, 0), "the owner is gone");
    assert_eq!(made_for(Some("another"), soon).await, (1, 0), "another has its name");
    assert_eq!(made_for(None, Duration::from_mins(5)).await, (2, 1), "later it is not asked about");
}

/// No watch would report that it is gone, and a fleet would wait for it for good.
#[test]
fn pod_or_claim_without_its_label_is_not_cached_from_responses() {
    for (kind, keeps) in [
        (Kind::Pod, false),
        (Kind::PersistentVolumeClaim, false),
        (Kind::StatefulSet, true),
        (Kind::Service, true),
    ] {
        let view = View::shared();
        let (send, mut news) = tokio::sync::mpsc::unbounded_channel();
        view.notify(send);
        let shown = |version: u32, labels: Value| {
            let mut object = object(kind);
            object["metadata"]["resourceVersion"] = json!(version.to_string());
            object["metadata"]["labels"] = labels;
            view.observe(kind, &object);
        };
        shown(5, json!({"windlass.dev/node": "db-0"}));
        shown(6, json!({}));
        shown(7, json!({}));
        let known = view.pods.list("shop", |_| true).len()
            + view.claims.list("shop", |_| true).len()
            + view.stateful_sets.list("shop", |_| true).len()
            + view.services.list("shop", |_| true).len();
        assert_eq!(known, usize::from(keeps), "{kind:?}");
        let told = std::iter::from_fn(|| news.try_recv().ok()).count();
        assert!(keeps || told == 2, "{kind:?}: {told}");
    }
}
