//! Who is asked next for a hook, what was last answered, and when it is asked again.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::Instant;

use super::client::HookClient;
use super::conversation::PeerConnection;
use super::{HookAnswer, HookQuestion};
use crate::clock::{SharedClock, monotonic};
use crate::cluster::{Cluster, Key};

/// How many peers are asked at the same time for nodes, and as many for fleets. One that swallows what it is sent keeps
/// its place for as long as its time-out is; a plan has at most one question.
pub const HOOKS_AT_ONCE: u16 = 256;
/// How soon to look again at a question that is being asked, should its answer not announce itself.
const WHILE_ASKED: Duration = Duration::from_secs(30);

/// Whose plan has the task that asks.
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

/// Those for whom somebody is to be asked, in the order in which that was wished for.
pub struct HookLanes {
    /// Fleets.
    pub fleets: UnboundedReceiver<Key>,
    /// Nodes.
    pub nodes: UnboundedReceiver<Key>,
}

/// What is known of a question.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct HookHeard {
    /// The last answer; `None`: it was not asked yet.
    pub last: Option<HookAnswer>,
    /// When to look again, should no answer come first.
    pub again: Duration,
}

/// What the peers of hooks last answered, and which are to be asked.
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
    /// It is not asked before.
    due: Instant,
    /// Whether it is in a lane.
    listed: bool,
    /// Whether it is being asked.
    under_way: bool,
}

impl HookAskers {
    /// Askers that nobody has wished anything of, and the lanes in which what is wished for will be found.
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

    /// What was last answered to a question. It is asked, or asked again, where it is time for that. One that this process
    /// has not asked yet is asked after `first`.
    pub fn ask(&self, owner: &HookOwner, question: HookQuestion, first: Duration) -> HookHeard {
        let now = monotonic();
        let mut all = self.open();
        let open = match all.get_mut(owner) {
            Some(open) if open.question == question => open,
            // What is under way was for another question, and is passed over when it is answered.
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
            return HookHeard { last, again: open.due - now };
        }
        self.list(owner, open);
        HookHeard { last, again: WHILE_ASKED }
    }

    /// What was last answered to a question, if it is the one that is open; nobody is asked.
    #[must_use]
    pub fn last(&self, owner: &HookOwner, question: &HookQuestion) -> Option<HookAnswer> {
        self.open().get(owner).filter(|open| open.question == *question)?.answer.clone()
    }

    /// The owner is gone.
    pub fn forget(&self, owner: &HookOwner) {
        self.open().remove(owner);
    }

    /// Asks what is wished for by now, if anything is. Answers whether there is something new.
    pub async fn answer(&self, owner: &HookOwner) -> bool {
        let Some(question) = self.take(owner) else { return false };
        let way = PeerConnection {
            client: &*self.client,
            cluster: &*self.cluster,
            namespace: &owner.key().namespace,
        };
        let (verdict, said) = way.ask(&question).await;
        let answer = HookAnswer { at: self.clock.now(), verdict, said };
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
        // The receivers are gone only when the operator stops.
        let _ = match owner {
            HookOwner::Fleet(key) => self.fleets.send(key.clone()),
            HookOwner::Node(key) => self.nodes.send(key.clone()),
        };
    }

    /// Never held across an await.
    fn open(&self) -> MutexGuard<'_, BTreeMap<HookOwner, Open>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Of how many owners anything is remembered.
    #[cfg(test)]
    pub fn known(&self) -> usize {
        self.open().len()
    }
}

/// A clock may stand still, or be set back; two answers have two times all the same.
fn later_than(last: DateTime<Utc>, now: DateTime<Utc>) -> DateTime<Utc> {
    if now == last { now + TimeDelta::microseconds(1) } else { now }
}
