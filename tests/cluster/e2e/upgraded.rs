//! An upgrade from an earlier commit: its operator has started a rollout under its own definitions and rights, and
//! today's replace them in the middle.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use serde_json::{Value, json};
use tokio::process::Command;

use windlass_harness::controlplane::{ControlPlane, Options};
use windlass_harness::kit::tools::is_up;
use windlass_harness::kit::{World, condition, fleet, is_applied, with};

/// The fleets that are up to date while others are not.
const STANDING: [&str; 2] = ["steady", "blue"];

/// The output of `.ci/upgrade`: `windlass`, and the `deploy` of its commit.
fn earlier() -> PathBuf {
    std::env::var_os("WINDLASS_EARLIER").expect("WINDLASS_EARLIER: run .ci/upgrade").into()
}

async fn applied(world: &World, deploy: &Path) {
    let folder = deploy.join("crds");
    let crds = ["apply", "--server-side", "--force-conflicts", "-f", folder.to_str().unwrap()];
    world.cp.kubectl(&crds).await.ok();
    world.cp.kubectl(&["wait", "--for=condition=Established", "crd", "--all"]).await.ok();
    let rights = deploy.join("rbac/one-namespace.yaml");
    world.cp.kubectl(&["-n", &world.ns, "apply", "-f", rights.to_str().unwrap()]).await.ok();
}

fn is_over(db: &Value) -> bool {
    is_applied(db) && db["status"]["rollout"].is_null() && db["status"]["retiring"].is_null()
}

/// The writes to a fleet of this name, or to its objects.
fn to<'a>(writes: &'a [String], name: &str) -> Vec<&'a String> {
    let of = |line: &&String| {
        let object = line.split(' ').nth(1).and_then(|object| object.split('/').nth(1)).unwrap_or_default();
        object == name || object.strip_prefix(name).is_some_and(|rest| rest.starts_with('-'))
    };
    writes.iter().filter(of).collect()
}

