//! The kinds in kubectl.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use serde_json::Value;

use super::{control_plane, crd_folder};

#[tokio::test]
#[ignore = "nightly"]
async fn the_definitions_can_be_applied_twice() {
    let cp = control_plane().await;
    let said = cp.kubectl(&["apply", "-f", crd_folder().to_str().unwrap()]).await;
    assert_eq!(said.stderr, "");
    let lines = said.ok();
    assert_eq!(lines.lines().count(), 2, "{lines}");
    assert!(lines.lines().all(|line| line.ends_with(" unchanged")), "{lines}");
}

#[tokio::test]
#[ignore = "nightly"]
async fn the_server_finds_nothing_to_complain_of_in_the_definitions() {
    let cp = control_plane().await;
    for name in ["nodedeployments.windlass.dev", "statefulnodes.windlass.dev"] {
        let stored: Value =
            serde_json::from_str(&cp.kubectl(&["get", "crd", name, "-o", "json"]).await.ok()).unwrap();
        for condition in stored["status"]["conditions"].as_array().unwrap() {
            let bad = ["NonStructuralSchema", "KubernetesAPIApprovalPolicyConformant"];
            assert!(!bad.contains(&condition["type"].as_str().unwrap()), "{name}: {condition}");
            assert_eq!(condition["status"], "True", "{name}: {condition}");
        }
    }
}

#[tokio::test]
#[ignore = "nightly"]
async fn the_stored_schema_is_the_one_that_was_meant() {
    let cp = control_plane().await;
    let api: Api<CustomResourceDefinition> = Api::all(cp.client().await);
    for meant in windlass::api::crds() {
        let stored = api.get(meant.metadata.name.as_deref().unwrap()).await.unwrap();
        assert_eq!(stored.spec.versions, meant.spec.versions);
    }
}

#[tokio::test]
#[ignore = "nightly"]
async fn explain_has_a_description_for_fields_far_inside() {
    let cp = control_plane().await;
    for (path, words) in [
        ("nd", "A fleet of nodes from one template"),
        ("nd.spec.updateStrategy.inPlace.maxUnavailable", "How many nodes may be disrupted at once"),
        ("nd.spec.template.spec.sidecar.port", "The port that it listens on. Default: 7777."),
        ("nd.status.rollout.unconverged.reason", "The kubelet's waiting reason"),
        ("sn", "One node of a fleet"),
        ("sn.spec.podTemplate.spec.containers.name", "The container's name."),
        ("sn.status.plan.tasks.message", "What it waits for, in a sentence."),
    ] {
        let text = cp.kubectl(&["explain", path]).await.ok();
        assert!(text.replace("\n    ", " ").contains(words), "{path}: {text}");
    }
}
