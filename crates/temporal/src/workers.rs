//! The controller of WorkerDeployments: the entry point for the operator and for programs that embed it.

use std::sync::Arc;
use std::time::Duration;

use futures::{FutureExt, StreamExt};
use kube::api::{Api, DynamicObject};
use kube::runtime::controller::{Action, Config as ControllerConfig, Controller, Error as ControllerError};
use kube::runtime::reflector::ObjectRef;
use kube::runtime::watcher;
use kube::{Client, ResourceExt};
use tracing::{debug, error, warn};
use windlass_clock::{SharedClock, SystemClock};
use windlass_core::api::names::{LABEL_MANAGED_BY, MANAGER};
use windlass_engine::panics::caught;

use crate::api::names::LABEL_WORKERS;
use crate::cluster::{ClusterError, Kind};
use crate::context::Context;
use crate::hooks::Hooks;
use crate::metrics::Metrics;
use crate::port::Connections;
use crate::reconcile;

/// The most concurrent reconciles.
const CONCURRENCY: u16 = 16;
/// Changes of an object within this time cause one reconcile.
const DEBOUNCE: Duration = Duration::from_millis(100);

/// The controller of WorkerDeployments.
pub struct Workers {
    client: Client,
    connections: Arc<dyn Connections>,
    namespaces: Vec<String>,
    clock: SharedClock,
    metrics: Metrics,
    hooks: Option<Arc<dyn Hooks>>,
    instance: String,
}

impl Workers {
    /// A controller for all namespaces.
    #[must_use]
    pub fn new(client: Client, connections: Arc<dyn Connections>) -> Self {
        Self {
            client,
            connections,
            namespaces: Vec::new(),
            clock: Arc::new(SystemClock),
            metrics: Metrics::default(),
            hooks: None,
            instance: "windlass".to_owned(),
        }
    }

    /// Watches these namespaces only; none means all.
    #[must_use]
    pub fn namespaces(mut self, namespaces: impl IntoIterator<Item = String>) -> Self {
        self.namespaces = namespaces.into_iter().collect();
        self
    }

    /// Sets the clock.
    #[must_use]
    pub fn clock(mut self, clock: SharedClock) -> Self {
        self.clock = clock;
        self
    }

    /// Sets the metrics.
    #[must_use]
    pub fn metrics(mut self, metrics: Metrics) -> Self {
        self.metrics = metrics;
        self
    }

    /// Sets what carries out hooks. Without it objects with hooks are refused.
    #[must_use]
    pub fn hooks(mut self, hooks: Arc<dyn Hooks>) -> Self {
        self.hooks = Some(hooks);
        self
    }

    /// Sets the name of this replica, in events.
    #[must_use]
    pub fn instance(mut self, instance: impl Into<String>) -> Self {
        self.instance = instance.into();
        self
    }

    /// Runs until `shutdown` resolves, then finishes the reconciles under way.
    pub async fn run(self, shutdown: impl Future<Output = ()> + Send + Sync + 'static) {
        let context = Context::new(
            self.client.clone(),
            self.connections.clone(),
            self.clock.clone(),
            self.metrics.clone(),
            &self.instance,
        );
        let context = Arc::new(context.with_hooks(self.hooks.clone()));
        let shutdown = shutdown.shared();
        let places: Vec<Option<String>> = if self.namespaces.is_empty() {
            vec![None]
        } else {
            self.namespaces.iter().cloned().map(Some).collect()
        };
        let running = places
            .into_iter()
            .map(|place| control(self.client.clone(), place, context.clone(), shutdown.clone()));
        futures::future::join_all(running).await;
    }
}

