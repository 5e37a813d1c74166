//! Tasks of an embedder's own in the plans of nodes and fleets.

use std::sync::atomic::{AtomicBool, Ordering};

use serde::{Deserialize, Serialize};

use super::fleet::{fleet_spec, template};
use super::*;
use crate::engine::{Env, Outcome, Policy, Recipe, Task, TaskContext, TaskError};

/// Counts its runs in its progress, and never ends.
#[derive(Debug, Deserialize, Serialize)]
struct CountRuns {}

#[typetag::serde(name = "test-count-runs")]
#[async_trait]
impl Task for CountRuns {
    async fn run(&self, cx: &TaskContext<'_>) -> Result<Outcome, TaskError> {
        let runs = cx.record.progress["runs"].as_u64().unwrap_or_default() + 1;
        let message = "waiting for the snapshot".to_owned();
        let recheck_after = Some(Duration::from_secs(30));
        Ok(Outcome::Progress { message, recheck_after, progress: json!({"runs": runs}) })
    }
}

/// Whether [`Soak`] is over.
#[derive(Clone, Default)]
struct IsOver(Arc<AtomicBool>);

/// Waits until the test says that it is over.
#[derive(Debug, Deserialize, Serialize)]
struct Soak {}

#[typetag::serde(name = "test-soak")]
#[async_trait]
impl Task for Soak {
    async fn run(&self, cx: &TaskContext<'_>) -> Result<Outcome, TaskError> {
        let is_over = cx.env.get::<IsOver>()?.0.load(Ordering::SeqCst);
        Ok(if is_over { Outcome::Done } else { Outcome::waiting("waiting for a while") })
    }
}

fn with_recipe(recipe: &str) -> Stage {
    let mut stage = Stage::new();
    let registry = Registry::builtin_recipes().with_recipe(Recipe::parse(recipe).unwrap());
    stage.cx.registry = Arc::new(registry);
    stage
}

/// A node that was played until its update, by this recipe, goes no further.
async fn updating(recipe: &str) -> Stage {
    let stage = with_recipe(recipe);
    stage.put(Kind::StatefulNode, "db-0", json!({"spec": template("v1")}));
    for _ in 0..10 {
        stage.look_at_node().await.unwrap();
        stage.pass(2).await;
        stage.play();
    }
    stage
}

/// A node whose update counts the runs of a task.
async fn counting_runs() -> Stage {
    updating(
        "{name: NodeUpdate, tasks: [{type: apply-stateful-set}, {type: apply-service}, {type: replace-pod}, \
         {type: observe-image}, {type: test-count-runs}, {type: mark-ready}]}",
    )
    .await
}

#[tokio::test(start_paused = true)]
async fn custom_task_progress_is_stored_before_its_next_run() {
    let stage = counting_runs().await;
    let runs = || stage.node()["status"]["plan"]["tasks"][4]["progress"]["runs"].as_u64();
    let before = runs().expect("it runs");
    for run in 1..=3 {
        stage.pass(2).await;
        stage.look_at_node().await.unwrap();
        assert_eq!(runs(), Some(before + run));
    }
}

#[tokio::test(start_paused = true)]
async fn progress_write_does_not_rerun_the_task_immediately() {
    let stage = counting_runs().await;
    stage.look_at_node().await.unwrap();
    let before = stage.node()["status"]["plan"].clone();
    assert!(before["tasks"][4]["progress"]["runs"].is_u64(), "{before:#}");
    stage.calls();
    for _ in 0..3 {
        // Its own write is news of the node.
        let next = stage.look_at_node().await.unwrap();
        assert!(seconds(next).is_some_and(|after| after <= 2), "{next:?}");
        assert_eq!(stage.node()["status"]["plan"], before);
    }
    let written = stage.calls().into_iter().filter(|call| call.starts_with("patch StatefulNode"));
    assert_eq!(written.collect::<Vec<_>>(), [""; 0]);
    stage.pass(2).await;
    stage.look_at_node().await.unwrap();
    assert_ne!(stage.node()["status"]["plan"]["tasks"][4]["progress"], before["tasks"][4]["progress"]);
}

