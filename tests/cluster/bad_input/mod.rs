//! The kinds on a real API server: what it refuses and with which message, what it accepts and stores unchanged, and
//! what kubectl shows.

mod kept;
mod refused;
mod served;
mod stored;

use std::path::PathBuf;

use kube::api::{ApiResource, DynamicObject, GroupVersionKind};
use kube::{Api, Client};
use serde_json::Value;
use tokio::sync::OnceCell;
use windlass_harness::controlplane::{ControlPlane, Options};

fn crd_folder() -> PathBuf {
    windlass_harness::root().join("deploy/crds")
}

/// A control plane without kubelets, whose definitions were installed with `kubectl apply`.
async fn control_plane() -> &'static ControlPlane {
    static SHARED: OnceCell<ControlPlane> = OnceCell::const_new();
    let start = async || {
        let options = Options { crds: false, kubelets: false, ..Options::default() };
        let started = ControlPlane::start(options).await.expect("a control plane");
        started.kubectl(&["apply", "-f", crd_folder().to_str().unwrap()]).await.ok();
        started.kubectl(&["wait", "--for=condition=Established", "crd", "--all"]).await.ok();
        started
    };
    SHARED.get_or_init(start).await
}

/// The API of an object's kind, in a namespace.
fn api_of(client: &Client, namespace: &str, object: &Value) -> Api<DynamicObject> {
    let kind = object["kind"].as_str().unwrap();
    let (group, version) = object["apiVersion"].as_str().unwrap().split_once('/').unwrap();
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
    Api::namespaced_with(client.clone(), namespace, &resource)
}

fn dynamic(object: &Value) -> DynamicObject {
    serde_json::from_value(object.clone()).unwrap()
}

/// A copy of this object under another name.
fn named(object: &Value, name: &str) -> Value {
    let mut object = object.clone();
    object["metadata"]["name"] = name.into();
    object
}
