//! Reads and watches objects with the user's own rights, into the caches that the planner reads. What those rights do
//! not allow is left out and reported. Writes nothing.

mod events;
pub mod following;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::stream::{self, BoxStream, StreamExt};
use kube::Client;
use kube::api::{Api, ListParams};
use serde_json::Value;

use crate::extension::is_installed;
use crate::report::Seen;
use windlass_clock::monotonic;
use windlass_core::api::conditions::{self, TOPOLOGY_KNOWN};
use windlass_core::api::names::{LABEL_DEPLOYMENT, LABEL_MANAGED_BY, LABEL_NODE, LABEL_POD_NAME, MANAGER};
use windlass_core::api::{NodeDeploymentStatus, Topology};
use windlass_kube_port::observed::{Meta, ObservedFleet, ObservedPod};
use windlass_kube_port::raw::RawObject;
use windlass_kube_port::watch::{self, Namespaces};
use windlass_kube_port::{Key, Kind, View};

pub use events::{InvolvedObject, events};

/// The page size of lists, as in kubectl.
pub const PAGE: u32 = 500;

/// The fleets to read.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct FleetSelection {
    pub scope: Namespaces,
    /// Their names; all if empty.
    pub names: Vec<String>,
}

impl FleetSelection {
    /// The label selector of these fleets' objects.
    fn labels(&self) -> String {
        match self.names.as_slice() {
            [] => LABEL_DEPLOYMENT.to_owned(),
            [name] => format!("{LABEL_DEPLOYMENT}={name}"),
            names => format!("{LABEL_DEPLOYMENT} in ({})", names.join(",")),
        }
    }

    /// The field selector, if a single fleet is wanted.
    pub fn named(&self) -> Option<String> {
        match self.names.as_slice() {
            [name] => Some(format!("metadata.name={name}")),
            _ => None,
        }
    }

    fn is_wanted(&self, fleet: &Key) -> bool {
        self.names.is_empty() || self.names.contains(&fleet.name)
    }
}

/// What was read of a cluster, and what could not be.
#[derive(Clone, Default)]
pub struct Sight {
    /// The objects.
    pub view: Arc<View>,
    /// What could not be read, each in a sentence.
    pub unread: Vec<String>,
    /// The named fleets that could not be read, each in a sentence.
    pub missing: Vec<String>,
    /// The kinds that were read.
    kinds: Vec<Kind>,
    /// Those of StatefulSetRollouts that may not be watched.
    unwatched: Vec<Kind>,
}

/// The kinds that a report needs besides fleets.
pub const OF_REPORTS: [Kind; 2] = [Kind::StatefulNode, Kind::Pod];

impl Sight {
    /// Reads fleets and these kinds of their objects. An error says in a sentence why none can be read; if only some
    /// of the named ones cannot, [`missing`](Self::missing) has the reasons.
    pub async fn read(client: &Client, wanted: &FleetSelection, kinds: &[Kind]) -> Result<Self, String> {
        let mut sight = Self::of_fleets();
        sight.missing = sight.read_fleets(client, wanted).await?;
        if !sight.missing.is_empty() && sight.missing.len() == wanted.names.len() {
            return Err(sight.missing.join("\nwindlass: "));
        }
        Ok(sight.with(client, wanted, kinds, false).await)
    }

    /// True if all objects of the kind were read.
    #[must_use]
    pub fn has_read(&self, kind: Kind) -> bool {
        self.kinds.contains(&kind)
    }

    fn of_fleets() -> Self {
        Self { view: View::shared(), kinds: vec![Kind::NodeDeployment], ..Self::default() }
    }

    /// The same for a fleet that was already read or does not exist, with all nodes of its namespace: one of another
    /// fleet may have a name that is needed.
    pub async fn read_with(
        client: &Client,
        wanted: &FleetSelection,
        fleet: Option<&Value>,
        kinds: &[Kind],
    ) -> Self {
        let sight = Self::of_fleets();
        if let Some(fleet) = fleet {
            sight.view.observe(Kind::NodeDeployment, fleet);
        }
        sight.with(client, wanted, kinds, true).await
    }

    /// What decides about StatefulSetRollouts in a namespace: all of them, the StatefulSets that Windlass did not create, and
    /// their pods.
    pub async fn of_stateful_sets(client: &Client, namespace: &str) -> Self {
        let mut sight = Self { view: Arc::new(View::of_rollouts()), ..Self::default() };
        let scope = Namespaces::Namespace(namespace.to_owned());
        for kind in [Kind::StatefulSetRollout, Kind::StatefulSet, Kind::Pod] {
            sight.read_of_rollouts(client, &scope, kind).await;
        }
        sight
    }

