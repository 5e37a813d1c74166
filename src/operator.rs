//! Builds and runs the controllers: the entry point for programs that embed Windlass.
//!
//! ```no_run
//! # async fn run() -> Result<(), Box<dyn std::error::Error>> {
//! use windlass::operator::Operator;
//!
//! let client = windlass::operator::connect(kube::Config::infer().await?)?;
//! Operator::new(client).run(std::future::pending()).await?;
//! # Ok(())
//! # }
//! ```

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::{BoxFuture, join_all};
use kube::Client;
use serde::de::DeserializeOwned;
use thiserror::Error;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::task::JoinSet;
use tracing::{Instrument, field, info, info_span, warn};

use crate::clock::{SharedClock, SystemClock, monotonic};
use crate::controller::failures::Failures;
use crate::controller::{
    Context, ReconcileError, events::Events, reconcile_fleet, reconcile_node, reconcile_rollout,
};
use crate::engine::{Env, Recipe, RecipeError, Registry, Task, backoff};
use crate::hooks::HookRules;
use crate::observe::neighbours::Neighbours;
use crate::outward::{HttpClient, KeptConnections};
use crate::planner::fleet::gate::Limits;
use crate::probe::SidecarProber;
use crate::probe::hooks::{HookOwner, HookProber, WhileLeading};
use crate::render::RenderOptions;
use crate::sidecar::{HttpSidecar, SidecarClient};
use crate::traces::{Spans, Traces};
use known::{Known, Uids};
use windlass_kube_port::PortMetrics;
use windlass_kube_port::client::GuardedClient;
use windlass_kube_port::events::EVENT_FLUSH_TIMEOUT;
use windlass_kube_port::follow::Followed;
use windlass_kube_port::watch::Namespaces;
use windlass_kube_port::workqueue::{Counted, Request, run_workqueue};
use windlass_kube_port::{Cluster, Key, Kind, KubeCluster, View};

use lease::{Candidate, Election, Fence};

pub use crate::hooks::{Host, PrometheusUrl};
pub use crate::outward::{FileAccess, Origin, Trust};
pub use crate::planner::fleet::gate::Limit;
pub use crate::probe::hooks::{HookClient, HookReply, HookRequest};
pub use health::Health;
pub use windlass_kube_port::client::connect;
pub use windlass_kube_port::lease;

mod health;
mod known;
mod triggers;

/// The default of [`Operator::concurrency`].
pub const DEFAULT_CONCURRENCY: u16 = 32;
/// The requeue delay after a conflict, if no event comes first. It doubles with each failure in a row, at most this
/// many times.
const AFTER_CONFLICT: Duration = Duration::from_millis(100);
const CONFLICT_DOUBLINGS: u32 = 6;
/// The longest time that a server's Retry-After is obeyed.
const MAX_RETRY_AFTER: Duration = Duration::from_mins(10);

