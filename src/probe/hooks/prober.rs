//! The prober of hooks.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use chrono::{DateTime, TimeDelta, Utc};

use super::super::{Limits, Peers, Prober};
use super::client::HookClient;
use super::conversation::PeerConnection;
use super::{HookAnswer, HookQuestion, Verdict};
use crate::clock::SharedClock;
use crate::outward::Secrets;
use windlass_kube_port::{Cluster, Key};

/// A request of a hook has a time-out of its own, and may take its time. A peer that hangs occupies its slot until
/// then;
/// a plan has at most one question.
const LIMITS: Limits = Limits { prompt: None, concurrency: 512 };

/// The prober of hooks.
pub type HookProber = Prober<HookOwner, HookQuestion, HookAnswer>;

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

impl fmt::Display for HookOwner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.key().fmt(f)
    }
}

impl HookProber {
    /// A prober that sends requests with this client. Secrets are read through this port.
    #[must_use]
    pub fn of_hooks(client: Arc<dyn HookClient>, cluster: Arc<dyn Cluster>, clock: SharedClock) -> Arc<Self> {
        // Hooks are few, so each request reads its Secrets.
        let secrets = Secrets::new(cluster, Duration::ZERO);
        Self::new(Arc::new(HookPeers { client, secrets, clock }), LIMITS)
    }
}

struct HookPeers {
    client: Arc<dyn HookClient>,
    secrets: Secrets,
    clock: SharedClock,
}

#[async_trait]
impl Peers<HookOwner, HookQuestion, HookAnswer> for HookPeers {
    async fn ask(
        &self,
        owner: &HookOwner,
        question: &HookQuestion,
        previous: Option<HookAnswer>,
    ) -> HookAnswer {
        let connection = PeerConnection {
            client: &*self.client,
            secrets: &self.secrets,
            namespace: &owner.key().namespace,
        };
        let (verdict, said) = connection.ask(question).await;
        let now = self.clock.now();
        let at = previous.map_or(now, |previous| other_than(previous.at, now));
        HookAnswer { at, verdict, said }
    }

    fn panicked(&self, why: String) -> HookAnswer {
        HookAnswer { at: self.clock.now(), verdict: Verdict::Nothing, said: why }
    }

    fn validity(&self, question: &HookQuestion, _: &HookAnswer) -> Option<Duration> {
        Some(question.interval)
    }

    fn have_same_peer(&self, _: &HookQuestion, _: &HookQuestion) -> bool {
        false
    }
}

/// A clock may not advance, or may be set back; two answers have different times nevertheless.
fn other_than(previous: DateTime<Utc>, now: DateTime<Utc>) -> DateTime<Utc> {
    if now == previous { now + TimeDelta::microseconds(1) } else { now }
}
