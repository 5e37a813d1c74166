//! Tasks of an embedder's own in the plans of nodes and fleets.

use std::sync::atomic::{AtomicBool, Ordering};

use serde::{Deserialize, Serialize};

use super::fleet::{fleet_spec, template};
use super::*;
use crate::engine::{Outcome, Recipe, Task, TaskContext, TaskError};

/// Counts its runs in its progress, and never ends.
#[derive(Debug, Deserialize, Serialize)]
struct CountRuns {}

#[typetag::serde(name = "test-count-runs")]
#[async_trait]
impl Task for CountRuns {
    async fn run(&self, cx: &TaskContext<'_>) -> Result<Outcome, TaskError> {
        let runs = cx.record.progress["runs"].as_u64().unwrap_or_default() + 1;
        let message = "waiting for the snapshot".to_owned();
        Ok(Outcome::Progress { message, recheck_after: None, progress: json!({"runs": runs}) })
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
    let registry = Registry::builtin_recipes().unwrap().with_recipe(Recipe::parse(recipe).unwrap());
    stage.cx.registry = Arc::new(registry);
    stage
}

#[tokio::test(start_paused = true)]
async fn the_progress_of_a_task_of_ones_own_is_stored_before_its_next_run() {
    let stage = with_recipe(
        "{name: NodeUpdate, tasks: [{type: apply-stateful-set}, {type: apply-service}, {type: replace-pod}, \
         {type: observe-image}, {type: test-count-runs}, {type: mark-ready}]}",
    );
    stage.put(Kind::StatefulNode, "db-0", json!({"spec": template("v1")}));
    for _ in 0..10 {
        stage.look_at_node().await.unwrap();
        stage.pass(2).await;
        stage.play();
    }
    let runs = || stage.node()["status"]["plan"]["tasks"][4]["progress"]["runs"].as_u64();
    let before = runs().expect("it runs");
    for run in 1..=3 {
        stage.look_at_node().await.unwrap();
        assert_eq!(runs(), Some(before + run));
    }
}

#[tokio::test(start_paused = true)]
async fn a_rollout_does_not_complete_over_a_node_that_went_down_while_a_task_of_ones_own_came_last() {
    let mut stage = with_recipe(
        "{name: InPlace, tasks: [{type: update-node-specs}, {type: await-spec-update}, {type: mark-ready}, \
         {type: test-soak}]}",
    );
    let is_over = IsOver::default();
    stage.cx.env = Env::new().with(is_over.clone());
    stage.put(Kind::NodeDeployment, "db", json!({"spec": fleet_spec(2, "v1")}));
    stage.settle().await;
    let completed = |stage: &Stage| stage.fleet()["status"]["lastCompletedRolloutHash"].clone();
    let first = completed(&stage);
    stage.change_fleet(&json!({"spec": {"template": {"spec": {"image": "db:v2"}}}}));
    stage.settle().await;
    assert_eq!(
        stage.fleet()["status"]["plan"]["tasks"][3]["state"],
        "Running",
        "{:#}",
        stage.fleet()["status"]
    );
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