/// Why the operator does not start, or stops.
#[derive(Debug, Error)]
pub enum OperatorError {
    /// A recipe does not fit the task types of this program.
    #[error("{0}")]
    Recipe(#[from] RecipeError),
    /// Another replica leads now, or the lease could not be renewed: this process has to be restarted.
    #[error("this replica lost the lease {0} and stops; after a restart it is on standby")]
    LostLease(String),
}

/// The operator: the controllers of fleets and nodes, and what they need to run.
pub struct Operator {
    client: Client,
    namespaces: Vec<String>,
    concurrency: u16,
    registry: Registry,
    env: Env,
    options: RenderOptions,
    clock: SharedClock,
    sidecars: Option<Arc<dyn SidecarClient>>,
    hook_client: Option<Arc<dyn HookClient>>,
    hook_rules: HookRules,
    instance: String,
    election: Option<Election>,
    health: Health,
    extra_controllers: Vec<Arc<dyn Controller>>,
    traces: Traces,
    keeps_caches: bool,
    stateful_sets: bool,
    drops_managed_fields: bool,
    drain_taints: Option<Vec<String>>,
    topology_from_nodes: bool,
    limits: Limits,
}

/// Another controller, which runs while this replica leads.
pub trait Controller: Send + Sync {
    /// Runs until `shutdown` resolves. The client sends writes only while this replica leads.
    fn run(&self, client: Client, shutdown: BoxFuture<'static, ()>) -> BoxFuture<'static, ()>;

    /// Its metrics, as a document of OpenMetrics; empty if it has none.
    fn metrics(&self) -> String {
        String::new()
    }
}

impl Operator {
    /// Creates an operator that uses this client, in all namespaces.
    ///
    /// With any client, requests time out, silent watches are restarted, and no write is sent twice. A client from
    /// [`connect`] also closes connections whose other side is gone, including idle ones, so that no request is lost on
    /// them.
    #[must_use]
    pub fn new(client: Client) -> Self {
        Self {
            client,
            namespaces: Vec::new(),
            concurrency: DEFAULT_CONCURRENCY,
            registry: Registry::builtin_recipes(),
            env: Env::new(),
            options: RenderOptions::default(),
            clock: Arc::new(SystemClock),
            sidecars: None,
            hook_client: None,
            hook_rules: HookRules::default(),
            instance: "windlass".to_owned(),
            election: None,
            health: Health::default(),
            extra_controllers: Vec::new(),
            traces: Traces::default(),
            keeps_caches: true,
            stateful_sets: false,
            drops_managed_fields: false,
            drain_taints: None,
            topology_from_nodes: false,
            limits: Limits::of_operator(),
        }
    }

    /// Removes the managed fields of StatefulNodes and their StatefulSets, which halves the API server's work for each
    /// write
    /// to them. No one can see then who wrote which field of them. Default: false.
    #[must_use]
    pub fn drop_managed_fields(mut self, drops: bool) -> Self {
        self.drops_managed_fields = drops;
        self
    }

    /// Moves the pods of nodes off machines that are cordoned or have one of these taints, as the wave allows. Needs the
    /// rights to read Kubernetes Nodes.
    #[must_use]
    pub fn drain(mut self, taints: impl IntoIterator<Item = String>) -> Self {
        self.drain_taints = Some(taints.into_iter().collect());
        self
    }

    /// Takes the failure domains of pods that have no label of their own from the labels of their machines. Needs the rights
    /// to read Kubernetes Nodes. Default: false.
    #[must_use]
    pub fn topology_from_nodes(mut self, reads: bool) -> Self {
        self.topology_from_nodes = reads;
        self
    }

    /// Limits how many fleets roll at the same time, for a cause or for all. Default: one at a time whose pods a new version
    /// of Windlass renders in another way.
    #[must_use]
    pub fn max_rollouts(mut self, limit: Limit) -> Self {
        self.limits = self.limits.with(limit);
        self
    }

    /// Runs the controller of StatefulSetRollouts, too. It watches all StatefulSets that Windlass did not create, and
    /// their pods.
    #[must_use]
    pub fn stateful_sets(mut self, stateful_sets: bool) -> Self {
        self.stateful_sets = stateful_sets;
        self
    }

    /// Restricts the operator to these namespaces. An empty list means all namespaces.
    #[must_use]
    pub fn namespaces(mut self, namespaces: impl IntoIterator<Item = String>) -> Self {
        self.namespaces = namespaces.into_iter().collect();
        self.namespaces.sort();
        self.namespaces.dedup();
        self
    }

    /// Sets the maximum number of concurrent reconciles of each kind, in each namespace that is watched separately.
    #[must_use]
    pub fn concurrency(mut self, concurrency: u16) -> Self {
        self.concurrency = concurrency.max(1);
        self
    }

    /// Adds a recipe. It replaces a built-in recipe of the same name.
    #[must_use]
    pub fn recipe(mut self, recipe: Recipe) -> Self {
        self.registry = self.registry.with_recipe(recipe);
        self
    }

