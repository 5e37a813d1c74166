//! What every answer of the page is made of: what is watched, who may act, and how it is looked at.

use std::sync::Arc;

use axum::http::StatusCode;
use axum::response::{Html, IntoResponse, Response};
use maud::Markup;
use tokio::sync::Semaphore;

use super::guard::Guard;
use super::hands::Hands;
use super::html;
use super::source::{Source, Watched};
use super::view::{FleetView, ListView};
use crate::cluster::Key;
use crate::report::FleetReport;

/// How many pages are told of changes at once: each costs a drawing a change.
const LIVE: usize = 64;

/// What every answer is made of.
#[derive(Clone)]
pub(super) struct Page {
    pub(super) source: Arc<Source>,
    pub(super) hands: Option<Arc<dyn Hands>>,
    pub(super) guard: Arc<Guard>,
    pub(super) live: Arc<Semaphore>,
}

impl Page {
    pub(super) fn new(source: Arc<Source>, hands: Option<Arc<dyn Hands>>, guard: Guard) -> Self {
        Self { source, hands, guard: Arc::new(guard), live: Arc::new(Semaphore::new(LIVE)) }
    }
}

/// A page, as an answer.
pub(super) fn page(status: StatusCode, markup: Markup) -> Response {
    (status, Html(markup.into_string())).into_response()
}

/// A page that says a sentence.
pub(super) fn said(status: StatusCode, title: &str, sentence: &str) -> Response {
    page(status, html::message(title, sentence))
}

/// The fleets as they are shown now.
pub(super) fn list_view(state: &Page, watched: &Watched) -> ListView {
    let now = state.source.now();
    let view = ListView::of(&watched.all(), watched.has_namespaces(), now);
    ListView { silent_since: watched.silent_since(now), ..view }
}

/// A fleet as it is shown now.
pub(super) struct Looked {
    pub(super) view: FleetView,
    /// Whether what has to be asked for is not in yet.
    pub(super) is_asking: bool,
}

pub(super) fn fleet_view(state: &Page, watched: &Arc<Watched>, key: &Key) -> Option<Looked> {
    let (seen, now) = (watched.one(key)?, state.source.now());
    let report = FleetReport::of(&seen, now);
    let told = state.source.told(watched, key, &report);
    let view = FleetView::of(&seen, report, told.as_ref(), now).typed(state.source.typed());
    Some(Looked {
        is_asking: told.is_none(),
        view: FleetView { silent_since: watched.silent_since(now), ..view },
    })
}
