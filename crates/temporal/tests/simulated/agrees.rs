//! The played Temporal does what the real one does: the cases that both have to agree in. `tests/temporal/agrees.rs` of the
//! root package has the real one do the same.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use windlass_sim::{Cluster, Options};
use windlass_temporal::played::cases::{CASES, Ground};
use windlass_temporal::played::{Played, Settings};
use windlass_temporal::port::{BuildId, DeploymentName, Temporal};

struct Board {
    played: Played,
    deployment: DeploymentName,
}

#[async_trait(?Send)]
impl Ground for Board {
    fn temporal(&self) -> Arc<dyn Temporal> {
        Arc::new(self.played.clone())
    }

    fn deployment(&self) -> DeploymentName {
        self.deployment.clone()
    }

    async fn work(&self, build: &str, queues: &[String]) {
        let queues: Vec<&str> = queues.iter().map(String::as_str).collect();
        self.played.poll(&self.deployment, &BuildId::new(build), &queues, 1);
    }

    async fn stop(&self, build: &str) {
        self.played.poll(&self.deployment, &BuildId::new(build), &[], 0);
    }

    async fn start(&self, id: &str, _: &str, pinned: Option<&str>) -> Result<(), String> {
        let pinned = pinned.map(BuildId::new);
        let started = self.played.start(&self.deployment, id, pinned.as_ref(), 99.0);
        started.map(drop).ok_or_else(|| "nobody would carry it out".to_owned())
    }

    async fn end(&self, id: &str) -> String {
        self.played.end(id).unwrap().to_string()
    }

    async fn take_over(&self, who: &str) {
        self.played.manage(&self.deployment, Some(who));
    }

    async fn ramp_by_hand(&self, build: &str, percent: f32, who: &str) {
        let build = Some(BuildId::new(build)).filter(|build| !build.as_str().is_empty());
        self.played.ramp_by_hand(&self.deployment, build.as_ref(), percent, who);
    }

    async fn moment(&self) {
        tokio::time::sleep(Duration::from_millis(150)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn the_played_temporal_does_what_the_real_one_does() {
    for (name, case) in CASES {
        println!("{name}");
        let cluster = Cluster::start(Options::seeded(7));
        let played = Played::new(cluster.clock(), Settings::default());
        case(&Board { played, deployment: DeploymentName::new(format!("shop/{name}")) }).await;
    }
}