    /// Adds a task type by its name in plans. The operator does not start if two types have the same name.
    #[must_use]
    pub fn task<T: Task + DeserializeOwned + 'static>(mut self, name: &'static str) -> Self {
        self.registry = self.registry.with_task::<T>(name);
        self
    }

    /// Provides a value to tasks, which get it by its type from their environment ([`Env::get`]).
    #[must_use]
    pub fn provide<T: Any + Send + Sync>(mut self, value: T) -> Self {
        self.env = self.env.with(value);
        self
    }

    /// Adds an annotation to every pod. It is part of the pod template hash.
    #[must_use]
    pub fn pod_annotation(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.options.pod_annotations.insert(key.into(), value.into());
        self
    }

    /// Begins each reconcile with empty caches: no decision may depend on them. For tests.
    #[doc(hidden)]
    #[must_use]
    pub fn without_caches(mut self) -> Self {
        self.keeps_caches = false;
        self
    }

    /// Sets the clock.
    #[must_use]
    pub fn clock(mut self, clock: SharedClock) -> Self {
        self.clock = clock;
        self
    }

    /// Sets the client for sidecars.
    #[must_use]
    pub fn sidecars(mut self, sidecars: Arc<dyn SidecarClient>) -> Self {
        self.sidecars = Some(sidecars);
        self
    }

    /// Allows requests of hooks to this host, in addition to the nodes of the fleet that has the hook.
    #[must_use]
    pub fn hook_host(mut self, host: Host) -> Self {
        self.hook_rules.hosts.insert(host);
        self
    }

    /// Sets the Prometheus server that hooks query.
    #[must_use]
    pub fn prometheus(mut self, url: PrometheusUrl) -> Self {
        self.hook_rules.prometheus = Some(url);
        self
    }

    /// Sets the certificates and credentials for that Prometheus server.
    #[must_use]
    pub fn prometheus_access(mut self, access: FileAccess) -> Self {
        self.hook_rules.prometheus_access = access;
        self
    }

    /// Sets the client for the peers of hooks.
    #[must_use]
    pub fn hook_client(mut self, client: Arc<dyn HookClient>) -> Self {
        self.hook_client = Some(client);
        self
    }

    /// Sets the name of this replica, which its events report.
    #[must_use]
    pub fn instance(mut self, instance: impl Into<String>) -> Self {
        self.instance = instance.into();
        self
    }

    /// Enables leader election: the operator acts only while this replica holds the Lease.
    #[must_use]
    pub fn elect(mut self, election: Election) -> Self {
        self.election = Some(election);
        self
    }

    /// Runs another controller next to the built-in ones, while this replica leads.
    #[must_use]
    pub fn with_controller(mut self, controller: Arc<dyn Controller>) -> Self {
        self.extra_controllers.push(controller);
        self
    }

    /// Exports ended rollouts, plans and tasks as spans.
    #[must_use]
    pub fn traces(mut self, spans: Arc<dyn Spans>) -> Self {
        self.traces = Traces::to(spans);
        self
    }

    /// A handle to the health and the metrics of the operator while it runs.
    #[must_use]
    pub fn health(&self) -> Health {
        self.health.clone()
    }

