//! Live updates of open pages: server-sent events with the parts of the page that changed. However often objects
//! change, a page is rendered a few times a second at most, and for at most a fixed share of the time.

use std::collections::{HashMap, VecDeque};
use std::convert::Infallible;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures::stream;
use maud::Markup;
use serde_json::json;
use tokio::sync::{OwnedSemaphorePermit, watch};
use tokio::time::Instant;

use super::html;
use super::source::Watched;
use super::state::{Page, list_view, message, object_view};
use super::subject::PageOf;
use windlass_clock::monotonic;
use windlass_kube_port::freshness::SILENT;

/// The shortest time between two renderings.
const PACE: Duration = Duration::from_millis(250);
/// Rendering takes at most one part in this many of the time.
const SHARE: u32 = 5;
/// How often ages are updated without other changes, for a fleet in a rollout; for others more rarely.
const TICK: Duration = Duration::from_secs(1);
const TICK_AT_REST: Duration = Duration::from_secs(15);

/// An open page.
struct Open {
    page: Page,
    watched: Arc<Watched>,
    changes: watch::Receiver<u64>,
    /// The fleet that it shows; `None`: all of them.
    of: Option<PageOf>,
    /// A hash of what was last sent of each part.
    sent: HashMap<&'static str, u64>,
    waiting: VecDeque<Event>,
    /// When it may be rendered again, and when it is even without a change.
    next: Option<(Instant, Instant)>,
    version: Option<String>,
    is_over: bool,
    _place: OwnedSemaphorePermit,
}

pub(super) async fn list(State(page): State<Page>) -> Response {
    open(page, None).await
}

pub(super) async fn object(page: Page, of: PageOf) -> Response {
    open(page, Some(of)).await
}

async fn open(page: Page, of: Option<PageOf>) -> Response {
    let Ok(place) = page.live.clone().try_acquire_owned() else {
        return message(
            StatusCode::SERVICE_UNAVAILABLE,
            "Busy",
            "Too many pages are open. Close one, then reload.",
        );
    };
    let watched = match page.source.watched().await {
        Ok(watched) => watched,
        Err(sentence) => return message(StatusCode::BAD_GATEWAY, "Cannot read", &sentence),
    };
    let open = Open {
        changes: watched.changes(),
        page,
        watched,
        of,
        sent: HashMap::new(),
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
    /// The next event; `None` makes the client reload the page.
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

    /// Waits until something changed and a rendering is allowed. True if nothing changed and only ages are updated.
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

    /// The version of the fleet and its objects, to detect changes; `None` for the list of all.
    fn version(&self) -> Option<String> {
        let of = self.of.as_ref()?;
        let details = self.page.source.details_read_at(of);
        Some(format!("{:?} {details:?}", self.watched.version(of)))
    }

    /// Renders the page and queues the parts that changed. Returns when to render again.
    fn draw(&mut self) -> Duration {
        let (parts, is_moving) = match &self.of {
            None => {
                let view = list_view(&self.page, &self.watched);
                let is_moving = view.fleets.iter().any(|fleet| !fleet.report.verdict.is_at_rest())
                    || view.sheets.iter().any(|listed| !listed.sheet.verdict.is_at_rest());
                (html::parts_of_list(&view), is_moving)
            }
            Some(key) => match object_view(&self.page, &self.watched, key) {
                Some(looked) => {
                    let is_moving = !looked.view.verdict().is_at_rest();
                    (html::parts_of_object(&looked.view, self.page.actions.is_some()), is_moving)
                }
                None => (Vec::new(), false),
            },
        };
        if parts.is_empty() {
            self.waiting.push_back(Event::default().event("reload").data("reload"));
            self.is_over = true;
            return TICK_AT_REST;
        }
        for (id, markup) in parts {
            self.send(id, markup);
        }
        let silence = self.watched.silence();
        match SILENT.checked_sub(silence).filter(|left| !left.is_zero()) {
            // The start and the end of an outage are shown at once.
            None => TICK,
            Some(_) if is_moving => TICK,
            Some(left) => TICK_AT_REST.min(left),
        }
    }

    fn send(&mut self, id: &'static str, part: Markup) {
        let html = part.into_string();
        let mut hasher = DefaultHasher::new();
        html.hash(&mut hasher);
        let hash = hasher.finish();
        if self.sent.insert(id, hash) != Some(hash) {
            let data = json!({"id": id, "html": html}).to_string();
            self.waiting.push_back(Event::default().event("part").data(data));
        }
    }
}
