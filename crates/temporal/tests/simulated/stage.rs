//! A cluster, a Temporal, the operator, and a simulated kubelet whose pods poll that Temporal.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kube::Client;
use kube::api::{
    Api, ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams,
    PostParams,
};
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use windlass_sim::{Cluster, ClusterClock, Latency, Options};
use windlass_temporal::per_version::GroupKind;
use windlass_temporal::port::{BuildId, DeploymentName};
use windlass_temporal::{Metrics, Workers};
use windlass_temporal_fake::{FakeTemporal, Settings};

use crate::fake_hooks::FakeHooks;

pub const NAMESPACE: &str = "shop";
pub const NAME: &str = "orders";

pub struct Stage {
    pub cluster: Arc<Cluster>,
    pub temporal: FakeTemporal,
    pub hooks: FakeHooks,
    /// The operators' metrics.
    pub metrics: Metrics,
    /// The operator's clock, which follows the cluster's until a test makes it jump.
    pub clock: Arc<ClusterClock>,
    operator: Arc<Mutex<Option<JoinHandle<()>>>>,
    kubelet: JoinHandle<()>,
    /// Workflows that were ever found to run without workers.
    pub orphaned: Arc<Mutex<BTreeSet<String>>>,
}

/// The end of a run: the workers, and what a person reads.
#[derive(Debug, PartialEq)]
pub struct End {
    pub names: Vec<String>,
    pub outcomes: Vec<Value>,
    pub ramps: Vec<i32>,
    pub gates: usize,
}

impl Stage {
    pub fn new() -> Self {
        Self::with(Settings::default())
    }

    pub fn with(settings: Settings) -> Self {
        let stage = Self::without_operator(settings);
        stage.install_connections();
        stage.start_operator();
        stage
    }

    /// A stage where the kinds of connections are not installed yet.
    pub fn without_connections() -> Self {
        let stage = Self::without_operator(Settings::default());
        stage.start_operator();
        stage
    }

    pub fn install_connections(&self) {
        for definition in &windlass_temporal::api::crds()[1..] {
            self.cluster.install(json!(definition)).unwrap();
        }
    }

