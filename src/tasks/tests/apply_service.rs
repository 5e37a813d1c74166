//! `apply-service`: the node's headless Service matches the spec, and a Service that belongs to something else is not
//! touched.

use super::super::ApplyService;
use super::*;

/// A node whose Service is as Windlass creates it.
fn with_service() -> Node {
    let mut node = Node::serving("v1");
    let ready = bench(&node).scope();
    let observed = ready.scope.node().unwrap();
    let spec = observed.spec.as_ref().unwrap();
    let mut service = render::headless_service(&ready.scope.identity(&observed), spec);
    service["metadata"]["uid"] = json!("service-uid");
    service["metadata"]["resourceVersion"] = json!("30");
    node.service = Some(service);
    node
}

#[tokio::test]
async fn missing_service_is_created_once() {
    let mut bench = bench(&Node::serving("v1"));
    let view = bench.view.clone();
    bench
        .cluster
        .expect_create()
        .times(1)
        .withf(|kind, manifest| *kind == Kind::Service && manifest["spec"]["clusterIP"] == "None")
        .returning(move |kind, mut manifest| {
            manifest["metadata"]["uid"] = json!("service-uid");
            manifest["metadata"]["resourceVersion"] = json!("30");
            view.observe(kind, &manifest);
            Ok(manifest)
        });
    let outcomes = bench.twice(&ApplyService {}).await;
    assert_eq!(outcomes.each_ref().map(said), ["done", "done"]);
}

#[tokio::test]
async fn service_matching_the_spec_is_not_written() {
    assert_eq!(said(&bench(&with_service()).once(&ApplyService {}).await), "done");
}

#[tokio::test]
async fn drifted_service_is_repaired() {
    let mut changed = with_service();
    changed.service.as_mut().unwrap()["spec"]["publishNotReadyAddresses"] = json!(false);
    let table = [
        (Ok(json!({})), "done"),
        (Err(conflict()), "waiting for the cache to show a concurrent change"),
        (Err(refused()), "failed: the API server rejects x: spec.x: no"),
        (Err(overloaded()), "again Some(7s): x: slow down"),
    ];
    for (answer, expected) in table {
        let mut bench = bench(&changed);
        bench
            .cluster
            .expect_patch()
            .times(1)
            .withf(|target, _, _| (target.kind, target.resource_version.as_str()) == (Kind::Service, "30"))
            .return_once(move |_, _, _| answer);
        assert_eq!(said(&bench.once(&ApplyService {}).await), expected);
    }
}

#[tokio::test]
async fn foreign_service_is_kept_and_a_terminating_one_is_awaited() {
    let owned_by = |owner: Value| {
        let mut node = with_service();
        node.service.as_mut().unwrap()["metadata"]["ownerReferences"] = owner;
        node
    };
    let of =
        |kind: &str, name: &str| json!([{"kind": kind, "name": name, "uid": "other", "controller": true}]);
    let mut leaving = with_service();
    leaving.service.as_mut().unwrap()["metadata"]["deletionTimestamp"] = json!("2030-01-01T00:00:00Z");
    let table = [
        (owned_by(json!([])), "failed: Service db-0 exists and has no owner"),
        (owned_by(of("Deployment", "web")), "failed: Service db-0 exists and belongs to Deployment web"),
        (owned_by(of("StatefulNode", "db-0")), "waiting for the Service of an earlier node"),
        (leaving, "waiting for the Service of an earlier node"),
    ];
    for (node, expected) in table {
        let outcome = said(&bench(&node).once(&ApplyService {}).await);
        assert!(outcome.starts_with(expected), "{outcome}");
    }
}
