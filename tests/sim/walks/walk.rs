//! A walk on the simulated cluster: creates a fleet, takes seeded steps, sets a last spec, and compares the end with
//! a fresh fleet.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::sleep;
use windlass::clock::monotonic;
use windlass_sim::Random;

use crate::catalogue::oracles::{self, End, Evidence};
use crate::catalogue::point::{Point, Strike};
use crate::catalogue::scenario::{Change, Follow, NAMESPACE, Scenario};
use crate::catalogue::world::World;
use crate::walks::damage::Debt;
use crate::walks::ends;
use crate::walks::faults::Faults;
use crate::walks::hand::{FLEET, Hand};
use crate::walks::last::{self, Person};
use crate::walks::schema::one;
use crate::walks::steps::{self, Done};
use crate::walks::values;

/// The number of steps: least and greatest.
const STEPS: (u64, u64) = (5, 30);
/// The time limit of the last spec, in simulated time.
const PATIENCE: Duration = Duration::from_mins(80);
/// How long the end is watched for writes: longer than any deadline, and an hour more if a clock was set back by one.
/// Every tenth walk is watched for longer.
const WATCHED: Duration = Duration::from_mins(11);
const WATCHED_LONGER: Duration = Duration::from_mins(30);
const SET_BACK: Duration = Duration::from_hours(1);
/// How long nothing changes before the end is compared: longer than the back-off of a refused request.
const STILL: u32 = 12;
/// The most reconciles of each object in half an hour at rest.
const LOOKS_AT_REST: u64 = 10;

/// A walk: its seed, and the selected steps; `None`: all.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Walk {
    pub seed: u64,
    pub keep: Option<Vec<u64>>,
}

impl Walk {
    /// The whole walk of a seed.
    pub fn whole(seed: u64) -> Self {
        Self { seed, keep: None }
    }

    /// The number of steps of the whole walk.
    pub fn length(&self) -> u64 {
        Random::new(self.seed).between(STEPS.0, STEPS.1)
    }

    /// The selected steps.
    pub fn steps(&self) -> Vec<u64> {
        self.keep.clone().unwrap_or_else(|| (0..self.length()).collect())
    }

    /// The command that replays it, with its trace.
    pub fn command(&self) -> String {
        format!("WINDLASS_WALK=\"{self}\" cargo test --test sim replay -- --nocapture")
    }

    /// The random stream of a step, independent of the other steps.
    pub fn random(&self, step: u64) -> Random {
        let mut seeds = Random::new(self.seed.wrapping_mul(1_000_003).wrapping_add(step));
        Random::new(seeds.next_u64())
    }
}

/// The numbers of random streams that are not for steps.
pub const FIRST: u64 = 1000;
pub const LAST: u64 = 1001;

impl fmt::Display for Walk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "seed={}", self.seed)?;
        if let Some(keep) = &self.keep {
            let steps: Vec<String> = keep.iter().map(u64::to_string).collect();
            write!(f, " keep={}", steps.join(","))?;
        }
        Ok(())
    }
}

impl FromStr for Walk {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (mut seed, mut keep) = (None, None);
        for word in text.split_whitespace() {
            match word.split_once('=') {
                Some(("seed", number)) => {
                    seed = Some(number.parse().map_err(|_| format!("{number:?} is no seed"))?);
                }
                Some(("keep", list)) => {
                    let steps: Result<Vec<u64>, _> =
                        list.split(',').filter(|step| !step.is_empty()).map(str::parse).collect();
                    keep = Some(steps.map_err(|_| format!("{list:?} are no steps"))?);
                }
                _ => return Err(format!("{word:?} is neither seed= nor keep=")),
            }
        }
        Ok(Self { seed: seed.ok_or("a seed is missing")?, keep })
    }
}

/// The result of a walk.
#[derive(Default)]
pub struct Report {
    pub failures: Vec<String>,
    /// What was done, with times.
    pub told: Vec<String>,
    /// Every request, one line each, if requested.
    pub trace: Vec<String>,
    pub refused: u32,
    pub steps: u32,
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().expect("a runtime")
}