    fn without_operator(settings: Settings) -> Self {
        let options = Options { latency: Some(Latency(1, 4)), ..Options::seeded(7) };
        let cluster = Arc::new(Cluster::start(options));
        cluster.install(json!(windlass_temporal::api::crds()[0])).unwrap();
        cluster.install(scaled_objects()).unwrap();
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}});
        cluster.install(namespace).unwrap();
        let temporal = FakeTemporal::new(cluster.clock(), settings);
        let orphaned = Arc::new(Mutex::new(BTreeSet::new()));
        let client = cluster.client("kubelet", "default");
        let kubelet = tokio::spawn(kubelet(client, temporal.clone(), orphaned.clone()));
        let hooks = FakeHooks::default();
        let clock = ClusterClock::starting_at(cluster.clock().now());
        let metrics = Metrics::default();
        Self { cluster, temporal, hooks, metrics, clock, operator: Arc::default(), kubelet, orphaned }
    }

    /// A stage whose first version is current, and that version.
    pub async fn running(spec: Value) -> (Self, BuildId) {
        let stage = Self::new();
        stage.create(spec).await;
        let first = stage.target().await;
        stage.until_current(&first).await;
        (stage, first)
    }

    pub fn client(&self) -> Client {
        self.cluster.client("person", "default")
    }

    pub fn start_operator(&self) {
        *self.operator.lock().unwrap() = Some(self.one_more_operator("operator"));
    }

    /// Starts another operator.
    pub fn one_more_operator(&self, name: &str) -> JoinHandle<()> {
        operate(name, &self.cluster, &self.temporal, &self.hooks, &self.metrics, &self.clock)
    }

    pub fn kill_operator(&self) {
        if let Some(operator) = self.operator.lock().unwrap().take() {
            operator.abort();
        }
    }

    /// An action that kills the operator and starts another one a second later.
    pub fn killer(&self) -> impl FnOnce() + Send + 'static {
        let (cluster, temporal, operator) =
            (self.cluster.clone(), self.temporal.clone(), self.operator.clone());
        let (hooks, metrics, clock) = (self.hooks.clone(), self.metrics.clone(), self.clock.clone());
        move || {
            if let Some(old) = operator.lock().unwrap().take() {
                old.abort();
            }
            tokio::spawn(async move {
                tokio::time::sleep(Duration::from_secs(1)).await;
                *operator.lock().unwrap() =
                    Some(operate("operator", &cluster, &temporal, &hooks, &metrics, &clock));
            });
        }
    }

    pub fn api(&self, kind: &str) -> Api<DynamicObject> {
        let (group, version) = match kind {
            "WorkerDeployment" => ("windlass.dev", "v1alpha1"),
            "Event" => ("events.k8s.io", "v1"),
            "ScaledObject" => ("keda.sh", "v1alpha1"),
            "PodDisruptionBudget" => ("policy", "v1"),
            "Secret" => ("", "v1"),
            _ => ("apps", "v1"),
        };
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        Api::namespaced_with(self.client(), NAMESPACE, &resource)
    }

    pub async fn create(&self, spec: Value) {
        self.try_create(spec).await.unwrap();
    }

    pub async fn try_create(&self, spec: Value) -> kube::Result<()> {
        let object = json!({
            "apiVersion": "windlass.dev/v1alpha1", "kind": "WorkerDeployment",
            "metadata": {"name": NAME, "namespace": NAMESPACE}, "spec": spec,
        });
        let object = serde_json::from_value(object).unwrap();
        self.api("WorkerDeployment").create(&PostParams::default(), &object).await.map(drop)
    }

    pub async fn patch(&self, patch: Value) {
        self.try_patch(patch).await.unwrap();
    }

    pub async fn try_patch(&self, patch: Value) -> kube::Result<()> {
        let params = PatchParams::default();
        self.api("WorkerDeployment").patch(NAME, &params, &Patch::Merge(patch)).await.map(drop)
    }

    pub async fn annotate(&self, key: &str, value: &str) {
        self.patch(json!({"metadata": {"annotations": {key: value}}})).await;
    }

    pub async fn set_image(&self, tag: &str) {
        self.patch(json!({"spec": {"template": template(tag)}})).await;
    }

    /// Sets another image, and returns the new target.
    pub async fn roll_to(&self, tag: &str) -> BuildId {
        self.set_image(tag).await;
        self.target().await
    }

    pub async fn delete(&self) {
        self.api("WorkerDeployment").delete(NAME, &DeleteParams::default()).await.unwrap();
    }

    pub fn object(&self) -> Option<Value> {
        self.cluster.get("windlass.dev/v1alpha1", "WorkerDeployment", NAMESPACE, NAME)
    }

    pub fn status(&self) -> Value {
        self.object().map(|object| object["status"].clone()).unwrap_or_default()
    }

    /// Status and reason of a condition, such as `True/Applied`.
    pub fn condition(&self, type_: &str) -> String {
        let status = self.status();
        let found = status["conditions"].as_array().into_iter().flatten().find(|c| c["type"] == type_);
        let text = |field: &str| found.and_then(|c| c[field].as_str()).unwrap_or("-").to_owned();
        format!("{}/{}", text("status"), text("reason"))
    }

    pub fn message(&self, type_: &str) -> String {
        let status = self.status();
        let found = status["conditions"].as_array().into_iter().flatten().find(|c| c["type"] == type_);
        found.and_then(|c| c["message"].as_str()).unwrap_or_default().to_owned()
    }

    pub fn deployments(&self) -> Vec<Value> {
        self.cluster.snapshot_of(NAMESPACE, &["Deployment"])
    }

    pub fn names(&self) -> Vec<String> {
        let name = |d: &Value| d["metadata"]["name"].as_str().unwrap().to_owned();
        self.deployments().iter().map(name).collect()
    }

    pub fn deployment_of(&self, build: &BuildId) -> Option<Value> {
        self.deployments()
            .into_iter()
            .find(|d| d["metadata"]["labels"]["windlass.dev/build-id"] == build.as_str())
    }

    pub fn events(&self, reason: &str) -> usize {
        self.cluster.snapshot_of(NAMESPACE, &["Event"]).iter().filter(|e| e["reason"] == reason).count()
    }

    /// The target, once the operator has observed the current spec.
    pub async fn target(&self) -> BuildId {
        self.until("the spec is looked at", |s| {
            let object = s.object().unwrap();
            let status = &object["status"];
            status["targetBuildID"].is_string()
                && status["observedGeneration"] == object["metadata"]["generation"]
        })
        .await;
        BuildId::new(self.status()["targetBuildID"].as_str().unwrap())
    }

    /// The time of the operator's clock, in RFC 3339.
    pub fn clock_time(&self) -> String {
        windlass_clock::Clock::now(&*self.clock).to_rfc3339_opts(chrono::SecondsFormat::Secs, true)
    }

    pub fn record(&self, build: &BuildId) -> Value {
        let status = self.status();
        let found =
            status["versions"].as_array().into_iter().flatten().find(|v| v["buildID"] == build.as_str());
        found.cloned().unwrap_or_default()
    }

    /// Waits for a condition, at most ten minutes of the cluster's time.
    pub async fn until(&self, what: &str, is_so: impl Fn(&Self) -> bool) {
        for _ in 0..6_000 {
            if is_so(self) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        panic!("{what} did not come; status: {:#}", self.status());
    }

    pub async fn until_current(&self, build: &BuildId) {
        self.until(&format!("{build} is current"), |s| {
            s.status()["currentBuildID"] == build.as_str() && s.condition("UpToDate") == "True/Applied"
        })
        .await;
    }

    pub async fn seconds(&self, seconds: u64) {
        tokio::time::sleep(Duration::from_secs(seconds)).await;
    }

    /// The ramps written, in percent; `0`: a ramp was taken back, `100`: a new current version.
    pub fn ramps(&self) -> Vec<i32> {
        use windlass_temporal::port::RoutingWrite;
        use windlass_temporal_fake::Write;
        let of = |write: Write| match write {
            Write::Routing(RoutingWrite::Ramp { percent, .. }) => Some(percent.0 as i32),
            Write::Routing(RoutingWrite::ClearRamp) => Some(0),
            Write::Routing(RoutingWrite::Current(_)) => Some(100),
            _ => None,
        };
        self.temporal.writes().into_iter().filter_map(of).collect()
    }

    /// A first version with this spec, a workflow that is pinned to it, a second version, and the end of the first.
    pub async fn through_two_versions(&self, spec: Value) -> End {
        self.create(spec).await;
        let v1 = self.target().await;
        self.until_current(&v1).await;
        self.temporal.start(&deployment(), "long", None, 99.0);
        let v2 = self.roll_to("v2").await;
        self.until_current(&v2).await;
        self.temporal.end("long");
        self.until("v1 is gone", |s| s.record(&v1).is_null() && s.deployment_of(&v1).is_none()).await;
        let mut ramps = self.ramps();
        // A write whose answer or record was lost may be made twice in a row.
        ramps.dedup();
        let history = self.status()["history"].clone();
        End {
            names: self.names(),
            outcomes: history.as_array().unwrap().iter().map(|entry| entry["outcome"].clone()).collect(),
            ramps,
            gates: self.temporal.gates(),
        }
    }

    pub fn assert_no_orphans(&self) {
        assert_eq!(*self.orphaned.lock().unwrap(), BTreeSet::new(), "workflows lost their workers");
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        self.kill_operator();
        self.kubelet.abort();
    }
}

