//! The planner, model-checked: every interleaving of a small world in which users, a stale orchestrator,
//! executors, a StatefulSet controller that sees late, a kubelet, the garbage collector and operators that
//! crash or change their version act on two or three nodes. What is decided comes from the planner's own
//! functions; the worlds and the properties are those of the reference model of the rules of grants.
//!
//! - S1: Windlass never has more serving nodes down at once than `maxUnavailable`.
//! - S4: a rollout is never complete over a node that does not run the target.
//! - S5: a pod at the granted revision is never deleted.
//! - S6: a pod at the wanted revision is never deleted because the wave held its grant back.
//! - L: where nothing happens by itself any more, nothing is left to be done; C: that is always reached.
//!
//! The large worlds, which are the reference model's own batch, want an optimised search (the planner itself
//! may stay as it is: what it answers is remembered), and up to 4 GiB:
//!
//! ```text
//! cargo rustc --profile test --test model -- -C opt-level=3
//! target/debug/deps/model-<newest> --ignored --nocapture --test-threads=1
//! ```
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]
#![allow(clippy::struct_excessive_bools, reason = "a state is small, and is compared bit by bit")]
#![allow(clippy::doc_markdown, reason = "recipes and objects of Kubernetes read as words")]

mod executor;
mod late;
mod orchestrator;
mod search;
mod settled;
mod state;
mod step;

use state::{Budget, Lands, World};

const V1: u8 = 0;
const V2: u8 = 1;

fn world(name: &'static str) -> World {
    World {
        name,
        nodes: 2,
        replicas: 2,
        max_unavailable: 1,
        percent: false,
        partition: 0,
        min_ready: false,
        any_order: false,
        lands: Lands::InTime,
        broken: &[V2],
        broken_runs: false,
        sidecar: false,
        rollback: false,
        new: false,
        budget: Budget { spec: 2, ..Budget::default() },
        meets: |_| true,
    }
}

fn nothing_goes_wrong(world: World) {
    let report = search::explore(&world);
    println!(
        "{}: {} states, {} transitions, {} settled",
        world.name, report.states, report.transitions, report.settled
    );
    for (what, (count, way)) in &report.violations {
        println!("{count} x {what}\n{way}");
    }
    let what: Vec<&String> = report.violations.keys().collect();
    assert!(what.is_empty(), "{}: {what:#?}", world.name);
    // A world in which nothing happens proves nothing.
    assert!(report.states > 1_000 && report.settled > 1, "{}: {} states", world.name, report.states);
    assert!(report.met > 0, "{}: what it is there for never came about", world.name);
}

/// One test for each world: its name, and how it differs from two nodes, two changes and a broken v2.
macro_rules! worlds {
    ($($(#[$attribute:meta])* $name:ident: $fields:tt budget $budget:tt;)*) => {$(
        #[test]
        $(#[$attribute])*
        fn $name() {
            let base = world(stringify!($name));
            let budget = budget!(base $budget);
            nothing_goes_wrong(differs!(base budget $fields));
        }
    )*};
}

macro_rules! budget {
    ($base:ident {$($field:ident: $value:expr),*}) => { Budget { $($field: $value,)* ..$base.budget } };
}

macro_rules! differs {
    ($base:ident $budget:ident {$($field:ident: $value:expr),*}) => {
        World { $($field: $value,)* budget: $budget, ..$base }
    };
}

worlds! {
    three_changes_of_the_template: {} budget {spec: 3};
    pause_and_resume: {} budget {pause: 2};
    abort_and_retry: {} budget {abort: 1, retry: 1};
    the_operator_crashes: {} budget {crash: 1};
    a_template_is_edited_by_hand: {broken: &[]} budget {spec: 1, edit: 1};
    rolled_back_when_stalled: {rollback: true} budget {abort: 1};
    a_node_is_deleted_in_one_rollout: {} budget {spec: 1, child_deleted: 1};
    a_pod_is_deleted_in_one_rollout: {} budget {spec: 1, pod_deleted: 1};
    a_stateful_set_is_deleted_in_one_rollout: {} budget {spec: 1, set_deleted: 1};
    a_machine_dies_in_one_rollout: {} budget {spec: 1, death: 1};
    scaled_in_one_rollout: {} budget {spec: 1, scale: 1};
    the_operator_changes_its_version_in_one_rollout: {} budget {spec: 1, operator: 1};
    a_sidecar_keeps_pods_out_in_one_rollout: {broken: &[], sidecar: true} budget {spec: 1, pod_deleted: 1};
    two_at_once_of_three_in_one_rollout: {nodes: 3, replicas: 3, max_unavailable: 2} budget {spec: 1};

    #[ignore = "195 thousand states"] a_pod_is_deleted: {} budget {pod_deleted: 1};
    #[ignore = "1.3 million states"] a_node_is_deleted: {} budget {child_deleted: 1};
    #[ignore = "470 thousand states"] a_stateful_set_is_deleted: {} budget {set_deleted: 1};
    #[ignore = "590 thousand states"] the_operator_changes_its_version_twice: {} budget {operator: 2};
    #[ignore = "240 thousand states"] the_operator_changes_its_version_three_times: {broken: &[]} budget {spec: 1, operator: 3};
    #[ignore = "4.3 million states"] the_operator_changes_its_version_and_a_node_is_deleted: {broken: &[]} budget {spec: 1, operator: 1, child_deleted: 1};
    #[ignore = "9.2 million states"] machines_die_and_revive: {} budget {death: 2};
    #[ignore = "1.1 million states"] scaled_twice: {} budget {scale: 2};
    #[ignore = "440 thousand states"] scaled_up_in_the_middle: {nodes: 3} budget {scale: 1};
    #[ignore = "6.6 million states"] a_new_fleet_whose_first_version_is_broken: {broken: &[V1], new: true} budget {};
    #[ignore = "1.2 million states"] a_broken_version_that_runs_and_a_machine_that_dies: {broken_runs: true} budget {death: 1};
    #[ignore = "350 thousand states"] a_sidecar_keeps_pods_out: {broken: &[], sidecar: true} budget {spec: 1, pod_deleted: 1, operator: 1};
    #[ignore = "millions of states"] two_at_once_of_three: {nodes: 3, replicas: 3, max_unavailable: 2} budget {};
}
