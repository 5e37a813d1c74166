//! Compares `windlass plan` with what happens on the real control plane: generated changes of fleets in every stage,
//! with the shipped binary. `WINDLASS_PLANNED=200` sets the number of changes; the default is one of each stage.
//! `WINDLASS_PLANNED_SEED` replays a single one.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::{FutureExt, StreamExt};
use kube::runtime::watcher::{self, Event};
use serde_json::{Value, json};

use crate::e2e::eyes::windlass;
use crate::e2e::sets::stage;
use crate::e2e::sidecars::Sidecars;
use windlass_harness::judge::{
    Chance, Log, Seen, change, differing, follows_beside, is_said, said_to_differ, serves,
};
use windlass_harness::kit::{World, condition, fleet, is_applied, with};

/// The default number of changes: one of each stage.
const FEW: usize = STAGES.len();
/// The number of concurrent namespaces.
const AT_ONCE: usize = 4;

/// The stages of a fleet before the change, and what it then waits for.
const STAGES: [(Stage, &str); 13] = [
    (Stage::Steady, ""),
    (Stage::MidWave, "unavailable now"),
    (Stage::Stalled, "unavailable now"),
    (Stage::Rejected, "this target is rejected"),
    (Stage::Paused, "spec.paused is true"),
    (Stage::PausedMidWave, "spec.paused is true"),
    (Stage::Partition, "the partition: ordinals below 2"),
    (Stage::ReadyToPromote, "windlass promote nd/db"),
    (Stage::EntrantsWait, ""),
    (Stage::Retiring, ""),
    (Stage::Approval, "windlass approve nd/db"),
    (Stage::HookFailed, "windlass retry nd/db"),
    (Stage::HardFork, "cannot be taken back any more"),
];

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Stage {
    Steady,
    MidWave,
    Stalled,
    Rejected,
    Paused,
    PausedMidWave,
    Partition,
    ReadyToPromote,
    EntrantsWait,
    Retiring,
    Approval,
    HookFailed,
    HardFork,
}

/// The pod that blocks a fleet until the change is made.
const HELD: &str = "db-2-0";

impl Stage {
    /// Brings a fleet `db` towards the stage.
    async fn bring(self, world: &World, sidecars: &Sidecars, chance: &mut Chance) {
        let replicas = 3 + i64::try_from(chance.below(2)).unwrap();
        let blue_green = |promotion: &str| {
            let settings = json!({"promotion": promotion, "retireDelaySeconds": 12});
            json!({"type": "BlueGreen", "blueGreen": settings})
        };
        let in_place = |most: u64| json!({"type": "InPlace", "inPlace": {"maxUnavailable": most}});
        let most = 1 + chance.below(2);
        let mut strategy = match self {
            Self::Steady | Self::Paused => in_place(most),
            Self::Partition => {
                json!({"type": "InPlace", "inPlace": {"maxUnavailable": most, "partition": 2}})
            }
            Self::MidWave | Self::PausedMidWave | Self::Stalled | Self::Rejected => in_place(1),
            Self::ReadyToPromote => blue_green("Manual"),
            Self::EntrantsWait | Self::Retiring => blue_green("WhenReady"),
            Self::Approval => {
                json!({"type": "InPlace", "hooks": [{"name": "go", "at": "BeforeRollout", "approval": {}}]})
            }
            // Nobody listens there, so that it fails, and holds.
            Self::HookFailed => json!({"type": "InPlace", "hooks": [{"name": "tell", "at": "BeforeRollout",
                "http": {"url": "http://127.0.0.1:1/"}, "timeoutSeconds": 1}]}),
            Self::HardFork => json!({"type": "HardFork", "hardFork": {"haltHeight": 1000}}),
        };
        // A rollout without progress must not become stalled here.
        strategy["progressDeadlineSeconds"] = json!(if self == Self::Stalled { 3 } else { 10_000 });
        if self == Self::Rejected {
            strategy["onStall"] = json!("Rollback");
            strategy["progressDeadlineSeconds"] = json!(3);
        }
        let object =
            if self == Self::HardFork { sidecars.fleet(replicas, "db:1") } else { fleet(replicas, "db:1") };
        let mut object = with(object, &json!({"spec": {"updateStrategy": strategy}}));
        object["spec"]["template"]["spec"]["podTemplate"]["spec"]["terminationGracePeriodSeconds"] = json!(1);
        sidecars.reach(500);
        world.fleet(object).await;
        world.until_applied().await;
        self.next(world).await;
    }