    /// All StatefulSetRollouts of some namespaces, and the pods of StatefulSets; `None` if the kind is not installed. What
    /// the user may not read is left out.
    pub async fn rollouts_if_installed(client: &Client, scope: &Namespaces) -> Option<Self> {
        let mut sight = Self { view: Arc::new(View::of_rollouts()), ..Self::default() };
        let kind = Kind::StatefulSetRollout;
        match list(client, scope, kind, ListParams::default(), &sight.view).await {
            Ok(()) => sight.kinds.push(kind),
            // Without the right to list, that is the error also where there is no such kind.
            Err(kube::Error::Api(status)) if status.code == 404 => return None,
            Err(_) if !is_installed(client, kind).await => return None,
            Err(error) => {
                sight.unread.push(left_out(kind, &error));
                return Some(sight);
            }
        }
        sight.read_of_rollouts(client, scope, Kind::Pod).await;
        Some(sight)
    }

    /// Reads the machines if the domains of pods follow from them: pods have no label of their own, and the operator has not
    /// said that it does not read machines. Returns a remark about that. `is_of`: true for the pods in question.
    pub async fn read_domains(
        &self,
        client: &Client,
        topology: Option<&Topology>,
        status: Option<&NodeDeploymentStatus>,
        is_of: impl Fn(&ObservedPod) -> bool,
    ) -> Option<String> {
        let key = &topology?.key;
        let is_unlabelled =
            |pod: &ObservedPod| !pod.machine.is_empty() && pod.meta.label(key).is_none() && is_of(pod);
        let unlabelled = self.view.pods.list_all(is_unlabelled);
        let said = status.and_then(|status| conditions::find(&status.conditions, TOPOLOGY_KNOWN));
        if unlabelled.is_empty() || said.is_some() {
            return None;
        }
        let listed = list(client, &Namespaces::All, Kind::Node, ListParams::default(), &self.view).await;
        Some(match listed {
            Ok(()) => format!(
                "pods have no label {key}: their domains are those of their machines, if the operator runs with \
                 --topology-from-nodes or --drain"
            ),
            Err(error) => {
                format!("pods have no label {key}, and their domains are {}", left_out(Kind::Node, &error))
            }
        })
    }

    async fn read_of_rollouts(&mut self, client: &Client, scope: &Namespaces, kind: Kind) {
        let params = ListParams { label_selector: labels_of_rollouts(kind), ..ListParams::default() };
        match patiently(|| list(client, scope, kind, params.clone(), &self.view)).await {
            Ok(()) => self.kinds.push(kind),
            Err(error) => self.unread.push(left_out(kind, &error)),
        }
    }

    /// Watches StatefulSetRollouts and the pods of StatefulSets, as [`watch`](Self::watch).
    #[must_use]
    pub fn watch_rollouts(&self, client: &Client, scope: &Namespaces) -> BoxStream<'static, (Kind, Meta)> {
        let watched = self.kinds.iter().filter(|kind| !self.unwatched.contains(kind));
        let streams = watched.filter_map(|kind| {
            let (view, labels) = (self.view.clone(), labels_of_rollouts(*kind));
            let api = scope.api(client, &view, *kind);
            let changes = match kind {
                Kind::StatefulSetRollout => watch::watch(api, None, *kind, view, |v| &v.rollouts),
                Kind::Pod => watch::watch(api, labels.as_deref(), *kind, view, |v| &v.pods),
                _ => return None,
            };
            let kind = *kind;
            Some(changes.map(move |meta| (kind, meta)).boxed())
        });
        stream::select_all(streams.collect::<Vec<_>>()).boxed()
    }

    async fn with(
        mut self,
        client: &Client,
        wanted: &FleetSelection,
        kinds: &[Kind],
        all_nodes: bool,
    ) -> Self {
        let sight = &mut self;
        let labels = wanted.labels();
        let reads = kinds.iter().copied().map(|kind| {
            let every = all_nodes && kind == Kind::StatefulNode;
            let params = ListParams::default();
            // Claims have the label of their node only.
            let labels = if kind == Kind::PersistentVolumeClaim { LABEL_NODE } else { &labels };
            let params = if every { params } else { params.labels(labels) };
            let view = sight.view.clone();
            async move {
                let read = || list(client, &wanted.scope, kind, params.clone(), &view);
                (kind, patiently(read).await)
            }
            .boxed()
        });
        let reads: Vec<_> = reads.collect();
        let results: Vec<(Kind, kube::Result<()>)> =
            stream::iter(reads).buffered(kinds.len().max(1)).collect().await;
        for (kind, result) in results {
            match result {
                Ok(()) => sight.kinds.push(kind),
                Err(error) => sight.unread.push(left_out(kind, &error)),
            }
        }
        self
    }

    /// Gets named fleets one by one: the user may have no right to list. Returns those that cannot be read.
    async fn read_fleets(&self, client: &Client, wanted: &FleetSelection) -> Result<Vec<String>, String> {
        let kind = Kind::NodeDeployment;
        let of = match &wanted.scope {
            Namespaces::All => "fleets".to_owned(),
            Namespaces::Namespace(namespace) if wanted.names.is_empty() => {
                format!("fleets of namespace {namespace}")
            }
            Namespaces::Namespace(namespace) => return Ok(self.read_named(client, wanted, namespace).await),
        };
        let listed = list(client, &wanted.scope, kind, ListParams::default(), &self.view).await;
        listed.map_err(|error| format!("{of} cannot be listed: {}", sentence(&error)))?;
        Ok(Vec::new())
    }

    async fn read_named(&self, client: &Client, wanted: &FleetSelection, namespace: &str) -> Vec<String> {
        let kind = Kind::NodeDeployment;
        let api = api(client, &wanted.scope, kind);
        let mut missing = Vec::new();
        for name in &wanted.names {
            let fleet = format!("nodedeployment.windlass.dev/{name}");
            match api.get_opt(name).await {
                Ok(Some(found)) => self.view.observe_raw(kind, &found),
                Ok(None) => missing.push(not_there(&fleet, namespace)),
                Err(error) => missing.push(format!("{fleet}: {}", sentence(&error))),
            }
        }
        missing
    }

    /// The fleets, by namespace and name.
    #[must_use]
    pub fn fleets(&self, wanted: &FleetSelection) -> Vec<Arc<ObservedFleet>> {
        self.view.fleets.list_all(|fleet| wanted.is_wanted(&fleet.meta.key()))
    }

    /// A fleet with its objects.
    #[must_use]
    pub fn seen(&self, fleet: &Arc<ObservedFleet>) -> Seen {
        Seen::of(&self.view, fleet, &self.unread, self.has_read(Kind::Pod))
    }

    /// Watches the objects. Yields each change after the view has stored it; never ends.
    #[must_use]
    pub fn watch(&self, client: &Client, wanted: &FleetSelection) -> BoxStream<'static, (Kind, Meta)> {
        let labels = wanted.labels();
        let named = wanted.named();
        let streams = self.kinds.iter().filter_map(|kind| {
            let (view, labels) = (self.view.clone(), labels.as_str());
            let api = wanted.scope.api(client, &view, *kind);
            let changes = match kind {
                Kind::NodeDeployment => watch::watch_named(api, named.as_deref(), *kind, view, |v| &v.fleets),
                Kind::StatefulNode => watch::watch(api, Some(labels), *kind, view, |v| &v.nodes),
                Kind::Pod => watch::watch(api, Some(labels), *kind, view, |v| &v.pods),
                Kind::StatefulSet => watch::watch(api, Some(labels), *kind, view, |v| &v.stateful_sets),
                Kind::ControllerRevision => watch::watch(api, Some(labels), *kind, view, |v| &v.revisions),
                _ => return None,
            };
            let kind = *kind;
            Some(changes.map(move |meta| (kind, meta)).boxed())
        });
        stream::select_all(streams.collect::<Vec<_>>()).boxed()
    }
}

