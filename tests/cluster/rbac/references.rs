//! The check of the objects that a template names: under the rights that are granted for it, and under none.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::rbac::rules::{Rule, granted, granted_by, read, used};
use windlass_harness::controlplane::Options;
use windlass_harness::operated::{Reach, World, condition, fleet, is_applied};

fn of_references(reach: Reach) -> &'static str {
    match reach {
        Reach::OneNamespace => "references-one-namespace.yaml",
        Reach::AllNamespaces => "references-all-namespaces.yaml",
    }
}

/// Everything that the check may read.
fn all_granted(reach: Reach) -> BTreeSet<Rule> {
    let all = [read(of_references(reach)), read("priority-classes.yaml")];
    all.iter().flat_map(|file| granted_by(file)).collect()
}

#[test]
fn reference_permissions_are_separate_and_only_read() {
    let [one, all] = [Reach::OneNamespace, Reach::AllNamespaces].map(|reach| {
        let base = granted(reach);
        assert!(base.iter().all(|rule| rule.resource != "configmaps"), "{reach:?}");
        all_granted(reach)
    });
    assert_eq!(one, all);
    assert!(all.iter().all(|rule| ["get", "list", "watch"].contains(&rule.verb.as_str())), "{all:#?}");
    for resource in ["serviceaccounts", "persistentvolumeclaims", "priorityclasses"] {
        assert_eq!(all.iter().filter(|rule| rule.resource == resource).count(), 1, "{resource}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn references_in_all_namespaces_use_exactly_their_permissions() {
    checked(Reach::AllNamespaces).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "nightly"]
async fn references_in_one_namespace_use_exactly_their_permissions() {
    checked(Reach::OneNamespace).await;
}

async fn checked(reach: Reach) {
    let mut world = World::without_operator(reach, Options::default()).await;
    world.grant(&read(of_references(reach))).await;
    let classes = read("priority-classes.yaml");
    let home = if reach == Reach::OneNamespace { &*world.ns } else { "windlass-system" };
    world.grant(&classes.replace("namespace: windlass-system", &format!("namespace: {home}"))).await;
    world.start_operator().await;
    let mark = world.cp.audit_mark().await;
    let mut db = fleet("db", 1, "db:1", &json!(1));
    let followed = json!({"annotations": {"windlass.dev/restart-on": "configmap/conf,secret/tls"}});
    db["spec"]["template"]["spec"]["podTemplate"]["metadata"] = followed;
    let pod = &mut db["spec"]["template"]["spec"]["podTemplate"]["spec"];
    pod["serviceAccountName"] = json!("db");
    pod["priorityClassName"] = json!("high");
    pod["volumes"] = json!([
        {"name": "tls", "secret": {"secretName": "tls"}},
        {"name": "shared", "persistentVolumeClaim": {"claimName": "shared"}},
    ]);
    pod["containers"][0]["envFrom"] = json!([{"configMapRef": {"name": "conf"}}]);
    world.fleet(db).await;
    let says = |db: &Value| {
        let all = db["status"]["conditions"].as_array().into_iter().flatten();
        let message = all.filter(|c| c["type"] == "UpToDate").find_map(|c| c["message"].as_str());
        condition(db, "UpToDate") == "False/InvalidSpec"
            && message == Some("serviceAccountName: ServiceAccount db does not exist (4 more missing)")
    };
    world.until(world.fleets(), "db", "it says what is missing", says).await;
    world.create("v1", "ServiceAccount", json!({"metadata": {"name": "db"}})).await;
    world.create("v1", "Secret", json!({"metadata": {"name": "tls"}})).await;
    world.create("v1", "ConfigMap", json!({"metadata": {"name": "conf"}})).await;
    let class = json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"}, "value": 1});
    world.grant(&class.to_string()).await;
    let claim = json!({"metadata": {"name": "shared"}, "spec": {
        "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}});
    world.create("v1", "PersistentVolumeClaim", claim).await;
    world.until(world.fleets(), "db", "it is complete", is_applied).await;

    let audit = world.operator_audit(mark).await;
    let (granted, used) = (all_granted(reach), used(&audit));
    let unused: Vec<&Rule> = granted.iter().filter(|rule| !used.contains(rule)).collect();
    assert!(unused.is_empty(), "granted, and never used: {unused:#?}");
    let refused = audit.refused();
    assert!(refused.is_empty(), "the operator was not allowed to {refused:#?}");
}
