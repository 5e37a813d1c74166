//! One run: plays the scenario with its fault, until everything is well and has stayed so until each object had its
//! slow resync, or three of them; longer if its clock was set back.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::time::Duration;

use serde_json::json;
use tokio::runtime::Handle;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::time::{Instant, sleep};
use windlass::clock::monotonic;

use crate::catalogue::deeds::{Deed, Illness};
use crate::catalogue::faults::{self, Fault};
use crate::catalogue::follower::Follower;
use crate::catalogue::injector::{Counts, Injector, Signal};
use crate::catalogue::oracles::{self, End, Evidence};
use crate::catalogue::platform::{Platform, When};
use crate::catalogue::point::Point;
use crate::catalogue::scenario::{Change, DEADLINE_SECONDS, Follow, Scenario};
use crate::catalogue::world::{Running, Standing, World};

/// The interval of the run's observations.
const GLANCE: Duration = Duration::from_secs(1);
/// How many observations without a change count as rest: more than a request may take.
const STILL: u32 = 15;
/// The same after a time of refusals, or while a watch says nothing and has not been given up: more than the longest
/// back-off.
const STILL_AFTER_REFUSALS: u32 = 75;
/// How long after the last fault everything must be well.
const PATIENCE: Duration = Duration::from_mins(45);
/// How long the end of a clean run, and of every eighth point, is watched for writes: three slow resyncs.
const WATCHED: Duration = Duration::from_mins(30);
/// The same at other points: each object has a slow resync within twelve minutes.
const WATCHED_ONCE: Duration = Duration::from_secs(750);
/// The same after a clock was set back by an hour, which delays what it timed.
const WATCHED_SET_BACK: Duration = Duration::from_mins(90);
/// The most reconciles of each object in that time: slow resyncs, and watches that restart.
const LOOKS_AT_REST: u64 = 10;
/// How long a blocked rollout is watched; the writes per node are limited then, since attempts back off to one in a
/// minute or less, and each is persisted.
const WAITING: Duration = Duration::from_mins(10);
const WRITES_WAITING: usize = 20;
/// The longest delay by a second fault: a clock that stands for two minutes, a minute of refusals and the longest
/// back-off after them.
const HELD_UP: Duration = Duration::from_secs(130);
/// Nearly twice the longest interval between two reconciles of a steady object.
const SLOW_LOOK: Duration = Duration::from_mins(20);
/// Long enough to observe the platform's action before anything else happens.
const NOTICED: Duration = Duration::from_mins(1);
/// How often a person retries what waits for that.
const RETRIES: usize = 3;

/// The result of a run.
#[derive(Default)]
pub struct Report {
    pub counts: Counts,
    pub end: End,
    /// The active set at the end.
    pub active_set: String,
    pub failures: Vec<String>,
    /// The trace, if requested: every request and change, one line each.
    pub trace: Vec<String>,
    /// Simulated seconds until everything was well.
    pub seconds: u64,
    /// Successful writes of the operator, by verb and resource.
    pub writes: BTreeMap<String, u32>,
    /// The live tasks and open watches at the end.
    pub left: (usize, usize),
    /// The most requests of the operator within a simulated minute.
    pub busiest_minute: u32,
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap()
}

/// The state before a scenario's change, cached by scenario and seed; `None` if it is made within the run. An error
/// means that it does not come up.
fn standing(point: &Point) -> Result<Option<Arc<Standing>>, String> {
    type Known = BTreeMap<(String, u64), Result<Arc<Standing>, String>>;
    static KNOWN: LazyLock<Mutex<Known>> = LazyLock::new(Mutex::default);
    let scenario = Scenario::named(&point.scenario);
    if scenario.change == Change::Create && !scenario.is_held() {
        return Ok(None);
    }
    // The policies from the start are installed before it.
    let mut clean = Point::clean(&point.scenario, point.seed);
    clean
        .strikes
        .extend(point.strikes.iter().filter(|s| of_platform(&s.fault, When::Always).is_some()).cloned());
    let key = (clean.to_string(), point.seed);
    let lock = || KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = lock().get(&key) {
        return known.clone().map(Some);
    }
    let standing = runtime().block_on(async {
        let mut run = Run::new(&clean, None, true);
        for set in scenario.stateful_sets() {
            run.world.create(set).await;
        }
        if scenario.change != Change::Create {
            run.world.create(scenario.object()).await;
        }
        let mut well = if scenario.begins_well() {
            run.until_well(PATIENCE).await
        } else {
            sleep(NOTICED).await;
            true
        };
        if well && scenario.change == Change::Back {
            run.world.set_image("db:2").await;
            well = run.until_well(PATIENCE).await;
        }
        run.operator.task.abort();
        let unwell = || format!("oracle 2: {clean} does not come up: {}", oracles::summary(&run.world));
        if well { Ok(Arc::new(run.world.standing())) } else { Err(unwell()) }
    });
    lock().entry(key).or_insert(standing).clone().map(Some)
}

