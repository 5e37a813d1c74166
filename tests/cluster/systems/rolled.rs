//! A sample fleet of `examples/`, and the operator that rolls it.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::{process::Child, sync::Mutex};
use windlass_process_kubelet::Images;

use windlass_harness::controlplane::Error;
use windlass_harness::systems::cluster::{Cluster, Place, applied};
use windlass_harness::systems::programs::add_windlass;
use windlass_harness::systems::writer::Writer;

/// Serializes measurements.
pub static ALONE: Mutex<()> = Mutex::const_new(());

/// How long the writer runs before and after a measurement.
pub const CALM: Duration = Duration::from_secs(2);

/// A fleet, and its operator.
pub struct Fleet {
    pub place: Place<'static>,
    name: &'static str,
    _operator: Child,
}

impl Fleet {
    /// The sample fleet of this name in a namespace of its own, with all nodes ready. `programs` adds the programs of
    /// its pods.
    pub async fn new(
        namespace: &str,
        name: &'static str,
        programs: fn(&Images) -> Result<(), Error>,
    ) -> Result<Self, Error> {
        let cluster = Cluster::shared().await;
        let images = cluster.images.clone();
        tokio::task::spawn_blocking(move || programs(&images)).await??;
        add_windlass(&cluster.images, env!("CARGO_BIN_EXE_windlass"));
        let place = cluster.namespace(namespace).await;
        let operator = place.operator(env!("CARGO_BIN_EXE_windlass")).await?;
        place.apply(&format!("{name}/fleet.yaml")).await?;
        let fleet = Self { place, name, _operator: operator };
        fleet.until(applied).await?;
        Ok(fleet)
    }

    /// The addresses of its three nodes' pods.
    pub fn addresses(&self) -> Vec<String> {
        let of = |ordinal| self.place.cluster.address(&self.place.ns, &format!("{}-{ordinal}-0", self.name));
        (0..3).map(of).collect()
    }

    /// Merge-patches the template.
    pub async fn want(&self, template: &Value) -> Result<(), Error> {
        let patch = json!({"spec": {"template": {"spec": template}}}).to_string();
        self.place.kubectl(&["patch", "nd", self.name, "--type=merge", "-p", &patch]).await.map(drop)
    }

    /// Changes the number of nodes, and waits until that many are ready and no other is left.
    pub async fn scale(&self, replicas: u32) -> Result<(), Error> {
        let wanted = format!("--replicas={replicas}");
        self.place.kubectl(&["scale", "nd", self.name, &wanted]).await?;
        let is_scaled = |fleet: &Value| {
            let counts = [&fleet["status"]["replicas"], &fleet["status"]["readyReplicas"]];
            applied(fleet) && fleet["status"]["rollout"].is_null() && counts == [replicas; 2]
        };
        self.until(is_scaled).await?;
        let next = format!("{}-{replicas}", self.name);
        self.place.until(("windlass.dev/v1alpha1", "StatefulNode", &next), Value::is_null).await.map(drop)
    }

    /// Waits until `holds` is true for the fleet.
    pub async fn until(&self, holds: impl Fn(&Value) -> bool) -> Result<Value, Error> {
        self.place.until(("windlass.dev/v1alpha1", "NodeDeployment", self.name), holds).await
    }

    /// Rolls out another template under a writer, and waits for its end and for `after`; returns the longest time
    /// without an acknowledged write.
    pub async fn rolled(
        &self,
        template: &Value,
        writer: &Writer,
        after: impl AsyncFnOnce() -> Result<(), Error>,
    ) -> Result<Duration, Error> {
        tokio::time::sleep(CALM).await;
        writer.forget_gaps();
        self.want(template).await?;
        let fleet = self.until(applied).await?;
        let last = fleet["status"]["history"].as_array().and_then(|history| history.last()).cloned();
        assert_eq!(last.unwrap_or_default()["outcome"], "Complete", "{:#}", fleet["status"]["history"]);
        after().await?;
        tokio::time::sleep(CALM).await;
        Ok(writer.tally().longest_gap)
    }
}
