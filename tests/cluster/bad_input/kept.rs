//! Objects are stored as written, plus defaults.

use std::path::Path;

use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use serde::Deserialize;
use serde_json::{Value, json};
use windlass::api::{NodeDeployment, StatefulNode, StatefulNodeSpec};
use windlass::revision::{pod_template_hash, rollout_hash};

use super::{api_of, control_plane, dynamic, named};
use windlass_core::api::crd::cases::{fleet, node, rich};

/// A pod template with unknown fields, and values that typed decoding would change.
fn odd_pod_template() -> Value {
    json!({
        "metadata": {
            "labels": {"app": "db", "empty": ""},
            "annotations": {"checksum/config": "abc"},
            "finalizers": ["example.com/kept"],
            "madeUp": {"deep": [{}]},
        },
        "spec": {
            "containers": [{
                "name": "main",
                "image": "app:1",
                "args": [],
                "env": [{"name": "EMPTY", "value": ""}, {"name": "BARE"}],
                "resources": {"limits": {"cpu": 0.5, "memory": 1_073_741_824}, "requests": {"cpu": "500m"}},
                "securityContext": {},
                "madeUpContainerField": {"a": [1, 2.5, true, null, {"b": {}}]},
            }],
            "initContainers": [{"name": "init", "image": "init:1", "restartPolicy": "Always"}],
            "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "gpu"}],
            "schedulingGates": [],
            "volumes": [{"name": "scratch", "emptyDir": {}}],
            "madeUpField": {"nested": {"empty": {}, "list": [], "text": ""}},
        },
        "madeUpTop": 0,
    })
}

fn with_odd_pod_templates() -> [Value; 2] {
    let [mut of_fleet, mut of_node] = rich();
    of_fleet["spec"]["template"]["spec"]["podTemplate"] = odd_pod_template();
    of_node["spec"]["podTemplate"] = odd_pod_template();
    [of_fleet, of_node]
}

#[tokio::test]
async fn a_pod_template_stays_as_written_with_its_unknown_fields() {
    let cp = control_plane().await;
    let (client, ns) = (cp.client().await, cp.namespace("kept").await);
    let of_fleet = fleet(&[("spec.template.spec.podTemplate", odd_pod_template())]);
    let of_node = node(&[("spec.podTemplate", odd_pod_template())]);
    for (object, at) in [(&of_fleet, "/spec/template/spec/podTemplate"), (&of_node, "/spec/podTemplate")] {
        let api = api_of(&client, &ns, object);
        api.create(&PostParams::default(), &dynamic(object)).await.unwrap();
        let stored = serde_json::to_value(api.get("db").await.unwrap()).unwrap();
        assert_eq!(stored.pointer(at), Some(&odd_pod_template()), "{}", object["kind"]);
    }
    let fleets: Api<NodeDeployment> = Api::namespaced(client.clone(), &ns);
    assert_eq!(fleets.get("db").await.unwrap().spec.template.spec.pod_template, odd_pod_template());
    let nodes: Api<StatefulNode> = Api::namespaced(client, &ns);
    assert_eq!(nodes.get("db").await.unwrap().spec.pod_template, odd_pod_template());
}

#[tokio::test]
#[ignore = "nightly"]
async fn a_server_side_apply_of_the_same_again_changes_nothing() {
    let cp = control_plane().await;
    let (client, ns) = (cp.client().await, cp.namespace("apply").await);
    for object in with_odd_pod_templates() {
        let api = api_of(&client, &ns, &object);
        let apply =
            async || api.patch("db", &PatchParams::apply("test"), &Patch::Apply(&object)).await.unwrap();
        let first = apply().await;
        assert_eq!(
            apply().await.metadata.resource_version,
            first.metadata.resource_version,
            "{}",
            object["kind"]
        );
    }
}

#[tokio::test]
#[ignore = "nightly"]
async fn what_a_rust_client_writes_is_what_it_reads() {
    let cp = control_plane().await;
    let (client, ns) = (cp.client().await, cp.namespace("typed").await);
    let [of_fleet, of_node] = with_odd_pod_templates();
    let fleets: Api<NodeDeployment> = Api::namespaced(client.clone(), &ns);
    let mut written: NodeDeployment = serde_json::from_value(of_fleet).unwrap();
    fleets.create(&PostParams::default(), &written).await.unwrap();
    let read = fleets.get("db").await.unwrap();
    // An optional field whose readers know the default.
    written.spec.update_strategy.in_place.as_mut().unwrap().partition = 0;
    assert_eq!(read.spec, written.spec);
    let nodes: Api<StatefulNode> = Api::namespaced(client, &ns);
    let written: StatefulNode = serde_json::from_value(of_node).unwrap();
    nodes.create(&PostParams::default(), &written).await.unwrap();
    assert_eq!(nodes.get("db").await.unwrap().spec, written.spec);
}

