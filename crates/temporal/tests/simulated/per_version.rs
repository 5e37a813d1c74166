//! The objects that each version has: `spec.perVersion`.

use kube::api::{Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use windlass_temporal::port::BuildId;

use crate::stage::{NAME, NAMESPACE, Stage, deployment, spec};

fn scaled_object() -> Value {
    json!({
        "apiVersion": "keda.sh/v1alpha1", "kind": "ScaledObject",
        "metadata": {"labels": {"team": "shop"}},
        "spec": {"scaleTargetRef": {}, "minReplicaCount": 0, "triggers": [{"type": "temporal", "metadata": {
            "namespace": "{{temporalNamespace}}", "deployment": "{{deploymentName}}", "build": "{{buildID}}",
            "query": "{{deployment}} of {{ $value }}",
        }}]},
    })
}

fn budget() -> Value {
    json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "budget"},
        "spec": {"maxUnavailable": 1, "selector": {"matchLabels": {}}},
    })
}

fn with(manifests: &[Value]) -> Value {
    let mut spec = spec("v1");
    // Autoscalers set them.
    spec.as_object_mut().unwrap().remove("replicas");
    spec["perVersion"] = json!(manifests);
    spec
}

/// The names of the versions' objects.
fn objects(s: &Stage) -> Vec<String> {
    let found = s.cluster.snapshot_of(NAMESPACE, &["ScaledObject", "PodDisruptionBudget"]);
    found.iter().map(|object| object["metadata"]["name"].as_str().unwrap().to_owned()).collect()
}

fn scaled(s: &Stage, build: &BuildId) -> Option<Value> {
    s.cluster.get("keda.sh/v1alpha1", "ScaledObject", NAMESPACE, &format!("{NAME}-{build}"))
}

fn problem(s: &Stage, build: &BuildId) -> String {
    s.record(build)["resources"][0]["message"].as_str().unwrap_or_default().to_owned()
}

#[tokio::test(start_paused = true)]
async fn each_version_has_its_objects_until_it_is_scaled_down() {
    let (s, v1) = Stage::running(with(&[scaled_object(), budget()])).await;
    let first = scaled(&s, &v1).unwrap();
    let name = format!("{NAME}-{v1}");
    let metadata = &first["spec"]["triggers"][0]["metadata"];
    assert_eq!(
        (&first["spec"]["scaleTargetRef"], metadata),
        (
            &json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": name}),
            &json!({"namespace": "default", "deployment": "shop/orders", "build": v1.as_str(),
                "query": format!("{name} of {{{{ $value }}}}")}),
        )
    );
    assert_eq!(first["metadata"]["labels"]["team"], "shop");
    assert_eq!(first["metadata"]["ownerReferences"][0]["name"], NAME);
    let budget =
        s.cluster.get("policy/v1", "PodDisruptionBudget", NAMESPACE, &format!("{name}-budget")).unwrap();
    let pods = &s.deployment_of(&v1).unwrap()["spec"]["template"]["metadata"]["labels"];
    for (key, value) in budget["spec"]["selector"]["matchLabels"].as_object().unwrap() {
        assert_eq!(&pods[key], value);
    }
    let listed = |kind: &str, api: &str, name: &str| json!({"apiVersion": api, "kind": kind, "name": name, "applied": true});
    assert_eq!(
        s.record(&v1)["resources"],
        json!([
            listed("ScaledObject", "keda.sh/v1alpha1", &name),
            listed("PodDisruptionBudget", "policy/v1", &format!("{name}-budget"))
        ])
    );
    s.temporal.start(&deployment(), "long", None, 99.0);
    let v2 = s.roll_to("v2").await;
    s.until_current(&v2).await;
    assert_eq!(objects(&s).len(), 4);
    s.temporal.end("long");
    s.until("v1 is scaled down", |s| {
        let is_down = s.deployment_of(&v1).is_none_or(|live| live["spec"]["replicas"] == 0);
        let has_objects = objects(s).iter().any(|object| object.starts_with(&name));
        assert!(!is_down || !has_objects, "its autoscaler would scale it up again");
        is_down
    })
    .await;
    s.until("only v2 is left", |s| s.record(&v1).is_null()).await;
    assert_eq!(objects(&s).len(), 2);
    s.assert_no_orphans();
}

