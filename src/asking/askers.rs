//! Who is asked next, what was last answered, and when it is asked again.
//!
//! There are three lanes. A question goes through the prompt one first, where a sidecar has a moment to answer; what
//! takes longer goes through another, and through one of its own what failed, or never answered. So those that swallow what
//! is sent to them wait for each other, and hold up nobody who answers, be it slowly.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::{Instant, timeout};

use super::peer::SidecarConnection;
use super::question::{Peer, Question, Said, Wish};
use crate::clock::monotonic;
use crate::cluster::{Cluster, Key};
use crate::engine::backoff;
use crate::sidecar::SidecarClient;

/// How many sidecars are asked at the same time, in each lane.
pub const AT_ONCE: u16 = 64;
/// How old an answer may be before it is asked for again: it is one of now until then.
pub const ASK_AGAIN: Duration = Duration::from_secs(5);
/// How long a sidecar may take in the prompt lane, to all that a question needs.
const PROMPT: Duration = Duration::from_millis(250);
/// How soon to look again at a question that is being asked, should its answer not announce itself.
const WHILE_ASKED: Duration = Duration::from_secs(30);
/// After so many failures in a row the wait, then between 16 and 32 s, grows no more.
const DOUBLINGS: u32 = 6;

/// Where a question is put.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Lane {
    /// To sidecars that answer at once, as far as is known.
    Prompt,
    /// To those that take their time, and answered when they were last asked.
    Slow,
    /// To those that did not.
    Patient,
}

/// The nodes whose sidecars are to be asked, in the order in which that was wished for.
pub struct Lanes {
    /// Those that are asked in the prompt lane.
    pub prompt: UnboundedReceiver<Key>,
    /// Those that are asked in the slow one.
    pub slow: UnboundedReceiver<Key>,
    /// Those that are asked in the patient one.
    pub patient: UnboundedReceiver<Key>,
}

/// What is known of a question.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Heard {
    /// The last answer; an error is a sentence that says why there is none. `None`: it was not answered yet.
    pub last: Option<Result<Said, String>>,
    /// Whether that was said a moment ago. What is older may have changed, and is being asked for again.
    pub is_fresh: bool,
    /// When to look again, should no answer come first.
    pub again: Duration,
}

/// What sidecars last answered, and which are to be asked.
pub struct Askers {
    sidecars: Arc<dyn SidecarClient>,
    cluster: Arc<dyn Cluster>,
    nodes: Mutex<BTreeMap<Key, Node>>,
    prompt: UnboundedSender<Key>,
    slow: UnboundedSender<Key>,
    patient: UnboundedSender<Key>,
}

/// What is known of the sidecar of one node.
#[derive(Debug, Default)]
struct Node {
    peer: Peer,
    slots: [Option<Slot>; Wish::KINDS],
    /// Whether it is in a lane.
    listed: bool,
    /// Whether it is being asked: one thing at a time.
    asking: bool,
    /// How often in a row it did not answer.
    failures: u32,
    /// It is not asked before.
    not_before: Option<Instant>,
    /// Whether it takes longer than the prompt lane allows.
    slow: bool,
    /// Whether it answered when it was last asked.
    answered: bool,
}

#[derive(Debug)]
struct Slot {
    question: Question,
    answer: Option<(Instant, Result<Said, String>)>,
    /// Whether it is to be asked.
    wanted: bool,
    /// Whether it is being asked.
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
    /// Askers that nobody has wished anything of, and the lanes in which what is wished for will be found.
    #[must_use]
    pub fn new(sidecars: Arc<dyn SidecarClient>, cluster: Arc<dyn Cluster>) -> (Arc<Self>, Lanes) {
        let ((prompt, in_prompt), (slow, in_slow)) = (unbounded_channel(), unbounded_channel());
        let (patient, in_patient) = unbounded_channel();
        let askers = Self { sidecars, cluster, nodes: Mutex::default(), prompt, slow, patient };
        (Arc::new(askers), Lanes { prompt: in_prompt, slow: in_slow, patient: in_patient })
    }

    /// What a node's sidecar last answered to a question. It is asked, or asked again, where it is time for that.
    pub fn ask(&self, key: &Key, question: Question) -> Heard {
        let now = monotonic();
        let mut nodes = self.nodes();
        let node = nodes.entry(key.clone()).or_default();
        if node.peer != question.peer {
            // Of another one nothing is known. What is under way is not for this one, and is passed over.
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
            return Heard { last, is_fresh, again: due - now };
        }
        if !slot.under_way {
            slot.wanted = true;
            self.list(key, node);
        }
        Heard { last, is_fresh, again: WHILE_ASKED }
    }

    /// Nothing of this kind is wished of a node's sidecar any more.
    pub fn settle(&self, key: &Key, wish: &Wish) {
        let mut nodes = self.nodes();
        let Some(node) = nodes.get_mut(key) else { return };
        node.slots[wish.kind()] = None;
        if node.slots.iter().all(Option::is_none) && !node.asking && !node.listed {
            nodes.remove(key);
        }
    }

    /// The node is gone.
    pub fn forget(&self, key: &Key) {
        self.nodes().remove(key);
    }

    /// Asks a node's sidecar what is wished for, if anything is by now. Answers whether there is something new.
    pub async fn answer(&self, key: &Key, lane: Lane) -> bool {
        let Some(question) = self.take(key) else { return false };
        let way = SidecarConnection {
            sidecars: &*self.sidecars,
            cluster: &*self.cluster,
            namespace: &key.namespace,
            peer: &question.peer,
        };
        let began = monotonic();
        let answer = match lane {
            Lane::Prompt => timeout(PROMPT, way.ask(&question)).await.ok(),
            Lane::Slow | Lane::Patient => Some(way.ask(&question).await),
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

    /// Keeps an answer; `None` is one that takes longer than the prompt lane allows.
    fn keep(
        &self,
        key: &Key,
        question: &Question,
        began: Instant,
        answer: Option<Result<Said, String>>,
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
        // The receivers are gone only when the operator stops.
        let _ = lane.send(key.clone());
    }

    /// Never held across an await.
    fn nodes(&self) -> MutexGuard<'_, BTreeMap<Key, Node>> {
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks all that is wished for now, one after the other.
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

    /// Of how many nodes anything is remembered.
    #[cfg(test)]
    pub fn known(&self) -> usize {
        self.nodes().len()
    }
}
