//! Statuses lose any of their fields, between any two writes (`kubectl edit --subresource=status`, a restore): the
//! fleet recovers, or says what a person has to decide, and no serving node is harmed.

use std::panic::AssertUnwindSafe;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};
use windlass_sim::NoFaults;

use super::lost_paths::{Halt, Lost, lose};
use super::world::{
    CLAIM, World, blue_green, condition, fleet, is_up_to_date, play, text, to_text, with_sidecar,
};

/// The state of a fleet when its statuses lose fields.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Scenario {
    Create,
    Rest,
    RestOfSet,
    InPlace,
    Restart,
    Superseded,
    Aborted,
    RolledBack,
    BlueGreen,
    Manual,
    Immediately,
    HardFork,
}

use Scenario::{
    Aborted, BlueGreen, Create, HardFork, Immediately, InPlace, Manual, Rest, RestOfSet, Restart, RolledBack,
    Superseded,
};

const ALL: [Scenario; 12] = [
    Create,
    Rest,
    RestOfSet,
    InPlace,
    Restart,
    Superseded,
    Aborted,
    RolledBack,
    BlueGreen,
    Manual,
    Immediately,
    HardFork,
];

/// A requested restart.
const LATER: &str = "2099-01-01T00:00:00Z";

/// One loss: after this many writes of the operator, with or without a new operator.
#[derive(Clone, Debug)]
struct Case {
    scenario: Scenario,
    after: usize,
    lost: Lost,
    restarted: bool,
}

impl Case {
    fn name(&self) -> String {
        format!("{:?} {} {} {}", self.scenario, self.after, self.lost.name(), self.restarted)
    }

    fn of(name: &str) -> Option<Self> {
        let mut words = name.split(' ');
        let scenario = words.next()?;
        Some(Self {
            scenario: ALL.into_iter().find(|s| format!("{s:?}") == scenario)?,
            after: words.next()?.parse().ok()?,
            lost: Lost::of(words.next()?)?,
            restarted: words.next()? == "true",
        })
    }
}

impl Scenario {
    fn fleet(self) -> Value {
        let retire = json!({"retireDelaySeconds": 20});
        match self {
            BlueGreen | RestOfSet => blue_green(2, retire),
            Manual => blue_green(2, json!({"retireDelaySeconds": 20, "promotion": "Manual"})),
            Immediately => blue_green(2, json!({"promotion": "Immediately"})),
            HardFork => with_sidecar(fleet(
                2,
                json!({"type": "HardFork", "hardFork": {"haltHeight": 1000},
                "blueGreen": retire}),
            )),
            RolledBack => {
                fleet(3, json!({"type": "InPlace", "onStall": "Rollback", "progressDeadlineSeconds": 30}))
            }
            _ => fleet(3, json!({"type": "InPlace"})),
        }
    }

    /// Brings the fleet to the point from which fields may be lost.
    async fn prepare(self, w: &World) {
        w.applications.reach(500);
        if self == Create {
            return;
        }
        w.serve(self.fleet()).await;
        match self {
            RestOfSet => {
                w.image("db:2").await;
                w.until("the new set serves", |s| is_up_to_date(s) && w.images().len() == 2).await;
                w.rest(60).await;
            }
            Aborted | Superseded => {
                w.image("db:2-nope").await;
                w.until("a node failed", |s| s["rollout"]["nodes"]["failed"] == 1).await;
            }
            _ => {}
        }
    }

    /// Starts the change.
    async fn begin(self, w: &World) {
        match self {
            Create => w.create(self.fleet()).await,
            Rest | RestOfSet => {}
            Restart => w.annotate("windlass.dev/restartedAt", LATER).await,
            Superseded => w.image("db:3").await,
            Aborted => {
                let plan = text(&w.status()["plan"], "id").to_owned();
                w.annotate("windlass.dev/abort", &plan).await;
            }
            RolledBack => w.image("db:2-nope").await,
            _ => w.image("db:2").await,
        }
    }

    /// The most disrupted nodes.
    fn wave(self) -> usize {
        match self {
            Rest | RestOfSet | BlueGreen | Manual | HardFork => 0,
            InPlace | Restart | Superseded | Aborted | RolledBack => 1,
            Create | Immediately => 3,
        }
    }

