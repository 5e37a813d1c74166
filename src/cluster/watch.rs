//! Feeds the caches from watches, and says which objects a change is about.

use std::future;
use std::sync::Arc;

use futures::{StreamExt, stream::BoxStream};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{
    Api, Client,
    api::DynamicObject,
    runtime::{
        WatchStreamExt,
        reflector::store::Writer,
        watcher::{self, Event},
    },
};
use serde_json::Value;
use tracing::warn;

use super::{Cache, Key, Kind, View, observed::Observed};

/// Which namespaces a watch covers.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Scope {
    /// All of them.
    All,
    /// One of them.
    Namespace(String),
}

impl Scope {
    /// The API of a kind within this scope.
    #[must_use]
    pub fn api(&self, client: &Client, kind: Kind) -> Api<DynamicObject> {
        match self {
            Self::All => Api::all_with(client.clone(), &kind.resource()),
            Self::Namespace(ns) => Api::namespaced_with(client.clone(), ns, &kind.resource()),
        }
    }
}

/// Watches a kind and keeps its cache. Yields each object that changed, was found again by a relist,
/// or went; the cache has already taken the change in. Of an object that a relist did not find any more
/// only the name is known.
pub fn watch<T: Observed>(
    api: Api<DynamicObject>,
    selector: Option<&str>,
    kind: Kind,
    view: Arc<View>,
    cache: fn(&View) -> &Cache<T>,
    mut names: Option<Writer<DynamicObject>>,
) -> BoxStream<'static, DynamicObject> {
    let mut config = watcher::Config::default();
    if let Some(selector) = selector {
        config = config.labels(selector);
    }
    watcher::watcher(api, config)
        .default_backoff()
        .filter_map(move |event| {
            let taken = match event {
                Ok(event) => {
                    if let Some(names) = names.as_mut() {
                        names.apply_watcher_event(&named(&event));
                    }
                    take(cache(&view), kind, event)
                }
                Err(error) => {
                    warn!(kind = kind.name(), %error, "a watch failed and is tried again");
                    Vec::new()
                }
            };
            future::ready(Some(futures::stream::iter(taken)))
        })
        .flatten()
        .boxed()
}

fn take<T: Observed>(cache: &Cache<T>, kind: Kind, event: Event<DynamicObject>) -> Vec<DynamicObject> {
    match event {
        Event::Apply(object) | Event::InitApply(object) => {
            cache.observe(T::read(&json(&object)));
            vec![object]
        }
        Event::Delete(object) => {
            let known = T::read(&json(&object));
            cache.forget(&known);
            vec![object]
        }
        Event::Init => {
            cache.begin_relist();
            Vec::new()
        }
        Event::InitDone => {
            let gone = |key: &Key| DynamicObject::new(&key.name, &kind.resource()).within(&key.namespace);
            cache.end_relist().iter().map(gone).collect()
        }
    }
}

/// The event with nothing of the object but its name: all that kube-rs' controller needs.
fn named(event: &Event<DynamicObject>) -> Event<DynamicObject> {
    let bare = |object: &DynamicObject| {
        let mut bare = object.clone();
        bare.data = Value::Null;
        bare.metadata = ObjectMeta {
            name: object.metadata.name.clone(),
            namespace: object.metadata.namespace.clone(),
            ..ObjectMeta::default()
        };
        bare
    };
    match event {
        Event::Apply(object) => Event::Apply(bare(object)),
        Event::InitApply(object) => Event::InitApply(bare(object)),
        Event::Delete(object) => Event::Delete(bare(object)),
        Event::Init => Event::Init,
        Event::InitDone => Event::InitDone,
    }
}

fn json(object: &DynamicObject) -> Value {
    serde_json::to_value(object).unwrap_or_default()
}
