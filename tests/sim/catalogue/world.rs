//! A simulated cluster with the operator, the simulated kubelet and a person.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use futures::future::BoxFuture;
use http::{Request, Response};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{
    Api, ApiResource, DeleteParams, DynamicObject, EvictParams, GroupVersionKind, Patch, PatchParams,
    PostParams,
};
use kube::client::Body;
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use windlass::operator::lease::Election;
use windlass::operator::{Health, Operator, OperatorError, PrometheusUrl};
use windlass_sim::kubelet::{Kubelet, STEER_LABEL};
use windlass_sim::{ApiService, AuditEntry, Cluster, ClusterClock, Image, Options, SimBody};

use crate::catalogue::peers::Peers;
use crate::catalogue::scenario::{Change, NAMESPACE, Scenario};
use crate::catalogue::sidecars::Sidecars;

/// A running operator.
pub struct Running {
    pub agent: String,
    pub health: Health,
    pub task: JoinHandle<()>,
}

/// The participants of a run.
pub struct World {
    pub scenario: Scenario,
    pub cluster: Cluster,
    /// The operator's clock, which may be wrong. The cluster has its own.
    pub clock: Arc<ClusterClock>,
    /// The jumps of the operator's clock: when, and by how many seconds.
    jumps: Mutex<Vec<(DateTime<Utc>, i64)>>,
    pub sidecars: Sidecars,
    /// The peers of hooks.
    pub peers: Peers,
    /// Reads of the operator that may be answered from a stale cache.
    stale: Arc<Mutex<BTreeSet<String>>>,
    person: kube::Client,
    kubelet: JoinHandle<()>,
    operators: u32,
    /// True if replicas elect a leader.
    pub elected: bool,
    /// The number of audited requests, and of Lease writes among them.
    leased: Mutex<(usize, u64)>,
    /// True if newly started operators are of a version that renders another pod template.
    pub upgraded: bool,
    /// False if the operator's caches are emptied before each reconcile.
    pub keeps_caches: bool,
}

/// The state before a scenario's change, without faults: the same for every point.
pub struct Standing {
    image: Image,
    sidecars: Sidecars,
    operators: u32,
}

/// A network: a request that was sent arrives, even if its sender gave up. Records the reads that an API server may
/// answer from a stale cache.
#[derive(Clone)]
struct Network {
    service: ApiService,
    stale: Arc<Mutex<BTreeSet<String>>>,
}

/// True if a stale cache may answer: a list with a version, or a watch.
fn may_be_stale(request: &Request<Body>) -> bool {
    let pairs = request.uri().query().unwrap_or_default().split('&').filter_map(|pair| pair.split_once('='));
    let value = |name: &str| pairs.clone().find(|(key, _)| *key == name).map(|(_, value)| value);
    let version = value("resourceVersion").filter(|version| !version.is_empty());
    let watches = value("watch").is_some_and(|word| word == "true" || word == "1");
    request.method() == http::Method::GET
        && if watches { version.is_none_or(|v| v == "0") } else { version.is_some() }
}

impl tower::Service<Request<Body>> for Network {
    type Response = Response<SimBody>;
    type Error = tower::BoxError;
    type Future = BoxFuture<'static, Result<Response<SimBody>, tower::BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), tower::BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        if may_be_stale(&request) {
            self.stale.lock().unwrap_or_else(PoisonError::into_inner).insert(request.uri().to_string());
        }
        let sent = tokio::spawn(self.service.call(request));
        Box::pin(async move { Ok(sent.await??) })
    }
}

/// The taint of a machine that is being drained.
const LEAVING: &str = "example.com/leaving";

fn machine(name: &str) -> Value {
    let room = json!({"cpu": "10000", "memory": "100Ti", "ephemeral-storage": "100Ti", "pods": "100000"});
    json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": name},
        "status": {"capacity": room, "allocatable": room},
    })
}

fn definitions() -> &'static [Value] {
    static DEFINITIONS: std::sync::OnceLock<Vec<Value>> = std::sync::OnceLock::new();
    DEFINITIONS.get_or_init(|| {
        windlass::api::crd::crds().iter().map(|crd| serde_json::to_value(crd).unwrap()).collect()
    })
}

impl World {
    /// A cluster with this seed and one machine.
    pub fn new(scenario: Scenario, seed: u64) -> Self {
        // The oracles examine every change after the run.
        Self::remembering(scenario, seed, 1_000_000)
    }

