//! How pods go: hooks, signals, grace periods.

use std::{fs, time::Duration};

use serde_json::{Value, json};
use windlass::clock::monotonic;

use crate::process_kubelet::kit::{World, container, shell, with};

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
async fn a_process_that_ignores_sigterm_is_killed_after_its_grace_period() {
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
async fn a_second_delete_shortens_the_grace_period_and_force_ends_it() {
    let world = World::new("force").await;
    let main = |mark: &str| until_up(shell("main", &format!("{mark} {STUBBORN}")));
    let marks = ["a", "b"].map(|name| format!(": {}-{name};", &*world.ns));
    for (name, mark) in ["a", "b"].iter().zip(&marks) {
        world.pod(name, json!({"terminationGracePeriodSeconds": 600, "containers": [main(mark)]})).await;
        world.until_ready(name).await;
        world.delete(name, None).await;
    }
    world.delete("a", Some(1)).await;
    world.until_gone("a").await;
    assert!(!runs(&marks[0]));
    world.delete("b", Some(0)).await;
    world.until_gone("b").await;
    // The object is gone before the processes are.
    for _ in 0..500 {
        if !runs(&marks[1]) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("a pod that was deleted by force runs on");
}

#[tokio::test]
#[ignore = "nightly"]
async fn hooks_run_after_the_start_and_before_the_stop() {
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

#[tokio::test]
#[ignore = "nightly"]
async fn a_sleep_before_the_stop_is_slept() {
    let world = World::new("sleep").await;
    let hook = json!({"lifecycle": {"preStop": {"sleep": {"seconds": 3}}}});
    world.pod("p", json!({"containers": [with(shell("main", "exec sleep 600"), hook)]})).await;
    world.until_ready("p").await;
    let began = monotonic();
    world.delete("p", None).await;
    world.until_gone("p").await;
    assert!(began.elapsed() > Duration::from_millis(2900), "{:?}", began.elapsed());
}

#[tokio::test]
#[ignore = "nightly"]
async fn a_start_hook_that_fails_ends_the_container() {
    let world = World::new("bad-hook").await;
    let hook = json!({"lifecycle": {"postStart": {"exec": {"command": ["false"]}}}});
    let spec = json!({"terminationGracePeriodSeconds": 1, "containers": [with(shell("main", "exec sleep 600"), hook)]});
    world.pod("p", spec).await;
    world.until_event("p", "FailedPostStartHook", "PostStartHook failed").await;
    world.until("p", "it restarts", |p| container(p, "main")["restartCount"].as_i64() >= Some(1)).await;
}
