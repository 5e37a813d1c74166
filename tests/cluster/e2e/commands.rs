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

async fn windlass_as(world: &World, kubeconfig: &Path, words: &[&str]) -> Ran {
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
async fn each_verb_does_what_its_annotation_or_field_does_once_and_tells_who_asked() {
    let world = World::new("commands").await;
    world.settled_fleet(fleet(2, "db:1")).await;
    let db = "nd/db";

    does(&world, &["pause", db, "--dry-run"], "paused (dry run)").await;
    assert!(world.db().await["spec"]["paused"].as_bool() != Some(true));
    does(&world, &["pause", db, "--reason", "lunch"], "nodedeployment.windlass.dev/db paused").await;
    does(&world, &["pause", db], "unchanged: it is paused").await;
    world.until_db("it is paused", |db| db["status"]["phase"] == "Paused").await;
    let note = world.until_event("db", "PauseRequested").await;
    assert!(note.contains("asked for pause") && note.ends_with(": lunch"), "{note}");
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
    does(&world, &["abort", db, "--reason", "no such image"], "asked to abort plan").await;
    world.until_db("it is aborted", |db| condition(db, "UpToDate") == "False/Aborted").await;
    does(&world, &["abort", db], "is aborted").await;
    let aborted = world.db().await;
    let entry = aborted["status"]["history"].as_array().unwrap().last().unwrap().clone();
    let message = entry["message"].as_str().unwrap_or_default();
    assert!(message.starts_with("abort by ") && message.ends_with(": no such image"), "{entry:#}");

    does(&world, &["retry", db], "asked to retry plan").await;
    world.until_db("it is tried again", |db| db["status"]["plan"]["state"] == "Active").await;

    let ran = windlass(&world, &["history", db]).await;
    let lines: Vec<&str> = ran.out.lines().collect();
    assert!(lines[1].contains("wanted") && lines[1].contains("db:2-nope"), "{}", ran.out);
    assert!(lines[2].contains("last completed") && lines[2].contains("db:1"), "{}", ran.out);
    assert!(ran.out.contains("Aborted"), "{}", ran.out);
    does(&world, &["rollback", db], "rolled back to revision 1 (db:1)").await;
    does(&world, &["rollback", db, "--to", "1"], "unchanged").await;
    world.until_applied().await;
    assert_eq!(world.images().await, ["db:1", "db:1"]);
    does(&world, &["rollback", db], "unchanged: it was already rolled back to revision 1").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_done_is_said_in_a_sentence_and_nothing_is_written() {
    let world = World::new("cannot").await;
    let db = world.settled_fleet(fleet(1, "db:1")).await;
    for (words, code, said) in [
        (vec!["retry", "nd/db"], 1, "there is nothing to retry"),
        (vec!["promote", "nd/db"], 1, "no entrants wait"),
        (vec!["skip", "sn/db-0"], 1, "there is nothing to skip"),
        (vec!["skip", "sn/db-0", "--task", "x"], 1, "see status.plan.tasks"),
        (vec!["pause", "sn/db-0"], 1, "spec.suspend"),
        (vec!["rollback", "nd/db", "--to", "7"], 1, "see windlass history"),
        (vec!["rollback", "sn/db-0"], 1, "nd/NAME"),
        (vec!["pause", "nd/other"], 1, "name another with --namespace"),
        (vec!["pause", "db"], 2, "write nd/db or sn/db"),
        (vec!["pause"], 2, "TYPE/NAME"),
    ] {
        fails(&world, &words, code, said).await;
    }
    let after: Value = world.db().await;
    assert_eq!(after["metadata"]["resourceVersion"], db["metadata"]["resourceVersion"]);
    assert_eq!(after["metadata"]["annotations"], json!(null));
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

#[tokio::test(flavor = "multi_thread")]
async fn each_verb_asks_for_the_rights_that_are_documented_and_no_more() {
    let world = World::new("rights").await;
    world.settled_fleet(fleet(1, "db:1")).await;
    let on = |verbs: &[&str]| json!({"apiGroups": ["windlass.dev"], "resources": ["nodedeployments"], "verbs": verbs});
    let events = json!({"apiGroups": ["events.k8s.io"], "resources": ["events"], "verbs": ["create"]});
    let revisions = json!({"apiGroups": ["apps"], "resources": ["controllerrevisions"], "verbs": ["list"]});
    let db = "nd/db";

    let oncall = account(&world, "oncall", json!([on(&["get", "patch"]), events])).await;
    for (verb, said) in [("pause", "paused"), ("resume", "resumed"), ("restart", "restarted")] {
        let ran = windlass_as(&world, &oncall, &[verb, db]).await;
        assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{verb}: {}", ran.out);
        assert!(ran.out.contains(said), "{verb}: {}", ran.out);
    }
    world.until_applied_again().await;
    world.set_image("db:2-nope").await;
    world.until_db("a node is held", |db| db["status"]["rollout"]["nodes"]["failed"] == 1).await;
    let ran = windlass_as(&world, &oncall, &["abort", db]).await;
    assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{}", ran.out);
    world.until_db("it is aborted", |db| condition(db, "UpToDate") == "False/Aborted").await;
    let ran = windlass_as(&world, &oncall, &["rollback", db]).await;
    assert!(ran.code == 1 && ran.err.contains("its revisions cannot be listed"), "{}{}", ran.out, ran.err);

    let silent = account(&world, "silent", json!([on(&["get", "patch"])])).await;
    let ran = windlass_as(&world, &silent, &["retry", db]).await;
    assert!(ran.code == 0 && ran.err.contains("no event could be written"), "{}{}", ran.out, ran.err);

    let reader = account(&world, "reader", json!([on(&["get"]), revisions])).await;
    let ran = windlass_as(&world, &reader, &["history", db]).await;
    assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{}", ran.out);
    let ran = windlass_as(&world, &reader, &["pause", db]).await;
    assert!(ran.code == 1 && ran.err.contains("cannot patch"), "{}{}", ran.out, ran.err);

    let lead = account(&world, "lead", json!([on(&["get", "patch"]), events, revisions])).await;
    let ran = windlass_as(&world, &lead, &["rollback", db]).await;
    assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{}", ran.out);
}

/// Runs a verb, which must succeed without warnings.
async fn may(world: &World, account: &Path, words: &[&str], said: &str) {
    let ran = windlass_as(world, account, words).await;
    assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{words:?}: {}", ran.out);
    assert!(ran.out.contains(said), "{words:?}: {}", ran.out);
}

/// Runs a verb that must fail for a missing right.
async fn may_not(world: &World, account: &Path, words: &[&str], said: &str) {
    let ran = windlass_as(world, account, words).await;
    assert!(ran.code == 1 && ran.err.contains(said), "{words:?}: {}{}", ran.out, ran.err);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_verbs_for_hooks_sets_and_all_ask_for_the_rights_that_are_documented_and_no_more() {
    let mut world = World::without_operator("more-rights").await;
    crate::e2e::leader::may_elect(&world).await;
    world.start_electing_operator().await;
    let settings = json!({"promotion": "Manual", "retireDelaySeconds": 0});
    let mut wanted = crate::e2e::sets::blue_green(1, settings);
    wanted["spec"]["updateStrategy"]["hooks"] = json!([
        {"name": "one", "at": "BeforeRollout", "approval": {}},
        {"name": "two", "at": "BeforeRollout", "approval": {}},
    ]);
    world.settled_fleet(wanted).await;
    world.set_image("db:2").await;
    let on = |verbs: &[&str]| json!({"apiGroups": ["windlass.dev"], "resources": ["nodedeployments"], "verbs": verbs});
    let events = json!({"apiGroups": ["events.k8s.io"], "resources": ["events"], "verbs": ["create"]});
    let oncall = account(&world, "oncall", json!([on(&["get", "patch"]), events])).await;
    let waits = |hook: &'static str| {
        move |db: &Value| {
            db["status"]["hooks"][0]["hook"] == hook
                && db["status"]["hooks"][0]["state"] == "AwaitingApproval"
        }
    };

    world.until_db("the first hook waits", waits("one")).await;
    may(&world, &oncall, &["approve", "nd/db"], "approve").await;
    let db = world.until_db("the second hook waits", waits("two")).await;
    let task = db["status"]["hooks"][0]["taskID"].as_str().unwrap().to_owned();
    may(&world, &oncall, &["skip", "nd/db", "--task", &task], "skip").await;
    world.until_db("it can be promoted", |db| condition(db, "UpToDate") == "Unknown/ReadyToPromote").await;
    may(&world, &oncall, &["promote", "nd/db"], "promote").await;
    world.until_db("it is promoted", crate::e2e::sets::is_over).await;

    may_not(&world, &oncall, &["pause", "nd", "--all"], "cannot list").await;
    let all = account(&world, "all", json!([on(&["get", "list", "patch"]), events])).await;
    may(&world, &all, &["pause", "nd", "--all"], "paused").await;
    may(&world, &all, &["resume", "nd", "--all"], "resumed").await;

    let leases = json!({"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["list"]});
    let asks = account(&world, "asks", json!([leases])).await;
    let ns = world.ns.to_string();
    let version =
        async |account: &Path| windlass_plain(account, &["version", "--operator-namespace", &ns]).await;
    let told = version(&asks).await;
    assert_eq!((told.code, told.err.as_str()), (0, ""), "{}", told.out);
    assert!(told.out.contains("Operator Version: "), "{}", told.out);
    let nobody = account(&world, "nobody", json!([])).await;
    let told = version(&nobody).await;
    assert!(told.code == 1 && told.err.contains("cannot list"), "{}{}", told.out, told.err);
    let told = windlass_plain(&nobody, &["version", "--client"]).await;
    assert_eq!((told.code, told.err.as_str()), (0, ""), "{}", told.out);

    // Commands that only read.
    let looks = account(&world, "looks", json!([on(&["get"])])).await;
    may(&world, &looks, &["status", "nd/db"], "left out, because StatefulNodes cannot be listed").await;
    may_not(&world, &looks, &["status"], "cannot be listed").await;
    let watches = account(&world, "watches", json!([on(&["get", "list", "watch"])])).await;
    may(&world, &watches, &["wait", "nd/db", "--timeout", "30s"], "is up to date").await;
    may(&world, &watches, &["status", "--exit-status"], "db").await;
    may(&world, &looks, &["explain", "nd/db"], "NodeDeployment db").await;
    let story = windlass_as(&world, &looks, &["logs", "nd/db"]).await;
    assert!(story.code == 0 && story.out.contains("Settled"), "{}{}", story.out, story.err);
    assert!(story.err.contains("left out, because events cannot be listed"), "{}", story.err);
    may_not(&world, &looks, &["diff", "nd/db"], "controllerrevisions").await;
    let revisions = json!({"apiGroups": ["apps"], "resources": ["controllerrevisions"], "verbs": ["list"]});
    let compares = account(&world, "compares", json!([on(&["get"]), revisions])).await;
    may(&world, &compares, &["diff", "nd/db", "--revision", "1", "--revision", "1"], "nothing differs").await;
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
async fn a_kubeconfig_s_proxy_is_gone_through() {
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
    assert!(ran.code == 1 && ran.err.contains("cannot be reached"), "{}{}", ran.out, ran.err);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_environment_s_proxy_is_gone_through_but_to_the_hosts_that_need_none() {
    let world = World::new("env-proxied").await;
    world.settled_fleet(fleet(1, "db:1")).await;
    let (proxy, asked, task) = connect_proxy(world.cp.server()).await;
    // Only the proxy can resolve this name.
    let direct = std::fs::read_to_string(world.cp.kubeconfig()).unwrap();
    let mut config: Value = serde_saphyr::from_str(&direct).unwrap();
    let port = world.cp.server().rsplit(':').next().unwrap();
    let far = &mut config["clusters"][0]["cluster"];
    far["server"] = format!("https://api.windlass.invalid:{port}").into();
    far["tls-server-name"] = "127.0.0.1".into();
    let path = world.cp.kubeconfig().with_file_name(format!("{}-far.kubeconfig", &*world.ns));
    std::fs::write(&path, config.to_string()).unwrap();
    let run = async |variables: &[(&str, &str)], words: &[&str]| {
        let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_windlass"));
        for name in ["HTTPS_PROXY", "https_proxy", "NO_PROXY", "no_proxy", "ALL_PROXY", "all_proxy"] {
            command.env_remove(name);
        }
        command.args(words).args(["-n", &world.ns]).env("KUBECONFIG", &path).envs(variables.iter().copied());
        let output = command.output().await.unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
    };
    let proxy = format!("http://{proxy}");
    let through = [("HTTPS_PROXY", proxy.as_str())];
    for (words, said) in [
        (vec!["pause", "nd/db"], "paused"),
        (vec!["resume", "nd/db"], "resumed"),
        (vec!["status", "nd/db"], "db"),
        (vec!["wait", "nd/db", "--timeout", "30s"], "is up to date"),
        (vec!["explain", "nd/db"], "NodeDeployment db"),
        (vec!["history", "nd/db"], "REVISION"),
        (vec!["plan", "nd/db", "--image", "db:2"], "db-0"),
        (vec!["logs", "nd/db"], "Settled"),
    ] {
        let before = asked.lock().unwrap().len();
        let (code, out, err) = run(&through, &words).await;
        assert!(
            matches!(code, 0 | 2) && err.is_empty() && out.contains(said),
            "{words:?}: {code} {out}{err}"
        );
        let hosts = asked.lock().unwrap().clone();
        assert!(hosts.len() > before, "{words:?}: {hosts:?}");
        assert!(hosts.iter().all(|host| host.starts_with("api.windlass.invalid:")), "{hosts:?}");
    }
    let before = asked.lock().unwrap().len();
    for none in [".windlass.invalid", "api.windlass.invalid", "*"] {
        let without = [("https_proxy", proxy.as_str()), ("NO_PROXY", none)];
        let (code, out, err) = run(&without, &["pause", "nd/db"]).await;
        assert!(code == 1 && err.contains("cannot be reached"), "{none}: {out}{err}");
    }
    assert_eq!(asked.lock().unwrap().len(), before, "nothing goes through the proxy");
    task.abort();
}