    /// Runs until `shutdown` resolves. Reconciles that run then are finished first.
    pub async fn run(self, shutdown: impl Future<Output = ()> + Send + 'static) -> Result<(), OperatorError> {
        self.registry.check_all()?;
        let sidecars: Arc<dyn SidecarClient> = match &self.sidecars {
            Some(sidecars) => sidecars.clone(),
            None => Arc::new(HttpSidecar::new(HttpSidecar::DEFAULT_TIMEOUT)),
        };
        let hooks: Arc<dyn HookClient> = match &self.hook_client {
            Some(client) => client.clone(),
            None => Arc::new(HttpClient::new(KeptConnections::None)),
        };
        let neighbours = Arc::new(Neighbours::new(self.limits.clone()));
        let peers = Peers { sidecars, hooks, neighbours };
        let registry = Arc::new(self.registry.clone());
        let shutdown = shutdown.boxed().shared();
        let Some(election) = self.election.clone() else {
            self.act(&registry, &peers, &Fence::default(), shutdown).await;
            return Ok(());
        };
        let name = format!("{}/{}", election.namespace, election.name);
        let health = self.health.clone();
        let client = GuardedClient::new(&self.client).counted(self.health.port_metrics()).client();
        let candidate = Candidate::new(&client, election, env!("CARGO_PKG_VERSION"), self.clock.clone());
        let candidate = candidate.on_standby_change(move |standing| health.record_standby(standing));
        tokio::select! {
            biased;
            () = candidate.lead() => {}
            () = shutdown.clone() => return Ok(()),
        }
        let fence = candidate.fence();
        // The caches are listed after the lease is acquired, so that they include the writes of the previous leader.
        let doubt = tokio::select! {
            biased;
            doubt = self.act(&registry, &peers, &fence, shutdown) => doubt,
            () = candidate.hold() => return Err(OperatorError::LostLease(name)),
        };
        // Another replica takes a released Lease at once, and counts on what it lists then.
        match doubt {
            Some(doubt) => candidate.leave(doubt).await,
            None => candidate.release().await,
        }
        Ok(())
    }

    /// Reconciles until the operator stops. Returns for how long a write with an unknown outcome may still be carried
    /// out, if there is one.
    async fn act(
        &self,
        registry: &Arc<Registry>,
        peers: &Peers,
        fence: &Fence,
        shutdown: impl Future<Output = ()> + Clone + Send + Sync + 'static,
    ) -> Option<Duration> {
        let scopes = Namespaces::of(&self.namespaces);
        let mut helpers = JoinSet::new();
        let mut event_senders = JoinSet::new();
        let views: Vec<Arc<View>> = scopes.iter().map(|_| View::shared()).collect();
        let of_rollouts = scopes.iter().filter(|_| self.stateful_sets);
        let of_rollouts: Vec<Arc<View>> = of_rollouts.map(|_| Arc::new(View::of_rollouts())).collect();
        let all: Vec<Arc<View>> = views.iter().chain(&of_rollouts).cloned().collect();
        for view in &all {
            view.count_requests(self.health.port_metrics());
            if let Some(taints) = &self.drain_taints {
                view.drain(taints.clone());
            }
            if self.topology_from_nodes {
                view.read_machine_labels();
            }
        }
        self.health.acts_on(all.clone());
        peers.neighbours.know(all.clone());
        let may_write = fence.clone();
        let client = GuardedClient::new(&self.client).counted(self.health.port_metrics());
        let client = client.fenced(move || may_write.is_open()).client();
        let mut running = Vec::new();
        for (scope, view) in scopes.iter().zip(views) {
            let context = self.context(view, &client, registry, peers, fence, &mut event_senders);
            running.push(self.run_scope(scope, context, &mut helpers, shutdown.clone()));
        }
        for (scope, view) in scopes.iter().zip(of_rollouts) {
            let context = self.context(view, &client, registry, peers, fence, &mut event_senders);
            running.push(self.run_rollouts(scope, context, &mut helpers, shutdown.clone()));
        }
        for controller in &self.extra_controllers {
            running.push(controller.run(client.clone(), shutdown.clone().boxed()));
        }
        join_all(running).await;
        helpers.shutdown().await;
        let _ = tokio::time::timeout(EVENT_FLUSH_TIMEOUT, async {
            while event_senders.join_next().await.is_some() {}
        })
        .await;
        event_senders.shutdown().await;
        all.iter().filter_map(|view| view.in_doubt_for()).max()
    }

