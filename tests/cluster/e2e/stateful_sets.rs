//! A StatefulSet that somebody else created is adopted, rolled out, rolled back and released.

use std::time::Duration;

use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use crate::e2e::commands::windlass;
use windlass_harness::kit::{Wave, World, condition};

/// As a chart renders it: ordered, and without an update strategy.
fn ledger(image: &str) -> Value {
    json!({
        "metadata": {"name": "ledger"},
        "spec": {
            "replicas": 3, "serviceName": "ledger", "selector": {"matchLabels": {"app": "ledger"}},
            "template": {"metadata": {"labels": {"app": "ledger"}}, "spec": {
                "terminationGracePeriodSeconds": 0, "containers": [{"name": "db", "image": image}],
            }},
        },
    })
}

async fn image(world: &World, image: &str) {
    let containers = json!([{"name": "db", "image": image}]);
    let template = json!({"spec": {"template": {"spec": {"containers": containers}}}});
    world.patch(&world.sets(), "ledger", template).await;
}

async fn until(world: &World, what: &str, holds: impl Fn(&Value) -> bool) -> Value {
    world.until(&world.api("windlass.dev/v1alpha1", "StatefulSetRollout"), "ledger", what, holds).await
}

fn is_at_rest(rollout: &Value) -> bool {
    condition(rollout, "UpToDate") == "True/Applied"
        && condition(rollout, "Held") == "True/Held"
        && rollout["status"]["rollout"].is_null()
        && rollout["status"]["readyReplicas"] == 3
}

#[tokio::test(flavor = "multi_thread")]
async fn statefulset_is_adopted_updated_rolled_back_and_released() {
    let mut world = World::new("ssr").await;
    world.create("apps/v1", "StatefulSet", ledger("db:1")).await;
    let ready = |set: &Value| set["status"]["readyReplicas"] == 3;
    let before = world.until(&world.sets(), "ledger", "its pods are Ready", ready).await;
    let pods = world.pod_uids().await;

    let printed = windlass(&world, &["adopt", "sts/ledger"]).await;
    assert!(
        printed.code == 0 && printed.out.contains("kind: StatefulSetRollout"),
        "{}{}",
        printed.out,
        printed.err
    );
    let adopted = windlass(&world, &["adopt", "sts/ledger", "--apply"]).await;
    assert_eq!(adopted.code, 0, "{}{}", adopted.out, adopted.err);
    until(&world, "it is adopted", is_at_rest).await;
    assert_eq!(world.pod_uids().await, pods, "no pod restarts");

    // As a GitOps controller that syncs at once.
    let theirs =
        json!({"spec": {"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}}}});
    let by = PatchParams { field_manager: Some("argocd-controller".to_owned()), ..PatchParams::default() };
    world.sets().patch("ledger", &by, &Patch::Merge(theirs)).await.unwrap();
    let is_held = |set: &Value| set["spec"]["updateStrategy"]["rollingUpdate"]["partition"] == 1_000_000;
    world.until(&world.sets(), "ledger", "it is held again", is_held).await;
    until(&world, "that is over", is_at_rest).await;
    // The condition is True again within milliseconds; the event remains.
    let mut notes = Vec::new();
    for _ in 0..100 {
        notes = world.notes_about("ledger", "StrategyOverwritten").await;
        if !notes.is_empty() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert!(notes.iter().any(|note| note.contains("field manager argocd-controller")), "{notes:?}");

    let wave = Wave::of_pods(&world, &["ledger-0", "ledger-1", "ledger-2"]).await;
    image(&world, "db:2").await;
    until(&world, "it begins", |rollout| rollout["status"]["rollout"].is_object()).await;
    for _ in 0..4 {
        world.kill_operator().await;
        world.start_operator(&[]).await;
        tokio::time::sleep(Duration::from_millis(400)).await;
    }
    until(&world, "it is rolled out", is_at_rest).await;
    let completed = |set: &Value| set["status"]["currentRevision"] == set["status"]["updateRevision"];
    world.until(&world.sets(), "ledger", "it is completed", completed).await;
    let seen = wave.at_most(1).await;
    assert_eq!(seen.went, ["ledger-2", "ledger-1", "ledger-0"]);
    assert_eq!(world.images().await, ["db:2"; 3]);

    let pods = world.pod_uids().await;
    image(&world, "db:3-nope").await;
    let held =
        until(&world, "a pod cannot run", |rollout| rollout["status"]["rollout"]["nodes"]["failed"] == 1)
            .await;
    let status = windlass(&world, &["status", "ssr/ledger"]).await;
    assert!(status.out.contains("ledger-2") && status.out.contains("ImagePullBackOff"), "{}", status.out);
    assert_eq!(held["status"]["nodes"][0]["name"], "ledger-2");
    let aborted = windlass(&world, &["abort", "--rollback", "ssr/ledger"]).await;
    assert_eq!(aborted.code, 0, "{}{}", aborted.out, aborted.err);
    let is_back = |rollout: &Value| {
        condition(rollout, "UpToDate") == "False/RolledBack" && rollout["status"]["readyReplicas"] == 3
    };
    until(&world, "it is rolled back", is_back).await;
    assert_eq!(world.images().await, ["db:2"; 3]);
    let same = world.pod_uids().await.iter().filter(|uid| pods.contains(*uid)).count();
    assert_eq!(same, 2, "the other pods are not touched");
    let set = world.get(&world.sets(), "ledger").await;
    assert_eq!(set["spec"]["template"]["spec"]["containers"][0]["image"], "db:3-nope", "nor is the template");
    assert!(set["metadata"]["managedFields"].is_array(), "nor are the managed fields");

    image(&world, "db:4").await;
    until(&world, "the fix is rolled out", is_at_rest).await;
    let pods = world.pod_uids().await;
    world.delete(&world.api("windlass.dev/v1alpha1", "StatefulSetRollout"), "ledger").await;
    let is_released = |set: &Value| set["spec"]["updateStrategy"] == before["spec"]["updateStrategy"];
    world.until(&world.sets(), "ledger", "it is released", is_released).await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(world.pod_uids().await, pods, "no pod restarts");
}
