//! The sidecar keeps a pod out of service until its node is marked ready, and never blocks a replacement, however it
//! behaves.

use std::time::Duration;

use serde_json::{Value, json};

use crate::e2e::sampler::Sampler;
use crate::e2e::sidecars::{LONGER_THAN_A_CALL, Mode, Sidecars};
use windlass_harness::kit::tools::{image_of, is_up, outcomes};
use windlass_harness::kit::{World, condition};

async fn sidecar_says(world: &World, node: &str, what: &str) -> Value {
    world
        .until(&world.nodes(), node, &format!("SidecarReady is {what}"), |n| {
            condition(n, "SidecarReady") == what
        })
        .await
}

fn uid(pod: &Value) -> String {
    pod["metadata"]["uid"].as_str().expect("a UID").to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn each_pod_is_marked_ready_once_by_the_task_of_its_plan() {
    let world = World::new("mark").await;
    let sidecars = Sidecars::start(&world).await;
    world.fleet(sidecars.fleet(2, "db:1")).await;
    world.until_applied().await;
    let sampler = Sampler::start(&world, 2).await;
    world.set_image("db:2").await;
    world.until_applied().await;
    sampler.finish().await.at_most(1);
    for node in ["db-0", "db-1"] {
        let seen = sidecar_says(&world, node, "True/Ready").await;
        let history = seen["status"]["history"].as_array().expect("a history");
        let tasks: Vec<String> =
            history.iter().map(|h| format!("{}-4", h["planID"].as_str().unwrap())).collect();
        assert_eq!(sidecars.tasks(&format!("{node}-0")), tasks, "{seen:#}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sidecar_that_was_restarted_is_marked_again_and_its_pod_stays() {
    let world = World::new("again").await;
    let sidecars = Sidecars::start(&world).await;
    world.fleet(sidecars.fleet(2, "db:1")).await;
    world.until_applied().await;
    let before = world.pods_by_name().await;
    sidecars.forget(&uid(&before["db-1-0"]));
    let marked = world
        .until(&world.nodes(), "db-1", "it is marked again", |n| {
            n["status"]["plan"]["recipe"] == "MarkReady" && n["status"]["plan"]["state"] == "Complete"
        })
        .await;
    assert_eq!(outcomes(&marked), ["Complete", "Complete"]);
    let up = world.until(&world.pods(), "db-1-0", "it is Ready again", is_up).await;
    assert_eq!(uid(&up), uid(&before["db-1-0"]));
    assert_eq!(sidecars.tasks("db-1-0").len(), 2);
    assert_eq!(sidecars.tasks("db-0-0").len(), 1);
    let fleet = world.db().await;
    assert!(fleet["status"]["plan"].is_null(), "it is no rollout: {fleet:#}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sidecar_that_never_answered_does_not_keep_its_pod_from_being_replaced() {
    let world = World::new("dead").await;
    let sidecars = Sidecars::start(&world).await;
    sidecars.set("db-0-0", Mode::Hangs);
    world.fleet(sidecars.fleet(1, "db:1")).await;
    let seen = sidecar_says(&world, "db-0", "Unknown/Unreachable").await;
    assert_eq!(condition(&seen, "Ready"), "False/NodesInitializing");
    assert_eq!(seen["status"]["plan"]["state"], "Active", "it goes on trying");
    world.set_image("db:2").await;
    world.until(&world.pods(), "db-0-0", "it is replaced", |p| image_of(p) == "db:2").await;
    let rolling = world
        .until_db("it is named", |db| {
            db["status"]["rollout"]["unconverged"][0]["reason"] == "SidecarUnreachable"
        })
        .await;
    assert_eq!(condition(&rolling, "UpToDate"), "Unknown/Applying");
    sidecars.set("db-0-0", Mode::Honest);
    world.until_applied().await;
    sidecar_says(&world, "db-0", "True/Ready").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_whose_sidecar_died_counts_as_down_and_is_rolled_first() {
    let world = World::new("died").await;
    let sidecars = Sidecars::start(&world).await;
    world.fleet(sidecars.fleet(3, "db:1")).await;
    world.until_applied().await;
    let before = world.pods_by_name().await;
    sidecars.set("db-1-0", Mode::Hangs);
    sidecar_says(&world, "db-1", "Unknown/Unreachable").await;
    let sampler = Sampler::start(&world, 3).await;
    world.set_image("db:2").await;
    world.until(&world.pods(), "db-1-0", "it is replaced", |p| image_of(p) == "db:2").await;
    world
        .throughout(LONGER_THAN_A_CALL, &world.pods(), "db-2-0", "the wave is full", |p| {
            is_up(p) && uid(p) == uid(&before["db-2-0"])
        })
        .await;
    assert_eq!(world.images().await, ["db:1", "db:2", "db:1"]);
    sidecars.set("db-1-0", Mode::Honest);
    world.until_applied().await;
    assert_eq!(world.images().await, ["db:2"; 3]);
    sampler.finish().await.at_most(1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sidecar_that_says_ready_over_a_pod_that_is_not_completes_nothing() {
    let world = World::new("liar").await;
    let sidecars = Sidecars::start(&world).await;
    world.fleet(sidecars.fleet(2, "db:1")).await;
    world.until_applied().await;
    sidecars.set("db-1-0", Mode::SaysReady);
    world.set_image("db:2").await;
    world.until(&world.pods(), "db-1-0", "it is replaced", |p| image_of(p) == "db:2").await;
    world
        .throughout(LONGER_THAN_A_CALL, &world.fleets(), "db", "the rollout is on", |db| {
            db["status"]["rollout"].is_object() && outcomes(db).is_empty()
        })
        .await;
    assert_eq!(world.images().await, ["db:1", "db:2"], "the next node waits");
    let node = world.get(&world.nodes(), "db-1").await;
    assert_eq!(node["status"]["plan"]["state"], "Active", "{node:#}");
    world.set_image("db:3").await;
    world.until(&world.pods(), "db-1-0", "it is replaced again", |p| image_of(p) == "db:3").await;
    sidecars.set("db-1-0", Mode::Honest);
    world.until_applied().await;
    assert_eq!(world.images().await, ["db:3"; 2]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sidecar_that_never_says_ready_holds_the_rollout_until_its_task_is_skipped() {
    let world = World::new("mute").await;
    let sidecars = Sidecars::start(&world).await;
    world.fleet(sidecars.fleet(2, "db:1")).await;
    world.until_applied().await;
    sidecars.set("db-1-0", Mode::SaysUnready);
    world.set_image("db:2").await;
    world.until_pod_runs("db-1-0", "db:2").await;
    let held = sidecar_says(&world, "db-1", "False/NotReady").await;
    world
        .throughout(Duration::from_secs(2), &world.pods(), "db-0-0", "the next node waits", |p| {
            image_of(p) == "db:1" && is_up(p)
        })
        .await;
    let mark = held["status"]["plan"]["tasks"].as_array().unwrap().last().unwrap()["id"].clone();
    world.annotate(&world.nodes(), "db-1", "windlass.dev/skip", mark.clone()).await;
    let skipped = world
        .until(&world.nodes(), "db-1", "its plan is complete", |n| n["status"]["plan"]["state"] == "Complete")
        .await;
    let task = skipped["status"]["plan"]["tasks"].as_array().unwrap().last().unwrap().clone();
    assert_eq!((&task["id"], &task["state"]), (&mark, &json!("Skipped")));
    world.until_applied().await;
    assert_eq!(world.images().await, ["db:2"; 2]);
    assert!(world.notes_about("db-1", "SkipRefused").await.is_empty());
    world.until_quiet().await;
    world.writes_nothing_for(Duration::from_secs(2)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sidecar_that_speaks_nonsense_holds_its_node_and_no_fix() {
    let world = World::new("broken").await;
    let sidecars = Sidecars::start(&world).await;
    world.fleet(sidecars.fleet(2, "db:1")).await;
    world.until_applied().await;
    sidecars.set("db-1-0", Mode::Broken);
    let seen = sidecar_says(&world, "db-1", "Unknown/Unreachable").await;
    let said = seen["status"]["conditions"].to_string();
    assert!(!said.contains("oh no"), "what it answered stays out of the status: {said}");
    world.set_image("db:2").await;
    world.until(&world.pods(), "db-1-0", "it is replaced", |p| image_of(p) == "db:2").await;
    sidecars.set("db-1-0", Mode::Honest);
    world.until_applied().await;
    assert_eq!(world.images().await, ["db:2"; 2]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_sidecars_url_applies_at_once_and_its_image_is_a_new_target() {
    let world = World::new("url").await;
    let sidecars = Sidecars::start(&world).await;
    let mut wanted = sidecars.fleet(1, "db:1");
    let url = wanted["spec"]["template"]["spec"]["sidecar"]["url"].take();
    wanted["spec"]["template"]["spec"]["sidecar"]["url"] = json!("http://127.0.0.1:1/nobody");
    world.fleet(wanted).await;
    sidecar_says(&world, "db-0", "Unknown/Unreachable").await;
    let before = world.pod_uids().await;
    world.patch_fleet(json!({"spec": {"template": {"spec": {"sidecar": {"url": url}}}}})).await;
    let done = world.until_applied().await;
    assert!(done["status"]["plan"].is_null(), "it is no rollout: {done:#}");
    assert_eq!(world.pod_uids().await, before);
    world.patch_fleet(json!({"spec": {"template": {"spec": {"sidecar": {"image": "sidecar:2"}}}}})).await;
    let rolled = world.until_db("it is rolled", |db| outcomes(db) == ["Complete"]).await;
    assert_ne!(rolled["status"]["lastCompletedRolloutHash"], done["status"]["lastCompletedRolloutHash"]);
    assert_ne!(world.pod_uids().await, before);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_sidecars_arguments_are_a_new_target_and_a_mount_of_no_volume_is_refused() {
    let world = World::new("sidecarargs").await;
    let sidecars = Sidecars::start(&world).await;
    world.fleet(sidecars.fleet(1, "db:1")).await;
    let done = world.until_applied().await;
    let before = world.pod_uids().await;
    let change = async |fields: Value| {
        world.patch_fleet(json!({"spec": {"template": {"spec": {"sidecar": fields}}}})).await;
    };
    change(json!({"volumeMounts": [{"name": "nowhere", "mountPath": "/t"}]})).await;
    let refused = world
        .until_db("it is refused", |db| {
            windlass_harness::kit::condition(db, "UpToDate") == "False/InvalidSpec"
        })
        .await;
    let said = refused["status"]["conditions"].to_string();
    assert!(said.contains("volumeMounts") && said.contains("nowhere"), "{said}");
    assert_eq!(world.pod_uids().await, before, "nothing was touched");
    let (args, env) =
        (json!(["--height-url", "http://127.0.0.1:80/height"]), json!([{"name": "A", "value": "a"}]));
    change(json!({"args": args, "env": env, "volumeMounts": null})).await;
    let rolled = world.until_db("it is rolled", |db| outcomes(db) == ["Complete"]).await;
    assert_ne!(rolled["status"]["lastCompletedRolloutHash"], done["status"]["lastCompletedRolloutHash"]);
    let pod = world.get(&world.pods(), "db-0-0").await;
    let sidecar = &pod["spec"]["initContainers"][0];
    let wanted = json!(["sidecar", "--bind", "0.0.0.0:7777", "--height-url", "http://127.0.0.1:80/height"]);
    assert_eq!((&sidecar["args"], &sidecar["env"]), (&wanted, &env), "{sidecar:#}");
    world.until_quiet().await;
    world.writes_nothing_for(Duration::from_secs(2)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sidecar_that_is_there_already_is_asked_at_its_url_and_none_is_injected() {
    let world = World::new("sidecarurl").await;
    let sidecars = Sidecars::start(&world).await;
    world.settled_fleet(windlass_harness::kit::fleet(1, "db:1")).await;
    let before = world.pod_uids().await;
    let url = sidecars.fleet(1, "db:1")["spec"]["template"]["spec"]["sidecar"]["url"].clone();
    world.patch_fleet(json!({"spec": {"template": {"spec": {"sidecar": {"url": url}}}}})).await;
    let given = |node: &Value| node["spec"]["sidecar"]["url"] == url;
    world.until(&world.nodes(), "db-0", "it has it at once", given).await;
    let settled = world.until_applied().await;
    assert_eq!(world.pod_uids().await, before, "nothing of it is in the pod");
    assert!(settled["status"]["plan"].is_null(), "it is no rollout: {settled:#}");
    world.set_image("db:2").await;
    world.until_db("it is rolled", |db| outcomes(db) == ["Complete"]).await;
    assert_eq!(sidecars.tasks("db-0-0").len(), 1, "it was asked to take the node into service");
    let pod = world.get(&world.pods(), "db-0-0").await;
    assert!(pod["spec"]["initContainers"].is_null(), "{pod:#}");
}

#[tokio::test(flavor = "multi_thread")]
async fn sidecars_that_take_what_they_are_sent_and_never_answer_hold_up_no_other_fleet() {
    let mut world = World::new("swallow").await;
    world.kill_operator().await;
    // With two workers, two blocking waits would occupy all.
    world.start_operator(&["--concurrency", "2"]).await;
    let sidecars = Sidecars::start(&world).await;
    world.settled_fleet(windlass_harness::kit::fleet(3, "db:1")).await;
    let names: Vec<String> = (0..8).map(|n| format!("cut-{n}")).collect();
    for name in &names {
        sidecars.set(&format!("{name}-0"), Mode::Hangs);
    }
    let mut cut = sidecars.fleet(8, "db:1");
    cut["metadata"]["name"] = json!("cut");
    world.fleet(cut).await;
    for name in &names {
        sidecar_says(&world, name, "Unknown/Unreachable").await;
    }
    let began = std::time::Instant::now();
    world.set_image("db:2").await;
    world.until_db("the other fleet is rolled", |db| outcomes(db) == ["Complete"]).await;
    let took = began.elapsed();
    println!("a fleet of three was rolled in {took:?} beside eight sidecars that never answer");
    assert!(took < Duration::from_secs(20), "{took:?}");
    for name in &names {
        sidecars.set(&format!("{name}-0"), Mode::Honest);
    }
    world.until(&world.fleets(), "cut", "they are heard", windlass_harness::kit::is_applied).await;
    world.writes_nothing_for(Duration::from_secs(2)).await;
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
async fn a_sidecar_that_wants_a_token_is_given_the_one_of_the_secret_that_its_node_names() {
    let world = World::new("token").await;
    let file = std::env::temp_dir().join(format!("windlass-token-{}", std::process::id()));
    std::fs::write(&file, "s3cret\n").unwrap();
    let _sidecar = shipped_sidecar("127.65.0.2", &["--token-file", file.to_str().unwrap()]);
    world.fleet(fleet_of_one_at("127.65.0.2")).await;
    let node_says = async |sentence: &str| {
        world
            .until(&world.nodes(), "db-0", sentence, |n| {
                let conditions = n["status"]["conditions"].as_array().cloned().unwrap_or_default();
                conditions.iter().any(|c| {
                    c["type"] == "SidecarReady" && c["message"].as_str().is_some_and(|m| m.contains(sentence))
                })
            })
            .await
    };
    node_says("takes tasks only with").await;
    world.patch_fleet(json!({"spec": {"template": {"spec": {"sidecar": {"tokenSecret": "tok"}}}}})).await;
    node_says("which sidecar.tokenSecret names, does not exist").await;
    let secret = |token: &str| json!({"metadata": {"name": "tok"}, "stringData": {"token": token}});
    world.create("v1", "Secret", secret("wrong")).await;
    node_says("the bearer token is not this sidecar's").await;
    world.patch(&world.api("v1", "Secret"), "tok", secret("s3cret")).await;
    world.until_applied().await;
    sidecar_says(&world, "db-0", "True/Ready").await;
    std::fs::remove_file(file).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_sidecar_that_is_shipped_is_found_by_the_pods_address_and_forgets_when_it_is_restarted() {
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