#[tokio::test(start_paused = true)]
async fn change_of_a_manifest_reaches_all_versions_in_place() {
    let (s, v1) = Stage::running(with(&[scaled_object()])).await;
    s.temporal.start(&deployment(), "long", None, 99.0);
    let v2 = s.roll_to("v2").await;
    s.until_current(&v2).await;
    let before: Vec<Value> = [&v1, &v2].map(|build| scaled(&s, build).unwrap()).into();
    let rollouts = s.status()["history"].as_array().unwrap().len();
    let mut changed = scaled_object();
    changed["spec"]["maxReplicaCount"] = 9.into();
    s.patch(json!({"spec": {"perVersion": [changed.clone()]}})).await;
    let all_have = |s: &Stage, most: &Value| {
        [&v1, &v2].iter().all(|build| scaled(s, build).unwrap()["spec"]["maxReplicaCount"] == *most)
    };
    s.until("both have it", |s| all_have(s, &json!(9))).await;
    for (before, build) in before.iter().zip([&v1, &v2]) {
        assert_eq!(before["metadata"]["uid"], scaled(&s, build).unwrap()["metadata"]["uid"]);
    }
    // What a manifest no longer sets is removed.
    let paused =
        |s: &Stage| scaled(s, &v1).unwrap()["metadata"]["annotations"]["autoscaling.keda.sh/paused"].clone();
    let mut pausing = changed.clone();
    pausing["metadata"]["annotations"] = json!({"autoscaling.keda.sh/paused": "true"});
    s.patch(json!({"spec": {"perVersion": [pausing]}})).await;
    s.until("it is paused", |s| paused(s) == "true").await;
    s.patch(json!({"spec": {"perVersion": [changed]}})).await;
    s.until("it is not paused", |s| paused(s).is_null()).await;
    // A person's edit is undone.
    let edit = Patch::Merge(json!({"spec": {"maxReplicaCount": 50}}));
    let name = format!("{NAME}-{v1}");
    s.api("ScaledObject").patch(&name, &PatchParams::default(), &edit).await.unwrap();
    s.until("it is undone", |s| all_have(s, &json!(9))).await;
    // What its controller writes to the status is not.
    let before = scaled(&s, &v1).unwrap()["metadata"]["generation"].clone();
    let status = Patch::Merge(json!({"status": {"active": true}}));
    s.api("ScaledObject").patch_status(&name, &PatchParams::default(), &status).await.unwrap();
    s.seconds(60).await;
    let after = scaled(&s, &v1).unwrap();
    assert_eq!((&after["metadata"]["generation"], &after["status"]["active"]), (&before, &json!(true)));
    s.patch(json!({"spec": {"perVersion": null}})).await;
    s.until("they are deleted", |s| objects(s).is_empty()).await;
    s.until("the status has none", |s| s.record(&v1)["resources"].is_null()).await;
    assert_eq!(s.status()["history"].as_array().unwrap().len(), rollouts);
}

#[tokio::test(start_paused = true)]
async fn objects_are_deleted_although_the_operator_restarted_meanwhile() {
    let (s, _) = Stage::running(with(&[scaled_object()])).await;
    s.kill_operator();
    s.patch(json!({"spec": {"perVersion": null}})).await;
    s.start_operator();
    s.until("they are deleted", |s| objects(s).is_empty()).await;
}

#[tokio::test(start_paused = true)]
async fn bad_manifest_is_named_and_what_runs_stays() {
    let (s, v1) = Stage::running(with(&[scaled_object()])).await;
    let edited = |edit: &dyn Fn(&mut Value)| {
        let mut manifest = scaled_object();
        edit(&mut manifest);
        manifest
    };
    let cases = [
        (
            edited(&|m| m["kind"] = "Deployment".into()),
            "spec.perVersion[0]: the operator does not manage objects of this kind; start it with --worker-resource Deployment.keda.sh",
        ),
        (
            edited(&|m| m["apiVersion"] = "keda.sh/v2".into()),
            "spec.perVersion[0]: the API server has no ScaledObject in keda.sh/v2",
        ),
        (
            edited(&|m| m["spec"]["minReplicaCount"] = "{{replicas}}".into()),
            "spec.perVersion[0].spec.minReplicaCount: there is no placeholder {{replicas}}",
        ),
        (
            edited(&|m| m["spec"]["scaleTargetRef"] = json!({"name": "invoices"})),
            "spec.perVersion[0].spec.scaleTargetRef: it has to refer to a Deployment of the version; set it to {}, or its name to {{deployment}}-POOL",
        ),
        (
            edited(&|m| m["spec"]["scaleTargetRef"] = json!({"name": "{{deployment}}-gpu"})),
            "spec.perVersion[0].spec.scaleTargetRef: it has to refer to a Deployment of the version",
        ),
        (
            edited(&|m| m["spec"]["query"] = "{{ .DeploymentName }}".into()),
            "spec.perVersion[0].spec.query: there is no placeholder {{ .DeploymentName }}",
        ),
        (
            edited(&|m| m["metadata"]["finalizers"] = json!(["a/b"])),
            "spec.perVersion[0].metadata.finalizers: only name, labels and annotations can be set",
        ),
        (
            edited(&|m| m["metadata"]["namespace"] = "other".into()),
            "spec.perVersion[0].metadata.namespace: other is not the namespace",
        ),
        (
            json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "spec": {"minUnavailable": 1}}),
            "spec.perVersion[0]: the API server rejects it: ",
        ),
    ];
    for (manifest, sentence) in cases {
        // With a new template, so that a rollout is due.
        s.patch(json!({"spec": {"perVersion": [manifest], "template": crate::stage::template("v2")}})).await;
        s.until(sentence, |s| {
            s.condition("UpToDate") == "False/InvalidSpec" && s.message("UpToDate").starts_with(sentence)
        })
        .await;
        s.seconds(30).await;
        assert_eq!(s.deployments().len(), 1, "no version of {sentence}");
        assert!(scaled(&s, &v1).is_some(), "{sentence}");
    }
    let twice = json!([scaled_object(), scaled_object()]);
    s.patch(json!({"spec": {"perVersion": twice}})).await;
    let sentence =
        "spec.perVersion[1]: another ScaledObject has the same name; set metadata.name to make them differ";
    s.until(sentence, |s| s.message("UpToDate") == sentence).await;
    s.patch(json!({"spec": {"perVersion": [scaled_object()]}})).await;
    s.until_current(&s.target().await).await;
}

