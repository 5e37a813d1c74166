//! BlueGreen and HardFork: a set of nodes is created next to the serving one, and takes over.

use serde_json::{Value, json};

use crate::e2e::sidecars::Sidecars;
use windlass_harness::kit::{World, condition, fleet, is_applied, with};

/// A fleet with sets, a Service and a claim for each node.
#[allow(clippy::needless_pass_by_value, reason = "as tests read best")]
pub fn blue_green(replicas: i64, settings: Value) -> Value {
    let strategy = json!({"type": "BlueGreen", "blueGreen": settings, "progressDeadlineSeconds": 30});
    let claim = json!({"metadata": {"name": "data"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}});
    with(
        fleet(replicas, "db:1"),
        &json!({"spec": {
            "updateStrategy": strategy, "service": {"ports": [{"port": 5432}]},
            "template": {"spec": {"volumeClaimTemplates": [claim]}},
        }}),
    )
}

pub fn is_over(db: &Value) -> bool {
    is_applied(db) && db["status"]["rollout"].is_null()
}

pub fn stage(name: &str) -> impl Fn(&Value) -> bool {
    move |db| db["status"]["rollout"]["stage"] == name
}

pub fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().unwrap_or_default()
}

pub fn set_of(db: &Value) -> String {
    text(&db["status"], "lastCompletedRolloutHash")[3..8].to_owned()
}

pub async fn names(world: &World, api_version: &str, kind: &str) -> Vec<String> {
    let objects = world.list(&world.api(api_version, kind)).await;
    let mut names: Vec<String> = objects.iter().map(|o| text(&o["metadata"], "name").to_owned()).collect();
    names.sort();
    names
}

pub async fn nodes(world: &World) -> Vec<String> {
    names(world, "windlass.dev/v1alpha1", "StatefulNode").await
}

pub async fn selected(world: &World) -> String {
    let service = world.get(&world.api("v1", "Service"), "db").await;
    text(&service["spec"]["selector"], "windlass.dev/set").to_owned()
}

