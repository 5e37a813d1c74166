//! Why StatefulSets have no pod: their controller says so in events and nowhere else. One watch of just those events is
//! for all nodes; to list a namespace's events for each node that waits is a scan of etcd each time.
//!
//! Nothing rests on it but words: where events may not be watched a node is named as one that has no pod all the same.

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

use super::observed::{Meta, Observed};
use super::raw::RawObject;
use super::watch::{Attempts, renewed_after};
use super::{Kind, View, port::EventNote};
use crate::clock::monotonic;

/// The events that matter: the StatefulSet controller's, of pods and claims that the API server would not take.
pub const SELECTOR: &str = "regarding.kind=StatefulSet,reason=FailedCreate";

/// After so many lists that failed it goes without.
const ENOUGH: u32 = 3;
/// After so many failures in a row, some minutes, a watch begins from now.
const LOST: u32 = 6;
/// After so long nobody waits for the first list any more, whatever became of it.
const SETTLED_AFTER: Duration = Duration::from_secs(30);
/// How many events are listed at once.
const PAGE: u32 = 500;
/// How much longer than the caches' its waits are: up to some minutes, for nothing rests on it but words.
const SLOWER: u32 = 4;
/// How much longer than it should a watch may last before its other side counts as gone.
const MARGIN: Duration = Duration::from_secs(5);
/// A watch that brings nothing and is over sooner counts as one that failed.
const SHORT: Duration = Duration::from_secs(5);

/// Watches those events, for ever. Tells namespace and name of each StatefulSet of which something newer was said.
///
/// The API server keeps no cache of events: a list with a selector reads all of them in etcd, and no bookmark says how far
/// a watch has come in which nothing happens. Its resourceVersion is thrown away within minutes, and kube-rs' watcher
/// would list again each time. So they are listed once; after that a watch that has lost its place begins from now. What
/// was said in between is said again: the StatefulSet controller goes on trying.
pub async fn watch(api: Api<RawObject>, view: Arc<View>, tell: impl Fn(Meta)) {
    let settles = view.clone();
    let settle = async move {
        sleep(SETTLED_AFTER).await;
        settles.refusals.settle();
    };
    let attempts = Attempts::of("watch of events".to_owned()).slower(SLOWER);
    let watch =
        Watch { api, view, tell, attempts, is_listed: false, lists: 0, version: None, is_told: false };
    tokio::join!(settle, watch.run());
}

/// What goes wrong with a watch.
#[derive(Debug, Error)]
enum Trouble {
    #[error(transparent)]
    Asking(#[from] kube::Error),
    #[error("the watch was ended: {}", .0.message)]
    Ended(Box<Status>),
    #[error("the watch was over at once")]
    Short,
    #[error("the list was not complete within {} s", SETTLED_AFTER.as_secs())]
    Late,
    #[error("the list has no resourceVersion")]
    NoVersion,
}

impl Trouble {
    fn code(&self) -> u16 {
        match self {
            Self::Asking(kube::Error::Api(status)) | Self::Ended(status) => status.code,
            Self::Asking(_) | Self::Short | Self::Late | Self::NoVersion => 0,
        }
    }
}

struct Watch<F> {
    api: Api<RawObject>,
    view: Arc<View>,
    tell: F,
    attempts: Attempts,
    /// Whether what was said before is known, or not to be had.
    is_listed: bool,
    /// How many lists came to nothing.
    lists: u32,
    /// Where the next watch begins.
    version: Option<String>,
    /// Whether it was said that a right is missing.
    is_told: bool,
}

impl<F: Fn(Meta)> Watch<F> {
    async fn run(mut self) {
        loop {
            let Err(trouble) = self.round().await else { continue };
            let went_well = self.attempts.failures() == 0;
            let wait = self.attempts.failed();
            let is_gone = trouble.code() == 410;
            // What brings the same failure again and again may be the place itself.
            if is_gone || self.attempts.failures() >= LOST {
                self.version = None;
            }
            if is_gone && went_well {
                // That is how each watch ends in which nothing happened for minutes.
                continue;
            }
            self.say(&trouble);
            sleep(wait).await;
        }
    }

