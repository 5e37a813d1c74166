//! Two replicas: one acts, the other stands by and takes over; one that was paused past its lease does no harm when
//! it resumes. Whatever happens to the Lease, the two never write at once.

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use serde_json::json;

use windlass_harness::controlplane::Mark;
use windlass_harness::kit::{Wave, World, fleet};

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
async fn a_replica_that_stands_by_takes_over_and_one_that_wakes_up_late_stops() {
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
async fn a_replica_that_is_stopped_hands_the_lease_on_at_once() {
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

/// Starts a replica under another account, which identifies it in the audit log. The host's name is the same.
async fn start_second_account(world: &mut World) -> String {
    world.kubeconfig = world.cp.service_account_kubeconfig(&world.ns, "second").await.expect("a kubeconfig");
    let account = format!("{}:second", &*world.ns);
    for role in ["windlass", "windlass-leader-election"] {
        let binding = format!("second-{role}");
        let (ns, role) = (&*world.ns, format!("--role={role}"));
        let account = format!("--serviceaccount={account}");
        world.cp.kubectl(&["-n", ns, "create", "rolebinding", &binding, &role, &account]).await.ok();
    }
    world.start_electing_operator().await;
    format!("system:serviceaccount:{account}")
}

/// The writes to this namespace since a mark, without the Lease: author and time, in order.
async fn writes(world: &World, since: Mark, who: &[&str]) -> Vec<(String, DateTime<Utc>)> {
    let audit = world.cp.audit_since(since).await.namespace(&world.ns).write_attempts();
    let mut writes: Vec<(String, DateTime<Utc>)> = audit
        .entries()
        .iter()
        .filter(|e| e.object_ref.resource != "leases" && who.contains(&e.user.username.as_str()))
        .map(|e| (e.user.username.clone(), e.request_received_timestamp.parse().expect("a time")))
        .collect();
    writes.sort_by_key(|(_, at)| *at);
    writes
}

/// The gaps between writes of different authors.
fn handovers(writes: &[(String, DateTime<Utc>)]) -> Vec<TimeDelta> {
    writes.windows(2).filter(|pair| pair[0].0 != pair[1].0).map(|pair| pair[1].1 - pair[0].1).collect()
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "nightly"]
async fn a_lease_that_is_deleted_by_hand_makes_no_two_leaders() {
    let mut world = World::without_operator("unleased").await;
    may_elect(&world).await;
    let mark = world.cp.audit_mark().await;
    let first = world.operator_user();
    world.start_electing_operator().await;
    let leads = until_holder(&world, 30, "the first replica leads", |h| !h.is_empty()).await;
    world.fleet(fleet(4, "db:1")).await;
    world.until_applied().await;
    let mut leader = world.take_operator();
    let second = start_second_account(&mut world).await;
    // It has to observe the Lease's deletion.
    tokio::time::sleep(Duration::from_secs(6)).await;
    assert_eq!(holder(&world).await, leads, "it stands by");

    let wave = Wave::watch(&world, 4).await;
    world.set_image("db:2-slow").await;
    world.until_event("db", "RolloutStarted").await;
    world.delete(&world.api("coordination.k8s.io/v1", "Lease"), &lease_name(&world).await).await;
    let deleted = Utc::now();
    let status = tokio::time::timeout(Duration::from_secs(12), leader.wait()).await;
    assert!(!status.expect("the leader stops at once").expect("it ended").success());
    until_holder(&world, 30, "the second replica leads", |h| !h.is_empty() && h != leads).await;
    world.until_applied().await;
    wave.at_most(&world, 1).await;

    let writes = writes(&world, mark, &[&first, &second]).await;
    let gaps = handovers(&writes);
    assert_eq!(gaps.len(), 1, "one took over from the other, once: {writes:#?}");
    assert!(gaps[0] >= TimeDelta::seconds(10), "longer than a request may take: {gaps:?}");
    let last = writes.iter().rev().find(|(who, _)| *who == first).expect("the first wrote");
    assert!(last.1 <= deleted + TimeDelta::seconds(6), "it stopped at once: {last:?}, deleted at {deleted}");
}

async fn lease_name(world: &World) -> String {
    let leases = world.list(&world.api("coordination.k8s.io/v1", "Lease")).await;
    leases[0]["metadata"]["name"].as_str().expect("a name").to_owned()
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "nightly"]
async fn of_two_replicas_one_that_sleeps_writes_nothing_when_it_wakes_up() {
    let mut world = World::without_operator("twins").await;
    may_elect(&world).await;
    let mark = world.cp.audit_mark().await;
    let first = world.operator_user();
    world.start_electing_operator().await;
    let mut sleeper = world.take_operator();
    let second = start_second_account(&mut world).await;
    world.fleet(fleet(3, "db:1")).await;
    world.until_applied().await;
    let earlier = writes(&world, mark, &[&first, &second]).await;
    assert_eq!(handovers(&earlier), [], "one of them wrote: {earlier:#?}");
    if earlier[0].0 == second {
        // The other one was faster.
        std::mem::swap(&mut sleeper, world.operator_mut());
    }
    let asleep = earlier[0].0.clone();

    let wave = Wave::watch(&world, 3).await;
    world.set_image("db:2-slow").await;
    world.until_event("db", "RolloutStarted").await;
    signal(sleeper.id().expect("it runs"), "STOP");
    let stopped = Utc::now();
    let leads = holder(&world).await;
    until_holder(&world, 60, "the other replica leads", |h| !h.is_empty() && h != leads).await;
    world.until_applied().await;
    signal(sleeper.id().expect("it runs still"), "CONT");
    let status = tokio::time::timeout(Duration::from_secs(30), sleeper.wait()).await;
    assert!(!status.expect("the replica that lost its lease ends").expect("it ended").success());
    wave.at_most(&world, 1).await;

    let writes = writes(&world, mark, &[&first, &second]).await;
    assert_eq!(handovers(&writes).len(), 1, "{writes:#?}");
    let last = writes.iter().rev().find(|(who, _)| *who == asleep).expect("it wrote before");
    assert!(
        last.1 <= stopped + TimeDelta::seconds(1),
        "it wrote after it woke up: {last:?}, stopped at {stopped}"
    );
}
