//! What the user's rights do not allow is reported and left out: each right is removed in turn. And suggested
//! commands can be pasted.

use std::path::Path;
use std::process::{Output, Stdio};

use serde_json::{Value, json};
use tokio::process::Command;

use crate::e2e::eyes::{Ran, account, windlass, windlass_as};
use windlass_harness::kit::{World, condition, fleet};

/// The resources that a report reads: API group, resource.
const READ: [(&str, &str); 9] = [
    ("windlass.dev", "nodedeployments"),
    ("windlass.dev", "statefulnodes"),
    ("apps", "statefulsets"),
    ("apps", "controllerrevisions"),
    ("", "pods"),
    ("", "services"),
    ("", "persistentvolumeclaims"),
    ("", "resourcequotas"),
    ("events.k8s.io", "events"),
];

/// An account that may read all of them but one.
async fn without(world: &World, missing: &str) -> std::path::PathBuf {
    let rule = |(group, resource): &(&str, &str)| json!({"apiGroups": [group], "resources": [resource], "verbs": ["get", "list", "watch"]});
    let rules: Vec<Value> = READ.iter().filter(|(_, resource)| *resource != missing).map(rule).collect();
    account(world, &format!("no-{missing}"), json!(rules)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn what_each_right_that_is_missing_leaves_out_is_said_and_nothing_else_is() {
    let world = World::new("eyes-rights").await;
    let quota = json!({"metadata": {"name": "few"}, "spec": {"hard": {"pods": "3"}}});
    world.create("v1", "ResourceQuota", quota).await;
    world.settled_fleet(fleet(3, "db:1")).await;
    let counted = |quota: &Value| quota["status"]["used"]["pods"] == "3";
    world.until(&world.api("v1", "ResourceQuota"), "few", "it is counted", counted).await;
    world.patch_fleet(json!({"spec": {"replicas": 4}})).await;

    // The chain ends with the refusal of the pod.
    let refused =
        |node: &Value| node["status"]["problem"]["message"].to_string().contains("exceeded quota: few");
    world.until(&world.nodes(), "db-3", "its pod is refused", refused).await;
    let ran = windlass(&world, &["explain", "nd/db"]).await;
    for words in
        ["StatefulNode db-3", "pod db-3-0  it does not exist", "event FailedCreate", "exceeded quota: few"]
    {
        assert!(ran.out.contains(words), "{words}: {}{}", ran.out, ran.err);
    }

    for (missing, words, said, unsaid) in [
        ("pods", &["status", "nd/db"][..], "left out, because Pods cannot be listed", "does not exist"),
        ("pods", &["explain", "nd/db"], "left out, because Pods cannot be listed", "does not exist"),
        ("pods", &["explain", "sn/db-3"], "left out, because pod db-3-0 cannot be read", "does not exist"),
        ("events", &["explain", "nd/db"], "left out, because events cannot be listed", "event FailedCreate"),
        ("events", &["logs", "nd/db"], "left out, because events cannot be listed", "NodeCreated"),
        (
            "statefulnodes",
            &["status", "nd/db"],
            "left out, because StatefulNodes cannot be listed",
            "nodes serve",
        ),
        ("statefulnodes", &["plan", "nd/db"], "only those can tell who may list StatefulNodes", "db-3"),
        (
            "resourcequotas",
            &["plan", "nd/db", "--replicas", "5"],
            "not looked which quotas there are",
            "exceeded",
        ),
        ("pods", &["plan", "nd/db", "--replicas", "5"], "Pods cannot be listed", "exceeded"),
    ] {
        let who = without(&world, missing).await;
        let ran = windlass_as(&world, &who, words).await;
        let all = format!("{}{}", ran.out, ran.err);
        assert!(all.contains(said), "without {missing}, {words:?}: {all}");
        assert!(!ran.out.contains(unsaid), "without {missing}, {words:?}: {all}");
        assert!(
            all.contains("cannot list resource")
                || all.contains("cannot get resource")
                || missing == "statefulnodes",
            "{all}"
        );
    }
    let who = without(&world, "pods").await;
    let data = windlass_as(&world, &who, &["explain", "nd/db", "-o", "json"]).await;
    let data: Value = serde_json::from_str(&data.out).unwrap_or_else(|e| panic!("{e}: {}", data.out));
    assert!(
        data["unread"][0].as_str().is_some_and(|said| said.contains("Pods cannot be listed")),
        "{data:#}"
    );
    // A user who may not read the fleet itself is told so, with 1.
    let who = without(&world, "nodedeployments").await;
    for words in [
        &["status", "nd/db"][..],
        &["explain", "nd/db"],
        &["plan", "nd/db"],
        &["logs", "nd/db"],
        &["diff", "nd/db"],
    ] {
        let ran = windlass_as(&world, &who, words).await;
        assert_eq!((ran.code, ran.out.as_str()), (1, ""), "{words:?}: {}", ran.err);
        assert!(ran.err.contains("cannot get resource \"nodedeployments\""), "{words:?}: {}", ran.err);
    }
}

/// Runs a line in a shell, where only the line itself names a cluster.
async fn pasted(folder: &Path, line: &str) -> Ran {
    let mut shell = Command::new("sh");
    let path = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap_or_default());
    shell.args(["-c", line]).env("PATH", path).env_remove("KUBECONFIG").env("HOME", "/nonexistent");
    let Output { status, stdout, stderr } = shell.stdin(Stdio::null()).output().await.unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    Ran { code: status.code().unwrap(), out: text(stdout), err: text(stderr) }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_that_is_told_reaches_the_same_fleet_wherever_it_is_pasted() {
    let world = World::new("eyes-pasted").await;
    world.settled_fleet(fleet(2, "db:1")).await;
    world.set_image("db:2-nope").await;
    world.until_db("a node cannot run", |db| db["status"]["rollout"]["nodes"]["failed"] == 1).await;
    let folder = std::env::temp_dir().join(format!("windlass pasted {}", &*world.ns));
    std::fs::create_dir_all(&folder).unwrap();
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_windlass"), folder.join("windlass")).unwrap();
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_windlass"), folder.join("kubectl-windlass")).unwrap();
    // A name that a shell would split.
    let kubeconfig = folder.join("kube config");
    std::fs::copy(world.cp.kubeconfig(), &kubeconfig).unwrap();

    let explain =
        format!("windlass explain nd/db -n {} --kubeconfig '{}' -o json", &*world.ns, kubeconfig.display());
    let told = pasted(&folder, &explain).await;
    let told: Value =
        serde_json::from_str(&told.out).unwrap_or_else(|e| panic!("{e}: {}{}", told.out, told.err));
    let commands: Vec<&str> = told["remedies"]
        .as_array()
        .unwrap()
        .iter()
        .map(|remedy| remedy["command"].as_str().unwrap())
        .collect();
    let of = |verb: &str| *commands.iter().find(|command| command.starts_with(verb)).expect(verb);
    let planned = pasted(&folder, &of("windlass plan ").replace("IMAGE", "db:3")).await;
    assert_eq!(planned.code, 2, "{}{}", planned.out, planned.err);
    let paused = pasted(&folder, of("windlass pause ")).await;
    assert_eq!(paused.code, 0, "{}", paused.err);
    world.until_db("it is paused", |db| db["status"]["phase"] == "Paused").await;

    // Commands in status messages get the namespace too, and the plugin's user sees the plugin's name.
    let plan = format!("{}/kubectl-windlass plan nd/db -n {} --kubeconfig 'kube config'", "'.'", &*world.ns);
    let told = pasted(&folder, &format!("cd '{}' && {plan}", folder.display())).await;
    let resume = format!("kubectl windlass resume nd/db -n {} --kubeconfig 'kube config'", &*world.ns);
    assert!(told.out.replace("\n    ", " ").contains(&resume), "{}{}", told.out, told.err);
    let aborted = pasted(&folder, of("windlass abort ")).await;
    assert_eq!(aborted.code, 0, "{}", aborted.err);
    world.until_db("it is aborted", |db| condition(db, "UpToDate") == "False/Aborted").await;
    std::fs::remove_dir_all(&folder).unwrap();
}