async fn control(
    client: Client,
    namespace: Option<String>,
    context: Arc<Context>,
    shutdown: impl Future<Output = ()> + Send + Sync + 'static,
) {
    let api = |kind: Kind| -> Api<DynamicObject> {
        match &namespace {
            Some(namespace) => Api::namespaced_with(client.clone(), namespace, &kind.resource()),
            None => Api::all_with(client.clone(), &kind.resource()),
        }
    };
    let workers = Kind::Workers.resource();
    let theirs = watcher::Config::default().labels(&format!("{LABEL_WORKERS},{LABEL_MANAGED_BY}={MANAGER}"));
    let owner = {
        let workers = workers.clone();
        move |child: DynamicObject| {
            let name = child.labels().get(LABEL_WORKERS).cloned()?;
            let of = ObjectRef::new_with(&name, workers.clone());
            Some(of.within(&child.namespace().unwrap_or_default()))
        }
    };
    let answered = {
        let (workers, namespace) = (workers.clone(), namespace.clone());
        let answers = context.hooks.as_ref().map(|hooks| hooks.answered().left_stream());
        let answers = answers.unwrap_or_else(|| futures::stream::pending().right_stream());
        answers.filter_map(move |(of, name)| {
            let is_here = namespace.as_ref().is_none_or(|here| *here == of);
            let found = is_here.then(|| ObjectRef::new_with(&name, workers.clone()).within(&of));
            std::future::ready(found)
        })
    };
    let controller = Controller::new_with(api(Kind::Workers), watcher::Config::default(), workers)
        .watches_with(api(Kind::Deployment), Kind::Deployment.resource(), theirs, owner)
        .reconcile_on(answered)
        .with_config(ControllerConfig::default().concurrency(CONCURRENCY).debounce(DEBOUNCE))
        .graceful_shutdown_on(shutdown);
    let results = controller.run(reconcile, after_error, context.clone());
    results
        .for_each(|result| async {
            match result {
                // Also covers an object whose finalizer a person removed.
                Err(ControllerError::ObjectNotFound(of)) => {
                    context.forget(of.namespace.as_deref().unwrap_or_default(), &of.name);
                }
                Err(error) => debug!(%error, "a look at a WorkerDeployment ended with an error"),
                Ok(_) => {}
            }
        })
        .await;
}

async fn reconcile(object: Arc<DynamicObject>, context: Arc<Context>) -> Result<Action, ClusterError> {
    let (namespace, name) = (object.namespace().unwrap_or_default(), object.name_any());
    let looked = Box::pin(reconcile::reconcile(&context, &namespace, &name));
    match unless_it_panics(&namespace, &name, looked).await {
        Ok(Some(after)) => Ok(Action::requeue(after)),
        Ok(None) => Ok(Action::await_change()),
        // The facts were stale: decide again.
        Err(ClusterError::Conflict(_) | ClusterError::Gone(_)) => {
            Ok(Action::requeue(Duration::from_millis(250)))
        }
        Err(error) => Err(error),
    }
}

/// Makes an error, which is retried, of a panic in the reconcile of an object. The controller would pass the panic on and
/// end the operator with all other objects, and the next one would read the same object and panic again.
async fn unless_it_panics<T>(
    namespace: &str,
    name: &str,
    reconcile: impl Future<Output = Result<T, ClusterError>>,
) -> Result<T, ClusterError> {
    caught("it panicked", reconcile).await.unwrap_or_else(|why| {
        error!(namespace, name, why, "a look at a WorkerDeployment panicked");
        Err(ClusterError::Transient(why))
    })
}

#[allow(clippy::needless_pass_by_value, reason = "the signature is the controller's")]
fn after_error(object: Arc<DynamicObject>, error: &ClusterError, context: Arc<Context>) -> Action {
    warn!(namespace = object.namespace(), name = object.name_any(), %error, "a look at a WorkerDeployment is tried again");
    let spread = context.jitter(&object.name_any(), 2_000);
    Action::requeue(Duration::from_millis(2_000 + spread))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_panic_in_a_look_is_an_error_that_is_retried_and_anything_else_is_as_it_was() {
        let look_at = |name: &'static str| async move {
            assert!(name.is_empty(), "a bug in {name}");
            Ok::<u32, ClusterError>(7)
        };
        let looked = unless_it_panics("shop", "orders", look_at("orders")).await;
        assert!(
            matches!(&looked, Err(ClusterError::Transient(why)) if why == "it panicked: a bug in orders"),
            "{looked:?}"
        );
        assert!(matches!(unless_it_panics("shop", "orders", look_at("")).await, Ok(7)));
        let gone = async { Err::<u32, _>(ClusterError::Gone("orders".to_owned())) };
        assert!(matches!(unless_it_panics("shop", "orders", gone).await, Err(ClusterError::Gone(_))));
    }
}
