//! The errors of a reconcile, one variant per step; the variant's name is the label in metrics.

use std::time::Duration;

use strum::IntoStaticStr;
use thiserror::Error;

use windlass_kube_port::ClusterError;

/// An error that ended a reconcile; the reconcile is retried.
#[derive(Debug, Error, IntoStaticStr)]
#[strum(serialize_all = "lowercase")]
pub enum ReconcileError {
    /// Reading an object that no watch shows.
    #[error("while observing: {0}")]
    Observe(#[source] ClusterError),
    /// Asking the API server, in a dry run, whether it would accept the desired objects.
    #[error("while checking the desired objects: {0}")]
    Check(#[source] ClusterError),
    /// Storing a revision.
    #[error("while storing the revision: {0}")]
    Revision(#[source] ClusterError),
    /// Creating, changing or removing child objects.
    #[error("while updating child objects: {0}")]
    Children(#[source] ClusterError),
    /// Writing the status.
    #[error("while writing the status: {0}")]
    Persist(#[source] ClusterError),
    /// Making a plan, or running a step outside of one.
    #[error("while planning: {0}")]
    Plan(String),
    /// One of the others, in what does not hold up the plan. The plan went on.
    #[error("{error}")]
    Beside {
        /// What failed.
        error: Box<Self>,
        /// When the plan wants to be reconciled next, if no event comes first.
        next: Option<Duration>,
    },
}

impl ReconcileError {
    /// This error, of a reconcile whose plan went on and wants to be reconciled again then.
    #[must_use]
    pub fn beside(self, next: Option<Duration>) -> Self {
        Self::Beside { error: Box::new(self), next }
    }

    /// The failed step, as a metric label.
    #[must_use]
    pub fn step(&self) -> &'static str {
        match self {
            Self::Beside { error, .. } => error.step(),
            _ => self.into(),
        }
    }

    /// When the plan wants to be reconciled next, although something else failed.
    #[must_use]
    pub fn next(&self) -> Option<Duration> {
        match self {
            Self::Beside { next, .. } => *next,
            _ => None,
        }
    }

    fn cluster(&self) -> Option<&ClusterError> {
        match self {
            Self::Observe(e) | Self::Check(e) | Self::Revision(e) | Self::Children(e) | Self::Persist(e) => {
                Some(e)
            }
            Self::Beside { error, .. } => error.cluster(),
            Self::Plan(_) => None,
        }
    }

    /// True if a write conflicted with another: observing the object again is enough.
    #[must_use]
    pub fn is_conflict(&self) -> bool {
        self.cluster().is_some_and(ClusterError::is_conflict)
    }

    /// The server's message, if it refuses the content permanently.
    #[must_use]
    pub fn refusal(&self) -> Option<&str> {
        self.cluster().and_then(ClusterError::refusal)
    }

    /// A sentence, if the server refuses the content of a request permanently.
    #[must_use]
    pub fn refused(&self) -> Option<String> {
        self.cluster().filter(|error| error.refusal().is_some()).map(ToString::to_string)
    }

    /// A sentence, if the server refuses to delete an object.
    #[must_use]
    pub fn refused_delete(&self) -> Option<String> {
        self.cluster().and_then(ClusterError::refused_delete)
    }

    /// A sentence, if the server does not allow the request now.
    #[must_use]
    pub fn denial(&self) -> Option<String> {
        let error = self.cluster().filter(|error| matches!(error, ClusterError::Forbidden { .. }))?;
        Some(format!(
            "the API server currently forbids it: {error}; if a permission is missing, upgrade the Helm \
             release, or apply deploy/rbac of this version"
        ))
    }

    /// How long the server asked to wait.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        match self.cluster() {
            Some(ClusterError::Transient { retry_after, .. }) => *retry_after,
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Wrap = fn(ClusterError) -> ReconcileError;

    const WRAPS: [(Wrap, &str); 5] = [
        (ReconcileError::Observe, "observe"),
        (ReconcileError::Check, "check"),
        (ReconcileError::Revision, "revision"),
        (ReconcileError::Children, "children"),
        (ReconcileError::Persist, "persist"),
    ];

    fn object() -> String {
        "StatefulSet shop/db-0".to_owned()
    }

    #[test]
    fn server_response_determines_handling_for_every_failed_step() {
        let message = || "no".to_owned();
        for (wrap, step) in WRAPS {
            let conflict = wrap(ClusterError::Conflict { object: object(), message: message() });
            assert!(conflict.is_conflict(), "{step}");
            assert_eq!((conflict.refusal(), conflict.denial(), conflict.retry_after()), (None, None, None));
            let refused = wrap(ClusterError::Refused { object: object(), message: message() });
            assert!(!refused.is_conflict(), "{step}");
            assert_eq!(
                (refused.refusal(), refused.denial(), refused.retry_after()),
                (Some("no"), None, None)
            );
            let sentence = "the API server rejects StatefulSet shop/db-0: no";
            assert_eq!(refused.refused().as_deref(), Some(sentence));
            assert_eq!(refused.beside(None).refused().as_deref(), Some(sentence), "beside a plan");
            let forbidden = wrap(ClusterError::Forbidden { object: object(), message: message() });
            let denial = forbidden.denial().unwrap_or_default();
            assert!(
                denial.contains("StatefulSet shop/db-0: no") && denial.contains("deploy/rbac"),
                "{denial}"
            );
            assert_eq!((forbidden.is_conflict(), forbidden.refusal()), (false, None));
            assert_eq!((forbidden.refused(), conflict.refused()), (None, None));
            let retry_after = Some(Duration::from_secs(7));
            let busy = wrap(ClusterError::Transient { object: object(), message: message(), retry_after });
            assert_eq!((busy.retry_after(), busy.refusal(), busy.denial()), (retry_after, None, None));
            assert_eq!((busy.is_conflict(), busy.step()), (false, step));
        }
        let plan = ReconcileError::Plan("no such recipe".to_owned());
        assert_eq!((plan.step(), plan.is_conflict()), ("plan", false));
        assert_eq!((plan.refusal(), plan.denial(), plan.retry_after()), (None, None, None));
    }
}
