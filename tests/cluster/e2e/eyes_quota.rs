//! Compares `plan` with the API server for quotas of CPU and memory.

use serde_json::{Value, json};

use crate::e2e::eyes::windlass;
use windlass_harness::kit::{World, fleet};

/// The API server's refusal of a pod with these resources.
async fn refusal(world: &World, resources: &Value) -> String {
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "one-more", "namespace": &*world.ns},
        "spec": {"containers": [{"name": "db", "image": "db:1", "resources": resources}]}});
    let words = ["-n", &world.ns, "create", "--dry-run=server", "-f", "-"];
    let said = world.cp.kubectl_with(&words, &pod.to_string()).await;
    format!("{said:?}")
}

/// The exit code of `plan`, and the refusal.
async fn planned(world: &World, words: &[&str]) -> (i32, String) {
    let ran = windlass(world, &[&["plan", "-o", "json"], words].concat()).await;
    let said: Value =
        serde_json::from_str(&ran.out).unwrap_or_else(|e| panic!("{e}: {}{}", ran.out, ran.err));
    (ran.code, said["refused"].as_str().unwrap_or_default().to_owned())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "nightly"]
async fn plan_counts_cpu_and_memory_as_the_api_server_does() {
    let world = World::new("plan-quota").await;
    let asks = |cpu: &str, memory: &str| json!({"requests": {"cpu": cpu}, "limits": {"memory": memory}});
    let of = |resources: &Value| {
        let mut fleet = fleet(2, "db:1");
        fleet["apiVersion"] = json!("windlass.dev/v1alpha1");
        fleet["kind"] = json!("NodeDeployment");
        fleet["metadata"]["namespace"] = json!(&*world.ns);
        fleet["spec"]["template"]["spec"]["podTemplate"]["spec"]["containers"][0]["resources"] =
            resources.clone();
        fleet
    };
    let now = asks("300m", "64Mi");
    world.settled_fleet(of(&now)).await;
    let file = std::env::temp_dir().join(format!("windlass-{}.json", &*world.ns));
    let file = file.to_str().unwrap();
    let quotas = world.api("v1", "ResourceQuota");
    for (what, hard, used, more, beyond) in [
        ("requests.cpu", "1", "600m", "300m", asks("600m", "64Mi")),
        ("cpu", "1", "600m", "300m", asks("600m", "64Mi")),
        ("limits.memory", "200Mi", "128Mi", "64Mi", asks("300m", "128Mi")),
        ("requests.memory", "200Mi", "128Mi", "64Mi", asks("300m", "128Mi")),
    ] {
        world
            .create(
                "v1",
                "ResourceQuota",
                json!({"metadata": {"name": "few"}, "spec": {"hard": {what: hard}}}),
            )
            .await;
        world.until(&quotas, "few", "it is counted", |quota| quota["status"]["used"][what] == used).await;
        assert_eq!(planned(&world, &["nd/db", "--replicas", "3"]).await, (2, String::new()), "{what}");
        // Replacing a pod frees its usage.
        assert_eq!(planned(&world, &["nd/db", "--image", "db:2"]).await, (2, String::new()), "{what}");
        let (code, said) = planned(&world, &["nd/db", "--replicas", "4"]).await;
        let limited = format!("used: {what}={used}, limited: {what}={hard}");
        assert!(code == 1 && said.ends_with(&limited), "{said}");
        // One pod of twice the size is refused with the same message.
        let twice =
            asks(if more == "300m" { "600m" } else { "10m" }, if more == "64Mi" { "128Mi" } else { "1Mi" });
        let server = refusal(&world, &twice).await;
        assert!(server.contains(&said), "{said} is not in {server}");
        // Both updated nodes request more than the quota has.
        std::fs::write(file, of(&beyond).to_string()).unwrap();
        let (code, said) = planned(&world, &["-f", file]).await;
        assert!(code == 1 && said.contains("exceeded quota: few") && said.contains(what), "{said}");
        world.delete(&quotas, "few").await;
        world.until(&quotas, "few", "it is gone", Value::is_null).await;
    }
    std::fs::remove_file(file).unwrap();
}
