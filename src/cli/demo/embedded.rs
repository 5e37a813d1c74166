//! The stage that needs nothing: a simulated cluster with played kubelets in this process, whose time runs as fast as
//! the user likes, and the unmodified operator on it.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use kube::{Client, Config};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::{JoinHandle, JoinSet};

use super::stage::Stage;
use crate::api::crd::crds;
use crate::cli::dashboard;
use crate::clock::{Clock, SharedClock, SystemClock};
use crate::cluster::client::connect;
use crate::operator::Operator;
use windlass_sim::kubelet::Kubelet;
use windlass_sim::{Cluster, ClusterClock, Options};

const NAMESPACE: &str = "default";
/// What the story takes of the cluster's time, a little more than was measured: the cluster begins so far in the past
/// that its clock, however fast, is not ahead of the wall's when the story is over.
const STORY_SECONDS: f64 = 90.0;

/// How long a pod takes to be ready, and to go: long enough to be seen.
const POD_START: Duration = Duration::from_secs(2);
const POD_STOP: Duration = Duration::from_secs(1);

/// How often the page is told what the cluster's clock shows.
const CLOCK_TOLD_EVERY: Duration = Duration::from_millis(100);

/// What the cluster's clock showed last, for other threads: how its time goes only its own runtime knows.
struct Shown(AtomicI64);

impl Clock for Shown {
    fn now(&self) -> DateTime<Utc> {
        DateTime::from_timestamp_micros(self.0.load(Ordering::Relaxed)).unwrap_or_default()
    }
}

/// A cluster in this process.
pub struct Embedded {
    cluster: Cluster,
    clock: Arc<ClusterClock>,
    speed: f64,
    operator: Option<JoinHandle<()>>,
    served: Option<Served>,
    // What runs beside the cluster ends with the stage.
    helpers: JoinSet<()>,
}

/// A cluster that others can reach.
struct Served {
    address: SocketAddr,
    kubeconfig: PathBuf,
    /// The page's address.
    page: String,
}

impl Embedded {
    /// Starts a cluster of this seed. Must be called within a runtime whose time is paused and kept in pace.
    pub fn set(seed: u64, speed: f64) -> Result<Self, String> {
        let behind = (STORY_SECONDS * (1.0 - 1.0 / speed)).max(0.0);
        let epoch = SystemClock.now() - TimeDelta::milliseconds((behind * 1000.0) as i64);
        let clock = ClusterClock::starting_at(epoch);
        let cluster = Cluster::start(Options { clock: clock.clone(), ..Options::seeded(seed) });
        let install = |object: Value| cluster.install(object).map_err(|refusal| refusal.message);
        for name in ["node-a", "node-b", "node-c"] {
            install(played(name, &clock.now().to_rfc3339_opts(chrono::SecondsFormat::Secs, true)))?;
        }
        for definition in crds() {
            install(serde_json::to_value(definition).map_err(|error| error.to_string())?)?;
        }
        let mut helpers = JoinSet::new();
        let kubelet =
            Kubelet::new(cluster.client("kubelet", NAMESPACE), cluster.clock()).pace(POD_START, POD_STOP);
        helpers.spawn(async move { match kubelet.run().await {} });
        Ok(Self { cluster, clock, speed, operator: None, served: None, helpers })
    }

    /// Lets others reach the cluster on this port of the loopback address, 0 for any that is free.
    pub async fn serve(&mut self, port: u16) -> Result<(), String> {
        let wish = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let listener = TcpListener::bind(wish)
            .await
            .map_err(|error| format!("--port {port}: {error}; choose another port, or 0 for a free one"))?;
        let address = listener.local_addr().map_err(|error| format!("the port is not known: {error}"))?;
        let kubeconfig = write_kubeconfig(address)?;
        self.helpers.spawn(self.cluster.serve(listener));
        let page = self.page(address)?;
        self.served = Some(Served { address, kubeconfig, page });
        Ok(())
    }

    /// Serves the page in a thread of its own, whose time is not the cluster's: it reads as any browser's server does.
    fn page(&mut self, cluster: SocketAddr) -> Result<String, String> {
        let (clock, shown) = (self.clock(), Arc::new(Shown(AtomicI64::new(0))));
        let told = shown.clone();
        self.helpers.spawn(async move {
            loop {
                told.0.store(clock.now().timestamp_micros(), Ordering::Relaxed);
                tokio::time::sleep(CLOCK_TOLD_EVERY).await;
            }
        });
        let uri = format!("http://{cluster}").parse().map_err(|error| format!("{cluster}: {error}"))?;
        dashboard::beside_demo(shown, NAMESPACE, async move || {
            connect(Config::new(uri)).map_err(|error| format!("the cluster's client cannot be made: {error}"))
        })
    }

