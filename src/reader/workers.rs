//! `WorkerDeployments` that somebody wants to see: read at once, and watched from there on.

use std::sync::Arc;

use futures::stream::{BoxStream, StreamExt};
use kube::api::{Api, DynamicObject, ListParams};
use kube::runtime::reflector::reflector;
use kube::runtime::reflector::store::{Store, Writer};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};

use super::{Wanted, not_there, sentence};
use crate::api::names::{GROUP, VERSION};
use crate::cluster::Kind;
use crate::cluster::watch::Namespaces;

/// What was read of them, and what could not be.
pub struct WorkersSight {
    store: Store<DynamicObject>,
    writer: Writer<DynamicObject>,
    /// Those that were named and could not be read, each in a sentence.
    pub missing: Vec<String>,
}

/// Those that are seen.
#[derive(Clone)]
pub struct WorkersView {
    store: Store<DynamicObject>,
    wanted: Wanted,
}

impl WorkersView {
    /// The objects, by namespace and name.
    #[must_use]
    pub fn objects(&self) -> Vec<Value> {
        let mut all: Vec<Arc<DynamicObject>> = self.store.state();
        all.retain(|object| self.wanted.names.is_empty() || self.wanted.names.contains(&object.name_any()));
        all.sort_by_key(|object| (object.namespace(), object.name_any()));
        all.iter().map(|object| json!(**object)).collect()
    }
}

fn api(client: &Client, wanted: &Wanted) -> Api<DynamicObject> {
    let resource = Kind::WorkerDeployment.resource();
    match &wanted.scope {
        Namespaces::All => Api::all_with(client.clone(), &resource),
        Namespaces::Namespace(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
    }
}

impl WorkersSight {
    /// Reads those that are wanted. An error says in a sentence why none of them can be read.
    pub async fn read(client: &Client, wanted: &Wanted) -> Result<Self, String> {
        let api = api(client, wanted);
        if wanted.names.is_empty() {
            let listed = api.list(&ListParams::default()).await;
            let of = match &wanted.scope {
                Namespaces::All => String::new(),
                Namespaces::Namespace(namespace) => format!(" of namespace {namespace}"),
            };
            let listed =
                listed.map_err(|e| format!("WorkerDeployments{of} cannot be listed: {}", sentence(&e)))?;
            return Ok(Self::of(listed.items, Vec::new()));
        }
        let (mut found, mut missing) = (Vec::new(), Vec::new());
        for name in &wanted.names {
            let object = format!("workerdeployment.windlass.dev/{name}");
            match api.get_opt(name).await {
                Ok(Some(read)) => found.push(read),
                Ok(None) => {
                    let Namespaces::Namespace(namespace) = &wanted.scope else { continue };
                    missing.push(not_there(&object, namespace));
                }
                Err(error) => missing.push(format!("{object}: {}", sentence(&error))),
            }
        }
        if found.is_empty() { Err(missing.join("\nwindlass: ")) } else { Ok(Self::of(found, missing)) }
    }

    /// Those of all names, where the cluster has the kind: none where it has not.
    pub async fn read_if_installed(client: &Client, wanted: &Wanted) -> Result<Option<Self>, String> {
        match api(client, wanted).list(&ListParams::default()).await {
            Ok(listed) => Ok(Some(Self::of(listed.items, Vec::new()))),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
            // Who may not list them is told so before it is looked whether there are any.
            Err(error) if !is_installed(client).await => {
                tracing::debug!(%error, "WorkerDeployments cannot be listed, and are not installed");
                Ok(None)
            }
            Err(error) => Err(format!("WorkerDeployments cannot be listed: {}", sentence(&error))),
        }
    }

    fn of(objects: Vec<DynamicObject>, missing: Vec<String>) -> Self {
        let mut writer = Writer::new(Kind::WorkerDeployment.resource());
        for object in objects {
            writer.apply_watcher_event(&watcher::Event::Apply(object));
        }
        Self { store: writer.as_reader(), writer, missing }
    }

    /// Whether they may be watched, which has to be asked before [`watch`](Self::watch): an error says in a sentence why not.
    pub async fn may_follow(client: &Client, wanted: &Wanted) -> Result<(), String> {
        let may = super::following::may_follow(client, wanted, Kind::WorkerDeployment).await;
        may.map_err(|sentence| format!("WorkerDeployments cannot be watched: {sentence}"))
    }

    /// What is seen of them: also what changes later, while they are [watched](Self::watch).
    #[must_use]
    pub fn view(&self, wanted: &Wanted) -> WorkersView {
        WorkersView { store: self.store.clone(), wanted: wanted.clone() }
    }

    /// Watches them from here on. Yields after the view has taken a change in; never ends.
    #[must_use]
    pub fn watch(self, client: &Client, wanted: &Wanted) -> BoxStream<'static, ()> {
        let config = watcher::Config::default();
        let config = match wanted.named() {
            Some(named) => config.fields(&named),
            None => config,
        };
        let changes = watcher(api(client, wanted), config).default_backoff();
        reflector(self.writer, changes).filter_map(async |event| event.ok().map(drop)).boxed()
    }
}

/// Whether the API server knows the kind, which everybody may ask.
async fn is_installed(client: &Client) -> bool {
    let known = client.list_api_group_resources(&format!("{GROUP}/{VERSION}")).await;
    known.is_ok_and(|list| list.resources.iter().any(|resource| resource.kind == "WorkerDeployment"))
}
