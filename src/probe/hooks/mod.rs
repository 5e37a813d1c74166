//! Sends the requests of hooks in the background, as those to sidecars: a task states its question and continues with
//! the last answer; a bounded number of requests runs concurrently, and an answer requeues the owner of the plan.
//!
//! The state is lost with the process; then the questions are asked again, with the same task ID.

mod client;
mod conversation;
mod excerpt;
mod prober;
mod prometheus;
#[cfg(test)]
mod tests;

pub use crate::outward::{HeaderText, Reply as HookReply, Request as HookRequest};
pub use client::{HookClient, WhileLeading};
pub use prober::{HookOwner, HookProber};

use std::time::Duration;

use chrono::{DateTime, Utc};

use crate::hooks::{HookUrl, Values};
use crate::outward::{FileAccess, OutwardSettings};

/// A question of a hook, and its interval. An answer is valid only for an equal question.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct HookQuestion {
    /// The ID of the task that asks.
    pub task_id: String,
    /// Its attempt, from 1.
    pub attempt: u32,
    /// The request.
    pub probe: HookProbe,
    /// How long after an answer it is asked again.
    pub interval: Duration,
    /// The time-out of a request.
    pub timeout: Duration,
}

/// The request of a hook.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum HookProbe {
    /// An HTTP request.
    Http(Box<HttpProbe>),
    /// A Prometheus query.
    Query(Box<QueryProbe>),
}

/// An HTTP request.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct HttpProbe {
    /// Its URL.
    pub url: HookUrl,
    /// The values of its placeholders.
    pub values: Values,
    /// Its method.
    pub method: http::Method,
    /// Its headers.
    pub headers: Vec<(String, HeaderText)>,
    /// Its certificates and credentials.
    pub settings: OutwardSettings,
    /// Its body; empty for none.
    pub body: String,
    /// The expression for success; empty: a 2xx.
    pub success: String,
    /// The expression for failure; empty: never.
    pub failure: String,
}

/// A Prometheus query.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct QueryProbe {
    /// The URL of instant queries.
    pub url: String,
    /// The certificates and credentials of the operator.
    pub access: FileAccess,
    /// The query.
    pub promql: String,
    /// The expression for success.
    pub success: String,
    /// The expression for failure; empty: never.
    pub failure: String,
}

/// The result of one request.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct HookAnswer {
    /// Its time, unique among the answers to a question.
    pub at: DateTime<Utc>,
    /// Its meaning.
    pub verdict: Verdict,
    /// The end of a sentence: "answered 503: not yet".
    pub said: String,
}

/// The meaning of an answer.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Verdict {
    /// `success` is true.
    Success,
    /// `failure` is true.
    Failure,
    /// Neither is.
    Neither,
    /// No usable answer: none at all, a 5xx, or no data.
    Nothing,
}
