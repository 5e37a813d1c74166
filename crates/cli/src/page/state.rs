//! The state of the page's handlers: its source, its actions, and its limits.

use std::sync::Arc;

use axum::http::StatusCode;
use axum::response::{Html, IntoResponse, Response};
use maud::Markup;
use tokio::sync::Semaphore;

use super::actions::Actions;
use super::guard::Guard;
use super::html;
use super::source::{About, Source, Watched};
use super::subject::PageOf;
use super::view::{FleetView, ListView, ListedSheet, ObjectView, SheetView};
use crate::report::Verdict;

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
    view.sheets =
        watched.sheets().iter().map(|(paged, object)| ListedSheet::of(*paged, object, now)).collect();
    view.unread.extend(watched.unread());
    ListView { silent_since: watched.silent_since(now), ..view }
}

/// The current state of an object.
pub(super) struct Loaded {
    pub(super) view: ObjectView,
    /// True while data beyond the watched objects are being read.
    pub(super) is_asking: bool,
}

pub(super) fn object_view(state: &Page, watched: &Arc<Watched>, of: &PageOf) -> Option<Loaded> {
    let (now, typed) = (state.source.now(), state.source.typed());
    let silent_since = watched.silent_since(now);
    if let Some((paged, object)) = watched.sheet(of) {
        let listed = ListedSheet::of(paged, &object, now);
        let is_at_rest = listed.sheet.verdict == Verdict::UpToDate && listed.sheet.elapsed_seconds.is_none();
        let details = state.source.details(watched, of, &About::Sheet { is_at_rest });
        let view = SheetView::of(listed, &object, details.as_deref(), now).typed(typed);
        let view = ObjectView::Sheet(Box::new(SheetView { silent_since, ..view }));
        return Some(Loaded { is_asking: details.is_none(), view });
    }
    let seen = watched.one(of)?;
    let report = seen.report(now);
    let details = state.source.details(watched, of, &About::Fleet(&report));
    let view = FleetView::of(&seen, report, details.as_ref(), now).typed(typed);
    let view = ObjectView::Fleet(Box::new(FleetView { silent_since, ..view }));
    Some(Loaded { is_asking: details.is_none(), view })
}
