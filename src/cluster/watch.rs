//! Feeds the caches from watches, and says which objects a change is about.

use std::future;

use futures::{Stream, StreamExt, stream::BoxStream};
use kube::{
    Api, Client,
    api::DynamicObject,
    runtime::{
        WatchStreamExt,
        watcher::{self, Event},
    },
};
use serde_json::Value;
use tracing::warn;

use super::{Cache, Kind, observed::Observed};

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
/// or went; the cache has already taken the change in.
pub fn watch<T: Observed>(
    api: Api<DynamicObject>,
    selector: Option<&str>,
    kind: Kind,
    cache: impl AsRef<Cache<T>> + Send + 'static,
) -> BoxStream<'static, DynamicObject> {
    let mut config = watcher::Config::default();
    if let Some(selector) = selector {
        config = config.labels(selector);
    }
    let events = watcher::watcher(api, config).default_backoff();
    keep(events, kind, cache).boxed()
}

fn keep<T: Observed>(
    events: impl Stream<Item = watcher::Result<Event<DynamicObject>>> + Send + 'static,
    kind: Kind,
    cache: impl AsRef<Cache<T>> + Send + 'static,
) -> impl Stream<Item = DynamicObject> + Send + 'static {
    events
        .filter_map(move |event| {
            let cache = cache.as_ref();
            let touched = match event {
                Ok(Event::Apply(object) | Event::InitApply(object)) => {
                    cache.observe(T::read(&json(&object)));
                    vec![object]
                }
                Ok(Event::Delete(object)) => {
                    let known = T::read(&json(&object));
                    cache.forget(&known.meta().key(), &known.meta().uid);
                    vec![object]
                }
                Ok(Event::Init) => {
                    cache.begin_relist();
                    Vec::new()
                }
                Ok(Event::InitDone) => {
                    let lost = cache.end_relist();
                    lost.iter()
                        .map(|key| DynamicObject::new(&key.name, &kind.resource()).within(&key.namespace))
                        .collect()
                }
                Err(error) => {
                    warn!(kind = kind.name(), %error, "a watch failed and is tried again");
                    Vec::new()
                }
            };
            future::ready(Some(futures::stream::iter(touched)))
        })
        .flatten()
}

fn json(object: &DynamicObject) -> Value {
    serde_json::to_value(object).unwrap_or_default()
}
