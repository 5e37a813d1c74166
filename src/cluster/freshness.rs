//! How old what is known may be: since when each watched kind has heard nothing of the API server.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::{Kind, client::Sign};
use crate::clock::monotonic;

/// When something was last heard about each kind that is watched: an event, a bookmark, a page of a list, a watch that
/// was begun. Silence alone is no news that nothing changed. And when the API server last answered at all, be it with a
/// refusal: what is known gets old by it, but it is not this process that is ill.
#[derive(Debug, Default)]
pub struct Freshness {
    last: Mutex<BTreeMap<Kind, Last>>,
}

#[derive(Clone, Copy, Debug)]
struct Last {
    news: Instant,
    answer: Instant,
}

impl Freshness {
    /// A kind is watched from now on; nothing was heard yet.
    pub fn listen(&self, kind: Kind) {
        let now = monotonic();
        self.last().entry(kind).or_insert(Last { news: now, answer: now });
    }

    /// Something was heard. What no decision rests on is not watched in this sense, and may fall silent.
    pub fn heard(&self, kind: Kind, sign: Sign) {
        if let Some(last) = self.last().get_mut(&kind) {
            last.answer = monotonic();
            if sign == Sign::News {
                last.news = last.answer;
            }
        }
    }

    /// For how long nothing was heard but refusals, by kind.
    #[must_use]
    pub fn ages(&self) -> Vec<(Kind, Duration)> {
        self.since(|last| last.news)
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
