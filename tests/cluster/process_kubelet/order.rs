//! The order in which a pod's containers begin and end.

use std::fs;

use serde_json::{Value, json};

use crate::process_kubelet::kit::{World, condition, container, shell, with};

/// A container that writes down when it begins and when it is told to end.
fn witness(name: &str, file: &str) -> Value {
    let script = format!(
        "trap 'echo {name} ends >> {file}; exit 0' TERM; echo {name} begins >> {file}; touch ready; while :; do sleep 0.1; done"
    );
    let ready = json!({"startupProbe": {"exec": {"command": ["test", "-f", "ready"]}, "periodSeconds": 1}});
    with(shell(name, &script), ready)
}

#[tokio::test]
async fn containers_start_in_order_and_sidecars_end_last_in_reverse() {
    let world = World::new("order").await;
    let file = world.folder.with_extension("told");
    let told = || fs::read_to_string(&file).unwrap_or_default();
    let path = file.display().to_string();
    let sidecar = |name: &str| with(witness(name, &path), json!({"restartPolicy": "Always"}));
    let init = |name: &str| shell(name, &format!("echo {name} runs >> {path}"));
    world
        .pod(
            "p",
            json!({
                "initContainers": [init("first"), sidecar("proxy"), init("second"), sidecar("agent")],
                "containers": [witness("main", &path)], "terminationGracePeriodSeconds": 20,
            }),
        )
        .await;
    let pod = world.until_ready("p").await;
    assert_eq!(condition(&pod, "Initialized"), "True");
    let done = container(&pod, "first");
    assert_eq!(done["state"]["terminated"]["reason"], "Completed");
    assert_eq!(done["ready"], true);
    assert_eq!(container(&pod, "proxy")["started"], true);
    let begun = ["first runs", "proxy begins", "second runs", "agent begins", "main begins"];
    assert_eq!(told().lines().collect::<Vec<_>>(), begun);
    world.delete("p", None).await;
    world.until_gone("p").await;
    assert_eq!(told().lines().skip(5).collect::<Vec<_>>(), ["main ends", "agent ends", "proxy ends"]);
    fs::remove_file(&file).unwrap();
}