/// The catalogue's scenario for the oracles.
fn scenario() -> Scenario {
    Scenario {
        name: "walk".to_owned(),
        change: Change::Up,
        nodes: values::MOST_NODES as i64,
        max_unavailable: 1,
        sidecar: true,
        strategy: "BlueGreen",
        promotion: "WhenReady",
        follow: Follow::Nothing,
        claims_go: true,
        hooks: false,
        rolls_back: false,
        min_ready_seconds: 0,
        job: None,
        windows: None,
        stateful_sets: &[],
    }
}

fn hand(world: &World) -> Hand {
    Hand {
        client: world.cluster.client("person", NAMESPACE),
        namespace: NAMESPACE.to_owned(),
        clock: world.cluster.clock(),
        quick: false,
    }
}

/// A fleet of this spec.
pub fn fleet(spec: &Value) -> Value {
    json!({
        "apiVersion": "windlass.dev/v1alpha1", "kind": "NodeDeployment",
        "metadata": {"name": FLEET}, "spec": spec,
    })
}

/// Walks.
pub fn play(walk: &Walk, trace: bool) -> Report {
    oracles::panics::clear();
    let mut report = runtime().block_on(async {
        let mut way = Way::new(walk);
        let report = way.play(trace).await;
        way.trouble.stop();
        report
    });
    report.failures.extend(oracles::panics::take());
    report
}

struct Way<'a> {
    walk: &'a Walk,
    world: World,
    hand: Hand,
    trouble: Faults,
    debts: Vec<Debt>,
    /// True if a person's damage leaves the purpose of a set unknown.
    lost: bool,
    /// True if a person deleted a node.
    deleted: bool,
    report: Report,
}

impl<'a> Way<'a> {
    fn new(walk: &'a Walk) -> Self {
        let mut world = World::new(scenario(), walk.seed);
        let trouble = Faults::new(&mut world);
        let hand = hand(&world);
        Self {
            walk,
            world,
            hand,
            trouble,
            debts: Vec::new(),
            lost: false,
            deleted: false,
            report: Report::default(),
        }
    }

    fn fail(&mut self, what: impl Into<String>) {
        self.report.failures.push(what.into());
    }

    fn tell(&mut self, what: &str) {
        let at = self.world.cluster.clock().now().format("%H:%M:%S");
        self.report.told.push(format!("{at} {what} @{}", self.world.cluster.version()));
    }

    async fn play(&mut self, trace: bool) -> Report {
        let mut random = self.walk.random(FIRST);
        let type_ = *one(&["InPlace", "InPlace", "BlueGreen", "HardFork"], &mut random);
        let first = values::good_spec(type_, &mut random);
        if let Err(refused) = self.hand.create(&fleet(&first)).await {
            self.fail(format!("a good spec is refused: {refused}: {first}"));
        }
        self.tell(&format!("creates {first}"));
        self.pause(&mut random).await;
        for step in self.walk.steps() {
            let mut random = self.walk.random(step);
            let before = self.debts.len();
            let done = self.step(&mut random).await;
            self.report.steps += 1;
            self.report.refused += u32::from(done.refused.is_some());
            self.lost |= done.leaves_doubt();
            self.deleted |= done.deletes_node();
            let refused = done.refused.map(|why| format!(" (refused: {why})")).unwrap_or_default();
            self.tell(&format!("{step}: {}{refused}", done.words));
            self.pause(&mut random).await;
            // Repairs are made at once, or at the end.
            if random.between(0, 1) == 0 {
                for debt in self.debts.split_off(before.min(self.debts.len())) {
                    debt.settle(&self.hand).await;
                    self.tell(&format!("{step}: puts right {debt:?}"));
                }
            }
        }
        self.arrive().await;
        if trace {
            self.report.trace = oracles::trace(&self.world.cluster.audit());
            self.report.trace.extend(self.statuses());
        }
        std::mem::take(&mut self.report)
    }

