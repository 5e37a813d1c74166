//! A worker as a process of its own, where no pod is needed.

use std::process::{Child, Command, Stdio};

use windlass_harness::controlplane::Error;
use windlass_harness::temporal::frontend::Server;
use windlass_harness::temporal::programs;

/// A running worker. Dropping it kills its process.
pub struct Worker(Child);

impl Worker {
    /// Starts a worker of a version, with additional environment variables.
    pub async fn start(
        server: &Server,
        deployment: &str,
        build: &str,
        more: &[(&str, &str)],
    ) -> Result<Self, Error> {
        let binary = tokio::task::spawn_blocking(|| programs::WORKER.path()).await??;
        let child = Command::new(binary)
            .envs([
                ("TEMPORAL_ADDRESS", server.address().as_str()),
                ("TEMPORAL_NAMESPACE", "default"),
                ("TEMPORAL_DEPLOYMENT_NAME", deployment),
                ("TEMPORAL_WORKER_BUILD_ID", build),
                ("TASK_QUEUES", deployment),
            ])
            .envs(more.iter().copied())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        Ok(Self(child))
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
