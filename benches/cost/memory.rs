//! What the operator keeps of a fleet whose nodes have a template as people write them: of tests/golden/nodes. So many on the real control plane, or more of them than that carries on the simulated cluster,
//! which this process serves on a socket. The operator is the shipped binary either way.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::process::{Child, Command};
use windlass::clock::{SystemClock, monotonic};
use windlass::sim::kubelet::Kubelet;
use windlass::sim::{Cluster, Options};

use crate::controlplane;
use crate::operated::{World, image, is_applied};

/// How many changes the simulated cluster remembers: more than a watch is ever behind.
const REMEMBERED: usize = 100_000;

/// What is rolled out after the first.
const NEXT: &str = "postgres:17-next";

/// The containers that stand beside it, so that the template is as long as templates are: over 4 KB.
const BESIDE: [&str; 4] = ["kafka", "elasticsearch", "vault", "mysql"];

fn golden(name: &str) -> Value {
    let path = format!("{}/tests/golden/nodes/{name}.json", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(path).expect("a golden node");
    let golden: Value = serde_json::from_str(&text).expect("JSON");
    golden["spec"].clone()
}

/// A fleet of nodes with that template.
fn fleet(nodes: u32) -> Value {
    let mut spec = golden("postgres");
    // Nobody answers for a sidecar here, and no account is made.
    spec.as_object_mut().expect("a spec").remove("sidecar");
    for claim in spec["volumeClaimTemplates"].as_array_mut().expect("claims") {
        claim["spec"].as_object_mut().expect("a claim's spec").remove("storageClassName");
    }
    let mut containers = spec["podTemplate"]["spec"]["containers"].as_array().expect("containers").clone();
    for name in BESIDE {
        for mut container in
            golden(name)["podTemplate"]["spec"]["containers"].as_array().expect("some").clone()
        {
            container.as_object_mut().expect("a container").remove("volumeMounts");
            container["image"] = json!(format!("{name}:1"));
            containers.push(container);
        }
    }
    let pod = spec["podTemplate"]["spec"].as_object_mut().expect("a pod's spec");
    pod.insert("containers".to_owned(), json!(containers));
    let apart =
        ["serviceAccountName", "nodeSelector", "affinity", "topologySpreadConstraints", "priorityClassName"];
    for field in apart {
        pod.remove(field);
    }
    let size = |value: &Value| value.to_string().len();
    println!(
        "the pod template has {} bytes, the node's whole spec {}",
        size(&spec["podTemplate"]),
        size(&spec)
    );
    json!({
        "apiVersion": "windlass.dev/v1alpha1", "kind": "NodeDeployment",
        "metadata": {"name": "db"},
        "spec": {
            "replicas": nodes,
            "template": {"spec": spec},
            "updateStrategy": {"type": "InPlace", "inPlace": {"maxUnavailable": "10%"}},
        },
    })
}

/// On the real control plane.
pub async fn measure(nodes: u32) {
    let mut world = World::start(controlplane::Options::default()).await;
    println!("{nodes} nodes on the real control plane; operator before: {}", world.memory("VmRSS"));
    let say = |world: &World, what: &str| {
        println!("{what}: now {}, at most {}", world.memory("VmRSS"), world.memory("VmHWM"));
    };
    let began = monotonic();
    world.fleet(fleet(nodes)).await;
    world.until_applied("db").await;
    say(&world, &format!("made in {:.0} s", began.elapsed().as_secs_f64()));
    let began = monotonic();
    world.patch(&world.fleets(), "db", image(NEXT)).await;
    world.until_applied("db").await;
    say(&world, &format!("rolled in {:.0} s", began.elapsed().as_secs_f64()));
    world.kill_operator().await;
    world.start_operator().await;
    tokio::time::sleep(Duration::from_secs(30)).await;
    say(&world, "started again over them, after 30 s");
}

/// On the simulated cluster.
pub async fn measure_simulated(nodes: u32) {
    let cluster = Cluster::start(Options {
        clock: std::sync::Arc::new(SystemClock),
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
    let kubelet = Kubelet::new(cluster.client("kubelet", "default"), cluster.clock());
    tokio::spawn(async move { match kubelet.run().await {} });
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let kubeconfig = write_kubeconfig(listener.local_addr().expect("an address"));
    tokio::spawn(cluster.serve(listener));

    let kind = GroupVersionKind::gvk("windlass.dev", "v1alpha1", "NodeDeployment");
    let fleets: Api<DynamicObject> =
        Api::namespaced_with(cluster.client("person", "default"), "default", &ApiResource::from_gvk(&kind));
    let mut operator = start(&kubeconfig);
    println!("{nodes} nodes on the simulated cluster");
    let began = monotonic();
    let object = serde_json::from_value(fleet(nodes)).expect("a fleet");
    fleets.create(&PostParams::default(), &object).await.expect("it is taken");
    until_applied(&cluster, &fleets, &operator).await;
    say(&operator, &format!("made in {:.0} s", began.elapsed().as_secs_f64()));
    let began = monotonic();
    fleets.patch("db", &PatchParams::default(), &Patch::Merge(image(NEXT))).await.expect("it is taken");
    tokio::time::sleep(Duration::from_secs(1)).await;
    until_applied(&cluster, &fleets, &operator).await;
    say(&operator, &format!("rolled in {:.0} s", began.elapsed().as_secs_f64()));
    operator.start_kill().expect("it can be killed");
    operator.wait().await.expect("it ends");
    let operator = start(&kubeconfig);
    tokio::time::sleep(Duration::from_mins(1)).await;
    say(&operator, "started again over them, after 60 s");
    drop(std::fs::remove_file(kubeconfig));
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

async fn until_applied(cluster: &Cluster, fleets: &Api<DynamicObject>, operator: &Child) {
    let mut shown = monotonic();
    loop {
        // Nobody asks for the requests, and there is no end to them.
        cluster.clear_audit();
        let found = json!(fleets.get("db").await.expect("it is there"));
        if is_applied(&found) {
            return;
        }
        if shown.elapsed() > Duration::from_secs(30) {
            shown = monotonic();
            say(operator, found["status"]["phase"].as_str().unwrap_or_default());
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

fn say(operator: &Child, what: &str) {
    let status = std::fs::read_to_string(format!("/proc/{}/status", operator.id().expect("it runs")));
    let status = status.unwrap_or_default();
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.map(|rest| rest[1..].trim().to_owned()).unwrap_or_default()
    };
    println!("{what}: now {}, at most {}", field("VmRSS"), field("VmHWM"));
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