    /// The changes of the fleet's status, with versions.
    fn statuses(&self) -> Vec<String> {
        let mut lines = Vec::new();
        self.world.cluster.replay(100, |step| {
            let (Some(before), Some(after)) = (step.before, step.after) else { return };
            let (before, now) = (&before["status"], &after["status"]);
            if after["kind"] == "NodeDeployment" && before != now {
                lines.push(format!("@{} {}", step.version, json!(json_patch::diff(before, now))));
            }
        });
        lines
    }

    async fn step(&mut self, random: &mut Random) -> Done {
        match steps::take(&self.hand, random, &mut self.debts).await {
            Some(done) => done,
            None => self.trouble.strike(&self.world, random).await,
        }
    }

    /// How long a person waits before the next step: not at all, or until everything is at rest.
    async fn pause(&mut self, random: &mut Random) {
        let milliseconds = *one(&[0, 0, 20, 100, 500, 2_000, 7_000, 20_000, 60_000, 180_000], random);
        self.trouble.wait(&mut self.world, Duration::from_millis(milliseconds)).await;
    }

    /// Sets the last spec and waits for its end.
    async fn arrive(&mut self) {
        let mut random = self.walk.random(LAST);
        for debt in std::mem::take(&mut self.debts) {
            debt.settle(&self.hand).await;
        }
        self.trouble.end(&mut self.world).await;
        let spec = match last::ask(&self.hand, &mut random).await {
            Ok(spec) => spec,
            Err(why) => return self.fail(format!("no last spec: {why}")),
        };
        self.tell(&format!("last: {spec}"));
        if !self.until_well().await {
            let shown = oracles::summary(&self.world);
            let status = self.world.object().map(|fleet| fleet["status"].clone()).unwrap_or_default();
            return self.fail(format!("not well in time: {shown}\n{status:#}"));
        }
        self.tell("well");
        let found = oracles::end_of(&self.world);
        let active = oracles::active_set(&self.world);
        let watched = if self.walk.seed.is_multiple_of(10) { WATCHED_LONGER } else { WATCHED };
        let watched = if self.trouble.set_back() { watched + SET_BACK } else { watched };
        self.rest(watched).await;
        let status = self.world.object().map(|fleet| fleet["status"].clone()).unwrap_or_default();
        self.leftovers(&status);
        self.examine(&found);
        match fresh(self.walk.seed, &spec, &status["restartedAt"]).await {
            Err(why) => self.fail(why),
            Ok(wanted) => {
                let wanted = ends::by_role(&oracles::end::without_admission(&wanted), "first", &spec);
                let found = ends::by_role(&oracles::end::without_admission(&found), &active, &spec);
                for line in oracles::end::difference(&wanted, &found) {
                    self.fail(format!("not as a fresh fleet: {line}"));
                }
            }
        }
    }

    async fn until_well(&mut self) -> bool {
        let until = monotonic() + PATIENCE;
        let (mut version, mut still) = (self.world.version(), 0);
        let mut person =
            Person::who_decides(self.lost || self.trouble.may_leave_doubt()).who_skips(self.deleted);
        while monotonic() < until {
            self.trouble.wait(&mut self.world, Duration::from_secs(1)).await;
            let now = self.world.version();
            still = if now == version { still + 1 } else { 0 };
            version = now;
            if still < STILL || !still.is_multiple_of(STILL) {
                continue;
            }
            if oracles::is_well(&self.world) && self.are_available() && self.trouble.is_over() {
                return true;
            }
            if let Some(did) = person.look(&self.hand).await {
                self.tell(&did);
                still = 0;
            }
        }
        false
    }

    /// By the operator's clock, which may be an hour behind.
    fn are_available(&self) -> bool {
        let fleet = self.world.object().unwrap_or_default();
        fleet["status"]["availableReplicas"] == fleet["spec"]["replicas"]
    }

