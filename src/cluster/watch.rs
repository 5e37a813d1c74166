//! Feeds the caches from watches, and says which objects a change is about.

use std::sync::Arc;
use std::time::Duration;

use futures::{Stream, StreamExt, stream, stream::BoxStream};
use kube::{
    Api, Client,
    runtime::watcher::{self, Event},
};
use tokio::time::{Instant, sleep};
use tracing::warn;

use super::{
    Cache, Key, Kind, View,
    client::GuardedClient,
    observed::{Meta, Observed},
    raw::RawObject,
};
use crate::{clock::monotonic, engine::backoff};

/// How many objects are listed at once: the text of all of them is in memory while they are read, and several kinds are
/// listed at the same time.
pub(super) const PAGE: u32 = 100;

/// Which namespaces a watch covers.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Namespaces {
    /// All of them.
    All,
    /// One of them.
    Namespace(String),
}

impl Namespaces {
    /// The API of a kind within this scope, for a watch; what is heard through it keeps its cache fresh.
    #[must_use]
    pub fn api(&self, client: &Client, view: &Arc<View>, kind: Kind) -> Api<RawObject> {
        let view = view.clone();
        let client = GuardedClient::new(client).counted(view.metrics().cloned());
        let client = client.heard_by(move |sign| view.freshness.heard(kind, sign)).client();
        match self {
            Self::All => Api::all_with(client, &kind.resource()),
            Self::Namespace(ns) => Api::namespaced_with(client, ns, &kind.resource()),
        }
    }
}

/// Watches a kind and keeps its cache. Yields the metadata of each object that changed, was found again by a
/// relist, or went; the cache has already taken the change in. What was known before, from the answer to a write
/// of ours, is not yielded again, nor what changes nothing that is read of the object. Of an object that a relist did
/// not find any more only the name is known.
pub fn watch<T: Observed>(
    api: Api<RawObject>,
    selector: Option<&str>,
    kind: Kind,
    view: Arc<View>,
    cache: fn(&View) -> &Cache<T>,
) -> BoxStream<'static, Meta> {
    let config = selector.map_or_else(|| config(kind), |selector| config(kind).labels(selector));
    watch_with(api, config, kind, view, cache)
}

/// The same of one object only, by its name, where one is given.
pub fn watch_named<T: Observed>(
    api: Api<RawObject>,
    fields: Option<&str>,
    kind: Kind,
    view: Arc<View>,
    cache: fn(&View) -> &Cache<T>,
) -> BoxStream<'static, Meta> {
    let config = fields.map_or_else(|| config(kind), |fields| config(kind).fields(fields));
    watch_with(api, config, kind, view, cache)
}

fn config(kind: Kind) -> watcher::Config {
    watcher::Config::default().timeout(renewed_after(kind)).page_size(PAGE)
}

fn watch_with<T: Observed>(
    api: Api<RawObject>,
    config: watcher::Config,
    kind: Kind,
    view: Arc<View>,
    cache: fn(&View) -> &Cache<T>,
) -> BoxStream<'static, Meta> {
    view.freshness.listen(kind);
    let followed = view.clone();
    let events = watcher::watcher(api, config).inspect(move |event| follow(&followed, kind, event));
    paced(events.boxed(), kind).flat_map(move |event| stream::iter(take(&view, cache(&view), event))).boxed()
}

/// Tells whether what is known can be followed: after some refusals it is all to be listed anew, and until that is done the
/// answers of the API server do not make it true.
fn follow(view: &View, kind: Kind, event: &watcher::Result<Event<RawObject>>) {
    match event {
        Ok(Event::Init) => view.freshness.lost(kind),
        Ok(Event::InitDone) => view.freshness.found(kind),
        Err(watcher::Error::WatchError(status)) if status.code == 410 => view.freshness.lost(kind),
        Ok(Event::InitApply(_) | Event::Apply(_) | Event::Delete(_)) | Err(_) => {}
    }
}