/// Plays a point in a runtime of its own. `baseline` is the clean run to compare with.
pub fn play(point: &Point, baseline: Option<&Report>, trace: bool) -> Report {
    play_with(point, baseline, trace, true)
}

/// The same. If not `keeps_caches`, the operator's caches are emptied before each reconcile.
pub fn play_with(point: &Point, baseline: Option<&Report>, trace: bool, keeps_caches: bool) -> Report {
    oracles::panics::clear();
    let standing = match standing(point) {
        Ok(standing) => standing,
        Err(what) => return Report { failures: vec![what], ..Report::default() },
    };
    let mut report = runtime().block_on(async {
        let mut run = Run::new(point, standing.as_deref(), keeps_caches);
        let report = run.play(point, baseline, trace).await;
        run.operator.task.abort();
        if let Some(other) = &run.other {
            other.task.abort();
        }
        report
    });
    report.failures.extend(oracles::panics::take());
    report
}

/// The action of the platform at this time, if the fault is one.
fn of_platform(fault: &str, at: When) -> Option<Platform> {
    match faults::named(fault).fault {
        Fault::Platform(platform, when) if when == at => Some(platform),
        _ => None,
    }
}

/// True if what is missing may become known long after nothing happened any more.
fn holds_up(fault: &Fault) -> bool {
    matches!(fault, Fault::AnswerFor(..) | Fault::Silent)
}

struct Run {
    world: World,
    operator: Running,
    /// Old leaders whose last write is still under way, and when it is to have landed.
    old: Vec<(Running, Instant)>,
    /// A standby replica.
    other: Option<Running>,
    injector: Injector,
    signals: UnboundedReceiver<Signal>,
    still_until: Option<Instant>,
    retries: usize,
    may_retry: bool,
    follower: Follower,
    /// How many observations without a change count as rest.
    patient: u32,
    ending: Option<Deed>,
    /// True once a person has acted.
    performed: bool,
    failures: Vec<String>,
}

impl Run {
    fn new(point: &Point, standing: Option<&Standing>, keeps_caches: bool) -> Self {
        let scenario = Scenario::named(&point.scenario);
        let mut world = match standing {
            Some(standing) => World::resume(scenario, standing),
            None => World::new(scenario, point.seed),
        };
        let (send, signals) = unbounded_channel();
        let injector = Injector::new(point, send);
        world.cluster.set_faults(Box::new(injector.clone()));
        let faults: Vec<Fault> = point.strikes.iter().map(|s| faults::named(&s.fault).fault).collect();
        for platform in point.strikes.iter().filter_map(|s| of_platform(&s.fault, When::Always)) {
            platform.perform(&world);
        }
        world.keeps_caches = keeps_caches;
        world.elected = faults.iter().any(|fault| matches!(fault, Fault::LostLease(_)));
        let operator = if world.elected { world.start_replica() } else { world.start_operator() };
        // The first replica asked for the lease first, so this one stands by.
        let other = world.elected.then(|| world.start_replica());
        let may_retry = faults.iter().any(|fault| match fault {
            Fault::Person(deed) => deed.may_need_retry(),
            Fault::Answer(failure, _) => *failure == windlass_sim::Failure::TooLarge,
            _ => false,
        });
        Self {
            world,
            operator,
            old: Vec::new(),
            other,
            injector,
            signals,
            still_until: None,
            retries: 0,
            may_retry,
            follower: Follower::default(),
            patient: if faults.iter().any(holds_up) { STILL_AFTER_REFUSALS } else { STILL },
            ending: None,
            performed: false,
            failures: Vec::new(),
        }
    }

    fn fail(&mut self, what: impl Into<String>) {
        self.failures.push(what.into());
    }