#[tokio::test(start_paused = true)]
async fn object_of_another_owner_is_left_alone_and_named() {
    let s = Stage::new();
    let mut other = scaled_object();
    let build = "v1-";
    s.create(with(&[])).await;
    let v1 = s.target().await;
    assert!(v1.as_str().starts_with(build));
    other["metadata"] = json!({"name": format!("{NAME}-{v1}"), "namespace": NAMESPACE});
    let other = serde_json::from_value(other).unwrap();
    s.api("ScaledObject").create(&PostParams::default(), &other).await.unwrap();
    s.patch(json!({"spec": {"perVersion": [scaled_object()]}})).await;
    s.until("it is named", |s| problem(s, &v1).contains("already exists, and Windlass did not create it"))
        .await;
    s.until("the rollout waits", |s| s.message("UpToDate").contains("is not applied")).await;
    s.seconds(60).await;
    assert_eq!(s.condition("Reconciling"), "True/Progressing");
    assert!(s.status()["currentBuildID"].is_null(), "a version without its autoscaler receives no tasks");
    assert!(scaled(&s, &v1).unwrap()["metadata"]["ownerReferences"].is_null());
}

#[tokio::test(start_paused = true)]
async fn version_scaled_to_zero_by_its_autoscaler_does_not_delay_the_rollout() {
    let (s, v1) = Stage::running(with(&[scaled_object()])).await;
    s.temporal.start(&deployment(), "long", None, 99.0);
    let v2 = s.roll_to("v2").await;
    s.until("v2 ramps", |s| s.status()["rampPercent"] == 5).await;
    let to = |replicas: i32| Patch::Merge(json!({"spec": {"replicas": replicas}}));
    for build in [&v1, &v2] {
        let name = format!("{NAME}-{build}");
        s.api("Deployment").patch(&name, &PatchParams::default(), &to(0)).await.unwrap();
    }
    s.until_current(&v2).await;
    s.seconds(60).await;
    assert_eq!(s.condition("Ready"), "True/WorkersReady");
    for build in [&v1, &v2] {
        assert_eq!(s.deployment_of(build).unwrap()["spec"]["replicas"], 0, "nothing is scaled by Windlass");
        assert!(self::scaled(&s, build).is_some(), "{build} keeps its autoscaler");
    }
    // One that Temporal has never seen has to start.
    let v3 = s.roll_to("mute-v3").await;
    s.until("v3 has workers", |s| s.deployment_of(&v3).is_some()).await;
    let name = format!("{NAME}-{v3}");
    s.api("Deployment").patch(&name, &PatchParams::default(), &to(0)).await.unwrap();
    s.until("it is named", |s| s.message("UpToDate").contains("to be scaled up: it has 0 replicas")).await;
    s.temporal.end("long");
}

