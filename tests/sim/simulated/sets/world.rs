//! A simulated cluster with an operator and a fleet `db` with sets.

use std::future::Future;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::StreamExt;
use kube::api::{
    Api, ApiResource, DeleteParams, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams,
};
use kube::runtime::WatchStreamExt;
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use windlass::operator::Operator;
use windlass_sim::kubelet::{Kubelet, STEER_LABEL};
use windlass_sim::{Cluster, Options};

use super::applications::Applications;
use windlass_harness::stage::paused;

pub const NODE: (&str, &str) = ("windlass.dev/v1alpha1", "StatefulNode");
pub const FLEET: (&str, &str) = ("windlass.dev/v1alpha1", "NodeDeployment");
pub const POD: (&str, &str) = ("v1", "Pod");
pub const SET: (&str, &str) = ("apps/v1", "StatefulSet");
pub const SERVICE: (&str, &str) = ("v1", "Service");
pub const REVISION: (&str, &str) = ("apps/v1", "ControllerRevision");
pub const CLAIM: (&str, &str) = ("v1", "PersistentVolumeClaim");

/// The taint of a machine that is being drained.
pub const LEAVING: &str = "example.com/leaving";

pub struct World {
    pub cluster: Arc<Cluster>,
    pub applications: Applications,
    client: kube::Client,
    operator: Mutex<Option<JoinHandle<()>>>,
    /// Every observed state of the fleet.
    seen: Arc<Mutex<Vec<Value>>>,
}

