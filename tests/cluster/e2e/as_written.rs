//! What a user wrote, and what it is called: templates that are only written otherwise, fields that change together, and
//! the labels and containers of pods.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::e2e::commands::windlass;
use windlass_harness::kit::{World, condition, fleet, is_applied, with};

/// Someone exports a node's StatefulSet, and commits its template with all defaults of this API server.
#[tokio::test(flavor = "multi_thread")]
async fn an_exported_template_with_all_defaults_changes_nothing() {
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
    let larger = json!({"spec": {"template": {"spec": {"volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": {
        "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "2Gi"}}}}]}}}});
    let refused = world.try_patch_fleet(larger).await.unwrap_err();
    assert!(
        refused.contains("volumeClaimTemplates cannot change where nodes are updated in place"),
        "{refused}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn metadata_and_deletion_policy_change_in_one_apply() {
    let world = World::new("oneapply").await;
    world.settled_fleet(fleet(2, "db:1")).await;
    world
        .patch_fleet(json!({"spec": {"deletionPolicy": "Retain", "template": {"metadata": {
            "labels": {"team": "storage"}, "annotations": {"owner": "ann"}}}}}))
        .await;
    world.until_db("it is carried out", |db| db["status"]["deletionPolicy"] == "Retain").await;
    world.until_quiet().await;
    for node in world.list(&world.nodes()).await {
        let meta = &node["metadata"];
        assert_eq!(
            (&meta["labels"]["team"], &meta["annotations"]["owner"]),
            (&json!("storage"), &json!("ann"))
        );
        assert!(
            meta["ownerReferences"].is_null() && meta["annotations"]["windlass.dev/owner-uid"].is_string()
        );
        assert_eq!(condition(&node, "Stalled"), "False/Progressing", "{node:#}");
    }
    assert_eq!(condition(&world.db().await, "Stalled"), "False/Progressing");
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_tell_their_ordinal_and_revision() {
    let world = World::new("ordinal").await;
    let id = json!({"name": "ID", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['windlass.dev/ordinal']"}}});
    let mut db = fleet(3, "db:1");
    db["spec"]["template"]["spec"]["podTemplate"]["spec"]["containers"][0]["env"] = json!([id]);
    world.settled_fleet(db).await;
    let labels = async |key: &str| -> Vec<String> {
        let pods = world.list(&world.pods()).await;
        let mut pods: Vec<(String, String)> = pods
            .iter()
            .map(|pod| {
                let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
                (text(&pod["metadata"]["name"]), text(&pod["metadata"]["labels"][key]))
            })
            .collect();
        pods.sort();
        pods.into_iter().map(|(_, label)| label).collect()
    };
    assert_eq!(labels("windlass.dev/ordinal").await, ["0", "1", "2"]);
    let first: BTreeSet<String> = labels("windlass.dev/revision").await.into_iter().collect();
    world.set_image("db:2").await;
    world.until_applied().await;
    let second: BTreeSet<String> = labels("windlass.dev/revision").await.into_iter().collect();
    assert!(first.len() == 1 && second.len() == 1 && first != second, "{first:?} {second:?}");
    world.set_image("db:1").await;
    world.until_applied().await;
    assert_eq!(labels("windlass.dev/revision").await.into_iter().collect::<BTreeSet<_>>(), first);
}

/// Pod Security "restricted" is enforced, and the pod's own containers say what it asks for.
#[tokio::test(flavor = "multi_thread")]
async fn a_users_labels_reach_pods_and_the_sidecar_is_admitted_as_restricted() {
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
        ("sidecar", json!({"port": 80}), "sidecar.port is a port of one of podTemplate's containers"),
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
