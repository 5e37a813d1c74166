//! A property: statuses lose any of their fields, between any two writes (`kubectl edit --subresource=status`, a restore);
//! they are filled again, or the fleet says what a person has to decide, and no serving node is harmed.

use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock};
use std::time::Duration;

use windlass_sim::{AuditEntry, NoFaults, Random};

use super::lost_scenarios::{ALL, Scenario};
use super::lost_subsets::{Loss, OF, SHARES, lose};
use super::lost_watch::{Halt, Watch, active_without_plan};
use super::world::{CLAIM, FLEET, NODE, World, condition, play, to_text};

/// The default number of cases: each scenario once, and each share of the fields with some of them.
const MOST: usize = ALL.len();

/// The longest that something may be active without a plan and say nothing, in seconds.
const LONGEST_WITHOUT_PLAN: u64 = 120;

/// A loss after this many writes of the operator, with or without a new operator.
#[derive(Clone, Debug)]
struct Case {
    scenario: Scenario,
    after: usize,
    loss: Loss,
    restarted: bool,
}

impl Case {
    /// The case of this number. The scenarios and the shares take turns, everything else is drawn.
    fn drawn(seed: u64, number: usize) -> Self {
        let mut random = Random::new(seed.wrapping_mul(1_000_003).wrapping_add(number as u64));
        let scenario = ALL[number % ALL.len()];
        let share = SHARES[(number + number / ALL.len()) % SHARES.len()];
        let of = OF[random.between(0, OF.len() as u64 - 1) as usize];
        let after = random.between(0, writes(scenario) as u64) as usize;
        let loss = Loss::Drawn(of, share, random.between(0, 999_999));
        Self { scenario, after, loss, restarted: random.between(0, 1) == 1 }
    }

    fn name(&self) -> String {
        let operator = if self.restarted { "another" } else { "same" };
        format!("{:?} {} {} {operator}", self.scenario, self.after, self.loss.name())
    }

    fn of(name: &str) -> Option<Self> {
        let mut words = name.split(' ');
        let scenario = words.next()?;
        Some(Self {
            scenario: ALL.into_iter().find(|s| format!("{s:?}") == scenario)?,
            after: words.next()?.parse().ok()?,
            loss: Loss::of(words.next()?)?,
            restarted: words.next()? == "another",
        })
    }
}

/// The number of writes of a run in which nothing is lost.
fn writes(scenario: Scenario) -> usize {
    static WRITES: [OnceLock<usize>; ALL.len()] = [const { OnceLock::new() }; ALL.len()];
    if scenario.is_at_rest() {
        return 0;
    }
    *WRITES[scenario as usize].get_or_init(|| {
        let counted = AtomicUsize::new(0);
        play(|w| {
            let counted = &counted;
            async move {
                scenario.prepare(&w).await;
                let (halt, mut watch) = (Halt::after(usize::MAX), Watch::begin(&w, scenario));
                until_halted(&w, scenario, &halt, &mut watch).await.unwrap();
                assert!(scenario.has_converged(&w), "{scenario:?} without a loss: {}", statuses(&w));
                counted.store(halt.seen(), Ordering::SeqCst);
            }
        });
        counted.into_inner()
    })
}

/// Whether all was as it should be, at a version of the store.
#[derive(Default)]
struct Seen(u64, bool);

impl Seen {
    fn has_converged(&mut self, w: &World, scenario: Scenario) -> bool {
        let version = w.cluster.version();
        if self.0 != version {
            *self = Self(version, scenario.has_converged(w));
        }
        self.1
    }
}

/// Starts the change, and returns once the next write is held back or there is none. A person acts as asked.
async fn until_halted(w: &World, scenario: Scenario, halt: &Halt, watch: &mut Watch) -> Result<(), String> {
    w.cluster.set_faults(Box::new(halt.clone()));
    scenario.begin(w).await;
    let (mut over, mut seen) = (0, Seen::default());
    for step in 0..6000 {
        if halt.is_reached() || over > 25 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
        watch.look(w)?;
        // What is to begin may not have begun.
        let has_begun = step > 150;
        over = if has_begun && seen.has_converged(w, scenario) { over + 1 } else { 0 };
        if step % 100 == 99 {
            act(w, scenario, watch, false).await;
        }
    }
    Ok(())
}