    /// Takes an up-to-date fleet to the stage.
    async fn next(self, world: &World) {
        match self {
            Self::Steady => {}
            Self::MidWave | Self::PausedMidWave => {
                world.steer(HELD, "unready").await;
                world.set_image("db:2").await;
                // Its pod runs the target, and nothing more happens.
                let pods = world.pods();
                let runs = |pod: &Value| {
                    pod["spec"]["containers"][0]["image"] == "db:2" && pod["status"]["phase"] == "Running"
                };
                world.until(&pods, HELD, "the wave is held", runs).await;
                if self == Self::PausedMidWave {
                    world.patch_fleet(json!({"spec": {"paused": true}})).await;
                    world.until_db("it is paused", |db| db["status"]["phase"] == "Paused").await;
                }
            }
            Self::Stalled => {
                world.set_image("db:2-nope").await;
                world.until_db("it stalls", |db| condition(db, "Stalled").starts_with("True")).await;
            }
            Self::Rejected => {
                world.set_image("db:2-nope").await;
                let back = |db: &Value| {
                    db["status"]["rollout"].is_null() && condition(db, "Stalled").starts_with("True")
                };
                world.until_db("it was taken back", back).await;
                world
                    .patch_fleet(json!({"spec": {"updateStrategy": {"progressDeadlineSeconds": 10_000}}}))
                    .await;
            }
            Self::Paused => {
                world.patch_fleet(json!({"spec": {"paused": true}})).await;
                world.set_image("db:2").await;
                let waits = |db: &Value| {
                    condition(db, "RolloutInProgress") == "True/Paused" || db["status"]["phase"] == "Paused"
                };
                world.until_db("it waits", waits).await;
                world.until_quiet().await;
            }
            Self::Partition => {
                world.set_image("db:2").await;
                let held = |db: &Value| condition(db, "UpToDate") == "Unknown/PartitionHeld";
                world.until_db("the partition holds", held).await;
                world.until_quiet().await;
            }
            Self::ReadyToPromote => {
                world.set_image("db:2").await;
                world.until_db("a person is waited for", stage("AwaitingPromotion")).await;
            }
            Self::EntrantsWait => {
                world.set_image("db:2-unready").await;
                world.until_db("the new nodes are waited for", stage("AwaitingEntrants")).await;
                world.until_quiet().await;
            }
            Self::Retiring => {
                world.set_image("db:2").await;
                world.until_db("traffic has moved", stage("Retiring")).await;
            }
            Self::Approval | Self::HookFailed => {
                world.set_image("db:2").await;
                let state = if self == Self::Approval { "AwaitingApproval" } else { "Failed" };
                world.until_db("a hook is waited for", |db| db["status"]["hooks"][0]["state"] == state).await;
            }
            Self::HardFork => {
                world.set_image("db:2").await;
                let asked = |db: &Value| {
                    db["status"]["rollout"]["message"]
                        .as_str()
                        .is_some_and(|m| m.contains("halt at height 1000"))
                };
                world.until_db("the old nodes are asked to halt", asked).await;
            }
        }
    }
}

/// A namespace in which fleets are brought to a stage, changed, and observed.
struct Scene {
    world: World,
    sidecars: Sidecars,
    log: Arc<Mutex<Log>>,
    folder: std::path::PathBuf,
    watching: tokio::task::JoinHandle<()>,
}