    /// Forgets the requests that the cluster noted: nobody asks for them, and there is no end to them.
    pub fn forget(&self) {
        self.cluster.clear_audit();
    }

    /// Lets the cluster's clock show what the wall's does, from now on at its pace: `kubectl describe` reckons ages by
    /// the latter. It never goes back.
    pub fn catch_up(&self) {
        let behind = SystemClock.now() - self.clock.now();
        if behind > TimeDelta::zero() {
            self.clock.jump(behind);
        }
    }
}

impl Stage for Embedded {
    fn client(&self) -> Client {
        self.cluster.client("windlass-demo", NAMESPACE)
    }

    fn namespace(&self) -> &str {
        NAMESPACE
    }

    fn clock(&self) -> SharedClock {
        self.cluster.clock()
    }

    fn setting(&self) -> Vec<String> {
        vec![
            "A simulated cluster in this process, with the operator that you would deploy.".to_owned(),
            "Kubelets are played: nothing really runs, and \"nope\" in a tag is not found.".to_owned(),
            format!("Its time runs {} times as fast as yours; --speed N changes that.", self.speed),
        ]
    }

    fn invitation(&self) -> Vec<String> {
        match &self.served {
            None => vec!["With --serve it can be looked at, and changed, with kubectl.".to_owned()],
            Some(served) => vec![
                "Look on from another terminal, with any kubectl:".to_owned(),
                String::new(),
                format!("    export KUBECONFIG={}", served.kubeconfig.display()),
                "    kubectl get nd,sn                # the fleet and its nodes; -w looks on".to_owned(),
                "    kubectl get nd db -o yaml        # the plan, what it waits for, the history".to_owned(),
                "    kubectl describe nd db           # with its events".to_owned(),
                String::new(),
                format!(
                    "It is served on http://{}, to this machine only. The page of it, in a browser:",
                    served.address
                ),
                String::new(),
                format!("    {}", served.page),
            ],
        }
    }

    fn start_operator(&mut self) -> Result<(), String> {
        let agent = crate::cli::AGENT;
        let operator = Operator::new(self.cluster.client(agent, NAMESPACE)).clock(self.cluster.clock());
        self.operator = Some(tokio::spawn(async move {
            // It runs until it is killed; its recipes are checked by its own tests.
            let _ = operator.run(std::future::pending()).await;
        }));
        Ok(())
    }

    async fn kill_operator(&mut self) -> Result<(), String> {
        if let Some(operator) = self.operator.take() {
            operator.abort();
            // It is gone when its task is.
            let _ = operator.await;
        }
        Ok(())
    }

    fn killed(&self) -> &'static str {
        "The operator is dropped where it stands"
    }

    fn last_words(&self) -> String {
        String::new()
    }
}

impl Drop for Embedded {
    fn drop(&mut self) {
        if let Some(operator) = self.operator.take() {
            operator.abort();
        }
        if let Some(served) = &self.served {
            // A file that somebody else took away is no loss.
            let _ = std::fs::remove_file(&served.kubeconfig);
        }
    }
}

/// A node with room for whatever comes.
fn played(name: &str, now: &str) -> Value {
    let room = json!({"cpu": "1000", "memory": "100Ti", "ephemeral-storage": "100Ti", "pods": "10000"});
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        "status": {
            "capacity": room, "allocatable": room,
            "conditions": [{
                "type": "Ready", "status": "True", "reason": "KubeletPlayed", "message": "the kubelet is played",
                "lastHeartbeatTime": now, "lastTransitionTime": now,
            }],
            "nodeInfo": {
                "architecture": "amd64", "bootID": "", "containerRuntimeVersion": "played://1", "kernelVersion": "none",
                "kubeProxyVersion": "", "kubeletVersion": "played", "machineID": "", "operatingSystem": "linux",
                "osImage": "none", "systemUUID": "",
            },
        },
    })
}

/// A kubeconfig of its own in the folder for temporary files.
fn write_kubeconfig(address: SocketAddr) -> Result<PathBuf, String> {
    let path = std::env::temp_dir().join(format!("windlass-demo-{}.kubeconfig", address.port()));
    let text = format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: windlass-demo\n\
         clusters:\n- name: windlass-demo\n  cluster:\n    server: http://{address}\n\
         users:\n- name: windlass-demo\n  user: {{}}\n\
         contexts:\n- name: windlass-demo\n  context:\n    cluster: windlass-demo\n    user: windlass-demo\n    namespace: {NAMESPACE}\n"
    );
    write_new(&path, &text).map_err(|error| format!("{} cannot be written: {error}", path.display()))?;
    Ok(path)
}

/// Writes a file that was not there: what an earlier demo left on this port is replaced, what a link points to is not.
fn write_new(path: &Path, text: &str) -> std::io::Result<()> {
    use std::io::Write;
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    std::fs::File::options().write(true).create_new(true).open(path)?.write_all(text.as_bytes())
}