/// A fleet in a rollout whose last task, of an embedder's own, waits. Returns what last completed as well.
async fn soaking(is_over: &IsOver) -> (Stage, Value) {
    let mut stage = with_recipe(
        "{name: InPlace, tasks: [{type: update-node-specs}, {type: await-spec-update}, {type: mark-ready}, \
         {type: test-soak}]}",
    );
    stage.cx.env = Env::new().with(is_over.clone());
    stage.put(Kind::NodeDeployment, "db", json!({"spec": fleet_spec(2, "v1")}));
    stage.settle().await;
    let first = stage.fleet()["status"]["lastCompletedRolloutHash"].clone();
    stage.change_fleet(&json!({"spec": {"template": {"spec": {"image": "db:v2"}}}}));
    stage.settle().await;
    let status = stage.fleet()["status"].clone();
    assert_eq!(status["plan"]["tasks"][3]["state"], "Running", "{status:#}");
    (stage, first)
}

#[tokio::test(start_paused = true)]
async fn rollout_waits_for_node_unavailable_after_last_custom_task() {
    let is_over = IsOver::default();
    let (stage, first) = soaking(&is_over).await;
    let completed = |stage: &Stage| stage.fleet()["status"]["lastCompletedRolloutHash"].clone();
    stage.node_is_down("db-1");
    is_over.0.store(true, Ordering::SeqCst);
    for _ in 0..5 {
        stage.look_at_fleet().await.unwrap();
        stage.pass(2).await;
    }
    assert_eq!(
        (stage.fleet()["status"]["plan"]["state"].as_str(), completed(&stage)),
        (Some("Active"), first.clone())
    );
    stage.settle().await;
    assert_eq!(stage.fleet()["status"]["plan"]["state"], "Complete");
    assert_ne!(completed(&stage), first);
}

#[tokio::test(start_paused = true)]
async fn end_of_a_custom_task_is_stored_once_while_its_plan_continues() {
    let is_over = IsOver::default();
    let (stage, _) = soaking(&is_over).await;
    let writes = || {
        let calls = stage.calls().into_iter();
        calls.filter(|call| call.starts_with("patch NodeDeployment")).count()
    };
    stage.calls();
    stage.node_is_down("db-1");
    stage.look_at_fleet().await.unwrap();
    assert_eq!(writes(), 1, "progress is written once a second at most, and that was it");
    is_over.0.store(true, Ordering::SeqCst);
    stage.look_at_fleet().await.unwrap();
    let plan = stage.fleet()["status"]["plan"].clone();
    assert_eq!((&plan["state"], &plan["tasks"][3]["state"]), (&json!("Active"), &json!("Complete")));
    assert_eq!(writes(), 1);
    for _ in 0..3 {
        stage.look_at_fleet().await.unwrap();
        assert_eq!((writes(), &stage.fleet()["status"]["plan"]), (0, &plan));
    }
}

/// Fails, and holds its plan.
#[derive(Debug, Deserialize, Serialize)]
struct CheckBackup {}

#[typetag::serde(name = "test-check-backup")]
#[async_trait]
impl Task for CheckBackup {
    async fn run(&self, _: &TaskContext<'_>) -> Result<Outcome, TaskError> {
        Err(TaskError::terminal("there is no backup"))
    }

    fn policy(&self, _: &Env) -> Policy {
        Policy::default().holding()
    }
}

#[tokio::test(start_paused = true)]
async fn failed_custom_task_with_hold_blocks_its_plan() {
    let held = |plan: &Value, task: usize| (plan["state"].clone(), plan["tasks"][task]["state"].clone());
    let stage = updating(
        "{name: NodeUpdate, tasks: [{type: apply-stateful-set}, {type: apply-service}, {type: test-check-backup}, \
         {type: replace-pod}, {type: observe-image}, {type: mark-ready}]}",
    )
    .await;
    assert_eq!(held(&stage.node()["status"]["plan"], 2), (json!("Active"), json!("Failed")));
    let stage = with_recipe(
        "{name: InPlace, tasks: [{type: test-check-backup}, {type: update-node-specs}, {type: await-spec-update}, \
         {type: mark-ready}]}",
    );
    stage.put(Kind::NodeDeployment, "db", json!({"spec": fleet_spec(2, "v1")}));
    stage.settle().await;
    stage.change_fleet(&json!({"spec": {"template": {"spec": {"image": "db:v2"}}}}));
    stage.settle().await;
    assert_eq!(held(&stage.fleet()["status"]["plan"], 0), (json!("Active"), json!("Failed")));
}