async fn act(w: &World, scenario: Scenario, watch: &mut Watch, may_repeat: bool) {
    watch.promoted |= condition(&w.status(), "UpToDate") == "Unknown/ReadyToPromote";
    scenario.act(w, may_repeat).await;
}

/// Waits until everything is as it should be, and stays so.
async fn until_converged(
    w: &World,
    scenario: Scenario,
    watch: &mut Watch,
    may_repeat: bool,
) -> Result<(), String> {
    let (mut over, mut without_plan, mut seen) = (0, 0, Seen::default());
    for step in 0..700 {
        // Fine-grained at first, then at a person's pace.
        let pause = if step < 300 { Duration::from_millis(50) } else { Duration::from_secs(5) };
        tokio::time::sleep(pause).await;
        watch.look(w)?;
        over = if seen.has_converged(w, scenario) { over + 1 } else { 0 };
        if over > 20 {
            return Ok(());
        }
        if step > 300 {
            let active = active_without_plan(w);
            without_plan = if active.is_some() { without_plan + pause.as_secs() } else { 0 };
            if let Some(name) = active.filter(|_| without_plan > LONGEST_WITHOUT_PLAN) {
                return Err(format!("{name} is active without a plan:\n{}", statuses(w)));
            }
            // First the fleet has time to go on by itself.
            act(w, scenario, watch, may_repeat && step > 400).await;
        }
    }
    Err(format!("it does not come to rest:\n{}", statuses(w)))
}

/// The names and UIDs of all pods.
fn pods(w: &World) -> Vec<String> {
    let all = w.cluster.snapshot_of("test", &["Pod"]);
    all.iter().map(|pod| format!("{} {}", pod["metadata"]["name"], pod["metadata"]["uid"])).collect()
}

fn statuses(w: &World) -> String {
    let all = w.cluster.snapshot_of("test", &[FLEET.1, NODE.1]);
    let of = |o: &serde_json::Value| format!("{}: {}", o["metadata"]["name"], to_text(&o["status"]));
    all.iter().map(of).collect::<Vec<_>>().join("\n")
}

/// The last writes, oldest first.
fn last_writes(w: &World) -> String {
    let audit = w.cluster.audit();
    let writes: Vec<_> =
        audit.iter().filter(|entry| entry.is_write() && entry.resource != "events").collect();
    let of = |entry: &&AuditEntry| {
        let AuditEntry { verb, resource, subresource, name, user_agent, code, .. } = entry;
        format!("{} ms {user_agent}: {verb} {resource} {name} {subresource} {code}", entry.at_micros / 1000)
    };
    writes[writes.len().saturating_sub(40)..].iter().map(of).collect::<Vec<_>>().join("\n")
}

/// Runs a case; adds the lost fields.
async fn run(w: &World, case: &Case, lost: &Mutex<Vec<String>>) -> Result<(), String> {
    let scenario = case.scenario;
    scenario.prepare(w).await;
    let (claims, before) = (w.names(CLAIM), pods(w));
    let (halt, mut watch) = (Halt::after(case.after), Watch::begin(w, scenario));
    until_halted(w, scenario, &halt, &mut watch).await?;
    // What was rejected has to be remembered if only one field is lost.
    let was_rejected = !w.status()["rejected"].is_null();
    let gone = lose(w, &case.loss).await;
    let may_repeat = !was_rejected || gone.len() > 1;
    *lost.lock().unwrap() = gone;
    w.cluster.set_faults(Box::new(NoFaults));
    if case.restarted {
        w.kill_operator();
        w.start_operator();
    }
    until_converged(w, scenario, &mut watch, may_repeat).await?;
    w.rest(120).await;
    let version = w.cluster.version();
    w.rest(400).await;
    watch.look(w)?;
    if w.cluster.version() != version || !scenario.has_converged(w) {
        return Err(format!("it is not at rest:\n{}", statuses(w)));
    }
    if let Some(gone) = claims.iter().find(|claim| !w.names(CLAIM).contains(claim)) {
        return Err(format!("claim {gone} is gone"));
    }
    if scenario.keeps_pods() && pods(w) != before {
        return Err(format!("the pods were {before:?} and are {:?}", pods(w)));
    }
    Ok(())
}

