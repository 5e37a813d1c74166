//! Asking the peers of hooks beside the reconciles, as sidecars are asked: a task says what it wants to know and goes on
//! with what was last answered; a bounded number of askers asks, and whose plan the task is of is looked at again when
//! there is an answer.
//!
//! What is remembered here is lost with the process, and then asked once more, under the same task ID.

mod askers;
mod client;
mod conversation;
mod excerpt;
mod prometheus;
#[cfg(test)]
mod tests;

pub use askers::{HOOKS_AT_ONCE, HookAskers, HookHeard, HookLanes, HookOwner};
pub use client::{HookClient, HookReply, HookRequest, HttpHookClient, MAX_ANSWER_BYTES};

use std::time::Duration;

use chrono::{DateTime, Utc};

use crate::hooks::{HookUrl, Values};

/// What a hook asks, and how often. An answer belongs to the whole of it: what was said to another is none.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct HookQuestion {
    /// The ID of the task that asks.
    pub task_id: String,
    /// Its attempt, from 1.
    pub attempt: u32,
    /// What is asked.
    pub wish: HookWish,
    /// How long after an answer it is asked again.
    pub interval: Duration,
    /// How long an answer is waited for.
    pub timeout: Duration,
}

/// What a hook asks.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum HookWish {
    /// A request of the user's own.
    Http(Box<HttpWish>),
    /// A query of a Prometheus.
    Query(QueryWish),
}

/// A request of the user's own.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct HttpWish {
    /// Where it goes.
    pub url: HookUrl,
    /// What is filled in.
    pub values: Values,
    /// How it is sent.
    pub method: http::Method,
    /// Its headers.
    pub headers: Vec<(String, HeaderText)>,
    /// Its body; empty for none.
    pub body: String,
    /// When an answer is a success; empty: a 2xx.
    pub success: String,
    /// When it is a failure; empty: never.
    pub failure: String,
}

/// What a header says.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum HeaderText {
    /// This.
    Plain(String),
    /// What a key of a Secret says, in the namespace of whoever asks.
    Secret {
        /// The Secret.
        name: String,
        /// The key.
        key: String,
    },
}

/// A query of a Prometheus.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct QueryWish {
    /// Where instant queries are answered.
    pub url: String,
    /// The query.
    pub promql: String,
    /// When its result is a success.
    pub success: String,
    /// When it is a failure; empty: never.
    pub failure: String,
}

/// What came of asking once.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct HookAnswer {
    /// When that was. No two answers to a question have the same time.
    pub at: DateTime<Utc>,
    /// What it means.
    pub verdict: Verdict,
    /// What was heard, the end of a sentence: "answered 503: not yet".
    pub said: String,
}

/// What an answer means.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Verdict {
    /// `success` held.
    Success,
    /// `failure` held.
    Failure,
    /// Neither did.
    Neither,
    /// There was no answer that says anything: nobody answered, or with a 5xx, or there is no data.
    Nothing,
}
