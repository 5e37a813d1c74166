//! A fleet is created, and its target changes.

use serde_json::{Value, json};

use windlass_harness::kit::{Wave, World, condition, fleet, with};

#[tokio::test(flavor = "multi_thread")]
async fn a_new_fleet_comes_up_and_a_new_image_reaches_every_node() {
    let world = World::new("roll").await;
    world.fleet(fleet(3, "db:1")).await;
    let first = world.until_applied().await;
    assert_eq!(first["status"]["phase"], "Ready", "{first:#}");
    assert!(first["status"]["plan"].is_null(), "the first creation has no plan: {first:#}");
    assert!(first["status"]["rollout"].is_null(), "nor is it a rollout: {first:#}");
    assert_eq!(condition(&first, "RolloutInProgress"), "False/RolloutComplete", "{first:#}");
    let before = first["status"]["lastCompletedRolloutHash"].clone();
    assert_eq!(before, first["status"]["requestedRolloutHash"]);

    let wave = Wave::watch(&world, 3).await;
    world.set_image("db:2").await;
    let second = world.until_applied().await;
    let seen = wave.at_most(&world, 1).await;
    assert_eq!(world.images().await, ["db:2", "db:2", "db:2"]);
    for pod in ["db-0-0", "db-1-0", "db-2-0"] {
        assert_eq!(seen.replaced(pod), 1, "{pod} is replaced exactly once: {seen:#?}");
    }
    let status = &second["status"];
    let entry = &status["history"][0];
    assert_eq!(status["history"].as_array().map(Vec::len), Some(1), "{second:#}");
    assert_eq!(entry["outcome"], "Complete", "{second:#}");
    assert_eq!(entry["fromHash"], before);
    assert_eq!(entry["targetHash"], status["requestedRolloutHash"]);
    assert_eq!(status["plan"]["state"], "Complete", "a finished plan stays: {second:#}");
    assert_eq!(status["plan"]["recipe"], "InPlace");
    let types: Vec<&Value> =
        status["plan"]["tasks"].as_array().unwrap().iter().map(|task| &task["type"]).collect();
    assert_eq!(types, ["update-node-specs", "await-spec-update", "mark-ready"]);
    assert!(status["rollout"].is_null(), "{second:#}");
    assert_eq!(condition(&second, "RolloutInProgress"), "False/RolloutComplete", "{second:#}");
    for node in world.list(&world.nodes()).await {
        assert_eq!(node["status"]["plan"]["recipe"], "NodeUpdate", "{node:#}");
        assert_eq!(node["status"]["currentImage"], "db:2", "{node:#}");
        assert_eq!(node["status"]["podTemplateHash"], node["spec"]["grantedHash"], "{node:#}");
    }
    // It is most of a StatefulSet, and of the cost of a write.
    for api in [world.nodes(), world.sets()] {
        for object in world.list(&api).await {
            assert!(object["metadata"]["managedFields"].is_null(), "no record of who wrote what: {object:#}");
        }
    }
    world.until_event("db", "RolloutComplete").await;
    assert_eq!(world.notes("RolloutStarted").await.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_template_that_changes_without_its_image_restarts_every_node_in_waves() {
    let world = World::new("roll").await;
    world.settled_fleet(fleet(3, "db:1")).await;
    let wave = Wave::watch(&world, 3).await;
    let container = json!({"name": "db", "image": "db:1", "env": [{"name": "MODE", "value": "fast"}]});
    world.patch_template(json!({"spec": {"containers": [container]}})).await;
    world.until_applied().await;
    let seen = wave.at_most(&world, 1).await;
    for pod in world.list(&world.pods()).await {
        assert_eq!(pod["spec"]["containers"][0]["env"][0]["value"], "fast", "{pod:#}");
        assert_eq!(seen.replaced(pod["metadata"]["name"].as_str().unwrap()), 1, "{seen:#?}");
    }
    for node in world.list(&world.nodes()).await {
        assert_eq!(node["status"]["plan"]["recipe"], "RestartNode", "the image is the same: {node:#}");
        assert_eq!(condition(&node, "NodeUpdateInProgress"), "False/UpdateComplete", "{node:#}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn labels_of_the_children_apply_at_once_and_never_reach_a_pod() {
    let world = World::new("roll").await;
    let metadata = json!({"labels": {"team": "a", "old": "x"}, "annotations": {"note": "hello"}});
    let object = with(fleet(2, "db:1"), &json!({"spec": {"template": {"metadata": metadata}}}));
    let first = world.settled_fleet(object).await;
    let uids = world.pod_uids().await;
    let kinds = [world.nodes(), world.sets(), world.api("v1", "Service")];
    for api in &kinds {
        let child = world.get(api, "db-0").await;
        assert_eq!(child["metadata"]["labels"]["team"], "a", "{child:#}");
        assert_eq!(child["metadata"]["annotations"]["note"], "hello", "{child:#}");
    }

    let changed = json!({"labels": {"team": "b", "old": null, "new": "y"}, "annotations": {"note": null}});
    world.patch_fleet(json!({"spec": {"template": {"metadata": changed}}})).await;
    for api in &kinds {
        for name in ["db-0", "db-1"] {
            let what = "it has the labels of the template and no others";
            world
                .until(api, name, what, |child| {
                    let (labels, annotations) =
                        (&child["metadata"]["labels"], &child["metadata"]["annotations"]);
                    labels["team"] == "b"
                        && labels["new"] == "y"
                        && labels["old"].is_null()
                        && annotations["note"].is_null()
                })
                .await;
        }
    }
    let last = world.until_quiet().await;
    assert_eq!(world.pod_uids().await, uids, "no pod is restarted for it");
    for pod in world.list(&world.pods()).await {
        let labels = &pod["metadata"]["labels"];
        assert!(labels["team"].is_null() && labels["new"].is_null(), "{pod:#}");
        assert!(pod["metadata"]["annotations"]["note"].is_null(), "{pod:#}");
    }
    assert!(last["status"]["plan"].is_null(), "nor is it a rollout: {last:#}");
    assert_eq!(last["status"]["requestedRolloutHash"], first["status"]["requestedRolloutHash"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn labels_of_the_pod_template_restart_every_node_in_waves() {
    let world = World::new("roll").await;
    world.settled_fleet(fleet(2, "db:1")).await;
    let wave = Wave::watch(&world, 2).await;
    let metadata = json!({"labels": {"tier": "gold"}, "annotations": {"checksum/config": "1234"}});
    world.patch_template(json!({"metadata": metadata})).await;
    world.until_applied().await;
    let seen = wave.at_most(&world, 1).await;
    for pod in world.list(&world.pods()).await {
        assert_eq!(pod["metadata"]["labels"]["tier"], "gold", "{pod:#}");
        assert_eq!(pod["metadata"]["annotations"]["checksum/config"], "1234", "{pod:#}");
        assert_eq!(seen.replaced(pod["metadata"]["name"].as_str().unwrap()), 1, "{seen:#?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bigger_wave_is_used_and_not_exceeded() {
    let world = World::new("roll").await;
    let strategy = json!({"updateStrategy": {"inPlace": {"maxUnavailable": "50%"}}});
    world.settled_fleet(with(fleet(5, "db:1"), &json!({"spec": strategy}))).await;
    let wave = Wave::watch(&world, 5).await;
    world.set_image("db:2-slow").await;
    world.until_applied().await;
    let seen = wave.at_most(&world, 2).await;
    assert_eq!(seen.worst, 2, "half of five, rounded down, are down at once:\n{}", seen.log.join("\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_creation_is_no_rollout_however_the_news_of_it_arrive() {
    let world = World::new("roll").await;
    let names: Vec<String> = (0..10).map(|i| format!("db{i}")).collect();
    for name in &names {
        world.fleet(with(fleet(3, "db:1"), &json!({"metadata": {"name": name}}))).await;
    }
    for name in &names {
        let ready = |f: &Value| f["status"]["phase"] == "Ready";
        let first = world.until(&world.fleets(), name, "it is ready", ready).await;
        assert!(first["status"]["plan"].is_null(), "{first:#}");
        assert!(first["status"]["history"].is_null(), "{first:#}");
    }
    for node in world.list(&world.nodes()).await {
        let outcomes: Vec<&Value> =
            node["status"]["history"].as_array().unwrap().iter().map(|h| &h["outcome"]).collect();
        assert_eq!(outcomes, ["Complete"], "{node:#}");
    }
}
