//! A control plane, a namespace in it, and the operator under its own account, with the rights of deploy/rbac: for
//! benchmarks, and for tests that need a control plane of their own.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use kube::api::{
    Api, ApiResource, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams, PostParams,
};
use kube::runtime::wait::await_condition;
use serde_json::{Value, json};
use tokio::process::{Child, Command};
use windlass_clock::monotonic;

use crate::controlplane::{Audit, ControlPlane, Mark, Namespace, Options};
pub use crate::kit::{condition, is_applied};

/// Longer than anything here may take.
const PATIENCE: Duration = Duration::from_mins(20);

/// Where the operator's rights reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// deploy/rbac/one-namespace.yaml
    OneNamespace,
    /// deploy/rbac/all-namespaces.yaml
    AllNamespaces,
}

impl Reach {
    /// The file with the account and its rights.
    pub fn file(self) -> PathBuf {
        crate::root().join(match self {
            Self::OneNamespace => "deploy/rbac/one-namespace.yaml",
            Self::AllNamespaces => "deploy/rbac/all-namespaces.yaml",
        })
    }

    /// The file with the rights for StatefulSetRollouts.
    pub fn file_of_stateful_sets(self) -> PathBuf {
        crate::root().join(match self {
            Self::OneNamespace => "deploy/rbac/stateful-sets-one-namespace.yaml",
            Self::AllNamespaces => "deploy/rbac/stateful-sets-all-namespaces.yaml",
        })
    }
}

/// A control plane with a namespace in which the operator works.
pub struct World {
    pub cp: ControlPlane,
    pub ns: Namespace,
    reach: Reach,
    client: kube::Client,
    kubeconfig: PathBuf,
    user: String,
    operator: Option<Child>,
    port: u16,
}

impl World {
    /// Starts a control plane, and the operator in a namespace of it.
    pub async fn start(options: Options) -> Self {
        let mut world = Self::without_operator(Reach::OneNamespace, options).await;
        world.start_operator().await;
        world
    }

    /// Starts a control plane in which the operator has its account and rights, and does not run yet.
    pub async fn without_operator(reach: Reach, options: Options) -> Self {
        let cp = ControlPlane::start(options).await.expect("a control plane");
        let ns = cp.namespace("windlass-test").await;
        let home = match reach {
            Reach::OneNamespace => &*ns,
            Reach::AllNamespaces => "windlass-system",
        };
        for file in [reach.file(), reach.file_of_stateful_sets()] {
            cp.kubectl(&["-n", home, "apply", "-f", file.to_str().unwrap()]).await.ok();
        }
        let kubeconfig = cp.service_account_kubeconfig(home, "windlass").await.expect("a kubeconfig");
        let user = format!("system:serviceaccount:{home}:windlass");
        Self { client: cp.client().await, cp, ns, reach, kubeconfig, user, operator: None, port: 0 }
    }

    /// Where the operator's rights reach.
    pub fn reach(&self) -> Reach {
        self.reach
    }

    /// Replaces rights, or adds some.
    pub async fn grant(&self, manifests: &str) {
        self.cp.kubectl_with(&["-n", &self.ns, "apply", "-f", "-"], manifests).await.ok();
    }

    /// Starts the operator and waits until its caches are filled.
    pub async fn start_operator(&mut self) {
        self.start_operator_with(&[]).await;
    }

    /// The same, with more arguments.
    pub async fn start_operator_with(&mut self, arguments: &[&str]) {
        self.port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let log = std::env::var_os("WINDLASS_TEST_LOG").is_some();
        // Another build of the operator can be measured, to compare the two.
        let program = std::env::var_os("WINDLASS_OPERATOR").map_or_else(crate::windlass_bin, Into::into);
        let mut command = Command::new(program);
        command.args(["operator", "--no-leader-elect", "--bind"]).arg(format!("127.0.0.1:{}", self.port));
        if self.reach == Reach::OneNamespace {
            command.args(["--namespace", &self.ns]);
        }
        let child = command
            .args(arguments)
            .env("KUBECONFIG", &self.kubeconfig)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(if log { Stdio::inherit() } else { Stdio::null() })
            .kill_on_drop(true)
            .spawn()
            .expect("the operator starts");
        self.operator = Some(child);
        while self.page("readyz").await.is_none() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Kills the operator with SIGKILL.
    pub async fn kill_operator(&mut self) {
        let mut child = self.operator.take().expect("an operator runs");
        child.start_kill().expect("it can be killed");
        child.wait().await.expect("it ends");
    }

    async fn page(&self, name: &str) -> Option<String> {
        let answer = reqwest::get(format!("http://127.0.0.1:{}/{name}", self.port)).await.ok()?;
        answer.error_for_status().ok()?.text().await.ok()
    }

    /// What the operator counted: the lines of its reconciles.
    pub async fn reconciles(&self) -> Vec<String> {
        let page = self.page("metrics").await.expect("the operator answers");
        let counts = |line: &&str| {
            line.starts_with("windlass_reconcile_total")
                || line.starts_with("windlass_reconcile_duration_seconds_sum")
        };
        page.lines().filter(counts).map(str::to_owned).collect()
    }

    /// The operator's process.
    pub fn operator_pid(&self) -> u32 {
        self.operator.as_ref().and_then(Child::id).expect("an operator runs")
    }

    /// A field of the operator's /proc/PID/status: `VmRSS`, `VmHWM`.
    pub fn memory(&self, field: &str) -> String {
        let pid = self.operator.as_ref().and_then(Child::id).expect("an operator runs");
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix(field));
        line.map_or_else(|| "unknown".to_owned(), |rest| rest[1..].trim().to_owned())
    }