    async fn play(&mut self, point: &Point, baseline: Option<&Report>, trace: bool) -> Report {
        let scenario = self.world.scenario.clone();
        if scenario.change == Change::Beside {
            sleep(GLANCE * STILL).await;
        }
        if scenario.begins_well() && !self.until_well(PATIENCE).await {
            self.fail("the fleet is not well before any fault");
        }
        let set_back = point.strikes.iter().any(|s| s.fault == "F9-back");
        let ill = point.strikes.iter().find_map(|s| match faults::named(&s.fault).fault {
            Fault::Ill(illness) => Some((illness, s.at)),
            _ => None,
        });
        let mut names = scenario.node_names();
        if let Some(baseline) = baseline.filter(|_| scenario.makes_sets()) {
            names.extend(scenario.nodes_of(&baseline.active_set));
        }
        let patient = ill.map(|(_, at)| names[at as usize % names.len()].clone());
        if let (Some((illness, _)), Some(node)) = (ill, &patient) {
            illness.begin(&self.world, node).await;
        }
        let began = monotonic();
        let (first_version, first_entry) = (self.world.cluster.version(), self.world.cluster.audit_len());
        self.injector.arm();
        for platform in point.strikes.iter().filter_map(|s| of_platform(&s.fault, When::Before)) {
            platform.perform(&self.world);
            sleep(NOTICED).await;
        }
        self.change(&scenario).await;
        if let (Some((illness, _)), Some(node)) = (ill, &patient) {
            // Delays by another fault add up.
            let others = HELD_UP * (point.strikes.len() as u32 - 1);
            // After a clock was set back, what it timed is due only at the next resync.
            let looked = if set_back { SLOW_LOOK } else { Duration::ZERO };
            // A pod is restarted only after its kubelet had time to grow the file system.
            let is_offline = scenario.change == Change::GrowOffline;
            let grace = if is_offline { Duration::from_secs(200) } else { Duration::ZERO };
            let deadline =
                Duration::from_secs(DEADLINE_SECONDS.unsigned_abs() + 40) + others + looked + grace;
            let well = self.until_well(deadline).await;
            if !well {
                if let Err(what) = oracles::says_so(&self.world, illness, node) {
                    self.fail(what);
                }
                self.wait_in_peace(illness).await;
            }
            illness.end(&self.world).await;
        }
        let mut well = self.until_well(PATIENCE).await;
        // In a clean run of an action it is performed on what is at rest. So is one whose point was not reached,
        // because another fault shortened the run, if it changes the end.
        if let Some(deed) = point.strikes.iter().find_map(|s| match faults::named(&s.fault).fault {
            Fault::Person(deed) if s.at == 0 => Some(deed),
            Fault::Person(deed) if deed.moves_the_end() && !self.performed => Some(deed),
            _ => None,
        }) {
            self.perform(deed, 0).await;
            well = self.until_well(PATIENCE).await;
        }
        if point.strikes.is_empty() && scenario.follow != Follow::Nothing && !self.follower.had_to_act() {
            self.fail("the person who made the change found nothing to do");
        }
        let seconds = monotonic().duration_since(began).as_secs();
        let counts = self.injector.counts();
        if !well {
            let shown = oracles::summary(&self.world);
            self.fail(format!("oracle 2: not well {seconds} s after the change; {shown}"));
        }
        let end = oracles::end_of(&self.world);
        let active_set = oracles::active_set(&self.world);
        if well {
            let for_long = point.strikes.first().is_none_or(|strike| strike.at % 8 == 0);
            let watched = if for_long { WATCHED } else { WATCHED_ONCE };
            self.rest(if set_back { WATCHED_SET_BACK } else { watched }).await;
        }
        // Requests that the injector suspends forever are not the operator's.
        let tasks = Handle::current().metrics().num_alive_tasks().saturating_sub(counts.held as usize);
        let left = (tasks, self.world.cluster.open_watches());
        let audit = self.world.cluster.take_audit();
        let mut evidence = Evidence {
            world: &self.world,
            audit: &audit,
            point,
            first_version,
            first_entry,
            end: &end,
            left,
            baseline,
            retries: self.retries,
            failures: std::mem::take(&mut self.failures),
        };
        let (writes, busiest_minute) = oracles::examine(&mut evidence);
        let failures = evidence.failures;
        let trace = if trace { oracles::trace(&audit) } else { Vec::new() };
        Report { counts, end, active_set, failures, trace, seconds, writes, left, busiest_minute }
    }

