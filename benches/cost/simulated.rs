//! The measurements of `memory.rs` for more nodes than a real control plane handles on a small machine, on the
//! simulated cluster, which this process serves on a socket. The operator is the shipped binary.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::process::{Child, Command};
use windlass::clock::{SystemClock, monotonic};
use windlass_sim::kubelet::{Claims, Kubelet};
use windlass_sim::{Cluster, Options};

use crate::memory::{far, fleet};
use crate::template;
use crate::watched::Watched;
use windlass_harness::operated::{image, is_applied, load};

/// The history of the simulated cluster, in changes: more than any watch lags.
const REMEMBERED: usize = 20_000;
/// The other clients in the audit log: the kubelet simulator, and the person.
const OTHERS: [&str; 2] = ["kubelet", "person"];
/// The image of the second rollout.
const NEXT: &str = "db:next";

/// Creates this many nodes, rolls them once, restarts the operator, and measures it at rest.
pub async fn measure(nodes: u32) {
    let (cluster, kubeconfig) = serve().await;
    let kind = GroupVersionKind::gvk("windlass.dev", "v1alpha1", "NodeDeployment");
    let fleets: Api<DynamicObject> =
        Api::namespaced_with(cluster.client("person", "default"), "default", &ApiResource::from_gvk(&kind));
    template::print_size();
    let mut operator = start(&kubeconfig);
    let mut stage = Stage { cluster, fleets, nodes, calls: BTreeMap::new() };
    println!("{nodes} nodes on the simulated cluster");

    let object = serde_json::from_value(fleet(nodes)).expect("a fleet");
    stage.fleets.create(&PostParams::default(), &object).await.expect("it is taken");
    stage.phase("made", watched(&operator)).await;
    stage.patch(image(NEXT)).await;
    stage.phase("rolled", watched(&operator)).await;

    operator.start_kill().expect("it can be killed");
    operator.wait().await.expect("it ends");
    stage.patch(json!({"spec": {"replicas": nodes - 1}})).await;
    stage.count();
    stage.calls.clear();
    let began = monotonic();
    let operator = start(&kubeconfig);
    while !stage.has_written() {
        tokio::time::sleep(Duration::from_millis(20)).await;
        stage.count();
    }
    println!("\n== started again over them: {} ms to the first action", began.elapsed().as_millis());
    stage.phase("one removed", watched(&operator)).await;
    tokio::time::sleep(Duration::from_mins(1)).await;
    stage.count();
    println!("a minute at rest: {}; requests {:?}", watched(&operator), stage.calls);
    drop(std::fs::remove_file(kubeconfig));
}

struct Stage {
    cluster: Cluster,
    fleets: Api<DynamicObject>,
    nodes: u32,
    /// The operator's requests since the phase began, by kind.
    calls: BTreeMap<String, usize>,
}

impl Stage {
    async fn patch(&self, change: Value) {
        self.fleets.patch("db", &PatchParams::default(), &Patch::Merge(change)).await.expect("it is taken");
    }

    /// Counts the new requests, and clears the log, which would grow without bound.
    fn count(&mut self) {
        let entries = self.cluster.audit();
        self.cluster.clear_audit();
        for entry in entries.iter().filter(|entry| !OTHERS.contains(&entry.user_agent.as_str())) {
            let part = if entry.subresource.is_empty() { "" } else { "/status" };
            *self.calls.entry(format!("{} {}{part}", entry.verb, entry.resource)).or_default() += 1;
        }
    }

    fn has_written(&self) -> bool {
        self.calls.keys().any(|call| ["create", "patch", "delete"].iter().any(|verb| call.starts_with(verb)))
    }

    async fn phase(&mut self, name: &str, operator: Watched) {
        self.count();
        self.calls.clear();
        let (began, mut said, cpu) = (monotonic(), monotonic(), operator.cpu());
        loop {
            tokio::time::sleep(Duration::from_millis(200)).await;
            self.count();
            let found = json!(self.fleets.get("db").await.expect("it is there"));
            if is_applied(&found) {
                break;
            }
            if said.elapsed() > Duration::from_secs(10) {
                said = monotonic();
                println!("  {name}: {:>5.0} s: {}; {operator}", began.elapsed().as_secs_f64(), far(&found));
            }
        }
        let took = began.elapsed().as_secs_f64();
        tokio::time::sleep(Duration::from_secs(6)).await;
        self.count();
        let (cpu, nodes) = (operator.cpu() - cpu, f64::from(self.nodes));
        let calls: usize = self.calls.values().sum();
        let calls = f64::from(u32::try_from(calls).unwrap_or(u32::MAX));
        println!("\n== {name} in {took:.1} s; load {}", load());
        println!("CPU {cpu:.1} s, {:.2} ms a node; {:.2} API calls a node", cpu * 1e3 / nodes, calls / nodes);
        println!("{operator}\n{:?}", self.calls);
    }
}

fn watched(operator: &Child) -> Watched {
    Watched(operator.id().expect("it runs"))
}

/// A cluster with one unlimited machine, the definitions and a simulated kubelet.
async fn serve() -> (Cluster, PathBuf) {
    let cluster = Cluster::start(Options {
        clock: Arc::new(SystemClock),
        latency: None,
        history: REMEMBERED,
        ..Options::seeded(1)
    });
    let room =
        json!({"cpu": "1000000", "memory": "10000Ti", "ephemeral-storage": "10000Ti", "pods": "1000000"});
    let machine = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "played-0"},
        "status": {"capacity": room, "allocatable": room}});
    cluster.install(machine).expect("a node");
    for definition in windlass::api::crd::crds() {
        cluster.install(json!(definition)).expect("a definition");
    }
    let kubelet =
        Kubelet::new(cluster.client("kubelet", "default"), cluster.clock()).claims(Claims::StatusOnly);
    tokio::spawn(async move { match kubelet.run().await {} });
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let kubeconfig = write_kubeconfig(listener.local_addr().expect("an address"));
    tokio::spawn(cluster.serve(listener));
    (cluster, kubeconfig)
}

fn start(kubeconfig: &Path) -> Child {
    let built = env!("CARGO_BIN_EXE_windlass").to_owned();
    let mut command = Command::new(std::env::var("WINDLASS_OPERATOR").unwrap_or(built));
    command.args(["operator", "--no-leader-elect", "--bind", "127.0.0.1:0"]);
    let command = command.env("KUBECONFIG", kubeconfig).stdin(Stdio::null()).stdout(Stdio::null());
    let log = std::env::var_os("WINDLASS_TEST_LOG").is_some();
    command.stderr(if log { Stdio::inherit() } else { Stdio::null() });
    command.kill_on_drop(true).spawn().expect("the operator starts")
}

fn write_kubeconfig(address: SocketAddr) -> PathBuf {
    let path = std::env::temp_dir().join(format!("windlass-memory-{}.yaml", std::process::id()));
    let text = format!(
        "apiVersion: v1\nkind: Config\nclusters: [{{name: c, cluster: {{server: \"http://{address}\"}}}}]\n\
         users: [{{name: u, user: {{}}}}]\n\
         contexts: [{{name: c, context: {{cluster: c, user: u, namespace: default}}}}]\ncurrent-context: c\n"
    );
    std::fs::write(&path, text).expect("a kubeconfig");
    path
}