    fn image(self) -> &'static str {
        match self {
            Create | Rest | Restart | Aborted | RolledBack => "db:1",
            Superseded => "db:3",
            _ => "db:2",
        }
    }

    /// True if this is the expected end.
    fn is_over(self, w: &World, status: &Value) -> bool {
        let runs = || w.images().iter().all(|i| i.ends_with(self.image()));
        let rejected = |reason: &str| {
            status["rollout"].is_null() && condition(status, "UpToDate") == format!("False/{reason}")
        };
        match self {
            Aborted => rejected("Aborted"),
            RolledBack => rejected("RolledBack") && runs(),
            Restart => is_up_to_date(status) && runs() && status["restartedAt"] == LATER,
            _ => is_up_to_date(status) && runs() && status["retiring"].is_null(),
        }
    }
}

/// Acts as the status asks a person to.
async fn heed(w: &World, case: &Case, status: &Value) {
    if condition(status, "UpToDate") == "Unknown/ReadyToPromote" && case.scenario == Manual {
        w.change(json!({"forcePromote": ""})).await;
        w.rest(10).await;
        w.change(json!({"forcePromote": w.status()["requestedRolloutHash"]})).await;
        w.rest(5).await;
    }
    if status["rollout"]["stage"] == "Promoting" {
        w.applications.reach(1000);
    }
    let list = status["conditions"].as_array().cloned().unwrap_or_default();
    let said = |type_: &str| {
        list.iter().find(|c| c["type"] == type_).map(|c| text(c, "message").to_owned()).unwrap_or_default()
    };
    let says_failed = condition(status, "UpToDate") == "False/PlanFailed";
    let message = said("UpToDate");
    let plan =
        message.split("windlass.dev/retry").nth(1).map(|rest| rest.trim_start_matches(['=', ':', ' ']));
    if let Some(plan) = plan.filter(|_| says_failed) {
        w.annotate("windlass.dev/retry", plan.split(' ').next().unwrap_or_default()).await;
    }
}

/// Checks the invariants.
fn check(w: &World, case: &Case, promoted: bool) -> Result<(), String> {
    let all = w.cluster.snapshot();
    let set = if w.selected().is_empty() { "first".to_owned() } else { w.selected() };
    if case.scenario == Manual && !promoted && set != "first" {
        return Err(format!("{set} was promoted, and nobody asked for it"));
    }
    let ready = |pod: &&Value| {
        let is_ready = |c: &Value| c["type"] == "Ready" && c["status"] == "True";
        pod["metadata"]["deletionTimestamp"].is_null()
            && pod["status"]["conditions"].as_array().is_some_and(|l| l.iter().any(is_ready))
    };
    let pods = all
        .iter()
        .filter(|o| o["kind"] == "Pod" && o["metadata"]["labels"]["windlass.dev/set"] == set.as_str());
    let (wanted, ready) =
        (if case.scenario.fleet()["spec"]["replicas"] == 3 { 3 } else { 2 }, pods.filter(ready).count());
    if ready + case.scenario.wave() < wanted {
        return Err(format!("{ready} of {wanted} nodes of set {set} serve"));
    }
    let status = w.status();
    let of_active = |image: &&String| {
        let set = text(&status, "activeSet");
        let name = image.split(' ').next().unwrap_or_default();
        let has_set = name.matches('-').count() > 2;
        if set == "first" { !has_set } else { name.starts_with(&format!("db-{set}-")) }
    };
    let image =
        w.get(("windlass.dev/v1alpha1", "NodeDeployment"), "db")["spec"]["template"]["spec"]["image"].clone();
    let image = image.as_str().unwrap_or_default();
    if is_up_to_date(&status)
        && w.images().iter().filter(of_active).any(|i| !i.ends_with(image))
        && status["observedGeneration"]
            == w.get(("windlass.dev/v1alpha1", "NodeDeployment"), "db")["metadata"]["generation"]
    {
        return Err(format!("{image} is said to run: {:?}", w.images()));
    }
    Ok(())
}

