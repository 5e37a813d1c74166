//! The sidecar keeps a pod out of service until its node is marked ready.

use serde_json::{Value, json};

use crate::e2e::sidecars::Sidecars;
use windlass_harness::kit::tools::is_up;
use windlass_harness::kit::{Wave, World, condition};

async fn sidecar_says(world: &World, node: &str, what: &str) -> Value {
    world
        .until(&world.nodes(), node, &format!("SidecarReady is {what}"), |n| {
            condition(n, "SidecarReady") == what
        })
        .await
}

#[tokio::test(flavor = "multi_thread")]
async fn each_pod_is_marked_ready_once_by_its_plan_task() {
    let world = World::new("mark").await;
    let sidecars = Sidecars::start(&world).await;
    world.fleet(sidecars.fleet(2, "db:1")).await;
    world.until_applied().await;
    let wave = Wave::watch(&world, 2).await;
    world.set_image("db:2").await;
    world.until_applied().await;
    wave.at_most(1).await;
    for node in ["db-0", "db-1"] {
        let seen = sidecar_says(&world, node, "True/Ready").await;
        let history = seen["status"]["history"].as_array().expect("a history");
        let tasks: Vec<String> =
            history.iter().map(|h| format!("{}-4", h["planID"].as_str().unwrap())).collect();
        assert_eq!(sidecars.tasks(&format!("{node}-0")), tasks, "{seen:#}");
    }
}

/// `windlass sidecar`, on its own loopback address.
fn shipped_sidecar(ip: &str, arguments: &[&str]) -> tokio::process::Child {
    tokio::process::Command::new(env!("CARGO_BIN_EXE_windlass"))
        .args(["sidecar", "--bind", &format!("{ip}:17777")])
        .args(arguments)
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .expect("the sidecar starts")
}

/// A fleet of one node whose pod has that address.
fn fleet_of_one_at(ip: &str) -> Value {
    let mut wanted = windlass_harness::kit::fleet(1, "db:1");
    let spec = &mut wanted["spec"]["template"]["spec"];
    spec["sidecar"] = json!({"image": "sidecar:1", "port": 17777});
    spec["podTemplate"]["metadata"] = json!({"annotations": {
        "windlass.test/pod-ip": ip,
        "windlass.test/sidecar-url": format!("http://{ip}:17777"),
    }});
    wanted
}

#[tokio::test(flavor = "multi_thread")]
async fn shipped_sidecar_is_marked_ready_again_after_restart() {
    let world = World::new("real").await;
    let start = || shipped_sidecar("127.65.0.1", &[]);
    world.fleet(fleet_of_one_at("127.65.0.1")).await;
    sidecar_says(&world, "db-0", "Unknown/Unreachable").await;
    let mut sidecar = start();
    world.until_applied().await;
    sidecar_says(&world, "db-0", "True/Ready").await;
    let before = world.pod_uids().await;
    sidecar.kill().await.expect("it is killed");
    world.until(&world.pods(), "db-0-0", "it is out of service", |p| !is_up(p)).await;
    sidecar = start();
    world.until(&world.pods(), "db-0-0", "it is in service again", is_up).await;
    world
        .until(&world.nodes(), "db-0", "its plan is over", |n| {
            n["status"]["plan"]["recipe"] == "MarkReady" && n["status"]["plan"]["state"] == "Complete"
        })
        .await;
    assert_eq!(world.pod_uids().await, before, "the pod stays");
    sidecar.kill().await.expect("it is killed");
}
