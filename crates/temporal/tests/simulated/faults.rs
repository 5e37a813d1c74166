//! The fault catalogue of workers: faults at each write to Kubernetes, and at each call of Temporal, for a while. The
//! scenario runs once without a fault; then each fault strikes at each of its points, in a run of its own, and every
//! oracle checks every run. `killed.rs` kills the operator; `upset.rs` has clocks, watches and leaders.
//!
//! `WINDLASS_WORKER_SWEEP_EVERY=1` runs every point; plain `cargo test` every 61st of the calls, and a sixteenth of
//! the writes.

use std::collections::BTreeMap;

use chrono::TimeDelta;
use serde_json::json;
use windlass_sim::{After, AuditEntry, Before, Failure, FaultPlan, RequestInfo};
use windlass_temporal::port::RoutingWrite;
use windlass_temporal_fake::{Fault, Write};

use crate::stage::{End, Stage, spec};

/// The scenario: a first version, a workflow that is pinned to it, a second version with a gate and two steps, and
/// the end of the first.
pub async fn story(s: &Stage) -> End {
    let mut spec = spec("v1");
    spec["rollout"]["gate"] = json!({"workflowType": "Check", "timeoutSeconds": 60});
    s.through_two_versions(spec).await
}

/// The oracles of each run.
pub async fn watch(s: &Stage, what: &str) {
    assert_pauses(s, what);
    settle(s, what).await;
}

/// The oracles without the pauses, which a clock that jumps distorts.
pub async fn settle(s: &Stage, what: &str) {
    s.assert_no_orphans();
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    s.cluster.replay(0, |step| {
        let is_made = step.before.is_none();
        if let Some(after) = step.after.filter(|after| is_made && after["kind"] == "Deployment") {
            *counts.entry(after["metadata"]["name"].as_str().unwrap().to_owned()).or_default() += 1;
        }
    });
    assert!(counts.values().all(|count| *count == 1), "{what}: something was made twice: {counts:?}");
    // A fault that began at the last calls ends by itself.
    s.temporal.fail_at_call(u64::MAX, Fault::None, TimeDelta::zero());
    s.temporal.set_fault(Fault::None);
    s.seconds(60).await;
    let before = s.cluster.version();
    s.seconds(120).await;
    let mut writes = Vec::new();
    s.cluster.replay(before, |step| {
        writes.push(step.after.map(|after| format!("{} {}", after["kind"], after["status"])));
    });
    assert_eq!(writes, [], "{what}: at rest nothing is written");
}

/// Asserts that no step was shorter than its pause of 5 s.
pub fn assert_pauses(s: &Stage, what: &str) {
    let mut last: Option<(i32, chrono::DateTime<chrono::Utc>)> = None;
    for (at, write) in s.temporal.timed_writes() {
        let percent = match write {
            Write::Routing(RoutingWrite::Ramp { percent, .. }) => percent.0 as i32,
            Write::Routing(RoutingWrite::Current(_)) => 100,
            _ => continue,
        };
        if let Some((before, since)) = last
            && before != percent
            && before != 100
        {
            let held = at - since;
            assert!(held >= TimeDelta::seconds(5), "{what}: the step of {before} % was held for {held}");
        }
        if last.is_none_or(|(before, _)| before != percent) {
            last = Some((percent, at));
        }
    }
}

pub fn every() -> u64 {
    std::env::var("WINDLASS_WORKER_SWEEP_EVERY").ok().and_then(|text| text.parse().ok()).unwrap_or(61)
}

#[tokio::test(start_paused = true)]
async fn rollout_ends_the_same_with_temporal_faults_at_any_call() {
    let clean = Stage::new();
    let end = story(&clean).await;
    assert_eq!((end.ramps.as_slice(), end.gates), ([100, 5, 50, 100].as_slice(), 2));
    let calls = clean.temporal.calls();
    watch(&clean, "clean").await;
    let faults = [
        Fault::Down,
        Fault::Slow(std::time::Duration::from_secs(4)),
        Fault::Forgetful,
        Fault::Empty,
        Fault::Foreign,
        Fault::Limiting,
        Fault::Refusing,
        Fault::Secretless,
        Fault::LosesAnswers,
    ];
    let mut points = 0;
    for (number, fault) in faults.iter().enumerate() {
        // Each fault strikes at other calls, so that all faults together cover most of them.
        for call in (1 + number as u64 * every() / faults.len() as u64..=calls).step_by(every() as usize) {
            let s = Stage::new();
            s.temporal.fail_at_call(call, fault.clone(), TimeDelta::seconds(20));
            let what = format!("{fault:?} for 20 s from call {call} on");
            assert_eq!(story(&s).await, end, "{what}");
            watch(&s, &what).await;
            points += 1;
        }
    }
    println!("{points} points at {calls} calls");
    assert!(points >= 8, "{points} points at {calls} calls");
}

/// Fails one write of the operator's.
struct Strike {
    write: u64,
    failure: Failure,
    /// True if the write is carried out and only its answer is lost.
    carried_out: bool,
}

impl Strike {
    fn is_it(&self, request: &RequestInfo) -> bool {
        request.user_agent == "operator" && request.write_number == self.write
    }
}

impl FaultPlan for Strike {
    fn before(&mut self, request: &RequestInfo) -> Before {
        if !self.carried_out && self.is_it(request) {
            return Before::Fail(self.failure.clone());
        }
        Before::Pass
    }

    fn after(&mut self, request: &RequestInfo, _: u16) -> After {
        if self.carried_out && self.is_it(request) {
            return After::Fail(self.failure.clone());
        }
        After::Pass
    }
}

#[tokio::test(start_paused = true)]
async fn step_pause_is_kept_when_its_write_is_slow() {
    let (s, _) = Stage::running(spec("v1")).await;
    s.temporal.set_fault(Fault::Slow(std::time::Duration::from_secs(4)));
    let v2 = s.roll_to("v2").await;
    s.until_current(&v2).await;
    assert_eq!(s.ramps(), [100, 5, 50, 100]);
    assert_pauses(&s, "each answer takes 4 s");
}

#[tokio::test(start_paused = true)]
async fn rollout_ends_the_same_with_api_server_faults_at_any_write() {
    let clean = Stage::new();
    let end = story(&clean).await;
    let of_operator = |entry: &&AuditEntry| entry.user_agent == "operator" && entry.is_write();
    let writes = clean.cluster.audit().iter().filter(of_operator).count() as u64;
    let failures = [
        Failure::Conflict,
        Failure::TooManyRequests(1),
        Failure::Internal,
        Failure::Unavailable,
        Failure::ServerTimeout,
        Failure::Forbidden("a policy says no".to_owned()),
        Failure::Unauthorized,
        Failure::Disconnect,
    ];
    for write in 1..=writes {
        for (number, failure) in failures.iter().enumerate() {
            if every() > 1 && !(write + number as u64).is_multiple_of(16) {
                continue;
            }
            let lost = matches!(failure, Failure::ServerTimeout | Failure::Disconnect);
            for carried_out in if lost { vec![false, true] } else { vec![false] } {
                let s = Stage::new();
                s.cluster.set_faults(Box::new(Strike { write, failure: failure.clone(), carried_out }));
                let what = format!("{failure:?} to write {write}, carried out: {carried_out}");
                assert_eq!(story(&s).await, end, "{what}");
                watch(&s, &what).await;
            }
        }
    }
}
