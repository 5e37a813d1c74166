//! The log of all requests, for tests that count writes.

use serde::Serialize;

/// A request and its result.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct AuditEntry {
    /// When it was sent, in microseconds of the cluster's time since its start.
    pub sent_micros: u64,
    /// When it was answered, in the same unit.
    pub at_micros: u64,
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
    /// The HTTP status; 0 if the caller got no answer.
    pub code: u16,
    /// The store's version after the request.
    pub version: u64,
    /// The store's versions right before and after the request; equal if it changed nothing.
    pub wrote: (u64, u64),
    /// True if it has a precondition: a patch or update its resourceVersion, a delete its UID.
    pub guarded: bool,
}

impl AuditEntry {
    /// True if it was a write and not a dry run.
    #[must_use]
    pub fn is_write(&self) -> bool {
        !self.dry_run && is_write(&self.verb)
    }
}

/// True for verbs that write.
pub(crate) fn is_write(verb: &str) -> bool {
    matches!(verb, "create" | "update" | "patch" | "delete" | "deletecollection")
}
