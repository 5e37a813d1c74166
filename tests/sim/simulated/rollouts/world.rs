//! A simulated cluster with StatefulSets that somebody else created, and an operator with StatefulSetRollouts.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kube::api::{
    Api, ApiResource, DeleteParams, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams,
};
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use windlass::operator::Operator;
use windlass_harness::stage::{furnished, paused};
use windlass_sim::{Cluster, Options};

pub const ROLLOUT: (&str, &str) = ("windlass.dev/v1alpha1", "StatefulSetRollout");
pub const SET: (&str, &str) = ("apps/v1", "StatefulSet");
pub const POD: (&str, &str) = ("v1", "Pod");

pub struct World {
    pub cluster: Arc<Cluster>,
    pub client: kube::Client,
    operator: Mutex<Option<JoinHandle<()>>>,
    /// The most pods of the StatefulSets that were unavailable at once, since the last call of `worst`.
    worst: Arc<Mutex<usize>>,
}

/// Runs a test in a world of its own.
pub fn play<F: Future<Output = ()>>(test: impl FnOnce(World) -> F) {
    paused(async { test(World::new()).await });
}

/// A StatefulSet as a chart renders it: with no update strategy.
pub fn stateful_set(name: &str, replicas: i32) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "StatefulSet",
        "metadata": {"name": name, "labels": {"app": "ledger"}},
        "spec": {
            "replicas": replicas, "serviceName": name, "podManagementPolicy": "Parallel",
            "selector": {"matchLabels": {"set": name}},
            "template": {
                "metadata": {"labels": {"set": name}},
                "spec": {"terminationGracePeriodSeconds": 1, "containers": [{"name": "main", "image": "db:1"}]},
            },
        },
    })
}

/// A StatefulSetRollout `ledger` with this strategy.
pub fn rollout(sets: &Value, strategy: &Value) -> Value {
    json!({
        "apiVersion": "windlass.dev/v1alpha1", "kind": "StatefulSetRollout", "metadata": {"name": "ledger"},
        "spec": {"statefulSets": sets, "strategy": strategy},
    })
}

pub fn named(names: &[&str]) -> Value {
    json!({"names": names})
}

impl World {
    fn new() -> Self {
        let cluster = Arc::new(furnished(Options::seeded(7)));
        for crd in windlass::api::crd::crds() {
            cluster.install(serde_json::to_value(crd).unwrap()).unwrap();
        }
        let client = cluster.client("person", "test");
        let worst = Arc::new(Mutex::new(0));
        let (watched, seen) = (cluster.clone(), worst.clone());
        tokio::spawn(async move {
            let mut version = 0;
            loop {
                tokio::time::sleep(Duration::from_millis(5)).await;
                if watched.version() == version {
                    continue;
                }
                version = watched.version();
                let now = unavailable(&watched);
                let mut worst = seen.lock().unwrap();
                *worst = (*worst).max(now);
            }
        });
        let this = Self { cluster, client, operator: Mutex::default(), worst };
        this.start_operator();
        this
    }

    pub fn start_operator(&self) {
        let operator = Operator::new(self.cluster.client("windlass", "test"))
            .clock(self.cluster.clock())
            .drain([])
            .stateful_sets(true);
        let task = tokio::spawn(async move { operator.run(std::future::pending::<()>()).await.unwrap() });
        *self.operator.lock().unwrap() = Some(task);
    }

    pub fn kill_operator(&self) {
        self.operator.lock().unwrap().take().unwrap().abort();
    }

    pub fn api(&self, (api_version, kind): (&str, &str)) -> Api<DynamicObject> {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        Api::namespaced_with(self.client.clone(), "test", &resource)
    }

    pub async fn create(&self, object: Value) {
        let kind = object["kind"].as_str().unwrap().to_owned();
        let api = self.api((object["apiVersion"].as_str().unwrap(), &kind));
        let object: DynamicObject = serde_json::from_value(object).unwrap();
        api.create(&PostParams::default(), &object).await.unwrap();
    }

    /// Creates StatefulSets of these names and sizes, and waits until their pods are Ready.
    pub async fn run_sets(&self, sets: &[(&str, i32)]) {
        for (name, replicas) in sets {
            self.create(stateful_set(name, *replicas)).await;
        }
        for (name, replicas) in sets {
            self.until_set(name, "its pods are Ready", |set| set["status"]["readyReplicas"] == *replicas)
                .await;
        }
        self.worst();
    }

    pub async fn merge(&self, kind: (&str, &str), name: &str, patch: &Value) {
        self.api(kind).patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    }

    pub async fn delete(&self, kind: (&str, &str), name: &str) {
        self.api(kind).delete(name, &DeleteParams::background()).await.unwrap();
    }

