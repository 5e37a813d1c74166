//! What cannot start or does not stay: reasons, back-off, events.

use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::{Value, json};
use windlass_process_kubelet::Image;

use crate::process_kubelet::kit::{World, condition, container, create, shell};

fn waits(pod: &Value, name: &str, reason: &str) -> bool {
    container(pod, name)["state"]["waiting"]["reason"] == reason
}

#[tokio::test]
#[ignore = "nightly"]
async fn an_unknown_image_is_waited_for_and_runs_once_it_is_there() {
    let world = World::new("pull").await;
    let main = json!({"name": "main", "image": "later:1", "args": ["600"]});
    world.pod("p", json!({"containers": [main]})).await;
    let pod = world.until("p", "its image is not found", |p| waits(p, "main", "ErrImagePull")).await;
    assert_eq!(pod["status"]["phase"], "Pending");
    assert_eq!(container(&pod, "main")["imageID"], "");
    let pod = world.until("p", "it backs off", |p| waits(p, "main", "ImagePullBackOff")).await;
    let message = container(&pod, "main")["state"]["waiting"]["message"].clone();
    assert!(message.as_str().unwrap().contains("Back-off pulling image \"later:1\""), "{message}");
    world.until_event("p", "Failed", "Failed to pull image").await;
    world.until_event("p", "BackOff", "Back-off pulling image").await;
    world.images.add("later:1", Image::of("sleep", "/bin/sleep"));
    let pod = world.until_ready("p").await;
    assert_eq!(container(&pod, "main")["restartCount"], 0);
    assert_ne!(container(&pod, "main")["imageID"], "");
    for reason in ["Pulled", "Created", "Started"] {
        world.until_event("p", reason, "").await;
    }
}

#[tokio::test]
#[ignore = "nightly"]
async fn a_container_that_crashes_backs_off_longer_each_time() {
    let world = World::new("crash").await;
    world
        .pod("p", json!({"containers": [shell("main", "echo last words > /dev/termination-log; exit 7")]}))
        .await;
    let crashed = |restarts: i64| {
        move |pod: &Value| {
            waits(pod, "main", "CrashLoopBackOff") && container(pod, "main")["restartCount"] == restarts
        }
    };
    // The first restart is at once, so that the first wait follows the second crash.
    let pod = world.until("p", "it backs off", crashed(1)).await;
    let status = container(&pod, "main");
    assert_eq!(pod["status"]["phase"], "Running");
    assert_eq!(status["ready"], false);
    let last = &status["lastState"]["terminated"];
    assert_eq!((last["exitCode"].clone(), last["reason"].clone()), (json!(7), json!("Error")));
    assert_eq!(last["message"], "last words\n");
    assert!(last["containerID"].as_str().unwrap().starts_with("process://"));
    let message = status["state"]["waiting"]["message"].as_str().unwrap().to_owned();
    assert!(message.starts_with("back-off 2s restarting failed container=main pod=p_"), "{message}");
    let pod = world.until("p", "it backs off again", crashed(2)).await;
    let message = container(&pod, "main")["state"]["waiting"]["message"].as_str().unwrap().to_owned();
    assert!(message.starts_with("back-off 4s"), "{message}");
    world.until_event("p", "BackOff", "Back-off restarting failed container main in pod p_").await;
}

#[tokio::test]
#[ignore = "nightly"]
async fn a_program_that_is_not_there_is_a_start_error() {
    let world = World::new("start").await;
    let main = json!({"name": "main", "image": "tools:1", "command": ["no-such-program"]});
    world.pod("p", json!({"restartPolicy": "Never", "containers": [main]})).await;
    let pod = world.until_phase("p", "Failed").await;
    let end = container(&pod, "main")["state"]["terminated"].clone();
    assert_eq!((end["exitCode"].clone(), end["reason"].clone()), (json!(128), json!("StartError")));
    assert!(end["message"].as_str().unwrap().contains("no-such-program"));
    world.until_event("p", "Failed", "executable file not found").await;
}

#[tokio::test]
#[ignore = "nightly"]
async fn the_restart_policy_decides_what_becomes_of_an_end() {
    let world = World::new("policy").await;
    let pod =
        |policy: &str, script: &str| json!({"restartPolicy": policy, "containers": [shell("main", script)]});
    world.pod("never", pod("Never", "exit 3")).await;
    world.pod("signal", pod("Never", "kill -KILL $$$$")).await;
    world.pod("well", pod("OnFailure", "exit 0")).await;
    world.pod("twice", pod("OnFailure", "test -f seen && exit 0; touch seen; exit 1")).await;
    let end = |pod: &Value| container(pod, "main")["state"]["terminated"].clone();
    let never = end(&world.until_phase("never", "Failed").await);
    assert_eq!((never["exitCode"].clone(), never["reason"].clone()), (json!(3), json!("Error")));
    let signal = end(&world.until_phase("signal", "Failed").await);
    assert_eq!((signal["exitCode"].clone(), signal["signal"].clone()), (json!(137), json!(9)));
    let pod = world.until_phase("well", "Succeeded").await;
    assert_eq!(end(&pod)["reason"], "Completed");
    assert_eq!(container(&pod, "main")["restartCount"], 0);
    let pod = world.until_phase("twice", "Succeeded").await;
    assert_eq!(container(&pod, "main")["restartCount"], 1);
    assert_eq!(container(&pod, "main")["lastState"]["terminated"]["exitCode"], 1);
}

#[tokio::test]
#[ignore = "nightly"]
async fn a_missing_volume_is_waited_for() {
    let world = World::new("mount").await;
    let volumes = json!([{"name": "v", "configMap": {"name": "m"}}]);
    world.pod("p", json!({"containers": [shell("main", "exec sleep 600")], "volumes": volumes})).await;
    world.until_event("p", "FailedMount", "configmap \"m\" not found").await;
    let pod = world.until("p", "it waits", |p| waits(p, "main", "ContainerCreating")).await;
    assert_eq!(condition(&pod, "PodReadyToStartContainers"), "False");
    create::<ConfigMap>(&world.api(), json!({"metadata": {"name": "m"}, "data": {"x": "1"}})).await;
    let pod = world.until_ready("p").await;
    assert_eq!(condition(&pod, "PodReadyToStartContainers"), "True");
}
