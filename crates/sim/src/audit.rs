//! The log of every request: what tests count writes with.

use serde::Serialize;

/// One request and how it ended.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct AuditEntry {
    /// When it was sent, in microseconds of cluster time since the cluster began.
    pub sent_micros: u64,
    /// When it was answered, in the same.
    pub at_micros: u64,
    /// get, list, watch, create, update, patch, delete or deletecollection.
    pub verb: String,
    /// The resource's plural name with its group, as in `statefulsets.apps`.
    pub resource: String,
    /// The subresource, or empty.
    pub subresource: String,
    /// The namespace, or empty.
    pub namespace: String,
    /// The name, or empty.
    pub name: String,
    /// Who asked.
    pub user_agent: String,
    /// Whether nothing was to be stored.
    pub dry_run: bool,
    /// The HTTP status; 0 where the caller got no answer.
    pub code: u16,
    /// The store's version after it.
    pub version: u64,
    /// The store's versions right before and right after it was carried out; equal where it changed nothing.
    pub wrote: (u64, u64),
    /// Whether it names what it was decided on: a patch or an update its resourceVersion, a delete its UID.
    pub guarded: bool,
}

impl AuditEntry {
    /// Whether it asked for a change that was to be stored.
    #[must_use]
    pub fn is_write(&self) -> bool {
        !self.dry_run && is_write(&self.verb)
    }
}

/// Whether a verb asks for a change.
pub(crate) fn is_write(verb: &str) -> bool {
    matches!(verb, "create" | "update" | "patch" | "delete" | "deletecollection")
}