    /// What the controllers of these caches need.
    fn context(
        &self,
        view: Arc<View>,
        client: &Client,
        registry: &Arc<Registry>,
        peers: &Peers,
        fence: &Fence,
        event_senders: &mut JoinSet<()>,
    ) -> Context {
        let (fence, may_ask) = (fence.clone(), fence.clone());
        let drops = self.drops_managed_fields && !view.is_of_rollouts();
        let port = KubeCluster::new(client.clone(), view.clone()).fenced(move || fence.is_open());
        let port = port.dropping_managed_fields(drops);
        let cluster: Arc<dyn Cluster> = Arc::new(port);
        let (events, send) = Events::new(cluster.clone(), view.clone(), self.clock.clone(), &self.instance);
        event_senders.spawn(send);
        let prober = SidecarProber::of_sidecars(peers.sidecars.clone(), cluster.clone());
        let hooks = Arc::new(WhileLeading::new(peers.hooks.clone(), move || may_ask.is_open()));
        let hook_prober = HookProber::of_hooks(hooks, cluster.clone(), self.clock.clone());
        Context {
            view,
            cluster,
            caches: Arc::default(),
            sightings: Arc::default(),
            followed: Arc::new(Followed::new(client.clone())),
            neighbours: peers.neighbours.clone(),
            status_writes: Arc::default(),
            failures: Arc::default(),
            holds: Arc::default(),
            deleted_jobs: Arc::default(),
            registry: registry.clone(),
            env: self.env.clone(),
            options: Arc::new(self.options.clone()),
            sidecars: peers.sidecars.clone(),
            prober,
            hook_rules: Arc::new(self.hook_rules.clone()),
            hook_prober,
            clock: self.clock.clone(),
            events,
            metrics: self.health.metrics.clone(),
            traces: self.traces.clone(),
        }
    }

    fn run_scope(
        &self,
        scope: &Namespaces,
        context: Context,
        helpers: &mut JoinSet<()>,
        shutdown: impl Future<Output = ()> + Clone + Send + Sync + 'static,
    ) -> BoxFuture<'static, ()> {
        let context = Arc::new(context);
        let (fleet_requests, fleets) = unbounded_channel();
        let (node_requests, nodes) = unbounded_channel();
        context.followed.requeue(fleet_requests.clone());
        let probing = probe(&context, fleet_requests.clone(), node_requests.clone());
        triggers::start(&self.client, scope, &context.view, fleet_requests, node_requests, helpers);
        let (health, metrics) = (self.health.clone(), self.health.port_metrics());
        let concurrency = self.concurrency;
        let scope = format!("{scope:?}");
        let keeps_caches = self.keeps_caches;
        async move {
            let listed = async {
                while !context.view.is_ready() {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
            };
            tokio::select! {
                biased;
                () = listed => {}
                () = shutdown.clone() => return,
            }
            info!(scope, "the caches are synced; starting to reconcile");
            let reconcile = |kind| {
                let reconciler = Arc::new(Reconciler {
                    kind,
                    context: context.clone(),
                    keeps_caches,
                    known: Known::default(),
                    health: health.clone(),
                });
                move |key| reconciler.clone().reconcile_traced(key)
            };
            let view = context.view.clone();
            let rest = move |fleet: &Key| {
                let uid = view.fleets.get(fleet).map(|known| known.meta.uid.clone()).unwrap_or_default();
                fleet_rest(view.nodes.group_size(&fleet.namespace, &uid))
            };
            let of_fleets = reconcile(Kind::NodeDeployment);
            let counted = |kind: Kind| Some(Counted { metrics: metrics.clone(), kind: kind.name() });
            let (fleets_counted, nodes_counted) =
                (counted(Kind::NodeDeployment), counted(Kind::StatefulNode));
            let fleets =
                run_workqueue(fleets, concurrency, of_fleets, rest, fleets_counted, shutdown.clone());
            let of_nodes = reconcile(Kind::StatefulNode);
            let nodes =
                run_workqueue(nodes, concurrency, of_nodes, |_| Duration::ZERO, nodes_counted, shutdown);
            // Once the controllers have stopped, nobody waits for requests that run in the background.
            tokio::select! {
                biased;
                _ = async { tokio::join!(fleets, nodes) } => {}
                () = probing => {}
            }
        }
        .boxed()
    }
}

impl Operator {
    /// Reconciles StatefulSetRollouts.
    fn run_rollouts(
        &self,
        scope: &Namespaces,
        context: Context,
        helpers: &mut JoinSet<()>,
        shutdown: impl Future<Output = ()> + Clone + Send + Sync + 'static,
    ) -> BoxFuture<'static, ()> {
        let context = Arc::new(context);
        let (send, requests) = unbounded_channel();
        let triggers = triggers::of_rollouts(&self.client, scope, &context.view, send, helpers);
        let hooks = context.hook_prober.clone();
        let reconciler = Arc::new(Reconciler {
            kind: Kind::StatefulSetRollout,
            context: context.clone(),
            keeps_caches: self.keeps_caches,
            known: Known::default(),
            health: self.health.clone(),
        });
        let (metrics, concurrency) = (self.health.port_metrics(), self.concurrency);
        async move {
            let listed = async {
                while !context.view.is_ready() {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
            };
            tokio::select! {
                biased;
                () = listed => {}
                () = shutdown.clone() => return,
            }
            let counted = Some(Counted { metrics, kind: Kind::StatefulSetRollout.name() });
            let reconcile = move |key| reconciler.clone().reconcile_traced(key);
            let rollouts =
                run_workqueue(requests, concurrency, reconcile, |_| Duration::ZERO, counted, shutdown);
            let hooks = hooks.run(|owner| triggers.answered(owner));
            tokio::select! {
                biased;
                () = rollouts => {}
                () = hooks => {}
            }
        }
        .boxed()
    }
}

/// Sends requests to sidecars and of hooks forever. Requeues the fleets and nodes that got a new answer.
fn probe(
    context: &Context,
    fleets: UnboundedSender<Request>,
    nodes: UnboundedSender<Request>,
) -> impl Future<Output = ()> + Send + 'static {
    let (sidecars, hooks) = (context.prober.clone(), context.hook_prober.clone());
    let of_sidecars = nodes.clone();
    async move {
        // The receivers are gone only when the operator stops.
        let sidecars = sidecars.run(|key| drop(of_sidecars.send(key.node.clone().into())));
        let hooks = hooks.run(|owner| match owner {
            HookOwner::Fleet(key) => drop(fleets.send(key.clone().into())),
            HookOwner::Node(key) => drop(nodes.send(key.clone().into())),
        });
        tokio::join!(sidecars, hooks);
    }
}

