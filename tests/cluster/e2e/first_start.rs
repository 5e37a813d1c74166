//! Hooks at the first start of nodes, with the shipped binary under `kill -9`: their Jobs mount the claims before the pods do.

use serde_json::{Value, json};

use super::commands::windlass;
use super::hooks::Scene;
use windlass_harness::kit::{condition, fleet, with};

/// A fleet whose nodes are seeded by a Job and announced to a peer, like the fleet itself.
fn seeded(port: u16) -> Value {
    let pod = json!({"restartPolicy": "Never",
        "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data-{{pod}}"}}],
        "containers": [{"name": "seed", "image": "seed:1", "volumeMounts": [{"name": "data", "mountPath": "/data"}]}]});
    let asks = |path: &str| json!({"url": format!("http://127.0.0.1:{port}/{path}"), "method": "POST"});
    let hooks = json!([
        {"name": "seed", "at": "BeforeCreate", "job": {"template": {"template": {"spec": pod}}}},
        {"name": "join", "at": "AfterCreate", "http": asks("join?node={{node}}&from={{fromHash}}")},
        {"name": "init", "at": "AfterFirstCreation", "http": asks("init?fleet={{fleet}}")},
        {"name": "balance", "at": "AfterScaleUp", "http": asks("balance?fleet={{fleet}}")},
    ]);
    let claims = json!([{"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}}}}]);
    let spec = json!({"creation": {"maxInitializing": 1}, "updateStrategy": {"type": "InPlace", "hooks": hooks},
        "template": {"spec": {"volumeClaimTemplates": claims}}});
    with(fleet(2, "db:1"), &json!({"spec": spec}))
}

#[tokio::test(flavor = "multi_thread")]
async fn new_nodes_are_seeded_and_announced_once_despite_operator_kills() {
    let mut scene = Scene::new("first-start").await;
    let asked = |scene: &Scene| -> Vec<String> {
        let paths: Vec<String> = scene.peer.asked().into_iter().map(|asked| asked.path).collect();
        paths
    };
    scene.world.create("windlass.dev/v1alpha1", "NodeDeployment", seeded(scene.peer.port)).await;
    for _ in 0..6 {
        tokio::time::sleep(std::time::Duration::from_millis(700)).await;
        scene.kill().await;
    }
    scene.world.until_applied().await;
    // A request may be repeated if the operator was killed before it could record the answer. A task is not.
    assert_eq!(scene.peer.tasks().len(), 3, "{:?}", asked(&scene));
    let mut paths = asked(&scene);
    paths.dedup();
    assert_eq!(paths, ["/join?node=db-0&from=", "/join?node=db-1&from=", "/init?fleet=db"]);
    let jobs = scene.jobs().await;
    let mut mounted: Vec<&str> = Vec::new();
    for job in &jobs {
        let volume = &job["spec"]["template"]["spec"]["volumes"][0];
        mounted.push(volume["persistentVolumeClaim"]["claimName"].as_str().unwrap_or_default());
        let node = scene
            .world
            .get(&scene.world.nodes(), job["metadata"]["ownerReferences"][0]["name"].as_str().unwrap())
            .await;
        let pod = format!("{}-0", node["metadata"]["name"].as_str().unwrap());
        let pod = scene.world.get(&scene.world.pods(), &pod).await;
        let done = job["status"]["completionTime"].as_str().expect("it is complete");
        assert!(pod["metadata"]["creationTimestamp"].as_str().unwrap() >= done, "{pod:#}");
    }
    mounted.sort_unstable();
    assert_eq!(mounted, ["data-db-0-0", "data-db-1-0"]);
    let uids = async |scene: &Scene| {
        let mut uids = Vec::new();
        for pod in ["db-0-0", "db-1-0"] {
            uids.push(scene.world.get(&scene.world.pods(), pod).await["metadata"]["uid"].clone());
        }
        uids
    };
    let before = uids(&scene).await;

    // More nodes: `plan` tells it before, and only they are touched.
    let planned = windlass(&scene.world, &["plan", "nd/db", "--replicas", "3"]).await.out;
    assert!(planned.contains("starts (ScaledUp)") && planned.contains("wave 1: +db-2"), "{planned}");
    assert!(
        planned
            .contains("with hooks:\n    seed (BeforeCreate), join (AfterCreate), balance (AfterScaleUp)\n"),
        "{planned}"
    );
    scene.world.patch_fleet(json!({"spec": {"replicas": 3}})).await;
    let grows = |db: &Value| condition(db, "RolloutInProgress") == "True/ScaledUp";
    scene.world.until_db("it grows", grows).await;
    scene.kill().await;
    scene.world.until_applied().await;
    assert_eq!(uids(&scene).await, before);
    let mut paths = asked(&scene);
    paths.dedup();
    assert_eq!(
        paths[3..].iter().map(|path| path.split('&').next().unwrap()).collect::<Vec<_>>(),
        ["/join?node=db-2", "/balance?fleet=db"]
    );
    scene.world.until_quiet().await;
}
