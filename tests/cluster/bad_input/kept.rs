//! Objects are stored as written, plus defaults.

use kube::Api;
use kube::api::PostParams;
use serde::Deserialize;
use serde_json::{Value, json};
use windlass::api::{NodeDeployment, StatefulNode, StatefulNodeSpec};
use windlass_core::revision::{pod_template_hash, rollout_hash};

use super::{api_of, control_plane, dynamic, named};
use windlass_core::api::crd::cases::{fleet, node};

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

#[tokio::test]
async fn pod_template_keeps_unknown_fields_as_written() {
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
async fn realistic_nodes_are_accepted_and_keep_their_hashes() {
    let cp = control_plane().await;
    let (client, ns) = (cp.client().await, cp.namespace("golden").await);
    let folder = windlass_harness::root().join("tests/golden/nodes");
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
