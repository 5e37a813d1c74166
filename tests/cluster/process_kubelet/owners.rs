//! The folders of claims outlive the pods that a StatefulSet makes.

use k8s_openapi::api::{apps::v1::StatefulSet, core::v1::PersistentVolumeClaim};
use kube::api::ListParams;
use serde_json::{Value, json};

use crate::process_kubelet::kit::{World, create, shell, with};

/// A template whose pods the real scheduler brings to this kubelet's node.
fn template(world: &World, labels: Value, mut spec: Value) -> Value {
    spec["nodeSelector"] = json!({"kubernetes.io/hostname": &*world.ns});
    spec["tolerations"] = json!([{"key": "windlass.test/process", "operator": "Exists"}]);
    json!({"metadata": {"labels": labels}, "spec": spec})
}

#[tokio::test]
#[ignore = "nightly"]
async fn claim_folder_outlives_its_pods() {
    let world = World::new("claims").await;
    let labels = json!({"app": "db"});
    let main = with(
        shell("main", "echo $HOSTNAME >> /data/starts; echo $(wc -l < /data/starts) starts; exec sleep 600"),
        json!({"volumeMounts": [{"name": "data", "mountPath": "/data"}]}),
    );
    let claim = json!({
        "metadata": {"name": "data"},
        "spec": {"storageClassName": &*world.ns, "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    });
    let set = json!({"metadata": {"name": "db"}, "spec": {
        "replicas": 2, "serviceName": "db", "selector": {"matchLabels": labels}, "volumeClaimTemplates": [claim],
        "template": template(&world, labels.clone(), json!({"containers": [main]})),
    }});
    create::<StatefulSet>(&world.api(), set).await;
    let first = world.until_ready("db-0").await;
    world.until_ready("db-1").await;
    assert_eq!(first["spec"]["nodeName"], *world.ns);
    world.delete("db-0", Some(1)).await;
    let again = world
        .until("db-0", "it is another and ready", |pod| {
            pod["metadata"]["uid"] != first["metadata"]["uid"]
                && crate::process_kubelet::kit::condition(pod, "Ready") == "True"
        })
        .await;
    assert_eq!(again["status"]["podIP"], first["status"]["podIP"]);
    let shows = async |pod: &str, text: &str| {
        for _ in 0..100 {
            if world.logs(&[pod]).await == text {
                return;
            }
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
        panic!("{pod}: {}", world.logs(&[pod]).await);
    };
    shows("db-0", "2 starts\n").await;
    shows("db-1", "1 starts\n").await;
    let folders = || std::fs::read_dir(world.folder.join("claims")).unwrap().count();
    assert_eq!(folders(), 2);
    world.cp.kubectl(&["-n", &world.ns, "delete", "statefulset", "db", "--wait=true"]).await.ok();
    world.until_gone("db-0").await;
    assert_eq!(folders(), 2, "claims stay");
    let claims = world.api::<PersistentVolumeClaim>();
    claims.delete_collection(&kube::api::DeleteParams::default(), &ListParams::default()).await.unwrap();
    for _ in 0..500 {
        if folders() == 0 {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    panic!("the folders of claims that are gone are still there");
}
