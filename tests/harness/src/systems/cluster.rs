//! A real control plane whose only nodes run real processes.

use std::{
    io,
    path::PathBuf,
    process::{Output, Stdio},
};

use kube::{
    Api,
    api::{ApiResource, DynamicObject, GroupVersionKind},
};
use serde_json::Value;
use tokio::{
    process::{Child, Command},
    runtime::Runtime,
    sync::OnceCell,
    task::JoinHandle,
};
use windlass_clock::monotonic;
use windlass_process_kubelet::{Images, ProcessKubelet, RunningKubelet};

use crate::controlplane::{ControlPlane, Error, Namespace, Options, STORAGE_CLASS};

const PATIENCE: std::time::Duration = std::time::Duration::from_mins(2);

/// The control plane, its kubelet and the images.
pub struct Cluster {
    pub cp: ControlPlane,
    pub images: Images,
    /// Set once the definitions of Temporal's workers are installed.
    #[cfg(feature = "temporal")]
    pub(crate) worker_definitions: OnceCell<()>,
    kubelet: Option<RunningKubelet>,
    /// The kubelet outlives the runtime of a single test.
    background: Option<Runtime>,
}

impl Cluster {
    /// This process's cluster, started on first use.
    pub async fn shared() -> &'static Self {
        static SHARED: OnceCell<Cluster> = OnceCell::const_new();
        SHARED
            .get_or_init(async || match Self::start().await {
                Ok(started) => started,
                Err(error) => panic!("no cluster: {error}"),
            })
            .await
    }

    pub async fn start() -> Result<Self, Error> {
        Self::start_with(Options::default()).await
    }

    /// A cluster whose control plane has these options.
    pub async fn start_with(options: Options) -> Result<Self, Error> {
        let options = Options { kubelets: false, nodes: 0, ..options };
        let cp = ControlPlane::start(options).await?;
        let images = Images::new();
        let background =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        // The folder is deleted with the control plane's.
        let (client, folder) = (cp.kubeconfig().to_owned(), cp.folder().join("kubelet"));
        let known = images.clone();
        let kubelet = background.spawn(async move {
            let config = kube::config::Kubeconfig::read_from(client)?;
            let options = kube::config::KubeConfigOptions::default();
            let config = kube::Config::from_custom_kubeconfig(config, &options).await?;
            let client = kube::Client::try_from(config)?;
            let kubelet = ProcessKubelet::new(client, folder).images(&known).storage_class(STORAGE_CLASS);
            Ok::<_, Error>(kubelet.nodes(["process-0", "process-1", "process-2"]).start().await?)
        });
        let kubelet = Some(kubelet.await??);
        Ok(Self {
            cp,
            images,
            #[cfg(feature = "temporal")]
            worker_definitions: OnceCell::new(),
            kubelet,
            background: Some(background),
        })
    }

    /// The address that a pod has or will have.
    pub fn address(&self, namespace: &str, pod: &str) -> String {
        self.kubelet.as_ref().map(|kubelet| kubelet.address(namespace, pod).to_string()).unwrap_or_default()
    }

    /// A new namespace to work in.
    pub async fn namespace(&self, name: &str) -> Place<'_> {
        let ns = self.cp.namespace(name).await;
        Place { client: self.cp.client().await, cluster: self, ns }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.kubelet = None;
        if let Some(background) = self.background.take() {
            background.shutdown_background();
        }
    }
}

/// True if a fleet is up to date with its spec.
pub fn applied(fleet: &Value) -> bool {
    let conditions = fleet["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let current = fleet["status"]["observedGeneration"] == fleet["metadata"]["generation"];
    current && conditions.iter().any(|c| c["type"] == "UpToDate" && c["status"] == "True")
}

/// The number of nodes at the rollout's target.
pub fn updated(fleet: &Value) -> u64 {
    fleet["status"]["rollout"]["nodes"]["updated"].as_u64().unwrap_or_default()
}

/// A namespace of a cluster.
pub struct Place<'a> {
    pub cluster: &'a Cluster,
    pub ns: Namespace,
    pub client: kube::Client,
}

