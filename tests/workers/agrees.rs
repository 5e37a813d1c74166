//! The real Temporal passes the cases that it shares with the fake one.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use windlass_temporal::port::{DeploymentName, Temporal};

use crate::{stage::Stage, worker::Worker};
use windlass_harness::temporal::fake::cases::{CASES, Ground};

struct Real {
    stage: Stage,
    workers: Mutex<HashMap<String, Worker>>,
}

#[async_trait(?Send)]
impl Ground for Real {
    fn temporal(&self) -> Arc<dyn Temporal> {
        self.stage.port.clone()
    }

    fn deployment(&self) -> DeploymentName {
        self.stage.name.clone()
    }

    async fn work(&self, build: &str, queues: &[String]) {
        let worker = self.stage.worker_with(build, &[("TASK_QUEUES", &queues.join(","))]).await;
        self.workers.lock().unwrap().insert(build.to_owned(), worker);
    }

    async fn stop(&self, build: &str) {
        self.workers.lock().unwrap().remove(build);
    }

    async fn start(&self, id: &str, queue: &str, pinned: Option<&str>) -> Result<(), String> {
        let pinned = pinned.map(|build| (self.stage.name.as_str(), build));
        let started = self.stage.person.start("Hold", &self.workflow_id(id), queue, pinned).await;
        started.map_err(|status| status.message().to_owned())
    }

    /// Unique on the server.
    fn workflow_id(&self, id: &str) -> String {
        format!("{}-{id}", self.stage.name)
    }

    async fn end(&self, id: &str) -> String {
        self.stage.person.let_go(&self.workflow_id(id)).await.expect("a signal");
        self.stage.person.result(&self.workflow_id(id)).await
    }

    async fn take_over(&self, who: &str) {
        self.stage.person.take_over(self.stage.name.as_str(), who).await.expect("anyone may");
    }

    async fn ramp_by_hand(&self, build: &str, percent: f32, who: &str) {
        self.stage.person.ramp(self.stage.name.as_str(), build, percent, who).await.expect("a ramp");
    }

    async fn moment(&self) {
        tokio::time::sleep(Duration::from_millis(150)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn real_temporal_matches_the_shared_cases() {
    let cases = CASES.iter().map(async |(name, case)| {
        let ground = Real { stage: Stage::new(name).await, workers: Mutex::default() };
        case(&ground).await;
        println!("{name}");
    });
    futures::future::join_all(cases).await;
}
