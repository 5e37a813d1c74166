//! The kinds in kubectl.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use super::{api_of, control_plane, crd_folder, dynamic, named};
use windlass_core::api::crd::cases::{fleet, node};
use windlass_harness::controlplane::ControlPlane;

#[tokio::test]
async fn the_definitions_can_be_applied_twice_and_the_second_time_changes_nothing() {
    let cp = control_plane().await;
    let said = cp.kubectl(&["apply", "-f", crd_folder().to_str().unwrap()]).await;
    assert_eq!(said.stderr, "");
    let lines = said.ok();
    assert_eq!(lines.lines().count(), 2, "{lines}");
    assert!(lines.lines().all(|line| line.ends_with(" unchanged")), "{lines}");
}

#[tokio::test]
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
async fn the_stored_schema_is_the_one_that_was_meant() {
    let cp = control_plane().await;
    let api: Api<CustomResourceDefinition> = Api::all(cp.client().await);
    for meant in windlass::api::crds() {
        let stored = api.get(meant.metadata.name.as_deref().unwrap()).await.unwrap();
        assert_eq!(stored.spec.versions, meant.spec.versions);
    }
}

#[tokio::test]
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

/// The cells of a table that kubectl printed, the header first.
fn table(text: &str) -> Vec<Vec<&str>> {
    // At least two blanks separate columns; a cell may contain single ones.
    text.lines()
        .map(|line| line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect())
        .collect()
}

async fn store(cp: &ControlPlane, namespace: &str, object: &Value, status: &Value) {
    let api = api_of(&cp.client().await, namespace, object);
    let name = object["metadata"]["name"].as_str().unwrap();
    api.create(&PostParams::default(), &dynamic(object)).await.unwrap();
    let patch = Patch::Merge(json!({"status": status}));
    api.patch_status(name, &PatchParams::default(), &patch).await.unwrap();
}

#[tokio::test]
async fn get_shows_a_fleets_rollout_and_a_nodes_plan() {
    let cp = control_plane().await;
    let ns = cp.namespace("columns").await;
    let of_fleet = json!({
        "replicas": 5, "updatedReplicas": 2, "readyReplicas": 4, "phase": "Upgrading",
        "rollout": {"summary": "Updating 2/5", "message": "waiting for db-2"},
    });
    let of_node = json!({
        "phase": "Updating", "currentImage": "app:1", "plan": {"recipe": "NodeUpdate", "state": "Active"},
        "conditions": [
            {"type": "Stalled", "status": "False"},
            {"type": "Ready", "status": "True"},
        ],
    });
    store(cp, &ns, &fleet(&[("spec.replicas", 5.into())]), &of_fleet).await;
    store(cp, &ns, &named(&node(&[]), "db-0"), &of_node).await;

    let said = cp.kubectl(&["get", "nd", "-n", &ns]).await.ok();
    let [header, row] = <[Vec<&str>; 2]>::try_from(table(&said)).unwrap();
    assert_eq!(header, ["NAME", "STRATEGY", "DESIRED", "UPDATED", "READY", "PHASE", "ROLLOUT", "AGE"]);
    assert_eq!(row[..7], ["db", "InPlace", "5", "2", "4", "Upgrading", "Updating 2/5"]);

    let said = cp.kubectl(&["get", "sn", "-n", &ns]).await.ok();
    let [header, row] = <[Vec<&str>; 2]>::try_from(table(&said)).unwrap();
    assert_eq!(header, ["NAME", "PHASE", "READY", "IMAGE", "PLAN", "PLAN-STATE", "AGE"]);
    assert_eq!(row[..6], ["db-0", "Updating", "True", "app:1", "NodeUpdate", "Active"]);

    let said = cp.kubectl(&["get", "windlass", "-n", &ns, "-o", "name"]).await.ok();
    assert_eq!(said, "nodedeployment.windlass.dev/db\nstatefulnode.windlass.dev/db-0\n");
}

#[tokio::test]
async fn a_fleet_can_be_scaled_and_tells_an_autoscaler_its_pods() {
    let cp = control_plane().await;
    let (client, ns) = (cp.client().await, cp.namespace("scale").await);
    let object = fleet(&[]);
    let status = json!({"replicas": 1, "selector": "windlass.dev/deployment=db,windlass.dev/set=first"});
    store(cp, &ns, &object, &status).await;
    cp.kubectl(&["scale", "nd/db", "--replicas=3", "-n", &ns]).await.ok();
    let api = api_of(&client, &ns, &object);
    let scale = api.get_scale("db").await.unwrap();
    assert_eq!(scale.spec.and_then(|spec| spec.replicas), Some(3));
    let seen = scale.status.unwrap();
    assert_eq!((seen.replicas, seen.selector.as_deref()), (1, status["selector"].as_str()));
    assert_eq!(api.get("db").await.unwrap().data["spec"]["replicas"], 3);
    let said = cp.kubectl(&["scale", "nd/db", "--replicas=10001", "-n", &ns]).await;
    assert!(
        said.stderr.contains("spec.replicas in body should be less than or equal to 10000"),
        "{}",
        said.stderr
    );
}

#[tokio::test]
async fn a_status_cannot_be_written_with_the_spec_nor_a_spec_with_the_status() {
    let cp = control_plane().await;
    let (client, ns) = (cp.client().await, cp.namespace("subresource").await);
    let mut object = fleet(&[]);
    object["status"] = json!({"phase": "Ready"});
    let api = api_of(&client, &ns, &object);
    api.create(&PostParams::default(), &dynamic(&object)).await.unwrap();
    let both = Patch::Merge(json!({"spec": {"replicas": 7}, "status": {"phase": "Ready"}}));
    assert_eq!(api.get("db").await.unwrap().data.get("status"), None);
    let stored = api.patch_status("db", &PatchParams::default(), &both).await.unwrap();
    assert_eq!(
        (&stored.data["spec"]["replicas"], &stored.data["status"]["phase"]),
        (&json!(1), &json!("Ready"))
    );
}
