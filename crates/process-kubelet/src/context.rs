//! State shared within a kubelet and within a pod.

use std::{
    collections::BTreeMap,
    net::Ipv4Addr,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, OnceLock, PoisonError},
    time::Duration,
};

use k8s_openapi::api::core::v1::{Container, Pod};
use kube::Client;
use tokio::sync::watch;

use crate::{
    backoff::BackOff, events::About, events::Events, images::Images, logs::Open, processes::Processes,
    table::Table, translate::Addresses,
};

/// State that all pods of a kubelet share.
pub(crate) struct Shared {
    pub(crate) client: Client,
    pub(crate) images: Images,
    pub(crate) folder: PathBuf,
    pub(crate) addresses: Addresses,
    pub(crate) processes: Arc<Processes>,
    pub(crate) logs: Open,
    pub(crate) events: Events,
    pub(crate) back_off: BackOff,
    /// The UID of the latest pod with a namespace and name.
    pub(crate) latest_uids: Mutex<BTreeMap<(String, String), String>>,
}

impl Shared {
    /// The folder of a pod: logs, volumes of its own, containers' roots.
    pub(crate) fn folder_of(&self, namespace: &str, name: &str, uid: &str) -> PathBuf {
        self.folder.join("pods").join(format!("{namespace}_{name}_{uid}"))
    }

    /// The folder of the latest pod with this name, if this kubelet ran it.
    pub(crate) fn latest(&self, namespace: &str, name: &str) -> Option<PathBuf> {
        let latest_uids = self.latest_uids.lock().unwrap_or_else(PoisonError::into_inner);
        let uid = latest_uids.get(&(namespace.to_owned(), name.to_owned()))?;
        Some(self.folder_of(namespace, name, uid))
    }
}

/// A pod as last observed.
#[derive(Clone, Debug)]
pub(crate) struct View {
    pub(crate) pod: Arc<Pod>,
    /// The API server has deleted it.
    pub(crate) gone: bool,
}

impl View {
    pub(crate) fn leaves(&self) -> bool {
        self.gone || self.pod.metadata.deletion_timestamp.is_some()
    }

    /// Its termination grace period.
    pub(crate) fn grace(&self) -> Duration {
        let asked = self.pod.metadata.deletion_grace_period_seconds;
        let spec = self.pod.spec.as_ref().and_then(|spec| spec.termination_grace_period_seconds);
        let seconds = if self.gone { 0 } else { asked.or(spec).unwrap_or(30) };
        // At least one second, as in every kubelet.
        Duration::from_secs(seconds.max(1).cast_unsigned())
    }
}

/// State that all containers of a pod share.
pub(crate) struct Context {
    pub(crate) shared: Arc<Shared>,
    pub(crate) view: watch::Receiver<View>,
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) uid: String,
    pub(crate) ip: Ipv4Addr,
    pub(crate) folder: PathBuf,
    pub(crate) table: Table,
    pub(crate) events: About,
    /// Set before the first container starts.
    pub(crate) volumes: OnceLock<BTreeMap<String, PathBuf>>,
}

impl Context {
    pub(crate) fn pod(&self) -> Arc<Pod> {
        Arc::clone(&self.view.borrow().pod)
    }

    pub(crate) fn container_folder(&self, container: &str) -> PathBuf {
        self.folder.join("containers").join(container)
    }

    /// The folders behind a container's mount paths, including its termination message file.
    pub(crate) fn mounts(
        &self,
        container: &Container,
        env: &BTreeMap<String, String>,
    ) -> Vec<(String, PathBuf)> {
        let mut mounts = Vec::new();
        for mount in container.volume_mounts.iter().flatten() {
            let Some(volume) = self.volumes.get().and_then(|volumes| volumes.get(&mount.name)) else {
                continue;
            };
            let sub = mount.sub_path.clone();
            let sub = sub.or_else(|| mount.sub_path_expr.as_ref().map(|text| crate::env::expand(text, env)));
            let to = match sub.filter(|sub| !sub.is_empty()) {
                Some(sub) => {
                    let to = volume.join(sub);
                    if !to.exists() {
                        let _ = std::fs::create_dir_all(&to);
                    }
                    to
                }
                None => volume.clone(),
            };
            mounts.push((mount.mount_path.clone(), to));
        }
        let words = container.termination_message_path.as_deref().unwrap_or("/dev/termination-log");
        mounts.push((words.to_owned(), self.last_words(&container.name)));
        mounts
    }

    /// The termination message file of a container.
    pub(crate) fn last_words(&self, container: &str) -> PathBuf {
        self.container_folder(container).join("termination-log")
    }
}

/// The log file of one run.
pub(crate) fn log_of(folder: &Path, container: &str, restart: i32) -> PathBuf {
    folder.join("logs").join(container).join(format!("{restart}.log"))
}
