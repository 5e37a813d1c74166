//! What this process has seen and no object records: since when it observes something that has no time of its own, or
//! one
//! by another machine's clock, and the revisions of StatefulSets that no status has yet. It is lost with the process;
//! waits for a time then take longer.

use std::mem::{Discriminant, discriminant};
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
    /// A StatefulSet's controller has not observed this generation.
    Unobserved(i64),
    /// The file system of a claim is to grow, and the claim does not say since when.
    FileSystemPending,
    /// The data of the ConfigMaps and Secrets that a fleet's template names has this digest, and not the recorded one.
    ConfigDiffers(String),
    /// The names that a fleet's new set needs cannot be listed.
    NamesUnlisted,
}

/// By the UID of a node or a fleet: what is observed of it, and since when. Of each kind of sighting there is one.
#[derive(Default)]
pub struct Sightings {
    since: Remembered<(String, Discriminant<Sighting>), (Sighting, Instant)>,
    /// By StatefulSet UID, oldest first.
    revisions: Remembered<str, Vec<String>>,
}

/// The number of revisions that are kept for a StatefulSet: all but the last were replaced before a status was written.
const MAX_REVISIONS: usize = 4;

impl Sightings {
    /// For how long this has been observed, counted from the first call.
    pub fn elapsed(&self, uid: &str, what: Sighting) -> Duration {
        self.elapsed_since(uid, what, Duration::ZERO)
    }

    /// As [`Sightings::elapsed`]; if this is the first call, it was observed `before` that already.
    pub fn elapsed_since(&self, uid: &str, what: Sighting, before: Duration) -> Duration {
        self.known(uid, &what).unwrap_or_else(|| {
            let now = monotonic();
            let since = now.checked_sub(before).unwrap_or(now);
            self.since.put(&(uid.to_owned(), discriminant(&what)), (what, since));
            before
        })
    }

    /// For how long this has been observed, if it is.
    pub fn known(&self, uid: &str, what: &Sighting) -> Option<Duration> {
        let (_, since) =
            self.since.get(&(uid.to_owned(), discriminant(what))).filter(|(known, _)| known == what)?;
        Some(monotonic().duration_since(since))
    }

    /// Records that this is no longer observed.
    pub fn end(&self, uid: &str, what: &Sighting) {
        self.since.take(&(uid.to_owned(), discriminant(what)));
    }

    /// Records the revision that a StatefulSet gives to pods of a template of ours. Earlier revisions stay known,
    /// because
    /// the next pod may have one of them.
    pub fn saw_revision(&self, set_uid: &str, revision: &str) {
        let mut known = self.revisions(set_uid);
        if revision.is_empty() || known.last().is_some_and(|last| last == revision) {
            return;
        }
        known.retain(|other| other != revision);
        known.push(revision.to_owned());
        known.drain(..known.len().saturating_sub(MAX_REVISIONS));
        self.revisions.put(set_uid, known);
    }

    /// The recorded revisions of a StatefulSet.
    pub fn revisions(&self, set_uid: &str) -> Vec<String> {
        self.revisions.get(set_uid).unwrap_or_default()
    }

    /// Forgets the object with this UID.
    pub fn forget(&self, uid: &str) {
        self.since.forget(uid);
        self.revisions.forget(uid);
    }

    /// The number of sightings.
    #[cfg(test)]
    pub fn size(&self) -> usize {
        self.since.size() + self.revisions.size()
    }
}