/// The label selector of the objects that decide about StatefulSetRollouts.
fn labels_of_rollouts(kind: Kind) -> Option<String> {
    match kind {
        Kind::StatefulSet => Some(format!("{LABEL_MANAGED_BY}!={MANAGER}")),
        Kind::Pod => Some(format!("{LABEL_POD_NAME},!{LABEL_NODE}")),
        _ => None,
    }
}

/// The message that a named object is not in a namespace.
pub fn not_there(object: &str, namespace: &str) -> String {
    format!("{object} does not exist in namespace {namespace}; select another with --namespace")
}

/// Reads with retries of transient failures: what is left out once stays out.
async fn patiently<R: Future<Output = kube::Result<()>>>(read: impl Fn() -> R) -> kube::Result<()> {
    let until = monotonic() + PATIENCE;
    loop {
        match read().await {
            Err(error) if is_passing(&error) && monotonic() < until => tokio::time::sleep(AGAIN).await,
            ended => return ended,
        }
    }
}

/// How long a transient failure is retried.
const PATIENCE: Duration = Duration::from_secs(10);
const AGAIN: Duration = Duration::from_millis(500);

/// True if the failure may be transient. A server that just started knows fleets before nodes, and neither roles: it
/// answers that there is no such kind, or no such role.
fn is_passing(error: &kube::Error) -> bool {
    match error {
        kube::Error::Api(status) => match status.code {
            403 => status.message.contains("RBAC:"),
            404 | 410 | 429 => true,
            code => code >= 500,
        },
        _ => true,
    }
}

/// Lists all objects of a kind into a view, page by page.
async fn list(
    client: &Client,
    scope: &Namespaces,
    kind: Kind,
    params: ListParams,
    view: &View,
) -> kube::Result<()> {
    let api = api(client, scope, kind);
    let mut params = params.limit(PAGE);
    loop {
        let page = api.list(&params).await?;
        for object in &page.items {
            view.observe_raw(kind, object);
        }
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params = params.continue_token(&token),
            None => return Ok(()),
        }
    }
}

fn api(client: &Client, scope: &Namespaces, kind: Kind) -> Api<RawObject> {
    match scope {
        Namespaces::All => Api::all_with(client.clone(), &kind.resource()),
        Namespaces::Namespace(namespace) => Api::namespaced_with(client.clone(), namespace, &kind.resource()),
    }
}

fn left_out(kind: Kind, error: &kube::Error) -> String {
    format!("left out, because {}s cannot be listed: {}", kind.name(), sentence(error))
}

/// The API server's message, without the client's wrapping.
#[must_use]
pub fn sentence(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => status.message.clone(),
        other => format!("cannot reach the API server: {other}"),
    }
}
