//! Templates that the API server would refuse.

use serde_json::{Value, json};

use windlass_harness::kit::{World, condition, fleet};

fn misspelt() -> Value {
    json!([{"name": "db", "image": "db:2", "imagePullPolicie": "Always"}])
}

fn bad_quantity() -> Value {
    json!([{"name": "db", "image": "db:2", "resources": {"limits": {"memory": "lots"}}}])
}

#[tokio::test(flavor = "multi_thread")]
async fn template_rejected_by_the_api_server_is_named_and_not_applied() {
    for (containers, complaint) in [(misspelt(), "imagePullPolicie"), (bad_quantity(), "quantit")] {
        let world = World::new("refused").await;
        world.settled_fleet(fleet(2, "db:1")).await;
        let (uids, images) = (world.pod_uids().await, world.images().await);
        let children = async || {
            let mut all = world.list(&world.nodes()).await;
            all.extend(world.list(&world.sets()).await);
            all.extend(world.list(&world.api("apps/v1", "ControllerRevision")).await);
            all
        };
        let before = children().await;

        world.patch_template(json!({"spec": {"containers": containers}})).await;
        let what = "the spec is refused";
        let db = world.until_db(what, |db| condition(db, "UpToDate") == "False/InvalidSpec").await;
        assert_eq!(condition(&db, "Stalled"), "True/InvalidSpec", "{db:#}");
        assert_eq!(condition(&db, "Reconciling"), "False/Settled", "{db:#}");
        assert_eq!(condition(&db, "Ready"), "True/AllNodesReady", "what runs goes on running: {db:#}");
        let conditions = db["status"]["conditions"].as_array().unwrap();
        let sentence = conditions.iter().find(|c| c["type"] == "UpToDate").unwrap()["message"].clone();
        assert!(sentence.as_str().unwrap().contains(complaint), "the server's sentence: {sentence}");
        assert!(world.until_event("db", "InvalidSpec").await.contains(complaint));
        let quiet = world.until_quiet().await;
        assert!(quiet["status"]["plan"].is_null(), "no plan is started: {quiet:#}");
        assert_eq!(children().await, before, "nothing is touched");

        let mark = world.cp.audit_mark().await;
        world.patch_template(json!({"spec": {"containers": [{"name": "db", "image": "db:1"}]}})).await;
        let back = world.until_applied().await;
        assert_eq!(condition(&back, "Stalled"), "False/Progressing", "{back:#}");
        world.until_quiet().await;
        let writes = world.operator_writes(mark).await;
        let of_status = |w: &String| w.contains("nodedeployments/db status");
        assert!(!writes.is_empty() && writes.iter().all(of_status), "{writes:#?}");
        assert_eq!((world.pod_uids().await, world.images().await), (uids, images));
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "nightly"]
async fn invalid_labels_of_one_fleet_do_not_affect_another() {
    let world = World::new("strangers").await;
    let mut bad = fleet(1, "db:1");
    bad["metadata"]["name"] = json!("stranger");
    bad["spec"]["template"]["metadata"] = json!({"labels": {"bad key!": "x"}});
    world.fleet(bad).await;
    let refused = |f: &Value| condition(f, "UpToDate") == "False/InvalidSpec";
    world.until(&world.fleets(), "stranger", "the bad label is refused", refused).await;
    world.fleet(fleet(1, "db:1")).await;
    world.until_applied().await;
    world.patch(&world.fleets(), "stranger", json!({"spec": {"template": {"metadata": null}}})).await;
    let applied = |f: &Value| condition(f, "UpToDate") == "True/Applied";
    world.until(&world.fleets(), "stranger", "it is right once the label is gone", applied).await;
}