    async fn change(&mut self, scenario: &Scenario) {
        let world = &self.world;
        match scenario.change {
            Change::Create => world.create(scenario.object()).await,
            Change::Upgrade => self.upgrade(),
            Change::Image => world.set_image("db:2").await,
            Change::Back => world.set_image("db:1").await,
            Change::Stall | Change::Broken => world.set_image("db:2-nope").await,
            Change::NewBuild => world.patch_object(&json!({"spec": {"unsafeCustomBuildID": "two"}})).await,
            Change::Restart => {
                let asked = json!({"windlass.dev/restartedAt": scenario.time(10)});
                world.patch_object(&json!({"metadata": {"annotations": asked}})).await;
            }
            Change::Template | Change::SameBuild => world.set_template("2").await,
            Change::Labels => {
                let labels = json!({"team": "one"});
                world.patch_object(&json!({"spec": {"template": {"metadata": {"labels": labels}}}})).await;
            }
            Change::Retain => world.patch_object(&Scenario::release(true)).await,
            Change::LetGo => world.patch_object(&Scenario::release(false)).await,
            Change::UpAndImage if scenario.is_held() => {
                world.scale_by(2).await;
                world.set_image("db:2").await;
            }
            Change::UpAndImage => {
                let mut patch = scenario.image("db:2");
                patch["spec"]["replicas"] = (scenario.nodes + 2).into();
                world.patch_object(&patch).await;
            }
            Change::Beside => {
                let containers = Scenario::beside("exporter:2");
                let patch = json!({"podTemplate": {"spec": {"containers": containers}}});
                world.patch_object(&scenario.of_nodes(&patch)).await;
            }
            Change::Drain => world.drain().await,
            Change::Grow => world.grow("online").await,
            Change::GrowOffline => world.grow("offline").await,
            Change::Up => world.scale_by(1).await,
            Change::Down => world.scale_by(-1).await,
            Change::Repair => {
                let last = scenario.node_names().pop().unwrap_or_default();
                world.delete("windlass.dev/v1alpha1", "StatefulNode", &last).await;
            }
        }
    }

    /// Replaces the operator with one of another version.
    fn upgrade(&mut self) {
        self.world.upgraded = true;
        self.operator.task.abort();
        self.operator = self.world.start_operator();
    }

    /// Plays until everything is well and at rest; false if that takes too long.
    async fn until_well(&mut self, patience: Duration) -> bool {
        let mut until = monotonic() + patience;
        let (mut version, mut still) = (self.world.version(), 0);
        loop {
            let signal = tokio::select! {
                biased;
                Some(signal) = self.signals.recv() => Some(signal),
                () = sleep(GLANCE) => None,
            };
            if let Some(signal) = signal {
                self.follow(signal).await;
                until = monotonic() + patience;
                continue;
            }
            self.end_what_is_due();
            if self.injector.is_armed() {
                self.follower.look(&self.world).await;
            }
            let now = self.world.version();
            still = if now == version && !self.injector.is_at_work() { still + 1 } else { 0 };
            version = now;
            if still >= self.patient && still.is_multiple_of(STILL) && self.is_quiet() {
                if self.is_well() {
                    return true;
                }
                if self.retry().await {
                    until = monotonic() + patience;
                    still = 0;
                }
            }
            if monotonic() >= until {
                return false;
            }
        }
    }

    /// True if no fault is active, and the garbage collector is idle. A fault whose point is never reached, because
    /// the run is shorter than the clean one or waits for a person, does not count.
    fn is_quiet(&self) -> bool {
        self.old.is_empty()
            && self.still_until.is_none()
            && !self.injector.is_at_work()
            && !self.world.cluster.is_collecting()
    }

    fn is_well(&self) -> bool {
        match self.ending {
            Some(deed) => oracles::is_gone(&self.world, deed),
            None => oracles::is_well(&self.world) && self.follower.is_done(&self.world),
        }
    }

    fn end_what_is_due(&mut self) {
        let now = monotonic();
        if self.still_until.is_some_and(|until| until <= now) {
            self.still_until = None;
            self.world.clock.go_on();
        }
        for (old, _) in self.old.extract_if(.., |(_, until)| *until <= now) {
            old.task.abort();
        }
    }

