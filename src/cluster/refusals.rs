//! Why StatefulSets have no pod: their controller says so in events and nowhere else. One watch of just those events is
//! for all nodes; to list a namespace's events for each node that waits is a scan of etcd each time.
//!
//! Nothing rests on it but words: where events may not be watched a node is named as one that has no pod all the same.

use std::collections::{HashMap, HashSet};
use std::future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::{StreamExt, stream::BoxStream};
use kube::Api;
use kube::runtime::{WatchStreamExt, watcher};
use serde_json::Value;
use tokio::time::Instant;
use tracing::warn;

use super::observed::{Meta, Observed};
use super::raw::RawObject;
use super::watch::{Attempts, renewed_after};
use super::{Kind, View, port::Told};
use crate::clock::monotonic;

/// The events that matter: the StatefulSet controller's, of pods and claims that the API server would not take.
pub const SELECTOR: &str = "regarding.kind=StatefulSet,reason=FailedCreate";

/// How long what was said is kept; the API server keeps events for as long.
const KEPT: Duration = Duration::from_hours(1);
/// How often, at most, it is gone through for what need not be kept.
const SWEEP: Duration = Duration::from_mins(1);
/// Of how many StatefulSets something is kept.
const MAX_ENTRIES: usize = 20_000;
/// How long a sentence is kept to be, in bytes: some name every rule of a policy.
const MAX_NOTE: usize = 2_048;
/// After so many failures in a row nobody waits for the first list any more.
const ENOUGH: u32 = 3;

/// What was last said of each StatefulSet that could not make its pod.
#[derive(Default)]
pub struct Refusals {
    said: Mutex<Said>,
    settled: AtomicBool,
}

#[derive(Default)]
struct Said {
    by_uid: HashMap<String, (Told, Instant)>,
    swept: Option<Instant>,
}

impl Refusals {
    /// What was last said of the StatefulSet with this UID.
    #[must_use]
    pub fn last(&self, uid: &str) -> Option<Told> {
        self.said().by_uid.get(uid).map(|(told, _)| told.clone())
    }

    /// Takes in what was said of a StatefulSet, unless something newer is known. Answers whether it is news.
    pub fn note(&self, uid: &str, mut told: Told) -> bool {
        cut(&mut told.note);
        let mut said = self.said();
        if said.by_uid.get(uid).is_some_and(|(known, _)| known.at >= told.at) {
            return false;
        }
        if said.by_uid.len() >= MAX_ENTRIES && !said.by_uid.contains_key(uid) {
            said.by_uid.clear();
        }
        said.by_uid.insert(uid.to_owned(), (told, monotonic()));
        true
    }

    /// Whether the first list is in, or is not to be had.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.settled.load(Ordering::Relaxed)
    }

    pub(crate) fn settle(&self) {
        self.settled.store(true, Ordering::Relaxed);
    }

    /// Forgets what is old, and what is of StatefulSets that are not there; not more often than need be.
    pub(super) fn sweep(&self, view: &View) {
        let now = monotonic();
        let mut said = self.said();
        if said.swept.is_some_and(|last| now.duration_since(last) < SWEEP) {
            return;
        }
        // What was said a moment ago may be of one that its watch is yet to show.
        let lately = |at: &Instant| now.duration_since(*at) < SWEEP;
        let there: HashSet<String> =
            view.sets.list_all(|_| true).iter().map(|set| set.meta().uid.clone()).collect();
        said.by_uid
            .retain(|uid, (_, at)| now.duration_since(*at) < KEPT && (lately(at) || there.contains(uid)));
        said.swept = Some(now);
    }

    fn said(&self) -> MutexGuard<'_, Said> {
        self.said.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Of how many StatefulSets something is kept.
    #[must_use]
    pub fn len(&self) -> usize {
        self.said().by_uid.len()
    }

    /// Whether nothing is kept.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

fn cut(note: &mut String) {
    if note.len() > MAX_NOTE {
        let end = (0..=MAX_NOTE).rev().find(|at| note.is_char_boundary(*at)).unwrap_or_default();
        note.truncate(end);
        note.shrink_to_fit();
    }
}

/// Watches those events. Yields namespace and name of each StatefulSet of which something newer was said.
pub fn watch(api: Api<RawObject>, view: Arc<View>) -> BoxStream<'static, Meta> {
    let config = watcher::Config::default().fields(SELECTOR).timeout(renewed_after(Kind::Event));
    let mut trouble = Trouble::default();
    watcher::watcher(api, config)
        .backoff(Attempts::of("watch of events".to_owned()))
        .filter_map(move |event| {
            let news = match event {
                // Each attempt begins so, whatever comes of it.
                Ok(watcher::Event::Init) => None,
                Ok(event) => {
                    trouble = Trouble::default();
                    take(&view, event)
                }
                Err(error) => {
                    trouble.meets(&view, &error);
                    None
                }
            };
            future::ready(news)
        })
        .boxed()
}

fn take(view: &View, event: watcher::Event<RawObject>) -> Option<Meta> {
    match event {
        watcher::Event::Apply(event) | watcher::Event::InitApply(event) => {
            view.refusals.sweep(view);
            let (uid, meta) = about(&event.value);
            let told = Told::read(&event.value)?;
            view.refusals.note(&uid, told).then_some(meta)
        }
        watcher::Event::InitDone => {
            view.refusals.settle();
            None
        }
        // That an event is forgotten says nothing of the pod.
        watcher::Event::Delete(_) | watcher::Event::Init => None,
    }
}

/// The StatefulSet that an event is about: its UID, and as much of its metadata.
fn about(event: &Value) -> (String, Meta) {
    let text = |field: &str| event["regarding"][field].as_str().unwrap_or_default().to_owned();
    (text("uid"), Meta { namespace: text("namespace"), name: text("name"), ..Meta::default() })
}

/// What went wrong since something last went well.
#[derive(Default)]
struct Trouble {
    failures: u32,
    is_told: bool,
}

impl Trouble {
    fn meets(&mut self, view: &View, error: &watcher::Error) {
        self.failures += 1;
        let is_forbidden = is_forbidden(error);
        if is_forbidden || self.failures >= ENOUGH {
            view.refusals.settle();
        }
        if !is_forbidden {
            warn!(%error, "the watch of events failed and is tried again");
            return;
        }
        // Once: until somebody changes the rights nothing but words is missing.
        if !std::mem::replace(&mut self.is_told, true) {
            warn!(
                %error,
                "events may not be watched, and why a pod is refused will not be known: grant list and watch of \
                 events.k8s.io, as deploy/rbac does"
            );
        }
    }
}

fn is_forbidden(error: &watcher::Error) -> bool {
    use watcher::Error::{InitialListFailed, WatchError, WatchFailed, WatchStartFailed};
    match error {
        InitialListFailed(error) | WatchStartFailed(error) | WatchFailed(error) => {
            matches!(error, kube::Error::Api(status) if status.code == 403)
        }
        WatchError(status) => status.code == 403,
        watcher::Error::NoResourceVersion => false,
    }
}
