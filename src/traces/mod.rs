//! Rollouts as traces: a rollout, the plans of its nodes and their tasks are spans. A span holds only what a persisted status
//! says, and its ID is computed from the plan's. So the spans of a rollout form one trace, whichever replica exports them,
//! before a restart or after.

#[cfg(feature = "otlp")]
mod otlp;

#[cfg(feature = "otlp")]
pub use otlp::Otlp;

use std::fmt;
use std::sync::Arc;

use chrono::{DateTime, Utc};
use sha2::{Digest, Sha256};

/// Which trace a span is of.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct TraceId(pub [u8; 16]);

/// Which span it is.
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
    /// The span of what these words name together: a plan, or a task of one at some time.
    #[must_use]
    pub fn of(words: &[&str]) -> Self {
        let digest: [u8; 32] = Sha256::digest(format!("span/{}", words.join("/"))).into();
        Self(std::array::from_fn(|index| digest[index]))
    }
}

/// Something that began and has ended.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Span {
    /// Its trace.
    pub trace: TraceId,
    /// Its ID.
    pub id: SpanId,
    /// The span that it is a part of; none: it is the trace's first.
    pub parent: Option<SpanId>,
    /// What it is, in a few words that are the same for many.
    pub name: String,
    /// When it began.
    pub began: DateTime<Utc>,
    /// When it ended.
    pub ended: DateTime<Utc>,
    /// What else is known of it.
    pub attributes: Vec<(&'static str, String)>,
    /// Why it failed, if it did.
    pub failure: Option<String>,
}

/// Where spans go.
pub trait Spans: Send + Sync {
    /// Takes a span; it is not waited for, and may be lost.
    fn ended(&self, span: Span);
}

/// Where spans go, if anywhere.
#[derive(Clone, Default)]
pub struct Traces(Option<Arc<dyn Spans>>);

impl Traces {
    /// They go there.
    pub fn to(spans: Arc<dyn Spans>) -> Self {
        Self(Some(spans))
    }

    /// Tells of what `spans` answers; it is not asked where nobody listens.
    pub fn tell(&self, spans: impl FnOnce() -> Vec<Span>) {
        if let Some(to) = &self.0 {
            for span in spans() {
                to.ended(span);
            }
        }
    }
}

impl fmt::Debug for Traces {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Traces(told)" } else { "Traces(not told)" })
    }
}
