//! Every fault at every point of every scenario, on all cores, and the resulting table.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use windlass::clock::monotonic;
use windlass_sim::Random;

use crate::catalogue::faults::{self, Entry, Fault, Over};
use crate::catalogue::pairs;
use crate::catalogue::point::Point;
use crate::catalogue::run::{Report, play};
use crate::catalogue::scenario::Scenario;

/// The seed of the sweep.
pub const SEED: u64 = 1;

/// Clean runs, by their line.
#[derive(Default)]
pub struct Baselines(Mutex<BTreeMap<String, std::sync::Arc<Report>>>);

impl Baselines {
    /// The clean run to compare a point with: the scenario without the fault or, if the fault is an action that
    /// changes the end, with the action performed at rest.
    pub fn of(&self, point: &Point) -> std::sync::Arc<Report> {
        let mut clean = Point::clean(&point.scenario, point.seed);
        let deeds = point.strikes.iter().filter(|strike| {
            matches!(faults::named(&strike.fault).fault, Fault::Person(deed) if deed.moves_the_end())
        });
        for deed in deeds {
            clean.strikes.push(crate::catalogue::point::Strike { fault: deed.fault.clone(), at: 0 });
        }
        let line = clean.to_string();
        if let Some(known) = self.lock().get(&line) {
            return known.clone();
        }
        let report = std::sync::Arc::new(play(&clean, None, false));
        self.lock().entry(line).or_insert(report).clone()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, std::sync::Arc<Report>>> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

#[test]
fn groups_take_turns_and_no_point_is_lost() {
    let group = |name: &str, size: u32| (1..=size).map(|at| Point::struck("s", name, at, 1)).collect();
    let turns = in_turn(vec![group("a", 5), Vec::new(), group("b", 1), group("c", 9)]);
    let mut first: Vec<&str> = turns[..3].iter().map(|point| point.strikes[0].fault.as_str()).collect();
    first.sort_unstable();
    assert_eq!(first, ["a", "b", "c"]);
    let different: std::collections::BTreeSet<String> = turns.iter().map(ToString::to_string).collect();
    assert_eq!((turns.len(), different.len()), (15, 15));
}

/// Every point of a fault in a scenario.
fn points(scenario: &Scenario, entry: &Entry, clean: &Report) -> Vec<Point> {
    let to = match entry.over {
        Over::Writes => clean.counts.writes,
        Over::Calls => clean.counts.calls,
        Over::Events => clean.counts.events,
        Over::Nodes => return nodes(scenario, entry),
        Over::Once => return vec![Point::struck(&scenario.name, entry.name, 0, SEED)],
    };
    (1..=to).map(|at| Point::struck(&scenario.name, entry.name, at, SEED)).collect()
}

fn nodes(scenario: &Scenario, entry: &Entry) -> Vec<Point> {
    let Fault::Ill(illness) = entry.fault else { return Vec::new() };
    // The serving nodes, and the new ones next to them.
    let beside = if scenario.makes_sets() { 2 } else { 1 };
    let count = if illness.is_of_a_node() { scenario.node_names().len() as u32 * beside } else { 1 };
    (0..count).map(|at| Point::struck(&scenario.name, entry.name, at, SEED)).collect()
}

/// The result of a sweep.
pub struct Outcome {
    /// The CPU time of all points.
    pub cpu_seconds: f64,
    /// The failed points, each with its failures.
    pub failed: Vec<(Point, Vec<String>)>,
    pub points: usize,
    /// How many points were selected.
    pub wanted: usize,
    pub all: usize,
    pub seconds: f64,
    pub threads: usize,
    pub shard: Shard,
}

/// The selected part of the catalogue.
pub struct Choice {
    /// Every n-th point, from an offset that differs by fault.
    pub every: usize,
    /// The most points.
    pub most: usize,
    /// No point is started after this time.
    pub within: Duration,
    /// The name prefix of faults; all if empty.
    pub faults: String,
    /// The name prefix of scenarios; all if empty.
    pub scenarios: String,
    pub threads: usize,
    pub shard: Shard,
}

/// A part of the selection, to run it in pieces: the first of twelve, the second, and so on. All parts together are
/// the whole selection, if nothing changes in between.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Shard {
    pub number: usize,
    pub of: usize,
}

impl Shard {
    pub const ALL: Self = Self { number: 1, of: 1 };

    fn takes<T>(self, all: Vec<T>) -> Vec<T> {
        all.into_iter().skip(self.number - 1).step_by(self.of).collect()
    }
}

impl std::str::FromStr for Shard {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts = text.split_once('/').and_then(|(n, of)| Some((n.parse().ok()?, of.parse().ok()?)));
        match parts {
            Some((number, of)) if 1 <= number && number <= of => Ok(Self { number, of }),
            _ => Err(format!("{text:?} is no part: 3/12 is the third of twelve")),
        }
    }
}

#[test]
fn shards_partition_the_sweep_without_overlap() {
    let all: Vec<u32> = (0..1000).collect();
    for of in [1, 7, 12] {
        let parts = (1..=of).map(|number| Shard { number, of }.takes(all.clone()));
        let mut together: Vec<u32> = parts.flatten().collect();
        together.sort_unstable();
        assert_eq!(together, all, "{of}");
    }
    assert_eq!("3/12".parse(), Ok(Shard { number: 3, of: 12 }));
    for bad in ["", "3", "0/12", "13/12", "a/b"] {
        assert!(bad.parse::<Shard>().is_err(), "{bad}");
    }
}

