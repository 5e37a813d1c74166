//! Which replica acts, and when: replicas on a simulated cluster, and manual changes of the Lease.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::*;
use windlass_sim::{Cluster, Options};

struct Stage {
    cluster: Cluster,
}

impl Stage {
    fn new() -> Self {
        Self { cluster: Cluster::start(Options::seeded(1)) }
    }

    fn candidate(&self, identity: &str) -> Arc<Candidate> {
        let election =
            Election { namespace: "default".into(), name: "windlass".into(), identity: identity.into() };
        let client = self.cluster.client(identity, "default");
        Arc::new(Candidate::new(&client, election, "0.0.1", self.cluster.clock()))
    }

    fn leases(&self) -> Api<Lease> {
        Api::namespaced(self.cluster.client("hand", "default"), "default")
    }

    async fn change(&self, spec: Value) {
        let change = Patch::Merge(json!({"spec": spec}));
        self.leases().patch("windlass", &PatchParams::default(), &change).await.unwrap();
    }

    async fn delete(&self) {
        self.leases().delete("windlass", &kube::api::DeleteParams::default()).await.unwrap();
    }
}

/// How many seconds it takes until a candidate leads.
async fn leads_after(candidate: &Candidate) -> u64 {
    let began = monotonic();
    candidate.lead().await;
    assert!(candidate.fence().is_open());
    began.elapsed().as_secs()
}

const REQUEST: u64 = REQUEST_TIMEOUT.as_secs();

#[tokio::test(start_paused = true)]
async fn creator_of_the_lease_waits_out_writes_of_a_previous_leader() {
    let stage = Stage::new();
    let waited = leads_after(&stage.candidate("a")).await;
    assert!((LEASE.as_secs() + REQUEST..LEASE.as_secs() + REQUEST + 2).contains(&waited), "{waited} s");
}

#[tokio::test(start_paused = true)]
async fn only_a_properly_released_lease_is_acquired_immediately() {
    let stage = Stage::new();
    let first = stage.candidate("a");
    first.lead().await;
    first.release().await;
    assert!(!first.fence().is_open());
    let second = stage.candidate("b");
    assert!(leads_after(&second).await <= 1);

    stage.change(json!({"holderIdentity": ""})).await;
    let waited = leads_after(&stage.candidate("c")).await;
    assert!(waited >= QUIET.as_secs() + REQUEST, "{waited} s");
}

#[tokio::test(start_paused = true)]
async fn lease_with_pending_write_is_acquired_after_the_write_expires() {
    for (doubt_ms, quiet) in [(500, QUIET.as_secs()), (60_500, 61), (75_000, 75)] {
        let stage = Stage::new();
        let first = stage.candidate("a");
        first.lead().await;
        first.leave(Duration::from_millis(doubt_ms)).await;
        assert!(!first.fence().is_open());
        let waited = leads_after(&stage.candidate("b")).await;
        let least = quiet + REQUEST;
        assert!((least..=least + PERIOD.as_secs() + 1).contains(&waited), "{doubt_ms} ms: {waited} s");
        // Nobody waits for longer because somebody left the Lease so.
        let lease = stage.leases().get("windlass").await.unwrap().spec.unwrap();
        assert_eq!(lease.lease_duration_seconds, Some(QUIET.as_secs() as i32));
    }
    let stage = Stage::new();
    stage.candidate("a").lead().await;
    stage.change(json!({"leaseDurationSeconds": 3600})).await;
    let waited = leads_after(&stage.candidate("b")).await;
    assert!(
        waited <= UNKNOWN_OUTCOME_TTL.as_secs() + REQUEST + PERIOD.as_secs() + 1,
        "an hour that a hand wrote: {waited} s"
    );
}

#[tokio::test(start_paused = true)]
async fn leader_without_its_lease_stops_long_before_a_successor_acts() {
    for (deleted, watched) in [(true, false), (true, true), (false, true)] {
        let stage = Stage::new();
        let leader = stage.candidate("a");
        leader.lead().await;
        if deleted {
            stage.delete().await;
        } else {
            stage.change(json!({"holderIdentity": "somebody"})).await;
        }
        let began = monotonic();
        let heir = stage.candidate("b");
        let stops = async {
            let ended = tokio::time::timeout(Duration::from_mins(2), leader.hold()).await;
            assert!(ended.is_ok(), "it goes on without a Lease");
            began.elapsed().as_secs()
        };
        let takes_over = async {
            heir.lead().await;
            began.elapsed().as_secs()
        };
        // Without a standby replica the leader finds the Lease gone; otherwise it finds another holder.
        let (held, waited) =
            if watched { tokio::join!(stops, takes_over) } else { (stops.await, takes_over.await) };
        assert!(held <= PERIOD.as_secs() && !leader.fence().is_open(), "{held} s");
        assert!(waited >= QUIET.as_secs(), "{waited} s after the Lease was taken from its leader");
    }
}

