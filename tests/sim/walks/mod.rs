//! Random walks over all features of a fleet, on the simulated cluster: `docs/dev/walks.md` has the details and how
//! to replay a failure. World, faults and oracles are the catalogue's.

mod damage;
mod ends;
mod faults;
mod hand;
mod last;
mod schema;
mod shrink;
mod steps;
mod values;
mod walk;

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use walk::{Report, Walk};
use windlass::clock::on_the_wall;

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|text| !text.is_empty())
}

fn number(name: &str, otherwise: u64) -> u64 {
    variable(name).map_or(otherwise, |text| text.parse().expect("a number"))
}

/// Walks these seeds; returns the failed ones.
fn walks(seeds: std::ops::Range<u64>, within: Duration) -> (u64, Vec<(Walk, Report)>) {
    let (next, walked) = (AtomicU64::new(seeds.start), AtomicU64::new(0));
    let failed = Mutex::new(Vec::new());
    let began = on_the_wall();
    std::thread::scope(|scope| {
        for _ in 0..number("WINDLASS_WALK_THREADS", 2) {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds.end || began.elapsed() > within {
                        return;
                    }
                    let walk = Walk::whole(seed);
                    let report = walk::play(&walk, false);
                    walked.fetch_add(1, Ordering::Relaxed);
                    if !report.failures.is_empty() {
                        failed.lock().unwrap().push((walk, report));
                    }
                }
            });
        }
    });
    let mut failed = failed.into_inner().unwrap();
    failed.sort_by_key(|(walk, _)| walk.seed);
    (walked.into_inner(), failed)
}

/// Shrinks some of the failures, and prints how to replay each.
fn assert_none(walked: u64, failed: &[(Walk, Report)]) {
    use std::fmt::Write as _;

    let mut text = String::new();
    let shrunk = number("WINDLASS_WALK_SHRINK", 3) as usize;
    for (index, (walk, report)) in failed.iter().enumerate() {
        let first: String =
            report.failures.first().map(|f| f.chars().take(600).collect()).unwrap_or_default();
        let walk = if index < shrunk { shrink::of_failure(walk, &report.failures) } else { walk.clone() };
        let _ = writeln!(text, "{}\n    {first}", walk.command());
    }
    assert!(failed.is_empty(), "{} of {walked} walks failed\n{text}", failed.len());
}

/// The number of walks that pass so far; `WINDLASS_WALKS` sets more.
#[test]
fn every_walk_ends_like_a_fresh_fleet_with_its_last_spec() {
    let most = number("WINDLASS_WALKS", if cfg!(debug_assertions) { 200 } else { 1_000 });
    let began = on_the_wall();
    let first = number("WINDLASS_WALK_SEED", 1);
    let (walked, failed) = walks(first..first + most, Duration::MAX);
    println!("{walked} walks, {} failed, {} s", failed.len(), began.elapsed().as_secs());
    assert_eq!(walked, most);
    assert_none(walked, &failed);
}

/// A walk does not depend on other walks in this process.
#[test]
fn walk_is_independent_of_concurrent_walks() {
    let first = number("WINDLASS_WALK_SEED", 1);
    let seeds: Vec<u64> = (first..first + number("WINDLASS_WALKS", 140).min(140).div_ceil(20)).collect();
    let trace = |seed: &u64| walk::play(&Walk::whole(*seed), true).trace;
    let among: Vec<Vec<Vec<String>>> = std::thread::scope(|scope| {
        let walkers: Vec<_> = (0..3).map(|_| scope.spawn(|| seeds.iter().map(trace).collect())).collect();
        walkers.into_iter().map(|walker| walker.join().unwrap()).collect()
    });
    for (index, seed) in seeds.iter().enumerate() {
        let alone = std::thread::scope(|scope| scope.spawn(|| trace(seed)).join().unwrap());
        assert!(!alone.is_empty());
        for others in &among {
            let differs = alone.iter().zip(&others[index]).position(|(a, b)| a != b);
            let at = differs.map(|at| (&alone[at.saturating_sub(3)..=at], &others[index][at]));
            assert_eq!((at, alone.len()), (None, others[index].len()), "seed {seed}");
        }
    }
}

/// Walks from a seed on, for a given time.
#[test]
fn nightly() {
    let Some(seconds) = variable("WINDLASS_NIGHTLY_SECONDS") else { return };
    let first = number("WINDLASS_NIGHTLY_SEED", 1_000_000);
    let within = Duration::from_secs(seconds.parse().expect("a number"));
    let (walked, failed) = walks(first..u64::MAX, within);
    println!("{walked} walks from seed {first}, {} failed", failed.len());
    assert_none(walked, &failed);
}

#[test]
fn replay() {
    let Some(line) = variable("WINDLASS_WALK") else { return };
    let walk: Walk = line.parse().unwrap();
    let report = walk::play(&walk, variable("WINDLASS_WALK_TRACE").is_some());
    for line in report.trace.iter().chain(&report.told) {
        println!("{line}");
    }
    assert!(report.failures.is_empty(), "{walk}:\n{}", report.failures.join("\n"));
}
