//! Fault injection: a plan is asked before and after each request, and for each watch event. Counting requests is
//! exact, since the cluster is deterministic.

use std::time::Duration;

use super::refusal::Refusal;

/// A request, as fault plans see it.
#[derive(Clone, Debug, Default)]
pub struct RequestInfo {
    /// The number of the request among all callers' requests, from 1.
    pub number: u64,
    /// The number of the write among its caller's writes, from 1; 0 for reads and dry runs.
    pub write_number: u64,
    /// get, list, watch, create, update, patch, delete or deletecollection.
    pub verb: String,
    /// The resource's plural name with its group, such as `statefulsets.apps`.
    pub resource: String,
    /// The subresource, or empty.
    pub subresource: String,
    /// The namespace, or empty.
    pub namespace: String,
    /// The name, or empty.
    pub name: String,
    /// The caller's user agent.
    pub user_agent: String,
    /// True for a dry run.
    pub dry_run: bool,
}

/// An injected failure.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Failure {
    /// 409.
    Conflict,
    /// 429, with a `Retry-After` in seconds.
    TooManyRequests(u32),
    /// 500.
    Internal,
    /// 503.
    Unavailable,
    /// 504.
    ServerTimeout,
    /// 403 by admission, with its message.
    Forbidden(String),
    /// 413.
    TooLarge,
    /// 401, as with an expired token.
    Unauthorized,
    /// The connection breaks without an answer.
    Disconnect,
}

/// The fate of a request before the server gets it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Before {
    /// Nothing.
    Pass,
    /// It is delayed.
    Delay(Duration),
    /// It does not reach the server.
    Fail(Failure),
}

/// The fate of the answer.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum After {
    /// Nothing.
    Pass,
    /// It is delayed.
    Delay(Duration),
    /// The request is carried out, but the caller gets this failure.
    Fail(Failure),
}

/// The fate of a watch event.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum WatchFate {
    /// It is delivered.
    Show,
    /// It is dropped; with a later event of the same object, the two are coalesced.
    Drop,
    /// It is delayed together with what follows; then the plan is asked again.
    Later(Duration),
    /// The connection closes before it.
    Cut,
    /// The watch gets 410 Gone instead.
    Gone,
    /// The watch delivers nothing any more, not even bookmarks, and does not end, as with a lost connection that
    /// nobody has noticed.
    Silent,
}

/// A watch event that is about to be delivered.
#[derive(Clone, Debug)]
pub struct EventInfo<'a> {
    /// The object's namespace.
    pub namespace: &'a str,
    /// The object's name.
    pub name: &'a str,
    /// The version of the change.
    pub version: u64,
    /// True for a deletion.
    pub deleted: bool,
}

/// Decides which faults to inject; none by default.
pub trait FaultPlan: Send {
    /// Called before the server gets a request.
    fn before(&mut self, _request: &RequestInfo) -> Before {
        Before::Pass
    }

    /// Called with the status of the answer, before it is sent.
    fn after(&mut self, _request: &RequestInfo, _code: u16) -> After {
        After::Pass
    }

    /// Called for each event of each watch.
    fn event(&mut self, _watch: &RequestInfo, _event: &EventInfo<'_>) -> WatchFate {
        WatchFate::Show
    }
}

/// Injects nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoFaults;

impl FaultPlan for NoFaults {}

impl Failure {
    /// The response of an injected failure, if it has one, with the seconds of a `Retry-After`.
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