#[tokio::test(start_paused = true)]
async fn leader_that_cannot_renew_starts_no_write_that_could_be_late() {
    let stage = Stage::new();
    let leader = stage.candidate("a");
    leader.lead().await;
    // The leader is suspended: it renews nothing, and checks its fence when it resumes.
    let (fence, began) = (leader.fence(), monotonic());
    let closes = async {
        while fence.is_open() {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        began.elapsed()
    };
    let heir = stage.candidate("b");
    let leads = async {
        heir.lead().await;
        began.elapsed()
    };
    let (closed, led) = tokio::join!(closes, leads);
    assert!(closed + REQUEST_TIMEOUT <= led, "closed after {closed:?}, another leads after {led:?}");
    leader.hold().await;
    assert!(!leader.fence().is_open());
}

#[tokio::test(start_paused = true)]
async fn same_holder_identity_is_not_treated_as_own_lease() {
    let stage = Stage::new();
    stage.candidate("a").lead().await;
    // The same identity again: a restarted container, or a second replica on the same host.
    let waited = leads_after(&stage.candidate("a")).await;
    assert!(waited >= QUIET.as_secs() + REQUEST, "{waited} s");
    let of = || Election::of_process("default", "windlass", "host").identity;
    assert_ne!(of(), of());
    assert!(of().starts_with("host-"));
}

/// Fails or delays the requests for the Lease, and counts the renewals that are attempted.
#[derive(Clone, Default)]
struct Shed {
    on: Arc<std::sync::atomic::AtomicBool>,
    swallow: bool,
    tried: Arc<std::sync::atomic::AtomicUsize>,
}

impl windlass_sim::FaultPlan for Shed {
    fn before(&mut self, request: &windlass_sim::RequestInfo) -> windlass_sim::Before {
        use std::sync::atomic::Ordering::SeqCst;
        if !self.on.load(SeqCst) || !request.resource.starts_with("leases") {
            return windlass_sim::Before::Pass;
        }
        self.tried.fetch_add(1, SeqCst);
        if self.swallow {
            windlass_sim::Before::Delay(Duration::from_mins(10))
        } else {
            windlass_sim::Before::Fail(windlass_sim::Failure::Unavailable)
        }
    }
}

#[tokio::test(start_paused = true)]
async fn failed_renewal_is_retried_soon() {
    use std::sync::atomic::Ordering::SeqCst;
    for (swallow, least) in [(false, 8), (true, 3)] {
        let stage = Stage::new();
        let leader = stage.candidate("a");
        leader.lead().await;
        let shed = Shed { swallow, ..Shed::default() };
        stage.cluster.set_faults(Box::new(shed.clone()));
        shed.on.store(true, SeqCst);
        leader.hold().await;
        let tried = shed.tried.load(SeqCst);
        assert!((least..=16).contains(&tried), "{tried} times");
        // A leader that gets an answer in time keeps the Lease.
        let leader = stage.candidate("b");
        shed.on.store(false, SeqCst);
        leader.lead().await;
        shed.on.store(true, SeqCst);
        let back = async {
            tokio::time::sleep(Duration::from_secs(8)).await;
            shed.on.store(false, SeqCst);
            tokio::time::sleep(Duration::from_mins(1)).await;
        };
        tokio::select! {
            () = leader.hold() => panic!("it was lost"),
            () = back => {}
        }
    }
}

/// The answers to the first writes are lost.
struct Unanswered(u32);

impl windlass_sim::FaultPlan for Unanswered {
    fn after(&mut self, request: &windlass_sim::RequestInfo, _code: u16) -> windlass_sim::After {
        if request.write_number == 0 || self.0 == 0 {
            return windlass_sim::After::Pass;
        }
        self.0 -= 1;
        windlass_sim::After::Delay(Duration::from_mins(5))
    }
}

#[tokio::test(start_paused = true)]
async fn unanswered_acquisition_is_recognised_as_own() {
    let stage = Stage::new();
    stage.cluster.set_faults(Box::new(Unanswered(1)));
    let waited = leads_after(&stage.candidate("a")).await;
    let most = ANSWER.as_secs() + PERIOD.as_secs() + QUIET.as_secs() + 1;
    assert!((QUIET.as_secs()..=most).contains(&waited), "{waited} s");
}
