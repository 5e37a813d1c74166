//! Watches: a cursor into the history, filtered by selectors.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures::Stream;
use serde_json::{Value, json};
use tokio::time::Sleep;

use super::super::faults::WatchFate;
use super::super::kinds::Kind;
use super::super::refusal::Refusal;
use super::super::shared::{Shared, WatchView};
use super::super::store::{Change, Object};
use super::super::world::World;
use super::create::shown_value;
use super::read::{ListOptions, metadata_only, parse_version};
use super::table::{Form, table};
use windlass_clock::SharedClock;

/// The interval of bookmarks on a quiet watch.
const BOOKMARK_EVERY: Duration = Duration::from_mins(1);
/// How long before its end a watch sends a last bookmark, from which the next one resumes.
const BOOKMARK_BEFORE_END: Duration = Duration::from_secs(2);
/// The default time-out of a watch.
const DEFAULT_TIMEOUT_SECONDS: u64 = 1800;

/// The filter and the form of a watch.
pub(crate) struct Lens {
    pub kind: Arc<Kind>,
    pub namespace: String,
    pub name: Option<String>,
    pub options: ListOptions,
    pub form: Form,
    /// For ages in tables.
    pub clock: SharedClock,
    /// True once the column definitions were sent.
    pub described: AtomicBool,
}

/// The events of one watch, as lines of JSON.
pub(crate) struct WatchStream {
    shared: Arc<Shared>,
    id: u64,
    lens: Lens,
    view: WatchView,
    cursor: u64,
    bookmarked: u64,
    ready: VecDeque<Bytes>,
    ended: bool,
    silent: bool,
    bookmark: Pin<Box<Sleep>>,
    deadline: Pin<Box<Sleep>>,
    lag: Option<Pin<Box<Sleep>>>,
}

impl World {
    /// Opens a watch.
    pub(crate) fn watch(
        &mut self,
        shared: &Arc<Shared>,
        lens: Lens,
        view: WatchView,
    ) -> Result<WatchStream, Refusal> {
        let requested = parse_version(lens.options.version.as_deref())
            .map_err(|refusal| Refusal::new(500, "", refusal.message))?;
        let current = self.store.version();
        let mut ready = VecDeque::new();
        let mut cursor = requested;
        let mut ended = false;
        if requested == 0 || lens.options.initial_events {
            cursor = current;
            let wanted = requested == 0 && !matches!(lens.options.initial_send(), Some(false));
            if wanted || lens.options.initial_events {
                let objects = self.store.list(lens.kind.shelf, &lens.namespace);
                ready.extend(objects.filter_map(|(_, object)| lens.line("ADDED", object)));
            }
            if lens.options.initial_events && lens.options.bookmarks {
                ready.push_back(lens.bookmark(cursor, true));
            }
        } else if requested < self.store.compacted() {
            ready.push_back(too_old(requested, self.store.compacted()));
            ended = true;
        }
        let timeout = Duration::from_secs(lens.options.timeout_seconds.unwrap_or(DEFAULT_TIMEOUT_SECONDS));
        Ok(WatchStream {
            id: self.store.add_watcher(lens.kind.shelf),
            shared: shared.clone(),
            view,
            cursor,
            bookmarked: cursor,
            ready,
            ended,
            silent: false,
            bookmark: Box::pin(tokio::time::sleep(
                BOOKMARK_EVERY.min(timeout.saturating_sub(BOOKMARK_BEFORE_END)),
            )),
            deadline: Box::pin(tokio::time::sleep(timeout)),
            lag: None,
            lens,
        })
    }
}

impl ListOptions {
    /// The value of `sendInitialEvents`; only `true` is distinguished.
    fn initial_send(&self) -> Option<bool> {
        self.initial_events.then_some(true)
    }
}

impl Lens {
    fn shows(&self, object: &Value) -> bool {
        self.name.as_deref().is_none_or(|name| object["metadata"]["name"] == name)
            && self.options.labels.matches(object)
            && self.options.fields.matches(object)
    }

    fn line(&self, what: &str, object: &Arc<Object>) -> Option<Bytes> {
        let plain = self.kind.group.is_empty() && self.kind.kind == "Event" || self.form != Form::Whole;
        if !plain {
            return self.shows(&object.value).then(|| {
                let json = object.json();
                let mut line = Vec::with_capacity(json.len() + 32);
                line.extend_from_slice(format!("{{\"type\":\"{what}\",\"object\":").as_bytes());
                line.extend_from_slice(&json);
                line.extend_from_slice(b"}\n");
                Bytes::from(line)
            });
        }
        let shown = shown_value(&self.kind, &object.value);
        self.shows(&shown).then(|| event(what, &self.sent(&shown)))
    }

    /// An object in the requested form.
    fn sent(&self, shown: &Value) -> Value {
        match self.form {
            Form::Whole => shown.clone(),
            Form::Metadata => metadata_only(shown),
            Form::Table(include) => {
                let first = !self.described.swap(true, Ordering::Relaxed);
                let mut sent = table(&self.kind, std::iter::once(shown), include, first, self.clock.now());
                sent["metadata"] = json!({"resourceVersion": shown["metadata"]["resourceVersion"]});
                sent
            }
        }
    }

