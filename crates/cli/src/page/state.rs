//! The state of the page's handlers: its source, its actions, and its limits.

use std::sync::Arc;

use axum::http::StatusCode;
use axum::response::{Html, IntoResponse, Response};
use maud::Markup;
use tokio::sync::Semaphore;

use super::actions::Actions;
use super::guard::Guard;
use super::html;
use super::source::{Source, Watched};
use super::subject::PageOf;
use super::view::{FleetView, ListView};

/// The most pages with live updates: each costs a rendering per change.
const LIVE: usize = 64;

/// The state of the page's handlers.
#[derive(Clone)]
pub(super) struct Page {
    pub(super) source: Arc<Source>,
    pub(super) actions: Option<Arc<dyn Actions>>,
    pub(super) guard: Arc<Guard>,
    pub(super) live: Arc<Semaphore>,
}

impl Page {
    pub(super) fn new(source: Arc<Source>, actions: Option<Arc<dyn Actions>>, guard: Guard) -> Self {
        Self { source, actions, guard: Arc::new(guard), live: Arc::new(Semaphore::new(LIVE)) }
    }
}

pub(super) fn page(status: StatusCode, markup: Markup) -> Response {
    (status, Html(markup.into_string())).into_response()
}

/// A page with a single message.
pub(super) fn message(status: StatusCode, title: &str, sentence: &str) -> Response {
    page(status, html::message(title, sentence))
}

/// The current list of fleets.
pub(super) fn list_view(state: &Page, watched: &Watched) -> ListView {
    let now = state.source.now();
    let mut view = ListView::of(&watched.all(), watched.has_namespaces(), now);
    view.unread.extend(watched.unread_rollouts());
    ListView { silent_since: watched.silent_since(now), ..view }
}

/// The current state of a fleet.
pub(super) struct LoadedFleet {
    pub(super) view: FleetView,
    /// True while data beyond the watched objects are being read.
    pub(super) is_asking: bool,
}

pub(super) fn fleet_view(state: &Page, watched: &Arc<Watched>, of: &PageOf) -> Option<LoadedFleet> {
    let (seen, now) = (watched.one(of)?, state.source.now());
    let report = seen.report(now);
    let details = state.source.details(watched, of, &report);
    let view = FleetView::of(&seen, report, details.as_ref(), now).typed(state.source.typed());
    Some(LoadedFleet {
        is_asking: details.is_none(),
        view: FleetView { silent_since: watched.silent_since(now), ..view },
    })
}
