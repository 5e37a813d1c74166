//! Pods that controllers make: StatefulSets with claims, Deployments, Jobs.

use k8s_openapi::api::{
    apps::v1::{Deployment, StatefulSet},
    batch::v1::Job,
    core::v1::PersistentVolumeClaim,
};
use kube::api::{ListParams, Patch, PatchParams};
use serde_json::{Value, json};

use crate::process_kubelet::kit::{World, create, shell, with};

/// A template whose pods the real scheduler brings to this kubelet's node.
fn template(world: &World, labels: Value, mut spec: Value) -> Value {
    spec["nodeSelector"] = json!({"kubernetes.io/hostname": &*world.ns});
    spec["tolerations"] = json!([{"key": "windlass.test/process", "operator": "Exists"}]);
    json!({"metadata": {"labels": labels}, "spec": spec})
}

#[tokio::test]
async fn a_claims_folder_outlives_its_pods() {
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

#[tokio::test]
async fn a_deployment_rolls_over_real_processes() {
    let world = World::new("deployment").await;
    let labels = json!({"app": "web"});
    let spec = json!({"containers": [shell("main", "exec sleep 600")], "terminationGracePeriodSeconds": 1});
    let deployment = json!({"metadata": {"name": "web"}, "spec": {
        "replicas": 2, "selector": {"matchLabels": labels}, "template": template(&world, labels.clone(), spec),
    }});
    create::<Deployment>(&world.api(), deployment).await;
    let api = world.api::<Deployment>();
    let rolled = async |generation: i64| {
        for _ in 0..1500 {
            let status = api.get("web").await.unwrap().status.unwrap_or_default();
            if status.observed_generation == Some(generation)
                && (status.updated_replicas, status.available_replicas, status.replicas)
                    == (Some(2), Some(2), Some(2))
            {
                return;
            }
            tokio::time::sleep(std::time::Duration::from_millis(40)).await;
        }
        panic!("{:?}", api.get("web").await.unwrap().status);
    };
    rolled(1).await;
    let change = json!({"spec": {"template": {"metadata": {"annotations": {"turn": "2"}}}}});
    api.patch("web", &PatchParams::default(), &Patch::Merge(change)).await.unwrap();
    rolled(2).await;
}

#[tokio::test]
async fn a_job_is_done_when_its_pod_is_and_has_failed_when_it_has() {
    let world = World::new("job").await;
    let job = |name: &str, script: &str| {
        let spec = json!({"restartPolicy": "Never", "containers": [shell("main", script)]});
        json!({"metadata": {"name": name}, "spec": {"backoffLimit": 0, "template": template(&world, json!({}), spec)}})
    };
    create::<Job>(&world.api(), job("well", "exit 0")).await;
    create::<Job>(&world.api(), job("ill", "exit 1")).await;
    let ended = async |name: &str, condition: &str| {
        for _ in 0..1500 {
            let status = world.api::<Job>().get(name).await.unwrap().status.unwrap_or_default();
            if status.conditions.iter().flatten().any(|c| c.type_ == condition && c.status == "True") {
                return;
            }
            tokio::time::sleep(std::time::Duration::from_millis(40)).await;
        }
        panic!("{:?}", world.api::<Job>().get(name).await.unwrap().status);
    };
    ended("well", "Complete").await;
    ended("ill", "Failed").await;
}
