//! A fleet with Retain is not deleted before that has been carried out: `status` says when, and the policy of
//! `deploy/policies` refuses the delete until then.

use kube::api::DeleteParams;
use serde_json::{Value, json};

use windlass_harness::kit::{World, fleet, with};

const POLICY: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/policies/retain.yaml"));

/// A world in which the shipped policy applies to its namespace only: other tests run concurrently.
async fn guarded(prefix: &str) -> World {
    let world = World::new(prefix).await;
    let name = format!("windlass-retain-{}", &*world.ns);
    let mut objects: Vec<Value> = serde_saphyr::from_multiple(POLICY).expect("two documents");
    for object in &mut objects {
        object["metadata"]["name"] = json!(name);
    }
    objects[1]["spec"]["policyName"] = json!(name);
    objects[1]["spec"]["matchResources"] =
        json!({"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": &*world.ns}}});
    for object in objects {
        let applied = world.cp.kubectl_with(&["apply", "-f", "-"], &object.to_string()).await;
        assert_eq!(applied.code, Some(0), "{}", applied.stderr);
    }
    // It takes a moment until the API server applies it: a new fleet is refused then.
    let probe = with(
        fleet(1, "db:1"),
        &json!({"metadata": {"name": "probe"}, "spec": {"deletionPolicy": "Retain", "replicas": 0}}),
    );
    let until = tokio::time::Instant::now() + windlass_harness::kit::PATIENCE;
    let dry = DeleteParams { dry_run: true, ..DeleteParams::default() };
    let mut world = world;
    world.kill_operator().await;
    world.fleet(probe).await;
    while world.fleets().delete("probe", &dry).await.is_ok() {
        assert!(tokio::time::Instant::now() < until, "the policy is never in force");
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    world.start_operator(&[]).await;
    world.until(&world.fleets(), "probe", "it may go", |p| p["status"]["deletionPolicy"] == "Retain").await;
    world.delete(&world.fleets(), "probe").await;
    world
}

async fn refusal(world: &World) -> Option<String> {
    world.fleets().delete("db", &DeleteParams::default()).await.err().map(|e| e.to_string())
}

