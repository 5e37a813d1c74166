//! Feeds the caches from watches, and says which objects a change is about.

use std::future;
use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt, stream::BoxStream};
use kube::{
    Api, Client,
    runtime::{
        WatchStreamExt,
        utils::Backoff,
        watcher::{self, Event},
    },
};
use tracing::warn;

use super::{
    Cache, Key, Kind, View,
    client::Careful,
    observed::{Meta, Observed},
    raw::RawObject,
};
use crate::engine::backoff;

/// Which namespaces a watch covers.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Scope {
    /// All of them.
    All,
    /// One of them.
    Namespace(String),
}

impl Scope {
    /// The API of a kind within this scope, for a watch; what is heard through it keeps its cache fresh.
    #[must_use]
    pub fn api(&self, client: &Client, view: &Arc<View>, kind: Kind) -> Api<RawObject> {
        let view = view.clone();
        let client = Careful::new(client).heard_by(move |sign| view.freshness.heard(kind, sign)).client();
        match self {
            Self::All => Api::all_with(client, &kind.resource()),
            Self::Namespace(ns) => Api::namespaced_with(client, ns, &kind.resource()),
        }
    }
}

/// Watches a kind and keeps its cache. Yields the metadata of each object that changed, was found again by a
/// relist, or went; the cache has already taken the change in. What was known before, from the answer to a write
/// of ours, is not yielded again. Of an object that a relist did not find any more only the name is known.
pub fn watch<T: Observed>(
    api: Api<RawObject>,
    selector: Option<&str>,
    kind: Kind,
    view: Arc<View>,
    cache: fn(&View) -> &Cache<T>,
) -> BoxStream<'static, Meta> {
    view.freshness.listen(kind);
    let mut config = watcher::Config::default().timeout(renewed_after(kind));
    if let Some(selector) = selector {
        config = config.labels(selector);
    }
    watcher::watcher(api, config)
        .backoff(Attempts::of(format!("watch of {}", kind.name())))
        .filter_map(move |event| {
            let taken = match event {
                Ok(event) => take(cache(&view), event),
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

fn take<T: Observed>(cache: &Cache<T>, event: Event<RawObject>) -> Vec<Meta> {
    match event {
        Event::Apply(object) => {
            let meta = Meta::read(&object.value);
            if cache.knows(&meta) {
                return Vec::new();
            }
            let seen = cache.read_object(&object.value, meta.clone());
            if cache.observe(seen) { vec![meta] } else { Vec::new() }
        }
        Event::InitApply(object) => {
            let seen = T::read(&object.value);
            let meta = seen.meta().clone();
            cache.observe(seen);
            vec![meta]
        }
        Event::Delete(object) => {
            let known = T::read(&object.value);
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

/// After how many seconds the API server is to end a watch, so that it is begun anew, from where it was. A watch that
/// brings nothing says nothing of its other side; kube-rs gives one up that is silent for 5 s longer. Spread by kind, so
/// that not all are begun at once.
pub(super) fn renewed_after(kind: Kind) -> u32 {
    18 + kind as u32 % 5
}

/// The longest wait before a watch is tried again.
const WAIT_MAX: Duration = Duration::from_secs(10);

/// The waits between attempts: longer each time, and spread by what is watched rather than by chance, so that a
/// run can be replayed.
pub(super) struct Attempts {
    id: String,
    count: u32,
}

impl Attempts {
    /// Those of what is watched.
    pub fn of(id: String) -> Self {
        Self { id, count: 0 }
    }
}

impl Iterator for Attempts {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        self.count = self.count.saturating_add(1);
        Some(backoff(&self.id, self.count).min(WAIT_MAX))
    }
}

impl Backoff for Attempts {
    fn reset(&mut self) {
        self.count = 0;
    }
}
