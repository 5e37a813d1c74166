//! The sidecar prober: which sidecar is asked next, its last answer, and its backoff.
//!
//! There are three lanes. A question starts in the prompt lane, where a sidecar has a moment to answer; slow ones
//! move to a second lane, and those that failed or never answered to a third. So sidecars that hang only delay each
//! other, not those that answer, however slowly.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::{Instant, timeout};

use super::peer::SidecarConnection;
use super::question::{Peer, Question, SidecarReport, Wish};
use crate::clock::monotonic;
use crate::cluster::{Cluster, Key};
use crate::engine::backoff;
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
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Lane {
    /// For sidecars that are expected to answer at once.
    Prompt,
    /// For sidecars that answered last time, but slowly.
    Slow,
    /// For sidecars that did not answer last time.
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
    /// True if it is in a queue.
    listed: bool,
    /// True while it is being asked: one question at a time.
    asking: bool,
    /// The number of failures in a row.
    failures: u32,
    /// The end of its backoff.
    not_before: Option<Instant>,
    /// True if it is too slow for the prompt lane.
    slow: bool,
    /// True if it answered last time.
    answered: bool,
}

#[derive(Debug)]
struct Slot {
    question: Question,
    answer: Option<(Instant, Result<SidecarReport, String>)>,
    /// True if the question is to be asked.
    wanted: bool,
    /// True while it is being asked.
    under_way: bool,
}

impl Node {
    fn lane(&self) -> Lane {
        match (self.slow, self.answered) {
            _ if self.failures > 0 => Lane::Patient,
            (false, _) => Lane::Prompt,
            (true, true) => Lane::Slow,
            (true, false) => Lane::Patient,
        }
    }

    fn is_wanted(&self) -> bool {
        self.slots.iter().flatten().any(|slot| slot.wanted)
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
            let (listed, asking) = (node.listed, node.asking);
            *node = Node { peer: question.peer.clone(), listed, asking, ..Node::default() };
        }
        let slot = &mut node.slots[question.wish.kind()];
        let slot = match slot {
            Some(slot) if slot.question == question => slot,
            slot => slot.insert(Slot { question, answer: None, wanted: false, under_way: false }),
        };
        let due = match &slot.answer {
            Some((at, Ok(_))) => Some(*at + ASK_AGAIN),
            Some((_, Err(_))) | None => None,
        };
        let due = due.max(node.not_before).unwrap_or(now);
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
        if node.slots.iter().all(Option::is_none) && !node.asking && !node.listed {
            nodes.remove(key);
        }
    }

    /// Drops a deleted node.
    pub fn forget(&self, key: &Key) {
        self.nodes().remove(key);
    }

    /// Asks a node's sidecar its questions. True if there is a new answer.
    pub async fn answer(&self, key: &Key, lane: Lane) -> bool {
        let Some(question) = self.take(key) else { return false };
        let connection = SidecarConnection {
            sidecars: &*self.sidecars,
            cluster: &*self.cluster,
            namespace: &key.namespace,
            peer: &question.peer,
        };
        let began = monotonic();
        let answer = match lane {
            Lane::Prompt => timeout(PROMPT, connection.ask(&question)).await.ok(),
            Lane::Slow | Lane::Patient => Some(connection.ask(&question).await),
        };
        self.keep(key, &question, began, answer)
    }

    fn take(&self, key: &Key) -> Option<Question> {
        let mut nodes = self.nodes();
        let node = nodes.get_mut(key)?;
        node.listed = false;
        if !node.is_wanted() {
            if node.slots.iter().all(Option::is_none) && !node.asking {
                nodes.remove(key);
            }
            return None;
        }
        let slot = node.slots.iter_mut().flatten().find(|slot| slot.wanted)?;
        (slot.wanted, slot.under_way, node.asking) = (false, true, true);
        Some(slot.question.clone())
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
        if node.peer == question.peer {
            node.answered = matches!(answer, Some(Ok(_)));
            node.slow = answer.is_none() || now.duration_since(began) > PROMPT;
            match &answer {
                Some(Ok(_)) => (node.failures, node.not_before) = (0, None),
                Some(Err(_)) => {
                    node.failures = (node.failures + 1).min(DOUBLINGS);
                    node.not_before = Some(now + backoff(&key.to_string(), node.failures));
                }
                None => {}
            }
            let slot = node.slots[question.wish.kind()].as_mut().filter(|slot| slot.question == *question);
            if let Some(slot) = slot {
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
        } else if node.slots.iter().all(Option::is_none) {
            nodes.remove(key);
        }
        is_news
    }

    fn list(&self, key: &Key, node: &mut Node) {
        if node.listed || node.asking {
            return;
        }
        node.listed = true;
        let lane = match node.lane() {
            Lane::Prompt => &self.prompt,
            Lane::Slow => &self.slow,
            Lane::Patient => &self.patient,
        };
        // The receivers are dropped only when the operator stops.
        let _ = lane.send(key.clone());
    }

    /// Never held across an await.
    fn nodes(&self) -> MutexGuard<'_, BTreeMap<Key, Node>> {
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks all pending questions, one after the other.
    #[cfg(test)]
    pub async fn answer_all(&self) {
        loop {
            let listed = |(_, node): &(&Key, &Node)| node.listed;
            let Some((key, lane)) =
                self.nodes().iter().find(listed).map(|(key, node)| (key.clone(), node.lane()))
            else {
                return;
            };
            self.answer(&key, lane).await;
        }
    }

    /// The number of nodes with state.
    #[cfg(test)]
    pub fn known(&self) -> usize {
        self.nodes().len()
    }
}
