//! Why StatefulSets have no pod, and why pods cannot start: this is reported only in events. One watch for each serves
//! all nodes; a list of a namespace's events for each waiting node would be a scan of etcd each time.
//!
//! Only messages depend on it: if events may not be watched, a node without a pod is still reported as one.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use kube::api::{ListParams, WatchEvent, WatchParams};
use kube::{Api, Resource, core::Status};
use serde_json::Value;
use thiserror::Error;
use tokio::time::{sleep, timeout};
use tracing::warn;

use crate::raw::RawObject;
use crate::watch::{Attempts, renewed_after};
use crate::{Key, Kind, View, port::EventNote};
use windlass_clock::monotonic;
use windlass_core::api::names::LABEL_NODE;
use windlass_core::observed::{Meta, Observed};
use windlass_core::planner::fleet::pods::is_adopted;

/// The events of one watch.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum EventsOf {
    /// Those of the StatefulSet controller about pods and claims that the API server refused.
    Refusals,
    /// Warnings about pods, such as volumes that cannot be attached or mounted. Those that repeat what the status of a
    /// pod says are left out.
    Pods,
    /// Failures to expand the volumes of claims.
    Claims,
}

impl EventsOf {
    /// The field selector.
    #[must_use]
    pub fn selector(self) -> &'static str {
        match self {
            Self::Refusals => "regarding.kind=StatefulSet,reason=FailedCreate",
            Self::Pods => {
                "regarding.kind=Pod,type=Warning,reason!=BackOff,reason!=Failed,reason!=FailedScheduling,\
                 reason!=Unhealthy"
            }
            Self::Claims => "regarding.kind=PersistentVolumeClaim,reason=VolumeResizeFailed",
        }
    }
}

/// After this many failed lists the watch starts without one.
const ENOUGH: u32 = 3;
/// After this many failures in a row, which is some minutes, a watch starts from the current resourceVersion.
const LOST: u32 = 6;
/// After this time the first list counts as complete, even if it is not.
const SETTLED_AFTER: Duration = Duration::from_secs(30);
/// The page size of the list.
const PAGE: u32 = 500;
/// The factor by which the backoff is longer than that of the caches, up to some minutes: only messages depend on this
/// watch.
const SLOWER: u32 = 4;
/// How much longer than its timeout a watch may be silent before its other side counts as gone.
const MARGIN: Duration = Duration::from_secs(5);
/// How many digits make an ID.
const ID_DIGITS: usize = 32;
/// A watch without events that ends within this time counts as failed.
const SHORT: Duration = Duration::from_secs(5);

/// Watches these events forever. Reports the namespace and the name of each StatefulSet with a new event.
///
/// The API server has no watch cache for events: a list with a selector reads all of them from etcd, and no bookmarks
/// update the resourceVersion of a quiet watch. That resourceVersion is compacted within minutes, and the watcher of
/// kube-rs would list again each time. So events are listed once, and after that a watch whose resourceVersion is gone
/// starts from the current one. The StatefulSet controller keeps trying, so events that were missed in between are
/// repeated. So does a kubelet, every two minutes at least: events about pods are not listed.
pub async fn watch(of: EventsOf, api: Api<RawObject>, view: Arc<View>, tell: impl Fn(Meta)) {
    let settles = view.clone();
    let settle = async move {
        if of == EventsOf::Refusals {
            sleep(SETTLED_AFTER).await;
            settles.refusals.settle();
        }
    };
    let attempts = Attempts::of("watch of events".to_owned()).slower(SLOWER);
    let is_listed = of != EventsOf::Refusals;
    let watch = Watch { of, api, view, tell, attempts, is_listed, lists: 0, version: None, is_told: false };
    tokio::join!(settle, watch.run());
}

