//! A run that crashes at any step, and starts again from what was persisted, ends like a run that never crashed.

use std::sync::Arc;

use chrono::{DateTime, TimeDelta, Utc};
use futures::FutureExt;
use proptest::prelude::*;
use serde_json::Value;

use super::tasks::{Fuse, Put, SharedWorld, any_put, at, index, plan_of, put, world};
use crate::{Advance, Env, Plan, PlanState, Registry, advance};

/// A controller and its persisted state.
struct Controller {
    persisted: Value,
    /// True if it persists the plan when a task waits, which is optional.
    persists_waits: bool,
    now: DateTime<Utc>,
    writes: u32,
}

impl Controller {
    fn new(plan: &Plan, persists_waits: bool) -> Self {
        Self { persisted: plan.to_value(), persists_waits, now: at(0), writes: 0 }
    }

    /// Runs until the plan ends or the fuse runs out. True if the plan has ended.
    fn live(&mut self, env: &Env, fuse: &Arc<Fuse>) -> bool {
        let env = env.layer().with(fuse.clone());
        let registry = Registry::new();
        let mut plan = Plan::from_value(&self.persisted).unwrap();
        for _ in 0..1_000 {
            let before = index(&plan);
            let Some(how) = advance(&mut plan, &registry, &env, self.now, 600).now_or_never() else {
                return false;
            };
            assert!(index(&plan) >= before, "the index went back in memory");
            let must_persist = match how {
                Advance::Ended | Advance::Checkpoint => true,
                Advance::Waiting { recheck_after } => {
                    self.now += TimeDelta::from_std(recheck_after.unwrap_or_default()).unwrap();
                    self.persists_waits
                }
                Advance::Invalidated { .. } | Advance::Held => {
                    unreachable!("no task here invalidates, or holds")
                }
            };
            if must_persist && !(fuse.burn() && self.persist(&plan) && fuse.burn()) {
                return false;
            }
            if !plan.is_active() {
                return true;
            }
        }
        panic!("the plan goes on for ever");
    }

    fn persist(&mut self, plan: &Plan) -> bool {
        let before = Plan::from_value(&self.persisted).unwrap();
        assert!(index(plan) >= index(&before), "the persisted index went back");
        self.persisted = plan.to_value();
        self.writes += 1;
        true
    }

    fn plan(&self) -> Plan {
        Plan::from_value(&self.persisted).unwrap()
    }
}

/// The index in the plan of each task that ran, in order.
fn turns(world: &SharedWorld) -> Vec<usize> {
    world.runs().iter().map(|id| id.rsplit('-').next().unwrap().parse().unwrap()).collect()
}

proptest! {
    #[test]
    fn run_interrupted_at_any_point_ends_like_an_uninterrupted_one(
        puts in prop::collection::vec(any_put(), 1..7),
        fuses in prop::collection::vec(0_u32..12, 0..8),
        persists_waits: bool,
    ) {
        let forever = Arc::new(Fuse::new(u32::MAX));
        let plan = plan_of(puts.iter().map(put).collect());

        let (clean_world, env) = world();
        prop_assert!(Controller::new(&plan, persists_waits).live(&env, &forever));

        let (cut_world, env) = world();
        let mut controller = Controller::new(&plan, persists_waits);
        for instants in fuses {
            if controller.live(&env, &Arc::new(Fuse::new(instants))) {
                break;
            }
        }
        prop_assert!(controller.live(&env, &forever));
        prop_assert_eq!(controller.plan().state, PlanState::Complete);
        prop_assert_eq!(cut_world.state(), clean_world.state());

        let turns = turns(&cut_world);
        for (when, turn) in turns.iter().enumerate() {
            let later_acted = turns[..when].iter().any(|earlier| earlier > turn);
            prop_assert!(
                !later_acted || puts[*turn].replayable,
                "task {} acted again after a later one: {:?}", turn, turns
            );
        }
    }

    #[test]
    fn uninterrupted_run_is_in_order_with_a_write_per_checkpoint(
        puts in prop::collection::vec(any_put(), 1..7),
    ) {
        let (world, env) = world();
        let mut controller = Controller::new(&plan_of(puts.iter().map(put).collect()), false);
        prop_assert!(controller.live(&env, &Arc::new(Fuse::new(u32::MAX))));
        let turns = turns(&world);
        prop_assert!(turns.is_sorted());
        let runs = |put: &Put| put.waits + put.failures + 1;
        prop_assert_eq!(turns.len() as u32, puts.iter().map(runs).sum::<u32>());
        let checkpoints = puts[..puts.len() - 1].iter().filter(|put| !put.replayable).count() as u32;
        prop_assert_eq!(controller.writes, checkpoints + 1);
    }
}
