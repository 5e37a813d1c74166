//! How stale the caches may be: how long ago each was known to be current, and how long ago its watch had its last sign
//! of life from the API server.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::{Kind, client::Sign};
use windlass_clock::monotonic;

/// The age from which data that is shown to a person is marked as old. A healthy watch is restarted before that, which
/// counts as a sign of life even if nothing has changed.
pub const SILENT: Duration = Duration::from_secs(28);

/// Three times for each watched kind: the last sign of life of its watch (an event, a bookmark, a page of a list, a
/// watch that was started), the last response of the API server, refusals included, and the last time at which the
/// store was known to be current. A refusal makes the store old but not this process unhealthy; after a 410 Gone the
/// store is current only once everything was listed again.
#[derive(Debug, Default)]
pub struct Freshness {
    last: Mutex<BTreeMap<Kind, Last>>,
}

#[derive(Clone, Copy, Debug)]
struct Last {
    news: Instant,
    answer: Instant,
    /// When the store was last known to be current.
    current_at: Instant,
    /// Its value when the current response began; restored if that response turns out to be an error.
    previous_current_at: Instant,
    /// True until everything was listed again: no other response makes the store current.
    is_lost: bool,
}

impl Freshness {
    /// Starts to track a kind. Nothing has been received yet.
    pub fn listen(&self, kind: Kind) {
        let now = monotonic();
        let last = Last { news: now, answer: now, current_at: now, previous_current_at: now, is_lost: false };
        self.last().entry(kind).or_insert(last);
    }

    /// Records a sign of life. Kinds that are not tracked, because no decision depends on them, are ignored.
    pub fn record(&self, kind: Kind, sign: Sign) {
        if let Some(last) = self.last().get_mut(&kind) {
            last.answer = monotonic();
            if sign == Sign::Refusal {
                return;
            }
            last.news = last.answer;
            if sign == Sign::Begun {
                last.previous_current_at = last.current_at;
            }
            if !last.is_lost {
                last.current_at = last.news;
            }
        }
    }

    /// Records that the watch cannot continue and everything is listed again. The response that reported this does not
    /// make the store current.
    pub fn lost(&self, kind: Kind) {
        if let Some(last) = self.last().get_mut(&kind).filter(|last| !last.is_lost) {
            last.current_at = last.previous_current_at;
            last.is_lost = true;
        }
    }

    /// Records that everything was listed.
    pub fn found(&self, kind: Kind) {
        if let Some(last) = self.last().get_mut(&kind) {
            last.current_at = monotonic();
            last.is_lost = false;
        }
    }

    /// For each kind, the time since its store was last known to be current. A page of a list makes no store current:
    /// the list may fail at each attempt, and the store would be as old as its first failure.
    #[must_use]
    pub fn ages(&self) -> Vec<(Kind, Duration)> {
        self.since(|last| last.current_at)
    }

    /// The longest of these times, over all kinds.
    #[must_use]
    pub fn outdated(&self) -> Duration {
        self.ages().into_iter().map(|(_, age)| age).max().unwrap_or_default()
    }

    /// For each kind, the time since the last sign of life, refusals excluded.
    #[must_use]
    pub fn without_progress(&self) -> Vec<(Kind, Duration)> {
        self.since(|last| last.news)
    }

    /// For each kind, the time since the last response, refusals included.
    #[must_use]
    pub fn without_response(&self) -> Vec<(Kind, Duration)> {
        self.since(|last| last.answer)
    }

    /// True if the API server has refused the last requests of a kind's watch.
    #[must_use]
    pub fn is_refused(&self, kind: Kind) -> bool {
        self.last().get(&kind).is_some_and(|last| last.answer > last.news)
    }

    fn since(&self, which: fn(&Last) -> Instant) -> Vec<(Kind, Duration)> {
        let now = monotonic();
        self.last().iter().map(|(kind, last)| (*kind, now.duration_since(which(last)))).collect()
    }

    fn last(&self) -> MutexGuard<'_, BTreeMap<Kind, Last>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
