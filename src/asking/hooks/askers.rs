//! The hook prober: which peer is asked next, the last answer, and the interval.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::Instant;

use super::client::HookClient;
use super::conversation::PeerConnection;
use super::{HookAnswer, HookQuestion, Verdict};
use crate::clock::{SharedClock, monotonic};
use crate::cluster::{Cluster, Key};
use crate::engine::panics::caught;

/// The most concurrent requests for nodes, and as many for fleets. A peer that hangs occupies its slot until its
/// time-out; a plan has at most one question.
pub const HOOKS_AT_ONCE: u16 = 256;
/// The requeue while a question is being asked, in case its answer is lost.
const WHILE_ASKED: Duration = Duration::from_secs(30);

/// The owner of the plan whose task asks.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum HookOwner {
    /// A fleet's.
    Fleet(Key),
    /// A node's.
    Node(Key),
}

impl HookOwner {
    /// The fleet or the node.
    #[must_use]
    pub fn key(&self) -> &Key {
        match self {
            Self::Fleet(key) | Self::Node(key) => key,
        }
    }
}

/// The queues of owners whose questions are due.
pub struct HookLanes {
    /// Fleets.
    pub fleets: UnboundedReceiver<Key>,
    /// Nodes.
    pub nodes: UnboundedReceiver<Key>,
}

/// The state of a question.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct HookAnswerState {
    /// The last answer; `None`: not asked yet.
    pub last: Option<HookAnswer>,
    /// When to requeue, unless an answer comes first.
    pub again: Duration,
}

/// The last answers of hooks' peers, and which are to be asked.
pub struct HookAskers {
    client: Arc<dyn HookClient>,
    cluster: Arc<dyn Cluster>,
    clock: SharedClock,
    open: Mutex<BTreeMap<HookOwner, Open>>,
    fleets: UnboundedSender<Key>,
    nodes: UnboundedSender<Key>,
}

#[derive(Debug)]
struct Open {
    question: HookQuestion,
    answer: Option<HookAnswer>,
    /// When it is asked next.
    due: Instant,
    /// True if it is in a queue.
    listed: bool,
    /// True while it is being asked.
    under_way: bool,
}

impl HookAskers {
    /// A prober without questions, and its queues.
    #[must_use]
    pub fn new(
        client: Arc<dyn HookClient>,
        cluster: Arc<dyn Cluster>,
        clock: SharedClock,
    ) -> (Arc<Self>, HookLanes) {
        let ((fleets, of_fleets), (nodes, of_nodes)) = (unbounded_channel(), unbounded_channel());
        let askers = Self { client, cluster, clock, open: Mutex::default(), fleets, nodes };
        (Arc::new(askers), HookLanes { fleets: of_fleets, nodes: of_nodes })
    }

    /// The last answer to a question. Queues the question if it is due. A question that is new to this process is
    /// asked after `first`.
    pub fn ask(&self, owner: &HookOwner, question: HookQuestion, first: Duration) -> HookAnswerState {
        let now = monotonic();
        let mut all = self.open();
        let open = match all.get_mut(owner) {
            Some(open) if open.question == question => open,
            // The request under way is for another question; its answer will be dropped.
            Some(open) => {
                let due = now + first;
                *open = Open { question, answer: None, due, listed: open.listed, under_way: open.under_way };
                open
            }
            None => all.entry(owner.clone()).or_insert(Open {
                question,
                answer: None,
                due: now + first,
                listed: false,
                under_way: false,
            }),
        };
        let last = open.answer.clone();
        if now < open.due {
            return HookAnswerState { last, again: open.due - now };
        }
        self.list(owner, open);
        HookAnswerState { last, again: WHILE_ASKED }
    }

    /// The last answer to a question, if it is the open one; queues nothing.
    #[must_use]
    pub fn last(&self, owner: &HookOwner, question: &HookQuestion) -> Option<HookAnswer> {
        self.open().get(owner).filter(|open| open.question == *question)?.answer.clone()
    }

    /// Drops a deleted owner.
    pub fn forget(&self, owner: &HookOwner) {
        self.open().remove(owner);
    }

    /// Asks the owner's question, if it is due. True if there is a new answer.
    pub async fn answer(&self, owner: &HookOwner) -> bool {
        let Some(question) = self.take(owner) else { return false };
        let connection = PeerConnection {
            client: &*self.client,
            cluster: &*self.cluster,
            namespace: &owner.key().namespace,
        };
        // A panic of a client of an embedder's own: without an answer the hook would never be asked again.
        let asked = caught("the request panicked", connection.ask(&question)).await;
        let (verdict, text) = asked.unwrap_or_else(|why| (Verdict::Nothing, why));
        let answer = HookAnswer { at: self.clock.now(), verdict, said: text };
        self.keep(owner, &question, answer)
    }

    fn take(&self, owner: &HookOwner) -> Option<HookQuestion> {
        let mut all = self.open();
        let open = all.get_mut(owner)?;
        open.listed = false;
        if open.under_way || monotonic() < open.due {
            return None;
        }
        open.under_way = true;
        Some(open.question.clone())
    }

    fn keep(&self, owner: &HookOwner, question: &HookQuestion, mut answer: HookAnswer) -> bool {
        let mut all = self.open();
        let Some(open) = all.get_mut(owner) else { return false };
        open.under_way = false;
        if open.question != *question {
            return true;
        }
        if let Some(last) = &open.answer {
            answer.at = later_than(last.at, answer.at);
        }
        open.due = monotonic() + question.interval;
        open.answer = Some(answer);
        true
    }

    fn list(&self, owner: &HookOwner, open: &mut Open) {
        if open.listed || open.under_way {
            return;
        }
        open.listed = true;
        // The receivers are dropped only when the operator stops.
        let _ = match owner {
            HookOwner::Fleet(key) => self.fleets.send(key.clone()),
            HookOwner::Node(key) => self.nodes.send(key.clone()),
        };
    }

    /// Never held across an await.
    fn open(&self) -> MutexGuard<'_, BTreeMap<HookOwner, Open>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of owners with state.
    #[cfg(test)]
    pub fn known(&self) -> usize {
        self.open().len()
    }
}

/// A clock may stand still or be set back; two answers have different times all the same.
fn later_than(last: DateTime<Utc>, now: DateTime<Utc>) -> DateTime<Utc> {
    if now == last { now + TimeDelta::microseconds(1) } else { now }
}
