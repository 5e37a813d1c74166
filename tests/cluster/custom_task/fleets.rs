//! Custom tasks of a fleet: an operator that asks an outside service before a rollout, notifies it afterwards, and
//! warms up new nodes before they take over. See docs/how-to/custom-tasks.md.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::task::JoinHandle;
use windlass::engine::{Env, Outcome, Policy, Recipe, Task, TaskContext, TaskError};
use windlass::operator::Operator;
use windlass::tasks::FleetScope;

use windlass_harness::kit::{World, condition, fleet};

/// `await-consent`: waits until an outside service agrees to the rollout.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct AwaitConsent {
    of: String,
}

#[typetag::serde(name = "await-consent")]
#[async_trait]
impl Task for AwaitConsent {
    async fn run(&self, cx: &TaskContext<'_>) -> Result<Outcome, TaskError> {
        let fleet = cx.env.get::<FleetScope>()?;
        if fleet.facts().spec.paused {
            return Ok(Outcome::waiting("waiting for the fleet to be resumed: spec.paused is true"));
        }
        let outside = cx.env.get::<Outside>()?;
        let question = format!("{} to {}", fleet.fleet.meta.name, cx.plan.target_hash);
        if outside.ask(&cx.record.id, question) {
            return Ok(Outcome::Done);
        }
        Ok(Outcome::recheck(format!("waiting for {} to agree", self.of), Duration::from_millis(200)))
    }

    fn policy(&self, _: &Env) -> Policy {
        Policy::default().skippable()
    }
}

/// `tell`: notifies an outside service. Idempotent, and cannot be skipped.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Tell {
    what: String,
}

#[typetag::serde(name = "tell")]
#[async_trait]
impl Task for Tell {
    async fn run(&self, cx: &TaskContext<'_>) -> Result<Outcome, TaskError> {
        let (fleet, outside) = (cx.env.get::<FleetScope>()?, cx.env.get::<Outside>()?);
        let serves = fleet.facts().set.clone();
        outside
            .0
            .lock()
            .unwrap()
            .told
            .insert(cx.record.id.clone(), format!("{}: {serves} serves", self.what));
        if outside.0.lock().unwrap().deaf {
            return Ok(Outcome::recheck("waiting for somebody to listen", Duration::from_millis(200)));
        }
        Ok(Outcome::Done)
    }
}

/// The outside service.
#[derive(Clone, Default)]
struct Outside(Arc<Mutex<Kept>>);

#[derive(Default)]
struct Kept {
    asked: BTreeMap<String, String>,
    told: BTreeMap<String, String>,
    agrees: bool,
    deaf: bool,
}

impl Outside {
    fn ask(&self, id: &str, question: String) -> bool {
        let mut kept = self.0.lock().unwrap();
        kept.asked.insert(id.to_owned(), question);
        kept.agrees
    }

    fn agree(&self, agrees: bool) {
        self.0.lock().unwrap().agrees = agrees;
    }

    fn asked(&self) -> Vec<String> {
        self.0.lock().unwrap().asked.values().cloned().collect()
    }

    fn told(&self) -> Vec<String> {
        self.0.lock().unwrap().told.values().cloned().collect()
    }
}

const IN_PLACE: &str = "
name: InPlace
tasks:
  - {type: await-consent, params: {of: the shop}}
  - type: update-node-specs
  - type: await-spec-update
  - type: mark-ready
  - {type: tell, params: {what: rolled}}
";

const BLUE_GREEN: &str = "
name: BlueGreen
tasks:
  - type: create-entrants
  - type: await-nodes-running
  - {type: await-consent, params: {of: the shop}}
  - type: await-caught-up
  - type: await-promotion
  - {type: tell, params: {what: before}}
  - type: switch-traffic
  - {type: tell, params: {what: after}}
  - type: retire-incumbents
";

struct Scene {
    world: World,
    outside: Outside,
    operator: JoinHandle<()>,
}

impl Scene {
    async fn new(prefix: &str) -> Self {
        let world = World::without_operator(prefix).await;
        let outside = Outside::default();
        let operator = start(&world, &outside).await;
        Self { world, outside, operator }
    }

    async fn another_operator(&mut self) {
        self.operator.abort();
        let _ = (&mut self.operator).await;
        self.operator = start(&self.world, &self.outside).await;
    }

    /// Waits until the fleet's plan is at a task with this message; returns the task.
    async fn until_at(&self, type_: &str, words: &str) -> Value {
        let at = |db: &Value| {
            let task = super::current_task(db);
            task["type"] == type_ && super::text(&task["message"]).contains(words)
        };
        super::current_task(&self.world.until_db(&format!("its plan is at {type_}"), at).await)
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        self.operator.abort();
    }
}

async fn start(world: &World, outside: &Outside) -> JoinHandle<()> {
    let token = world.cp.service_account_token(&world.ns, "windlass").await.expect("a token");
    let client = world.cp.client_for_token(&token).await;
    let recipe = |yaml| Recipe::parse(yaml).expect("a recipe");
    let operator = Operator::new(client)
        .recipe(recipe(IN_PLACE))
        .recipe(recipe(BLUE_GREEN))
        .provide(outside.clone())
        .namespaces([world.ns.to_string()]);
    tokio::spawn(async { operator.run(std::future::pending()).await.expect("it runs") })
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_wait_for_the_custom_fleet_task() {
    let mut scene = Scene::new("ownfleet").await;
    scene.world.settled_fleet(fleet(2, "db:1")).await;
    assert!(scene.outside.asked().is_empty(), "the creation of a fleet is no rollout");
    let old = scene.world.pod_uids().await;
    scene.world.set_image("db:2").await;
    scene.until_at("await-consent", "waiting for the shop to agree").await;
    let db = scene.world.db().await;
    assert_eq!(db["status"]["rollout"]["message"], "waiting for the shop to agree", "{db:#}");
    scene.another_operator().await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(scene.world.pod_uids().await, old, "no node moves, under another operator neither");
    let asked = scene.outside.asked();
    assert_eq!(asked.len(), 1, "one task, one question: {asked:?}");
    let target = super::text(&scene.world.db().await["status"]["requestedRolloutHash"]);
    assert_eq!(asked[0], format!("db to {target}"));

    scene.outside.0.lock().unwrap().deaf = true;
    scene.outside.agree(true);
    scene.until_at("tell", "waiting for somebody to listen").await;
    assert_eq!(scene.world.images().await, ["db:2", "db:2"]);
    let db = scene.world.db().await;
    assert_eq!(condition(&db, "UpToDate"), "Unknown/Applying", "it is not over: {db:#}");
    assert_ne!(db["status"]["lastCompletedRolloutHash"], db["status"]["requestedRolloutHash"]);
    scene.outside.0.lock().unwrap().deaf = false;
    let db = scene.world.until_applied().await;
    assert_eq!(scene.outside.told(), ["rolled: first serves"]);
    let types: Vec<_> =
        db["status"]["plan"]["tasks"].as_array().unwrap().iter().map(|t| &t["type"]).collect();
    assert_eq!(types, ["await-consent", "update-node-specs", "await-spec-update", "mark-ready", "tell"]);
}
