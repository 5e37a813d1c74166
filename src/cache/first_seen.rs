//! Since when this process observes something that has no time of its own, or one by another machine's clock. It is
//! measured with the monotonic clock, and starts anew with the process: what waits for it then waits longer.

use std::time::Duration;

use chrono::{DateTime, Utc};
use tokio::time::Instant;

use super::remembered::Remembered;
use crate::clock::monotonic;

/// What is observed of an object.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub enum Sighting {
    /// A node's pod with this UID says that it was made for the grant, and its revision is not known.
    UnknownRevision(String),
    /// A node is Ready since this time, which is ahead of our clock.
    ReadyAhead(DateTime<Utc>),
    /// A node has no pod, although its StatefulSet should create one.
    NoPod,
    /// The names that a fleet's new set needs cannot be listed.
    NamesUnlisted,
}

/// By the UID of a node or a fleet: what is observed of it, and since when.
#[derive(Default)]
pub struct FirstSeen {
    sightings: Remembered<(String, Sighting), Instant>,
}

impl FirstSeen {
    /// For how long this has been observed, counted from the first call.
    pub fn elapsed(&self, uid: &str, what: Sighting) -> Duration {
        self.elapsed_since(uid, what, Duration::ZERO)
    }

    /// As [`FirstSeen::elapsed`]; if this is the first call, it was observed `before` that already.
    pub fn elapsed_since(&self, uid: &str, what: Sighting, before: Duration) -> Duration {
        self.known(uid, what.clone()).unwrap_or_else(|| {
            let now = monotonic();
            self.sightings.put(&(uid.to_owned(), what), now.checked_sub(before).unwrap_or(now));
            before
        })
    }

    /// For how long this has been observed, if it is.
    pub fn known(&self, uid: &str, what: Sighting) -> Option<Duration> {
        let since = self.sightings.get(&(uid.to_owned(), what))?;
        Some(monotonic().duration_since(since))
    }

    /// Records that this is no longer observed.
    pub fn end(&self, uid: &str, what: Sighting) {
        self.sightings.take(&(uid.to_owned(), what));
    }

    /// Forgets the object with this UID.
    pub fn forget(&self, uid: &str) {
        self.sightings.forget(uid);
    }

    /// The number of sightings.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.sightings.len()
    }
}
