//! Jobs of hooks: under the rights that are granted for them, each of which is used, and under none.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::rbac::rules::{Rule, granted, granted_by, read, used};
use windlass_harness::controlplane::Options;
use windlass_harness::operated::{Reach, World, condition, fleet, image, is_applied};

fn of_jobs(reach: Reach) -> &'static str {
    match reach {
        Reach::OneNamespace => "hook-jobs-one-namespace.yaml",
        Reach::AllNamespaces => "hook-jobs-all-namespaces.yaml",
    }
}

/// A hook whose Job has a pod of this image.
fn backup(image: &str) -> Value {
    let pod = json!({"restartPolicy": "Never", "containers": [{"name": "backup", "image": image}]});
    let job = json!({"template": {"backoffLimit": 0, "template": {"spec": pod}}});
    json!({"spec": {"updateStrategy": {"hooks": [{"name": "backup", "at": "BeforeRollout", "job": job}]}}})
}

#[test]
fn job_permissions_are_separate_and_minimal() {
    for reach in [Reach::OneNamespace, Reach::AllNamespaces] {
        assert!(granted(reach).iter().all(|rule| rule.group != "batch"), "{reach:?}");
        let rule = |verb: &str| Rule { group: "batch".into(), resource: "jobs".into(), verb: verb.into() };
        let all: BTreeSet<Rule> = ["get", "create", "delete"].map(rule).into();
        assert_eq!(granted_by(&read(of_jobs(reach))), all, "{reach:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn jobs_in_one_namespace_use_exactly_their_permissions() {
    hooks_with_jobs(Reach::OneNamespace).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "nightly"]
async fn jobs_in_all_namespaces_use_exactly_their_permissions() {
    hooks_with_jobs(Reach::AllNamespaces).await;
}

async fn hooks_with_jobs(reach: Reach) {
    let mut world = World::without_operator(reach, Options::default()).await;
    world.start_operator().await;
    let fleets = world.fleets();
    world.fleet(fleet("db", 1, "db:1", &json!(1))).await;
    world.until_applied("db").await;

    // Without the rights nothing begins, and the condition says which file has them.
    world.patch(&fleets, "db", backup("backup:nope")).await;
    world.patch(&fleets, "db", image("db:2")).await;
    let message = |db: &Value| {
        let mut conditions = db["status"]["conditions"].as_array().into_iter().flatten();
        let found = conditions.find(|c| c["type"] == "UpToDate");
        found.and_then(|c| c["message"].as_str()).unwrap_or_default().to_owned()
    };
    let says =
        |db: &Value| message(db).contains("hook backup") && message(db).contains("deploy/rbac/hook-jobs-");
    world.until(world.fleets(), "db", "it says which rights are missing", says).await;
    let db = world.get(&fleets, "db").await;
    assert_ne!(condition(&db, "UpToDate"), "True/Applied");
    let node = world.get(&world.api("windlass.dev/v1alpha1", "StatefulNode"), "db-0").await;
    assert_eq!(node["status"]["currentImage"], "db:1");

    // With them it goes on by itself.
    let mark = world.cp.audit_mark().await;
    world.grant(&read(of_jobs(reach))).await;
    let stands = |db: &Value| {
        let task = &db["status"]["plan"]["tasks"][0];
        task["type"] == "run-job" && task["message"].as_str().is_some_and(|m| m.contains("ImagePullBackOff"))
    };
    world.until(world.fleets(), "db", "the Job's pod is seen", stands).await;
    // Another target takes its place: its Job is deleted.
    world.patch(&fleets, "db", backup("backup:1")).await;
    world.patch(&fleets, "db", image("db:3")).await;
    world.until(world.fleets(), "db", "it is complete", is_applied).await;

    let audit = world.operator_audit(mark).await;
    let expected = granted_by(&read(of_jobs(reach)));
    let used = used(&audit);
    let unused: Vec<&Rule> = expected.iter().filter(|rule| !used.contains(rule)).collect();
    assert!(unused.is_empty(), "granted, and never used: {unused:#?}");
    let of_jobs: Vec<&Rule> =
        used.iter().filter(|rule| rule.group == "batch" && !expected.contains(rule)).collect();
    assert!(of_jobs.is_empty(), "used, and not granted by the file: {of_jobs:#?}");
}