    /// One watch, and what it needs before.
    async fn round(&mut self) -> Result<(), Trouble> {
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

    /// What was said before this process began. That it may not be known costs nothing, and is tried again.
    async fn list_once(&mut self) -> Result<(), Trouble> {
        let listed = timeout(SETTLED_AFTER, self.list()).await.unwrap_or(Err(Trouble::Late));
        let is_forbidden = listed.as_ref().is_err_and(|trouble| trouble.code() == 403);
        self.lists += u32::from(!is_forbidden);
        self.is_listed = listed.is_ok() || self.lists >= ENOUGH;
        if self.is_listed || is_forbidden {
            self.view.refusals.settle();
        }
        self.version = Some(listed?);
        Ok(())
    }

    async fn list(&self) -> Result<String, Trouble> {
        let mut params = ListParams::default().fields(SELECTOR).limit(PAGE);
        loop {
            let page = self.api.list(&params).await?;
            for event in &page.items {
                self.take(&event.value());
            }
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => params = params.continue_token(&token),
                None => return page.metadata.resource_version.filter(is_version).ok_or(Trouble::NoVersion),
            }
        }
    }

    /// The resourceVersion of now: that of a list of one event, whichever it is.
    async fn newest(&self) -> Result<String, Trouble> {
        let list = self.api.list(&ListParams::default().limit(1)).await?;
        list.metadata.resource_version.filter(is_version).ok_or(Trouble::NoVersion)
    }

    async fn watch_from(&mut self, version: &str) -> Result<(), Trouble> {
        let seconds = renewed_after(Kind::Event);
        let params = WatchParams::default().fields(SELECTOR).timeout(seconds);
        let mut events = self.api.watch(&params, version).await?.boxed();
        let (began, mut brought) = (monotonic(), false);
        let silence = Duration::from_secs(seconds.into()) + MARGIN;
        while let Ok(Some(event)) = timeout(silence, events.next()).await {
            let version = match event? {
                WatchEvent::Added(event) | WatchEvent::Modified(event) => {
                    self.take(&event.value());
                    event.meta().resource_version.clone()
                }
                // That an event is forgotten says nothing of the pod.
                WatchEvent::Deleted(event) => event.meta().resource_version.clone(),
                WatchEvent::Bookmark(mark) => Some(mark.metadata.resource_version),
                WatchEvent::Error(status) => return Err(Trouble::Ended(status)),
            };
            self.version = version.filter(is_version);
            brought = true;
            self.goes_well();
        }
        if !brought && began.elapsed() < SHORT {
            return Err(Trouble::Short);
        }
        self.goes_well();
        Ok(())
    }

    fn goes_well(&mut self) {
        self.attempts.went_well();
        self.is_told = false;
    }

    fn take(&self, event: &Value) {
        sweep(&self.view);
        let (uid, meta) = about(event);
        if EventNote::read(event).is_some_and(|told| self.view.refusals.note(&uid, told)) {
            (self.tell)(meta);
        }
    }

    fn say(&mut self, error: &Trouble) {
        if error.code() != 403 {
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

/// Forgets what need not be kept of StatefulSets; not more often than need be.
pub(super) fn sweep(view: &View) {
    view.refusals.sweep(|| {
        let there = view.stateful_sets.list_all(|_| true);
        there.iter().map(|set| set.meta().uid.clone()).collect::<HashSet<String>>()
    });
}

/// The StatefulSet that an event is about: its UID, and as much of its metadata.
fn about(event: &Value) -> (String, Meta) {
    let text = |field: &str| event["regarding"][field].as_str().unwrap_or_default().to_owned();
    (text("uid"), Meta { namespace: text("namespace"), name: text("name"), ..Meta::default() })
}

#[allow(clippy::ptr_arg, reason = "what an Option's filter hands over")]
fn is_version(version: &String) -> bool {
    !version.is_empty()
}
