//! The Node objects of a kubelet.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Node;
use kube::{
    Api, Client,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

use crate::{
    Error,
    clock::{now, text},
    resources::ROOM,
};

/// Labels and taints of the nodes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Kind {
    pub(crate) labels: BTreeMap<String, String>,
    /// Key and value of a taint with the effect NoSchedule.
    pub(crate) taint: Option<(String, String)>,
}

/// Creates or takes over a node, and sets its conditions and its log endpoint.
pub(crate) async fn register(client: &Client, name: &str, kind: &Kind, port: u16) -> Result<(), Error> {
    let nodes: Api<Node> = Api::all(client.clone());
    let failed = || Error::api(format!("node {name}"));
    let mut labels = kind.labels.clone();
    labels.insert("kubernetes.io/hostname".to_owned(), name.to_owned());
    labels.insert("kubernetes.io/os".to_owned(), "linux".to_owned());
    let taints: Vec<Value> = kind
        .taint
        .iter()
        .map(|(key, value)| json!({"key": key, "value": value, "effect": "NoSchedule"}))
        .collect();
    let node = json!({"metadata": {"name": name, "labels": labels}, "spec": {"taints": taints}});
    let node: Node = serde_json::from_value(node).map_err(kube::Error::SerdeError).map_err(failed())?;
    match nodes.create(&PostParams::default(), &node).await {
        Err(kube::Error::Api(status)) if status.code == 409 => {}
        other => drop(other.map_err(failed())?),
    }
    let room = BTreeMap::from(ROOM);
    let time = text(now());
    let status = json!({
        "capacity": room, "allocatable": room,
        "conditions": [{
            "type": "Ready", "status": "True", "reason": "KubeletReady", "message": "kubelet is posting ready status",
            "lastHeartbeatTime": time, "lastTransitionTime": time,
        }],
        // No host name: the API server would prefer it.
        "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
        "nodeInfo": {
            "kubeletVersion": "v1.36.3", "operatingSystem": "linux", "architecture": std::env::consts::ARCH,
            "containerRuntimeVersion": "process://1", "kernelVersion": "", "osImage": "", "machineID": "",
            "systemUUID": "", "bootID": "", "kubeProxyVersion": "",
        },
    });
    let patch = Patch::Merge(json!({"status": status}));
    nodes.patch_status(name, &PatchParams::default(), &patch).await.map_err(failed())?;
    Ok(())
}
