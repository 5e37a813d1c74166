//! When statuses were written, and which progress is not written yet: it limits the rate of writes.

use std::time::Duration;

use tokio::time::Instant;

use super::remembered::Remembered;
use crate::clock::monotonic;

/// Progress of a node's plan that is not written yet.
#[derive(Clone, Debug, Eq, PartialEq)]
struct Unsaved {
    /// Since when there is unwritten progress.
    first: Instant,
    /// Since when the plan has waited for `waits_for`.
    since: Instant,
    /// What the plan waits for, in one sentence.
    waits_for: String,
}

/// By the UID of a fleet or a node.
#[derive(Default)]
pub struct StatusWrites {
    unsaved: Remembered<str, Unsaved>,
    saved_at: Remembered<str, Instant>,
}

impl StatusWrites {
    /// How much longer the write of a status is delayed, if no two writes may follow within `interval`.
    pub fn left_of(&self, uid: &str, interval: Duration) -> Option<Duration> {
        interval.checked_sub(monotonic().duration_since(self.saved_at.get(uid)?))
    }

    /// True if a status was written within this time.
    pub fn was_within(&self, uid: &str, time: Duration) -> bool {
        self.left_of(uid, time).is_some_and(|left| !left.is_zero())
    }

    /// How much longer progress stays unwritten: for `delay` while the plan waits for the same thing, and for
    /// `delay_in_all` while it waits for one after another.
    pub fn delayed(
        &self,
        uid: &str,
        waits_for: &str,
        delay: Duration,
        delay_in_all: Duration,
    ) -> Option<Duration> {
        let (now, known) = (monotonic(), self.unsaved.get(uid));
        let same = known.as_ref().filter(|known| known.waits_for == waits_for).map(|known| known.since);
        let unsaved = Unsaved {
            first: known.map_or(now, |known| known.first),
            since: same.unwrap_or(now),
            waits_for: waits_for.to_owned(),
        };
        let left = |since: Instant, delay: Duration| delay.checked_sub(now.duration_since(since));
        let rest = left(unsaved.since, delay).min(left(unsaved.first, delay_in_all));
        self.unsaved.put(uid, unsaved);
        rest
    }

    /// Records that nothing is left to be written.
    pub fn in_sync(&self, uid: &str) {
        self.unsaved.take(uid);
    }

    /// Records a write.
    pub fn wrote(&self, uid: &str) {
        self.unsaved.take(uid);
        self.saved_at.put(uid, monotonic());
    }

    /// Forgets the object with this UID.
    pub fn forget(&self, uid: &str) {
        self.unsaved.forget(uid);
        self.saved_at.forget(uid);
    }

    /// The number of entries.
    #[cfg(test)]
    pub fn size(&self) -> usize {
        self.unsaved.size() + self.saved_at.size()
    }
}
