//! A namespace with a kubelet of its own, whose one node is named as the namespace.

use std::{
    fs,
    path::PathBuf,
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use k8s_openapi::api::{
    core::v1::{ContainerStatus, Event, Pod},
    storage::v1::StorageClass,
};
use kube::{
    Api, Client, Resource,
    api::{DeleteParams, ListParams, PostParams},
};
use serde_json::{Value, json};
use windlass::clock::monotonic;
use windlass_process_kubelet::{BackOff, Image, Images, ProcessKubelet, RunningKubelet};

use windlass_harness::controlplane::{ControlPlane, Namespace};

pub const PATIENCE: Duration = Duration::from_mins(1);

pub struct World {
    pub cp: &'static ControlPlane,
    pub ns: Namespace,
    pub client: Client,
    pub images: Images,
    pub folder: PathBuf,
    kubelet: Option<RunningKubelet>,
}

impl World {
    pub async fn new(name: &str) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let cp = ControlPlane::shared().await;
        let ns = cp.namespace(name).await;
        let client = cp.client().await;
        let images = Images::new();
        // Commands of an image without programs are this machine's.
        images.add("tools:1", Image::new());
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("windlass-processes-{}-{count}", std::process::id()));
        let class = json!({"metadata": {"name": &*ns}, "provisioner": "windlass.test/process"});
        create::<StorageClass>(&Api::all(client.clone()), class).await;
        let mut world = Self { cp, ns, client, images, folder, kubelet: None };
        world.start().await;
        world
    }

    /// Starts the kubelet, in the folder of the one before it.
    pub async fn start(&mut self) {
        let kubelet = ProcessKubelet::new(self.client.clone(), &self.folder)
            .nodes([&*self.ns])
            .taint("windlass.test/process", "true")
            .images(&self.images)
            .storage_class(&self.ns)
            .expansions(&format!("{}-", &*self.ns))
            .back_off(BackOff { base: Duration::from_secs(2), most: Duration::from_mins(5) });
        self.kubelet = Some(kubelet.start().await.expect("the kubelet starts"));
    }

    /// Ends the kubelet, and with it all that it runs.
    pub fn stop(&mut self) {
        self.kubelet = None;
    }

    pub fn address(&self, pod: &str) -> String {
        self.kubelet.as_ref().expect("it runs").address(&self.ns, pod).to_string()
    }

    /// Creates a pod on this kubelet's node.
    pub async fn pod(&self, name: &str, spec: Value) {
        self.labelled(json!({"name": name}), spec).await;
    }

    pub async fn labelled(&self, metadata: Value, mut spec: Value) {
        spec["nodeName"] = json!(&*self.ns);
        create(&self.pods(), json!({"metadata": metadata, "spec": spec})).await;
    }

    pub fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), &self.ns)
    }

    pub fn api<K>(&self) -> Api<K>
    where
        K: Resource<Scope = k8s_openapi::NamespaceResourceScope>,
        K::DynamicType: Default,
    {
        Api::namespaced(self.client.clone(), &self.ns)
    }

    /// Waits until something holds for a pod.
    pub async fn until(&self, pod: &str, what: &str, holds: impl Fn(&Value) -> bool) -> Value {
        let until = monotonic() + PATIENCE;
        loop {
            let seen = self.pods().get_opt(pod).await.expect("the API server answers");
            let seen = serde_json::to_value(seen).expect("a pod is JSON");
            if holds(&seen) {
                return seen;
            }
            assert!(
                monotonic() < until,
                "waited in vain until {what}; last seen of {pod}: {:#}",
                seen["status"]
            );
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    pub async fn until_ready(&self, pod: &str) -> Value {
        self.until(pod, "it is ready", |pod| condition(pod, "Ready") == "True").await
    }

    pub async fn until_phase(&self, pod: &str, phase: &str) -> Value {
        self.until(pod, &format!("its phase is {phase}"), |pod| pod["status"]["phase"] == phase).await
    }

    pub async fn until_gone(&self, pod: &str) {
        self.until(pod, "it is gone", Value::is_null).await;
    }

    pub async fn delete(&self, pod: &str, grace: Option<u32>) {
        let params = DeleteParams { grace_period_seconds: grace, ..DeleteParams::default() };
        self.pods().delete(pod, &params).await.expect("it is deleted");
    }

    /// What a pod's container wrote, as kubectl shows it.
    pub async fn logs(&self, arguments: &[&str]) -> String {
        self.cp.kubectl(&[&["-n", &*self.ns, "logs"], arguments].concat()).await.ok()
    }

    /// The reasons and messages of a pod's events, in the order of their times.
    pub async fn events(&self, pod: &str) -> Vec<(String, String)> {
        let events: Api<Event> = self.api();
        let about = ListParams::default().fields(&format!("involvedObject.name={pod}"));
        let events = events.list(&about).await.expect("events are listed").items;
        let pair = |event: Event| (event.reason.unwrap_or_default(), event.message.unwrap_or_default());
        events.into_iter().map(pair).collect()
    }

    /// Waits for an event with a reason whose message has this in it.
    pub async fn until_event(&self, pod: &str, reason: &str, part: &str) {
        let until = monotonic() + PATIENCE;
        loop {
            let events = self.events(pod).await;
            if events.iter().any(|(r, message)| r == reason && message.contains(part)) {
                return;
            }
            assert!(monotonic() < until, "no event {reason} with {part:?} about {pod}: {events:#?}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.stop();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

pub async fn create<K>(api: &Api<K>, object: Value)
where
    K: Clone + std::fmt::Debug + serde::Serialize + serde::de::DeserializeOwned,
{
    let object: K = serde_json::from_value(object).expect("an object of that kind");
    api.create(&PostParams::default(), &object).await.expect("it is created");
}

/// A container that runs a script.
pub fn shell(name: &str, script: &str) -> Value {
    json!({"name": name, "image": "tools:1", "command": ["sh", "-c", script]})
}

/// `json` with the fields of another value.
pub fn with(mut value: Value, more: Value) -> Value {
    let Value::Object(more) = more else { panic!("only objects have fields") };
    value.as_object_mut().expect("an object").extend(more);
    value
}

pub fn condition(pod: &Value, kind: &str) -> String {
    let all = pod["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let found = all.iter().find(|condition| condition["type"] == kind);
    found.and_then(|condition| condition["status"].as_str()).unwrap_or_default().to_owned()
}

/// The status of one container, whatever its kind.
pub fn container(pod: &Value, name: &str) -> Value {
    let lists =
        ["containerStatuses", "initContainerStatuses"].map(|list| pod["status"][list].as_array().cloned());
    let all: Vec<Value> = lists.into_iter().flatten().flatten().collect();
    let lists = ["containers", "initContainers"].map(|list| pod["spec"][list].as_array().cloned());
    let named: Vec<Value> =
        lists.into_iter().flatten().flatten().map(|container| container["name"].clone()).collect();
    let told: Vec<Value> = all.iter().map(|status| status["name"].clone()).collect();
    assert!(told.is_empty() || told == named, "a status each and no more: {told:?} {named:?}");
    let found = all.into_iter().find(|status| status["name"] == name).unwrap_or_default();
    let typed: Result<ContainerStatus, _> = serde_json::from_value(found.clone());
    assert!(found.is_null() || typed.is_ok());
    found
}
