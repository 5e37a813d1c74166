//! A kubelet that runs a pod's containers as processes of this machine: no container runtime, no root, no namespaces.
//!
//! It is for tests and for looking at things: a real API server, scheduler and controllers bind pods to its nodes, and
//! what runs in them is real. An [image](Images) is a name that the test maps to programs of this machine.
//!
//! ```no_run
//! # async fn example(client: kube::Client) -> Result<(), windlass_process_kubelet::Error> {
//! use windlass_process_kubelet::{Image, Images, ProcessKubelet};
//!
//! let images = Images::new();
//! images.add("etcd:3.6.16", Image::of("etcd", "/somewhere/etcd"));
//! let kubelet = ProcessKubelet::new(client, "/tmp/kubelet").nodes(["process-0"]).images(&images).start().await?;
//! // … until it is dropped, which kills all that it runs.
//! drop(kubelet);
//! # Ok(()) }
//! ```
//!
//! # What is as in a cluster
//!
//! Command, arguments, environment with the downward API, ConfigMaps and Secrets; volumes (claims, emptyDir, ConfigMaps,
//! Secrets, projected, downwardAPI, hostPath) and subPath; init containers and native sidecars; startup, readiness and
//! liveness probes over HTTP, TCP and by commands; postStart and preStop; grace periods, restart policies and back-off;
//! claims that [grow](Expansion); statuses, conditions, phases and events; `kubectl logs` with `-f`, `--previous`, `--tail`, `--since`.
//!
//! # What is otherwise, and how it is made up for
//!
//! - **Addresses.** Each pod has an address of 127.128.0.0/9, `status.podIP`, which belongs to its namespace and name:
//!   a pod that is made again under its name gets it again. A program has to bind to it, or two pods want one port:
//!   `$(POD_IP)` from `status.podIP` is it, and so are `0.0.0.0`, `127.0.0.1` and `localhost` in the texts below. A program
//!   that binds to all addresses of its own accord cannot have a port twice.
//! - **Names.** There is no DNS. In commands, arguments, environment and hosts of probes and hooks the full name of a pod,
//!   `<pod>.<service>.<namespace>.svc` with or without `.cluster.local`, is replaced by that pod's address, whether the
//!   pod exists yet or not. Services have no addresses.
//! - **Mounts.** There are no mounts. In the same places a path below a `mountPath` is replaced by the folder that the
//!   volume is. Beside that each container has a root folder, where its process starts and where `./<mountPath>` is
//!   a link to the volume. Texts inside of mounted files are as they are.
//! - **Programs.** The first word of a command is looked for among the image's programs, by its file name, and then on
//!   this machine's PATH.
//! - **A new start** of the kubelet adopts nothing: what an earlier one left is killed, and its pods' containers start
//!   again, one restart more. A terminated pod's are left as they are.
//! - Not there: resources (a `resourceFieldRef` tells them, nothing is limited), security contexts, gRPC and HTTPS probes, `kubectl exec`, addresses of
//!   Services, `activeDeadlineSeconds` of pods, signals other than SIGTERM to stop by, heartbeats of nodes (a controller
//!   manager needs a long `--node-monitor-grace-period`). What is mounted from ConfigMaps and
//!   Secrets is as it was when the pod began.

mod action;
mod backoff;
mod claims;
mod clock;
mod container;
mod context;
mod downward;
mod env;
mod error;
mod events;
mod growth;
mod images;
mod logs;
mod manager;
mod node;
mod pod;
mod probe;
mod processes;
mod resources;
mod run;
mod runner;
mod server;
mod setting;
mod status;
mod table;
mod translate;
mod volumes;
mod writer;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    net::Ipv4Addr,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};

use kube::Client;
use tokio::task::JoinSet;

pub use backoff::BackOff;
pub use error::Error;
pub use growth::Expansion;
pub use images::{Image, Images};

use context::Shared;
use manager::Manager;
use processes::Processes;
use translate::Addresses;

/// A kubelet that has not started.
#[derive(Clone)]
pub struct ProcessKubelet {
    client: Client,
    folder: PathBuf,
    nodes: BTreeSet<String>,
    kind: node::Kind,
    images: Images,
    classes: BTreeMap<String, Option<Expansion>>,
    back_off: BackOff,
}

impl ProcessKubelet {
    /// A kubelet that keeps its files in `folder`; two running ones must not share it. A later one in the same folder
    /// reuses the claims' data.
    #[must_use]
    pub fn new(client: Client, folder: impl Into<PathBuf>) -> Self {
        Self {
            client,
            folder: folder.into(),
            nodes: BTreeSet::new(),
            kind: node::Kind::default(),
            images: Images::new(),
            classes: BTreeMap::new(),
            back_off: BackOff::default(),
        }
    }