#[tokio::test]
async fn the_server_fills_in_the_defaults() {
    let cp = control_plane().await;
    let (client, ns) = (cp.client().await, cp.namespace("defaults").await);
    let object = fleet(&[
        ("spec.updateStrategy.inPlace", json!({})),
        ("spec.template.spec.sidecar", json!({"image": "s:1"})),
    ]);
    let api = api_of(&client, &ns, &object);
    let stored = api.create(&PostParams::default(), &dynamic(&object)).await.unwrap().data;
    let mut expected = object["spec"].clone();
    for (at, defaults) in [
        (
            "",
            json!({
                "replicas": 1, "minReadySeconds": 0, "paused": false,
                "deletionPolicy": "Delete", "revisionHistoryLimit": 10,
            }),
        ),
        ("/updateStrategy", json!({"progressDeadlineSeconds": 600, "onStall": "Hold"})),
        ("/updateStrategy/inPlace", json!({"maxUnavailable": 1, "partition": 0})),
        ("/template/spec", json!({"progressDeadlineSeconds": 600, "volumeClaimRetention": "Retain"})),
        ("/template/spec/sidecar", json!({"port": 7777})),
    ] {
        let fields = expected.pointer_mut(at).unwrap().as_object_mut().unwrap();
        fields.extend(defaults.as_object().unwrap().clone());
    }
    assert_eq!(stored["spec"], expected);
}

/// A status with every field of this version, and an unknown one in every object, as a newer operator may write.
fn full_status(fields: &Value) -> Value {
    let now = "2026-01-02T03:04:05Z";
    let mut status = json!({
        "observedGeneration": 3,
        "phase": "NewPhase",
        "restartedAt": now,
        "plan": {
            "id": "0123456789", "recipe": "InPlace", "targetHash": "v1:00", "state": "Active", "startedAt": now,
            "tasks": [{
                "id": "0123456789-0", "type": "made-up", "state": "Running", "attempts": 2, "deadline": now,
                "params": {"wave": {"max": 1, "names": []}, "flags": [{}, null, 0.5], "empty": {}},
                "message": "waiting", "newer": {"a": {}},
            }],
            "newer": [1],
        },
        "history": [{
            "planID": "0", "recipe": "InPlace", "targetHash": "v1:00", "outcome": "NewOutcome", "finishedAt": now,
            "newer": {},
        }],
        "conditions": [{
            "type": "Ready", "status": "True", "reason": "AllNodesReady", "message": "", "lastTransitionTime": now,
            "observedGeneration": 3, "newer": "",
        }],
        "newer": {"deep": {"er": []}},
    });
    status.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    status
}

#[tokio::test]
async fn a_status_of_a_newer_operator_is_stored_whole() {
    let cp = control_plane().await;
    let (client, ns) = (cp.client().await, cp.namespace("status").await);
    let now = "2026-01-02T03:04:05Z";
    let of_fleet = json!({
        "replicas": 3, "selector": "a=b", "currentRevision": "r1", "scaledToZero": true,
        "rejected": {"hash": "v1:00", "planID": "0", "outcome": "Aborted", "newer": 1},
        "rollout": {
            "strategy": "InPlace", "stage": "NewStage", "nodes": {"total": 3, "newer": 1}, "newer": {},
            "unconverged": [{"name": "db-0", "reason": "Missing", "since": now, "newer": true}], "startedAt": now,
        },
    });
    let of_node = json!({
        "currentImage": "app:1", "podUID": "u", "spentGrantID": "1", "firstReadyAt": now,
        "statefulSet": {"name": "db", "uid": "u", "generation": 2, "newer": {}},
        "problem": {"reason": "CrashLoopBackOff", "message": "again", "since": now, "newer": {}},
    });
    for (object, fields) in [(fleet(&[]), of_fleet), (node(&[]), of_node)] {
        let api = api_of(&client, &ns, &object);
        api.create(&PostParams::default(), &dynamic(&object)).await.unwrap();
        let status = full_status(&fields);
        let mut whole = api.get("db").await.unwrap();
        whole.data["status"] = status.clone();
        api.replace_status("db", &PostParams::default(), &whole).await.unwrap();
        let stored = api.get("db").await.unwrap();
        assert_eq!(stored.data["status"], status, "{}", object["kind"]);
        let touch = json!({"status": {"phase": "Ready"}});
        let touched = api.patch_status("db", &PatchParams::default(), &Patch::Merge(&touch)).await.unwrap();
        assert_eq!(touched.data["status"]["newer"], status["newer"], "{}", object["kind"]);
        assert_eq!(touched.metadata.generation, stored.metadata.generation);
    }
}

#[tokio::test]
async fn nodes_as_people_run_them_are_accepted_and_keep_their_hashes() {
    let cp = control_plane().await;
    let (client, ns) = (cp.client().await, cp.namespace("golden").await);
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/nodes");
    for file in std::fs::read_dir(folder).unwrap() {
        let entry: Value =
            serde_json::from_str(&std::fs::read_to_string(file.unwrap().path()).unwrap()).unwrap();
        let name = entry["name"].as_str().unwrap();
        let written = StatefulNodeSpec::deserialize(&entry["spec"]).unwrap();
        let of_node = named(&node(&[("spec", entry["spec"].clone())]), name);
        let of_fleet = named(&fleet(&[("spec.template.spec", entry["spec"].clone())]), name);
        let nodes: Api<StatefulNode> = Api::namespaced(client.clone(), &ns);
        let fleets: Api<NodeDeployment> = Api::namespaced(client.clone(), &ns);
        api_of(&client, &ns, &of_node).create(&PostParams::default(), &dynamic(&of_node)).await.expect(name);
        api_of(&client, &ns, &of_fleet)
            .create(&PostParams::default(), &dynamic(&of_fleet))
            .await
            .expect(name);
        let stored =
            [nodes.get(name).await.unwrap().spec, fleets.get(name).await.unwrap().spec.template.spec];
        for read in stored {
            assert_eq!(rollout_hash(&read, ""), rollout_hash(&written, ""), "{name}");
            assert_eq!(
                pod_template_hash(&read.pod_template),
                pod_template_hash(&written.pod_template),
                "{name}"
            );
        }
    }
}
