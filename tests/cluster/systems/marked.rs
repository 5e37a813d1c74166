//! Windlass's own sidecar, as a process in the pod, with real requests and answers.

use serde_json::{Value, json};
use windlass_process_kubelet::Image;

use crate::systems::killing::kill;
use windlass_harness::controlplane::Error;
use windlass_harness::systems::cluster::{Cluster, Place, applied};
use windlass_harness::systems::programs::add_windlass;

const FLEET: (&str, &str, &str) = ("windlass.dev/v1alpha1", "NodeDeployment", "app");

async fn two() -> Result<(Place<'static>, tokio::process::Child), Error> {
    let cluster = Cluster::shared().await;
    add_windlass(&cluster.images, env!("CARGO_BIN_EXE_windlass"));
    for tag in ["1", "2"] {
        cluster.images.add(&format!("registry.example/app:{tag}"), Image::new());
    }
    let place = cluster.namespace("marked").await;
    let operator = place.operator(env!("CARGO_BIN_EXE_windlass")).await?;
    let fleet = json!({
        "apiVersion": FLEET.0, "kind": FLEET.1, "metadata": {"name": FLEET.2},
        "spec": {
            "replicas": 2, "updateStrategy": {"type": "InPlace"},
            "template": {"spec": {
                "image": "registry.example/app:1",
                "podTemplate": {"spec": {
                    "terminationGracePeriodSeconds": 5,
                    "containers": [{"name": "app", "command": ["sleep", "600"]}],
                }},
                "sidecar": {"image": "registry.example/windlass:0.1.0"},
            }},
        },
    });
    place
        .api(FLEET.0, FLEET.1)
        .create(&kube::api::PostParams::default(), &serde_json::from_value(fleet)?)
        .await?;
    place.until(FLEET, applied).await?;
    Ok((place, operator))
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "nightly"]
async fn a_node_serves_once_its_sidecar_was_told_and_again_after_a_kill() -> Result<(), Error> {
    let (place, _operator) = two().await?;
    let before = place.until_ready("app-0-0", &Value::Null).await?;
    let sidecar = |pod: &Value| pod["status"]["initContainerStatuses"][0].clone();
    assert_eq!(
        (&sidecar(&before)["name"], &sidecar(&before)["ready"]),
        (&json!("windlass-sidecar"), &json!(true))
    );
    let at = format!("{}:7777", before["status"]["podIP"].as_str().unwrap_or_default());
    assert_eq!(kill(&[&at]), 1, "the sidecar is a process");
    // It has forgotten that the node was marked, and its probe fails until the operator has marked it again.
    let again = |node: &Value| {
        let plan = &node["status"]["plan"];
        plan["recipe"] == "MarkReady" && plan["state"] == "Complete"
    };
    place.until((FLEET.0, "StatefulNode", "app-0"), again).await?;
    let after = place.until_ready("app-0-0", &Value::Null).await?;
    assert_eq!(after["metadata"]["uid"], before["metadata"]["uid"]);
    assert_eq!(sidecar(&after)["restartCount"], 1);
    assert_eq!(sidecar(&after)["lastState"]["terminated"]["signal"], 9);
    let image = json!({"spec": {"template": {"spec": {"image": "registry.example/app:2"}}}}).to_string();
    place.kubectl(&["patch", "nd", "app", "--type=merge", "-p", &image]).await?;
    place.until(FLEET, applied).await?;
    for pod in ["app-0-0", "app-1-0"] {
        let pod = place.until_ready(pod, &Value::Null).await?;
        assert_eq!(pod["spec"]["containers"][0]["image"], "registry.example/app:2");
        assert_eq!(sidecar(&pod)["ready"], true);
    }
    Ok(())
}
