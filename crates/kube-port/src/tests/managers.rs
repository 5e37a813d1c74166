//! On request, the API server keeps no managed fields of the kinds that belong to Windlass alone.

use std::sync::{Arc, Mutex};

use http::{Request, Response};
use kube::{Client, client::Body};
use serde_json::{Value, json};

use crate::{Cluster, Kind, KubeCluster, Part, PatchOp, Target, View};
use windlass_core::observed::Meta;

/// The patch operations that are sent for a change of a label.
async fn sent(kind: Kind, part: Part, dry_run: bool, drops: bool) -> Vec<Value> {
    let bodies: Arc<Mutex<Vec<Value>>> = Arc::default();
    let into = bodies.clone();
    let object = json!({"kind": kind.name(),
        "metadata": {"name": "db-0", "namespace": "shop", "uid": "u", "resourceVersion": "5"}});
    let meta = Meta::read(&object);
    let service = tower::service_fn(move |request: Request<Body>| {
        let (into, answer) = (into.clone(), object.to_string().into_bytes());
        async move {
            let body = request.into_body().collect_bytes().await?;
            into.lock().unwrap().push(serde_json::from_slice(&body)?);
            Ok::<_, tower::BoxError>(Response::new(Body::from(answer)))
        }
    });
    let port = KubeCluster::new(Client::new(service, "shop"), View::shared());
    let port = port.dropping_managed_fields(drops);
    let (target, ops) = (Target::of(kind, &meta), vec![PatchOp::set("/metadata/labels/a", json!("b"))]);
    let answer =
        if dry_run { port.try_patch(target, ops).await } else { port.patch(target, part, ops).await };
    answer.unwrap();
    let body = bodies.lock().unwrap().remove(0);
    serde_json::from_value(body).unwrap()
}

#[tokio::test]
async fn managed_fields_are_removed_on_request_from_own_kinds() {
    let reset = json!({"op": "add", "path": "/metadata/managedFields", "value": [{}]});
    for kind in [Kind::StatefulNode, Kind::StatefulSet] {
        assert_eq!(sent(kind, Part::Main, false, true).await.last(), Some(&reset), "{kind:?}");
        assert!(!sent(kind, Part::Main, false, false).await.contains(&reset), "{kind:?}");
    }
    let others = [
        // A kind that people write, or one that the API server would write although nothing else differs.
        (Kind::NodeDeployment, Part::Main, false),
        (Kind::Service, Part::Main, false),
        (Kind::PersistentVolumeClaim, Part::Main, false),
        // A status patch must not have the operation, and a dry run must show what the change alone does.
        (Kind::StatefulNode, Part::Status, false),
        (Kind::StatefulSet, Part::Main, true),
    ];
    for (kind, part, dry_run) in others {
        assert!(!sent(kind, part, dry_run, true).await.contains(&reset), "{kind:?} {part:?} {dry_run}");
    }
}
