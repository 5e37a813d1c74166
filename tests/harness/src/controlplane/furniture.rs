//! The initial content of a cluster: nodes, a storage class, Windlass's kinds.

use std::time::Duration;

use k8s_openapi::{
    api::{
        core::v1::{Node, ServiceAccount},
        storage::v1::StorageClass,
    },
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{Api, Client, Resource, api::PostParams};
use serde_json::json;

use super::{Error, Options};
use windlass_sim::kubelet::Expansion;

/// The default storage class; the simulated kubelet binds its claims, and grows them while pods use them.
pub const STORAGE_CLASS: &str = "played";
/// The storage class whose claims grow only when a pod is started.
pub const OFFLINE_CLASS: &str = "played-offline";
/// The storage class whose claims may not grow.
pub const FIXED_CLASS: &str = "played-fixed";
/// The name prefix of the simulated nodes.
pub const PLAYED: &str = "played-";

/// Creates what has to exist before controllers start: they list the kinds at that time.
pub async fn before_controllers(client: &Client, options: &Options) -> Result<(), Error> {
    let class = json!({
        "metadata": {"name": STORAGE_CLASS, "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}},
        "provisioner": "windlass.test/played", "reclaimPolicy": "Delete", "volumeBindingMode": "Immediate",
        "allowVolumeExpansion": true,
    });
    create::<StorageClass>(client, class).await?;
    create::<StorageClass>(client, Expansion::Offline.class(OFFLINE_CLASS)).await?;
    let fixed = json!({"metadata": {"name": FIXED_CLASS}, "provisioner": "windlass.test/played"});
    create::<StorageClass>(client, fixed).await?;
    for number in 0..options.nodes {
        create::<Node>(client, node(&format!("{PLAYED}{number}"))).await?;
    }
    if options.crds {
        install_crds(client).await?;
    }
    Ok(())
}

/// Creates the definitions in deploy/crds and waits until they are served.
async fn install_crds(client: &Client) -> Result<(), Error> {
    let folder = crate::root().join("deploy/crds");
    let Ok(files) = std::fs::read_dir(folder) else { return Ok(()) };
    let mut names = Vec::new();
    for file in files {
        let path = file?.path();
        if path.extension().is_none_or(|extension| extension != "yaml") {
            continue;
        }
        let text = std::fs::read_to_string(&path)?;
        for definition in serde_saphyr::from_multiple::<serde_json::Value>(&text)? {
            // The folder may contain a kustomization.
            if definition["kind"] == "CustomResourceDefinition" {
                names.push(definition["metadata"]["name"].as_str().unwrap_or_default().to_owned());
                create::<CustomResourceDefinition>(client, definition).await?;
            }
        }
    }
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    for name in names {
        until(&format!("the definition {name} to be established"), async || {
            let conditions = api.get(&name).await.ok()?.status?.conditions?;
            conditions.iter().any(|c| c.type_ == "Established" && c.status == "True").then_some(())
        })
        .await?;
    }
    Ok(())
}

/// Waits until pods can be made and scheduled.
pub async fn after_controllers(client: &Client) -> Result<(), Error> {
    let nodes: Api<Node> = Api::all(client.clone());
    until("the nodes to lose their taints", async || {
        let nodes = nodes.list(&kube::api::ListParams::default()).await.ok()?;
        let tainted = |node: &Node| {
            node.spec.as_ref().is_some_and(|s| s.taints.as_ref().is_some_and(|t| !t.is_empty()))
        };
        (!nodes.items.iter().any(tainted)).then_some(())
    })
    .await?;
    service_account(client, "default").await
}

/// Waits for the namespace's default account, without which no pod is admitted.
pub async fn service_account(client: &Client, namespace: &str) -> Result<(), Error> {
    let api: Api<ServiceAccount> = Api::namespaced(client.clone(), namespace);
    until(&format!("the default service account of {namespace}"), async || api.get("default").await.ok())
        .await?;
    Ok(())
}

/// Polls every 20 ms, for a minute.
async fn until<T>(what: &str, ask: impl AsyncFn() -> Option<T>) -> Result<T, Error> {
    for _ in 0..3000 {
        if let Some(answer) = ask().await {
            return Ok(answer);
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Err(format!("waited a minute in vain for {what}").into())
}

async fn create<K>(client: &Client, object: serde_json::Value) -> Result<(), Error>
where
    K: Resource + Clone + std::fmt::Debug + serde::Serialize + serde::de::DeserializeOwned,
    K::DynamicType: Default,
{
    let object: K = serde_json::from_value(object)?;
    Api::all(client.clone()).create(&PostParams::default(), &object).await?;
    Ok(())
}

fn node(name: &str) -> serde_json::Value {
    let room = json!({"cpu": "10000", "memory": "100Ti", "ephemeral-storage": "100Ti", "pods": "100000"});
    let ready = json!({
        "type": "Ready", "status": "True", "reason": "KubeletReady", "message": "played",
        "lastHeartbeatTime": "2026-01-01T00:00:00Z", "lastTransitionTime": "2026-01-01T00:00:00Z",
    });
    json!({
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux"}},
        "status": {
            "capacity": room, "allocatable": room, "conditions": [ready],
            "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}, {"type": "Hostname", "address": name}],
        },
    })
}
