//! Several pools of workers under one version.

use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use windlass_temporal::port::BuildId;

use crate::stage::{NAME, Stage, deployment, spec, template};

fn pool(name: &str, replicas: Option<i32>, tag: &str) -> Value {
    json!({"name": name, "replicas": replicas, "template": template(tag)})
}

/// A spec with a pool `gpu` of one worker beside the two of the template.
fn with_gpu(tag: &str) -> Value {
    let mut spec = spec(tag);
    spec["pools"] = json!([pool("gpu", Some(1), &format!("gpu-{tag}"))]);
    spec
}

fn names(build: &BuildId) -> [String; 2] {
    [format!("{NAME}-{build}"), format!("{NAME}-{build}-gpu")]
}

fn replicas(s: &Stage, name: &str) -> Option<i64> {
    let found = s.deployments().into_iter().find(|live| live["metadata"]["name"] == name);
    found.map(|live| live["spec"]["replicas"].as_i64().unwrap())
}

#[tokio::test(start_paused = true)]
async fn pools_are_created_rolled_out_and_retired_together() {
    let (s, v1) = Stage::running(with_gpu("v1")).await;
    let [main, gpu] = names(&v1);
    assert_eq!((replicas(&s, &main), replicas(&s, &gpu)), (Some(2), Some(1)));
    for live in s.deployments() {
        let labels = &live["spec"]["template"]["metadata"]["labels"];
        let is_gpu = live["metadata"]["name"] == gpu.as_str();
        assert_eq!(labels["windlass.dev/pool"], if is_gpu { "gpu" } else { "" });
        // Deployments whose selectors overlap would count each other's pods.
        assert_eq!(live["spec"]["selector"]["matchLabels"]["windlass.dev/pool"], labels["windlass.dev/pool"]);
        let env = &live["spec"]["template"]["spec"]["containers"][0]["env"];
        let build = env.as_array().unwrap().iter().find(|v| v["name"] == "TEMPORAL_WORKER_BUILD_ID").unwrap();
        assert_eq!(build["value"], v1.as_str());
    }
    let record = s.record(&v1);
    assert_eq!(
        (&record["replicas"], &record["ready"], &record["deployment"]),
        (&json!(3), &json!(3), &json!(main))
    );
    assert_eq!(
        record["pools"],
        json!([
            {"name": "", "deployment": main, "replicas": 2, "ready": 2},
            {"name": "gpu", "deployment": gpu, "replicas": 1, "ready": 1},
        ])
    );
    s.temporal.start(&deployment(), "long", None, 99.0);
    // Only the other pool changes: it is another version.
    s.patch(json!({"spec": {"pools": [pool("gpu", Some(1), "gpu-v2")]}})).await;
    let v2 = s.target().await;
    assert_ne!(v1, v2);
    s.until_current(&v2).await;
    assert_eq!(s.deployments().len(), 4);
    s.temporal.end("long");
    s.until("v1 has no pods", |s| replicas(s, &main).is_none_or(|count| count == 0)).await;
    s.until("nor has its pool", |s| replicas(s, &gpu).is_none_or(|count| count == 0)).await;
    s.until("v1 is gone", |s| s.record(&v1).is_null() && s.deployments().len() == 2).await;
    s.assert_no_orphans();
}

#[tokio::test(start_paused = true)]
async fn rollout_waits_for_every_pool() {
    let (s, v1) = Stage::running(with_gpu("v1")).await;
    let mut next = with_gpu("v2");
    next["pools"][0]["template"] = template("broken-v2");
    s.patch(json!({"spec": next})).await;
    let v2 = s.target().await;
    let [_, gpu] = names(&v2);
    s.until("the pool is named", |s| {
        s.message("UpToDate").contains(&format!("0 of 1 replicas of Deployment {gpu} are available"))
    })
    .await;
    s.until("it is stalled", |s| s.condition("UpToDate") == "False/Stalled").await;
    assert_eq!(s.status()["currentBuildID"], v1.as_str());
}