fn operate(
    name: &str,
    cluster: &Cluster,
    temporal: &FakeTemporal,
    hooks: &FakeHooks,
    metrics: &Metrics,
    clock: &Arc<ClusterClock>,
) -> JoinHandle<()> {
    let workers = Workers::new(cluster.client(name, "default"), Arc::new(temporal.clone()));
    let kinds = GroupKind::defaults().into_iter().chain(["ScaledObject.keda.sh".parse().unwrap()]);
    let workers =
        workers.resources(kinds).clock(clock.clone()).hooks(Arc::new(hooks.clone())).metrics(metrics.clone());
    tokio::spawn(workers.run(std::future::pending()))
}

/// The definition of a kind of KEDA, without its schema.
fn scaled_objects() -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "scaledobjects.keda.sh"},
        "spec": {
            "group": "keda.sh", "scope": "Namespaced",
            "names": {"kind": "ScaledObject", "listKind": "ScaledObjectList", "plural": "scaledobjects", "singular": "scaledobject"},
            "versions": [{
                "name": "v1alpha1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                    "spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
                    "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
                }}},
            }],
        },
    })
}

/// The deployment's name in Temporal.
pub fn deployment() -> DeploymentName {
    DeploymentName::new(format!("{NAMESPACE}/{NAME}"))
}