/// Waits until a delete of the fleet would be allowed.
async fn until_free(world: &World) {
    let until = tokio::time::Instant::now() + windlass_harness::kit::PATIENCE;
    let dry = DeleteParams { dry_run: true, ..DeleteParams::default() };
    while let Err(error) = world.fleets().delete("db", &dry).await {
        assert!(tokio::time::Instant::now() < until, "it stays refused: {error}");
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
}

fn says(deletion: &'static str, claims: &'static str) -> impl Fn(&Value) -> bool {
    move |db| db["status"]["deletionPolicy"] == deletion && db["status"]["volumeClaimRetention"] == claims
}

async fn owned_nodes(world: &World) -> usize {
    world.list(&world.nodes()).await.iter().filter(|n| n["metadata"]["ownerReferences"].is_array()).count()
}

async fn owned_claims(world: &World) -> usize {
    let claims = world.list(&world.api("v1", "PersistentVolumeClaim")).await;
    claims.iter().filter(|c| c["metadata"]["ownerReferences"].is_array()).count()
}

fn with_claims(replicas: i64, retention: &str) -> Value {
    let claim = json!({"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}});
    let spec = json!({"volumeClaimTemplates": [claim], "volumeClaimRetention": retention});
    with(fleet(replicas, "db:1"), &json!({"spec": {"template": {"spec": spec}}}))
}

#[tokio::test(flavor = "multi_thread")]
async fn fleet_deletion_is_rejected_until_nodes_are_released() {
    let mut world = guarded("release").await;
    world.settled_fleet(fleet(3, "db:1")).await;
    world.until_db("it says what is so", says("Delete", "Retain")).await;
    world.kill_operator().await;
    world.patch_fleet(json!({"spec": {"deletionPolicy": "Retain"}})).await;
    let sentence = refusal(&world).await.expect("it is refused");
    assert!(sentence.contains("NodeDeployment db says Retain"), "{sentence}");
    assert!(sentence.contains("wait until status.deletionPolicy is Retain"), "{sentence}");
    assert!(!sentence.contains("volumeClaimRetention"), "{sentence}");
    world.start_operator(&[]).await;
    world.until_db("it is carried out", says("Retain", "Retain")).await;
    assert_eq!(owned_nodes(&world).await, 0);
    let pods = world.uids(&world.pods()).await;
    assert_eq!(refusal(&world).await, None);
    world.until(&world.fleets(), "db", "the fleet is gone", Value::is_null).await;
    tokio::time::sleep(std::time::Duration::from_secs(2)).await;
    assert_eq!(world.uids(&world.pods()).await, pods, "its nodes live on");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "nightly"]
async fn fleet_deletion_is_rejected_until_claims_are_released() {
    let mut world = guarded("releasepvc").await;
    world.settled_fleet(with_claims(2, "Delete")).await;
    world.until_db("it says what is so", says("Delete", "Delete")).await;
    assert_eq!(owned_claims(&world).await, 2);
    world.kill_operator().await;
    world.patch_fleet(json!({"spec": {"template": {"spec": {"volumeClaimRetention": "Retain"}}}})).await;
    let sentence = refusal(&world).await.expect("it is refused");
    assert!(sentence.contains("wait until status.volumeClaimRetention is Retain"), "{sentence}");
    assert!(!sentence.contains("status.deletionPolicy"), "{sentence}");
    world.patch_fleet(json!({"spec": {"deletionPolicy": "Retain"}})).await;
    let sentence = refusal(&world).await.expect("it is refused");
    assert!(
        sentence.contains("status.deletionPolicy and status.volumeClaimRetention are Retain"),
        "{sentence}"
    );
    world.patch_fleet(json!({"spec": {"deletionPolicy": "Delete"}})).await;
    world.start_operator(&[]).await;
    world.until_db("it is carried out", says("Delete", "Retain")).await;
    assert_eq!(owned_claims(&world).await, 0);
    let claims = world.uids(&world.api("v1", "PersistentVolumeClaim")).await;
    assert_eq!(refusal(&world).await, None);
    world.until(&world.nodes(), "db-0", "its nodes go", Value::is_null).await;
    tokio::time::sleep(std::time::Duration::from_secs(2)).await;
    assert_eq!(world.uids(&world.api("v1", "PersistentVolumeClaim")).await, claims, "the claims stay");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "nightly"]
async fn status_of_earlier_version_suffices_if_nothing_is_lost() {
    let mut world = guarded("releaseold").await;
    world.settled_fleet(with_claims(1, "Retain")).await;
    world.kill_operator().await;
    let nothing = json!({"status": {"deletionPolicy": null, "volumeClaimRetention": null}});
    world.patch_status(&world.fleets(), "db", nothing).await;
    let dry = DeleteParams { dry_run: true, ..DeleteParams::default() };
    world.fleets().delete("db", &dry).await.expect("it has seen what the spec says");
    world.set_image("db:2").await;
    let sentence = refusal(&world).await.expect("what it says may be new");
    assert!(sentence.contains("status.volumeClaimRetention is Retain"), "{sentence}");
    world.start_operator(&[]).await;
    until_free(&world).await;
    world.kill_operator().await;
    let unseen = with(fleet(1, "db:1"), &json!({"metadata": {"name": "unseen"}}));
    world.fleet(unseen).await;
    world.delete(&world.fleets(), "unseen").await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "nightly"]
async fn fleet_with_delete_policy_can_always_be_deleted() {
    let mut world = guarded("releasedel").await;
    world.fleet(with_claims(3, "Delete")).await;
    let dry = DeleteParams { dry_run: true, ..DeleteParams::default() };
    let free = async |world: &World| world.fleets().delete("db", &dry).await.map(drop);
    free(&world).await.expect("it is being made");
    world.until_applied().await;
    world.set_image("db:2-nope").await;
    free(&world).await.expect("it is rolled");
    world.until_db("it is held", |db| db["status"]["rollout"]["nodes"]["failed"] == 1).await;
    free(&world).await.expect("it is held");
    world.kill_operator().await;
    world.patch_fleet(json!({"spec": {"replicas": 5, "paused": true}})).await;
    free(&world).await.expect("nobody has seen what it says");
    world.delete(&world.fleets(), "db").await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "nightly"]
async fn namespace_deletion_ignores_fleet_deletion_policy() {
    let mut world = guarded("releasens").await;
    world.settled_fleet(fleet(1, "db:1")).await;
    world.kill_operator().await;
    world.patch_fleet(json!({"spec": {"deletionPolicy": "Retain"}})).await;
    assert!(refusal(&world).await.is_some());
    let gone = world.cp.kubectl(&["delete", "namespace", &world.ns, "--wait=false"]).await;
    assert_eq!(gone.code, Some(0), "{}", gone.stderr);
    world.until(&world.fleets(), "db", "the fleet is gone", Value::is_null).await;
}