    /// The same with a limited history.
    pub fn remembering(scenario: Scenario, seed: u64, changes: usize) -> Self {
        let mut options = Options::seeded(seed);
        options.history = changes;
        let begins_at = DateTime::from_timestamp(scenario.begins_at(), 0).unwrap();
        options.clock = ClusterClock::starting_at(begins_at);
        let clock = ClusterClock::starting_at(begins_at);
        let cluster = Cluster::start(options);
        for definition in definitions() {
            cluster.install(definition.clone()).unwrap();
        }
        cluster.install(machine("played-0")).unwrap();
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}});
        cluster.install(namespace).unwrap();
        Self::around(scenario, cluster, clock, Sidecars::default())
    }

    /// A snapshot to continue from.
    pub fn standing(&self) -> Standing {
        let image = self.cluster.image();
        Standing { image, sidecars: self.sidecars.copy(), operators: self.operators }
    }

    /// Continues from a snapshot, with a new operator and kubelet.
    pub fn resume(scenario: Scenario, standing: &Standing) -> Self {
        let clock = ClusterClock::starting_at(standing.image.now());
        let cluster = Cluster::resume(&standing.image);
        let mut world = Self::around(scenario, cluster, clock, standing.sidecars.copy());
        world.operators = standing.operators;
        world
    }

    fn around(scenario: Scenario, cluster: Cluster, clock: Arc<ClusterClock>, sidecars: Sidecars) -> Self {
        let kubelet = Kubelet::new(cluster.client("kubelet", "default"), cluster.clock())
            .probe(sidecars.probe())
            .probe_interval(Duration::from_secs(1))
            .probe_on_notify(sidecars.news());
        let kubelet = tokio::spawn(async move {
            kubelet.run().await;
        });
        let person = cluster.client("person", NAMESPACE);
        Self {
            scenario,
            cluster,
            clock,
            jumps: Mutex::default(),
            sidecars,
            peers: Peers::default(),
            stale: Arc::default(),
            person,
            kubelet,
            operators: 0,
            elected: false,
            leased: Mutex::default(),
            upgraded: false,
            keeps_caches: true,
        }
    }

    /// Makes the operator's clock jump.
    pub fn jump(&self, seconds: i64) {
        self.clock.jump(TimeDelta::seconds(seconds));
        self.jumps.lock().unwrap_or_else(PoisonError::into_inner).push((self.cluster.clock().now(), seconds));
    }

    /// True if a window was open by the operator's clock, so many seconds before the cluster had this age. The windows
    /// are open in every even minute, in any time zone.
    pub fn is_window_open(&self, age_micros: u64, seconds_before: i64) -> bool {
        let at = DateTime::from_timestamp(self.scenario.begins_at(), 0).unwrap_or_default()
            + TimeDelta::microseconds(age_micros as i64);
        let jumps = self.jumps.lock().unwrap_or_else(PoisonError::into_inner);
        let jumped: i64 = jumps.iter().filter(|(when, _)| *when <= at).map(|(_, seconds)| seconds).sum();
        let read = at.timestamp() + jumped - seconds_before;
        read.div_euclid(60) % 2 == 0
    }

    /// Starts an operator.
    pub fn start_operator(&mut self) -> Running {
        let (operator, agent) = self.operator();
        let health = operator.health();
        let task = tokio::spawn(async move {
            let ended = operator.run(std::future::pending()).await;
            panic!("the operator ended by itself: {ended:?}");
        });
        Running { agent, health, task }
    }

    /// Starts a replica that acts while it holds the Lease, and restarts when it has lost it, as the kubelet would.
    pub fn start_replica(&mut self) -> Running {
        let (first, agent) = self.operator();
        let health = first.health();
        let (again, _) = self.operator_of(&agent);
        let (once_more, _) = self.operator_of(&agent);
        let election = Election {
            namespace: NAMESPACE.to_owned(),
            name: "windlass".to_owned(),
            identity: agent.clone(),
        };
        let task = tokio::spawn(async move {
            // Each of two faults may cost it the Lease.
            for operator in [first, again, once_more] {
                match operator.elect(election.clone()).run(std::future::pending()).await {
                    Err(OperatorError::LostLease(_)) => {}
                    ended => panic!("the operator ended by itself: {ended:?}"),
                }
            }
            panic!("the operator lost its lease three times");
        });
        Running { agent, health, task }
    }

    fn operator(&mut self) -> (Operator, String) {
        self.operators += 1;
        self.operator_of(&format!("windlass/{}", self.operators))
    }

    fn operator_of(&self, agent: &str) -> (Operator, String) {
        let network = Network { service: self.cluster.service(agent), stale: self.stale.clone() };
        let operator = Operator::new(kube::Client::new(network, NAMESPACE))
            .clock(self.clock.clone())
            .sidecars(Arc::new(self.sidecars.clone()))
            .hook_client(Arc::new(self.peers.clone()))
            .prometheus(PrometheusUrl::parse("http://prometheus").unwrap())
            .stateful_sets(self.scenario.is_held());
        let operator = if self.scenario.change == Change::Drain {
            operator.drain([LEAVING.to_owned()])
        } else {
            operator
        };
        let operator =
            if self.upgraded { operator.pod_annotation("windlass.test/version", "2") } else { operator };
        let operator = if self.keeps_caches { operator } else { operator.without_caches() };
        (operator, agent.to_owned())
    }

    /// The store's version without Lease writes: it differs if anything else changed.
    pub fn version(&self) -> u64 {
        if !self.elected {
            return self.cluster.version();
        }
        let of_lease =
            |e: &&AuditEntry| e.is_write() && e.resource.starts_with("leases") && e.wrote.0 < e.wrote.1;
        // Called every second; counts only new requests.
        let mut counted = self.leased.lock().unwrap_or_else(PoisonError::into_inner);
        let news = self.cluster.audit_after(counted.0);
        counted.0 += news.len();
        counted.1 += news.iter().filter(of_lease).count() as u64;
        self.cluster.version() - counted.1
    }

    fn api(&self, api_version: &str, kind: &str) -> Api<DynamicObject> {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        if matches!(kind, "Namespace" | "Node") {
            return Api::all_with(self.person.clone(), &resource);
        }
        Api::namespaced_with(self.person.clone(), NAMESPACE, &resource)
    }

    /// Creates an object.
    pub async fn create(&self, object: Value) {
        let text = |field: &str| object[field].as_str().unwrap_or_default().to_owned();
        let api = self.api(&text("apiVersion"), &text("kind"));
        let object: DynamicObject = serde_json::from_value(object).unwrap();
        api.create(&PostParams::default(), &object).await.unwrap();
    }

    /// Merge-patches an object, which may not exist any more.
    pub async fn patch(&self, api_version: &str, kind: &str, name: &str, patch: &Value) {
        let api = self.api(api_version, kind);
        tolerate(api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await, name);
    }

    /// Merge-patches the status of an object of Windlass.
    pub async fn patch_status(&self, kind: &str, name: &str, patch: &Value) {
        let api = self.api("windlass.dev/v1alpha1", kind);
        tolerate(api.patch_status(name, &PatchParams::default(), &Patch::Merge(patch)).await, name);
    }

    /// Merge-patches the scenario's object.
    pub async fn patch_object(&self, patch: &Value) {
        self.patch("windlass.dev/v1alpha1", self.scenario.kind(), "db", patch).await;
    }

    /// Merge-patches the StatefulSets that somebody else created, as their owner does.
    async fn patch_sets(&self, patch: &Value) {
        for (name, _) in self.scenario.stateful_sets {
            self.patch("apps/v1", "StatefulSet", name, patch).await;
        }
    }

    /// Sets the image of all nodes.
    pub async fn set_image(&self, image: &str) {
        if self.scenario.is_held() {
            let pod = json!({"spec": {"containers": [Scenario::container(image, "1")]}});
            return self.patch_sets(&json!({"spec": {"template": pod}})).await;
        }
        self.patch_object(&self.scenario.image(image)).await;
    }

    /// Changes the template of all nodes, and not the image.
    pub async fn set_template(&self, value: &str) {
        if self.scenario.is_held() {
            let pod = json!({"spec": {"containers": [Scenario::container("db:1", value)]}});
            return self.patch_sets(&json!({"spec": {"template": pod}})).await;
        }
        self.patch_object(&self.scenario.template(value)).await;
    }

    /// Scales the fleet, or each StatefulSet, by this many nodes; to none if they have fewer.
    pub async fn scale_by(&self, more: i64) {
        if !self.scenario.is_held() {
            let to = (self.scenario.nodes + more).max(0);
            return self.patch_object(&json!({"spec": {"replicas": to}})).await;
        }
        for (name, replicas) in self.scenario.stateful_sets {
            let to = (replicas + more).max(0);
            self.patch("apps/v1", "StatefulSet", name, &json!({"spec": {"replicas": to}})).await;
        }
    }

    /// Deletes an object, which may not exist any more.
    pub async fn delete(&self, api_version: &str, kind: &str, name: &str) {
        let api = self.api(api_version, kind);
        tolerate(api.delete(name, &DeleteParams::background()).await, name);
    }

    /// Evicts a pod, which may not exist any more.
    pub async fn evict(&self, pod: &str) {
        let api: Api<Pod> = Api::namespaced(self.person.clone(), NAMESPACE);
        // As kubectl does, until the budget allows it.
        for _ in 0..12 {
            let evicted = api.evict(pod, &EvictParams::default()).await;
            let is_kept = matches!(&evicted, Err(kube::Error::Api(status)) if status.code == 429);
            if !is_kept {
                return tolerate(evicted, pod);
            }
            tokio::time::sleep(Duration::from_secs(5)).await;
        }
    }

    /// Steers pods and claims.
    pub async fn steer(&self, data: Value) {
        let map = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "steer", "namespace": NAMESPACE, "labels": {STEER_LABEL: "true"}},
            "data": data,
        });
        let api = self.api("v1", "ConfigMap");
        tolerate(api.delete("steer", &DeleteParams::background()).await, "steer");
        let map: DynamicObject = serde_json::from_value(map).unwrap();
        api.create(&PostParams::default(), &map).await.unwrap();
    }

    /// Cordons or uncordons the only machine.
    pub async fn cordon(&self, closed: bool) {
        self.patch("v1", "Node", "played-0", &json!({"spec": {"unschedulable": closed}})).await;
    }

    /// Drains the only machine, and adds another one.
    pub async fn drain(&self) {
        self.cluster.install(machine("spare")).unwrap();
        let taint = json!([{"key": LEAVING, "effect": "NoSchedule"}]);
        self.patch("v1", "Node", "played-0", &json!({"spec": {"taints": taint}})).await;
    }

    /// Lets the claims grow, as a driver of this kind does it.
    pub async fn grow(&self, expansion: &str) {
        let class = json!({"allowVolumeExpansion": true, "parameters": {"expansion": expansion}});
        self.patch("storage.k8s.io/v1", "StorageClass", "standard", &class).await;
        self.patch_object(&self.scenario.grown()).await;
    }

    /// The StatefulSets in front of which the scenario puts a StatefulSetRollout.
    pub fn stateful_sets(&self) -> Vec<Value> {
        let names = self.scenario.stateful_sets.iter().map(|(name, _)| *name);
        names.filter_map(|name| self.get("apps/v1", "StatefulSet", name)).collect()
    }

    /// An object as it is stored.
    pub fn get(&self, api_version: &str, kind: &str, name: &str) -> Option<Value> {
        self.cluster.get(api_version, kind, NAMESPACE, name)
    }

    /// Reads of the operator that an API server may answer from a stale cache.
    pub fn stale_reads(&self) -> BTreeSet<String> {
        self.stale.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The nodes that an action may concern: the serving ones, and those being added or removed.
    pub fn nodes_about(&self) -> Vec<String> {
        if !self.scenario.makes_sets() {
            return self.scenario.node_names();
        }
        let status = self.object().map(|o| o["status"].clone()).unwrap_or_default();
        let rollout = &status["rollout"];
        let told = [&status["activeSet"], &rollout["entrantSet"], &rollout["incumbentSet"]];
        let mut sets: Vec<&str> = told.iter().filter_map(|set| set.as_str()).collect();
        if sets.is_empty() {
            return self.scenario.node_names();
        }
        sets.sort_unstable();
        sets.dedup();
        sets.iter().flat_map(|set| self.scenario.nodes_of(set)).collect()
    }

    /// The scenario's object.
    pub fn object(&self) -> Option<Value> {
        self.get("windlass.dev/v1alpha1", self.scenario.kind(), "db")
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.kubelet.abort();
    }
}

/// A person ignores a missing object; any other refusal is a mistake of the catalogue.
fn tolerate<T>(result: kube::Result<T>, name: &str) {
    match result {
        Ok(_) => {}
        Err(kube::Error::Api(status)) if status.code == 404 => {}
        Err(error) => panic!("a person is refused at {name}: {error}"),
    }
}

#[test]
fn list_without_resource_version_is_never_stale() {
    let stale = |uri: &str| may_be_stale(&Request::get(uri).body(Body::empty()).unwrap());
    assert!(!stale("/api/v1/pods?limit=500&labelSelector=a"));
    assert!(!stale("/api/v1/pods?watch=true&resourceVersion=17"));
    assert!(stale("/api/v1/pods?limit=500&resourceVersion=0"));
    assert!(stale("/api/v1/pods?resourceVersion=17"));
    assert!(stale("/api/v1/pods?watch=true&resourceVersion=0"));
    assert!(stale("/api/v1/pods?watch=true"));
}
