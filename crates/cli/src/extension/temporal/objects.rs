//! Reads and watches `WorkerDeployments`.

use std::sync::Arc;

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use futures::stream::{self, BoxStream, StreamExt};
use kube::api::{Api, DynamicObject, ListParams};
use kube::runtime::reflector::reflector;
use kube::runtime::reflector::store::{Store, Writer};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};

use super::report::WorkersReport;
use crate::extension::Objects;
use crate::reader::following::may_follow;
use crate::reader::{Wanted, not_there, sentence};
use crate::status::Report;
use windlass_core::api::names::{GROUP, VERSION};
use windlass_kube_port::Kind;
use windlass_kube_port::watch::Namespaces;

/// The objects that were read, and what could not be.
pub struct WorkersObjects {
    wanted: Wanted,
    store: Store<DynamicObject>,
    /// What a watch writes to; `None` once it began.
    writer: Option<Writer<DynamicObject>>,
    missing: Vec<String>,
}

fn api(client: &Client, wanted: &Wanted) -> Api<DynamicObject> {
    let resource = Kind::WorkerDeployment.resource();
    match &wanted.scope {
        Namespaces::All => Api::all_with(client.clone(), &resource),
        Namespaces::Namespace(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
    }
}

impl WorkersObjects {
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
            return Ok(Self::of(wanted, listed.items, Vec::new()));
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
        if found.is_empty() {
            Err(missing.join("\nwindlass: "))
        } else {
            Ok(Self::of(wanted, found, missing))
        }
    }

    /// The same for all names; `None` if the kind is not installed.
    pub async fn read_if_installed(client: &Client, wanted: &Wanted) -> Result<Option<Self>, String> {
        match api(client, wanted).list(&ListParams::default()).await {
            Ok(listed) => Ok(Some(Self::of(wanted, listed.items, Vec::new()))),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
            // Check the kind only after a failure: without the right to list, that is the error.
            Err(error) if !is_installed(client).await => {
                tracing::debug!(%error, "WorkerDeployments cannot be listed, and are not installed");
                Ok(None)
            }
            Err(error) => Err(format!("WorkerDeployments cannot be listed: {}", sentence(&error))),
        }
    }

    fn of(wanted: &Wanted, objects: Vec<DynamicObject>, missing: Vec<String>) -> Self {
        let mut writer = Writer::new(Kind::WorkerDeployment.resource());
        for object in objects {
            writer.apply_watcher_event(&watcher::Event::Apply(object));
        }
        Self { wanted: wanted.clone(), store: writer.as_reader(), writer: Some(writer), missing }
    }

    /// By namespace and name.
    fn current(&self) -> Vec<Value> {
        let mut all: Vec<Arc<DynamicObject>> = self.store.state();
        all.retain(|object| self.wanted.names.is_empty() || self.wanted.names.contains(&object.name_any()));
        all.sort_by_key(|object| (object.namespace(), object.name_any()));
        all.iter().map(|object| json!(**object)).collect()
    }
}

#[async_trait]
impl Objects for WorkersObjects {
    fn missing(&self) -> &[String] {
        &self.missing
    }

    fn reports(&self, now: DateTime<Utc>) -> Vec<Box<dyn Report>> {
        let report = |object: &Value| Box::new(WorkersReport::of(object, now)) as Box<dyn Report>;
        self.current().iter().map(report).collect()
    }

    async fn may_follow(&self, client: &Client) -> Result<(), String> {
        let may = may_follow(client, &self.wanted, Kind::WorkerDeployment).await;
        may.map_err(|sentence| format!("WorkerDeployments cannot be watched: {sentence}"))
    }

    fn watch(&mut self, client: &Client) -> BoxStream<'static, ()> {
        let Some(writer) = self.writer.take() else { return stream::pending().boxed() };
        let config = watcher::Config::default();
        let config = match self.wanted.named() {
            Some(named) => config.fields(&named),
            None => config,
        };
        let changes = watcher(api(client, &self.wanted), config).default_backoff();
        reflector(writer, changes).filter_map(async |event| event.ok().map(drop)).boxed()
    }
}

/// True if the API server has the kind, which everybody may ask.
async fn is_installed(client: &Client) -> bool {
    let known = client.list_api_group_resources(&format!("{GROUP}/{VERSION}")).await;
    known.is_ok_and(|list| list.resources.iter().any(|resource| resource.kind == "WorkerDeployment"))
}