/// How long a fleet is not reconciled again after a reconcile. A reconcile costs as much as the fleet has nodes, and
/// each change of a node requests one: when thousands of nodes start at once, most reconciles would find the same state
/// as the one before. The pause is some thirty times the duration of a reconcile, so that a node costs the same in a
/// fleet of thousands: 200 ms at 1,000 nodes, where a wave takes seconds. At a hundred nodes it is 20 ms: nodes may be
/// rolled one at a time there, and each takes longer than that from its grant to its end, for which the next one waits.
fn fleet_rest(nodes: usize) -> Duration {
    Duration::from_millis(nodes as u64 / 5)
}

/// What the controllers share in addition to the API server: the clients for sidecars and hooks, and all fleets.
struct Peers {
    sidecars: Arc<dyn SidecarClient>,
    hooks: Arc<dyn HookClient>,
    neighbours: Arc<Neighbours>,
}

struct Reconciler {
    kind: Kind,
    context: Arc<Context>,
    /// False if each reconcile begins with empty caches.
    keeps_caches: bool,
    known: Known,
    health: Health,
}

impl Reconciler {
    /// Reconciles an object within a tracing span. Returns the requeue delay; `None` if the object is gone.
    async fn reconcile_traced(self: Arc<Self>, key: Key) -> Option<Duration> {
        let view = &self.context.view;
        let uids = match self.kind {
            Kind::NodeDeployment => {
                view.fleets.get(&key).map(|fleet| Uids { own: fleet.meta.uid.clone(), stateful_set: None })
            }
            Kind::StatefulSetRollout => view
                .rollouts
                .get(&key)
                .map(|rollout| Uids { own: rollout.meta.uid.clone(), stateful_set: None }),
            _ => view.nodes.get(&key).map(|node| {
                let stateful_set = node.status.stateful_set.as_ref().map(|set| set.uid.clone());
                Uids { own: node.meta.uid.clone(), stateful_set }
            }),
        };
        let Some(uids) = uids else {
            self.known.untrack(&self.context, self.kind, &key);
            if self.kind == Kind::NodeDeployment {
                self.context.followed.follow(&key, &[]);
            }
            let owner = if self.kind == Kind::StatefulNode {
                self.context.prober.forget_node(&key);
                HookOwner::Node(key)
            } else {
                HookOwner::Fleet(key)
            };
            self.context.hook_prober.forget(&owner);
            return None;
        };
        self.known.track(&self.context, self.kind, &key, uids);
        let (plan, task) = (field::Empty, field::Empty);
        let span = info_span!("reconciling", kind = self.kind.name(), object = %key, plan, task);
        Some(self.reconcile(&key).instrument(span).await)
    }

