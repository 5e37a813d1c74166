//! What was last said of StatefulSets that could not make their pods: a store with bounds. `refusals.rs` fills it.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::port::EventNote;
use crate::clock::monotonic;

/// How long what was said is kept; the API server keeps events for as long.
const KEPT: Duration = Duration::from_hours(1);
/// How often, at most, it is gone through for what need not be kept.
const SWEEP: Duration = Duration::from_mins(1);
/// Of how many StatefulSets something is kept.
const MAX_ENTRIES: usize = 20_000;
/// How long a sentence is kept to be, in bytes: some name every rule of a policy.
const MAX_NOTE: usize = 2_048;

/// What was last said of each StatefulSet that could not make its pod.
#[derive(Default)]
pub struct Refusals {
    said: Mutex<Said>,
    settled: AtomicBool,
}

#[derive(Default)]
struct Said {
    by_uid: HashMap<String, (EventNote, Instant)>,
    swept: Option<Instant>,
}

impl Refusals {
    /// What was last said of the StatefulSet with this UID.
    #[must_use]
    pub fn last(&self, uid: &str) -> Option<EventNote> {
        self.said().by_uid.get(uid).map(|(told, _)| told.clone())
    }

    /// Takes in what was said of a StatefulSet, unless something newer is known. Answers whether it is news.
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

    /// Whether the first list is in, or is not to be had.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.settled.load(Ordering::Relaxed)
    }

    pub(crate) fn settle(&self) {
        self.settled.store(true, Ordering::Relaxed);
    }

    /// Forgets what is old, and what is of StatefulSets that are not among these UIDs; not more often than need be.
    pub(super) fn sweep(&self, existing: impl FnOnce() -> HashSet<String>) {
        let now = monotonic();
        let mut said = self.said();
        if said.swept.is_some_and(|last| now.duration_since(last) < SWEEP) {
            return;
        }
        // What was said a moment ago may be of one that its watch is yet to show.
        let lately = |at: &Instant| now.duration_since(*at) < SWEEP;
        let there = existing();
        said.by_uid
            .retain(|uid, (_, at)| now.duration_since(*at) < KEPT && (lately(at) || there.contains(uid)));
        said.swept = Some(now);
    }

    fn said(&self) -> MutexGuard<'_, Said> {
        self.said.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Of how many StatefulSets something is kept.
    #[must_use]
    pub fn len(&self) -> usize {
        self.said().by_uid.len()
    }

    /// Whether nothing is kept.
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