    /// Watches the end: no writes, and few reconciles.
    async fn rest(&mut self, watched: Duration) {
        let entries = self.world.cluster.audit_len();
        let before = oracles::reconciles(&self.trouble.operator.health);
        sleep(watched).await;
        let audit = self.world.cluster.audit_after(entries);
        for entry in audit.iter().filter(|e| e.is_write() && oracles::is_operators(e)).take(10) {
            self.fail(format!("a write at rest: {} {} {}", entry.verb, entry.resource, entry.name));
        }
        let looks = oracles::reconciles(&self.trouble.operator.health) - before;
        let nodes = self.world.cluster.snapshot_of(NAMESPACE, &["StatefulNode"]).len() as u64;
        if looks > LOOKS_AT_REST * (2 + nodes) * watched.as_secs() / WATCHED_LONGER.as_secs() {
            self.fail(format!("{looks} reconciles in {} s at rest", watched.as_secs()));
        }
        if self.trouble.operator.task.is_finished() {
            self.fail("the operator ended");
        }
    }

    /// Checks for surplus revisions, and for objects without an owner.
    fn leftovers(&mut self, status: &Value) {
        let revisions = self.world.cluster.snapshot_of(NAMESPACE, &["ControllerRevision"]);
        let fleet = self.world.object().unwrap_or_default();
        let limit = fleet["spec"]["revisionHistoryLimit"].as_u64().unwrap_or(10) as usize;
        let of_fleet = revisions.iter().filter(|r| {
            let labels = &r["metadata"]["labels"];
            labels["windlass.dev/deployment"] == FLEET && labels["windlass.dev/node"].is_null()
        });
        let count = of_fleet.count();
        // The target and the last completed revision are kept beyond the limit.
        if count > limit + 2 {
            self.fail(format!(
                "{count} revisions are kept, and {limit} may be: {:#}",
                status["currentRevision"]
            ));
        }
    }

    /// Runs the oracles over all changes.
    fn examine(&mut self, end: &End) {
        let strikes = self.trouble.drawn.iter().map(|fault| Strike { fault: fault.clone(), at: 1 }).collect();
        let point = Point { scenario: "walk".to_owned(), strikes, seed: self.walk.seed };
        let audit = self.world.cluster.audit();
        let mut evidence = Evidence {
            world: &self.world,
            audit: &audit,
            point: &point,
            first_version: 0,
            first_entry: 0,
            end,
            left: (0, 0),
            baseline: None,
            retries: 0,
            failures: Vec::new(),
        };
        oracles::examine(&mut evidence);
        let failures = std::mem::take(&mut evidence.failures);
        self.report.failures.extend(failures);
    }
}

/// The end of a fresh fleet with a spec, restarted like the other one.
async fn fresh(seed: u64, spec: &Value, restarted: &Value) -> Result<End, String> {
    let mut world = World::new(scenario(), seed);
    let operator = world.start_operator();
    let hand = hand(&world);
    hand.create(&fleet(spec)).await.map_err(|refused| format!("the last spec is refused anew: {refused}"))?;
    let mut person = Person::default();
    let mut well = until_fresh(&world, &hand, &mut person).await;
    if well && restarted.is_string() {
        drop(hand.annotate_fleet("windlass.dev/restartedAt", restarted).await);
        well = until_fresh(&world, &hand, &mut person).await;
    }
    operator.task.abort();
    if well {
        Ok(oracles::end_of(&world))
    } else {
        Err(format!("no fresh fleet comes up: {}", oracles::summary(&world)))
    }
}

async fn until_fresh(world: &World, hand: &Hand, person: &mut Person) -> bool {
    let (mut version, mut still) = (world.version(), 0);
    for _ in 0..1800 {
        sleep(Duration::from_secs(1)).await;
        still = if world.version() == version { still + 1 } else { 0 };
        version = world.version();
        if still > 2 && oracles::is_well(world) {
            return true;
        }
        if still > STILL {
            person.look(hand).await;
        }
    }
    false
}

#[test]
fn walk_round_trips_through_its_text_form() {
    let walk = Walk { seed: 7, keep: Some(vec![0, 3, 12]) };
    assert_eq!(walk.to_string(), "seed=7 keep=0,3,12");
    assert_eq!(walk.to_string().parse(), Ok(walk));
    assert_eq!("seed=9".parse(), Ok(Walk::whole(9)));
    assert_eq!("seed=9 keep=".parse(), Ok(Walk { seed: 9, keep: Some(Vec::new()) }));
    assert!("keep=1".parse::<Walk>().is_err());
}
