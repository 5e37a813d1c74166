//! The played kubelet: it gives bound pods the status that their images ask for, binds volume claims and lets
//! terminating pods go, on a real control plane as well as on a simulated one.
//!
//! It touches the cluster through a [`kube::Client`] only, waits on tokio's clock only and writes down the
//! times of the clock that it was given. All that it does happens inside [`Kubelet::run`]: dropping that future
//! stops everything at once. What a pod does is decided by [`Fare`]; the annotations and words that tests may use
//! stand at [`STEER_LABEL`], [`SIDECAR_URL`] and [`POD_IP`].

mod claims;
mod conditions;
mod events;
mod image;
mod loops;
mod outlook;
mod player;
mod pod;
mod probe;
mod status;
mod steering;

use std::{convert::Infallible, sync::Arc, time::Duration};

use kube::Client;
use tokio::sync::Notify;

pub use claims::Claims;
pub(crate) use image::hex as digest_of;
pub use probe::Probe;
pub use steering::{Fare, STEER_LABEL};

use windlass_clock::SharedClock;

/// Annotation of a pod: where its native sidecar (the init container with `restartPolicy: Always` whose readiness
/// probe is `/readyz`) really listens. The sidecar is ready while a GET of that URL's `/readyz` answers 200.
/// `{name}`, `{namespace}` and `{podIP}` stand for the pod's.
pub const SIDECAR_URL: &str = "windlass.test/sidecar-url";

/// Annotation of a pod: the IP it is to get, or [`LOOPBACK`]. Without it a pod with a native sidecar gets one of
/// 127.64.0.0/10, so that whoever asks its sidecar stays on this machine, and others one of 10.64.0.0/10.
pub const POD_IP: &str = "windlass.test/pod-ip";

/// A value of [`POD_IP`]: one of 127.64.0.0/10, of the pod's own, so that whoever asks the pod stays on this machine.
pub const LOOPBACK: &str = "loopback";

/// A kubelet for all nodes of a cluster.
pub struct Kubelet {
    client: Client,
    clock: SharedClock,
    claims: Claims,
    storage_class: Option<String>,
    nodes: Option<String>,
    probe: Probe,
    probe_interval: Duration,
    probe_news: Option<Arc<Notify>>,
    pace: Pace,
}

/// How long pods take; nothing, unless told otherwise.
#[derive(Clone, Copy, Debug, Default)]
struct Pace {
    start: Duration,
    stop: Duration,
}

impl Kubelet {
    /// A kubelet that writes through `client` the times of `clock`, binds every claim with a volume and asks
    /// sidecars over HTTP.
    #[must_use]
    pub fn new(client: Client, clock: SharedClock) -> Self {
        Self {
            client,
            clock,
            claims: Claims::default(),
            storage_class: None,
            nodes: None,
            probe: probe::over_http(),
            probe_interval: Duration::from_millis(200),
            probe_news: None,
            pace: Pace::default(),
        }
    }

    /// Binds claims in another way.
    #[must_use]
    pub fn claims(mut self, claims: Claims) -> Self {
        self.claims = claims;
        self
    }

    /// Binds only the claims of this storage class.
    #[must_use]
    pub fn storage_class(mut self, name: &str) -> Self {
        self.storage_class = Some(name.to_owned());
        self
    }

    /// Plays only on nodes whose name begins so; the pods of others are somebody else's.
    #[must_use]
    pub fn nodes(mut self, prefix: &str) -> Self {
        self.nodes = Some(prefix.to_owned());
        self
    }

    /// Asks sidecars in another way.
    #[must_use]
    pub fn probe(mut self, probe: Probe) -> Self {
        self.probe = probe;
        self
    }

    /// Asks a sidecar again after this long.
    #[must_use]
    pub fn probe_interval(mut self, interval: Duration) -> Self {
        self.probe_interval = interval;
        self
    }

    /// Asks a sidecar again only once all who wait for `news` were told: at the time at which it would have asked next.
    /// Where answers are known to stay as they are, an hour of asking every second is most of what an hour costs.
    #[must_use]
    pub fn probe_news(mut self, news: Arc<Notify>) -> Self {
        self.probe_news = Some(news);
        self
    }

    /// Takes its time: a container is ready so long after its start, and a pod gone so long after it was asked to go.
    #[must_use]
    pub fn pace(mut self, start: Duration, stop: Duration) -> Self {
        self.pace = Pace { start, stop };
        self
    }

    /// Plays until dropped. Errors of the cluster are retried for ever.
    pub async fn run(self) -> Infallible {
        player::Player::new(self).run().await
    }
}
