//! The kinds that this program supports in addition to fleets and nodes. Each implements [`Extension`]; only this file
//! decides which kinds are built in.

mod objects;
mod stateful_sets;

#[cfg(not(feature = "temporal"))]
#[path = "none.rs"]
mod built_in;
#[cfg(feature = "temporal")]
#[path = "temporal/mod.rs"]
mod built_in;

use std::fmt;
use std::hash::{Hash, Hasher};

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use futures::stream::BoxStream;
use kube::Client;
use serde_json::Value;

use crate::explain::diff::Compared;
use crate::forecast;
use crate::output::Output;
use crate::plan::Prediction;
use crate::reader::FleetSelection;
use crate::report::chain::{Chain, TimelineEntry};
use crate::report::{PlanReport, Verdict};
use crate::status::Report;
use crate::target::Target;
use crate::verbs::VerbArgs;
use crate::verbs::change::{Change, Verb};

pub use built_in::{Command, CrdsFlags, OperatorFlags};
pub use objects::is_installed;
pub use stateful_sets::{STATEFUL_SETS, pending_changes, revisions_words, set_words};

#[cfg(all(test, feature = "temporal"))]
pub use built_in::ramping;
#[cfg(test)]
pub use stateful_sets::{ledger, pod_object};

/// The kinds that are built in.
#[cfg(not(feature = "temporal"))]
pub const EXTENSIONS: &[&dyn Extension] = &[STATEFUL_SETS];
/// The kinds that are built in.
#[cfg(feature = "temporal")]
pub const EXTENSIONS: &[&dyn Extension] = &[STATEFUL_SETS, built_in::WORKERS];
/// The kinds that are built in and whose objects the page shows as sheets.
#[cfg(not(feature = "temporal"))]
pub const PAGED: &[&dyn Paged] = &[];
/// The kinds that are built in and whose objects the page shows as sheets.
#[cfg(feature = "temporal")]
pub const PAGED: &[&dyn Paged] = &[built_in::WORKERS_ON_PAGE];
/// True if the kind `WorkerDeployment` is built in.
#[cfg(test)]
pub const HAS_WORKERS: bool = cfg!(feature = "temporal");

/// A kind other than fleets and nodes, and its implementation of the commands.
#[async_trait]
pub trait Extension: fmt::Debug + Send + Sync {
    /// The kind in the API.
    fn name(&self) -> &'static str;

    /// The short name.
    fn short(&self) -> &'static str;

    /// True if its objects have a template of their own, which `windlass promote` and `windlass rollback` are about.
    fn has_template(&self) -> bool;

    /// Reads the selected objects. `None`: none was named, and the kind is not installed. An error says in a sentence
    /// why none can be read.
    async fn read(
        &self,
        client: &Client,
        wanted: &FleetSelection,
        is_named: bool,
    ) -> Result<Option<Box<dyn Objects>>, String>;

    /// Explains the state of an object; also returns what could not be read.
    async fn explain(
        &self,
        client: &Client,
        namespace: &str,
        target: &Target,
    ) -> Result<(Chain, Vec<String>), String>;

    /// Forecasts the effect of a change of an object. An error says why that is impossible.
    async fn forecast(
        &self,
        client: &Client,
        place: (&str, &str),
        change: &forecast::Change,
        now: DateTime<Utc>,
    ) -> Result<Prediction, String>;

    /// The history of an object, oldest first, with the events about it.
    fn story(&self, object: &Value, events: Vec<TimelineEntry>) -> Vec<TimelineEntry>;

    /// The differences between two revisions of an object, of which none, one or both are named: several if the object
    /// is about several others with revisions.
    async fn compare(
        &self,
        client: &Client,
        namespace: &str,
        object: &Value,
        named: &[String],
    ) -> Result<Vec<Compared>, String>;

    /// Decides what a verb changes in an object.
    fn change(&self, verb: &Verb, object: &Value, now: DateTime<Utc>) -> Result<Change, String>;

    /// Rolls back to a stored revision.
    async fn rollback(&self, arguments: &VerbArgs, to: Option<&str>) -> Result<(), String>;

    /// The stored revisions of an object, and its ended plans, as text that begins with `title`, or as data.
    async fn history(
        &self,
        client: &Client,
        namespace: &str,
        object: &Value,
        output: Option<Output>,
        title: &str,
    ) -> Result<String, String>;
}

impl PartialEq for dyn Extension {
    fn eq(&self, other: &Self) -> bool {
        self.name() == other.name()
    }
}

impl Eq for dyn Extension {}

/// A kind whose objects the page shows as sheets.
pub trait Paged: Extension {
    /// The sheet of an object.
    fn sheet(&self, object: &Value, now: DateTime<Utc>) -> Sheet;
}

impl PartialEq for dyn Paged {
    fn eq(&self, other: &Self) -> bool {
        self.name() == other.name()
    }
}

impl Eq for dyn Paged {}

impl Hash for dyn Paged {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name().hash(state);
    }
}

/// The state of an object, for the page.
#[derive(Clone, Debug, PartialEq)]
pub struct Sheet {
    /// Whether its spec is carried out.
    pub verdict: Verdict,
    /// Its strategy.
    pub strategy: String,
    /// A summary in a few words.
    pub summary: String,
    /// The revisions that it runs and moves to.
    pub revisions: String,
    /// What it waits for, or what blocks it; may be empty.
    pub waiting_for: String,
    /// The progress of an active rollout, in percent.
    pub percent: Option<i32>,
    /// The age of an active rollout, in seconds.
    pub elapsed_seconds: Option<i64>,
    /// The active plan, or the last one.
    pub plan: Option<PlanReport>,
    /// What its rows are.
    pub title: &'static str,
    /// Its parts.
    pub rows: Vec<SheetRow>,
    /// True if it is being deleted.
    pub is_terminating: bool,
}

/// A part of an object.
#[derive(Clone, Debug, PartialEq)]
pub struct SheetRow {
    /// Its glyph.
    pub glyph: &'static str,
    /// True if it serves, false if it may become a problem; `None` for others.
    pub serves: Option<bool>,
    /// Its name.
    pub name: String,
    /// Its state, in words.
    pub words: String,
    /// Since when it is in that state.
    pub since: Option<DateTime<Utc>>,
}

/// Objects of a kind that were read; kept up to date while watched.
#[async_trait]
pub trait Objects: Send {
    /// The named objects that could not be read, each in a sentence.
    fn missing(&self) -> &[String];

    /// Why no objects were read of a kind that was not named: the user has no right to.
    fn refused(&self) -> Option<&str>;

    /// The current objects.
    fn current(&self) -> Vec<Value>;

    /// The current reports.
    fn reports(&self, now: DateTime<Utc>) -> Vec<Box<dyn Report>>;

    /// Checks whether they may be watched. An error says in a sentence why not.
    async fn may_follow(&mut self, client: &Client) -> Result<(), String>;

    /// Watches the objects, once. Yields after each change; never ends.
    fn watch(&mut self, client: &Client) -> BoxStream<'static, ()>;
}
