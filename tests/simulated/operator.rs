//! The unmodified operator on the simulated cluster.

use std::time::Duration;

use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use windlass::operator::Operator;
use windlass::sim::{Cluster, Options};

use super::stage::{furnished, image, paused, pod};

fn install_crds(cluster: &Cluster) {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/crds");
    for file in std::fs::read_dir(folder).unwrap() {
        let text = std::fs::read_to_string(file.unwrap().path()).unwrap();
        for object in serde_saphyr::from_multiple::<Value>(&text).unwrap() {
            if object["kind"] == "CustomResourceDefinition" {
                cluster.install(object).unwrap();
            }
        }
    }
}

fn fleet() -> Value {
    json!({
        "apiVersion": "windlass.dev/v1alpha1", "kind": "NodeDeployment", "metadata": {"name": "db"},
        "spec": {
            "replicas": 3, "updateStrategy": {"type": "InPlace"},
            "template": {"spec": {"podTemplate": {"spec": {
                "terminationGracePeriodSeconds": 1, "containers": [{"name": "main", "image": "db:1"}]}}}},
        },
    })
}

async fn until_completed(api: &Api<DynamicObject>, after: &Value) -> Value {
    for _ in 0..3000 {
        let found = api.get("db").await.unwrap().data;
        let hash = &found["status"]["lastCompletedRolloutHash"];
        if found["status"]["phase"] == "Ready" && hash.is_string() && hash != after {
            return hash.clone();
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("the rollout never completed: {}", api.get("db").await.unwrap().data["status"]);
}

#[test]
fn a_fleet_is_made_and_rolled_and_an_idle_hour_costs_no_write() {
    paused(async {
        let cluster = furnished(Options::seeded(5));
        install_crds(&cluster);
        let operator = Operator::new(cluster.client("windlass", "test")).clock(cluster.clock());
        tokio::spawn(operator.run(std::future::pending::<()>()));
        let client = cluster.client("test", "test");
        let kind = GroupVersionKind::gvk("windlass.dev", "v1alpha1", "NodeDeployment");
        let api: Api<DynamicObject> =
            Api::namespaced_with(client.clone(), "test", &ApiResource::from_gvk(&kind));
        api.create(&PostParams::default(), &serde_json::from_value(fleet()).unwrap()).await.unwrap();
        let first = until_completed(&api, &Value::Null).await;
        let patch = json!([{"op": "replace", "path": "/spec/template/spec/podTemplate/spec/containers/0/image", "value": "db:2"}]);
        let patch: json_patch::Patch = serde_json::from_value(patch).unwrap();
        api.patch("db", &PatchParams::default(), &Patch::Json::<()>(patch)).await.unwrap();
        until_completed(&api, &first).await;
        for name in ["db-0-0", "db-1-0", "db-2-0"] {
            assert_eq!(image(&pod(&client, name).await.unwrap()), "db:2");
        }
        tokio::time::sleep(Duration::from_mins(1)).await;
        let version = cluster.version();
        tokio::time::sleep(Duration::from_hours(1)).await;
        assert_eq!(cluster.version(), version, "an idle fleet writes nothing");
    });
}
