//! A real control plane for tests and examples: etcd, kube-apiserver, kube-controller-manager and kube-scheduler of
//! one pinned release, with played nodes. It needs Linux, Go to build it once, and nothing else.
//!
//! ```ignore
//! use windlass_harness::controlplane::ControlPlane;
//!
//! let cp = ControlPlane::shared().await;
//! let ns = cp.namespace("roll").await;
//! let sets: Api<StatefulSet> = Api::namespaced(cp.client().await, &ns);
//! ```
//!
//! The processes end with the one that started them, even by SIGKILL: see `go/supervise.go`.

mod access;
mod audit;
mod binary;
mod furniture;
mod namespace;
mod process;

use std::{
    collections::BTreeMap,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use k8s_openapi::api::core::v1::{ConfigMap, Namespace as NamespaceObject};
use kube::{Api, Client, api::PostParams};
use tokio::{runtime::Runtime, sync::OnceCell};
use windlass_clock::SystemClock;
use windlass_sim::kubelet::Kubelet;

pub use access::KubectlOutput;
pub use audit::{Audit, Entry, ObjectRef};
pub use binary::GoProgram;
pub use furniture::{FIXED_CLASS, OFFLINE_CLASS, STORAGE_CLASS};
pub use namespace::Namespace;

pub type Error = Box<dyn std::error::Error + Send + Sync>;

/// The control plane's binary, which is an unmodified kubectl under that name. Blocks while it is built.
pub fn binary() -> Result<std::path::PathBuf, Error> {
    binary::path()
}

/// The options of a control plane.
#[derive(Clone, Debug)]
pub struct Options {
    /// `Metadata`; `RequestResponse` records bodies, for looking into something.
    pub audit_level: &'static str,
    /// Admission plugins besides the default ones, separated by commas.
    pub admission: &'static str,
    /// Feature gates of the API server and the controllers, as `Name=true` separated by commas.
    pub feature_gates: &'static str,
    /// Installs the definitions under deploy/crds before the controllers start.
    pub crds: bool,
    /// Runs simulated kubelets. Without them pods are scheduled and stay Pending.
    pub kubelets: bool,
    /// How many nodes the simulated kubelets register. With none there are only those that a test adds.
    pub nodes: u32,
    /// Controllers that are not run, separated by commas.
    pub without: &'static str,
    /// Keeps the data folder with the logs; so does `WINDLASS_KEEP_CONTROLPLANE=1`.
    pub keep_data: bool,
}

impl Default for Options {
    fn default() -> Self {
        let keep_data = std::env::var_os("WINDLASS_KEEP_CONTROLPLANE").is_some_and(|value| !value.is_empty());
        Self {
            audit_level: "Metadata",
            admission: "",
            feature_gates: "",
            crds: true,
            kubelets: true,
            nodes: 3,
            without: "",
            keep_data,
        }
    }
}

/// A running control plane. Dropping it ends its processes and removes its data.
pub struct ControlPlane {
    message: process::Message,
    /// Runs what has to outlive the runtime of a single test: the kubelets and the deletion of namespaces.
    background: Option<Runtime>,
    background_client: Client,
    namespaces: AtomicU32,
    // Dropped last, after the kubelets.
    supervisor: process::Supervisor,
}

/// A position in the audit log.
#[derive(Clone, Copy, Debug)]
pub struct Mark(u64);

impl ControlPlane {
    /// This process's control plane, started on first use.
    ///
    /// # Panics If it cannot be built or started, with the reason.
    pub async fn shared() -> &'static Self {
        static SHARED: OnceCell<ControlPlane> = OnceCell::const_new();
        SHARED
            .get_or_init(async || match Self::start(Options::default()).await {
                Ok(started) => started,
                Err(error) => panic!("no control plane: {error}"),
            })
            .await
    }

    /// Starts a separate control plane.
    pub async fn start(options: Options) -> Result<Self, Error> {
        let settings = options.clone();
        let (mut supervisor, message, binary) = blocking(move || {
            let binary = binary::path()?;
            let mut supervisor = process::Supervisor::start(&binary, &settings)?;
            let message = supervisor.expect("apiserver")?;
            Ok((supervisor, message, binary))
        })
        .await?;
        let client = access::client_of(&message.kubeconfig).await?;
        furniture::before_controllers(&client, &options).await?;
        let (supervisor, message) = blocking(move || {
            supervisor.go_on()?;
            let message = supervisor.expect("ready")?;
            supervisor.report_failures();
            let bin = supervisor.folder.join("bin");
            std::fs::create_dir_all(&bin)?;
            std::os::unix::fs::symlink(binary, bin.join("kubectl"))?;
            Ok((supervisor, message))
        })
        .await?;
        let background =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let (admin, kubelets) = (message.kubeconfig.clone(), options.kubelets);
        let connected = background.spawn(async move {
            if kubelets {
                let client =
                    access::client_of(&admin.with_file_name("windlass-test-kubelet.kubeconfig")).await?;
                let kubelet = Kubelet::new(client, Arc::new(SystemClock)).storage_class(STORAGE_CLASS);
                tokio::spawn(kubelet.nodes(furniture::PLAYED).run());
            }
            access::client_of(&admin).await
        });
        let background_client = connected.await??;
        furniture::after_controllers(&client).await?;
        let background = Some(background);
        Ok(Self { message, background, background_client, namespaces: AtomicU32::new(0), supervisor })
    }

    /// The folder of its files and logs, removed at the end.
    pub fn folder(&self) -> &Path {
        &self.supervisor.folder
    }

    /// The process IDs by part: `supervise`, `etcd`, `kube-apiserver`, `kube-controller-manager`, `kube-scheduler`.
    pub fn pids(&self) -> &BTreeMap<String, u32> {
        &self.message.pids
    }

    /// A new namespace in which pods can be made at once. It is deleted when dropped.
    pub async fn namespace(&self, prefix: &str) -> Namespace {
        let name = format!("{prefix}-{}", self.namespaces.fetch_add(1, Ordering::Relaxed));
        let client = self.client().await;
        let mut object = NamespaceObject::default();
        object.metadata.name = Some(name.clone());
        Api::all(client.clone()).create(&PostParams::default(), &object).await.expect("a new namespace");
        furniture::service_account(&client, &name).await.expect("a namespace that takes pods");
        let background = self.background.as_ref().expect("runs until dropped").handle().clone();
        Namespace { name, client: self.background_client.clone(), background }
    }

    /// Steers a pod (or container, or claim: see `windlass_sim::kubelet`).
    pub async fn steer(&self, namespace: &str, key: &str, words: &str) {
        use kube::api::{Patch, PatchParams};
        use windlass_sim::kubelet::STEER_LABEL;
        let api: Api<ConfigMap> = Api::namespaced(self.client().await, namespace);
        let map = serde_json::json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "steer", "labels": {STEER_LABEL: "true"}}, "data": {key: words},
        });
        let patch = || Patch::Merge(&map);
        for _ in 0..3 {
            match api.patch("steer", &PatchParams::default(), &patch()).await {
                Ok(_) => return,
                Err(kube::Error::Api(status)) if status.code == 404 => {
                    let made = serde_json::from_value(map.clone()).expect("a config map");
                    if api.create(&PostParams::default(), &made).await.is_ok() {
                        return;
                    }
                }
                Err(error) => panic!("steering {namespace}/{key}: {error}"),
            }
        }
        panic!("steering {namespace}/{key}: the config map comes and goes");
    }

    /// The current end of the audit log.
    pub async fn audit_mark(&self) -> Mark {
        self.audit_fence().await;
        Mark(std::fs::metadata(&self.message.audit_log).map_or(0, |file| file.len()))
    }

    /// The whole audit log. Reads by the cluster's own components are not in it.
    pub async fn audit(&self) -> Audit {
        self.audit_since(Mark(0)).await
    }

    /// The audit log after a mark, up to all that was answered before this was called.
    pub async fn audit_since(&self, mark: Mark) -> Audit {
        self.audit_fence().await;
        Audit::read(&self.message.audit_log, mark.0).expect("a readable audit log")
    }

    /// The audit log between two marks.
    pub fn audit_between(&self, from: Mark, to: Mark) -> Audit {
        Audit::read_to(&self.message.audit_log, from.0, to.0).expect("a readable audit log")
    }

    /// A request is logged just after it was answered: waits until one of our own is in the log.
    async fn audit_fence(&self) {
        static FENCES: AtomicU32 = AtomicU32::new(0);
        let name = format!("audit-fence-{}", FENCES.fetch_add(1, Ordering::Relaxed));
        let from = std::fs::metadata(&self.message.audit_log).map_or(0, |file| file.len());
        let fence: Api<ConfigMap> = Api::namespaced(self.client().await, "default");
        fence.get_opt(&name).await.expect("the API server answers");
        for _ in 0..500 {
            let log = Audit::read(&self.message.audit_log, from).expect("a readable audit log");
            if log.user("admin").name(&name).count() > 0 {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("the audit log does not go on");
    }
}

impl Drop for ControlPlane {
    fn drop(&mut self) {
        if let Some(background) = self.background.take() {
            background.shutdown_background();
        }
    }
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    tokio::task::spawn_blocking(work).await?
}