pub fn outcomes(db: &Value) -> Vec<&str> {
    let history = db["status"]["history"].as_array().map(Vec::as_slice).unwrap_or_default();
    history.iter().map(|h| text(h, "outcome")).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_set_takes_over_and_the_old_one_goes_after_its_delay_and_leaves_its_claims() {
    let world = World::new("bg").await;
    world.settled_fleet(blue_green(2, json!({"retireDelaySeconds": 3}))).await;
    assert_eq!(nodes(&world).await, ["db-0", "db-1"]);
    let before: Vec<Value> = world.list(&world.nodes()).await.iter().map(|n| n["spec"].clone()).collect();
    world.set_image("db:2").await;
    let moved = world.until_db("traffic moved", stage("Retiring")).await;
    let set = set_of(&moved);
    assert_eq!(moved["status"]["activeSet"], set.as_str());
    assert_eq!(selected(&world).await, set);
    assert_eq!(condition(&moved, "UpToDate"), "True/Applied");
    for (name, spec) in ["db-0", "db-1"].iter().zip(&before) {
        let node = world.get(&world.nodes(), name).await;
        assert_eq!(&node["spec"], spec, "incumbents are not touched");
    }
    world.until_db("the old set is gone", is_over).await;
    assert_eq!(nodes(&world).await, [format!("db-{set}-0"), format!("db-{set}-1")]);
    assert_eq!(world.images().await, ["db:2", "db:2"]);
    let claims = names(&world, "v1", "PersistentVolumeClaim").await;
    assert_eq!(claims.len(), 4, "{claims:?}");
    assert_eq!(world.notes("Promoted").await.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn before_promotion_the_same_content_a_new_target_and_the_way_back() {
    let world = World::new("bgpre").await;
    let first = world.settled_fleet(blue_green(1, json!({"retireDelaySeconds": 1}))).await;
    world.set_image("db:2-unready").await;
    let waits = world.until_db("entrants are waited for", stage("AwaitingEntrants")).await;
    // The same content.
    world.patch_fleet(json!({"spec": {"minReadySeconds": 1}})).await;
    let same = world
        .until_db("that is seen", |db| db["status"]["observedGeneration"] == db["metadata"]["generation"])
        .await;
    assert_eq!(same["status"]["plan"]["id"], waits["status"]["plan"]["id"]);
    // A new target.
    world.set_image("db:3-unready").await;
    let next = world.until_db("it is superseded", |db| outcomes(db) == ["Superseded"]).await;
    assert_ne!(next["status"]["rollout"]["entrantSet"], waits["status"]["rollout"]["entrantSet"]);
    let gone = format!("db-{}-0", text(&waits["status"]["rollout"], "entrantSet"));
    world.until(&world.nodes(), &gone, "the first entrants are removed", Value::is_null).await;
    // Back.
    world.set_image("db:1").await;
    let back = world.until_db("it is over", is_over).await;
    assert_eq!(back["status"]["lastCompletedRolloutHash"], first["status"]["lastCompletedRolloutHash"]);
    assert_eq!(back["status"]["plan"]["id"], next["status"]["plan"]["id"], "no new plan");
    // An event comes after the status.
    for _ in 0..100 {
        if world.notes("RolloutSuperseded").await.len() >= 2 {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    assert_eq!(world.notes("RolloutSuperseded").await.len(), 2);
    let gone = format!("db-{}-0", text(&next["status"]["rollout"], "entrantSet"));
    world.until(&world.nodes(), &gone, "the entrants are removed", Value::is_null).await;
    assert_eq!(nodes(&world).await, ["db-0"]);
    let claims = names(&world, "v1", "PersistentVolumeClaim").await;
    assert_eq!(claims.len(), 3, "no claim is lost: {claims:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn while_promoting_a_new_target_waits_until_the_old_one_is_promoted() {
    let world = World::new("bgpro").await;
    world.settled_fleet(blue_green(1, json!({"promotion": "Immediately"}))).await;
    world.set_image("db:2-slow").await;
    let promoting = world.until_db("it promotes", stage("Promoting")).await;
    let target = text(&promoting["status"], "requestedRolloutHash").to_owned();
    world.set_image("db:3").await;
    let seen = |db: &Value| db["status"]["observedGeneration"] == db["metadata"]["generation"];
    let held = world.until_db("the change is seen", seen).await;
    let untouched = held["status"]["rollout"]["stage"] != "Promoting"
        || text(&held["status"], "requestedRolloutHash") == target;
    assert!(untouched, "the target is read from the status: {held:#}");
    let done = world.until_db("both are done", |db| is_over(db) && outcomes(db).len() == 2).await;
    assert_eq!(outcomes(&done), ["Complete", "Complete"]);
    assert_eq!(done["status"]["history"][0]["targetHash"], target.as_str());
    assert_eq!(world.images().await, ["db:3"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn while_promoting_the_same_content_changes_nothing_and_the_way_back_is_a_rollout_of_its_own() {
    let world = World::new("bgproback").await;
    let first = world.settled_fleet(blue_green(1, json!({"promotion": "Immediately"}))).await;
    world.set_image("db:2-slow").await;
    let promoting = world.until_db("it promotes", stage("Promoting")).await;
    let target = text(&promoting["status"], "requestedRolloutHash").to_owned();
    world.set_image("db:2-slow").await;
    world.set_image("db:1").await;
    let done = world.until_db("both are done", |db| is_over(db) && outcomes(db).len() == 2).await;
    assert_eq!(outcomes(&done), ["Complete", "Complete"]);
    assert_eq!(done["status"]["history"][0]["targetHash"], target.as_str());
    assert_eq!(done["status"]["lastCompletedRolloutHash"], first["status"]["lastCompletedRolloutHash"]);
    assert_eq!(world.images().await, ["db:1"]);
    let claims = names(&world, "v1", "PersistentVolumeClaim").await;
    assert_eq!(claims.len(), 3, "the set that is made again has volumes of its own: {claims:?}");
}

/// The StatefulSet controller lets go of a pod that lost the label, no watch shows it any more, and it still runs.
#[tokio::test(flavor = "multi_thread")]
async fn where_the_old_nodes_go_first_a_pod_whose_label_was_taken_off_is_waited_for_until_it_is_gone() {
    let world = World::new("bgloose").await;
    world.settled_fleet(blue_green(1, json!({"promotion": "Immediately"}))).await;
    let pods = world.api("v1", "Pod");
    world.patch(&pods, "db-0-0", json!({"metadata": {"labels": {"windlass.dev/node": null}}})).await;
    let is_loose = |pod: &Value| pod["metadata"]["ownerReferences"].as_array().is_none_or(Vec::is_empty);
    world.until(&pods, "db-0-0", "the StatefulSet lets it go", is_loose).await;
    world.set_image("db:2").await;
    let what = "what is left of it: Pod db-0-0 (it has no owner any more: delete it)";
    let says = |db: &Value| text(&db["status"]["rollout"], "message").ends_with(what);
    world.until_db("it waits for the pod", says).await;
    // The next look, after 5 s.
    tokio::time::sleep(std::time::Duration::from_secs(6)).await;
    assert!(nodes(&world).await.is_empty(), "none is made beside it");
    world.delete(&pods, "db-0-0").await;
    let done = world.until_db("another set serves", is_over).await;
    assert_eq!((outcomes(&done), world.images().await), (vec!["Complete"], vec!["db:2".to_owned()]));
}

#[tokio::test(flavor = "multi_thread")]
async fn while_retiring_a_new_target_starts_at_once_and_the_old_set_still_goes() {
    let world = World::new("bgretnew").await;
    world.settled_fleet(blue_green(1, json!({"retireDelaySeconds": 12}))).await;
    world.set_image("db:2").await;
    let retiring = world.until_db("traffic moved", stage("Retiring")).await;
    world.set_image("db:3").await;
    let next = world.until_db("the next has begun", |db| outcomes(db) == ["Complete"]).await;
    assert_eq!(next["status"]["history"][0]["planID"], retiring["status"]["plan"]["id"]);
    assert!(nodes(&world).await.contains(&"db-0".to_owned()), "the first set lives out its delay");
    world.until(&world.nodes(), "db-0", "the first set goes", Value::is_null).await;
    let done = world.until_db("all is over", is_over).await;
    assert_eq!(nodes(&world).await, [format!("db-{}-0", set_of(&done))]);
}

#[tokio::test(flavor = "multi_thread")]
async fn while_retiring_the_way_back_takes_the_set_that_still_lives() {
    let world = World::new("bgback").await;
    let first = world.settled_fleet(blue_green(1, json!({"retireDelaySeconds": 30}))).await;
    world.set_image("db:2").await;
    world.until_db("traffic moved", stage("Retiring")).await;
    let made = world.notes("NodeCreated").await.len();
    world.set_image("db:1").await;
    let hash = first["status"]["lastCompletedRolloutHash"].clone();
    let back = world.until_db("traffic is back", |db| db["status"]["lastCompletedRolloutHash"] == hash).await;
    assert_eq!(back["status"]["activeSet"], "first");
    assert_eq!(selected(&world).await, "first");
    assert_eq!(world.notes("NodeCreated").await.len(), made, "no node was made");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_manual_promotion_waits_for_the_hash_that_is_wanted_and_spends_it() {
    let world = World::new("bgman").await;
    world.settled_fleet(blue_green(1, json!({"promotion": "Manual", "retireDelaySeconds": 1}))).await;
    world.set_image("db:2").await;
    let ready = |db: &Value| condition(db, "UpToDate") == "Unknown/ReadyToPromote";
    let waits = world.until_db("it is ready", ready).await;
    world.patch_fleet(json!({"spec": {"forcePromote": "nonsense"}})).await;
    let note = world.until_event("db", "StaleForcePromote").await;
    assert!(note.contains("nonsense"), "{note}");
    assert_eq!(selected(&world).await, "first");
    let hash = waits["status"]["requestedRolloutHash"].clone();
    world.patch_fleet(json!({"spec": {"forcePromote": hash}})).await;
    let done = world.until_db("it is over", is_over).await;
    assert_eq!(done["status"]["spentForcePromote"], hash);
    assert_eq!(done["status"]["lastCompletedRolloutHash"], hash);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_promotion_of_a_wrong_form_promotes_nothing_and_is_said_once_for_each() {
    let world = World::new("bgform").await;
    world.settled_fleet(blue_green(1, json!({"promotion": "Manual", "retireDelaySeconds": 1}))).await;
    world.set_image("db:2").await;
    let ready = |db: &Value| condition(db, "UpToDate") == "Unknown/ReadyToPromote";
    let waits = world.until_db("it is ready", ready).await;
    let hash = text(&waits["status"], "requestedRolloutHash").to_owned();
    let force = |value: Value| json!({"spec": {"forcePromote": value}});
    let wrong = [
        hash[3..8].to_owned(),
        hash[3..].to_owned(),
        hash.to_uppercase(),
        format!("{hash} "),
        "*".to_owned(),
    ];
    for (told, value) in wrong.iter().enumerate() {
        world.patch_fleet(force(json!(value))).await;
        for _ in 0..200 {
            if world.notes("StaleForcePromote").await.len() > told {
                break;
            }
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
        assert_eq!(world.notes("StaleForcePromote").await.len(), told + 1, "{value:?}");
    }
    let held = world.until_quiet().await;
    assert_eq!(held["status"]["rollout"]["stage"], "AwaitingPromotion");
    assert_eq!(selected(&world).await, "first");
    assert_eq!(world.notes("StaleForcePromote").await.len(), wrong.len());
    let params = kube::api::PatchParams::default();
    let number = kube::api::Patch::Merge(force(json!(1)));
    let refused = world.fleets().patch("db", &params, &number).await.unwrap_err().to_string();
    assert!(refused.contains("forcePromote"), "{refused}");
    world.patch_fleet(force(json!(hash))).await;
    world.until_db("it is over", |db| is_over(db) && db["status"]["activeSet"] != "first").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_set_that_lost_its_readiness_before_the_promotion_is_waited_for_and_named() {
    let world = World::new("bglost").await;
    world.settled_fleet(blue_green(2, json!({"promotion": "Manual", "retireDelaySeconds": 1}))).await;
    world.set_image("db:2").await;
    let ready = |db: &Value| condition(db, "UpToDate") == "Unknown/ReadyToPromote";
    let waits = world.until_db("it is ready", ready).await;
    let node = format!("db-{}-1", text(&waits["status"]["rollout"], "entrantSet"));
    world.steer(&format!("{node}-0"), "unready").await;
    world
        .until(&world.nodes(), &node, "it is not ready", |n| condition(n, "Ready").starts_with("False"))
        .await;
    world.patch_fleet(json!({"spec": {"updateStrategy": {"blueGreen": {"promotion": "WhenReady"}}}})).await;
    let named =
        |db: &Value| text(&db["status"]["rollout"], "message") == format!("waiting for {node} to be ready");
    world.until_db("it is named", named).await;
    tokio::time::sleep(std::time::Duration::from_secs(2)).await;
    assert_eq!(selected(&world).await, "first");
    world.steer(&format!("{node}-0"), "default").await;
    world.until_db("it is over", |db| is_over(db) && db["status"]["activeSet"] != "first").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hard_fork_without_a_height_is_refused_and_what_runs_is_left_alone() {
    let world = World::new("forkno").await;
    let sentence = |refused: String| assert!(refused.contains("haltHeight"), "{refused}");
    let strategy = json!({"spec": {"updateStrategy": {"type": "HardFork"}}});
    let fork = with(fleet(1, "db:1"), &strategy);
    let created = world.try_create("windlass.dev/v1alpha1", "NodeDeployment", fork.clone()).await;
    sentence(created.unwrap_err());
    let zero = with(fork, &json!({"spec": {"updateStrategy": {"hardFork": {"haltHeight": 0}}}}));
    let created = world.try_create("windlass.dev/v1alpha1", "NodeDeployment", zero).await;
    sentence(created.unwrap_err());
    let before = world.settled_fleet(blue_green(1, json!({}))).await;
    let pods = world.pod_uids().await;
    let change = with(json!({"spec": {"template": {"spec": {"image": "db:2"}}}}), &strategy);
    let params = kube::api::PatchParams::default();
    let patched = world.fleets().patch("db", &params, &kube::api::Patch::Merge(change)).await;
    sentence(patched.unwrap_err().to_string());
    assert_eq!(world.until_quiet().await["status"], before["status"]);
    assert_eq!(world.pod_uids().await, pods);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_that_dies_again_and_again_promotes_once() {
    let mut world = World::new("bgkill").await;
    world.settled_fleet(blue_green(2, json!({"retireDelaySeconds": 2}))).await;
    world.set_image("db:2").await;
    for pause in [120, 250, 400, 700, 1100] {
        tokio::time::sleep(std::time::Duration::from_millis(pause)).await;
        world.kill_operator().await;
        world.start_operator(&[]).await;
    }
    let done = world.until_db("it is over", is_over).await;
    assert_eq!(outcomes(&done), ["Complete"]);
    assert_eq!(nodes(&world).await.len(), 2);
    assert_eq!(selected(&world).await, set_of(&done));
    let claims = names(&world, "v1", "PersistentVolumeClaim").await;
    assert_eq!(claims.len(), 4, "{claims:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stall_under_rollback_takes_the_entrants_back() {
    let world = World::new("bgroll").await;
    let strategy = json!({"spec": {"updateStrategy": {"onStall": "Rollback", "progressDeadlineSeconds": 3}}});
    world.settled_fleet(with(blue_green(1, json!({})), &strategy)).await;
    world.set_image("db:2-nope").await;
    let back = world.until_db("it is taken back", |db| condition(db, "UpToDate") == "False/RolledBack").await;
    assert_eq!(outcomes(&back), ["RolledBack"]);
    world.until_quiet().await;
    assert_eq!(nodes(&world).await, ["db-0"]);
    assert_eq!(world.images().await, ["db:1"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn entrants_that_are_given_up_keep_their_claims_under_every_policy() {
    let world = World::new("bgclaim").await;
    let policy = json!({"spec": {"template": {"spec": {"volumeClaimRetention": "Delete"}}}});
    world.settled_fleet(with(blue_green(1, json!({"retireDelaySeconds": 1})), &policy)).await;
    world.set_image("db:2-unready").await;
    let waits = world.until_db("entrants are waited for", stage("AwaitingEntrants")).await;
    let entrant = format!("db-{}-0", text(&waits["status"]["rollout"], "entrantSet"));
    let claims = world.api("v1", "PersistentVolumeClaim");
    let claim = format!("data-{entrant}-0");
    world
        .until(&claims, &claim, "it is owned by its node", |c| {
            c["metadata"]["ownerReferences"][0]["kind"] == "StatefulNode"
        })
        .await;
    world
        .patch_fleet(
            json!({"metadata": {"annotations": {"windlass.dev/abort": waits["status"]["plan"]["id"]}}}),
        )
        .await;
    world.until(&world.nodes(), &entrant, "the entrant is removed", Value::is_null).await;
    world.until_quiet().await;
    let kept = world.get(&claims, &claim).await;
    assert!(kept["metadata"]["deletionTimestamp"].is_null() && !kept.is_null(), "{kept:#}");
    // After a promotion the policy applies.
    world.set_image("db:3").await;
    world.until_db("it is over", is_over).await;
    world.until(&claims, "data-db-0-0", "the old set's claim goes", Value::is_null).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hard_fork_halts_the_old_nodes_at_the_height_before_the_new_ones_take_over() {
    let world = World::new("fork").await;
    let sidecars = Sidecars::start(&world).await;
    sidecars.reach(500);
    let strategy = json!({"type": "HardFork", "hardFork": {"haltHeight": 1000},
        "blueGreen": {"retireDelaySeconds": 1}});
    let fleet = with(
        sidecars.fleet(2, "db:1"),
        &json!({"spec": {"updateStrategy": strategy, "service": {"ports": [{"port": 5432}]}}}),
    );
    world.settled_fleet(fleet).await;
    world.set_image("db:2").await;
    let waits = |db: &Value| text(&db["status"]["rollout"], "message").contains("halt at height 1000");
    let waiting = world.until_db("the old nodes are asked to halt", waits).await;
    assert_eq!(waiting["status"]["rollout"]["stage"], "Promoting");
    assert_eq!(waiting["status"]["rollout"]["haltHeight"], 1000);
    world.until_db("both were asked", |_| sidecars.halts() == [1000, 1000]).await;
    assert_eq!(selected(&world).await, "first");
    sidecars.reach(1000);
    let done = world.until_db("it is over", |db| is_over(db) && db["status"]["activeSet"] != "first").await;
    assert_eq!(selected(&world).await, set_of(&done));
    assert_eq!(world.images().await, ["db:2", "db:2"]);
    assert_eq!(sidecars.halts(), [1000, 1000], "each was asked once");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hard_fork_passes_no_point_of_no_return_before_every_old_node_has_said_a_height() {
    let world = World::new("heights").await;
    let sidecars = Sidecars::start(&world).await;
    let strategy = json!({"type": "HardFork", "hardFork": {"haltHeight": 1000}});
    world
        .settled_fleet(with(sidecars.fleet(2, "db:1"), &json!({"spec": {"updateStrategy": strategy}})))
        .await;
    world.set_image("db:2").await;
    let waits = |db: &Value| text(&db["status"]["rollout"], "message").contains("height");
    let waiting = world.until_db("it waits for heights", waits).await;
    assert_ne!(waiting["status"]["rollout"]["stage"], "Promoting", "{waiting:#}");
    tokio::time::sleep(std::time::Duration::from_secs(5)).await;
    let still = world.get(&world.fleets(), "db").await;
    assert_ne!(still["status"]["rollout"]["stage"], "Promoting", "{still:#}");
    assert_eq!(sidecars.halts(), [0; 0]);
    sidecars.reach(500);
    world.until_db("both were asked", |_| sidecars.halts() == [1000, 1000]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fleet_of_the_longest_name_makes_a_set() {
    let world = World::new("bglong").await;
    let name = "a".repeat(39);
    let long = with(blue_green(1, json!({})), &json!({"metadata": {"name": name}}));
    world.fleet(long).await;
    world.until(&world.fleets(), &name, "it serves", is_applied).await;
    world
        .patch(
            &world.fleets(),
            &name,
            json!({"spec": {"replicas": 1, "template": {"spec": {"image": "db:2"}}}}),
        )
        .await;
    let done = world.until(&world.fleets(), &name, "39 characters are short enough", is_over).await;
    assert_ne!(done["status"]["activeSet"], "first");
}
