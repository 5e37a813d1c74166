//! Disturbances of the operator itself, at each of its writes: its clock jumps, its watches misbehave, and another
//! replica leads while a write is under way.

use std::sync::Arc;
use std::time::Duration;

use chrono::TimeDelta;
use tokio::task::JoinHandle;
use windlass_sim::{AuditEntry, Before, ClusterClock, EventInfo, FaultPlan, RequestInfo, WatchFate};

use crate::faults::{assert_pauses, every, settle, story, watch};
use crate::stage::{End, Stage, spec};

/// The action at one write of the operator.
struct At {
    write: u64,
    /// How long the write is delayed.
    late: Duration,
    happens: Option<Box<dyn FnOnce() + Send>>,
}

impl FaultPlan for At {
    fn before(&mut self, request: &RequestInfo) -> Before {
        if request.user_agent == "operator"
            && request.write_number == self.write
            && let Some(happens) = self.happens.take()
        {
            happens();
            return if self.late.is_zero() { Before::Pass } else { Before::Delay(self.late) };
        }
        Before::Pass
    }
}

/// The fate of one event of the operator's watches.
struct Event {
    number: u64,
    seen: u64,
    fate: WatchFate,
}

impl FaultPlan for Event {
    fn event(&mut self, watch: &RequestInfo, _: &EventInfo<'_>) -> WatchFate {
        if watch.user_agent != "operator" {
            return WatchFate::Show;
        }
        self.seen += 1;
        if self.seen == self.number { self.fate.clone() } else { WatchFate::Show }
    }
}

/// The scenario's end without disturbances, and its number of writes.
async fn clean() -> (End, u64) {
    let clean = Stage::new();
    let end = story(&clean).await;
    let of_operator = |entry: &&AuditEntry| entry.user_agent == "operator" && entry.is_write();
    let writes = clean.cluster.audit().iter().filter(of_operator).count() as u64;
    assert!(writes > 20, "{writes}");
    (end, writes)
}

/// A sample of the writes; all of them on request.
fn some(writes: u64, from: u64) -> impl Iterator<Item = u64> {
    (1 + from..=writes).step_by(every().min(13) as usize)
}

#[tokio::test(start_paused = true)]
async fn rollout_ends_the_same_after_clock_jumps() {
    let (end, writes) = clean().await;
    // Back by less than the scenario waits for: Temporal's own clock says since when a version is drained.
    for (number, by) in [300, -240].into_iter().enumerate() {
        for write in some(writes, number as u64) {
            let s = Stage::new();
            let clock: Arc<ClusterClock> = s.clock.clone();
            let jumps = Box::new(move || clock.jump(TimeDelta::seconds(by)));
            s.cluster.set_faults(Box::new(At { write, late: Duration::ZERO, happens: Some(jumps) }));
            let what = format!("the clock jumps by {by} s at write {write}");
            assert_eq!(story(&s).await, end, "{what}");
            settle(&s, &what).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn backward_clock_jump_restarts_the_step_pause() {
    let (s, _) = Stage::running(spec("v1")).await;
    let v2 = s.roll_to("v2").await;
    s.until("the ramp", |s| s.status()["rampPercent"] == 5).await;
    s.clock.jump(TimeDelta::hours(-1));
    s.until_current(&v2).await;
    assert_eq!(s.ramps(), [100, 5, 50, 100]);
    assert_pauses(&s, "an hour back");
}

#[tokio::test(start_paused = true)]
async fn rollout_ends_the_same_with_any_watch_fault() {
    let (end, _) = clean().await;
    let fates =
        [WatchFate::Later(Duration::from_secs(20)), WatchFate::Cut, WatchFate::Gone, WatchFate::Silent];
    let step = if every() == 1 { 1 } else { 11 };
    for (which, fate) in fates.iter().enumerate() {
        for number in (1 + which as u64..=20).step_by(step) {
            let s = Stage::new();
            // A late event is fetched again, and may then be another.
            s.cluster.set_faults(Box::new(Event { number, seen: 0, fate: fate.clone() }));
            let what = format!("{fate:?} at event {number}");
            assert_eq!(story(&s).await, end, "{what}");
            watch(&s, &what).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn overtaken_leader_creates_nothing_twice() {
    let (end, writes) = clean().await;
    for write in some(writes, 0) {
        let s = Stage::new();
        let (sender, receiver) = std::sync::mpsc::channel::<()>();
        let overtaken = Box::new(move || sender.send(()).unwrap_or_default());
        s.cluster.set_faults(Box::new(At { write, late: Duration::from_secs(12), happens: Some(overtaken) }));
        let what = format!("another one leads while write {write} is under way");
        let story = story(&s);
        tokio::pin!(story);
        let mut other: Option<JoinHandle<()>> = None;
        let mut both_until = None;
        let ended = loop {
            tokio::select! {
                ended = &mut story => break ended,
                () = tokio::time::sleep(Duration::from_millis(100)) => {}
            }
            let now = windlass_clock::monotonic();
            if other.is_none() && receiver.try_recv().is_ok() {
                other = Some(s.one_more_operator("another"));
                both_until = Some(now + Duration::from_secs(20));
            }
            // Both act until then; the first one's write arrives after the second one's.
            if both_until.is_some_and(|until| now > until) {
                s.kill_operator();
                both_until = None;
            }
        };
        assert_eq!(ended, end, "{what}");
        watch(&s, &what).await;
        if let Some(other) = other {
            other.abort();
        }
    }
}
