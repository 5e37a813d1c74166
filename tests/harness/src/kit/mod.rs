//! The tests' shared tools: a namespace with an operator of its own, fleets, and waits that print what was observed
//! instead.
#![allow(
    clippy::manual_assert,
    clippy::unused_async,
    clippy::duration_suboptimal_units,
    clippy::doc_markdown,
    reason = "as tests read best"
)]

pub mod peers;
pub mod tools;
pub mod wave;

use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use kube::api::{
    Api, ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams,
    PostParams,
};
use serde_json::{Value, json};
use tokio::process::{Child, Command};

use crate::controlplane::{ControlPlane, Entry, Mark, Namespace};
pub use wave::Wave;

/// The default time limit of a wait. It is shorter than the time after which a reconcile no longer waits for its own
/// write (75 s), so that a lost event fails a test.
pub const PATIENCE: Duration = Duration::from_secs(70);

/// The namespace of a test, and its operator.
pub struct World {
    pub cp: &'static ControlPlane,
    pub ns: Namespace,
    pub client: kube::Client,
    pub kubeconfig: PathBuf,
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
        Self::on(ControlPlane::shared().await, prefix).await
    }

    /// As [`World::without_operator`], on a separate control plane.
    pub async fn on(cp: &'static ControlPlane, prefix: &str) -> Self {
        let ns = cp.namespace(prefix).await;
        for rights in ["one-namespace", "stateful-sets-one-namespace"] {
            let file = crate::root().join(format!("deploy/rbac/{rights}.yaml"));
            cp.kubectl(&["-n", &ns, "apply", "-f", file.to_str().unwrap()]).await.ok();
        }
        let kubeconfig = cp.service_account_kubeconfig(&ns, "windlass").await.expect("a kubeconfig");
        Self { cp, client: cp.client().await, ns, kubeconfig, operator: None }
    }

    /// Starts the operator, with further arguments.
    pub async fn start_operator(&mut self, arguments: &[&str]) {
        self.start(&[&["--no-leader-elect"], arguments].concat());
    }

    /// Starts the operator with leader election.
    pub async fn start_electing_operator(&mut self) {
        self.start(&["--leader-elect"]);
    }

    /// Takes the running operator from the world; another may be started.
    pub fn take_operator(&mut self) -> Child {
        self.operator.take().expect("an operator runs")
    }

    fn start(&mut self, arguments: &[&str]) {
        assert!(self.operator.is_none(), "the operator runs already");
        let child = Command::new(crate::windlass_bin())
            .args(["operator", "--namespace", &self.ns])
            .args(if arguments.contains(&"--bind") { &[][..] } else { &["--bind", "127.0.0.1:0"] })
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

    /// Creates an object; panics with the server's message.
    pub async fn create(&self, api_version: &str, kind: &str, object: Value) {
        self.try_create(api_version, kind, object).await.unwrap_or_else(|e| panic!("{kind} is refused: {e}"));
    }

    /// Creates an object; an error is the server's refusal.
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

    /// Merges a change into the fleet `db`; an error is the server's refusal.
    pub async fn try_patch_fleet(&self, patch: Value) -> Result<(), String> {
        let merged = self.fleets().patch("db", &PatchParams::default(), &Patch::Merge(patch)).await;
        merged.map(drop).map_err(|error| error.to_string())
    }

    /// Sets a label of this namespace.
    pub async fn label_namespace(&self, key: &str, value: &str) {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", "Namespace"));
        let namespaces: Api<DynamicObject> = Api::all_with(self.client.clone(), &resource);
        self.patch(&namespaces, &self.ns, json!({"metadata": {"labels": {key: value}}})).await;
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

    /// An object as JSON; null if it does not exist.
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

    /// Waits until `holds` is true for an object; panics with its last state.
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

    /// Waits until `holds` is true for the fleet `db`.
    pub async fn until_db(&self, what: &str, holds: impl Fn(&Value) -> bool) -> Value {
        self.until(&self.fleets(), "db", what, holds).await
    }

    /// Waits until the fleet `db` is up to date with its spec.
    pub async fn until_applied(&self) -> Value {
        self.until_db("the fleet is up to date", is_applied).await
    }

    /// The events about an object, as `(reason, note)`.
    pub async fn events(&self, name: &str) -> Vec<(String, String)> {
        let events = self.list(&self.api("events.k8s.io/v1", "Event")).await;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        events
            .iter()
            .filter(|e| e["regarding"]["name"] == name)
            .map(|e| (text(&e["reason"]), text(&e["note"])))
            .collect()
    }

    /// The notes of all events with this reason about the fleet `db`.
    pub async fn notes(&self, reason: &str) -> Vec<String> {
        let events = self.events("db").await;
        events.into_iter().filter(|(r, _)| r == reason).map(|(_, note)| note).collect()
    }

    /// Waits for an event with this reason and note about the fleet, which follows the status that says it first. Returns
    /// the notes of all with this reason.
    pub async fn until_note(&self, reason: &str, note: &str) -> Vec<String> {
        let until = tokio::time::Instant::now() + PATIENCE;
        loop {
            let notes = self.notes(reason).await;
            if notes.iter().any(|known| known == note) {
                return notes;
            }
            assert!(tokio::time::Instant::now() < until, "no event {reason} says {note:?}: {notes:#?}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Waits for an event with this reason about an object; returns its note.
    pub async fn until_event(&self, name: &str, reason: &str) -> String {
        let until = tokio::time::Instant::now() + PATIENCE;
        loop {
            let events = self.events(name).await;
            if let Some((_, note)) = events.iter().find(|(r, _)| r == reason) {
                return note.clone();
            }
            assert!(tokio::time::Instant::now() < until, "no event {reason} about {name}: {events:#?}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Merges a change into an object's status.
    pub async fn patch_status(&self, api: &Api<DynamicObject>, name: &str, patch: Value) {
        let merged = api.patch_status(name, &PatchParams::default(), &Patch::Merge(patch)).await;
        merged.unwrap_or_else(|e| panic!("the patch of {name}'s status is refused: {e}"));
    }

    /// Waits until a rollout that was caused by drift is over, and the fleet is up to date.
    pub async fn until_applied_again(&self) -> Value {
        self.until_db("the drift is put right", |db| {
            is_applied(db) && db["status"]["plan"]["state"] == "Complete" && db["status"]["rollout"].is_null()
        })
        .await
    }

    /// Merges a change into the pod template of the fleet `db`.
    pub async fn patch_template(&self, patch: Value) {
        self.patch_fleet(json!({"spec": {"template": {"spec": {"podTemplate": patch}}}})).await;
    }

    /// Creates the fleet and waits until it is complete.
    pub async fn settled_fleet(&self, object: Value) -> Value {
        self.fleet(object).await;
        self.until_applied().await;
        self.until_quiet().await
    }

    /// Waits until no plan is active and the last status write is a while ago.
    pub async fn until_quiet(&self) -> Value {
        let until = tokio::time::Instant::now() + PATIENCE;
        let state = async || {
            let mut objects = self.list(&self.fleets()).await;
            objects.extend(self.list(&self.nodes()).await);
            objects.extend(self.list(&self.sets()).await);
            objects
        };
        let mut before = state().await;
        loop {
            tokio::time::sleep(Duration::from_millis(2500)).await;
            let now = state().await;
            if now == before {
                return self.db().await;
            }
            assert!(tokio::time::Instant::now() < until, "it does not come to rest: {now:#?}");
            before = now;
        }
    }

    /// Steers the pod of a node of this namespace: see `windlass_sim::kubelet`.
    pub async fn steer(&self, pod: &str, words: &str) {
        self.cp.steer(&self.ns, pod, words).await;
    }

    /// Whose writes to this namespace the operator's are, in the audit log.
    pub fn operator_user(&self) -> String {
        format!("system:serviceaccount:{}:windlass", &*self.ns)
    }

    /// What the operator has written in this namespace since a mark, one line for each request.
    pub async fn operator_writes(&self, since: Mark) -> Vec<String> {
        let audit = self.cp.audit_since(since).await;
        let writes = audit.namespace(&self.ns).user(&self.operator_user()).write_attempts();
        let line = |e: &Entry| {
            let object = &e.object_ref;
            format!("{} {}/{} {}", e.verb, object.resource, object.name, object.subresource)
        };
        writes.entries().iter().map(line).collect()
    }

    /// Waits until a pod serves, and is another than the one with this UID; answers with it.
    pub async fn until_serves(&self, pod: &str, not: &str) -> Value {
        let pods = self.pods();
        let holds = |p: &Value| tools::is_up(p) && p["metadata"]["uid"] != not;
        self.until(&pods, pod, "another pod serves", holds).await
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

/// A fleet with changes merged into it.
pub fn with(mut fleet: Value, changes: &Value) -> Value {
    merge(&mut fleet, changes);
    fleet
}

fn merge(into: &mut Value, changes: &Value) {
    match (into, changes) {
        (Value::Object(into), Value::Object(changes)) => {
            for (key, value) in changes {
                merge(into.entry(key).or_insert(Value::Null), value);
            }
        }
        (into, changes) => into.clone_from(changes),
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

/// True if `UpToDate` is True for the current spec.
pub fn is_applied(fleet: &Value) -> bool {
    condition(fleet, "UpToDate") == "True/Applied"
        && fleet["status"]["observedGeneration"] == fleet["metadata"]["generation"]
}

/// A condition as `Status/Reason`; empty if absent.
pub fn condition(object: &Value, type_: &str) -> String {
    let list = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let found = list.iter().find(|c| c["type"] == type_);
    found.map_or(String::new(), |c| {
        format!("{}/{}", c["status"].as_str().unwrap_or_default(), c["reason"].as_str().unwrap_or_default())
    })
}