impl Place<'_> {
    pub fn api(&self, api_version: &str, kind: &str) -> Api<DynamicObject> {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
        Api::namespaced_with(self.client.clone(), &self.ns, &resource)
    }

    /// An object as JSON; null if it does not exist.
    pub async fn get(&self, api_version: &str, kind: &str, name: &str) -> Result<Value, Error> {
        let found = self.api(api_version, kind).get_opt(name).await?;
        Ok(found.map(serde_json::to_value).transpose()?.unwrap_or_default())
    }

    /// Waits until `holds` is true for an object.
    pub async fn until(
        &self,
        (api_version, kind, name): (&str, &str, &str),
        holds: impl Fn(&Value) -> bool,
    ) -> Result<Value, Error> {
        let until = monotonic() + PATIENCE;
        loop {
            let seen = self.get(api_version, kind, name).await?;
            if holds(&seen) {
                return Ok(seen);
            }
            if monotonic() > until {
                return Err(
                    format!("waited in vain for {kind} {name}; last seen: {:#}", seen["status"]).into()
                );
            }
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    }

    /// Waits until a pod with another UID is ready.
    pub async fn until_ready(&self, pod: &str, not: &Value) -> Result<Value, Error> {
        let ready = |seen: &Value| {
            let conditions = seen["status"]["conditions"].as_array().cloned().unwrap_or_default();
            let ready = conditions.iter().any(|c| c["type"] == "Ready" && c["status"] == "True");
            ready && &seen["metadata"]["uid"] != not && seen["metadata"]["deletionTimestamp"].is_null()
        };
        self.until(("v1", "Pod", pod), ready).await
    }

    /// Runs kubectl in this namespace.
    pub async fn kubectl(&self, arguments: &[&str]) -> Result<String, Error> {
        let said = self.cluster.cp.kubectl(&[&["-n", &*self.ns], arguments].concat()).await;
        if said.code == Some(0) { Ok(said.stdout) } else { Err(said.stderr.into()) }
    }

    /// The log of a container until its end.
    pub fn followed(&self, pod: &str, container: &str) -> Result<JoinHandle<io::Result<Output>>, Error> {
        let following = Command::new(self.cluster.cp.bin().join("kubectl"))
            .args(["-n", &*self.ns, "logs", "-f", pod, "-c", container])
            .env("KUBECONFIG", self.cluster.cp.kubeconfig())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()?;
        Ok(tokio::spawn(following.wait_with_output()))
    }

    /// Applies a manifest of examples/.
    pub async fn apply(&self, file: &str) -> Result<(), Error> {
        let path = format!("{}/examples/{file}", crate::root().display());
        self.kubectl(&["apply", "--validate=strict", "-f", &path]).await.map(drop)
    }

    /// Starts the operator for this namespace, with its deployed rights.
    pub async fn operator(&self, program: impl Into<PathBuf>) -> Result<Child, Error> {
        for rights in ["one-namespace", "stateful-sets-one-namespace", "hook-jobs-one-namespace"] {
            let file = format!("{}/deploy/rbac/{rights}.yaml", crate::root().display());
            self.kubectl(&["apply", "-f", &file]).await?;
        }
        let kubeconfig = self.cluster.cp.service_account_kubeconfig(&self.ns, "windlass").await?;
        let log = std::env::var_os("WINDLASS_TEST_LOG").is_some();
        let operator = Command::new(program.into())
            .args(["operator", "--namespace", &self.ns, "--no-leader-elect", "--bind", "127.0.0.1:0"])
            .env("KUBECONFIG", kubeconfig)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(if log { Stdio::inherit() } else { Stdio::null() })
            .kill_on_drop(true)
            .spawn()?;
        Ok(operator)
    }
}
