//! A write without a response may have been carried out: no other write may be decided on the cached version of its
//! object until another version is seen.

use std::sync::Arc;

use http::{Request, Response};
use kube::{Client, client::Body};
use serde_json::{Value, json};

use crate::{Cluster, Kind, KubeCluster, Part, PatchOp, Target, View};
use windlass_core::observed::{Meta, Observed, ObservedNode};

/// The behavior of an API server.
#[derive(Clone, Copy, Debug)]
enum Server {
    Answers(u16),
    Hangs,
    CutsOff,
}

fn node(version: &str) -> Value {
    json!({"apiVersion": "windlass.dev/v1alpha1", "kind": "StatefulNode",
        "metadata": {"name": "db-0", "namespace": "shop", "uid": "u", "resourceVersion": version}})
}

fn client(server: Server) -> Client {
    let service = tower::service_fn(move |_: Request<Body>| async move {
        let code = match server {
            Server::Answers(code) => code,
            Server::Hangs => std::future::pending().await,
            Server::CutsOff => return Err("connection reset"),
        };
        let body = if code == 200 {
            node("6")
        } else {
            json!({"kind": "Status", "status": "Failure", "code": code, "reason": "X", "message": "no"})
        };
        Ok(Response::builder().status(code).body(Body::from(body.to_string().into_bytes())).unwrap())
    });
    Client::new(service, "shop")
}

async fn in_doubt_after(server: Server, delete: bool) -> bool {
    let view = View::shared();
    view.observe(Kind::StatefulNode, &node("5"));
    let port = KubeCluster::new(client(server), view.clone());
    let known = view.nodes.list("shop", |_| true).remove(0);
    let target = Target::of(Kind::StatefulNode, &known.meta);
    if delete {
        let _ = port.delete(target).await;
    } else {
        let _ = port.patch(target, Part::Main, vec![PatchOp::set("/spec", json!({}))]).await;
    }
    view.has_pending_outcome(Kind::StatefulNode, &known.meta)
}

#[tokio::test(start_paused = true)]
async fn unanswered_write_is_in_doubt_and_refused_write_is_not() {
    let table = [
        (Server::Answers(200), false),
        (Server::Answers(403), false),
        (Server::Answers(409), false),
        (Server::Answers(422), false),
        (Server::Answers(429), false),
        (Server::Answers(500), true),
        (Server::Answers(504), true),
        (Server::Hangs, true),
        (Server::CutsOff, true),
    ];
    for (server, expected) in table {
        for delete in [false, true] {
            assert_eq!(in_doubt_after(server, delete).await, expected, "{server:?}, delete: {delete}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn doubt_ends_with_a_new_version_or_after_the_server_timeout() {
    let view = Arc::new(View::default());
    let at = |version: &str| Meta::read(&node(version));
    let key = ObservedNode::read(&node("5")).meta.key();
    view.doubt(Kind::StatefulNode, key, "5");
    assert!(view.has_pending_outcome(Kind::StatefulNode, &at("5")));
    assert!(!view.has_pending_outcome(Kind::StatefulNode, &at("6")));
    assert!(!view.has_pending_outcome(Kind::StatefulSet, &at("5")));
    tokio::time::advance(std::time::Duration::from_secs(61)).await;
    assert!(view.has_pending_outcome(Kind::StatefulNode, &at("5")), "the API server may take 60 s");
    assert!(view.has_doubts());
    assert_eq!(view.in_doubt_for(), Some(std::time::Duration::from_secs(14)));
    tokio::time::advance(std::time::Duration::from_secs(20)).await;
    assert!(!view.has_pending_outcome(Kind::StatefulNode, &at("5")));
    assert_eq!(view.in_doubt_for(), None);
    assert!(
        !view.has_doubts(),
        "one write without an answer costs nothing for the rest of the process's life"
    );
}
