//! The stage that needs no cluster: a simulated cluster with simulated kubelets in this process, whose time runs at
//! any speed, and the unmodified operator on it.

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
use crate::dashboard;
use windlass::operator::Operator;
use windlass_clock::{Clock, SharedClock, SystemClock};
use windlass_core::api::crd::crds;
use windlass_kube_port::client::connect;
use windlass_sim::kubelet::Kubelet;
use windlass_sim::{Cluster, ClusterClock, Options};

const NAMESPACE: &str = "default";
/// An upper bound of the demo's duration, in seconds of the cluster's time: the cluster starts this far in the past,
/// so that its clock is not ahead of the real one at the end, however fast it runs.
const DEMO_SECONDS: f64 = 90.0;

/// How long a pod takes to become ready, and to terminate: long enough to be seen.
const POD_START: Duration = Duration::from_secs(2);
const POD_STOP: Duration = Duration::from_secs(1);

/// How often the page gets the cluster's time.
const CLOCK_INTERVAL: Duration = Duration::from_millis(100);

/// The cluster's time, for other threads: only its own runtime can read its clock.
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
    // The cluster's background tasks, aborted with the stage.
    helpers: JoinSet<()>,
}

/// A cluster that is served on a socket.
struct Served {
    address: SocketAddr,
    kubeconfig: PathBuf,
    /// The page's address.
    page: String,
}

impl Embedded {
    /// Starts a cluster with this seed. Call it within a runtime whose time is paused and paced.
    pub fn set(seed: u64, speed: f64) -> Result<Self, String> {
        let behind = (DEMO_SECONDS * (1.0 - 1.0 / speed)).max(0.0);
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

    /// Serves the cluster on this port of the loopback address, 0 for a free one.
    pub async fn serve(&mut self, port: u16) -> Result<(), String> {
        let wish = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let listener = TcpListener::bind(wish)
            .await
            .map_err(|error| format!("--port {port}: {error}; choose another port, or 0 for a free one"))?;
        let address = listener.local_addr().map_err(|error| format!("cannot determine the port: {error}"))?;
        let kubeconfig = write_kubeconfig(address)?;
        self.helpers.spawn(self.cluster.serve(listener));
        let page = self.page(address)?;
        self.served = Some(Served { address, kubeconfig, page });
        Ok(())
    }

    /// Serves the page in a thread of its own, with real time: it reads the cluster like any client.
    fn page(&mut self, cluster: SocketAddr) -> Result<String, String> {
        let (clock, shown) = (self.clock(), Arc::new(Shown(AtomicI64::new(0))));
        let writer = shown.clone();
        self.helpers.spawn(async move {
            loop {
                writer.0.store(clock.now().timestamp_micros(), Ordering::Relaxed);
                tokio::time::sleep(CLOCK_INTERVAL).await;
            }
        });
        let uri = format!("http://{cluster}").parse().map_err(|error| format!("{cluster}: {error}"))?;
        dashboard::serve_demo(shown, NAMESPACE, async move || {
            connect(Config::new(uri)).map_err(|error| format!("cannot create the Kubernetes client: {error}"))
        })
    }

    /// Drops the cluster's request log, which would grow without bound.
    pub fn forget(&self) {
        self.cluster.clear_audit();
    }

    /// Advances the cluster's clock to the real one, and lets it run at real speed: `kubectl describe` computes ages
    /// from the real clock. It never goes back.
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
            "Its kubelets are simulated: no container runs, and pulls of a \"nope\" tag fail.".to_owned(),
            format!("Its clock runs {} times as fast as real time; --speed N changes that.", self.speed),
        ]
    }

    fn invitation(&self) -> Vec<String> {
        match &self.served {
            None => vec!["With --serve you can view and change it with kubectl.".to_owned()],
            Some(served) => vec![
                "Watch from another terminal, with any kubectl:".to_owned(),
                String::new(),
                format!("    export KUBECONFIG={}", served.kubeconfig.display()),
                "    kubectl get nd,sn                # the fleet and its nodes; -w watches".to_owned(),
                "    kubectl get nd db -o yaml        # the plan, what it waits for, the history".to_owned(),
                "    kubectl describe nd db           # with its events".to_owned(),
                String::new(),
                format!(
                    "Its API is at http://{}, for this machine only. Its page, in a browser:",
                    served.address
                ),
                String::new(),
                format!("    {}", served.page),
            ],
        }
    }

    fn start_operator(&mut self) -> Result<(), String> {
        let agent = crate::AGENT;
        let operator = Operator::new(self.cluster.client(agent, NAMESPACE)).clock(self.cluster.clock());
        self.operator = Some(tokio::spawn(async move {
            // Runs until it is killed; the recipes are checked by their own tests.
            let _ = operator.run(std::future::pending()).await;
        }));
        Ok(())
    }

    async fn kill_operator(&mut self) -> Result<(), String> {
        if let Some(operator) = self.operator.take() {
            operator.abort();
            // The operator ends with its task.
            let _ = operator.await;
        }
        Ok(())
    }

    fn killed(&self) -> &'static str {
        "The operator is stopped abruptly"
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
            // A file that is already gone is fine.
            let _ = std::fs::remove_file(&served.kubeconfig);
        }
    }
}

/// A node with room for any number of pods.
fn played(name: &str, now: &str) -> Value {
    let room = json!({"cpu": "1000", "memory": "100Ti", "ephemeral-storage": "100Ti", "pods": "10000"});
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        "status": {
            "capacity": room, "allocatable": room,
            "conditions": [{
                "type": "Ready", "status": "True", "reason": "KubeletSimulated", "message": "the kubelet is simulated",
                "lastHeartbeatTime": now, "lastTransitionTime": now,
            }],
            "nodeInfo": {
                "architecture": "amd64", "bootID": "", "containerRuntimeVersion": "simulated://1", "kernelVersion": "none",
                "kubeProxyVersion": "", "kubeletVersion": "simulated", "machineID": "", "operatingSystem": "linux",
                "osImage": "none", "systemUUID": "",
            },
        },
    })
}

/// Writes a kubeconfig into the folder for temporary files.
fn write_kubeconfig(address: SocketAddr) -> Result<PathBuf, String> {
    let path = std::env::temp_dir().join(format!("windlass-demo-{}.kubeconfig", address.port()));
    let text = format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: windlass-demo\n\
         clusters:\n- name: windlass-demo\n  cluster:\n    server: http://{address}\n\
         users:\n- name: windlass-demo\n  user: {{}}\n\
         contexts:\n- name: windlass-demo\n  context:\n    cluster: windlass-demo\n    user: windlass-demo\n    namespace: {NAMESPACE}\n"
    );
    write_new(&path, &text).map_err(|error| format!("cannot write {}: {error}", path.display()))?;
    Ok(path)
}

/// Creates a file: replaces what an earlier demo left for this port, but does not follow a link.
fn write_new(path: &Path, text: &str) -> std::io::Result<()> {
    use std::io::Write;
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    std::fs::File::options().write(true).create_new(true).open(path)?.write_all(text.as_bytes())
}
