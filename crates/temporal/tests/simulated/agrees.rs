//! The fake Temporal passes the cases that it shares with the real one. `tests/temporal/agrees.rs` of the root
//! package runs them against a real server.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use windlass_sim::{Cluster, Options};
use windlass_temporal::port::{BuildId, DeploymentName, Temporal};
use windlass_temporal_fake::cases::{CASES, Ground};
use windlass_temporal_fake::{FakeTemporal, Settings};

struct Board {
    fake: FakeTemporal,
    deployment: DeploymentName,
}

#[async_trait(?Send)]
impl Ground for Board {
    fn temporal(&self) -> Arc<dyn Temporal> {
        Arc::new(self.fake.clone())
    }

    fn deployment(&self) -> DeploymentName {
        self.deployment.clone()
    }

    async fn work(&self, build: &str, queues: &[String]) {
        let queues: Vec<&str> = queues.iter().map(String::as_str).collect();
        self.fake.poll(&self.deployment, &BuildId::new(build), &queues, 1);
    }

    async fn stop(&self, build: &str) {
        self.fake.poll(&self.deployment, &BuildId::new(build), &[], 0);
    }

    async fn start(&self, id: &str, _: &str, pinned: Option<&str>) -> Result<(), String> {
        let pinned = pinned.map(BuildId::new);
        let started = self.fake.start(&self.deployment, id, pinned.as_ref(), 99.0);
        started.map(drop).ok_or_else(|| "nobody would carry it out".to_owned())
    }

    fn workflow_id(&self, id: &str) -> String {
        id.to_owned()
    }

    async fn end(&self, id: &str) -> String {
        self.fake.end(id).unwrap().to_string()
    }

    async fn take_over(&self, who: &str) {
        self.fake.manage(&self.deployment, Some(who));
    }

    async fn ramp_by_hand(&self, build: &str, percent: f32, who: &str) {
        let build = Some(BuildId::new(build)).filter(|build| !build.as_str().is_empty());
        self.fake.ramp_by_hand(&self.deployment, build.as_ref(), percent, who);
    }

    async fn moment(&self) {
        tokio::time::sleep(Duration::from_millis(150)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn fake_temporal_matches_the_shared_cases() {
    for (name, case) in CASES {
        println!("{name}");
        let cluster = Cluster::start(Options::seeded(7));
        let fake = FakeTemporal::new(cluster.clock(), Settings::default());
        case(&Board { fake, deployment: DeploymentName::new(format!("shop/{name}")) }).await;
    }
}
