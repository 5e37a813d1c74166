//! The verbs on the command line, as a user types them.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Output;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::Command;
use tokio::task::JoinHandle;

use windlass_harness::kit::{World, condition, fleet};

pub struct Ran {
    pub code: i32,
    pub out: String,
    pub err: String,
}

pub async fn windlass(world: &World, words: &[&str]) -> Ran {
    windlass_as(world, world.cp.kubeconfig(), words).await
}

pub async fn windlass_as(world: &World, kubeconfig: &Path, words: &[&str]) -> Ran {
    windlass_plain(kubeconfig, &[words, &["-n", &world.ns]].concat()).await
}

/// The command without a namespace flag.
pub async fn windlass_plain(kubeconfig: &Path, words: &[&str]) -> Ran {
    let mut command = Command::new(env!("CARGO_BIN_EXE_windlass"));
    command.args(words).env("KUBECONFIG", kubeconfig);
    let Output { status, stdout, stderr } = command.output().await.unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    Ran { code: status.code().unwrap(), out: text(stdout), err: text(stderr) }
}

async fn does(world: &World, words: &[&str], said: &str) {
    let ran = windlass(world, words).await;
    assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{words:?}: {}", ran.out);
    assert!(ran.out.contains(said), "{words:?}: {}", ran.out);
}

async fn fails(world: &World, words: &[&str], code: i32, said: &str) {
    let ran = windlass(world, words).await;
    assert_eq!((ran.code, ran.out.as_str()), (code, ""), "{words:?}: {}", ran.err);
    assert!(ran.err.contains(said), "{words:?}: {}", ran.err);
}

#[tokio::test(flavor = "multi_thread")]
async fn each_verb_acts_once_and_records_the_requester() {
    let world = World::new("commands").await;
    world.settled_fleet(fleet(2, "db:1")).await;
    let db = "nd/db";

    does(&world, &["pause", db, "--dry-run"], "paused (dry run)").await;
    assert!(world.db().await["spec"]["paused"].as_bool() != Some(true));
    does(&world, &["pause", db, "--reason", "lunch"], "nodedeployment.windlass.dev/db paused").await;
    does(&world, &["pause", db], "unchanged: it is already paused").await;
    world.until_db("it is paused", |db| db["status"]["phase"] == "Paused").await;
    let note = world.until_event("db", "PauseRequested").await;
    assert!(note.contains("requested pause") && note.ends_with(": lunch"), "{note}");
    does(&world, &["resume", db], "resumed").await;

    let before = world.pod_uids().await;
    does(&world, &["restart", db], "restarted").await;
    world
        .until_db("the restart is obeyed", |db| {
            db["status"]["history"].as_array().is_some_and(|h| !h.is_empty())
        })
        .await;
    let after = world.pod_uids().await;
    assert_eq!(after.len(), before.len());
    assert!(after.iter().all(|uid| !before.contains(uid)), "each pod was replaced");

    fails(&world, &["abort", db], 1, "there is nothing to abort").await;
    world.set_image("db:2-nope").await;
    world.until_db("a node is held", |db| db["status"]["rollout"]["nodes"]["failed"] == 1).await;
    does(&world, &["abort", db, "--reason", "no such image"], "abort of plan").await;
    world.until_db("it is aborted", |db| condition(db, "UpToDate") == "False/Aborted").await;
    does(&world, &["abort", db], "is already aborted").await;
    let aborted = world.db().await;
    let entry = aborted["status"]["history"].as_array().unwrap().last().unwrap().clone();
    let message = entry["message"].as_str().unwrap_or_default();
    assert!(message.starts_with("abort by ") && message.ends_with(": no such image"), "{entry:#}");

    does(&world, &["retry", db], "retry of plan").await;
    world.until_db("it is tried again", |db| db["status"]["plan"]["state"] == "Active").await;

    let ran = windlass(&world, &["history", db]).await;
    let lines: Vec<&str> = ran.out.lines().collect();
    assert!(lines[1].contains("target") && lines[1].contains("db:2-nope"), "{}", ran.out);
    assert!(lines[2].contains("last completed") && lines[2].contains("db:1"), "{}", ran.out);
    assert!(ran.out.contains("Aborted"), "{}", ran.out);
    does(&world, &["rollback", db], "rolled back to revision 1 (db:1)").await;
    does(&world, &["rollback", db, "--to", "1"], "unchanged").await;
    world.until_applied().await;
    assert_eq!(world.images().await, ["db:1", "db:1"]);
    does(&world, &["rollback", db], "unchanged: it was already rolled back to revision 1").await;
}

/// An account with these rights in the world's namespace.
pub async fn account(world: &World, name: &str, rules: Value) -> std::path::PathBuf {
    let rbac = "rbac.authorization.k8s.io/v1";
    world.create(rbac, "Role", json!({"metadata": {"name": name}, "rules": rules})).await;
    let binding = json!({
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": &*world.ns}],
    });
    world.create(rbac, "RoleBinding", binding).await;
    world.cp.service_account_kubeconfig(&world.ns, name).await.expect("a kubeconfig")
}

/// A CONNECT proxy on loopback that always connects to this server, and the hosts that were requested.
async fn connect_proxy(server: &str) -> (SocketAddr, Arc<Mutex<Vec<String>>>, JoinHandle<()>) {
    let to = server.trim_start_matches("https://").to_owned();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, asked) = (listener.local_addr().unwrap(), Arc::<Mutex<Vec<String>>>::default());
    let log = asked.clone();
    let serve = async move |mut client: TcpStream, log: Arc<Mutex<Vec<String>>>, to: String| {
        let mut request = Vec::new();
        while !request.ends_with(b"\r\n\r\n") {
            request.push(client.read_u8().await?);
        }
        let request = String::from_utf8_lossy(&request).into_owned();
        let host = request.strip_prefix("CONNECT ").and_then(|rest| rest.split(' ').next());
        let host = host.expect("a CONNECT").to_owned();
        let mut server = TcpStream::connect(&to).await?;
        log.lock().unwrap().push(host);
        client.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await?;
        tokio::io::copy_bidirectional(&mut client, &mut server).await
    };
    let task = tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            tokio::spawn(serve(client, log.clone(), to.clone()));
        }
    });
    (address, asked, task)
}

#[tokio::test(flavor = "multi_thread")]
async fn kubeconfig_proxy_is_used() {
    let world = World::new("proxied").await;
    world.settled_fleet(fleet(1, "db:1")).await;
    let (proxy, asked, task) = connect_proxy(world.cp.server()).await;
    let direct = std::fs::read_to_string(world.cp.kubeconfig()).unwrap();
    let mut config: Value = serde_saphyr::from_str(&direct).unwrap();
    config["clusters"][0]["cluster"]["proxy-url"] = format!("http://{proxy}").into();
    let path = world.cp.kubeconfig().with_file_name(format!("{}-proxied.kubeconfig", &*world.ns));
    std::fs::write(&path, config.to_string()).unwrap();
    let ran = windlass_as(&world, &path, &["pause", "nd/db"]).await;
    assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{}", ran.out);
    assert_eq!(world.db().await["spec"]["paused"], true);
    let asked = asked.lock().unwrap().clone();
    assert!(!asked.is_empty() && asked.iter().all(|host| world.cp.server().ends_with(host)), "{asked:?}");
    task.abort();
    let ran = windlass_as(&world, &path, &["resume", "nd/db"]).await;
    assert!(ran.code == 1 && ran.err.contains("cannot reach the API server"), "{}{}", ran.out, ran.err);
}