    async fn reconcile(&self, key: &Key) -> Duration {
        let began = monotonic();
        let with_empty_caches =
            (!self.keeps_caches).then(|| Context { caches: Arc::default(), ..Context::clone(&self.context) });
        let context = with_empty_caches.as_ref().unwrap_or(&self.context);
        let result = match self.kind {
            Kind::NodeDeployment => reconcile_fleet(context, key).await,
            Kind::StatefulSetRollout => reconcile_rollout(context, key).await,
            _ => reconcile_node(context, key).await,
        };
        let outcome = match &result {
            Ok(_) => "done",
            Err(error) if error.is_conflict() => "conflict",
            Err(error) => error.step(),
        };
        self.health.metrics.reconciled(self.kind.name(), outcome, monotonic().duration_since(began));
        match result {
            Ok(next) => {
                self.context.failures.end(&Failures::id(self.kind, key));
                next.delay(&key.name)
            }
            Err(error) => self.after_error(key, &error),
        }
    }

    fn after_error(&self, key: &Key, error: &ReconcileError) -> Duration {
        self.health.metrics.retried(self.kind.name());
        let id = Failures::id(self.kind, key);
        let count = self.context.failures.count(&id);
        if error.is_conflict() {
            return after_failure(error, AFTER_CONFLICT * (1 << (count - 1).min(CONFLICT_DOUBLINGS)));
        }
        warn!(kind = self.kind.name(), object = %key, %error, count, "a reconcile failed; will retry");
        after_failure(error, backoff(&id, count))
    }
}

/// The requeue delay after an error: the backoff, or what the server asked for. A plan that continued in spite of it
/// keeps its own time, if that is sooner: its hooks are queried at their intervals, and its deadlines are kept.
fn after_failure(error: &ReconcileError, backoff: Duration) -> Duration {
    let wait = error.retry_after().map_or(backoff, |asked| asked.min(MAX_RETRY_AFTER).max(backoff));
    error.next().map_or(wait, |next| next.min(wait))
}

#[cfg(test)]
#[path = "operator/forgets_tests.rs"]
mod forgets_tests;

#[cfg(test)]
mod tests {
    use super::*;
    use windlass_kube_port::ClusterError;

    #[test]
    fn requeue_after_failure_respects_plan_and_capped_retry_after() {
        let seconds = Duration::from_secs;
        let busy = |retry_after: Option<u64>| {
            let retry_after = retry_after.map(seconds);
            ReconcileError::Children(ClusterError::Transient {
                object: "it".to_owned(),
                message: "busy".to_owned(),
                retry_after,
            })
        };
        for (error, expected) in [
            (busy(None), 40),
            (busy(Some(10)), 40),
            (busy(Some(50)), 50),
            (busy(Some(86_400)), 600),
            (busy(None).beside(None), 40),
            (busy(None).beside(Some(seconds(5))), 5),
            (busy(Some(50)).beside(Some(seconds(5))), 5),
            (busy(None).beside(Some(seconds(100))), 40),
        ] {
            assert_eq!(after_failure(&error, seconds(40)), seconds(expected), "{error:?}");
        }
    }
}
