//! Suggested commands can be pasted.

use std::path::Path;
use std::process::{Output, Stdio};

use serde_json::Value;
use tokio::process::Command;

use crate::e2e::eyes::Ran;
use windlass_harness::kit::{World, condition, fleet};

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
#[ignore = "nightly"]
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