/// Why a watch failed.
#[derive(Debug, Error)]
enum AttemptError {
    #[error(transparent)]
    Asking(#[from] kube::Error),
    #[error("the watch was ended: {}", .0.message)]
    Ended(Box<Status>),
    #[error("the watch ended immediately")]
    Short,
    #[error("the list was not complete within {} s", SETTLED_AFTER.as_secs())]
    Late,
    #[error("the list has no resourceVersion")]
    NoVersion,
}

impl AttemptError {
    fn code(&self) -> u16 {
        match self {
            Self::Asking(kube::Error::Api(status)) | Self::Ended(status) => status.code,
            Self::Asking(_) | Self::Short | Self::Late | Self::NoVersion => 0,
        }
    }
}

struct Watch<F> {
    of: EventsOf,
    api: Api<RawObject>,
    view: Arc<View>,
    tell: F,
    attempts: Attempts,
    /// True if earlier events are known, or unavailable.
    is_listed: bool,
    /// The number of failed lists.
    lists: u32,
    /// The resourceVersion from which the next watch starts.
    version: Option<String>,
    /// True if the missing permission was logged.
    is_told: bool,
}

impl<F: Fn(Meta)> Watch<F> {
    async fn run(mut self) {
        loop {
            let Err(trouble) = self.round().await else { continue };
            let had_success = self.attempts.failures() == 0;
            let wait = self.attempts.failed();
            let is_gone = trouble.code() == 410;
            // Repeated failures may be caused by the resourceVersion itself.
            if is_gone || self.attempts.failures() >= LOST {
                self.version = None;
            }
            if is_gone && had_success {
                // Every watch without events for some minutes ends like this.
                continue;
            }
            self.say(&trouble);
            sleep(wait).await;
        }
    }

    /// One watch, and the requests that it needs before.
    async fn round(&mut self) -> Result<(), AttemptError> {
        if !self.is_listed {
            self.list_once().await?;
        }
        let version = match &self.version {
            Some(version) => version.clone(),
            None => self.newest().await?,
        };
        self.version = Some(version.clone());
        self.watch_from(&version).await
    }

    /// Lists the events from before this process began. A failure does no harm, and is retried.
    async fn list_once(&mut self) -> Result<(), AttemptError> {
        let listed = timeout(SETTLED_AFTER, self.list()).await.unwrap_or(Err(AttemptError::Late));
        let is_forbidden = listed.as_ref().is_err_and(|trouble| trouble.code() == 403);
        self.lists += u32::from(!is_forbidden);
        self.is_listed = listed.is_ok() || self.lists >= ENOUGH;
        if self.is_listed || is_forbidden {
            self.view.refusals.settle();
        }
        self.version = Some(listed?);
        Ok(())
    }

    async fn list(&self) -> Result<String, AttemptError> {
        let mut params = ListParams::default().fields(self.of.selector()).limit(PAGE);
        loop {
            let page = self.api.list(&params).await?;
            for event in &page.items {
                self.take(&event.value());
            }
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => params = params.continue_token(&token),
                None => {
                    return page.metadata.resource_version.filter(is_version).ok_or(AttemptError::NoVersion);
                }
            }
        }
    }

    /// The current resourceVersion, from a list of any one event.
    async fn newest(&self) -> Result<String, AttemptError> {
        let list = self.api.list(&ListParams::default().limit(1)).await?;
        list.metadata.resource_version.filter(is_version).ok_or(AttemptError::NoVersion)
    }

    async fn watch_from(&mut self, version: &str) -> Result<(), AttemptError> {
        let seconds = renewed_after(Kind::Event);
        let params = WatchParams::default().fields(self.of.selector()).timeout(seconds);
        let mut events = self.api.watch(&params, version).await?.boxed();
        let (began, mut brought) = (monotonic(), false);
        let silence = Duration::from_secs(seconds.into()) + MARGIN;
        while let Ok(Some(event)) = timeout(silence, events.next()).await {
            let version = match event? {
                WatchEvent::Added(event) | WatchEvent::Modified(event) => {
                    self.take(&event.value());
                    event.meta().resource_version.clone()
                }
                // The deletion of an event says nothing about the pod.
                WatchEvent::Deleted(event) => event.meta().resource_version.clone(),
                WatchEvent::Bookmark(mark) => Some(mark.metadata.resource_version),
                WatchEvent::Error(status) => return Err(AttemptError::Ended(status)),
            };
            self.version = version.filter(is_version);
            brought = true;
            self.record_success();
        }
        if !brought && began.elapsed() < SHORT {
            return Err(AttemptError::Short);
        }
        self.record_success();
        Ok(())
    }