impl Drop for Scene {
    fn drop(&mut self) {
        self.watching.abort();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

impl Scene {
    async fn new() -> Self {
        let mut world = World::without_operator("planned").await;
        world.start_operator(&["--hook-host", "127.0.0.1"]).await;
        let sidecars = Sidecars::start(&world).await;
        let log: Arc<Mutex<Log>> = Arc::default();
        let (told, nodes) = (log.clone(), world.nodes());
        let watching = tokio::spawn(async move {
            let mut events = watcher::watcher(nodes, watcher::Config::default()).boxed();
            while let Some(event) = events.next().await {
                let mut log = told.lock().unwrap();
                match event {
                    Ok(Event::Apply(node) | Event::InitApply(node)) => {
                        let grant = node.data["spec"]["grantID"].as_str().unwrap_or_default();
                        log.stands(node.metadata.name.clone().unwrap(), grant);
                    }
                    Ok(Event::Delete(node)) => log.went(node.metadata.name.unwrap()),
                    Ok(Event::Init | Event::InitDone) | Err(_) => {}
                }
            }
        });
        let folder =
            std::env::temp_dir().join(format!("windlass-planned-{}-{}", std::process::id(), &*world.ns));
        std::fs::create_dir_all(&folder).unwrap();
        Self { world, sidecars, log, folder, watching }
    }

    /// The forecast and the exit code of `plan`.
    async fn said(&self, words: &[&str]) -> (i32, Value) {
        let ran = windlass(&self.world, &[&["plan", "-o", "json"], words].concat()).await;
        assert_eq!(ran.err, "", "{words:?}");
        (ran.code, serde_json::from_str(&ran.out).unwrap_or_else(|e| panic!("{e}: {}", ran.out)))
    }

    /// Deletes the fleet and its objects.
    async fn clear(&self) {
        let fleets = self.world.fleets();
        if !self.world.db().await.is_null() {
            self.world.delete(&fleets, "db").await;
        }
        self.world.until(&fleets, "db", "it is gone", Value::is_null).await;
        for _ in 0..1200 {
            let left =
                [self.world.list(&self.world.nodes()).await, self.world.list(&self.world.pods()).await]
                    .concat();
            if left.is_empty() {
                self.world.steer(HELD, "default").await;
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("nodes of a fleet that is gone stay");
    }

    /// One change in one stage.
    async fn case(&self, stage: Stage, waits: &str, seed: u64, tally: &Mutex<BTreeMap<String, u32>>) {
        let world = &self.world;
        let mut chance = Chance(seed * 7_919 + 13);
        for _ in 0..3 {
            chance.below(2);
        }
        stage.bring(world, &self.sidecars, &mut chance).await;
        let before = world.db().await;
        let (what, patch) = change(&mut chance, seed, &before);
        let mut context = format!("{stage:?}, seed {seed}: {what}");
        eprintln!("{context}");

        let mark = world.cp.audit_mark().await;
        let (_, stands) = self.said(&["nd/db"]).await;
        let said_waits = stands["waits"].as_array().unwrap();
        let waits_for = |words: &str| said_waits.iter().any(|wait| wait.as_str().unwrap().contains(words));
        assert!(
            if waits.is_empty() { said_waits.is_empty() } else { waits_for(waits) },
            "{context}: {stands:#}"
        );
        let file = self.folder.join("db.json");
        let mut spec = before["spec"].clone();
        json_patch::merge(&mut spec, &patch["spec"]);
        let manifest = json!({"apiVersion": "windlass.dev/v1alpha1", "kind": "NodeDeployment", "metadata": {"name": "db"}, "spec": spec});
        std::fs::write(&file, manifest.to_string()).unwrap();
        let (code, said) = self.said(&["-f", file.to_str().unwrap()]).await;
        context = format!("{context}\nover {:#}\nwith code {code} it was said {said:#}", before["status"]);
        let audit = world.cp.audit_since(mark).await;
        let writes = audit.namespace(&world.ns).write_attempts().user("admin").agent("windlass/");
        assert_eq!(writes.count(), 0, "to look ahead writes nothing: {context}\n{:?}", writes.entries());
        let outcome = said["outcome"].as_str().unwrap().to_owned();
        assert_eq!(
            code,
            match outcome.as_str() {
                "Nothing" => 0,
                "Changes" => 2,
                _ => 1,
            },
            "{context}"
        );
        *tally.lock().unwrap().entry(format!("{stage:?}: {outcome}")).or_default() += 1;

        self.log.lock().unwrap().take();
        let params = kube::api::PatchParams::default();
        let applied = world.fleets().patch("db", &params, &kube::api::Patch::Merge(&patch)).await;
        let applied = match applied {
            Ok(applied) => serde_json::to_value(applied).unwrap(),
            Err(error) => {
                assert_eq!(outcome, "Refused", "{context}\n{error}");
                assert!(error.to_string().contains(said["refused"].as_str().unwrap()), "{context}\n{error}");
                return;
            }
        };
        let expected = differing(&before["spec"], &applied["spec"]);
        assert_eq!(said_to_differ(&said), expected, "the fields: {context}");
        world
            .until_db("the change is seen", |db| {
                db["status"]["observedGeneration"] == db["metadata"]["generation"]
            })
            .await;
        world.steer(HELD, "default").await;
        self.until_right(&before, &said, &context).await;
    }

    /// Waits until the forecast has happened, and nothing more does. People who are waited for act.
    async fn until_right(&self, before: &Value, said: &Value, context: &str) {
        let mut wrong = String::new();
        for _ in 0..6 {
            let db = self.world.db().await;
            if stage("AwaitingPromotion")(&db) && db["spec"]["paused"] != true {
                windlass(&self.world, &["promote", "nd/db"]).await;
            }
            if db["status"]["hooks"][0]["state"] == "AwaitingApproval" {
                windlass(&self.world, &["approve", "nd/db"]).await;
            }
            let after = self.world.until_quiet().await;
            let seen = self.log.lock().unwrap().seen();
            wrong = match judged(before, said, &after, &seen) {
                Ok(true) => return,
                Ok(false) => format!("it is not over: {seen:?}\n{:#}", after["status"]),
                Err(sentence) => format!("{sentence}: {seen:?}\n{:#}", after["status"]),
            };
        }
        panic!("{wrong}\n{context}");
    }
}

/// True if the forecast has happened. `Ok(false)`: as far as it went, and it continues.
fn judged(before: &Value, said: &Value, after: &Value, seen: &[Seen]) -> Result<bool, &'static str> {
    let status = &after["status"];
    let right = |holds: bool, sentence: &'static str| if holds { Ok(()) } else { Err(sentence) };
    let names = |pick: fn(&Seen) -> bool| -> Vec<String> {
        seen.iter().filter(|seen| pick(seen)).map(|seen| seen.name().clone()).collect()
    };
    let granted = names(|seen| matches!(seen, Seen::Granted(_)));
    let made = names(|seen| matches!(seen, Seen::Made(_)));
    let gone = names(|seen| matches!(seen, Seen::Gone(_)));
    if said["outcome"] == "Refused" {
        let refused = condition(after, "UpToDate").ends_with("/InvalidSpec");
        right(refused, "what is refused is not called so")?;
        let conditions = status["conditions"].as_array().unwrap();
        let message = conditions.iter().find(|c| c["type"] == "UpToDate").map(|c| &c["message"]);
        let is_said = message
            .zip(said["refused"].as_str())
            .is_some_and(|(message, sentence)| is_said(message.as_str().unwrap(), sentence, &after["spec"]));
        right(is_said, "it is refused with another sentence")?;
        return Ok(true);
    }
    let has =
        |words: &str| said["waits"].as_array().unwrap().iter().any(|w| w.as_str().unwrap().contains(words));
    // What follows a promotion is unknown before it is over.
    let promoting = has("cannot be taken back any more");
    let paused = after["spec"]["paused"] == true;
    if !promoting {
        right(status["requestedRolloutHash"] == said["targetHash"], "another target is wanted")?;
        let begun = status["plan"]["id"] != before["status"]["plan"]["id"];
        right(begun == said["recipe"].is_string(), "whether a rollout begins")?;
        right(!begun || status["plan"]["recipe"] == said["recipe"], "another recipe is carried out")?;
    }
    if paused {
        right(granted.is_empty(), "a node is granted something while the fleet is paused")?;
    }
    let is_over = is_applied(after) && status["rollout"].is_null() && !paused;
    let follows = |actions: &[&str], seen: &[String]| follows_beside(said, actions, seen, is_over);
    right(follows(&["Update", "Adopt"], &granted), "who is granted")?;
    right(follows(&["Create"], &made), "who is made")?;
    right(follows(&["Remove"], &gone), "who leaves")?;
    right(promoting || serves(said, before, after, is_over), "who serves")?;
    // A rollout that is forecast to be blocked may be, and so may one that cannot run or waits for something.
    let conditions = |types: &[&str]| types.iter().any(|type_| condition(after, type_).starts_with("True"));
    let stands = paused
        || promoting
        || conditions(&["Stalled"])
        || condition(after, "UpToDate").ends_with("PartitionHeld")
        || status["rollout"]["nodes"]["failed"].as_i64().unwrap_or_default() > 0
        || status["hooks"][0]["state"] == "Failed"
        || stage("AwaitingEntrants")(after);
    Ok(is_over || stands)
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "nightly"]
async fn what_is_said_of_generated_changes_is_what_happens() {
    let asked = std::env::var("WINDLASS_PLANNED").ok().map(|text| text.parse::<usize>().expect("a number"));
    let only =
        std::env::var("WINDLASS_PLANNED_SEED").ok().map(|text| text.parse::<usize>().expect("a number"));
    let cases: Vec<usize> = match only {
        Some(seed) => vec![seed],
        None => (0..asked.unwrap_or(FEW)).collect(),
    };
    let (next, tally) = (Mutex::new(cases.iter()), Mutex::new(BTreeMap::new()));
    let failed: Mutex<Vec<String>> = Mutex::default();
    let began = std::time::Instant::now();
    let workers = (0..AT_ONCE.min(cases.len())).map(|_| async {
        let mut scene = Scene::new().await;
        loop {
            let Some(seed) = next.lock().unwrap().next().copied() else { return };
            let (stage, waits) = STAGES[seed % STAGES.len()];
            let case = std::panic::AssertUnwindSafe(scene.case(stage, waits, seed as u64, &tally));
            if let Err(panic) = case.catch_unwind().await {
                let text =
                    panic.downcast_ref::<String>().cloned().unwrap_or_else(|| "it panicked".to_owned());
                failed.lock().unwrap().push(format!("seed {seed}: {text}"));
                // Start afresh, so that nothing of it affects the next case.
                scene = Scene::new().await;
            } else {
                scene.clear().await;
            }
        }
    });
    futures::future::join_all(workers).await;
    let (failed, tally) = (failed.into_inner().unwrap(), tally.into_inner().unwrap());
    println!("{} changes in {} s: {tally:#?}", cases.len(), began.elapsed().as_secs());
    assert!(failed.is_empty(), "{} of {} failed:\n{}", failed.len(), cases.len(), failed.join("\n\n"));
    let stages: BTreeSet<&str> = tally.keys().filter_map(|key| key.split(':').next()).collect();
    assert!(only.is_some() || stages.len() == STAGES.len(), "{stages:?}");
}
