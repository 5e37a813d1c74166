//! A bounded store of the last event about each StatefulSet that could not create its pod, and about each pod that cannot
//! start. `refusals.rs` fills it.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::port::EventNote;
use windlass_clock::monotonic;

/// How long an event is kept. The API server keeps events equally long.
const KEPT: Duration = Duration::from_hours(1);
/// The minimum interval between sweeps of outdated entries.
const SWEEP: Duration = Duration::from_mins(1);
/// The maximum number of objects with an entry.
const MAX_ENTRIES: usize = 20_000;
/// The maximum length of a note, in bytes: some notes list every rule of a policy.
const MAX_NOTE: usize = 2_048;

/// The last event about each StatefulSet that could not create its pod, and about each pod that cannot start.
#[derive(Default)]
pub struct Refusals {
    said: Mutex<Stored>,
    settled: AtomicBool,
}

#[derive(Default)]
struct Stored {
    by_uid: HashMap<String, (EventNote, Instant)>,
    swept: Option<Instant>,
}

impl Refusals {
    /// The last event about the object with this UID.
    #[must_use]
    pub fn last(&self, uid: &str) -> Option<EventNote> {
        self.said().by_uid.get(uid).map(|(told, _)| told.clone())
    }

    /// Stores an event about an object, unless a newer one is known. Returns true if the event is new.
    pub fn note(&self, uid: &str, mut told: EventNote) -> bool {
        cut(&mut told.note);
        let mut said = self.said();
        if said.by_uid.get(uid).is_some_and(|(known, _)| known.at >= told.at) {
            return false;
        }
        if said.by_uid.len() >= MAX_ENTRIES && !said.by_uid.contains_key(uid) {
            said.by_uid.clear();
        }
        said.by_uid.insert(uid.to_owned(), (told, monotonic()));
        true
    }

    /// True if the first list is complete, or unavailable.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.settled.load(Ordering::Relaxed)
    }

    /// Records that the first list is complete, or unavailable.
    pub fn settle(&self) {
        self.settled.store(true, Ordering::Relaxed);
    }

    /// Removes old entries, and entries of objects that are not among these UIDs. Does nothing within the
    /// interval.
    pub(crate) fn sweep(&self, existing: impl FnOnce() -> HashSet<String>) {
        let now = monotonic();
        let mut said = self.said();
        if said.swept.is_some_and(|last| now.duration_since(last) < SWEEP) {
            return;
        }
        // A recent event may be about an object that the watch has not shown yet.
        let lately = |at: &Instant| now.duration_since(*at) < SWEEP;
        let there = existing();
        said.by_uid
            .retain(|uid, (_, at)| now.duration_since(*at) < KEPT && (lately(at) || there.contains(uid)));
        said.swept = Some(now);
    }

    fn said(&self) -> MutexGuard<'_, Stored> {
        self.said.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of objects with an entry.
    #[must_use]
    pub fn len(&self) -> usize {
        self.said().by_uid.len()
    }

    /// True if there are no entries.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

fn cut(note: &mut String) {
    if note.len() > MAX_NOTE {
        let end = (0..=MAX_NOTE).rev().find(|at| note.is_char_boundary(*at)).unwrap_or_default();
        note.truncate(end);
        note.shrink_to_fit();
    }
}
