//! How pods go: hooks, signals, grace periods.

use std::{fs, time::Duration};

use serde_json::{Value, json};
use windlass::clock::monotonic;

use crate::process_kubelet::kit::{World, shell, with};

/// Holds out against SIGTERM, and says so.
const STUBBORN: &str = "trap 'echo told >> told' TERM; touch up; while :; do sleep 0.1; done";

fn until_up(main: Value) -> Value {
    let probe = json!({"readinessProbe": {"exec": {"command": ["test", "-f", "up"]}, "periodSeconds": 1}});
    with(main, probe)
}

/// Whether any process runs whose command line has this in it.
fn runs(mark: &str) -> bool {
    let lines =
        fs::read_dir("/proc").unwrap().filter_map(|entry| fs::read(entry.ok()?.path().join("cmdline")).ok());
    lines.map(|line| String::from_utf8_lossy(&line).into_owned()).any(|line| line.contains(mark))
}

#[tokio::test]
async fn process_ignoring_sigterm_is_killed_after_grace_period() {
    let world = World::new("grace").await;
    let mark = format!(": {};", &*world.ns);
    let main = until_up(shell("main", &format!("{mark} {STUBBORN}")));
    world.pod("p", json!({"terminationGracePeriodSeconds": 3, "containers": [main]})).await;
    world.until_ready("p").await;
    assert!(runs(&mark));
    let began = monotonic();
    world.delete("p", None).await;
    world.until_event("p", "Killing", "Stopping container main").await;
    assert!(runs(&mark), "it has three seconds");
    world.until_gone("p").await;
    let took = began.elapsed();
    assert!(took > Duration::from_millis(2500) && took < Duration::from_secs(20), "{took:?}");
    assert!(!runs(&mark), "the API server forgets a pod only once its processes have ended");
}

#[tokio::test]
#[ignore = "nightly"]
async fn lifecycle_hooks_run_after_start_and_before_stop() {
    let world = World::new("hooks").await;
    let file = world.folder.with_extension("hooks");
    let path = file.display().to_string();
    let say = |what: &str| json!({"exec": {"command": ["sh", "-c", format!("echo {what} >> {path}")]}});
    let script = format!("trap 'echo stopped >> {path}; exit 0' TERM; while :; do sleep 0.1; done");
    let main = with(
        shell("main", &script),
        json!({"lifecycle": {"postStart": say("started"), "preStop": say("leaving")}}),
    );
    world.pod("p", json!({"containers": [main]})).await;
    world.until_ready("p").await;
    assert_eq!(fs::read_to_string(&file).unwrap(), "started\n");
    world.delete("p", None).await;
    world.until_gone("p").await;
    assert_eq!(fs::read_to_string(&file).unwrap(), "started\nleaving\nstopped\n");
    fs::remove_file(file).unwrap();
}
