//! Where faults come in: a plan is asked before and after each request and for each event of a watch. A plan
//! that counts is exact, since the cluster around it is deterministic.

use std::time::Duration;

use super::refusal::Refusal;

/// A request as a plan sees it.
#[derive(Clone, Debug, Default)]
pub struct RequestInfo {
    /// Which request this is, counted over all callers, from 1.
    pub number: u64,
    /// Which write this is of its caller's, from 1; 0 for reads and dry runs.
    pub write_number: u64,
    /// get, list, watch, create, update, patch, delete or deletecollection.
    pub verb: String,
    /// The resource's plural with its group, as in `statefulsets.apps`.
    pub resource: String,
    /// The subresource, or empty.
    pub subresource: String,
    /// The namespace, or empty.
    pub namespace: String,
    /// The name, or empty.
    pub name: String,
    /// Who asks.
    pub user_agent: String,
    /// Whether nothing is to be stored.
    pub dry_run: bool,
}

/// What goes wrong.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Failure {
    /// 409: somebody else was faster.
    Conflict,
    /// 429, to be tried again after so many seconds.
    TooManyRequests(u32),
    /// 500.
    Internal,
    /// 503.
    Unavailable,
    /// 504, the server gave up.
    ServerTimeout,
    /// 403 by admission, with its sentence.
    Forbidden(String),
    /// 413.
    TooLarge,
    /// 401: the token has expired.
    Unauthorized,
    /// The connection breaks: the caller gets no answer.
    Disconnect,
}

/// What happens to a request before the server sees it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Before {
    /// Nothing.
    Pass,
    /// It is late by this much.
    Delay(Duration),
    /// It never reaches the server.
    Fail(Failure),
}

/// What happens to the answer.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum After {
    /// Nothing.
    Pass,
    /// It is late by this much.
    Delay(Duration),
    /// The request was carried out, and the caller is told this instead.
    Fail(Failure),
}

/// What a watch does with an event.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum WatchFate {
    /// It is shown.
    Show,
    /// It is skipped; where a later one of the same object follows, the two are coalesced.
    Drop,
    /// It is shown after this long, and what follows waits with it. The plan is asked again then.
    Later(Duration),
    /// The connection ends before it.
    Cut,
    /// The watch is told 410 Gone instead.
    Gone,
    /// The watch shows neither this nor anything else any more, no bookmark either, and does not end: its other side is
    /// gone, and nobody has noticed.
    Silent,
}

/// An event that a watch is about to show.
#[derive(Clone, Debug)]
pub struct EventInfo<'a> {
    /// The object's namespace.
    pub namespace: &'a str,
    /// The object's name.
    pub name: &'a str,
    /// The version of the change.
    pub version: u64,
    /// Whether it is a deletion.
    pub deleted: bool,
}

/// Decides what goes wrong. By default, nothing does.
pub trait FaultPlan: Send {
    /// Asked before the server sees a request.
    fn before(&mut self, _request: &RequestInfo) -> Before {
        Before::Pass
    }

    /// Asked after the server has carried it out, with the status of its answer.
    fn after(&mut self, _request: &RequestInfo, _code: u16) -> After {
        After::Pass
    }

    /// Asked for each event of each watch.
    fn event(&mut self, _watch: &RequestInfo, _event: &EventInfo<'_>) -> WatchFate {
        WatchFate::Show
    }
}

/// Nothing goes wrong.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoFaults;

impl FaultPlan for NoFaults {}

impl Failure {
    /// The answer that the caller gets, if it gets one, with the seconds of a `Retry-After`.
    pub(crate) fn refusal(&self, request: &RequestInfo) -> Option<(Refusal, Option<u32>)> {
        let new = |code, reason, message: &str| Refusal::new(code, reason, message);
        let refusal = match self {
            Self::Conflict => {
                let message = format!(
                    "Operation cannot be fulfilled on {} {:?}: the object has been modified; please apply your changes to the latest version and try again",
                    request.resource, request.name
                );
                new(409, "Conflict", &message)
            }
            Self::TooManyRequests(seconds) => {
                let refusal = new(429, "TooManyRequests", "too many requests, please try again later");
                return Some((refusal, Some(*seconds)));
            }
            Self::Internal => new(500, "InternalError", "Internal error occurred: injected"),
            Self::Unavailable => {
                new(503, "ServiceUnavailable", "the server is currently unable to handle the request")
            }
            Self::ServerTimeout => {
                new(504, "Timeout", "Timeout: request did not complete within the allotted time")
            }
            Self::Forbidden(why) => {
                let message = format!("{} {:?} is forbidden: {why}", request.resource, request.name);
                new(403, "Forbidden", &message)
            }
            Self::TooLarge => new(413, "RequestEntityTooLarge", "limit is 3145728"),
            Self::Unauthorized => new(401, "Unauthorized", "Unauthorized"),
            Self::Disconnect => return None,
        };
        Some((refusal, None))
    }
}
