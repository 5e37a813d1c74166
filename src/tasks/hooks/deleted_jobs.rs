//! The Jobs of hooks that this process deleted.

use std::time::Duration;

use tokio::time::Instant;

use crate::cache::remembered::Remembered;
use crate::clock::monotonic;

/// The Jobs of hooks that this process deleted because a plan was about to end, or to continue without them. If that
/// is not stored and the plan continues as before, such a Job is recreated. One that somebody else deleted is not, and
/// that includes an earlier process: after a crash just then, a person has to retry the hook.
pub struct DeletedJobs {
    /// By the UIDs of owner and Job.
    jobs: Remembered<(String, String), ()>,
    /// Since when this process acts.
    since: Instant,
}

impl Default for DeletedJobs {
    fn default() -> Self {
        Self { jobs: Remembered::default(), since: monotonic() }
    }
}

impl DeletedJobs {
    /// For how long this process has acted. It begins to act as it becomes the leader.
    #[must_use]
    pub fn acts_for(&self) -> Duration {
        self.since.elapsed()
    }

    /// Remembers a deleted Job until its owner is forgotten.
    pub fn put(&self, owner_uid: &str, job_uid: &str) {
        self.jobs.put(&(owner_uid.to_owned(), job_uid.to_owned()), ());
    }

    /// True if this process deleted the Job.
    #[must_use]
    pub fn has(&self, owner_uid: &str, job_uid: &str) -> bool {
        self.jobs.get(&(owner_uid.to_owned(), job_uid.to_owned())).is_some()
    }

    /// The number of Jobs.
    #[cfg(test)]
    pub fn size(&self) -> usize {
        self.jobs.size()
    }

    /// Forgets the Jobs of this owner.
    pub fn forget(&self, owner_uid: &str) {
        self.jobs.forget(owner_uid);
    }
}
