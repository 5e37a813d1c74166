//! A person's actions on a cluster, simulated or real; refusals are fine.

use kube::api::{
    Api, ApiResource, DeleteParams, DynamicObject, EvictParams, GroupVersionKind, ListParams, Patch,
    PatchParams, PostParams,
};
use serde_json::{Value, json};
use windlass::clock::SharedClock;

/// The fleet of walks.
pub const FLEET: &str = "db";

/// The kinds of a fleet's objects.
pub const KINDS: [(&str, &str); 6] = [
    ("windlass.dev/v1alpha1", "NodeDeployment"),
    ("windlass.dev/v1alpha1", "StatefulNode"),
    ("apps/v1", "StatefulSet"),
    ("v1", "Pod"),
    ("v1", "Service"),
    ("v1", "PersistentVolumeClaim"),
];

/// The result of an action: done, or the refusal.
pub type Answer = Result<(), String>;

/// A person in a namespace.
#[derive(Clone)]
pub struct Hand {
    pub client: kube::Client,
    pub namespace: String,
    pub clock: SharedClock,
    /// True to restrict changes to what a real cluster does in seconds.
    pub quick: bool,
}

fn answer<T>(result: kube::Result<T>) -> Answer {
    match result {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) => Err(format!("{}: {}", status.code, status.message)),
        Err(error) => panic!("the API server does not answer a person: {error}"),
    }
}

impl Hand {
    fn api(&self, api_version: &str, kind: &str) -> Api<DynamicObject> {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        Api::namespaced_with(self.client.clone(), &self.namespace, &resource)
    }

    fn of(&self, kind: &str) -> Api<DynamicObject> {
        let found = KINDS.iter().find(|(_, known)| *known == kind);
        let version =
            found.map_or_else(|| if kind == "ControllerRevision" { "apps/v1" } else { "v1" }, |(v, _)| v);
        self.api(version, kind)
    }

    /// Creates an object.
    pub async fn create(&self, object: &Value) -> Answer {
        let text = |field: &str| object[field].as_str().unwrap_or_default().to_owned();
        let api = self.api(&text("apiVersion"), &text("kind"));
        let object = self.cut("NodeDeployment", object);
        let object: DynamicObject = serde_json::from_value(object).expect("an object");
        answer(api.create(&PostParams::default(), &object).await)
    }

    /// Merge-patches an object.
    pub async fn patch(&self, kind: &str, name: &str, patch: &Value) -> Answer {
        let patch = self.cut(kind, patch);
        answer(self.of(kind).patch(name, &PatchParams::default(), &Patch::Merge(patch)).await)
    }

    fn cut(&self, kind: &str, asked: &Value) -> Value {
        let mut asked = asked.clone();
        if self.quick && kind == "NodeDeployment" {
            crate::walks::values::quicken(&mut asked);
        }
        asked
    }

    /// Merge-patches an object's status.
    pub async fn patch_status(&self, kind: &str, name: &str, patch: &Value) -> Answer {
        answer(self.of(kind).patch_status(name, &PatchParams::default(), &Patch::Merge(patch)).await)
    }

    /// Replaces the fleet's spec.
    pub async fn replace_spec(&self, spec: &Value) -> Answer {
        let spec = self.cut("NodeDeployment", &json!({"spec": spec}))["spec"].take();
        let patch = serde_json::from_value(json!([{"op": "replace", "path": "/spec", "value": spec}]));
        let patch: Patch<Value> = Patch::Json(patch.expect("a patch"));
        answer(self.of("NodeDeployment").patch(FLEET, &PatchParams::default(), &patch).await)
    }

    /// Merge-patches the fleet.
    pub async fn patch_fleet(&self, patch: &Value) -> Answer {
        self.patch("NodeDeployment", FLEET, patch).await
    }

    /// Annotates the fleet.
    pub async fn annotate_fleet(&self, key: &str, value: &Value) -> Answer {
        self.patch_fleet(&json!({"metadata": {"annotations": {key: value}}})).await
    }

    /// Deletes an object in the background, its dependents too.
    pub async fn delete(&self, kind: &str, name: &str) -> Answer {
        self.delete_so(kind, name, &DeleteParams::background()).await
    }

    /// Deletes an object with these parameters.
    pub async fn delete_so(&self, kind: &str, name: &str, how: &DeleteParams) -> Answer {
        answer(self.of(kind).delete(name, how).await)
    }

    /// Evicts a pod.
    pub async fn evict(&self, pod: &str) -> Answer {
        let api: Api<k8s_openapi::api::core::v1::Pod> = Api::namespaced(self.client.clone(), &self.namespace);
        answer(api.evict(pod, &EvictParams::default()).await)
    }

    /// An object as it is stored.
    pub async fn get(&self, kind: &str, name: &str) -> Option<Value> {
        let found = self.of(kind).get_opt(name).await.expect("the API server answers");
        found.map(|object| json!(object))
    }

    /// The fleet as it is stored.
    pub async fn fleet(&self) -> Option<Value> {
        self.get("NodeDeployment", FLEET).await
    }

    /// Every object of a kind, by name.
    pub async fn list(&self, kind: &str) -> Vec<Value> {
        let found = self.of(kind).list(&ListParams::default()).await.expect("the API server answers");
        let mut objects: Vec<Value> = found
            .items
            .into_iter()
            .map(|object| {
                let mut object = json!(object);
                // Some servers omit the kind of list items.
                object["kind"] = kind.into();
                object
            })
            .collect();
        objects.sort_by_key(name);
        objects
    }
}

/// An object's name.
pub fn name(object: &Value) -> String {
    object["metadata"]["name"].as_str().unwrap_or_default().to_owned()
}
