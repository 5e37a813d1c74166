//! The sidecar prober: which sidecar is asked next, its last answer, and its backoff.
//!
//! There are three lanes. A question starts in the prompt lane, where a sidecar has a moment to answer; slow ones
//! move to a second lane, and those that failed or never answered to a third. So sidecars that hang only delay each
//! other, not those that answer, however slowly.
//!
//! Each question has a lane and a backoff of its own. A sidecar may answer one and fail another, as it does where it is
//! given a wrong token: what it answers says nothing about when to repeat what it fails.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::{Instant, timeout};

use super::peer::SidecarConnection;
use super::question::{Peer, Question, SidecarReport, Wish};
use crate::clock::monotonic;
use crate::cluster::{Cluster, Key};
use crate::engine::backoff;
use crate::engine::panics::caught;
use crate::sidecar::SidecarClient;

/// The most concurrent requests in each lane.
pub const AT_ONCE: u16 = 64;
/// The age at which an answer is refreshed; until then it counts as current.
pub const ASK_AGAIN: Duration = Duration::from_secs(5);
/// The time-out in the prompt lane, for all requests of a question.
const PROMPT: Duration = Duration::from_millis(250);
/// The requeue while a question is being asked, in case its answer is lost.
const WHILE_ASKED: Duration = Duration::from_secs(30);
/// After this many failures in a row the backoff, then between 16 and 32 s, stops growing.
const DOUBLINGS: u32 = 6;

/// A lane of the prober.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Lane {
    /// For questions that are expected to be answered at once.
    Prompt,
    /// For questions that were answered last time, but slowly.
    Slow,
    /// For questions that were not answered last time.
    Patient,
}

/// The queues of nodes whose sidecars are to be asked.
pub struct Lanes {
    /// The queue of the prompt lane.
    pub prompt: UnboundedReceiver<Key>,
    /// The queue of the slow lane.
    pub slow: UnboundedReceiver<Key>,
    /// The queue of the patient lane.
    pub patient: UnboundedReceiver<Key>,
}

/// The state of a question.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct AnswerState {
    /// The last answer; an error is a sentence that says why there is none. `None`: not asked yet.
    pub last: Option<Result<SidecarReport, String>>,
    /// True if the answer is current; an older one is being refreshed.
    pub is_fresh: bool,
    /// When to requeue, unless an answer comes first.
    pub again: Duration,
}

/// The last answers of sidecars, and which are to be asked.
pub struct Askers {
    sidecars: Arc<dyn SidecarClient>,
    cluster: Arc<dyn Cluster>,
    nodes: Mutex<BTreeMap<Key, Node>>,
    prompt: UnboundedSender<Key>,
    slow: UnboundedSender<Key>,
    patient: UnboundedSender<Key>,
}

/// The state of one node's sidecar.
#[derive(Debug, Default)]
struct Node {
    peer: Peer,
    slots: [Option<Slot>; Wish::KINDS],
    /// The lanes in whose queues it is.
    listed: BTreeSet<Lane>,
    /// True while it is being asked: one question at a time.
    asking: bool,
}

#[derive(Debug)]
struct Slot {
    question: Question,
    answer: Option<(Instant, Result<SidecarReport, String>)>,
    /// True if the question is to be asked.
    wanted: bool,
    /// True while it is being asked.
    under_way: bool,
    pace: Pace,
}

/// When a question may be asked again, and in which lane, by how it was answered so far.
#[derive(Clone, Copy, Debug, Default)]
struct Pace {
    /// The number of failures in a row.
    failures: u32,
    /// The end of its backoff.
    not_before: Option<Instant>,
    /// True if the answer takes too long for the prompt lane.
    slow: bool,
    /// True if it was answered last time.
    answered: bool,
}

impl Pace {
    fn lane(&self) -> Lane {
        match (self.slow, self.answered) {
            _ if self.failures > 0 => Lane::Patient,
            (false, _) => Lane::Prompt,
            (true, true) => Lane::Slow,
            (true, false) => Lane::Patient,
        }
    }

