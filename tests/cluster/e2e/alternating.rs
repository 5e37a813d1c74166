//! Kubelets that alternate between messages, as real ones do: a node that fails keeps one reason, since one time, and
//! the operator neither writes nor lists events meanwhile.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::{Value, json};

use windlass_harness::kit::{World, condition, fleet, with};

/// A rollout to an image with this word, which steers the kubelets. The reason is the one that stays.
async fn fails_once_and_costs_no_request(word: &str, reason: &str) {
    let world = World::new("alternating").await;
    let deadlines = json!({"spec": {
        "updateStrategy": {"type": "InPlace", "progressDeadlineSeconds": 10},
        "template": {"spec": {"progressDeadlineSeconds": 10}},
    }});
    world.settled_fleet(with(fleet(2, "db:1"), &deadlines)).await;
    let begun = world.cp.audit_mark().await;
    world.set_image(&format!("db:2-{word}")).await;
    world.until_db("it stalls", |db| condition(db, "Stalled") == "True/NoProgress").await;
    // The first try to pull has a reason of its own, until there was more than one.
    let failed =
        |node: &Value| node["status"]["phase"] == "Failed" && node["status"]["problem"]["reason"] == reason;
    world.until(&world.nodes(), "db-1", "it fails", failed).await;
    world.until_quiet().await;
    let mark = world.cp.audit_mark().await;
    let (mut said, mut messages) = (BTreeSet::new(), BTreeSet::new());
    for _ in 0..100 {
        tokio::time::sleep(Duration::from_millis(200)).await;
        let status = world.get(&world.nodes(), "db-1").await["status"].clone();
        said.insert(format!(
            "{} {} {}",
            status["phase"], status["problem"]["reason"], status["problem"]["since"]
        ));
        let pod = world.get(&world.pods(), "db-1-0").await;
        messages.insert(pod["status"]["containerStatuses"][0]["state"].to_string());
    }
    assert!(messages.len() > 1, "the kubelet alternates: {messages:?}");
    assert!(said.len() == 1 && said.iter().all(|said| said.contains(reason)), "{word}: {said:?}");
    let written =
        world.operator_audit(mark).await.filter(|entry| !entry.object_ref.resource.contains("events"));
    assert_eq!(written.count(), 0, "{word}: {:?}", written.per_object());
    let all = world.cp.audit_since(begun).await.user(&world.operator_user());
    let lists = all.verb("list").resource("events");
    assert_eq!(lists.count(), 0, "{word}: {:?}", lists.entries());
    world.set_image("db:3").await;
    world.until_applied().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_that_cannot_be_pulled_fails_its_node_once_and_costs_no_request() {
    fails_once_and_costs_no_request("pull-loop", "ImagePullBackOff").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_container_that_crashes_again_and_again_fails_its_node_once_and_costs_no_request() {
    fails_once_and_costs_no_request("crash-loop", "CrashLoopBackOff").await;
}