#[tokio::test(start_paused = true)]
async fn objects_follow_the_deletion_policy() {
    for policy in ["Retain", "Delete"] {
        let mut kept = with(&[scaled_object()]);
        kept["deletionPolicy"] = policy.into();
        let (s, v1) = Stage::running(kept).await;
        s.delete().await;
        s.until("it is deleted", |s| s.object().is_none()).await;
        s.seconds(60).await;
        let left = scaled(&s, &v1);
        assert_eq!(left.is_some(), policy == "Retain", "{policy}");
        assert!(left.is_none_or(|left| left["metadata"]["ownerReferences"][0].is_null()));
    }
}

#[tokio::test(start_paused = true)]
async fn objects_outlive_a_foreground_deletion_until_their_version_drains() {
    let (s, v1) = Stage::running(with(&[scaled_object()])).await;
    s.temporal.start(&deployment(), "long", None, 99.0);
    let params = kube::api::DeleteParams::foreground();
    s.api("WorkerDeployment").delete(NAME, &params).await.unwrap();
    s.seconds(60).await;
    assert!(scaled(&s, &v1).is_some_and(|object| object["metadata"]["ownerReferences"].is_null()));
    s.temporal.end("long");
    s.until("it is deleted", |s| s.object().is_none()).await;
    s.until("so are its objects", |s| objects(s).is_empty()).await;
    s.assert_no_orphans();
}

#[tokio::test(start_paused = true)]
async fn objects_that_copy_labels_belong_to_their_own_owner() {
    let (s, v1) = Stage::running(with(&[scaled_object(), budget()])).await;
    let of = scaled(&s, &v1).unwrap();
    let owner = json!({"apiVersion": "keda.sh/v1alpha1", "kind": "ScaledObject", "controller": true,
        "name": of["metadata"]["name"], "uid": of["metadata"]["uid"]});
    let copy = json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
        "metadata": {"name": "copy", "namespace": NAMESPACE, "labels": of["metadata"]["labels"], "ownerReferences": [owner]},
        "spec": {"maxUnavailable": 1},
    });
    let copy = serde_json::from_value(copy).unwrap();
    s.api("PodDisruptionBudget").create(&PostParams::default(), &copy).await.unwrap();
    s.seconds(60).await;
    assert!(objects(&s).contains(&"copy".to_owned()), "{:?}", objects(&s));
    assert_eq!(s.record(&v1)["resources"].as_array().unwrap().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn autoscaler_and_replicas_exclude_each_other() {
    let (s, v1) = Stage::running(with(&[scaled_object()])).await;
    s.patch(json!({"spec": {"replicas": 2}})).await;
    let sentence = "spec.replicas: the autoscaler in spec.perVersion[0].spec.scaleTargetRef sets it; remove spec.replicas";
    s.until("it is named", |s| s.message("UpToDate") == sentence).await;
    assert_eq!(s.condition("UpToDate"), "False/InvalidSpec");
    assert!(scaled(&s, &v1).is_some());
    let replicas = || s.deployment_of(&v1).unwrap()["spec"]["replicas"].clone();
    let before = replicas();
    s.patch(json!({"spec": {"replicas": 0}})).await;
    s.seconds(60).await;
    assert_eq!(replicas(), before, "an invalid spec is not applied");
}

#[tokio::test(start_paused = true)]
async fn manifest_that_the_api_server_rejects_is_not_applied_at_rest() {
    let (s, v1) = Stage::running(with(&[scaled_object(), budget()])).await;
    let before = scaled(&s, &v1);
    let mut bad = budget();
    bad["spec"] = json!({"minUnavailable": 1});
    let mut changed = scaled_object();
    changed["spec"]["maxReplicaCount"] = 9.into();
    s.patch(json!({"spec": {"perVersion": [changed, bad]}})).await;
    s.until("it is named", |s| {
        s.message("UpToDate").starts_with("spec.perVersion[1]: the API server rejects it")
    })
    .await;
    s.seconds(60).await;
    assert_eq!(scaled(&s, &v1), before, "nothing of an invalid spec is applied");
}

#[tokio::test(start_paused = true)]
async fn undeletable_object_delays_a_retirement_for_a_minute() {
    let (s, v1) = Stage::running(with(&[scaled_object()])).await;
    let held = Patch::Merge(json!({"metadata": {"finalizers": ["keda.sh/finalizer"]}}));
    let name = format!("{NAME}-{v1}");
    s.api("ScaledObject").patch(&name, &PatchParams::default(), &held).await.unwrap();
    s.set_image("v2").await;
    s.until("it is named", |s| problem(s, &v1).contains("its finalizers are keda.sh/finalizer")).await;
    s.seconds(40).await;
    assert_ne!(s.deployment_of(&v1).unwrap()["spec"]["replicas"], 0);
    s.until("it is scaled down", |s| s.deployment_of(&v1).is_none_or(|d| d["spec"]["replicas"] == 0)).await;
}
