//! The parts of the command line for versioned Temporal workers: the controller, its Secrets, and `delete`.

mod hooks;

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use clap::Args;
use futures::FutureExt;
use k8s_openapi::api::core::v1::Secret as KubeSecret;
use kube::api::{Api, DeleteParams, Patch, PatchParams};
use kube::{Client, ResourceExt};
use serde_json::json;
use windlass_temporal::api::names::ANNOTATION_DELETE;
use windlass_temporal::{Metrics, Workers};
use windlass_temporal_grpc::{GrpcConnections, Secret, Secrets};

use super::target::{Kind, Named};
use hooks::{WorkerHooks, peers};
use windlass::internal::HookRules;
use windlass::operator::ExtraController;
use windlass_clock::SystemClock;
use windlass_core::api::names::CLI_MANAGER;
use windlass_kube_port::{KubeCluster, View};

/// The controller of `WorkerDeployments` within the operator.
#[derive(Clone, Default)]
pub struct Controller {
    pub metrics: Metrics,
}

impl Controller {
    /// The future to run next to the operator's own controllers, with hooks under these rules. Fails only if no HTTP
    /// client for hooks can be made.
    pub fn run_with(
        &self,
        namespaces: &[String],
        instance: &str,
        rules: HookRules,
    ) -> Result<ExtraController, String> {
        let (namespaces, instance, metrics) =
            (namespaces.to_vec(), instance.to_owned(), self.metrics.clone());
        let http = peers()?;
        Ok(Arc::new(move |client, shutdown| {
            let secrets = Arc::new(KubeSecrets { client: client.clone() });
            let cluster = Arc::new(KubeCluster::new(client.clone(), View::shared()));
            let hooks = WorkerHooks::new(rules.clone(), http.clone(), cluster, Arc::new(SystemClock));
            let workers = Workers::new(client, Arc::new(GrpcConnections::new(secrets)))
                .namespaces(namespaces.clone())
                .instance(instance.clone())
                .hooks(hooks.clone())
                .metrics(metrics.clone());
            let shutdown = shutdown.shared();
            async move {
                tokio::select! {
                    () = workers.run(shutdown) => {}
                    () = hooks.run() => {}
                }
            }
            .boxed()
        }))
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

/// The arguments of `windlass delete`.
#[derive(Debug, Args)]
pub struct DeleteArgs {
    #[command(flatten)]
    named: Named,
    /// Wait for no workflow: the workers of all versions go at once, and workflows that are pinned to them get no further. Under
    /// deletionPolicy Retain they stay, and Temporal is not waited for
    #[arg(long)]
    now: bool,
}

/// What is deleted along with an object, in words.
fn what_goes(is_retained: bool, now: bool) -> &'static str {
    match (is_retained, now) {
        (true, _) => "its deletionPolicy is Retain, so that routing and workers stay as they are",
        (false, true) => "its workers go now",
        (false, false) => "its versions go when no workflow runs on them",
    }
}

/// Deletes `WorkerDeployments`.
pub async fn delete(arguments: DeleteArgs) -> Result<(), String> {
    let cluster = arguments.named.flags.cluster().await?;
    for located in arguments.named.located(&cluster).await? {
        let target = &located.target;
        target.require(Kind::Workers, "delete")?;
        let api = target.api(&cluster.client, &located.namespace);
        let sentence = |error: kube::Error| format!("{target}: {}", crate::reader::sentence(&error));
        if arguments.now {
            let patch = json!({"metadata": {"annotations": {ANNOTATION_DELETE: "now"}}});
            let params =
                PatchParams { field_manager: Some(CLI_MANAGER.to_owned()), ..PatchParams::default() };
            api.patch(&target.name, &params, &Patch::Merge(patch)).await.map_err(sentence)?;
        }
        // An object with a finalizer is returned; it stays for now.
        let left = api.delete(&target.name, &DeleteParams::default()).await.map_err(sentence)?.left();
        let spec = left.as_ref().map(|object| &object.data["spec"]);
        let is_retained = spec.is_some_and(|spec| spec["deletionPolicy"] == "Retain");
        super::print(&format!("{target} is deleted: {}\n", what_goes(is_retained, arguments.now)))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::what_goes;

    #[test]
    fn nothing_is_said_to_go_that_is_retained() {
        for now in [true, false] {
            assert!(what_goes(true, now).contains("stay as they are"));
            assert!(what_goes(false, now).ends_with(if now { "go now" } else { "runs on them" }));
        }
    }
}