    /// Takes an answer into account; `None`: it was too slow for the prompt lane.
    fn note(
        &mut self,
        key: &Key,
        (began, now): (Instant, Instant),
        answer: Option<&Result<SidecarReport, String>>,
    ) {
        self.answered = matches!(answer, Some(Ok(_)));
        self.slow = answer.is_none() || now.duration_since(began) > PROMPT;
        match answer {
            Some(Ok(_)) => (self.failures, self.not_before) = (0, None),
            Some(Err(_)) => {
                self.failures = (self.failures + 1).min(DOUBLINGS);
                self.not_before = Some(now + backoff(&key.to_string(), self.failures));
            }
            None => {}
        }
    }
}

impl Node {
    /// The pace at which a new question of this kind begins: that of the question before it, or else of another one. So
    /// a sidecar that does not answer is not asked more often because it is asked something else.
    fn pace_of_new(&self, kind: usize) -> Pace {
        let known = self.slots[kind].as_ref().or_else(|| self.slots.iter().flatten().next());
        known.map(|slot| slot.pace).unwrap_or_default()
    }

    /// The question that a request of this lane is for: the first that belongs there, or else one of a faster lane. One
    /// of a slower lane would hold up this one.
    fn next_in(&mut self, lane: Lane) -> Option<&mut Slot> {
        let wanted = self.slots.iter_mut().flatten().filter(|slot| slot.wanted && slot.pace.lane() <= lane);
        // Of several that are alike `max_by_key` takes the last.
        wanted.rev().max_by_key(|slot| slot.pace.lane())
    }

    fn is_wanted(&self) -> bool {
        self.slots.iter().flatten().any(|slot| slot.wanted)
    }

    /// True if there is nothing to remember.
    fn is_idle(&self) -> bool {
        self.slots.iter().all(Option::is_none) && !self.asking && self.listed.is_empty()
    }
}

impl Askers {
    /// A prober without questions, and its queues.
    #[must_use]
    pub fn new(sidecars: Arc<dyn SidecarClient>, cluster: Arc<dyn Cluster>) -> (Arc<Self>, Lanes) {
        let ((prompt, in_prompt), (slow, in_slow)) = (unbounded_channel(), unbounded_channel());
        let (patient, in_patient) = unbounded_channel();
        let askers = Self { sidecars, cluster, nodes: Mutex::default(), prompt, slow, patient };
        (Arc::new(askers), Lanes { prompt: in_prompt, slow: in_slow, patient: in_patient })
    }

    /// The last answer of a node's sidecar to a question. Queues the question if it is due.
    pub fn ask(&self, key: &Key, question: Question) -> AnswerState {
        let now = monotonic();
        let mut nodes = self.nodes();
        let node = nodes.entry(key.clone()).or_default();
        if node.peer != question.peer {
            // For another sidecar nothing is known; an answer under way is not for it and will be dropped.
            let (listed, asking) = (std::mem::take(&mut node.listed), node.asking);
            *node = Node { peer: question.peer.clone(), listed, asking, ..Node::default() };
        }
        let kind = question.wish.kind();
        let pace = node.pace_of_new(kind);
        let slot = &mut node.slots[kind];
        let slot = match slot {
            Some(slot) if slot.question == question => slot,
            slot => slot.insert(Slot { question, answer: None, wanted: false, under_way: false, pace }),
        };
        let due = match &slot.answer {
            Some((at, Ok(_))) => Some(*at + ASK_AGAIN),
            Some((_, Err(_))) | None => None,
        };
        let due = due.max(slot.pace.not_before).unwrap_or(now);
        let is_fresh = now < due && slot.answer.is_some();
        let last = slot.answer.as_ref().map(|(_, answer)| answer.clone());
        if now < due {
            return AnswerState { last, is_fresh, again: due - now };
        }
        if !slot.under_way {
            slot.wanted = true;
            self.list(key, node);
        }
        AnswerState { last, is_fresh, again: WHILE_ASKED }
    }