/// The lost fields, and what went wrong.
fn played(case: &Case) -> (Vec<String>, Result<(), String>) {
    let (said, lost) = (Mutex::new(Ok(())), Mutex::default());
    let outcome = std::panic::catch_unwind(AssertUnwindSafe(|| {
        play(|w| {
            let (said, lost) = (&said, &lost);
            async move {
                let ended = run(&w, case, lost).await;
                if ended.is_err() && replayed().is_some() {
                    println!("{}\n{}", statuses(&w), last_writes(&w));
                }
                *said.lock().unwrap() = ended;
            }
        });
    }));
    let said = match outcome {
        Ok(()) => said.into_inner().unwrap(),
        Err(_) => Err("it panicked".to_owned()),
    };
    (lost.into_inner().unwrap(), said)
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|text| !text.is_empty())
}

/// The case to replay, if one is named.
fn replayed() -> Option<Case> {
    variable("WINDLASS_LOST").map(|name| Case::of(&name).expect("a case as it is printed"))
}

/// `WINDLASS_LOST_MOST` sets the number of cases, `WINDLASS_LOST_SEED` draws others, and `WINDLASS_LOST` replays one.
#[test]
fn lost_status_fields_are_restored_or_need_a_person() {
    let number = |name: &str| variable(name).and_then(|n| n.parse::<usize>().ok());
    let seed = number("WINDLASS_LOST_SEED").unwrap_or(1) as u64;
    let replayed = replayed();
    let most = if replayed.is_some() { 1 } else { number("WINDLASS_LOST_MOST").unwrap_or(MOST) };
    let (next, failures) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let work = || {
        loop {
            let number = next.fetch_add(1, Ordering::SeqCst);
            if number >= most {
                break;
            }
            let case = replayed.clone().unwrap_or_else(|| Case::drawn(seed, number));
            if let (lost, Err(why)) = played(&case) {
                failures.lock().unwrap().push(format!("{}\n{why}\nlost: {}", command(&case), lost.join(",")));
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(work);
        }
    });
    let failures = failures.into_inner().unwrap();
    assert!(failures.is_empty(), "{} of {most} cases:\n{}", failures.len(), failures.join("\n\n"));
}

/// Losses that once harmed what serves, or that nothing filled again, each with as few fields as fail.
const ONCE_FAILED: [&str; 11] = [
    // A repair went on to the revisions that nodes held although what last completed was wanted again.
    "RolledBack 4 db/plan.recipe,db/plan.tasks.2.state,db/rollout.targetHash another",
    // A finished plan of a node that could not be read counted as one that rolls the node, for good.
    "ScaleIn 4 db-1/plan.tasks.1.state same",
    "RolledBack 10 db-1/plan.startedAt another",
    "Template 7 db-2/plan.tasks.2.id same",
    // A node that serves counts as never ready without `firstReadyAt`, and moves beyond the wave.
    "Aborted 0 db/currentRevision,db/lastCompletedRolloutHash,db/plan,db/requestedRolloutHash,db-1/firstReadyAt,db-2/plan same",
    "RolledBack 9 db/currentRevision,db/lastCompletedRolloutHash,db-0/firstReadyAt same",
    // After traffic had moved, the stage was lost, and the old set was taken for the one that serves.
    "Manual 30 db/plan.tasks.0.type,db/rollout.stage same",
    // The fleet was looked at before the nodes had filled their statuses again.
    "AbortedSet 0 db/currentRevision,db/lastCompletedRolloutHash,db/plan,db/rollout,db-0/statefulSet,db-1/conditions,db-1/firstReadyAt another",
    "Manual 11 db/currentRevision,db/lastCompletedRolloutHash,db/plan,db/rollout,db-1/conditions,db-1/firstReadyAt another",
    // What serves counts as never complete, and is rolled in place instead of by a set.
    "HardFork 19 db/currentRevision,db/lastCompletedRolloutHash,db/rollout another",
    "HardFork 29 db/currentRevision,db/lastCompletedRolloutHash,db/plan,db/rollout,db-1/firstReadyAt,db-c8d76-0/observedGeneration same",
];

#[test]
fn status_losses_that_once_failed_are_recovered() {
    for name in ONCE_FAILED {
        let (_, ended) = played(&Case::of(name).expect("a case as it is printed"));
        assert_eq!(ended, Ok(()), "{name}");
    }
}

fn command(case: &Case) -> String {
    format!("WINDLASS_LOST=\"{}\" cargo test --test sim a_status_that_lost", case.name())
}