    /// Changes the image in the template of a StatefulSet, as its owner does.
    pub async fn image(&self, set: &str, image: &str) {
        let containers = json!([{"name": "main", "image": image}]);
        self.merge(SET, set, &json!({"spec": {"template": {"spec": {"containers": containers}}}})).await;
    }

    pub async fn annotate(&self, key: &str, value: &str) {
        self.merge(ROLLOUT, "ledger", &json!({"metadata": {"annotations": {key: value}}})).await;
    }

    pub fn get(&self, (api_version, kind): (&str, &str), name: &str) -> Value {
        self.cluster.get(api_version, kind, "test", name).unwrap_or(Value::Null)
    }

    pub fn status(&self) -> Value {
        self.get(ROLLOUT, "ledger")["status"].clone()
    }

    pub async fn until(&self, what: &str, holds: impl Fn(&Value) -> bool) -> Value {
        for _ in 0..72_000 {
            let status = self.status();
            if holds(&status) {
                return status;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("waited in vain until {what}:\n{:#}\n{:?}", self.status(), self.images());
    }

    pub async fn until_set(&self, name: &str, what: &str, holds: impl Fn(&Value) -> bool) -> Value {
        for _ in 0..72_000 {
            let set = self.get(SET, name);
            if holds(&set) {
                return set;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("waited in vain until {what}:\n{:#}", self.get(SET, name));
    }

    /// Creates a StatefulSetRollout, and waits until it is at rest.
    pub async fn adopt(&self, sets: &Value, strategy: &Value) {
        self.create(rollout(sets, strategy)).await;
        self.until("it is adopted", is_at_rest).await;
    }

    /// The UIDs of all pods, by name.
    pub fn uids(&self) -> BTreeMap<String, String> {
        let all = self.cluster.snapshot();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let pods = all.iter().filter(|o| o["kind"] == "Pod");
        pods.map(|pod| (text(&pod["metadata"]["name"]), text(&pod["metadata"]["uid"]))).collect()
    }

    /// The image of each pod, by name.
    pub fn images(&self) -> Vec<String> {
        let all = self.cluster.snapshot();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let of = |pod: &Value| {
            let image = text(&pod["spec"]["containers"][0]["image"]);
            format!("{} {image}", text(&pod["metadata"]["name"]))
        };
        let mut images: Vec<String> = all.iter().filter(|o| o["kind"] == "Pod").map(of).collect();
        images.sort();
        images
    }

    /// The most pods that were unavailable at once since the last call.
    pub fn worst(&self) -> usize {
        std::mem::take(&mut *self.worst.lock().unwrap())
    }

    pub async fn rest(&self, seconds: u64) {
        tokio::time::sleep(Duration::from_secs(seconds)).await;
    }

    /// Asserts that nothing is written any more.
    pub async fn is_idle(&self) {
        self.rest(120).await;
        let version = self.cluster.version();
        self.rest(1800).await;
        assert_eq!(self.cluster.version(), version, "an idle rollout writes nothing");
    }
}

/// How many pods of all StatefulSets are missing or not Ready.
fn unavailable(cluster: &Cluster) -> usize {
    let all = cluster.snapshot();
    let wanted: i64 = all
        .iter()
        .filter(|o| o["kind"] == "StatefulSet")
        .map(|set| set["spec"]["replicas"].as_i64().unwrap_or_default())
        .sum();
    let is_ready = |pod: &&Value| {
        let conditions = pod["status"]["conditions"].as_array().cloned().unwrap_or_default();
        pod["metadata"]["deletionTimestamp"].is_null()
            && conditions.iter().any(|c| c["type"] == "Ready" && c["status"] == "True")
    };
    let ready = all.iter().filter(|o| o["kind"] == "Pod").filter(is_ready).count();
    usize::try_from(wanted).unwrap_or_default().saturating_sub(ready)
}

pub fn condition(status: &Value, type_: &str) -> String {
    let list = status["conditions"].as_array().cloned().unwrap_or_default();
    let found = list.iter().find(|c| c["type"] == type_).cloned().unwrap_or_default();
    let text = |field: &str| found[field].as_str().unwrap_or_default().to_owned();
    format!("{}/{}", text("status"), text("reason"))
}

pub fn message(status: &Value, type_: &str) -> String {
    let list = status["conditions"].as_array().cloned().unwrap_or_default();
    let found = list.iter().find(|c| c["type"] == type_).cloned().unwrap_or_default();
    found["message"].as_str().unwrap_or_default().to_owned()
}

/// True if everything is held, at what is desired, and Ready.
pub fn is_at_rest(status: &Value) -> bool {
    condition(status, "UpToDate") == "True/Applied"
        && condition(status, "Held") == "True/Held"
        && status["rollout"].is_null()
        && status["nodes"].is_null()
        && status["phase"] == "Ready"
}

pub fn is_held(set: &Value) -> bool {
    set["spec"]["updateStrategy"]["rollingUpdate"]["partition"] == 1_000_000
}
