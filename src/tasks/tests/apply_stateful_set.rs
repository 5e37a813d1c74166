//! `apply-stateful-set` writes the granted template, or nothing.

use super::super::ApplyStatefulSet;
use super::*;
use windlass_kube_port::{Part, PatchOp};

/// The StatefulSet after a write of ours.
fn written(version: &str) -> Value {
    let node = Node::serving("v1").with_set(version).set("/metadata/generation", json!(4));
    node.set("/metadata/resourceVersion", json!("11")).set.unwrap()
}

async fn without_a_write(node: Node) -> String {
    said(&bench(&node).once(&ApplyStatefulSet {}).await)
}

#[tokio::test]
async fn granted_template_is_written_once_at_the_observed_version() {
    let mut bench = bench(&Node::serving("v1").granted("v2"));
    let view = bench.view.clone();
    bench
        .cluster
        .expect_patch()
        .times(1)
        .withf(|target, part, ops| {
            let paths: Vec<&str> = ops
                .iter()
                .map(|op| match op {
                    PatchOp::Set { path, .. } | PatchOp::Remove { path } => path.as_str(),
                })
                .collect();
            let stamp = "/metadata/annotations/windlass.dev~1pod-template-hash";
            let image = ops.iter().any(|op| op.to_json().to_string().contains("\"image\":\"db:v2\""));
            (target.kind, target.resource_version.as_str(), *part) == (Kind::StatefulSet, "10", Part::Main)
                && paths == [stamp, "/spec/template"]
                && image
        })
        .returning(move |_, _, _| {
            view.observe(Kind::StatefulSet, &written("v2"));
            Ok(written("v2"))
        });
    let outcomes = bench.twice(&ApplyStatefulSet {}).await;
    assert_eq!(outcomes.each_ref().map(said), ["done", "done"]);
}

#[tokio::test]
async fn missing_stateful_set_is_created_once_with_granted_template() {
    let mut bench = bench(&Node::new("v1"));
    let view = bench.view.clone();
    bench
        .cluster
        .expect_create()
        .times(1)
        .withf(|kind, manifest| {
            let owner = &manifest["metadata"]["ownerReferences"][0];
            let replicas_and_strategy =
                (&manifest["spec"]["replicas"], &manifest["spec"]["updateStrategy"]["type"]);
            *kind == Kind::StatefulSet
                && owner["uid"] == "node-uid"
                && replicas_and_strategy == (&json!(1), &json!("OnDelete"))
                && manifest["metadata"]["annotations"]["windlass.dev/pod-template-hash"]
                    == hash("v1").as_str()
        })
        .returning(move |_, _| {
            let made = written("v1");
            view.observe(Kind::StatefulSet, &made);
            Ok(made)
        });
    let outcomes = bench.twice(&ApplyStatefulSet {}).await;
    assert_eq!(outcomes.each_ref().map(said), ["done", "done"]);
}

#[tokio::test]
async fn stateful_set_is_not_written_without_a_grant_or_ownership() {
    const NO_GRANT: &str =
        "waiting for a grant: this version of Windlass renders a different template from the granted one";
    const USED: &str = "waiting for a new grant: the pod keeps its template until then";
    const LEAVES: &str = "waiting for the StatefulSet of an earlier node with this name to be deleted";
    let to_v2 = || Node::serving("v1").granted("v2");
    let earlier = |n: Node| n.set("/metadata/ownerReferences/0/uid", json!("earlier-uid"));
    let table = [
        ("the template is at the grant", Node::serving("v1"), "done"),
        ("at the grant, the spec says another", Node::serving("v1").wanting_without_grant("v2"), "done"),
        ("not at the grant, and it cannot be rendered", to_v2().wanting_without_grant("v3"), NO_GRANT),
        ("no StatefulSet, and it cannot be rendered", Node::new("v1").wanting_without_grant("v2"), NO_GRANT),
        ("a Ready pod elsewhere under a spent grant", to_v2().spent(), USED),
        ("a pod elsewhere under a spent grant, not Ready", to_v2().spent().not_ready(), USED),
        ("a StatefulSet of an earlier node", earlier(to_v2()), LEAVES),
    ];
    for (what, node, expected) in table {
        assert_eq!(without_a_write(node).await, expected, "{what}");
    }
}

#[tokio::test]
async fn template_is_restored_under_a_spent_grant() {
    let edited =
        |n: Node| n.set("/metadata/generation", json!(4)).set("/status/observedGeneration", json!(4));
    let table = [
        ("edited under a pod at the grant", edited(Node::serving("v1"))),
        ("a pod elsewhere that does not run", Node::serving("v1").granted("v2").spent().not_running()),
        ("no pod", Node::serving("v1").granted("v2").spent().without_pod()),
    ];
    for (what, node) in table {
        let mut bench = bench(&node);
        bench.cluster.expect_patch().times(1).returning(|_, _, _| Ok(written("v1")));
        assert_eq!(said(&bench.once(&ApplyStatefulSet {}).await), "done", "{what}");
    }
}

#[tokio::test]
async fn write_errors_are_distinguished() {
    let table = [
        (conflict(), "waiting for the cache to show a concurrent change"),
        (refused(), "failed: the API server rejects x: spec.x: no"),
        (overloaded(), "again Some(7s): x: slow down"),
    ];
    for (error, expected) in table {
        let mut bench = bench(&Node::serving("v1").granted("v2"));
        bench.cluster.expect_patch().times(1).return_once(move |_, _, _| Err(error));
        assert_eq!(said(&bench.once(&ApplyStatefulSet {}).await), expected);
    }
}

#[tokio::test]
async fn foreign_stateful_set_fails_and_an_own_one_is_awaited() {
    let owned_by = |owner: (&'static str, &'static str, &'static str)| json!({"metadata": meta("db-0", "x", 9, Some(owner))});
    let table = [
        (
            Some(owned_by(("Deployment", "web", "y"))),
            "failed: StatefulSet db-0 exists and belongs to Deployment web",
        ),
        (
            Some(json!({"metadata": meta("db-0", "x", 9, None)})),
            "failed: StatefulSet db-0 exists and has no owner that Windlass knows",
        ),
        (Some(owned_by(NODE)), "again None: waiting for the cache to show the existing StatefulSet"),
        (None, "again None: waiting for the cache to show the existing StatefulSet"),
    ];
    for (found, expected) in table {
        let mut bench = bench(&Node::new("v1"));
        let exists = ClusterError::AlreadyExists { object: "x".to_owned() };
        bench.cluster.expect_create().times(1).return_once(move |_, _| Err(exists));
        bench.cluster.expect_get().times(1).return_once(move |_, _, _| Ok(found));
        let outcome = said(&bench.once(&ApplyStatefulSet {}).await);
        assert!(outcome.starts_with(expected), "{outcome}");
    }
}
