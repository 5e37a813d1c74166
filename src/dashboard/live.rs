//! What changes, told to the pages that are open: server-sent events, a part of the page each, and only those parts that are
//! others than before. However often things change, a page is drawn a few times a second, and never more of the time than it
//! is not.

use std::collections::{HashMap, VecDeque};
use std::convert::Infallible;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures::stream;
use maud::Markup;
use serde_json::json;
use tokio::sync::{OwnedSemaphorePermit, watch};
use tokio::time::Instant;

use super::html;
use super::page::{Page, fleet_view, list_view, said};
use super::source::Watched;
use crate::clock::monotonic;
use crate::cluster::Key;
use crate::cluster::freshness::SILENT;

/// The shortest time from one drawing to the next.
const PACE: Duration = Duration::from_millis(250);
/// A drawing takes at most one part in so many of the time.
const SHARE: u32 = 5;
/// Times on a page go on although nothing changes: of a fleet on its way each second, of another seldom.
const TICK: Duration = Duration::from_secs(1);
const TICK_AT_REST: Duration = Duration::from_secs(15);

/// A page that is open.
struct Open {
    page: Page,
    watched: Arc<Watched>,
    changes: watch::Receiver<u64>,
    /// The fleet that it shows; none: all of them.
    of: Option<Key>,
    /// What of each part was told last.
    told: HashMap<&'static str, u64>,
    waiting: VecDeque<Event>,
    /// When it may be drawn again, and when it is although nothing changes.
    next: Option<(Instant, Instant)>,
    version: Option<String>,
    is_over: bool,
    _place: OwnedSemaphorePermit,
}

pub(super) async fn list(State(page): State<Page>) -> Response {
    open(page, None).await
}

pub(super) async fn fleet(
    State(page): State<Page>,
    Path((namespace, name)): Path<(String, String)>,
) -> Response {
    open(page, Some(Key::new(namespace, name))).await
}

async fn open(page: Page, of: Option<Key>) -> Response {
    let Ok(place) = page.live.clone().try_acquire_owned() else {
        return said(StatusCode::SERVICE_UNAVAILABLE, "Busy", "Too many pages are open.");
    };
    let watched = match page.source.look().await {
        Ok(watched) => watched,
        Err(sentence) => return said(StatusCode::BAD_GATEWAY, "Not read", &sentence),
    };
    let open = Open {
        changes: watched.changes(),
        page,
        watched,
        of,
        told: HashMap::new(),
        waiting: VecDeque::new(),
        next: None,
        version: None,
        is_over: false,
        _place: place,
    };
    let events = stream::unfold(open, |mut open| async move {
        let event = open.event().await?;
        Some((Ok::<Event, Infallible>(event), open))
    });
    Sse::new(events).keep_alive(KeepAlive::default()).into_response()
}

impl Open {
    /// What is told next; none: the page is to be read as a whole.
    async fn event(&mut self) -> Option<Event> {
        loop {
            if let Some(event) = self.waiting.pop_front() {
                return Some(event);
            }
            if self.is_over {
                return None;
            }
            let is_due = self.wait().await;
            let version = self.version();
            if !is_due && version == self.version {
                continue;
            }
            self.version = version;
            let began = monotonic();
            let rest = self.draw();
            let took = monotonic().duration_since(began);
            let now = monotonic();
            self.next = Some((now + PACE.max(took * SHARE), now + rest));
        }
    }

    /// Waits until something changed and it may be drawn again. Answers whether it is drawn although nothing did.
    async fn wait(&mut self) -> bool {
        let Some((earliest, latest)) = self.next else { return true };
        tokio::select! {
            changed = self.changes.changed() => {
                if changed.is_err() {
                    self.is_over = true;
                }
            }
            () = tokio::time::sleep_until(latest) => return true,
        }
        tokio::time::sleep_until(earliest).await;
        self.changes.mark_unchanged();
        false
    }

    /// Of a fleet, what tells whether anything of it changed; of all of them nothing does.
    fn version(&self) -> Option<String> {
        let key = self.of.as_ref()?;
        let told = self.page.source.told_at(key);
        Some(format!("{:?} {told:?}", self.watched.version(key)))
    }

    /// Draws it, and puts what is another than before with what waits. Answers after how long it is to be drawn again.
    fn draw(&mut self) -> Duration {
        let (parts, is_moving) = match &self.of {
            None => {
                let view = list_view(&self.page, &self.watched);
                let is_moving = view.fleets.iter().any(|fleet| !fleet.verdict.is_at_rest());
                (html::parts_of_list(&view), is_moving)
            }
            Some(key) => match fleet_view(&self.page, &self.watched, key) {
                Some(looked) => {
                    let is_moving = !looked.view.report.verdict.is_at_rest();
                    (html::parts_of_fleet(&looked.view, self.page.hands.is_some()), is_moving)
                }
                None => (Vec::new(), false),
            },
        };
        if parts.is_empty() {
            self.waiting.push_back(Event::default().event("anew").data("anew"));
            self.is_over = true;
            return TICK_AT_REST;
        }
        for (id, markup) in parts {
            self.tell(id, markup);
        }
        let silence = self.watched.silence();
        match SILENT.checked_sub(silence).filter(|left| !left.is_zero()) {
            // That nothing is heard any more is told as soon as it is so, and that something is again, too.
            None => TICK,
            Some(_) if is_moving => TICK,
            Some(left) => TICK_AT_REST.min(left),
        }
    }

    fn tell(&mut self, id: &'static str, part: Markup) {
        let html = part.into_string();
        let mut hasher = DefaultHasher::new();
        html.hash(&mut hasher);
        let hash = hasher.finish();
        if self.told.insert(id, hash) != Some(hash) {
            let data = json!({"id": id, "html": html}).to_string();
            self.waiting.push_back(Event::default().event("part").data(data));
        }
    }
}
