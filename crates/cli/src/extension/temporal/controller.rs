//! The controller of `WorkerDeployments` within the operator, and the Secrets that it reads.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use futures::FutureExt;
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::Secret as KubeSecret;
use kube::api::Api;
use kube::{Client, ResourceExt};
use windlass::internal::HookRules;
use windlass::operator::{Controller, HookClient};
use windlass_clock::SystemClock;
use windlass_kube_port::{KubeCluster, View};
use windlass_temporal::per_version::GroupKind;
use windlass_temporal::{Metrics, Workers};
use windlass_temporal_grpc::{GrpcConnections, Secret, Secrets};

use super::hooks::{WorkerHooks, peers};

/// The controller of `WorkerDeployments`.
pub struct WorkersController {
    namespaces: Vec<String>,
    instance: String,
    hook_rules: HookRules,
    peers: Arc<dyn HookClient>,
    metrics: Metrics,
    resources: Vec<GroupKind>,
}

impl WorkersController {
    /// The controller in these namespaces, or in all, with these rules for hooks.
    #[must_use]
    pub fn new(namespaces: &[String], instance: &str, hook_rules: HookRules) -> Self {
        Self {
            namespaces: namespaces.to_vec(),
            instance: instance.to_owned(),
            hook_rules,
            peers: peers(),
            metrics: Metrics::default(),
            resources: GroupKind::defaults(),
        }
    }

    /// Sets the kinds that `spec.perVersion` may have.
    #[must_use]
    pub fn resources(mut self, kinds: &[GroupKind]) -> Self {
        self.resources = kinds.to_vec();
        self
    }
}

impl Controller for WorkersController {
    fn run(&self, client: Client, shutdown: BoxFuture<'static, ()>) -> BoxFuture<'static, ()> {
        let secrets = Arc::new(KubeSecrets { client: client.clone() });
        let cluster = Arc::new(KubeCluster::new(client.clone(), View::shared()));
        let hooks =
            WorkerHooks::new(self.hook_rules.clone(), self.peers.clone(), cluster, Arc::new(SystemClock));
        let workers = Workers::new(client, Arc::new(GrpcConnections::new(secrets)))
            .namespaces(self.namespaces.clone())
            .instance(self.instance.clone())
            .hooks(hooks.clone())
            .metrics(self.metrics.clone())
            .resources(self.resources.clone());
        let shutdown = shutdown.shared();
        async move {
            tokio::select! {
                () = workers.run(shutdown) => {}
                () = hooks.run() => {}
            }
        }
        .boxed()
    }

    fn metrics(&self) -> String {
        self.metrics.text()
    }
}

/// Reads Secrets from the cluster.
struct KubeSecrets {
    client: Client,
}

#[async_trait]
impl Secrets for KubeSecrets {
    async fn read(&self, namespace: &str, name: &str) -> Result<Option<Secret>, String> {
        let api: Api<KubeSecret> = Api::namespaced(self.client.clone(), namespace);
        let found = api.get_opt(name).await.map_err(|error| crate::reader::sentence(&error))?;
        Ok(found.map(|secret| Secret {
            version: format!(
                "{}/{}",
                secret.uid().unwrap_or_default(),
                secret.resource_version().unwrap_or_default()
            ),
            data: secret
                .data
                .unwrap_or_default()
                .into_iter()
                .map(|(key, value)| (key, value.0))
                .collect::<BTreeMap<_, _>>(),
        }))
    }
}
