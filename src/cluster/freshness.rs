//! How stale the caches may be: for how long the watch of each kind has heard nothing from the API server.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::{Kind, client::Sign};
use crate::clock::monotonic;

/// After how long without news what a person is shown is said to be old. A watch that is well is begun anew before that, and
/// says so, although nothing changed.
#[cfg(feature = "cli")]
pub const SILENT: Duration = Duration::from_secs(28);

/// Three times for each watched kind: the last sign of life of its watch (an event, a bookmark, a page of a list, a watch
/// that was started), the last response of the API server, refusals included, and the last time at which the store was
/// known to be current. A refusal makes the store old but not this process unhealthy; after a 410 Gone the store is current
/// only once everything was listed again.
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
    /// A kind is watched from now on; nothing was heard yet.
    pub fn listen(&self, kind: Kind) {
        let now = monotonic();
        let last = Last { news: now, answer: now, current_at: now, previous_current_at: now, is_lost: false };
        self.last().entry(kind).or_insert(last);
    }

    /// Something was heard. What no decision rests on is not watched in this sense, and may fall silent.
    pub fn heard(&self, kind: Kind, sign: Sign) {
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

    /// What is known of a kind cannot be followed any further, and is listed anew: what the answer said that told of it was
    /// no news.
    pub fn lost(&self, kind: Kind) {
        if let Some(last) = self.last().get_mut(&kind).filter(|last| !last.is_lost) {
            last.current_at = last.previous_current_at;
            last.is_lost = true;
        }
    }

    /// All of a kind was listed.
    pub fn found(&self, kind: Kind) {
        if let Some(last) = self.last().get_mut(&kind) {
            last.current_at = monotonic();
            last.is_lost = false;
        }
    }

    /// For how long nothing was heard but refusals, by kind.
    #[must_use]
    pub fn ages(&self) -> Vec<(Kind, Duration)> {
        self.since(|last| last.news)
    }

    /// For how long nobody knows whether what is known is still so, of the kind of which that is longest.
    #[cfg(feature = "cli")]
    #[must_use]
    pub fn outdated(&self) -> Duration {
        self.since(|last| last.current_at).into_iter().map(|(_, age)| age).max().unwrap_or_default()
    }

    /// For how long nothing was heard at all, no refusal either, by kind.
    #[must_use]
    pub fn silences(&self) -> Vec<(Kind, Duration)> {
        self.since(|last| last.answer)
    }

    fn since(&self, which: fn(&Last) -> Instant) -> Vec<(Kind, Duration)> {
        let now = monotonic();
        self.last().iter().map(|(kind, last)| (*kind, now.duration_since(which(last)))).collect()
    }

    fn last(&self) -> MutexGuard<'_, BTreeMap<Kind, Last>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
