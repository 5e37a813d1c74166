//! The controller of WorkerDeployments: the entry point for the operator and for programs that embed it.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::{FutureExt, StreamExt};
use kube::Client;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tracing::warn;
use windlass_clock::{SharedClock, SystemClock};
use windlass_core::api::names::{LABEL_MANAGED_BY, MANAGER};
use windlass_core::observed::{Meta, ObservedObject};
use windlass_kube_port::client::GuardedClient;
use windlass_kube_port::events::EVENT_FLUSH_TIMEOUT;
use windlass_kube_port::watch::{Namespaces, watch};
use windlass_kube_port::workqueue::{Request, run_workqueue};
use windlass_kube_port::{Cache, Cluster, ClusterError, EventRecorder, Key, Kind, KubeCluster, View};

use crate::api::names::LABEL_WORKERS;
use crate::connect::Place;
use crate::context::Context;
use crate::hooks::Hooks;
use crate::metrics::Metrics;
use crate::per_version::GroupKind;
use crate::port::{Connections, Pace};
use crate::reconcile;
use crate::resources::Resources;
use crate::usage::{self, Effects, Usage};

/// The most concurrent reconciles.
const CONCURRENCY: u16 = 16;
/// Changes of an object within this time cause one reconcile.
pub(crate) const DEBOUNCE: Duration = Duration::from_millis(100);
/// The requeue after a conflict: the facts were stale.
const AFTER_CONFLICT: Duration = Duration::from_millis(250);
/// The requeue after another error, before jitter.
const AFTER_ERROR: Duration = Duration::from_secs(2);

/// The controller of WorkerDeployments.
pub struct Workers {
    client: Client,
    pub(crate) connections: Arc<dyn Connections>,
    namespaces: Vec<String>,
    pub(crate) clock: SharedClock,
    pub(crate) metrics: Metrics,
    pub(crate) hooks: Option<Arc<dyn Hooks>>,
    instance: String,
    resources: Vec<GroupKind>,
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
            resources: GroupKind::defaults(),
        }
    }

    /// Watches only these namespaces; an empty list means all.
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

    /// Sets the hook runner. Without one, Windlass rejects objects with hooks.
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

    /// Sets the kinds that `spec.perVersion` may have.
    #[must_use]
    pub fn resources(mut self, kinds: impl IntoIterator<Item = GroupKind>) -> Self {
        self.resources = kinds.into_iter().collect();
        self
    }

    /// A client for single objects.
    pub(crate) fn client(&self) -> Client {
        self.client.clone()
    }

    /// Runs until `shutdown` resolves, then finishes the reconciles in progress.
    pub async fn run(self, shutdown: impl Future<Output = ()> + Send + Sync + 'static) {
        let (shutdown, pace) = (shutdown.shared(), Arc::default());
        let scopes = Namespaces::of(&self.namespaces);
        let running = scopes.iter().map(|scope| self.run_scope(scope, &pace, shutdown.clone()));
        futures::future::join_all(running).await;
    }

    async fn run_scope(&self, scope: &Namespaces, pace: &Arc<Pace>, shutdown: impl Future<Output = ()>) {
        let view = View::shared();
        let client = GuardedClient::new(&self.client).client();
        let cluster: Arc<dyn Cluster> = Arc::new(KubeCluster::new(client, view.clone()));
        let (events, send) =
            EventRecorder::new(cluster.clone(), view.clone(), self.clock.clone(), &self.instance);
        let mut event_sender = JoinSet::new();
        event_sender.spawn(send);
        let (requests, queued) = unbounded_channel();
        let resources = Resources::new(
            self.client.clone(),
            scope.clone(),
            view.clone(),
            requests.clone(),
            self.resources.clone(),
        );
        let context = Arc::new(Context::new(cluster, view.clone(), events, self, pace.clone(), resources));
        context.followed.requeue(requests.clone());
        let _watches = self.start_watches(scope, &view, &context.cluster, requests);
        let reconcile = {
            let context = context.clone();
            move |key| reconcile_one(context.clone(), key)
        };
        let mut shutdown = std::pin::pin!(shutdown);
        tokio::select! {
            biased;
            () = listed(&view) => {}
            () = &mut shutdown => return,
        }
        run_workqueue(queued, CONCURRENCY, reconcile, |_| Duration::ZERO, None, shutdown).await;
        // The sender ends with the last recorder.
        drop(context);
        let _ = timeout(EVENT_FLUSH_TIMEOUT, event_sender.join_next()).await;
    }

    /// Starts the watches, which end when the result is dropped. Each change requests a reconcile.
    fn start_watches(
        &self,
        scope: &Namespaces,
        view: &Arc<View>,
        cluster: &Arc<dyn Cluster>,
        requests: UnboundedSender<Request>,
    ) -> JoinSet<()> {
        let mut tasks = JoinSet::new();
        let owned = format!("{LABEL_WORKERS},{LABEL_MANAGED_BY}={MANAGER}");
        let api = |kind: Kind| {
            let scope = if kind.is_namespaced() { scope } else { &Namespaces::All };
            scope.api(&self.client, view, kind)
        };
        let streams = [
            (Kind::WorkerDeployment, None, (|v| &v.workers) as fn(&View) -> &Cache<ObservedObject>),
            (Kind::TemporalConnection, None, |v| &v.connections),
            (Kind::ClusterTemporalConnection, None, |v| &v.cluster_connections),
            (Kind::Deployment, Some(owned.as_str()), |v| &v.deployments),
            (Kind::ControllerRevision, Some(owned.as_str()), |v| &v.worker_revisions),
        ];
        let streams =
            streams.map(|(kind, labels, cache)| (kind, watch(api(kind), labels, kind, view.clone(), cache)));
        let (reports, changed) = unbounded_channel();
        tasks.spawn(usage::report(cluster.clone(), view.clone(), scope.clone(), changed));
        let changes =
            Changes { requests: requests.clone(), reports, view: view.clone(), usage: Arc::default() };
        for (kind, mut stream) in streams {
            let changes = changes.clone();
            tasks.spawn(async move {
                while let Some(meta) = stream.next().await {
                    changes.on_change(kind, &meta);
                }
            });
        }
        let (own_writes, mut written) = unbounded_channel();
        view.notify(own_writes);
        tasks.spawn(async move {
            while let Some((kind, meta)) = written.recv().await {
                changes.on_change(kind, &meta);
            }
        });
        if let Some(mut answered) = self.hooks.as_ref().map(|hooks| hooks.answered()) {
            let scope = scope.clone();
            tasks.spawn(async move {
                while let Some((namespace, name)) = answered.next().await {
                    if scope.has(&namespace) {
                        let _ = requests.send(Request::after(Key::new(namespace, name), DEBOUNCE));
                    }
                }
            });
        }
        tasks
    }
}

