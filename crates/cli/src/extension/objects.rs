//! Reads and watches the objects of one kind with the user's own rights.

use std::sync::Arc;

use futures::stream::{self, BoxStream, StreamExt};
use kube::api::{Api, DynamicObject, ListParams};
use kube::runtime::reflector::reflector;
use kube::runtime::reflector::store::{Store, Writer};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};

use crate::reader::following::may_follow_selected;
use crate::reader::{FleetSelection, PAGE, not_there, sentence};
use windlass_core::api::names::{GROUP, VERSION};
use windlass_kube_port::Kind;
use windlass_kube_port::watch::Namespaces;

/// The objects of a kind that were read, and what could not be.
pub struct ReadObjects {
    kind: Kind,
    wanted: FleetSelection,
    /// A label selector; all if `None`.
    labels: Option<&'static str>,
    store: Store<DynamicObject>,
    /// What a watch writes to; `None` once it began.
    writer: Option<Writer<DynamicObject>>,
    /// The named objects that could not be read, each in a sentence.
    pub missing: Vec<String>,
    /// Why no objects were read of a kind that was not named: the user has no right to.
    pub refused: Option<String>,
}

impl ReadObjects {
    /// Reads the selected objects. An error says in a sentence why none can be read.
    pub async fn read(client: &Client, kind: Kind, wanted: &FleetSelection) -> Result<Self, String> {
        let mut objects = Self::none(kind, wanted, None);
        if wanted.names.is_empty() {
            let listed = objects.list(client).await;
            listed.map_err(|error| objects.not_listed(&error))?;
            return Ok(objects);
        }
        let api = api(client, kind, &wanted.scope);
        let mut has_read = false;
        for name in &wanted.names {
            let object = format!("{}.{GROUP}/{name}", kind.name().to_lowercase());
            match api.get_opt(name).await {
                Ok(Some(read)) => {
                    has_read = true;
                    objects.store(read);
                }
                Ok(None) => {
                    let Namespaces::Namespace(namespace) = &wanted.scope else { continue };
                    objects.missing.push(not_there(&object, namespace));
                }
                Err(error) => objects.missing.push(format!("{object}: {}", sentence(&error))),
            }
        }
        if has_read { Ok(objects) } else { Err(objects.missing.join("\nwindlass: ")) }
    }

    /// The same for all names; `None` if the kind is not installed. What the user has no right to is left out.
    pub async fn read_if_installed(
        client: &Client,
        kind: Kind,
        wanted: &FleetSelection,
    ) -> Result<Option<Self>, String> {
        let mut objects = Self::none(kind, wanted, None);
        match objects.list(client).await {
            Ok(()) => Ok(Some(objects)),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
            // Check the kind only after a failure: without the right to list, that is the error.
            Err(error) if !is_installed(client, kind).await => {
                tracing::debug!(%error, kind = kind.name(), "cannot list objects: the kind is not installed");
                Ok(None)
            }
            Err(error) => {
                let sentence = objects.not_listed(&error);
                if !matches!(&error, kube::Error::Api(status) if status.code == 403) {
                    return Err(sentence);
                }
                objects.refused = Some(format!("left out, because {sentence}"));
                Ok(Some(objects))
            }
        }
    }

    /// Reads all objects of a namespace, or of all, with these labels.
    pub async fn read_labelled(
        client: &Client,
        kind: Kind,
        scope: &Namespaces,
        labels: &'static str,
    ) -> Result<Self, String> {
        let wanted = FleetSelection { scope: scope.clone(), names: Vec::new() };
        let mut objects = Self::none(kind, &wanted, Some(labels));
        let listed = objects.list(client).await;
        listed.map_err(|error| objects.not_listed(&error))?;
        Ok(objects)
    }

    fn none(kind: Kind, wanted: &FleetSelection, labels: Option<&'static str>) -> Self {
        let writer = Writer::new(kind.resource());
        let (wanted, store) = (wanted.clone(), writer.as_reader());
        Self { kind, wanted, labels, store, writer: Some(writer), missing: Vec::new(), refused: None }
    }

    fn store(&mut self, mut object: DynamicObject) {
        object.metadata.managed_fields = None;
        if let Some(writer) = &mut self.writer {
            writer.apply_watcher_event(&watcher::Event::Apply(object));
        }
    }

    /// Lists into the store, page by page.
    async fn list(&mut self, client: &Client) -> kube::Result<()> {
        let api = api(client, self.kind, &self.wanted.scope);
        let mut params = ListParams { limit: Some(PAGE), ..ListParams::default() };
        params.label_selector = self.labels.map(str::to_owned);
        loop {
            let page = api.list(&params).await?;
            page.items.into_iter().for_each(|object| self.store(object));
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => params = params.continue_token(&token),
                None => return Ok(()),
            }
        }
    }

    fn not_listed(&self, error: &kube::Error) -> String {
        let of = match &self.wanted.scope {
            Namespaces::All => String::new(),
            Namespaces::Namespace(namespace) => format!(" of namespace {namespace}"),
        };
        format!("{}s{of} cannot be listed: {}", self.kind.name(), sentence(error))
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.store.state().is_empty()
    }

    /// The objects as they are now, by namespace and name.
    pub fn current(&self) -> Vec<Value> {
        let mut all: Vec<Arc<DynamicObject>> = self.store.state();
        all.retain(|object| self.wanted.names.is_empty() || self.wanted.names.contains(&object.name_any()));
        all.sort_by_key(|object| (object.namespace(), object.name_any()));
        all.iter().map(|object| json!(**object)).collect()
    }

    /// Checks whether they may be watched. An error says in a sentence why not.
    pub async fn may_follow(&self, client: &Client) -> Result<(), String> {
        if self.refused.is_some() {
            return Ok(());
        }
        let labels = self.labels.map(str::to_owned);
        let may = may_follow_selected(client, &self.wanted.scope, self.kind, self.wanted.named(), labels);
        may.await.map_err(|sentence| format!("{}s cannot be watched: {sentence}", self.kind.name()))
    }

    /// Watches the objects, once. Yields after each change; never ends.
    pub fn watch(&mut self, client: &Client) -> BoxStream<'static, ()> {
        let Some(writer) = self.writer.take().filter(|_| self.refused.is_none()) else {
            return stream::pending().boxed();
        };
        let config = watcher::Config {
            label_selector: self.labels.map(str::to_owned),
            field_selector: self.wanted.named(),
            ..watcher::Config::default()
        };
        let changes = watcher(api(client, self.kind, &self.wanted.scope), config)
            .default_backoff()
            .modify(|object| object.metadata.managed_fields = None);
        reflector(writer, changes).filter_map(async |event| event.ok().map(drop)).boxed()
    }
}

fn api(client: &Client, kind: Kind, scope: &Namespaces) -> Api<DynamicObject> {
    match scope {
        Namespaces::All => Api::all_with(client.clone(), &kind.resource()),
        Namespaces::Namespace(namespace) => Api::namespaced_with(client.clone(), namespace, &kind.resource()),
    }
}

/// True if the API server has the kind; every user may read that.
pub async fn is_installed(client: &Client, kind: Kind) -> bool {
    let known = client.list_api_group_resources(&format!("{GROUP}/{VERSION}")).await;
    known.is_ok_and(|list| list.resources.iter().any(|resource| resource.kind == kind.name()))
}
