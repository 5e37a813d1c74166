//! The fault catalogue of workers: what can go wrong at each write to Kubernetes, and at each call of Temporal, for a while. A
//! story is played once without a fault; then each fault strikes at each of its points, in a run of its own, and every
//! oracle looks at every run. What dies is in `killed.rs`, clocks, watches
//! and leaders in `upset.rs`.
//!
//! `WINDLASS_WORKER_SWEEP_EVERY=1` walks every point; plain `cargo test` every 61st of the calls, and a sixteenth of what befalls writes.

use std::collections::BTreeMap;

use chrono::TimeDelta;
use serde_json::json;
use windlass_sim::{After, AuditEntry, Before, Failure, FaultPlan, RequestInfo};
use windlass_temporal::played::{Mood, Write};
use windlass_temporal::port::RoutingWrite;

use crate::stage::{End, Stage, spec};

/// A first version, a workflow that is pinned to it, a second one with a gate and two steps, and the end of the first.
pub async fn story(s: &Stage) -> End {
    let mut spec = spec("v1");
    spec["rollout"]["gate"] = json!({"workflowType": "Check", "timeoutSeconds": 60});
    s.through_two_versions(spec).await
}

/// What has to hold of each run, whatever befell it.
pub async fn watch(s: &Stage, what: &str) {
    assert_pauses(s, what);
    settle(s, what).await;
}

/// The same, but for how long each step was held, which a clock that jumps says otherwise.
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
    // What began at the story's last calls has its own time.
    s.temporal.falls_ill(u64::MAX, Mood::Well, TimeDelta::zero());
    s.temporal.is(Mood::Well);
    s.seconds(60).await;
    let before = s.cluster.version();
    s.seconds(120).await;
    let mut writes = Vec::new();
    s.cluster.replay(before, |step| {
        writes.push(step.after.map(|after| format!("{} {}", after["kind"], after["status"])));
    });
    assert_eq!(writes, [], "{what}: at rest nothing is written");
}

/// No step was shorter than its pause of 5 s.
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
async fn whatever_befalls_temporal_at_any_call_the_rollout_ends_as_without_it() {
    let clean = Stage::new();
    let end = story(&clean).await;
    assert_eq!((end.ramps.as_slice(), end.gates), ([100, 5, 50, 100].as_slice(), 2));
    let calls = clean.temporal.calls();
    watch(&clean, "clean").await;
    let moods = [
        Mood::Down,
        Mood::Slow(std::time::Duration::from_secs(4)),
        Mood::Forgetful,
        Mood::Empty,
        Mood::Limiting,
        Mood::Refusing,
        Mood::Secretless,
        Mood::LosesAnswers,
    ];
    let mut points = 0;
    for (number, mood) in moods.iter().enumerate() {
        // Another part of the calls for each mood, so that all moods together leave out few.
        for call in (1 + number as u64 * every() / moods.len() as u64..=calls).step_by(every() as usize) {
            let s = Stage::new();
            s.temporal.falls_ill(call, mood.clone(), TimeDelta::seconds(20));
            let what = format!("{mood:?} for 20 s from call {call} on");
            assert_eq!(story(&s).await, end, "{what}");
            watch(&s, &what).await;
            points += 1;
        }
    }
    println!("{points} points at {calls} calls");
    assert!(points >= 8, "{points} points at {calls} calls");
}

/// What becomes of one write of the operator's.
struct Strike {
    write: u64,
    failure: Failure,
    /// Whether it is carried out all the same, and only its answer lost.
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
async fn a_step_is_held_for_its_pause_also_where_the_write_of_it_takes_long() {
    let (s, _) = Stage::running(spec("v1")).await;
    s.temporal.is(Mood::Slow(std::time::Duration::from_secs(4)));
    let v2 = s.roll_to("v2").await;
    s.until_current(&v2).await;
    assert_eq!(s.ramps(), [100, 5, 50, 100]);
    assert_pauses(&s, "each answer takes 4 s");
}

#[tokio::test(start_paused = true)]
async fn whatever_the_api_server_answers_to_any_write_the_rollout_ends_as_without_it() {
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
