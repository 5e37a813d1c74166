//! Feeds the caches from watches, and reports which objects changed.

use std::sync::Arc;
use std::time::Duration;

use futures::{Stream, StreamExt, stream, stream::BoxStream};
use kube::{
    Api, Client,
    runtime::watcher::{self, Event},
};
use tokio::time::{Instant, sleep};
use tracing::{debug, warn};

use crate::{
    Cache, Key, Kind, View,
    client::GuardedClient,
    observed::{Meta, Observed},
    raw::RawObject,
};
use windlass_clock::monotonic;
use windlass_engine::backoff;

/// The page size of lists: the text of a whole page is in memory while it is parsed, and several kinds are listed at
/// the same time.
pub(crate) const PAGE: u32 = 100;

/// Which namespaces a watch covers.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Namespaces {
    /// All namespaces.
    All,
    /// One namespace.
    Namespace(String),
}

impl Namespaces {
    /// One watch for each of these namespaces, or one for all if there are none.
    #[must_use]
    pub fn of(namespaces: &[String]) -> Vec<Self> {
        if namespaces.is_empty() {
            return vec![Self::All];
        }
        namespaces.iter().cloned().map(Self::Namespace).collect()
    }

    /// True if they include this one.
    #[must_use]
    pub fn has(&self, namespace: &str) -> bool {
        matches!(self, Self::All) || matches!(self, Self::Namespace(own) if own == namespace)
    }

    /// The API of a kind in these namespaces, for a watch. Responses to its requests are signs of life for the kind's
    /// cache.
    #[must_use]
    pub fn api(&self, client: &Client, view: &Arc<View>, kind: Kind) -> Api<RawObject> {
        let view = view.clone();
        let client = GuardedClient::new(client).counted(view.metrics().cloned());
        let client = client.on_response(move |sign| view.freshness.record(kind, sign)).client();
        match self {
            Self::All => Api::all_with(client, &kind.resource()),
            Self::Namespace(ns) => Api::namespaced_with(client, ns, &kind.resource()),
        }
    }
}

/// Watches a kind and updates its cache. Yields the metadata of each object that changed, was listed again by a relist,
/// or was deleted; the cache already has the change. Changes that the cache had before, from the response to a write of
/// ours, are not yielded again, and neither are changes that affect nothing that is read of the object. For an object
/// that a relist no longer lists, only the namespace and the name are known.
pub fn watch<T: Observed>(
    api: Api<RawObject>,
    selector: Option<&str>,
    kind: Kind,
    view: Arc<View>,
    cache: fn(&View) -> &Cache<T>,
) -> BoxStream<'static, Meta> {
    let config = selector.map_or_else(|| config(kind), |selector| config(kind).labels(selector));
    watch_with(api, config, kind, view, move |view, event| take(view, cache(view), event))
}

/// Like [`watch`], for a kind that is known only at run time. No decision about other kinds waits for this one: its
/// definition may be missing.
pub fn watch_resources(
    api: Api<RawObject>,
    selector: &str,
    kind: Kind,
    view: Arc<View>,
) -> BoxStream<'static, Meta> {
    let config = config(kind).labels(selector);
    watch_untracked(api, config, kind, view, move |view, event| take(view, &view.resources(kind), event))
}

/// Like [`watch`], with a field selector instead of a label selector.
pub fn watch_named<T: Observed>(
    api: Api<RawObject>,
    fields: Option<&str>,
    kind: Kind,
    view: Arc<View>,
    cache: fn(&View) -> &Cache<T>,
) -> BoxStream<'static, Meta> {
    let config = fields.map_or_else(|| config(kind), |fields| config(kind).fields(fields));
    watch_with(api, config, kind, view, move |view, event| take(view, cache(view), event))
}

pub(crate) fn config(kind: Kind) -> watcher::Config {
    watcher::Config::default().timeout(renewed_after(kind)).page_size(PAGE)
}

fn watch_with(
    api: Api<RawObject>,
    config: watcher::Config,
    kind: Kind,
    view: Arc<View>,
    taking: impl Fn(&View, Event<RawObject>) -> Vec<Meta> + Send + 'static,
) -> BoxStream<'static, Meta> {
    view.freshness.listen(kind);
    watch_untracked(api, config, kind, view, taking)
}

fn watch_untracked(
    api: Api<RawObject>,
    config: watcher::Config,
    kind: Kind,
    view: Arc<View>,
    taking: impl Fn(&View, Event<RawObject>) -> Vec<Meta> + Send + 'static,
) -> BoxStream<'static, Meta> {
    let followed = view.clone();
    let events = watcher::watcher(api, config).inspect(move |event| follow(&followed, kind, event));
    paced(events.boxed(), kind).flat_map(move |event| stream::iter(taking(&view, event))).boxed()
}

