//! Watches the fleet and draws it on every change, until it is dropped.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::{Stream, StreamExt, stream};
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind};
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event};
use kube::{Client, ResourceExt};
use ratatui::style::Style;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::fleet::FLEET;
use super::screen::Screen;
use super::seen::{Seen, Sort};
use crate::report::Typed;
use crate::status::tree;
use crate::text::paint;
use windlass_clock::{SharedClock, monotonic};
use windlass_core::api::names::{GROUP, VERSION};

/// Changes within this time are drawn together.
const TOGETHER: Duration = Duration::from_millis(150);

/// The observed objects, and the screen that shows them.
pub struct Picture {
    seen: Arc<Mutex<Seen>>,
    screen: Arc<Mutex<Screen>>,
    clock: SharedClock,
    began: Instant,
    _tasks: JoinSet<()>,
}

impl Picture {
    /// Starts watching a namespace and drawing it. `clock` gives the time for ages.
    pub fn begin(client: &Client, namespace: &str, screen: Screen, clock: SharedClock) -> Self {
        let seen: Arc<Mutex<Seen>> = Arc::default();
        let screen = Arc::new(Mutex::new(screen));
        let all = [
            (GROUP, "NodeDeployment", Sort::Fleet),
            (GROUP, "StatefulNode", Sort::Node),
            ("", "Pod", Sort::Pod),
        ]
        .map(|(group, kind, sort)| watch(client, namespace, group, kind, sort).boxed());
        let mut tasks = JoinSet::new();
        let watching = seen.clone();
        tasks.spawn(async move {
            let mut events = stream::select_all(all);
            while let Some((sort, event)) = events.next().await {
                take(&mut lock(&watching), sort, event);
            }
        });
        let began = monotonic();
        let (drawn, drawing, now) = (seen.clone(), screen.clone(), clock.clone());
        tasks.spawn(async move {
            loop {
                tokio::time::sleep(TOGETHER).await;
                draw(&lock(&drawn), &mut lock(&drawing), &now, began);
            }
        });
        Self { seen, screen, clock, began, _tasks: tasks }
    }

    /// The objects as observed now.
    pub fn seen(&self) -> Seen {
        lock(&self.seen).clone()
    }

    /// How long it has been drawn, in seconds of the cluster's time.
    pub fn seconds(&self) -> f64 {
        monotonic().duration_since(self.began).as_secs_f64()
    }

    /// Starts counting how many nodes are unavailable at once.
    pub fn count(&self) {
        lock(&self.seen).counting = true;
    }

    /// Prints a line above the picture.
    pub fn say(&self, text: &str) {
        lock(&self.screen).say(text);
    }

    /// Styles a text for the screen.
    pub fn paint(&self, style: Style, text: &str) -> String {
        lock(&self.screen).paint(style, text)
    }

    /// The error that ended the drawing, if any.
    pub fn error(&self) -> Option<std::io::Error> {
        lock(&self.screen).error()
    }

    /// Draws the current state.
    pub fn draw(&self) {
        draw(&lock(&self.seen), &mut lock(&self.screen), &self.clock, self.began);
    }

    /// Draws the current state, and leaves it in place.
    pub fn leave(&self) {
        self.draw();
        lock(&self.screen).leave();
    }
}

fn draw(seen: &Seen, screen: &mut Screen, clock: &SharedClock, began: Instant) {
    let now = clock.now();
    let Some(report) = seen.report(now) else { return };
    if screen.is_live() {
        // Some rows are for the fleet itself.
        let rows = screen.rows().saturating_sub(OF_FLEET);
        let shown = tree::Shown { all: true, rows, namespaces: false, typed: &Typed::PLAIN };
        screen.draw(&tree::tree(&report, now, screen.terminal(), shown));
    } else {
        let seconds = monotonic().duration_since(began).as_secs_f64();
        screen.note(&paint(Style::new().dim(), &format!("  {seconds:>5.1}s  "), false), &tree::line(&report));
    }
}

/// The most rows of the tree for the fleet itself.
const OF_FLEET: usize = 5;

fn take(seen: &mut Seen, sort: Sort, event: Event<DynamicObject>) {
    let (object, gone) = match event {
        Event::Apply(object) | Event::InitApply(object) => (object, false),
        Event::Delete(object) => (object, true),
        Event::Init | Event::InitDone => return,
    };
    let name = object.name_any();
    let value = serde_json::to_value(object).unwrap_or_default();
    seen.take(sort, &name, (!gone).then_some(value));
}

fn lock<T>(locked: &Mutex<T>) -> MutexGuard<'_, T> {
    locked.lock().unwrap_or_else(PoisonError::into_inner)
}

fn watch(
    client: &Client,
    namespace: &str,
    group: &str,
    kind: &'static str,
    sort: Sort,
) -> impl Stream<Item = (Sort, Event<DynamicObject>)> + Send + use<> {
    let version = if group.is_empty() { "v1" } else { VERSION };
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), namespace, &resource);
    let config = match sort {
        // Only the demo's fleet, whatever else exists.
        Sort::Fleet => watcher::Config::default().fields(&format!("metadata.name={FLEET}")),
        _ => watcher::Config::default().labels(&format!(
            "{}={}",
            windlass_core::api::names::LABEL_DEPLOYMENT,
            FLEET
        )),
    };
    // The watcher restarts after an error by itself.
    watcher::watcher(api, config)
        .default_backoff()
        .filter_map(move |event| async move { event.ok().map(|event| (sort, event)) })
}