/// Runs the selection.
pub fn run(choice: &Choice) -> Outcome {
    let began = monotonic();
    let baselines = Baselines::default();
    let mut groups: Vec<Vec<Point>> = Vec::new();
    let mut all = 0;
    let mut failed: Vec<(Point, Vec<String>)> = Vec::new();
    for scenario in Scenario::all().iter().filter(|s| s.name.starts_with(&choice.scenarios)) {
        let point = Point::clean(&scenario.name, SEED);
        let clean = baselines.of(&point);
        if !clean.failures.is_empty() {
            failed.push((point, clean.failures.clone()));
        }
        for (offset, entry) in faults::table().iter().enumerate() {
            let is_asked_for = !choice.faults.is_empty() || faults::is_walked(entry.name);
            if !entry.name.starts_with(&choice.faults) || !entry.fits(scenario) || !is_asked_for {
                continue;
            }
            let points = points(scenario, entry, &clean);
            all += points.len();
            groups.push(points.into_iter().skip(offset % choice.every).step_by(choice.every).collect());
        }
        if pairs::FAMILY.starts_with(&choice.faults) {
            let points = pairs::of(scenario, clean.counts.writes, SEED);
            all += points.len();
            groups.push(points.into_iter().step_by(choice.every).collect());
        }
    }
    let mut chosen = in_turn(groups);
    chosen.retain(|point| faults::is_walked_point(&point.to_string()));
    let chosen = choice.shard.takes(chosen);
    let wanted = chosen.len().min(choice.most);
    // The clean runs come first.
    let counted = monotonic();
    let next = AtomicUsize::new(0);
    let found = Mutex::new(Found { failed, ..Found::default() });
    std::thread::scope(|scope| {
        for _ in 0..choice.threads {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    if index >= wanted || counted.elapsed() > choice.within {
                        return;
                    }
                    record(&chosen[index], &baselines, &found);
                }
            });
        }
    });
    let Found { points, cpu_seconds, failed } =
        found.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    let seconds = began.elapsed().as_secs_f64();
    Outcome {
        cpu_seconds,
        failed,
        points,
        wanted,
        all,
        seconds,
        threads: choice.threads,
        shard: choice.shard,
    }
}

/// One point of each fault in each scenario, then the others, interleaved: a sweep that is cut short has sampled
/// everything.
fn in_turn(groups: Vec<Vec<Point>>) -> Vec<Point> {
    let (mut first, mut rest) = (Vec::new(), Vec::new());
    for mut group in groups.into_iter().filter(|group| !group.is_empty()) {
        // Not always the first: most of the catalogue is about the middle.
        first.push(group.remove(first.len() * 7 % group.len()));
        rest.extend(group);
    }
    for group in [&mut first, &mut rest] {
        *group = (0..group.len()).map(|index| group[index * STRIDE % group.len()].clone()).collect();
    }
    first.extend(rest);
    first
}

/// Draws scenarios, pairs of faults and points by seed until the time is over.
pub fn pairs(within: Duration, seed: u64, threads: usize) -> Outcome {
    let began = monotonic();
    let baselines = Baselines::default();
    let next = AtomicUsize::new(0);
    let found = Mutex::new(Found::default());
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while began.elapsed() < within {
                    let index = next.fetch_add(1, Ordering::Relaxed) as u64;
                    record(
                        &pair(&mut Random::new(seed.wrapping_mul(1_000_003) + index), &baselines),
                        &baselines,
                        &found,
                    );
                }
            });
        }
    });
    let Found { points, cpu_seconds, failed } =
        found.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    let seconds = began.elapsed().as_secs_f64();
    Outcome { cpu_seconds, failed, points, wanted: points, all: points, seconds, threads, shard: Shard::ALL }
}

/// Two faults that do not both change the end.
fn pair(random: &mut Random, baselines: &Baselines) -> Point {
    let mut draw = |of: usize| (random.next_u64() % of as u64) as usize;
    let scenarios = Scenario::all();
    let scenario = &scenarios[draw(scenarios.len())];
    // Few seeds, since each needs clean runs of its own.
    let mut point = Point::clean(&scenario.name, 1 + draw(4) as u64);
    let clean = baselines.of(&point);
    let table: Vec<Entry> =
        faults::table().into_iter().filter(|e| e.fits(scenario) && faults::is_walked(e.name)).collect();
    let is_deed = |entry: &Entry| matches!(entry.fault, Fault::Person(_) | Fault::Ill(_));
    while point.strikes.len() < 2 {
        let entry = &table[draw(table.len())];
        let taken = point.strikes.iter().any(|s| is_deed(&faults::named(&s.fault)) && is_deed(entry));
        let choices = points(scenario, entry, &clean);
        if taken || choices.is_empty() {
            continue;
        }
        point.strikes.extend(choices[draw(choices.len())].strikes.clone());
    }
    point
}

/// A prime larger than any part of the catalogue, so that every point has its turn.
const STRIDE: usize = 1_000_003;

/// What the threads of a sweep have found so far.
#[derive(Default)]
struct Found {
    points: usize,
    cpu_seconds: f64,
    failed: Vec<(Point, Vec<String>)>,
}

/// The CPU time of this thread in seconds.
fn spent() -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanoseconds = text.split(' ').next().and_then(|field| field.parse::<f64>().ok());
    nanoseconds.unwrap_or_default() / 1e9
}

fn record(point: &Point, baselines: &Baselines, found: &Mutex<Found>) {
    let before = spent();
    let baseline = baselines.of(point);
    let report = play(point, Some(&baseline), false);
    let seconds = spent() - before;
    let mut found = found.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    found.points += 1;
    found.cpu_seconds += seconds;
    if !report.failures.is_empty() {
        // At once, so that an interrupted run has reported its failures.
        eprintln!("{}", point.command());
        found.failed.push((point.clone(), report.failures));
    }
}