/// What a watcher brings, whose next attempt waits longer after each that failed. kube-rs' own backoff begins anew with
/// whatever is no error, and each attempt to list begins with such an event: a list that is refused for ever would be
/// asked for every second.
fn paced<T: Send + 'static>(
    events: BoxStream<'static, watcher::Result<Event<T>>>,
    kind: Kind,
) -> impl Stream<Item = Event<T>> {
    let attempts = Attempts::of(format!("watch of {}", kind.name()));
    stream::unfold((events, attempts), move |(mut events, mut attempts)| async move {
        loop {
            match events.next().await? {
                Ok(event) => {
                    if matches!(event, Event::InitDone | Event::Apply(_) | Event::Delete(_)) {
                        attempts.went_well();
                    }
                    return Some((event, (events, attempts)));
                }
                Err(error) => {
                    warn!(kind = kind.name(), %error, "a watch failed and is tried again");
                    let is_refused = is_refusal(&error);
                    if is_refused && !attempts.was_refused {
                        // It answers again: that it is not ready yet, or has forgotten what was, says nothing about later.
                        attempts.went_well();
                    }
                    attempts.was_refused = is_refused;
                    let longest = if is_refused { REFUSED_WAIT_MAX } else { WAIT_MAX };
                    sleep(attempts.failed().min(longest)).await;
                }
            }
        }
    })
}

/// Whether the API server answered that it will not: a right, a kind that it does not have, too many requests.
fn is_refusal(error: &watcher::Error) -> bool {
    use watcher::Error::{InitialListFailed, NoResourceVersion, WatchError, WatchFailed, WatchStartFailed};
    let code = match error {
        InitialListFailed(kube::Error::Api(status))
        | WatchStartFailed(kube::Error::Api(status))
        | WatchFailed(kube::Error::Api(status))
        | WatchError(status) => status.code,
        InitialListFailed(_) | WatchStartFailed(_) | WatchFailed(_) | NoResourceVersion => 0,
    };
    (400..500).contains(&code)
}

fn take<T: Observed>(view: &View, cache: &Cache<T>, event: Event<RawObject>) -> Vec<Meta> {
    match event {
        Event::Apply(object) => {
            let meta = object.seen();
            // A doubt ends with another version of the object, whatever else that says.
            let is_news = cache.take_in(&object, meta) || view.has_doubts();
            if is_news { vec![meta.clone()] } else { Vec::new() }
        }
        Event::InitApply(object) => {
            let meta = object.seen();
            cache.take_in(&object, meta);
            vec![meta.clone()]
        }
        Event::Delete(object) => {
            let meta = object.seen();
            cache.forget(meta);
            vec![meta.clone()]
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

/// The longest wait before a watch is tried again whose other side is not there, or not well: an outage ends by itself, and
/// nothing is done before the watch is back.
const WAIT_MAX: Duration = Duration::from_secs(10);
/// The longest wait after a refusal: it costs the API server something each time, and ends when a person does something.
const REFUSED_WAIT_MAX: Duration = Duration::from_secs(30);
/// After so long without a failure the waits are short again, also where nothing came that says that all is well: a watch
/// of what does not change is silent.
const CALM: Duration = Duration::from_mins(2);

/// The waits between attempts: longer each time, and spread by what is watched rather than by chance, so that a
/// run can be replayed.
pub(super) struct Attempts {
    id: String,
    count: u32,
    slower: u32,
    waited_until: Option<Instant>,
    /// Whether what failed last was refused, rather than not answered.
    was_refused: bool,
}

impl Attempts {
    /// Those of what is watched: from 0.5 s up to a minute.
    pub fn of(id: String) -> Self {
        Self { id, count: 0, slower: 1, waited_until: None, was_refused: false }
    }

    /// Waits so many times as long.
    pub fn slower(self, times: u32) -> Self {
        Self { slower: times, ..self }
    }

    /// One brought what it was made for: the next wait is short.
    pub fn went_well(&mut self) {
        self.count = 0;
    }

    /// How many have failed in a row.
    pub fn failures(&self) -> u32 {
        self.count
    }

    /// One more failed: how long to wait now.
    pub fn failed(&mut self) -> Duration {
        let now = monotonic();
        if self.waited_until.is_some_and(|until| now.saturating_duration_since(until) > CALM) {
            self.count = 0;
        }
        self.count = self.count.saturating_add(1);
        let wait = backoff(&self.id, self.count) * self.slower;
        self.waited_until = Some(now + wait);
        wait
    }
}