    async fn follow(&mut self, signal: Signal) {
        match signal {
            Signal::Restart(agent) => self.replace(&agent).task.abort(),
            Signal::TakeOver(agent, time) => {
                let old = self.replace(&agent);
                self.old.push((old, monotonic() + time + GLANCE));
            }
            Signal::Jump(seconds) => self.world.jump(seconds),
            Signal::Still(seconds) => {
                self.world.clock.stop();
                self.still_until = Some(monotonic() + Duration::from_secs(seconds));
            }
            Signal::Deed(deed, at) => self.perform(deed, at).await,
            Signal::Platform(platform) => platform.perform(&self.world),
        }
    }

    /// Starts an operator in the place of a dead or superseded one; returns the old one.
    fn replace(&mut self, agent: &str) -> Running {
        let elected = self.world.elected;
        let next = if elected { self.world.start_replica() } else { self.world.start_operator() };
        let standby = self.other.as_mut().filter(|other| other.agent == agent);
        std::mem::replace(standby.unwrap_or(&mut self.operator), next)
    }

    async fn perform(&mut self, deed: Deed, at: u32) {
        self.performed = true;
        if deed.is_the_end() {
            self.ending = Some(deed);
        }
        deed.perform(&self.world, at).await;
    }

    /// Retries a rollout that waits for that, as a person would.
    async fn retry(&mut self) -> bool {
        let Some(object) = self.world.object() else { return false };
        let status = &object["status"];
        // A promotion whose plan failed is not rejected: it holds until a retry names that plan.
        let held = status["plan"]["state"] == "Failed" && status["rollout"].is_object();
        let ended = if held { &status["plan"]["id"] } else { &status["rejected"]["planID"] };
        // During a rollback the message asks nobody to retry.
        let goes_back = status["plan"]["state"] == "Active" && status["rollout"].is_object();
        if !self.may_retry || self.retries >= RETRIES || ended.is_null() || goes_back {
            return false;
        }
        if oracles::condition(&object, "UpToDate").0 != "False" {
            self.fail(format!("oracle 5: a rejected rollout does not say so: {:#}", object["status"]));
        }
        self.retries += 1;
        let retry = json!({"metadata": {"annotations": {"windlass.dev/retry": ended}}});
        self.world.patch_object(&retry).await;
        true
    }

    /// A blocked rollout has reported it, and writes nothing more.
    async fn wait_in_peace(&mut self, illness: Illness) {
        let entries = self.world.cluster.audit_len();
        sleep(WAITING).await;
        let audit = self.world.cluster.audit_after(entries);
        let writes = audit.iter().filter(|e| e.is_write() && !e.resource.starts_with("leases"));
        let writes = writes.filter(|e| e.user_agent == self.operator.agent);
        // The status of a StatefulSetRollout follows a pod that is created again and again.
        let flips = self.world.scenario.is_held() && illness == Illness::Steered("evicted");
        let writes = writes.filter(|e| !flips || e.subresource != "status");
        let count = writes.count();
        // Next to each serving node there may be a new one.
        let sets = if self.world.scenario.makes_sets() { 2 } else { 1 };
        if count > WRITES_WAITING * sets * self.world.scenario.node_names().len() {
            self.fail(format!("oracle 6: {count} writes in {} s while nothing can go on", WAITING.as_secs()));
        }
    }

    /// Watches the end: no writes, and few reconciles.
    async fn rest(&mut self, watched: Duration) {
        let (version, entries) = (self.world.version(), self.world.cluster.audit_len());
        let before = oracles::reconciles(&self.operator.health);
        sleep(watched).await;
        let audit = self.world.cluster.audit_after(entries);
        for entry in audit.iter().filter(|e| e.is_write() && !e.resource.starts_with("leases")) {
            self.fail(format!("oracle 2: a write at rest: {} {} {}", entry.verb, entry.resource, entry.name));
        }
        if self.world.version() != version {
            self.fail("oracle 2: something changed at rest");
        }
        let after = oracles::reconciles(&self.operator.health);
        let objects = 2 + self.world.scenario.node_names().len() as u64;
        if after - before > LOOKS_AT_REST * objects * watched.as_secs() / WATCHED.as_secs() {
            self.fail(format!("oracle 6: {} reconciles in {} s at rest", after - before, watched.as_secs()));
        }
        if self.operator.task.is_finished() {
            self.fail("oracle 6: the operator ended");
        }
    }
}
