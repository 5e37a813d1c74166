//! Rollouts as traces: a rollout, its nodes' plans and their tasks are spans. A span contains only what a persisted
//! status has, and its ID is derived from the plan's. So all spans of a rollout form one trace, whichever replica
//! exports them, before or after a restart.

#[cfg(feature = "otlp")]
mod otlp;

#[cfg(feature = "otlp")]
pub use otlp::Otlp;

use std::fmt;
use std::sync::Arc;

use chrono::{DateTime, Utc};
use sha2::{Digest, Sha256};

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct TraceId(pub [u8; 16]);

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct SpanId(pub [u8; 8]);

impl TraceId {
    /// The trace of a plan's rollout.
    #[must_use]
    pub fn of(plan: &str) -> Self {
        let digest: [u8; 32] = Sha256::digest(format!("trace/{plan}")).into();
        Self(std::array::from_fn(|index| digest[index]))
    }
}

impl SpanId {
    /// The span identified by these words: a plan, or one run of a task.
    #[must_use]
    pub fn of(words: &[&str]) -> Self {
        let digest: [u8; 32] = Sha256::digest(format!("span/{}", words.join("/"))).into();
        Self(std::array::from_fn(|index| digest[index]))
    }
}

/// A span that has ended.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Span {
    pub trace: TraceId,
    pub id: SpanId,
    /// The parent span; `None`: it is the root.
    pub parent: Option<SpanId>,
    /// A name with low cardinality.
    pub name: String,
    /// Its start.
    pub began: DateTime<Utc>,
    pub ended: DateTime<Utc>,
    pub attributes: Vec<(&'static str, String)>,
    /// Why it failed, if it did.
    pub failure: Option<String>,
}

/// A span exporter.
pub trait Spans: Send + Sync {
    /// Exports a span in the background; it may be lost.
    fn ended(&self, span: Span);
}

/// The span exporter, if any.
#[derive(Clone, Default)]
pub struct Traces(Option<Arc<dyn Spans>>);

impl Traces {
    /// Exports to this exporter.
    pub fn to(spans: Arc<dyn Spans>) -> Self {
        Self(Some(spans))
    }

    /// Exports the spans that `spans` returns; not called without an exporter.
    pub fn export(&self, spans: impl FnOnce() -> Vec<Span>) {
        if let Some(to) = &self.0 {
            for span in spans() {
                to.ended(span);
            }
        }
    }
}

impl fmt::Debug for Traces {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Traces(on)" } else { "Traces(off)" })
    }
}
