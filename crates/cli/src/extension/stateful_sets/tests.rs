//! Reads from an API server.

use serde_json::json;

use super::tree::tests::{ledger, pod_object};
use super::*;
use crate::empty_cluster::with_objects;
use windlass_kube_port::watch::Namespaces;

fn wanted(names: &[&str]) -> FleetSelection {
    let names = names.iter().map(|name| (*name).to_owned()).collect();
    FleetSelection { scope: Namespaces::Namespace("prod".to_owned()), names }
}

fn objects() -> Vec<Value> {
    let revision = |number: i64, name: &str, image: &str| {
        json!({"apiVersion": "apps/v1", "kind": "ControllerRevision", "revision": number,
            "metadata": {"name": name, "namespace": "prod", "ownerReferences": [
                {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "ledger", "uid": "uid of ledger"}]},
            "data": {"spec": {"template": {"spec": {"containers": [{"name": "db", "image": image}]}}}}})
    };
    vec![
        ledger(&json!({})),
        pod_object("ledger-2", "ledger", "7c6f5d4b8", false),
        pod_object("other-0", "other", "7c6f5d4b8", true),
        revision(1, "ledger-5b7d9c8f6", "db:1.1"),
        revision(2, "ledger-7c6f5d4b8", "db:1.2"),
    ]
}

async fn documents(names: &[&str], forbidden: &'static [&'static str]) -> Vec<Value> {
    let client = with_objects(objects(), forbidden);
    let read = STATEFUL_SETS.read(&client, &wanted(names), !names.is_empty()).await.unwrap().unwrap();
    read.reports(crate::now()).iter().map(|report| report.document()).collect()
}

#[tokio::test]
async fn rollout_is_read_with_pods_of_its_statefulsets() {
    for names in [&["ledger"][..], &[]] {
        let documents = documents(names, &[]).await;
        assert_eq!(documents.len(), 1);
        let pods = documents[0]["nodes"].as_array().unwrap();
        assert_eq!(
            (pods.len(), &pods[0]["name"], &pods[0]["revision"]),
            (1, &json!("ledger-2"), &json!("7c6f5d4b8"))
        );
    }
    let client = with_objects(objects(), &[]);
    let refused = STATEFUL_SETS.read(&client, &wanted(&["none"]), true).await.err().unwrap();
    assert_eq!(
        refused,
        "statefulsetrollout.windlass.dev/none does not exist in namespace prod; select another with --namespace"
    );
}

#[tokio::test]
async fn forbidden_objects_are_omitted_and_reported() {
    let documents = documents(&["ledger"], &["pods"]).await;
    assert_eq!(
        documents[0]["unread"],
        json!(["left out, because Pods of namespace prod cannot be listed: pods: Forbidden"])
    );
    let client = with_objects(objects(), &["statefulsetrollouts"]);
    let read = STATEFUL_SETS.read(&client, &wanted(&[]), false).await.unwrap().unwrap();
    assert!(read.reports(crate::now()).is_empty());
    let said = "left out, because StatefulSetRollouts of namespace prod cannot be listed: statefulsetrollouts: Forbidden";
    assert_eq!(read.refused(), Some(said), "nobody named them");
    let named = STATEFUL_SETS.read(&client, &wanted(&["ledger"]), true).await;
    assert!(named.is_err_and(|error| error.contains("Forbidden")));
}

#[tokio::test]
async fn explain_diff_and_history_read_required_objects() {
    let client = with_objects(objects(), &[]);
    let target = Target { kind: crate::target::Kind::Other(STATEFUL_SETS), name: "ledger".to_owned() };
    let object = target.get(&client, "prod").await.unwrap();
    let (chain, unread) = STATEFUL_SETS.explain(&client, "prod", &target).await.unwrap();
    assert!(chain.links.iter().any(|link| link.of == "pod ledger-2"), "{chain:?}");
    assert!(unread.is_empty(), "{unread:?}");
    let compared = STATEFUL_SETS.compare(&client, "prod", &object, &[]).await.unwrap();
    assert_eq!(
        compared[0].fields[0].to_string(),
        "template.spec.containers[db].image \"db:1.1\" → \"db:1.2\""
    );
    let names = STATEFUL_SETS.history(&client, "prod", &object, Some(Output::Name), "").await.unwrap();
    assert_eq!(names, "controllerrevision.apps/ledger-7c6f5d4b8\ncontrollerrevision.apps/ledger-5b7d9c8f6\n");
}
