//! What the tests have in common: a namespace with an operator of its own, fleets, and waiting with a
//! message that says what was seen instead.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use kube::api::{
    Api, ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams,
    PostParams,
};
use serde_json::{Value, json};
use tokio::process::{Child, Command};

use crate::controlplane::{ControlPlane, Namespace};

/// How long a test waits for what it is about, at most.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// A namespace of one test, and the operator that works in it.
pub struct World {
    pub cp: &'static ControlPlane,
    pub ns: Namespace,
    pub client: kube::Client,
    kubeconfig: PathBuf,
    operator: Option<Child>,
}

impl World {
    /// A namespace with the operator running in it under deploy/rbac/one-namespace.yaml.
    pub async fn new(prefix: &str) -> Self {
        let mut world = Self::without_operator(prefix).await;
        world.start_operator(&[]).await;
        world
    }

    /// A namespace with the operator's account and rights, and no operator.
    pub async fn without_operator(prefix: &str) -> Self {
        let cp = ControlPlane::shared().await;
        let ns = cp.namespace(prefix).await;
        let rbac = concat!(env!("CARGO_MANIFEST_DIR"), "/deploy/rbac/one-namespace.yaml");
        cp.kubectl(&["-n", &ns, "apply", "-f", rbac]).await.ok();
        let kubeconfig = cp.service_account_kubeconfig(&ns, "windlass").await.expect("a kubeconfig");
        Self { cp, client: cp.client().await, ns, kubeconfig, operator: None }
    }

    /// Starts the operator, with further arguments.
    pub async fn start_operator(&mut self, arguments: &[&str]) {
        assert!(self.operator.is_none(), "the operator runs already");
        let child = Command::new(env!("CARGO_BIN_EXE_windlass"))
            .args(["operator", "--no-leader-elect", "--bind", "127.0.0.1:0", "--namespace", &self.ns])
            .args(arguments)
            .env("KUBECONFIG", &self.kubeconfig)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(if std::env::var_os("WINDLASS_TEST_LOG").is_some() {
                Stdio::inherit()
            } else {
                Stdio::null()
            })
            .kill_on_drop(true)
            .spawn()
            .expect("the operator starts");
        self.operator = Some(child);
    }

    /// Kills the operator with SIGKILL and waits until it is gone.
    pub async fn kill_operator(&mut self) {
        let mut child = self.operator.take().expect("an operator runs");
        child.start_kill().expect("it can be killed");
        child.wait().await.expect("it ends");
    }

    /// The API of a kind in this namespace, for example `("windlass.dev/v1alpha1", "StatefulNode")`.
    pub fn api(&self, api_version: &str, kind: &str) -> Api<DynamicObject> {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        Api::namespaced_with(self.client.clone(), &self.ns, &resource)
    }

    pub fn fleets(&self) -> Api<DynamicObject> {
        self.api("windlass.dev/v1alpha1", "NodeDeployment")
    }

    pub fn nodes(&self) -> Api<DynamicObject> {
        self.api("windlass.dev/v1alpha1", "StatefulNode")
    }

    pub fn sets(&self) -> Api<DynamicObject> {
        self.api("apps/v1", "StatefulSet")
    }

    pub fn pods(&self) -> Api<DynamicObject> {
        self.api("v1", "Pod")
    }

    /// Creates an object; panics with the server's sentence.
    pub async fn create(&self, api_version: &str, kind: &str, object: Value) {
        self.try_create(api_version, kind, object).await.unwrap_or_else(|e| panic!("{kind} is refused: {e}"));
    }

    /// Creates an object, or says why the server refuses it.
    pub async fn try_create(&self, api_version: &str, kind: &str, mut object: Value) -> Result<(), String> {
        object["apiVersion"] = json!(api_version);
        object["kind"] = json!(kind);
        let object: DynamicObject = serde_json::from_value(object).expect("an object");
        let created = self.api(api_version, kind).create(&PostParams::default(), &object).await;
        created.map(drop).map_err(|e| e.to_string())
    }

    /// Creates a fleet.
    pub async fn fleet(&self, fleet: Value) {
        self.create("windlass.dev/v1alpha1", "NodeDeployment", fleet).await;
    }

    /// Merges a change into the fleet `db`.
    pub async fn patch_fleet(&self, patch: Value) {
        self.patch(&self.fleets(), "db", patch).await;
    }