    /// The CPU time that the operator took so far, in seconds.
    pub fn cpu_seconds(&self) -> f64 {
        let pid = self.operator.as_ref().and_then(Child::id).expect("an operator runs");
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
        let ticks = |at: usize| fields.get(at).and_then(|f| f.parse::<f64>().ok()).unwrap_or_default();
        // utime and stime, in ticks of 10 ms.
        (ticks(11) + ticks(12)) / 100.0
    }

    /// The audit log of the operator's requests since a mark.
    pub async fn operator_audit(&self, mark: Mark) -> Audit {
        self.cp.audit_since(mark).await.user(&self.user)
    }

    pub fn api(&self, api_version: &str, kind: &str) -> Api<DynamicObject> {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        Api::namespaced_with(self.client.clone(), &self.ns, &resource)
    }

    pub fn fleets(&self) -> Api<DynamicObject> {
        self.api("windlass.dev/v1alpha1", "NodeDeployment")
    }

    pub fn sets(&self) -> Api<DynamicObject> {
        self.api("apps/v1", "StatefulSet")
    }

    pub async fn create(&self, api_version: &str, kind: &str, mut object: Value) {
        object["apiVersion"] = json!(api_version);
        object["kind"] = json!(kind);
        let object: DynamicObject = serde_json::from_value(object).expect("an object");
        let created = self.api(api_version, kind).create(&PostParams::default(), &object).await;
        created.unwrap_or_else(|e| panic!("{kind} is refused: {e}"));
    }

    pub async fn fleet(&self, fleet: Value) {
        self.create("windlass.dev/v1alpha1", "NodeDeployment", fleet).await;
    }

    /// Merges a change into an object and answers with its new generation.
    pub async fn patch(&self, api: &Api<DynamicObject>, name: &str, patch: Value) {
        let merged = api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await;
        merged.unwrap_or_else(|e| panic!("the patch of {name} is refused: {e}"));
    }

    /// Waits by a watch until something holds; answers with how long that took.
    pub async fn until(
        &self,
        api: Api<DynamicObject>,
        name: &str,
        what: &str,
        holds: impl Fn(&Value) -> bool + Send,
    ) -> Duration {
        let began = monotonic();
        let condition = |object: Option<&DynamicObject>| object.is_some_and(|o| holds(&json!(o)));
        let waited = tokio::time::timeout(PATIENCE, await_condition(api, name, condition)).await;
        waited.unwrap_or_else(|_| panic!("waited in vain until {what}")).expect("the API server answers");
        began.elapsed()
    }

    /// Waits until a fleet has completed what its spec wants.
    pub async fn until_applied(&self, name: &str) -> Duration {
        self.until(self.fleets(), name, "the fleet is up to date", is_applied).await
    }

    pub async fn get(&self, api: &Api<DynamicObject>, name: &str) -> Value {
        json!(api.get(name).await.expect("it is there"))
    }

    /// The UIDs of all pods, sorted.
    pub async fn pod_uids(&self) -> Vec<String> {
        let pods = self.api("v1", "Pod").list(&ListParams::default()).await.expect("a list");
        let mut uids: Vec<String> = pods.items.into_iter().filter_map(|p| p.metadata.uid).collect();
        uids.sort();
        uids
    }
}

/// A fleet of so many nodes of an image.
pub fn fleet(name: &str, replicas: u32, image: &str, max_unavailable: &Value) -> Value {
    json!({
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "template": {"spec": {"podTemplate": {"spec": {"containers": [{"name": "db", "image": image}]}}}},
            "updateStrategy": {"type": "InPlace", "inPlace": {"maxUnavailable": max_unavailable}},
        },
    })
}

/// The change of a fleet that sets its image.
pub fn image(image: &str) -> Value {
    json!({"spec": {"template": {"spec": {"image": image}}}})
}

/// How busy the machine is, as /proc/loadavg says.
pub fn load() -> String {
    std::fs::read_to_string("/proc/loadavg").unwrap_or_default().trim().to_owned()
}
