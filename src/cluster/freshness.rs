//! How old what is known may be: since when each watched kind has heard nothing of the API server.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::Kind;
use crate::clock::monotonic;

/// When something was last heard about each kind that is watched: an event, a bookmark, a page of a list, a watch that
/// was begun. Silence alone is no news that nothing changed.
#[derive(Debug, Default)]
pub struct Freshness {
    last: Mutex<BTreeMap<Kind, Instant>>,
}

impl Freshness {
    /// A kind is watched from now on; nothing was heard yet.
    pub fn listen(&self, kind: Kind) {
        self.last().entry(kind).or_insert_with(monotonic);
    }

    /// Something was heard. What no decision rests on is not watched in this sense, and may fall silent.
    pub fn heard(&self, kind: Kind) {
        if let Some(last) = self.last().get_mut(&kind) {
            *last = monotonic();
        }
    }

    /// For how long nothing was heard, by kind.
    #[must_use]
    pub fn ages(&self) -> Vec<(Kind, Duration)> {
        let now = monotonic();
        self.last().iter().map(|(kind, last)| (*kind, now.duration_since(*last))).collect()
    }

    fn last(&self) -> MutexGuard<'_, BTreeMap<Kind, Instant>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