    /// Merges a change into an object.
    pub async fn patch(&self, api: &Api<DynamicObject>, name: &str, patch: Value) {
        let merged = api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await;
        merged.unwrap_or_else(|e| panic!("the patch of {name} is refused: {e}"));
    }

    /// Sets the image of the fleet `db`.
    pub async fn set_image(&self, image: &str) {
        self.patch_fleet(json!({"spec": {"template": {"spec": {"image": image}}}})).await;
    }

    pub async fn delete(&self, api: &Api<DynamicObject>, name: &str) {
        api.delete(name, &DeleteParams::default())
            .await
            .unwrap_or_else(|e| panic!("{name} is not deleted: {e}"));
    }

    /// An object as JSON; null when it does not exist.
    pub async fn get(&self, api: &Api<DynamicObject>, name: &str) -> Value {
        let found = api.get_opt(name).await.expect("the API server answers");
        found.map_or(Value::Null, |object| serde_json::to_value(object).unwrap())
    }

    /// All objects of a kind in this namespace.
    pub async fn list(&self, api: &Api<DynamicObject>) -> Vec<Value> {
        let found = api.list(&ListParams::default()).await.expect("the API server answers");
        found.items.into_iter().map(|object| serde_json::to_value(object).unwrap()).collect()
    }

    /// The fleet `db` as JSON.
    pub async fn db(&self) -> Value {
        self.get(&self.fleets(), "db").await
    }

    /// Waits until something holds for an object; panics with what was seen last.
    pub async fn until(
        &self,
        api: &Api<DynamicObject>,
        name: &str,
        what: &str,
        holds: impl Fn(&Value) -> bool,
    ) -> Value {
        let until = tokio::time::Instant::now() + PATIENCE;
        loop {
            let seen = self.get(api, name).await;
            if holds(&seen) {
                return seen;
            }
            if tokio::time::Instant::now() > until {
                panic!(
                    "waited in vain until {what}; last seen of {name}:\n{}",
                    serde_json::to_string_pretty(&seen).unwrap()
                );
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Waits until something holds for the fleet `db`.
    pub async fn until_db(&self, what: &str, holds: impl Fn(&Value) -> bool) -> Value {
        self.until(&self.fleets(), "db", what, holds).await
    }

    /// Waits until the fleet `db` has completed what its spec now wants.
    pub async fn until_applied(&self) -> Value {
        self.until_db("the fleet is up to date", is_applied).await
    }

    /// The images that the nodes' pods run, by pod name.
    pub async fn images(&self) -> Vec<String> {
        let mut pods = self.list(&self.pods()).await;
        pods.sort_by_key(|p| p["metadata"]["name"].to_string());
        pods.iter()
            .map(|p| p["spec"]["containers"][0]["image"].as_str().unwrap_or_default().to_owned())
            .collect()
    }

    /// The UIDs of the nodes' pods, by pod name.
    pub async fn pod_uids(&self) -> Vec<String> {
        let mut pods = self.list(&self.pods()).await;
        pods.sort_by_key(|p| p["metadata"]["name"].to_string());
        pods.iter().map(|p| p["metadata"]["uid"].as_str().unwrap_or_default().to_owned()).collect()
    }
}

/// A fleet `db` of so many nodes of an image.
pub fn fleet(replicas: i64, image: &str) -> Value {
    json!({
        "metadata": {"name": "db"},
        "spec": {
            "replicas": replicas,
            "template": {"spec": {"podTemplate": {"spec": {"containers": [{"name": "db", "image": image}]}}}},
            "updateStrategy": {"type": "InPlace"},
        },
    })
}

/// Whether UpToDate is True for the spec as it is now.
pub fn is_applied(fleet: &Value) -> bool {
    condition(fleet, "UpToDate") == "True/Applied"
        && fleet["status"]["observedGeneration"] == fleet["metadata"]["generation"]
}

/// A condition as `Status/Reason`; empty when it is not there.
pub fn condition(object: &Value, type_: &str) -> String {
    let list = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let found = list.iter().find(|c| c["type"] == type_);
    found.map_or(String::new(), |c| {
        format!("{}/{}", c["status"].as_str().unwrap_or_default(), c["reason"].as_str().unwrap_or_default())
    })
}