pub fn template(tag: &str) -> Value {
    json!({"spec": {"containers": [{"name": "worker", "image": format!("orders:{tag}")}]}})
}

/// A spec that ramps in two short steps and retires versions quickly.
pub fn spec(tag: &str) -> Value {
    json!({
        "replicas": 2,
        "connection": {"address": "temporal:7233"},
        "template": template(tag),
        "rollout": {"steps": [{"percent": 5, "pauseSeconds": 5}, {"percent": 50, "pauseSeconds": 5}]},
        "sunset": {"scaleDownDelaySeconds": 5, "deleteDelaySeconds": 10},
        "progressDeadlineSeconds": 60,
    })
}

/// Simulates the Deployment controller and the workers. An image whose tag begins with `broken` never becomes
/// available; one with `mute` runs and polls nobody. With an address that begins with `broken`, new pods crash next to the old ones.
async fn kubelet(client: Client, temporal: FakeTemporal, orphaned: Arc<Mutex<BTreeSet<String>>>) {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("apps", "v1", "Deployment"));
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
    let mut polled: BTreeSet<(String, String)> = BTreeSet::new();
    loop {
        tokio::time::sleep(Duration::from_millis(200)).await;
        let Ok(list) = api.list(&ListParams::default()).await else { continue };
        let mut polls: BTreeMap<(String, String), BTreeMap<&str, u32>> = BTreeMap::new();
        for item in list.items {
            let live = json!(item);
            let container = &live["spec"]["template"]["spec"]["containers"][0];
            let tag = container["image"].as_str().unwrap_or_default().rsplit(':').next().unwrap_or_default();
            let env = |name: &str| {
                let of = container["env"].as_array().into_iter().flatten().find(|v| v["name"] == name);
                of.and_then(|v| v["value"].as_str()).unwrap_or_default().to_owned()
            };
            let replicas = live["spec"]["replicas"].as_i64().unwrap_or(1);
            let up = if tag.starts_with("broken") { 0 } else { replicas };
            let mut status = json!({
                "observedGeneration": live["metadata"]["generation"], "replicas": replicas,
                "updatedReplicas": replicas, "readyReplicas": up, "availableReplicas": up,
            });
            if env("TEMPORAL_ADDRESS").starts_with("broken") {
                status["replicas"] = (replicas + 1).into();
                status["updatedReplicas"] = 1.into();
                status["conditions"] = json!([{"type": "Progressing", "status": "False",
                    "reason": "ProgressDeadlineExceeded", "message": "ReplicaSet has timed out progressing."}]);
            }
            if live["status"] != status {
                let namespace = live["metadata"]["namespace"].as_str().unwrap();
                let of: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &resource);
                let patch = Patch::Merge(json!({"status": status}));
                let name = live["metadata"]["name"].as_str().unwrap();
                let _ = of.patch_status(name, &PatchParams::default(), &patch).await;
            }
            let count = if tag.starts_with("mute") { 0 } else { up as u32 };
            let version = (env("TEMPORAL_DEPLOYMENT_NAME"), env("TEMPORAL_WORKER_BUILD_ID"));
            let queue = if tag.starts_with("other") { "other" } else { "orders" };
            *polls.entry(version).or_default().entry(queue).or_default() += count;
        }
        for ((of, build), queues) in &polls {
            for (queue, count) in queues {
                temporal.poll(&DeploymentName::new(of), &BuildId::new(build), &[queue], *count);
            }
        }
        let seen: BTreeSet<(String, String)> = polls.into_keys().collect();
        for (of, build) in polled.difference(&seen) {
            temporal.poll(&DeploymentName::new(of.clone()), &BuildId::new(build.clone()), &[], 0);
        }
        polled = seen;
        orphaned.lock().unwrap().extend(temporal.orphans());
    }
}