/// The receivers of changes.
#[derive(Clone)]
struct Changes {
    requests: UnboundedSender<Request>,
    reports: UnboundedSender<Place>,
    view: Arc<View>,
    usage: Arc<Mutex<Usage>>,
}

impl Changes {
    /// Requests a reconcile of a WorkerDeployment when it, one of its children or its connection changes.
    fn on_change(&self, kind: Kind, changed: &Meta) {
        let mut usage = self.usage.lock().unwrap_or_else(PoisonError::into_inner);
        let Effects { requeue, report } = usage.changed(&self.view, kind, changed);
        let owner = match kind {
            Kind::WorkerDeployment => Some(changed.name.as_str()),
            _ => changed.label(LABEL_WORKERS),
        };
        let owner = owner.map(|owner| Key::new(&changed.namespace, owner));
        // The receivers are dropped only when the controller stops.
        for key in owner.into_iter().chain(requeue) {
            let _ = self.requests.send(Request::after(key, DEBOUNCE));
        }
        for place in report {
            let _ = self.reports.send(place);
        }
    }
}

async fn listed(view: &View) {
    while !view.has_workers() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Reconciles an object. Returns the requeue delay; `None` if the object no longer exists.
async fn reconcile_one(context: Arc<Context>, key: Key) -> Option<Duration> {
    match Box::pin(reconcile::reconcile(&context, &key)).await {
        Ok(after) => after,
        Err(ClusterError::Conflict { .. } | ClusterError::NotFound { .. }) => Some(AFTER_CONFLICT),
        Err(error) => {
            warn!(object = %key, %error, "the reconcile of a WorkerDeployment failed; retrying");
            Some(AFTER_ERROR + Duration::from_millis(context.jitter(&key.name, 2_000)))
        }
    }
}