    fn record_success(&mut self) {
        self.attempts.reset_backoff();
        self.is_told = false;
    }

    fn take(&self, event: &Value) {
        sweep(&self.view);
        let (uid, mut meta) = about(event);
        let Some(mut told) = EventNote::read(event) else { return };
        if self.of != EventsOf::Refusals {
            let Some(owner) = self.owner(&meta) else { return };
            meta.name = owner;
            let reason = event["reason"].as_str().unwrap_or_default();
            told.note = format!("{reason}: {}", without_ids(&told.note));
        }
        if self.view.refusals.note(&uid, told) {
            (self.tell)(meta);
        }
    }

    /// The name of the node that a claim is of; of a pod, that of the node or of the StatefulSet that is held, by its name:
    /// most pods are not Windlass's. The watch of pods may be behind: it does not matter what it has shown.
    fn owner(&self, pod: &Meta) -> Option<String> {
        let key = |name: &str| Key::new(&pod.namespace, name);
        if self.of == EventsOf::Claims {
            return self.view.claims.get(&key(&pod.name))?.meta.label(LABEL_NODE).map(str::to_owned);
        }
        if self.view.is_of_rollouts() {
            let (set, _) = pod.name.rsplit_once('-')?;
            let is_held = self.view.stateful_sets.get(&key(set)).is_some_and(|set| is_adopted(&set));
            return is_held.then(|| set.to_owned());
        }
        let node = pod.name.strip_suffix("-0")?;
        self.view.nodes.get(&key(node)).map(|_| node.to_owned())
    }

    fn say(&mut self, error: &AttemptError) {
        if error.code() != 403 {
            warn!(%error, "the watch of events failed; will retry");
            return;
        }
        // Logged once: until somebody changes the permissions, only messages are missing.
        if !std::mem::replace(&mut self.is_told, true) {
            warn!(
                %error,
                "the operator may not watch events, so conditions do not show why a pod is rejected or cannot start: \
                 grant list and watch on events.k8s.io, as deploy/rbac does"
            );
        }
    }
}

/// Sweeps the store of refusals, at most once per interval.
pub(crate) fn sweep(view: &View) {
    view.refusals.sweep(|| {
        let sets = view.stateful_sets.list_all(|_| true);
        let pods = view.pods.list_all(|pod| !pod.is_ready());
        let growing = view.claims.list_all(|claim| !claim.conditions.is_empty());
        let sets = sets.iter().map(|set| set.meta().uid.clone());
        let sets = sets.chain(growing.iter().map(|claim| claim.meta().uid.clone()));
        sets.chain(pods.iter().map(|pod| pod.meta().uid.clone())).collect::<HashSet<String>>()
    });
}

/// The object that an event is about: its UID, and its namespace and name as metadata.
fn about(event: &Value) -> (String, Meta) {
    let text = |field: &str| event["regarding"][field].as_str().unwrap_or_default().to_owned();
    (text("uid"), Meta { namespace: text("namespace"), name: text("name"), ..Meta::default() })
}

#[allow(clippy::ptr_arg, reason = "the argument type of Option::filter")]
fn is_version(version: &String) -> bool {
    !version.is_empty()
}

/// A note without the IDs of containers and sandboxes, which are others at every try.
fn without_ids(note: &str) -> String {
    let words = note.split_inclusive(|c: char| !c.is_ascii_hexdigit());
    let short = |word: &str| match word.trim_end_matches(|c: char| !c.is_ascii_hexdigit()) {
        digits if digits.len() >= ID_DIGITS => format!("…{}", &word[digits.len()..]),
        _ => word.to_owned(),
    };
    words.map(short).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn same_failure_of_another_sandbox_has_the_same_text() {
        let note = |id: &str| format!("plugin cannot add {id} to the network; error 500 (code abc123)");
        let tries = ["0a".repeat(32), "ff".repeat(32)].map(|id| without_ids(&note(&id)));
        assert_eq!(tries, [note("…"), note("…")]);
    }
}
