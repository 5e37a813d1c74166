//! The fault catalogue: every fault of `docs/dev/catalogue.md`, enumerated over every scenario, on the simulated
//! cluster. That page says what was run and how to replay a failure.

mod caches;
pub mod deeds;
pub mod determinism;
pub mod faults;
pub mod follower;
pub mod injector;
pub mod many;
pub mod oracles;
pub mod outcome;
pub mod pairs;
pub mod peers;
pub mod platform;
pub mod point;
pub mod regressions;
pub mod run;
pub mod scenario;
pub mod sidecars;
pub mod sweep;
pub mod world;

use std::time::Duration;

use point::Point;

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|text| !text.is_empty())
}

fn number(name: &str, otherwise: u64) -> u64 {
    variable(name).map_or(otherwise, |text| text.parse().expect("a number"))
}

/// All points in an optimized build; otherwise the first 600 of a fixed order that samples all of them evenly.
#[test]
fn every_fault_at_every_point_converges_to_the_same_state() {
    let most = if cfg!(debug_assertions) { 600 } else { u64::MAX };
    let seconds = variable("WINDLASS_SWEEP_SECONDS").map(|text| text.parse().expect("a number"));
    let choice = sweep::Choice {
        every: number("WINDLASS_SWEEP_EVERY", 1) as usize,
        within: seconds.map_or(Duration::MAX, Duration::from_secs),
        most: number("WINDLASS_SWEEP_MOST", most) as usize,
        faults: variable("WINDLASS_SWEEP_FAULTS").unwrap_or_default(),
        scenarios: variable("WINDLASS_SWEEP_SCENARIOS").unwrap_or_default(),
        threads: number("WINDLASS_SWEEP_THREADS", 2) as usize,
        shard: variable("WINDLASS_SWEEP_SHARD").map_or(sweep::Shard::ALL, |text| text.parse().unwrap()),
    };
    let outcome = sweep::run(&choice);
    println!("{}", outcome.summary());
    assert!(outcome.points > 0, "nothing was run");
    assert!(
        seconds.is_some() || outcome.points == outcome.wanted,
        "{} of {}",
        outcome.points,
        outcome.wanted
    );
    outcome.assert_none_failed();
}

#[test]
fn operator_restart_over_many_nodes_writes_nothing() {
    many::start_over(number("WINDLASS_MANY", 500) as i64);
}

/// Pairs of faults, drawn by seed, until the time is over.
#[test]
fn nightly() {
    let Some(seconds) = variable("WINDLASS_NIGHTLY_SECONDS") else { return };
    let threads = number("WINDLASS_SWEEP_THREADS", 2) as usize;
    let outcome = sweep::pairs(
        Duration::from_secs(seconds.parse().expect("a number")),
        number("WINDLASS_NIGHTLY_SEED", 1),
        threads,
    );
    println!("{}", outcome.summary());
    outcome.assert_none_failed();
}

#[test]
fn replay() {
    let Some(line) = variable("WINDLASS_REPLAY") else { return };
    let point: Point = line.parse().unwrap();
    let baseline = sweep::Baselines::default().of(&point);
    let report = run::play(&point, Some(&baseline), true);
    for line in &report.trace {
        println!("{line}");
    }
    println!(
        "{:?}; well after {} s; {} requests in the busiest minute; writes {:#?}",
        report.counts, report.seconds, report.busiest_minute, report.writes
    );
    assert!(report.failures.is_empty(), "{point}:\n{}", report.failures.join("\n"));
}