    /// Drops a node's question of this kind.
    pub fn settle(&self, key: &Key, wish: &Wish) {
        let mut nodes = self.nodes();
        let Some(node) = nodes.get_mut(key) else { return };
        node.slots[wish.kind()] = None;
        if node.is_idle() {
            nodes.remove(key);
        }
    }

    /// Drops a deleted node.
    pub fn forget(&self, key: &Key) {
        self.nodes().remove(key);
    }

    /// Asks a node's sidecar its questions. True if there is a new answer.
    pub async fn answer(&self, key: &Key, lane: Lane) -> bool {
        let Some(question) = self.take(key, lane) else { return false };
        let connection = SidecarConnection {
            sidecars: &*self.sidecars,
            cluster: &*self.cluster,
            namespace: &key.namespace,
            peer: &question.peer,
        };
        let began = monotonic();
        // A panic of a client of an embedder's own: without an answer the sidecar would never be asked again.
        let asked = caught("the request to the sidecar panicked", connection.ask(&question));
        let asked = async { asked.await.unwrap_or_else(Err) };
        let answer = match lane {
            Lane::Prompt => timeout(PROMPT, asked).await.ok(),
            Lane::Slow | Lane::Patient => Some(asked.await),
        };
        self.keep(key, &question, began, answer)
    }

    /// The question to ask now in this lane.
    fn take(&self, key: &Key, lane: Lane) -> Option<Question> {
        let mut nodes = self.nodes();
        let node = nodes.get_mut(key)?;
        node.listed.remove(&lane);
        if node.asking {
            // The end of that request queues what is still wanted.
            return None;
        }
        let Some(slot) = node.next_in(lane) else {
            if node.is_wanted() {
                self.list(key, node);
            } else if node.is_idle() {
                nodes.remove(key);
            }
            return None;
        };
        (slot.wanted, slot.under_way) = (false, true);
        let question = slot.question.clone();
        node.asking = true;
        Some(question)
    }

    /// Stores an answer; `None`: it was too slow for the prompt lane.
    fn keep(
        &self,
        key: &Key,
        question: &Question,
        began: Instant,
        answer: Option<Result<SidecarReport, String>>,
    ) -> bool {
        let now = monotonic();
        let mut nodes = self.nodes();
        let Some(node) = nodes.get_mut(key) else { return false };
        node.asking = false;
        let mut is_news = false;
        if node.peer == question.peer
            && let Some(slot) = &mut node.slots[question.wish.kind()]
        {
            // Also if another question of this kind has replaced it, which goes to the same sidecar.
            slot.pace.note(key, (began, now), answer.as_ref());
            if slot.question == *question {
                slot.under_way = false;
                match answer {
                    Some(answer) => {
                        slot.answer = Some((now, answer));
                        is_news = true;
                    }
                    None => slot.wanted = true,
                }
            }
        }
        if node.is_wanted() {
            self.list(key, node);
        } else if node.is_idle() {
            nodes.remove(key);
        }
        is_news
    }

    /// Queues a node in the lanes of what is wanted of its sidecar.
    fn list(&self, key: &Key, node: &mut Node) {
        if node.asking {
            return;
        }
        for slot in node.slots.iter().flatten().filter(|slot| slot.wanted) {
            let lane = slot.pace.lane();
            if !node.listed.insert(lane) {
                continue;
            }
            let queue = match lane {
                Lane::Prompt => &self.prompt,
                Lane::Slow => &self.slow,
                Lane::Patient => &self.patient,
            };
            // The receivers are dropped only when the operator stops.
            let _ = queue.send(key.clone());
        }
    }

    /// Never held across an await.
    fn nodes(&self) -> MutexGuard<'_, BTreeMap<Key, Node>> {
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks all pending questions, one after the other.
    #[cfg(test)]
    pub async fn answer_all(&self) {
        loop {
            let listed = |(key, node): (&Key, &Node)| Some((key.clone(), *node.listed.first()?));
            let Some((key, lane)) = self.nodes().iter().find_map(listed) else { return };
            self.answer(&key, lane).await;
        }
    }

    /// The number of nodes with state.
    #[cfg(test)]
    pub fn known(&self) -> usize {
        self.nodes().len()
    }
}