#[tokio::test(start_paused = true)]
async fn deleted_deployment_of_an_old_pool_is_created_again() {
    let (s, v1) = Stage::running(with_gpu("v1")).await;
    s.temporal.start(&deployment(), "long", None, 99.0);
    s.patch(json!({"spec": with_gpu("v2")})).await;
    s.until_current(&s.target().await).await;
    // The pool no longer exists in the spec; v1 keeps it, with its template and replicas.
    let [_, gpu] = names(&v1);
    let more = Patch::Merge(json!({"spec": {"replicas": 3}}));
    s.patch(json!({"spec": {"pools": null}})).await;
    s.until_current(&s.target().await).await;
    s.api("Deployment").patch(&gpu, &PatchParams::default(), &more).await.unwrap();
    s.seconds(60).await;
    assert_eq!(replicas(&s, &gpu), Some(3));
    let image = |s: &Stage| {
        let found = s.deployments().into_iter().find(|live| live["metadata"]["name"] == gpu.as_str());
        found.map(|live| live["spec"]["template"]["spec"]["containers"][0]["image"].clone())
    };
    assert_eq!(image(&s), Some(json!("orders:gpu-v1")));
    s.api("Deployment").delete(&gpu, &kube::api::DeleteParams::default()).await.unwrap();
    s.until("it is back", |s| replicas(s, &gpu) == Some(1)).await;
    assert_eq!(image(&s), Some(json!("orders:gpu-v1")));
    s.temporal.end("long");
    s.until("v1 is gone", |s| s.record(&v1).is_null()).await;
    s.assert_no_orphans();
}

#[tokio::test(start_paused = true)]
async fn pool_has_replicas_of_its_own() {
    let (s, v1) = Stage::running(with_gpu("v1")).await;
    let [main, gpu] = names(&v1);
    let rollouts = s.status()["history"].as_array().unwrap().len();
    s.patch(json!({"spec": {"pools": [pool("gpu", Some(4), "gpu-v1")]}})).await;
    s.until("it is scaled", |s| replicas(s, &gpu) == Some(4)).await;
    // Without replicas, an autoscaler sets them, also to zero.
    s.patch(json!({"spec": {"pools": [pool("gpu", None, "gpu-v1")]}})).await;
    let to_zero = Patch::Merge(json!({"spec": {"replicas": 0}}));
    s.api("Deployment").patch(&gpu, &PatchParams::default(), &to_zero).await.unwrap();
    s.seconds(90).await;
    assert_eq!((replicas(&s, &main), replicas(&s, &gpu)), (Some(2), Some(0)));
    assert_eq!(s.condition("Ready"), "True/WorkersReady");
    assert_eq!(
        s.status()["history"].as_array().unwrap().len(),
        rollouts,
        "replicas are not part of the version"
    );
}

#[tokio::test(start_paused = true)]
async fn pool_is_removed_in_place_under_a_fixed_build_id() {
    let mut fixed = with_gpu("v1");
    fixed["unsafeCustomBuildID"] = "blue".into();
    let (s, blue) = Stage::running(fixed).await;
    let [main, gpu] = names(&blue);
    assert!(replicas(&s, &gpu).is_some());
    s.patch(json!({"spec": {"pools": null}})).await;
    s.until("it is deleted", |s| replicas(s, &gpu).is_none()).await;
    s.until_current(&blue).await;
    assert_eq!(replicas(&s, &main), Some(2));
    s.patch(json!({"spec": {"pools": [pool("gpu", Some(1), "gpu-v1")]}})).await;
    s.until("it is back", |s| replicas(s, &gpu) == Some(1)).await;
    s.until_current(&blue).await;
}

#[tokio::test(start_paused = true)]
async fn bad_pools_are_rejected_by_name() {
    let (s, _) = Stage::running(with_gpu("v1")).await;
    let twice = json!([pool("gpu", None, "v1"), pool("gpu", None, "v1")]);
    let mut empty = pool("gpu", None, "v1");
    empty["template"]["spec"]["containers"] = json!([]);
    for (pools, sentence) in [
        (twice, "spec.pools has two pools with the same name: rename one"),
        (json!([pool("GPU", None, "v1")]), "the name of a pool of spec.pools has to match"),
        (json!([empty]), "containers of a pool of spec.pools is empty"),
    ] {
        let refused = s.try_patch(json!({"spec": {"pools": pools}})).await.unwrap_err().to_string();
        assert!(refused.contains(sentence), "{refused}");
    }
}