/// A fleet under a strategy, with a claim for each node.
pub fn fleet(replicas: i32, strategy: Value) -> Value {
    let mut strategy = strategy;
    if strategy["progressDeadlineSeconds"].is_null() {
        strategy["progressDeadlineSeconds"] = json!(120);
    }
    json!({
        "apiVersion": "windlass.dev/v1alpha1", "kind": "NodeDeployment", "metadata": {"name": "db"},
        "spec": {
            "replicas": replicas, "updateStrategy": strategy,
            "service": {"ports": [{"port": 80}]},
            "template": {"spec": {
                "image": "db:1",
                "podTemplate": {"spec": {
                    "terminationGracePeriodSeconds": 1, "containers": [{"name": "main", "image": "db:0"}]}},
                "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": {
                    "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}],
            }},
        },
    })
}

#[allow(clippy::needless_pass_by_value, reason = "as tests read best")]
pub fn blue_green(replicas: i32, settings: Value) -> Value {
    fleet(replicas, json!({"type": "BlueGreen", "blueGreen": settings}))
}

pub fn with_sidecar(mut fleet: Value) -> Value {
    let spec = &mut fleet["spec"]["template"]["spec"];
    spec["sidecar"] = json!({"image": "windlass:1"});
    spec["podTemplate"]["metadata"] =
        json!({"annotations": {"windlass.test/sidecar-url": "http://{podIP}:7777"}});
    fleet
}

/// Runs a test in a world of its own.
pub fn play<F: Future<Output = ()>>(test: impl FnOnce(World) -> F) {
    paused(async { test(World::new(Applications::caught_up())).await });
}

impl World {
    fn new(applications: Applications) -> Self {
        let cluster = Cluster::start(Options::seeded(7));
        let room = json!({"cpu": "10000", "memory": "100Ti", "ephemeral-storage": "100Ti", "pods": "100000"});
        let machine = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "played-0"},
            "status": {"capacity": room, "allocatable": room}});
        cluster.install(machine).unwrap();
        cluster
            .install(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "test"}}))
            .unwrap();
        for crd in windlass::api::crd::crds() {
            cluster.install(serde_json::to_value(crd).unwrap()).unwrap();
        }
        let kubelet = Kubelet::new(cluster.client("kubelet", "default"), cluster.clock())
            .probe(applications.probe())
            .probe_interval(Duration::from_secs(1));
        tokio::spawn(kubelet.run());
        let client = cluster.client("person", "test");
        let this = Self {
            cluster: Arc::new(cluster),
            applications,
            client,
            operator: Mutex::default(),
            seen: Arc::default(),
        };
        let seen = this.seen.clone();
        let watched = kube::runtime::watcher(this.fleets(), kube::runtime::watcher::Config::default());
        tokio::spawn(watched.applied_objects().for_each(move |fleet| {
            let fleet = fleet.map(|f| serde_json::to_value(f).unwrap()).unwrap_or_default();
            seen.lock().unwrap().push(fleet);
            std::future::ready(())
        }));
        this.start_operator();
        this
    }

    pub fn start_operator(&self) {
        let operator = Operator::new(self.cluster.client("windlass", "test"))
            .clock(self.cluster.clock())
            .drain([LEAVING.to_owned()])
            .sidecars(Arc::new(self.applications.clone()));
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

    pub fn fleets(&self) -> Api<DynamicObject> {
        self.api(("windlass.dev/v1alpha1", "NodeDeployment"))
    }

    pub async fn create(&self, object: Value) {
        self.try_create(object).await.unwrap();
    }

    pub async fn try_create(&self, object: Value) -> Result<(), String> {
        let kind = object["kind"].as_str().unwrap().to_owned();
        let api = self.api((object["apiVersion"].as_str().unwrap(), &kind));
        let object: DynamicObject = serde_json::from_value(object).unwrap();
        api.create(&PostParams::default(), &object).await.map(drop).map_err(|e| e.to_string())
    }

    /// Creates a fleet, and waits until it serves.
    pub async fn serve(&self, fleet: Value) -> String {
        self.create(fleet).await;
        let status = self.until("the fleet is complete", is_up_to_date).await;
        status["lastCompletedRolloutHash"].as_str().unwrap().to_owned()
    }

    /// Merges a change into the fleet's spec.
    pub async fn change(&self, spec: Value) {
        self.patch(&json!({"spec": spec})).await;
    }

    /// Replaces fields of the fleet's spec.
    pub async fn write(&self, spec: &Value) {
        let mut fleet = self.get(("windlass.dev/v1alpha1", "NodeDeployment"), "db");
        for (field, value) in spec.as_object().unwrap() {
            fleet["spec"][field] = value.clone();
        }
        let fleet: DynamicObject = serde_json::from_value(fleet).unwrap();
        self.fleets().replace("db", &PostParams::default(), &fleet).await.unwrap();
    }

    pub async fn patch(&self, patch: &Value) {
        self.fleets().patch("db", &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    }

    pub async fn patch_status(&self, patch: &Value) {
        self.fleets().patch_status("db", &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    }

    pub async fn annotate(&self, key: &str, value: &str) {
        self.patch(&json!({"metadata": {"annotations": {key: value}}})).await;
    }

    pub async fn image(&self, image: &str) {
        self.change(json!({"template": {"spec": {"image": image}}})).await;
    }

    /// Merge-patches an object as a person.
    pub async fn merge(&self, kind: (&str, &str), name: &str, patch: &Value) {
        self.api(kind).patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    }

    pub async fn delete(&self, kind: (&str, &str), name: &str) {
        self.api(kind).delete(name, &DeleteParams::background()).await.unwrap();
    }

    pub fn get(&self, (api_version, kind): (&str, &str), name: &str) -> Value {
        self.cluster.get(api_version, kind, "test", name).unwrap_or(Value::Null)
    }

    pub fn status(&self) -> Value {
        self.get(("windlass.dev/v1alpha1", "NodeDeployment"), "db")["status"].clone()
    }

    /// Waits until `holds` is true for the fleet's status.
    pub async fn until(&self, what: &str, mut holds: impl FnMut(&Value) -> bool) -> Value {
        // The watch sees states between two polls.
        let mut from = self.seen.lock().unwrap().len();
        for _ in 0..36_000 {
            let status = self.status();
            if holds(&status) {
                return status;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
            let passed = self.seen.lock().unwrap().get(from..).unwrap_or_default().to_vec();
            from += passed.len();
            if let Some(status) = passed.iter().map(|f| f["status"].clone()).find(&mut holds) {
                return status;
            }
        }
        panic!("waited in vain until {what}:\n{}\n{:?}", to_text(&self.status()), self.names(NODE));
    }

    pub async fn rest(&self, seconds: u64) {
        tokio::time::sleep(Duration::from_secs(seconds)).await;
    }

    /// The stages observed since the last call, in order.
    pub fn stages(&self) -> Vec<String> {
        let seen = std::mem::take(&mut *self.seen.lock().unwrap());
        let mut stages: Vec<String> =
            seen.iter().filter_map(|s| Some(s["status"]["rollout"]["stage"].as_str()?.to_owned())).collect();
        stages.dedup();
        stages
    }

    /// Every observed state of the fleet, with its version.
    pub fn seen_objects(&self) -> Vec<(u64, Value)> {
        let seen = self.seen.lock().unwrap();
        let version = |f: &Value| text(&f["metadata"], "resourceVersion").parse().unwrap_or_default();
        seen.iter().map(|f| (version(f), f.clone())).collect()
    }

    /// Steers a pod.
    pub async fn steer(&self, pod: &str, word: &str) {
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": format!("steer-{pod}"), "labels": {STEER_LABEL: "true"}}, "data": {pod: word}});
        let _ = self.try_create(map).await;
    }

    /// How many plans of this recipe a node has completed.
    pub fn completed(&self, node: &str, recipe: &str) -> usize {
        let history = self.get(NODE, node)["status"]["history"].as_array().cloned().unwrap_or_default();
        history.iter().filter(|entry| entry["recipe"] == recipe && entry["outcome"] == "Complete").count()
    }

    pub fn names(&self, (api_version, kind): (&str, &str)) -> Vec<String> {
        let all = self.cluster.snapshot();
        let of_kind = all.iter().filter(|o| o["kind"] == kind && o["apiVersion"] == api_version);
        let mut names: Vec<String> =
            of_kind.filter_map(|o| Some(o["metadata"]["name"].as_str()?.to_owned())).collect();
        names.sort();
        names
    }

    /// The set that the fleet's Service selects.
    pub fn selected(&self) -> String {
        let service = self.get(("v1", "Service"), "db");
        service["spec"]["selector"]["windlass.dev/set"].as_str().unwrap_or_default().to_owned()
    }

    pub fn images(&self) -> Vec<String> {
        let all = self.cluster.snapshot();
        let pods = all.iter().filter(|o| o["kind"] == "Pod");
        let of = |p: &Value| {
            format!(
                "{} {}",
                p["metadata"]["name"].as_str().unwrap(),
                p["spec"]["containers"][0]["image"].as_str().unwrap()
            )
        };
        let mut images: Vec<String> = pods.map(of).collect();
        images.sort();
        images
    }

    /// The notes of all events with this reason.
    pub fn events(&self, reason: &str) -> Vec<String> {
        let all = self.cluster.snapshot();
        let of = all.iter().filter(|o| o["kind"] == "Event" && o["reason"] == reason);
        of.filter(|o| o["regarding"]["kind"] == "NodeDeployment")
            .filter_map(|o| Some(o["note"].as_str()?.to_owned()))
            .collect()
    }

    /// Asserts that nothing is written any more.
    pub async fn is_at_rest(&self) {
        tokio::time::sleep(Duration::from_mins(2)).await;
        let version = self.cluster.version();
        self.cluster.clear_audit();
        tokio::time::sleep(Duration::from_hours(1)).await;
        let written: Vec<_> =
            self.cluster.audit().into_iter().filter(windlass_sim::AuditEntry::is_write).collect();
        assert_eq!(self.cluster.version(), version, "an idle fleet writes nothing: {written:?}");
    }
}

pub fn to_text(value: &Value) -> String {
    serde_json::to_string_pretty(value).unwrap()
}

pub fn condition(status: &Value, type_: &str) -> String {
    let list = status["conditions"].as_array().cloned().unwrap_or_default();
    let found = list.iter().find(|c| c["type"] == type_).cloned().unwrap_or_default();
    let text = |field: &str| found[field].as_str().unwrap_or_default().to_owned();
    format!("{}/{}", text("status"), text("reason"))
}

pub fn is_up_to_date(status: &Value) -> bool {
    condition(status, "UpToDate") == "True/Applied"
        && status["rollout"].is_null()
        && status["phase"] == "Ready"
}

pub fn stage_is(stage: &str) -> impl Fn(&Value) -> bool {
    move |status| status["rollout"]["stage"] == stage
}

/// The set of a rollout to this hash.
pub fn set_of(hash: &str) -> String {
    hash[3..8].to_owned()
}

pub fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().unwrap_or_default()
}

/// The message of a condition.
pub fn message(status: &Value, type_: &str) -> String {
    let list = status["conditions"].as_array().cloned().unwrap_or_default();
    list.iter().find(|c| c["type"] == type_).map(|c| text(c, "message").to_owned()).unwrap_or_default()
}

/// The outcomes in the history.
pub fn outcomes(status: &Value) -> Vec<String> {
    let history = status["history"].as_array().cloned().unwrap_or_default();
    history.iter().map(|h| text(h, "outcome").to_owned()).collect()
}
