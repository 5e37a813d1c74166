//! The operator dies at every write of a set's rollout, and the next one continues.

use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use windlass_sim::{After, Before, Failure, FaultPlan, RequestInfo};

use super::world::{CLAIM, NODE, blue_green, fleet, is_up_to_date, play, text, with_sidecar};

/// Blocks every write from the n-th on, before or after it is carried out, until another operator starts.
struct CutOff {
    from: u64,
    applied: bool,
    writes: Arc<Mutex<u64>>,
}

impl CutOff {
    fn is_over(&mut self, request: &RequestInfo, count: bool) -> Option<bool> {
        let is_event = request.resource.starts_with("events");
        let is_ours = request.user_agent == "windlass" && request.write_number > 0 && !is_event;
        if !is_ours {
            return None;
        }
        let mut writes = self.writes.lock().unwrap();
        *writes += u64::from(count);
        Some(*writes >= self.from)
    }
}

impl FaultPlan for CutOff {
    fn before(&mut self, request: &RequestInfo) -> Before {
        let over = self.is_over(request, true);
        let first = *self.writes.lock().unwrap() == self.from;
        match over {
            Some(true) if !(first && self.applied) => Before::Fail(Failure::Disconnect),
            _ => Before::Pass,
        }
    }

    fn after(&mut self, request: &RequestInfo, _: u16) -> After {
        match self.is_over(request, false) {
            Some(true) => After::Fail(Failure::Disconnect),
            _ => After::Pass,
        }
    }
}

/// The result of a rollout, with or without kills.
fn left(w: &super::world::World) -> Value {
    json!({"nodes": w.names(NODE), "claims": w.names(CLAIM), "images": w.images(), "selected": w.selected()})
}

fn rollout(fleet: &Value, from: u64, applied: bool) -> (Value, u64) {
    let result = Arc::new(Mutex::new((Value::Null, 0)));
    let (shared, fleet) = (result.clone(), fleet.clone());
    play(|w| async move {
        w.applications.reach(1000);
        w.serve(fleet).await;
        let writes: Arc<Mutex<u64>> = Arc::default();
        let plan = CutOff { from, applied, writes: writes.clone() };
        w.cluster.set_faults(Box::new(plan));
        w.image("db:2").await;
        for _ in 0..1200 {
            if *writes.lock().unwrap() >= from
                || is_up_to_date(&w.status()) && text(&w.status(), "activeSet") != "first"
            {
                break;
            }
            w.rest(1).await;
        }
        w.kill_operator();
        w.cluster.set_faults(Box::new(windlass_sim::NoFaults));
        w.start_operator();
        w.until("it is over", |s| is_up_to_date(s) && text(s, "activeSet") != "first").await;
        w.is_at_rest().await;
        *shared.lock().unwrap() = (left(&w), *writes.lock().unwrap());
    });
    let found = result.lock().unwrap();
    found.clone()
}

fn every_write(fleet: &Value) {
    let (clean, writes) = rollout(fleet, u64::MAX, false);
    assert!(writes > 10, "{writes}");
    // Alternating before and after: dying after a write is dying before the next one, except for its answer.
    for from in 1..=writes {
        let applied = from % 2 == 0;
        let (found, _) = rollout(fleet, from, applied);
        assert_eq!(found, clean, "cut off at write {from}, applied: {applied}");
    }
}

#[test]
fn blue_green_ends_the_same_wherever_the_operator_dies() {
    every_write(&blue_green(1, json!({"retireDelaySeconds": 5})));
}

#[test]
fn an_immediate_promotion_ends_the_same_wherever_the_operator_dies() {
    every_write(&blue_green(1, json!({"promotion": "Immediately"})));
}

#[test]
fn a_hard_fork_ends_the_same_wherever_the_operator_dies() {
    let strategy = json!({"type": "HardFork", "hardFork": {"haltHeight": 10}});
    every_write(&with_sidecar(fleet(1, strategy)));
}
