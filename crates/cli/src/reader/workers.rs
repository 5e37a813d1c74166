//! Reads and watches `WorkerDeployments`.

use std::sync::Arc;

use futures::stream::{BoxStream, StreamExt};
use kube::api::{Api, DynamicObject, ListParams};
use kube::runtime::reflector::reflector;
use kube::runtime::reflector::store::{Store, Writer};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};

use super::{Wanted, not_there, sentence};
use windlass_core::api::names::{GROUP, VERSION};
use windlass_kube_port::Kind;
use windlass_kube_port::watch::Namespaces;

/// What was read, and what could not be.
pub struct WorkersSight {
    store: Store<DynamicObject>,
    writer: Writer<DynamicObject>,
    /// The named objects that could not be read, each in a sentence.
    pub missing: Vec<String>,
}

/// The current objects.
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
    /// Reads the selected objects. An error says in a sentence why none can be read.
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

    /// The same for all names; `None` if the kind is not installed.
    pub async fn read_if_installed(client: &Client, wanted: &Wanted) -> Result<Option<Self>, String> {
        match api(client, wanted).list(&ListParams::default()).await {
            Ok(listed) => Ok(Some(Self::of(listed.items, Vec::new()))),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
            // Check the kind only after a failure: without the right to list, that is the error.
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

    /// Checks whether they may be watched; call it before [`watch`](Self::watch). An error says in a sentence why
    /// not.
    pub async fn may_follow(client: &Client, wanted: &Wanted) -> Result<(), String> {
        let may = super::following::may_follow(client, wanted, Kind::WorkerDeployment).await;
        may.map_err(|sentence| format!("WorkerDeployments cannot be watched: {sentence}"))
    }

    /// The current objects, kept up to date while they are [watched](Self::watch).
    #[must_use]
    pub fn view(&self, wanted: &Wanted) -> WorkersView {
        WorkersView { store: self.store.clone(), wanted: wanted.clone() }
    }

    /// Watches the objects. Yields after the view has stored a change; never ends.
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

/// True if the API server has the kind, which everybody may ask.
async fn is_installed(client: &Client) -> bool {
    let known = client.list_api_group_resources(&format!("{GROUP}/{VERSION}")).await;
    known.is_ok_and(|list| list.resources.iter().any(|resource| resource.kind == "WorkerDeployment"))
}