/// The pods of the other fleets, by UID.
async fn others(world: &World) -> BTreeMap<String, Value> {
    let pods = world.list(&world.pods()).await.into_iter().map(|mut pod| pod["metadata"].take());
    let pods = pods.filter(|meta| meta["labels"]["windlass.dev/deployment"] != "db");
    pods.map(|meta| (meta["name"].as_str().unwrap_or_default().to_owned(), meta["uid"].clone())).collect()
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs an operator of an earlier commit: .ci/upgrade builds it"]
async fn rollout_continues_under_the_next_operator_version() {
    let earlier = earlier();
    let options = Options { crds: false, ..Options::default() };
    let cp = Box::leak(Box::new(ControlPlane::start(options).await.expect("a control plane")));
    let mut world = World::on(cp, "upgrade").await;
    applied(&world, &earlier.join("deploy")).await;
    let mut old = Command::new(earlier.join("windlass"))
        .args(["operator", "--namespace", &world.ns, "--no-leader-elect", "--bind", "127.0.0.1:0"])
        .env("KUBECONFIG", &world.kubeconfig)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .expect("the earlier operator starts");

    // Steady fleets: one with a Service and after a rollout, one in its second set, and one that waits for a person.
    let named = |name: &str, object: Value| with(object, &json!({"metadata": {"name": name}}));
    let claim = json!({"metadata": {"name": "data"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}});
    let more = json!({"spec": {"service": {"ports": [{"port": 5432}]},
        "template": {"spec": {"volumeClaimTemplates": [claim]}}}});
    let sets = |promotion: &str| {
        let settings = json!({"promotion": promotion, "retireDelaySeconds": 0});
        with(more.clone(), &json!({"spec": {"updateStrategy": {"type": "BlueGreen", "blueGreen": settings}}}))
    };
    let fleets = world.fleets();
    world.fleet(named("steady", with(fleet(3, "db:1"), &more))).await;
    world.fleet(named("blue", with(fleet(2, "db:1"), &sets("WhenReady")))).await;
    world.fleet(named("asks", with(fleet(1, "db:1"), &sets("Manual")))).await;
    world.fleet(with(fleet(5, "db:1"), &json!({"spec": {"minReadySeconds": 3}}))).await;
    let image = |tag: &str| json!({"spec": {"template": {"spec": {"image": tag}}}});
    for name in ["steady", "blue", "asks", "db"] {
        world.until(&fleets, name, "it runs", is_over).await;
    }
    for name in ["steady", "blue", "asks"] {
        world.patch(&fleets, name, image("db:2")).await;
    }
    for name in ["steady", "blue"] {
        world.until(&fleets, name, "it is rolled out", is_over).await;
    }
    let ready = |db: &Value| condition(db, "UpToDate") == "Unknown/ReadyToPromote";
    world.until(&fleets, "asks", "it waits for a person", ready).await;

    world.set_image("db:2").await;
    let begun =
        world.until_db("a node is moved", |db| db["status"]["rollout"]["nodes"]["updated"] == 1).await;
    let before = others(&world).await;
    let mut standing = Vec::new();
    for name in STANDING {
        standing.push(world.get(&fleets, name).await["status"].clone());
    }
    applied(&world, &windlass_harness::root().join("deploy")).await;
    let pid = old.id().expect("it runs").to_string();
    assert!(std::process::Command::new("kill").arg(pid).status().unwrap().success());
    old.wait().await.expect("the earlier operator ends");
    let db = world.db().await;
    assert!(db["status"]["rollout"].is_object(), "the rollout was over before it was taken over: {db:#}");

    let mark = world.cp.audit_mark().await;
    world.start_operator(&[]).await;
    let mut worst = 0;
    loop {
        let pods = world.list(&world.pods()).await;
        let down = 5 - pods
            .iter()
            .filter(|pod| pod["metadata"]["labels"]["windlass.dev/deployment"] == "db" && is_up(pod))
            .count();
        worst = worst.max(down);
        let db = world.db().await;
        if is_over(&db) {
            break;
        }
        assert_ne!(condition(&db, "UpToDate"), "False/InvalidSpec", "{db:#}");
        assert!(begun["status"]["rollout"]["targetHash"] == db["status"]["rollout"]["targetHash"], "{db:#}");
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    assert_eq!(worst, 1, "so many nodes are down at once at most");
    let ended = world.db().await;
    let last = ended["status"]["plan"]["id"].clone();
    assert_eq!(last, begun["status"]["plan"]["id"], "the same plan went on: {ended:#}");
    assert_eq!(ended["status"]["plan"]["state"], "Complete", "{ended:#}");

    // Each has been reconciled at least twice by then.
    tokio::time::sleep(std::time::Duration::from_secs(8)).await;
    let writes = world.operator_writes(mark).await;
    assert!(!to(&writes, "db").is_empty());
    for (name, before) in STANDING.into_iter().zip(standing) {
        let now = &world.get(&fleets, name).await["status"];
        let mut written = to(&writes, name);
        // An operator from before disruptionBudget has created none.
        written.retain(|line| !line.starts_with("create poddisruptionbudgets/"));
        assert!(written.is_empty(), "{name}: {written:#?}\n{before:#}\n{now:#}");
    }
    // Another version may word the status of an active rollout differently; nothing else changes.
    let told = to(&writes, "asks");
    assert!(
        told.len() <= 1 && told.iter().all(|line| *line == "patch nodedeployments/asks status"),
        "{told:#?}"
    );
    assert_eq!(others(&world).await, before);

    // The one that waited continues with a promotion.
    let wanted = world.get(&fleets, "asks").await["status"]["requestedRolloutHash"].clone();
    world.patch(&fleets, "asks", json!({"spec": {"forcePromote": wanted}})).await;
    world.until(&fleets, "asks", "it is promoted", is_over).await;
}
