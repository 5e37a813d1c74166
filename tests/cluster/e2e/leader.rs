//! Two replicas: one acts, the other stands by and takes over; one that was paused past its lease does no harm when
//! it resumes. Whatever happens to the Lease, the two never write at once.

use std::time::Duration;

use serde_json::json;

use windlass_harness::kit::{World, fleet};

const RBAC: &str =
    include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/rbac/leader-election.yaml"));

/// The rights, in the namespace of the account.
pub async fn may_elect(world: &World) {
    let rbac = RBAC.replace("windlass-system", &world.ns);
    world.cp.kubectl_with(&["apply", "-f", "-"], &rbac).await.ok();
}

async fn holder(world: &World) -> String {
    let leases = world.list(&world.api("coordination.k8s.io/v1", "Lease")).await;
    let holder = leases.first().and_then(|l| l["spec"]["holderIdentity"].as_str().map(str::to_owned));
    holder.unwrap_or_default()
}

async fn until_holder(
    world: &World,
    patience_seconds: u64,
    what: &str,
    holds: impl Fn(&str) -> bool,
) -> String {
    for _ in 0..patience_seconds * 10 {
        let seen = holder(world).await;
        if holds(&seen) {
            return seen;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("waited in vain until {what}; the lease is held by {:?}", holder(world).await);
}

fn signal(pid: u32, name: &str) {
    let sent = std::process::Command::new("kill").args([&format!("-{name}"), &pid.to_string()]).status();
    assert!(sent.expect("kill runs").success(), "{name} reaches {pid}");
}

#[tokio::test(flavor = "multi_thread")]
async fn standby_takes_over_and_late_former_leader_exits() {
    let mut world = World::without_operator("leader").await;
    may_elect(&world).await;
    world.start_electing_operator().await;
    let first = until_holder(&world, 30, "the first replica leads", |h| !h.is_empty()).await;
    world.fleet(fleet(2, "db:1")).await;
    world.until_applied().await;

    let mut sleeper = world.take_operator();
    signal(sleeper.id().expect("it runs"), "STOP");
    world.start_electing_operator().await;
    until_holder(&world, 60, "the second replica leads", |h| !h.is_empty() && h != first).await;
    world.set_image("db:2").await;
    world.until_applied().await;
    let before = world.db().await;

    signal(sleeper.id().expect("it runs still"), "CONT");
    world.patch_fleet(json!({"metadata": {"labels": {"wakes": "it"}}})).await;
    let status = tokio::time::timeout(Duration::from_secs(30), sleeper.wait()).await;
    let status = status.expect("the replica that lost its lease ends").expect("it can be waited for");
    assert!(!status.success(), "it says that it failed: {status}");
    let after = world.db().await;
    assert_eq!(before["status"], after["status"], "the late replica wrote nothing");
    assert_ne!(holder(&world).await, first);
}

async fn time_of_a_rollout(world: &World, image: &str) -> Duration {
    let began = std::time::Instant::now();
    world.set_image(image).await;
    world.until_applied().await;
    began.elapsed()
}

#[tokio::test(flavor = "multi_thread")]
async fn stopped_leader_releases_the_lease_immediately() {
    let mut world = World::without_operator("handover").await;
    may_elect(&world).await;
    world.start_electing_operator().await;
    let first = until_holder(&world, 30, "the first replica leads", |h| !h.is_empty()).await;
    // It has the Lease before it acts.
    world.fleet(fleet(1, "db:1")).await;
    world.until_applied().await;
    let mut leader = world.take_operator();
    world.start_electing_operator().await;
    signal(leader.id().expect("it runs"), "TERM");
    assert!(leader.wait().await.expect("it ends").success());
    until_holder(&world, 12, "the second replica leads", |h| !h.is_empty() && h != first).await;
    let at_once = time_of_a_rollout(&world, "db:2").await;
    let later = time_of_a_rollout(&world, "db:3").await;
    assert!(
        at_once < later + Duration::from_secs(10),
        "it waited before it led: {at_once:?}, then {later:?}"
    );
}
