//! A kubelet that is started anew.

use std::time::Duration;

use serde_json::json;

use crate::process_kubelet::kit::{World, condition, container, shell, with};

#[tokio::test]
#[ignore = "nightly"]
async fn a_new_kubelet_adopts_nothing_and_starts_what_ran_again() {
    let mut world = World::new("anew").await;
    let main = with(
        shell("main", "echo run >> /data/runs; exec sleep 600"),
        json!({"volumeMounts": [{"name": "data", "mountPath": "/data"}]}),
    );
    let claim = json!({
        "metadata": {"name": "data"},
        "spec": {"storageClassName": &*world.ns, "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    });
    crate::process_kubelet::kit::create::<k8s_openapi::api::core::v1::PersistentVolumeClaim>(
        &world.api(),
        claim,
    )
    .await;
    let volumes = json!([{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]);
    world.pod("p", json!({"containers": [main], "volumes": volumes})).await;
    world.pod("done", json!({"restartPolicy": "Never", "containers": [shell("main", "exit 0")]})).await;
    world
        .pod("once", json!({"restartPolicy": "Never", "containers": [shell("main", "exec sleep 600")]}))
        .await;
    let before = world.until_ready("p").await;
    let done = world.until_phase("done", "Succeeded").await;
    world.until_ready("once").await;
    world.stop();
    tokio::time::sleep(Duration::from_millis(300)).await;
    world.start().await;
    let after = world
        .until("p", "it runs again", |p| {
            container(p, "main")["restartCount"] == 1 && condition(p, "Ready") == "True"
        })
        .await;
    assert_eq!(after["metadata"]["uid"], before["metadata"]["uid"]);
    assert_eq!(after["status"]["podIP"], before["status"]["podIP"]);
    assert_eq!(container(&after, "main")["lastState"]["terminated"]["exitCode"], 137);
    let claim = std::fs::read_dir(world.folder.join("claims")).unwrap().next().unwrap().unwrap().path();
    for _ in 0..100 {
        if std::fs::read_to_string(claim.join("runs")).unwrap() == "run\nrun\n" {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(std::fs::read_to_string(claim.join("runs")).unwrap(), "run\nrun\n");
    let lost = world.until_phase("once", "Failed").await;
    assert_eq!(container(&lost, "main")["state"]["terminated"]["reason"], "ContainerStatusUnknown");
    let still = world.until_phase("done", "Succeeded").await;
    assert_eq!(still["metadata"]["resourceVersion"], done["metadata"]["resourceVersion"]);
}
