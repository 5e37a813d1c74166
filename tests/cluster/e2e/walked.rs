//! Findings of random walks, replayed, with the decisions about them.

use std::time::Duration;

use chrono::{DateTime, Utc};
use serde_json::{Value, json};

use crate::e2e::sets::{blue_green, is_over, outcomes, stage, text};
use windlass_harness::kit::{World, condition, fleet, is_applied, with};

fn message(db: &Value, type_: &str) -> String {
    let list = db["status"]["conditions"].as_array().cloned().unwrap_or_default();
    list.iter().find(|c| c["type"] == type_).map(|c| text(c, "message").to_owned()).unwrap_or_default()
}

/// A time in RFC 3339, of metadata or of a condition.
fn at(value: &Value) -> DateTime<Utc> {
    DateTime::parse_from_rfc3339(value.as_str().unwrap()).unwrap().to_utc()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_abort_and_a_new_template_in_one_breath_reject_what_was_aborted_and_roll_out_the_new_one() {
    for down in [true, false] {
        let mut world = World::new("breath").await;
        world.settled_fleet(fleet(3, "db:1")).await;
        world.set_image("db:2-nope").await;
        let failed = |db: &Value| db["status"]["rollout"]["nodes"]["failed"] == 1;
        let broken = world.until_db("a node cannot run", failed).await;
        let plan = text(&broken["status"]["plan"], "id").to_owned();
        if down {
            world.kill_operator().await;
        }
        let both = json!({
            "metadata": {"annotations": {"windlass.dev/abort": plan}},
            "spec": {"template": {"spec": {"image": "db:3"}}},
        });
        world.patch_fleet(both).await;
        if down {
            world.start_operator(&[]).await;
        }
        let done = world.until_applied().await;
        assert_eq!(world.images().await, ["db:3"; 3]);
        assert!(done["status"]["rejected"].is_null(), "{done:#}");
        let first = &done["status"]["history"][0];
        assert_eq!((text(first, "planID"), text(first, "outcome")), (plan.as_str(), "Aborted"), "{done:#}");
        assert_eq!(first["targetHash"], broken["status"]["rollout"]["targetHash"]);
        assert_eq!(outcomes(&done), ["Aborted", "Complete"], "and no retry was asked for");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn claims_that_change_before_anything_has_completed_are_invalid_until_they_can_be_carried_out() {
    let world = World::new("first").await;
    let claims = json!([{"metadata": {"name": "data"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}]);
    let mut wanted = blue_green(2, json!({"retireDelaySeconds": 1}));
    let of = |image: &str| json!({"spec": {"containers": [{"name": "db", "image": image}]}});
    wanted["spec"]["template"]["spec"]["podTemplate"] = of("db:1-nope");
    wanted["spec"]["template"]["spec"].as_object_mut().unwrap().remove("volumeClaimTemplates");
    world.fleet(wanted).await;
    world.until_db("it cannot run", |db| db["status"]["phase"] == "Failed").await;
    let template = |changes: Value| world.patch_fleet(json!({"spec": {"template": {"spec": changes}}}));
    template(json!({"podTemplate": of("db:2"), "volumeClaimTemplates": claims})).await;
    let invalid = |db: &Value| condition(db, "UpToDate") == "False/InvalidSpec";
    let said = world.until_db("that cannot be carried out", invalid).await;
    assert!(message(&said, "UpToDate").contains("volumeClaimTemplates"), "{said:#}");
    assert_eq!(condition(&said, "Stalled"), "True/InvalidSpec");
    assert!(said["status"]["plan"].is_null(), "no plan is made that could only fail: {said:#}");
    assert_eq!(world.images().await, ["db:1-nope"; 2], "what runs is left alone");

    template(json!({"volumeClaimTemplates": null})).await;
    let done = world.until_applied().await;
    assert_eq!(world.images().await, ["db:2"; 2], "the good image is granted at once");
    assert!(!outcomes(&done).contains(&"Failed"), "{done:#}");
    // Now a change of claims has a way: a set of its own.
    template(json!({"volumeClaimTemplates": claims})).await;
    world
        .until_db("a set with claims has taken over", |db| {
            is_over(db) && db["status"]["activeSet"] != "first"
        })
        .await;
    let made = world.list(&world.api("v1", "PersistentVolumeClaim")).await;
    assert_eq!(made.len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn entrants_are_promoted_only_once_they_are_available() {
    let world = World::new("proven").await;
    let proven = json!({"spec": {"minReadySeconds": 5}});
    world.settled_fleet(with(blue_green(2, json!({"retireDelaySeconds": 1})), &proven)).await;
    world.set_image("db:2").await;
    let promoting =
        world.until_db("traffic may move", |db| stage("Promoting")(db) || stage("Retiring")(db)).await;
    let now = Utc::now();
    let set = text(&promoting["status"]["rollout"], "entrantSet").to_owned();
    let nodes = world.list(&world.nodes()).await;
    let entrants = nodes.iter().filter(|n| n["metadata"]["labels"]["windlass.dev/set"] == set.as_str());
    let since: Vec<DateTime<Utc>> = entrants
        .filter_map(|n| {
            let list = n["status"]["conditions"].as_array()?;
            let ready = list.iter().find(|c| c["type"] == "Ready" && c["status"] == "True")?;
            Some(at(&ready["lastTransitionTime"]))
        })
        .collect();
    assert_eq!(since.len(), 2, "{nodes:#?}");
    for since in since {
        let proven = now - since;
        assert!(
            proven >= chrono::TimeDelta::seconds(5),
            "an entrant was promoted {proven} after it became Ready"
        );
    }
    world.until_db("it is over", is_over).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_from_before_the_fleet_was_made_restarts_nothing() {
    let world = World::new("before").await;
    let before = (Utc::now() - chrono::TimeDelta::hours(1)).to_rfc3339();
    let key = "windlass.dev/restartedAt";
    let mut made = fleet(2, "db:1");
    made["metadata"]["annotations"] = json!({key: before});
    world.settled_fleet(made).await;
    let pods = world.pod_uids().await;
    // Nor if it is set afterwards, as by applying a manifest again.
    let db = world.db().await;
    let earlier = (at(&db["metadata"]["creationTimestamp"]) - chrono::TimeDelta::seconds(1)).to_rfc3339();
    world.patch_fleet(json!({"metadata": {"annotations": {key: earlier}}})).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let quiet = world.until_quiet().await;
    assert!(is_applied(&quiet), "{quiet:#}");
    assert!(quiet["status"]["plan"].is_null() && quiet["status"]["history"].is_null(), "{quiet:#}");
    assert_eq!(world.pod_uids().await, pods);
    let later = (Utc::now() + chrono::TimeDelta::seconds(1)).to_rfc3339();
    world.patch_fleet(json!({"metadata": {"annotations": {key: later}}})).await;
    let restarted = |db: &Value| is_applied(db) && outcomes(db) == ["Complete"];
    let done = world.until_db("one that comes later restarts", restarted).await;
    assert_eq!(done["status"]["restartedAt"], json!(later));
    assert!(world.pod_uids().await.iter().all(|uid| !pods.contains(uid)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hard_fork_without_anybody_to_ask_for_a_height_is_refused_by_the_api_server() {
    let world = World::without_operator("fork").await;
    let fork = |sidecar: Value| {
        let strategy = json!({"type": "HardFork", "hardFork": {"haltHeight": 100}});
        let changes =
            json!({"spec": {"updateStrategy": strategy, "template": {"spec": {"sidecar": sidecar}}}});
        let mut fork = with(fleet(1, "db:1"), &changes);
        if fork["spec"]["template"]["spec"]["sidecar"].is_null() {
            fork["spec"]["template"]["spec"].as_object_mut().unwrap().remove("sidecar");
        }
        fork
    };
    let made = async |fleet: Value| world.try_create("windlass.dev/v1alpha1", "NodeDeployment", fleet).await;
    for nobody in [Value::Null, json!({}), json!({"port": 7777})] {
        let refused = made(fork(nobody.clone())).await.unwrap_err();
        assert!(refused.contains("HardFork needs a sidecar"), "{nobody}: {refused}");
    }
    made(fork(json!({"url": "http://{podIP}:7777"}))).await.unwrap();
}