async fn run(w: &World, case: &Case) -> Result<(), String> {
    case.scenario.prepare(w).await;
    let claims = w.names(CLAIM);
    let pods = w.images();
    let halt = Halt::after(case.after);
    w.cluster.set_faults(Box::new(halt.clone()));
    case.scenario.begin(w).await;
    let mut promoted = false;
    // Until then a person acts as asked, so that every situation occurs.
    let mut over = 0;
    for step in 0..1500 {
        let status = w.status();
        over = if case.scenario.is_over(w, &status) { over + 1 } else { 0 };
        // The loss may be after the last write.
        if case.after == 0 || halt.is_reached() || over > 25 {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        if step % 100 == 99 {
            promoted |= condition(&status, "UpToDate") == "Unknown/ReadyToPromote";
            heed(w, case, &status).await;
        }
        if step % 5 == 0 {
            check(w, case, promoted)?;
        }
    }
    let lost = lose(w, &case.lost).await;
    w.cluster.set_faults(Box::new(NoFaults));
    if case.restarted {
        w.kill_operator();
        w.start_operator();
    }
    let mut over = 0;
    for step in 0.. {
        // Fine-grained at first, then at a person's pace.
        let pause = if step < 300 { 50 } else { 5000 };
        tokio::time::sleep(std::time::Duration::from_millis(pause)).await;
        if step % 2 == 0 {
            check(w, case, promoted).map_err(|why| format!("{why} after {lost:?} was lost"))?;
        }
        let status = w.status();
        over = if case.scenario.is_over(w, &status) { over + 1 } else { 0 };
        if over > 20 {
            break;
        }
        if step > 300 {
            promoted |= condition(&status, "UpToDate") == "Unknown/ReadyToPromote";
            heed(w, case, &status).await;
        }
        if step == 700 {
            return Err(format!("it does not come to rest after {lost:?} was lost:\n{}", to_text(&status)));
        }
    }
    if let Some(gone) = claims.iter().find(|claim| !w.names(CLAIM).contains(claim)) {
        return Err(format!("claim {gone} is gone after {lost:?} was lost"));
    }
    if matches!(case.scenario, Rest | RestOfSet) && w.images() != pods {
        return Err(format!("{:?} after {lost:?} was lost", w.images()));
    }
    w.rest(120).await;
    let version = w.cluster.version();
    w.rest(400).await;
    if w.cluster.version() != version {
        return Err(format!("it is not at rest after {lost:?} was lost"));
    }
    Ok(())
}

fn played(case: &Case) -> Result<(), String> {
    let said = Mutex::new(Ok(()));
    let outcome = std::panic::catch_unwind(AssertUnwindSafe(|| {
        play(|w| {
            let said = &said;
            async move { *said.lock().unwrap() = run(&w, case).await }
        });
    }));
    match outcome {
        Ok(()) => said.into_inner().unwrap(),
        Err(_) => Err("it panicked".to_owned()),
    }
}

/// A sample of all cases: single fields, pairs, random subsets and all.
fn cases(most: usize) -> Vec<Case> {
    let moments = |scenario| if matches!(scenario, Rest | RestOfSet) { 1 } else { 30 };
    let mut cases = Vec::new();
    for number in 0..most {
        let scenario = ALL[number % ALL.len()];
        let round = number / ALL.len();
        // Strides without a common factor visit everything.
        let after = (round * 7) % moments(scenario);
        let lost = match round % 5 {
            0..=2 => Lost::One(round * 13 + number % 11),
            3 => Lost::Two(round * 17, round * 29 + 3),
            _ => Lost::Some(round as u64),
        };
        cases.push(Case { scenario, after, lost, restarted: round % 2 == 1 });
    }
    cases
}

/// The first cases of an even sample; `WINDLASS_LOST_MOST` sets the number, `WINDLASS_LOST` replays one.
#[test]
fn a_status_that_lost_fields_is_filled_again_or_says_what_a_person_has_to_decide() {
    let variable = |name: &str| std::env::var(name).ok().filter(|text| !text.is_empty());
    let most = variable("WINDLASS_LOST_MOST").and_then(|n| n.parse().ok()).unwrap_or(36);
    let cases = match variable("WINDLASS_LOST") {
        Some(name) => vec![Case::of(&name).expect("a case as it is printed")],
        None => cases(most),
    };
    let (next, failures) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while let Some(case) = cases.get(next.fetch_add(1, Ordering::SeqCst)) {
                    if let Err(why) = played(case) {
                        let name = case.name();
                        failures.lock().unwrap().push(format!("WINDLASS_LOST=\"{name}\": {why}"));
                    }
                }
            });
        }
    });
    let failures = failures.into_inner().unwrap();
    assert!(failures.is_empty(), "{} of {} cases:\n{}", failures.len(), cases.len(), failures.join("\n\n"));
}
