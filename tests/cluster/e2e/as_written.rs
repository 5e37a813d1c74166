//! What a user wrote: templates that are only written otherwise, and the labels and containers of pods.

use serde_json::{Value, json};

use crate::e2e::commands::windlass;
use windlass_harness::kit::{World, fleet, is_applied, with};

/// Someone exports a node's StatefulSet, and commits its template with all defaults of this API server.
#[tokio::test(flavor = "multi_thread")]
async fn exported_template_with_defaults_changes_nothing() {
    let world = World::new("export").await;
    let claims = json!([{"metadata": {"name": "data"}, "spec": {
        "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}]);
    let settings = json!({"spec": {"template": {"spec": {"volumeClaimTemplates": claims}}}});
    let db = world.settled_fleet(with(fleet(3, "db:1"), &settings)).await;
    let (hash, before) = (db["status"]["requestedRolloutHash"].clone(), world.pod_uids().await);
    let set = world.get(&world.sets(), "db-0").await;
    let exported = |image: &str| {
        let mut pod = set["spec"]["template"]["spec"].clone();
        pod["containers"][0]["image"] = json!(image);
        let claims = &set["spec"]["volumeClaimTemplates"];
        json!({"spec": {"template": {"spec": {"podTemplate": {"spec": pod}, "volumeClaimTemplates": claims}}}})
    };
    assert_eq!(
        exported("db:1")["spec"]["template"]["spec"]["volumeClaimTemplates"][0]["spec"]["volumeMode"],
        "Filesystem"
    );

    let file = std::env::temp_dir().join(format!("{}-exported.json", world.ns));
    let mut manifest = with(with(fleet(3, "db:1"), &settings), &exported("db:1"));
    manifest["apiVersion"] = json!("windlass.dev/v1alpha1");
    manifest["kind"] = json!("NodeDeployment");
    std::fs::write(&file, manifest.to_string()).unwrap();
    let ran = windlass(&world, &["plan", "-f", file.to_str().unwrap()]).await;
    let said = "no change: the API server stores the same pod template";
    assert!(ran.code == 0 && ran.out.contains(said), "{} {}", ran.out, ran.err);
    std::fs::remove_file(file).unwrap();

    world.patch_fleet(exported("db:1")).await;
    let db = world.until_db("it is known to be the same", |db| !db["status"]["sameContent"].is_null()).await;
    assert_eq!(db["status"]["sameContent"]["recordedHash"], hash);
    let db = world.until_quiet().await;
    assert!(is_applied(&db) && db["status"]["plan"].is_null(), "{db:#}");
    assert_eq!((&db["status"]["requestedRolloutHash"], world.pod_uids().await), (&hash, before));

    world.patch_fleet(exported("db:2")).await;
    let db = world
        .until_db("it is rolled", |db| is_applied(db) && db["status"]["requestedRolloutHash"] != hash)
        .await;
    assert_eq!(db["status"]["history"].as_array().unwrap().len(), 1, "{db:#}");

    // A real change of the claims is refused by the API server.
    let shared = json!({"spec": {"template": {"spec": {"volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": {
        "accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}}}]}}}});
    let refused = world.try_patch_fleet(shared).await.unwrap_err();
    assert!(
        refused.contains("volumeClaimTemplates cannot change if nodes are updated in place"),
        "{refused}"
    );
}

/// Pod Security "restricted" is enforced, and the pod's own containers say what it asks for.
#[tokio::test(flavor = "multi_thread")]
async fn user_labels_reach_pods_and_sidecar_passes_restricted_policy() {
    let world = World::new("restricted").await;
    world.label_namespace("pod-security.kubernetes.io/enforce", "restricted").await;
    let context = json!({"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]},
        "runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}});
    let mut db = fleet(1, "db:1");
    let spec = &mut db["spec"]["template"]["spec"];
    spec["podTemplate"]["metadata"] = json!({"labels": {"app.kubernetes.io/managed-by": "Helm"}});
    spec["podTemplate"]["spec"]["containers"][0]["securityContext"] = context.clone();
    spec["sidecar"] = json!({"image": "windlass:1"});
    world.fleet(db).await;
    let made = |pod: &Value| pod["metadata"]["uid"].is_string();
    let pod = world.until(&world.pods(), "db-0-0", "the pod is made", made).await;
    assert_eq!(pod["metadata"]["labels"]["app.kubernetes.io/managed-by"], "Helm");
    let mut expected = context;
    expected["readOnlyRootFilesystem"] = json!(true);
    assert_eq!(pod["spec"]["initContainers"][0]["securityContext"], expected);

    for (field, value, says) in [
        ("podTemplate", json!({"metadata": {"labels": {"windlass.dev/node": "x"}}}), "has a reserved label"),
        ("sidecar", json!({"port": 80}), "sidecar.port is already a port of a container in podTemplate"),
    ] {
        let mut change = json!({"spec": {"template": {"spec": {field: value}}}});
        if field == "sidecar" {
            let containers = json!([{"name": "db", "image": "db:1", "ports": [{"containerPort": 80}]}]);
            change["spec"]["template"]["spec"]["podTemplate"] = json!({"spec": {"containers": containers}});
        }
        let refused = world.try_patch_fleet(change).await.unwrap_err();
        assert!(refused.contains(says), "{refused}");
    }
}