/// Records whether the watch can continue. After some errors everything is listed again; until that is complete,
/// responses of the API server do not make the cache current.
fn follow(view: &View, kind: Kind, event: &watcher::Result<Event<RawObject>>) {
    match event {
        Ok(Event::Init) => view.freshness.lost(kind),
        Ok(Event::InitDone) => view.freshness.found(kind),
        Err(watcher::Error::WatchError(status)) if status.code == 410 => view.freshness.lost(kind),
        Ok(Event::InitApply(_) | Event::Apply(_) | Event::Delete(_)) | Err(_) => {}
    }
}

/// The events of a watcher, with a backoff between its attempts. kube-rs' own backoff is reset by every item that is
/// not an error, and each attempt to list begins with such an item: a list that is always refused would be requested
/// every second.
pub(crate) fn paced<T: Send + 'static>(
    events: BoxStream<'static, watcher::Result<Event<T>>>,
    kind: Kind,
) -> impl Stream<Item = Event<T>> {
    let attempts = Attempts::of(format!("watch of {}", kind.name()));
    stream::unfold((events, attempts), move |(mut events, mut attempts)| async move {
        loop {
            match events.next().await? {
                Ok(event) => {
                    if matches!(event, Event::InitDone | Event::Apply(_) | Event::Delete(_)) {
                        attempts.reset_backoff();
                        attempts.was_refused = false;
                    }
                    return Some((event, (events, attempts)));
                }
                Err(error) => {
                    let is_refused = is_refusal(&error);
                    // A refusal that lasts is not repeated.
                    if is_refused && attempts.was_refused {
                        debug!(kind = kind.name(), %error, "a watch failed; will retry");
                    } else {
                        warn!(kind = kind.name(), %error, "a watch failed; will retry");
                    }
                    if is_refused && !attempts.was_refused {
                        // The API server answers again: that it is not ready yet, or has compacted the resourceVersion,
                        // says nothing about later attempts.
                        attempts.reset_backoff();
                    }
                    attempts.was_refused = is_refused;
                    let longest = if is_refused { REFUSED_WAIT_MAX } else { WAIT_MAX };
                    sleep(attempts.failed().min(longest)).await;
                }
            }
        }
    })
}

/// True if the API server refused the request: a missing permission, an unknown kind, too many requests.
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
            // A doubt ends with another version of the object, even if nothing else changed.
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

/// The timeout of a watch in seconds, after which the API server ends it and it is restarted from where it was. A watch
/// without events does not show whether its other side is alive; kube-rs gives up a watch that is silent for 5 s longer
/// than this. The timeout is spread by kind, so that not all watches restart at once.
pub(crate) fn renewed_after(kind: Kind) -> u32 {
    18 + kind.name().len() as u32 % 5
}

/// The maximum backoff if the API server does not respond, or responds with an error of its own: an outage ends by
/// itself, and nothing is reconciled before the watch is back.
const WAIT_MAX: Duration = Duration::from_secs(10);
/// The maximum backoff after a refusal: each attempt costs the API server something, and the refusal ends only when a
/// person changes something.
const REFUSED_WAIT_MAX: Duration = Duration::from_secs(30);
/// After this time without a failure the backoff is reset, even without an event: a watch of objects that do not change
/// is silent.
const CALM: Duration = Duration::from_mins(2);

/// The exponential backoff between attempts. Its jitter is derived from what is watched, not random, so that a run can
/// be replayed.
pub(crate) struct Attempts {
    id: String,
    count: u32,
    slower: u32,
    waited_until: Option<Instant>,
    /// True if the last failure was a refusal, and not a missing response.
    was_refused: bool,
}

impl Attempts {
    /// The backoff for what is watched: from 0.5 s up to a minute.
    pub fn of(id: String) -> Self {
        Self { id, count: 0, slower: 1, waited_until: None, was_refused: false }
    }

    /// Multiplies each backoff by this factor.
    pub fn slower(self, times: u32) -> Self {
        Self { slower: times, ..self }
    }

    /// Resets the backoff after a successful attempt.
    pub fn reset_backoff(&mut self) {
        self.count = 0;
    }

    /// The number of failures in a row.
    pub fn failures(&self) -> u32 {
        self.count
    }

    /// Records a failure. Returns how long to wait before the next attempt.
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