    /// The names of its nodes. It runs the pods that are bound to them.
    #[must_use]
    pub fn nodes<'a>(mut self, names: impl IntoIterator<Item = &'a str>) -> Self {
        self.nodes.extend(names.into_iter().map(str::to_owned));
        self
    }

    /// Adds a label to its nodes.
    #[must_use]
    pub fn label(mut self, key: &str, value: &str) -> Self {
        self.kind.labels.insert(key.to_owned(), value.to_owned());
        self
    }

    /// Adds a taint with the effect `NoSchedule` to its nodes.
    #[must_use]
    pub fn taint(mut self, key: &str, value: &str) -> Self {
        self.kind.taint = Some((key.to_owned(), value.to_owned()));
        self
    }

    /// Sets the images; they may change while it runs.
    #[must_use]
    pub fn images(mut self, images: &Images) -> Self {
        self.images = images.clone();
        self
    }

    /// Binds the claims of this storage class to folders that are deleted with the claim.
    #[must_use]
    pub fn storage_class(mut self, name: &str) -> Self {
        self.classes.insert(name.to_owned(), None);
        self
    }

    /// Makes a storage class whose claims are bound as those of [`Self::storage_class`], and grow in this way.
    #[must_use]
    pub fn expansion(mut self, class: &str, way: Expansion) -> Self {
        self.classes.insert(class.to_owned(), Some(way));
        self
    }

    /// Makes the classes `online`, `offline`, `slow` (10 s a step) and `never`, with this before their names.
    #[must_use]
    pub fn expansions(self, prefix: &str) -> Self {
        Expansion::ALL
            .into_iter()
            .fold(self, |kubelet, (name, way)| kubelet.expansion(&format!("{prefix}{name}"), way))
    }

    /// Sets the back-off of pulls and restarts.
    #[must_use]
    pub fn back_off(mut self, limits: BackOff) -> Self {
        self.back_off = limits;
        self
    }

    /// Kills leftover processes, registers the nodes, and runs the pods that are bound to them.
    pub async fn start(self) -> Result<RunningKubelet, Error> {
        let Self { client, folder, nodes, kind, images, classes, back_off } = self;
        fs::create_dir_all(&folder).map_err(Error::io("the kubelet's folder cannot be made"))?;
        let folder = folder.canonicalize().map_err(Error::io("the kubelet's folder cannot be found"))?;
        let processes = Processes::open(&folder.join("processes"))?;
        let addresses = Addresses::new(&seed(&folder)?);
        let (events, send_events) = events::Events::new(client.clone());
        let shared = Arc::new(Shared {
            client: client.clone(),
            images,
            folder: folder.clone(),
            addresses: addresses.clone(),
            processes: Arc::clone(&processes),
            logs: logs::Open::default(),
            events,
            back_off,
            latest_uids: Mutex::default(),
        });
        let (port, listener) = server::listen().await?;
        let mut work = JoinSet::new();
        work.spawn(server::serve(listener, Arc::clone(&shared))?);
        work.spawn(send_events);
        for name in &nodes {
            node::register(&client, name, &kind, port).await?;
        }
        if !classes.is_empty() {
            growth::register(&client, &classes).await?;
            let (folder, events) = (folder.join("claims"), shared.events.clone());
            work.spawn(claims::Claims { client, folder, classes, events }.serve());
        }
        work.spawn(Manager::new(shared, nodes).run());
        Ok(RunningKubelet { addresses, processes, work })
    }
}

/// A running kubelet. Dropping it kills its processes at once, without status updates.
pub struct RunningKubelet {
    addresses: Addresses,
    processes: Arc<Processes>,
    work: JoinSet<()>,
}

impl RunningKubelet {
    /// The address of a pod with this name, existing or not.
    #[must_use]
    pub fn address(&self, namespace: &str, pod: &str) -> Ipv4Addr {
        self.addresses.of(namespace, pod)
    }
}

impl Drop for RunningKubelet {
    fn drop(&mut self) {
        self.work.abort_all();
        self.processes.close();
    }
}

/// Makes this kubelet's addresses differ from another one's. Stored in the folder, so that they survive a restart.
fn seed(folder: &Path) -> Result<String, Error> {
    let file = folder.join("seed");
    if let Ok(seed) = fs::read_to_string(&file) {
        return Ok(seed);
    }
    let seed = format!("{} {} {}", std::process::id(), clock::now(), folder.display());
    fs::write(&file, &seed).map_err(Error::io("the kubelet's folder cannot be written"))?;
    Ok(seed)
}