    /// A change as this watch sees it: an object that leaves the selection is deleted.
    fn change(&self, change: &Change) -> Option<Bytes> {
        if change.shelf != self.kind.shelf || (!self.namespace.is_empty() && change.key.0 != self.namespace) {
            return None;
        }
        let seen = |object: &Option<Arc<Object>>| {
            object.as_ref().is_some_and(|o| self.shows(&shown_value(&self.kind, &o.value)))
        };
        let cheap = self.options.labels.is_empty() && self.options.fields.is_empty() && self.name.is_none();
        let (before, after) = if cheap {
            (change.before.is_some(), change.after.is_some())
        } else {
            (seen(&change.before), seen(&change.after))
        };
        match (before, after) {
            (false, true) => self.line("ADDED", &change.shown),
            (true, true) => self.line("MODIFIED", &change.shown),
            (true, false) => {
                // An object that leaves the selection is sent in its last state, with the version of the change.
                let last = change.before.as_ref()?;
                let shown = Object::new(change.version, last.value.clone());
                self.line("DELETED", &shown)
            }
            (false, false) => None,
        }
    }

    fn bookmark(&self, version: u64, initial_end: bool) -> Bytes {
        let mut metadata = json!({"resourceVersion": version.to_string(), "creationTimestamp": null});
        if initial_end {
            metadata["annotations"] = json!({"k8s.io/initial-events-end": "true"});
        }
        let object = if self.form == Form::Metadata {
            json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata})
        } else {
            json!({"kind": self.kind.kind, "apiVersion": self.kind.api_version(), "metadata": metadata})
        };
        event("BOOKMARK", &object)
    }
}

fn event(what: &str, object: &Value) -> Bytes {
    // The API server sends the type first.
    Bytes::from(format!("{{\"type\":\"{what}\",\"object\":{object}}}\n"))
}

fn too_old(requested: u64, oldest: u64) -> Bytes {
    let refusal = Refusal::expired(format!("too old resource version: {requested} ({oldest})"));
    event("ERROR", &refusal.body())
}

impl WatchStream {
    /// Moves changes after the cursor into `ready`, as far as the fault plan allows.
    fn collect(&mut self, context: &mut Context<'_>) {
        let shared = self.shared.clone();
        let mut world = shared.lock();
        world.store.wake_watcher(self.id, context.waker());
        if self.cursor < world.store.compacted() && self.cursor < world.store.version() {
            self.ready.push_back(too_old(self.cursor, world.store.compacted()));
            self.ended = true;
            return;
        }
        let changes: Vec<Arc<Change>> =
            world.store.since(self.cursor).filter(|c| c.shelf == self.lens.kind.shelf).cloned().collect();
        let version = world.store.version();
        drop(world);
        for change in changes {
            match self.view.fate(&change.key.0, &change.key.1, change.version, change.after.is_none()) {
                WatchFate::Show => {
                    if let Some(line) = self.lens.change(&change) {
                        self.ready.push_back(line);
                        self.bookmarked = change.version;
                    }
                }
                WatchFate::Drop => {}
                WatchFate::Later(delay) => {
                    let mut sleep = Box::pin(tokio::time::sleep(delay));
                    let _ = sleep.as_mut().poll(context);
                    self.lag = Some(sleep);
                    return;
                }
                WatchFate::Silent => {
                    self.silent = true;
                    return;
                }
                WatchFate::Cut => {
                    self.ended = true;
                    return;
                }
                WatchFate::Gone => {
                    self.ready.push_back(too_old(self.cursor, version));
                    self.ended = true;
                    return;
                }
            }
            self.cursor = change.version;
        }
        self.cursor = version;
    }
}

impl Stream for WatchStream {
    type Item = Bytes;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        let this = &mut *self;
        if let Some(line) = this.ready.pop_front() {
            return Poll::Ready(Some(line));
        }
        if this.ended {
            return Poll::Ready(None);
        }
        if this.silent {
            return Poll::Pending;
        }
        if let Some(lag) = &mut this.lag {
            if lag.as_mut().poll(context).is_pending() {
                return Poll::Pending;
            }
            this.lag = None;
        }
        this.collect(context);
        if let Some(line) = this.ready.pop_front() {
            return Poll::Ready(Some(line));
        }
        if this.silent {
            return Poll::Pending;
        }
        if this.ended || this.deadline.as_mut().poll(context).is_ready() {
            return Poll::Ready(None);
        }
        // An idle watch gets no bookmark if the cluster did not change: it would only wake the caller.
        if this.lens.options.bookmarks
            && this.lag.is_none()
            && this.bookmark.as_mut().poll(context).is_ready()
        {
            let next = this.bookmark.deadline() + BOOKMARK_EVERY;
            this.bookmark.as_mut().reset(next);
            let _ = this.bookmark.as_mut().poll(context);
            if this.cursor > this.bookmarked {
                this.bookmarked = this.cursor;
                return Poll::Ready(Some(this.lens.bookmark(this.cursor, false)));
            }
        }
        Poll::Pending
    }
}

impl Drop for WatchStream {
    fn drop(&mut self) {
        self.shared.lock().store.remove_watcher(self.id);
    }
}
