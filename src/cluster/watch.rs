//! Feeds the caches from watches, and says which objects a change is about.

use std::future;
use std::sync::Arc;

use futures::{StreamExt, stream::BoxStream};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject},
    runtime::{
        WatchStreamExt,
        reflector::{ObjectRef, store::Writer},
        watcher::{self, Event},
    },
};
use serde_json::Value;
use tracing::warn;

use super::{
    Cache, Key, Kind, View,
    observed::{Meta, Observed},
};

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

/// Watches a kind and keeps its cache. Yields the metadata of each object that changed, was found again by a
/// relist, or went; the cache has already taken the change in. What was known before, from the answer to a write
/// of ours, is not yielded again. Of an object that a relist did not find any more only the name is known.
pub fn watch<T: Observed>(
    api: Api<DynamicObject>,
    selector: Option<&str>,
    kind: Kind,
    view: Arc<View>,
    cache: fn(&View) -> &Cache<T>,
    mut names: Option<Writer<DynamicObject>>,
) -> BoxStream<'static, Meta> {
    let mut config = watcher::Config::default();
    if let Some(selector) = selector {
        config = config.labels(selector);
    }
    watcher::watcher(api, config)
        .default_backoff()
        .filter_map(move |event| {
            let taken = match event {
                Ok(event) => {
                    // What the controller could not look up when we wrote it has to be told again.
                    let is_known = names.as_ref().is_none_or(|names| has(names, &kind.resource(), &event));
                    if let Some(names) = names.as_mut() {
                        names.apply_watcher_event(&named(&event));
                    }
                    take(cache(&view), event, is_known)
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

fn has(names: &Writer<DynamicObject>, resource: &ApiResource, event: &Event<DynamicObject>) -> bool {
    let Event::Apply(object) = event else { return true };
    let meta = &object.metadata;
    let name = ObjectRef::new_with(meta.name.as_deref().unwrap_or_default(), resource.clone());
    names.as_reader().get(&name.within(meta.namespace.as_deref().unwrap_or_default())).is_some()
}

fn take<T: Observed>(cache: &Cache<T>, event: Event<DynamicObject>, is_known: bool) -> Vec<Meta> {
    match event {
        Event::Apply(object) => {
            let seen = T::read(&json(&object));
            let meta = seen.meta().clone();
            if cache.observe(seen) || !is_known { vec![meta] } else { Vec::new() }
        }
        Event::InitApply(object) => {
            let seen = T::read(&json(&object));
            let meta = seen.meta().clone();
            cache.observe(seen);
            vec![meta]
        }
        Event::Delete(object) => {
            let known = T::read(&json(&object));
            cache.forget(&known);
            vec![known.meta().clone()]
        }
        Event::Init => {
            cache.begin_relist();
            Vec::new()
        }
        Event::InitDone => cache.end_relist().into_iter().map(named_only).collect(),
    }
}

fn named_only(key: Key) -> Meta {
    Meta { namespace: key.namespace, name: key.name, ..Meta::default() }
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
