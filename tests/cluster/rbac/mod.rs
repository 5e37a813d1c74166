//! What deploy/rbac grants is what the operator needs: it runs as its own account through everything that it
//! ever does, and the audit log says what it asked for.

mod jobs;
mod references;
mod rules;
mod scenario;
mod secrets;

use std::time::Duration;

use rules::{Rule, granted, used};
use serde_json::json;
use windlass::clock::monotonic;
use windlass_harness::controlplane::{Mark, Options};
use windlass_harness::operated::{Reach, World, fleet};

/// The admission plugin that asks for more where owner references are written. Some distributions have it on.
const ENFORCING: &str = "OwnerReferencesPermissionEnforcement";
const PATIENCE: Duration = Duration::from_mins(1);

#[test]
fn both_role_files_grant_the_same() {
    assert_eq!(granted(Reach::OneNamespace), granted(Reach::AllNamespaces));
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "nightly"]
async fn operator_in_one_namespace_uses_exactly_its_permissions() {
    let mut world = World::without_operator(Reach::OneNamespace, Options::default()).await;
    everything_is_used(&mut world).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn operator_in_all_namespaces_uses_exactly_its_permissions() {
    let mut world = World::without_operator(Reach::AllNamespaces, Options::default()).await;
    everything_is_used(&mut world).await;
}

/// Goes through everything, and compares what was asked for with what is granted.
async fn everything_is_used(world: &mut World) {
    let mark = world.cp.audit_mark().await;
    world.start_operator().await;
    scenario::run(world).await;
    // The right to a finalizer is asked for by an admission plugin, not by a request: see below. Evictions are requested
    // only by an operator that carries out drains: see e2e/drains.rs.
    let is_asked = |rule: &Rule| !rule.resource.ends_with("/finalizers") && rule.resource != "pods/eviction";
    let expected: Vec<Rule> = granted(world.reach()).into_iter().filter(is_asked).collect();
    let until = monotonic() + PATIENCE;
    loop {
        let audit = world.operator_audit(mark).await;
        // The fleet of a ServiceAccount that does not exist: references-*.yaml has the right to check that.
        let is_check =
            |request: &String| request.starts_with("get ") && request.contains("/serviceaccounts/ghost");
        let refused: Vec<String> = audit.refused().into_iter().filter(|request| !is_check(request)).collect();
        assert!(refused.is_empty(), "the operator was not allowed to {refused:#?}");
        let used = used(&audit);
        let unused: Vec<&Rule> = expected.iter().filter(|r| !used.contains(r)).collect();
        if unused.is_empty() {
            return;
        }
        assert!(monotonic() < until, "granted, and never used: {unused:#?}");
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "nightly"]
async fn finalizer_permissions_are_needed_with_owner_enforcement() {
    let options = Options { admission: ENFORCING, ..Options::default() };
    let mut world = World::without_operator(Reach::OneNamespace, options).await;
    let rights = rules::text(Reach::OneNamespace);
    let whole = "[nodedeployments/finalizers, statefulnodes/finalizers]";
    assert!(rights.contains(whole));
    let without = [
        ("nodedeployments", "[statefulnodes/finalizers]", "controllerrevisions"),
        ("statefulnodes", "[nodedeployments/finalizers]", "statefulsets"),
    ];
    for (what, left, refused) in without {
        world.grant(&rights.replace(whole, left)).await;
        let mark = world.cp.audit_mark().await;
        world.start_operator().await;
        let name = format!("without-{what}");
        world.fleet(fleet(&name, 1, "db:1", &json!(1))).await;
        refused_by_admission(&world, mark, refused).await;
        world.grant(&rights).await;
        world.until_applied(&name).await;
        world.kill_operator().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "nightly"]
async fn claim_ownership_needs_one_permission_with_owner_enforcement() {
    let options = Options { admission: ENFORCING, ..Options::default() };
    let mut world = World::without_operator(Reach::OneNamespace, options).await;
    let mark = world.cp.audit_mark().await;
    world.start_operator().await;
    world.fleet(scenario::with_claims("db")).await;
    refused_by_admission(&world, mark, "persistentvolumeclaims").await;
    world.grant(&rules::read("claim-owners-one-namespace.yaml")).await;
    let claims = world.api("v1", "PersistentVolumeClaim");
    let owned = |claim: &serde_json::Value| claim["metadata"]["ownerReferences"][0]["kind"] == "StatefulNode";
    world.until(claims, "data-db-0-0", "the claim belongs to its node", owned).await;
    world.until_applied("db").await;
}

#[test]
fn statefulset_role_files_match_and_grant_no_create() {
    let of = |reach: &str| rules::granted_by(&rules::read(&format!("stateful-sets-{reach}.yaml")));
    let one = of("one-namespace");
    assert_eq!(one, of("all-namespaces"));
    let resources = ["statefulsetrollouts", "statefulsetrollouts/status", "statefulsetrollouts/finalizers"];
    let resources = [&resources[..], &["statefulsets", "pods"]].concat();
    assert!(one.iter().all(|rule| resources.contains(&&*rule.resource)), "{one:#?}");
    assert!(one.iter().all(|rule| rule.verb != "create"), "{one:#?}");
}

#[test]
fn worker_role_files_match_and_grant_the_finalizer() {
    let of = |reach: &str| rules::granted_by(&rules::read(&format!("../temporal/{reach}.yaml")));
    let one = of("one-namespace");
    assert_eq!(one, of("all-namespaces"));
    let (group, resource) = ("windlass.dev".to_owned(), "workerdeployments/finalizers".to_owned());
    assert!(one.contains(&Rule { group, resource, verb: "update".to_owned() }), "{one:#?}");
}

/// Writes what the operator writes, as its account: the operator of this test has no Temporal.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "nightly"]
async fn worker_jobs_need_the_finalizer_permission() {
    let options = Options { admission: ENFORCING, ..Options::default() };
    let world = World::without_operator(Reach::OneNamespace, options).await;
    let ns: &str = &world.ns;
    world.grant(&rules::read("../temporal/workerdeployments.windlass.dev.yaml")).await;
    let definition = "crd/workerdeployments.windlass.dev";
    world.cp.kubectl(&["wait", "--for=condition=Established", definition, "--timeout=60s"]).await.ok();
    world.grant(&rules::read("hook-jobs-one-namespace.yaml")).await;
    let rights = rules::read("../temporal/one-namespace.yaml");
    let rule =
        "- apiGroups: [windlass.dev]\n  resources: [workerdeployments/finalizers]\n  verbs: [update]\n";
    assert!(rights.contains(rule), "{rights}");
    world.grant(&rights.replace(rule, "")).await;

    let pod = json!({"restartPolicy": "Never", "containers": [{"name": "a", "image": "a:1"}]});
    let workers = json!({
        "apiVersion": "windlass.dev/v1alpha1", "kind": "WorkerDeployment", "metadata": {"name": "orders"},
        "spec": {"connection": {"address": "temporal:7233"}, "rollout": {"strategy": "Manual"},
            "template": {"spec": {"containers": [{"name": "worker", "image": "orders:1"}]}}},
    });
    let until = monotonic() + PATIENCE;
    // Right after its definition is established, the API server may not store it yet.
    while world.cp.kubectl_with(&["-n", ns, "create", "-f", "-"], &workers.to_string()).await.code != Some(0)
    {
        assert!(monotonic() < until, "the WorkerDeployment is not stored");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    let uid = ["-n", ns, "get", "workerdeployment", "orders", "-o", "jsonpath={.metadata.uid}"];
    let uid = world.cp.kubectl(&uid).await.ok();
    let job = json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"name": "backup", "ownerReferences": [{
            "apiVersion": "windlass.dev/v1alpha1", "kind": "WorkerDeployment", "name": "orders", "uid": uid,
            "controller": true, "blockOwnerDeletion": true}]},
        "spec": {"template": {"spec": pod}},
    });
    let account = format!("system:serviceaccount:{ns}:windlass");
    let create = async || {
        let arguments = ["--as", &account, "-n", ns, "create", "--validate=false", "-f", "-"];
        world.cp.kubectl_with(&arguments, &job.to_string()).await
    };
    // Rights that were just granted, or taken away, take a moment to count.
    loop {
        let said = create().await;
        assert_ne!(said.code, Some(0), "the Job is made without the right");
        if said.stderr.contains("blockOwnerDeletion") {
            break;
        }
        assert!(monotonic() < until, "no Job was refused: {}", said.stderr);
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    world.grant(&rights).await;
    loop {
        let said = create().await;
        if said.code == Some(0) {
            break;
        }
        assert!(monotonic() < until, "no Job was made: {}", said.stderr);
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// Waits until a write of this resource was refused by the admission plugin.
async fn refused_by_admission(world: &World, mark: Mark, resource: &str) {
    let until = monotonic() + PATIENCE;
    while world
        .operator_audit(mark)
        .await
        .resource(resource)
        .write_attempts()
        .filter(|e| e.response_status.code == 403)
        .count()
        == 0
    {
        assert!(monotonic() < until, "no write of {resource} was refused");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}
