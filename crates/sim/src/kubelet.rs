//! The simulated kubelet: sets the status of bound pods as their images ask for, binds and grows volume claims and
//! completes deletions, on a real control plane as well as on a simulated one.
//!
//! It uses the cluster through a [`kube::Client`] only, waits on tokio's clock, and writes the times of the clock
//! that it is given. All of its work happens within [`Kubelet::run`]: dropping that future stops everything. [`Fare`]
//! decides what a pod does; the annotations and labels for tests are at [`STEER_LABEL`], [`SIDECAR_URL`] and
//! [`POD_IP`].

mod claims;
mod conditions;
mod events;
mod growth;
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
pub use growth::Expansion;
pub(crate) use image::hex as digest_of;
pub use probe::Probe;
pub use steering::{Fare, STEER_LABEL};

use windlass_clock::SharedClock;

/// Annotation of a pod: the real URL of its native sidecar (the init container with `restartPolicy: Always` whose
/// readiness probe is `/readyz`). The sidecar is ready while a GET of that URL's `/readyz` answers 200. `{name}`,
/// `{namespace}` and `{podIP}` stand for the pod's.
pub const SIDECAR_URL: &str = "windlass.test/sidecar-url";

/// Annotation of a pod: the IP that it gets, or [`LOOPBACK`]. By default a pod with a native sidecar gets one of
/// 127.64.0.0/10, so that requests to its sidecar stay on this machine, and others one of 10.64.0.0/10.
pub const POD_IP: &str = "windlass.test/pod-ip";

/// A value of [`POD_IP`]: an IP of 127.64.0.0/10, so that requests to the pod stay on this machine.
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
    probe_on_notify: Option<Arc<Notify>>,
    pace: Pace,
}

/// The durations of pods' transitions; none by default.
#[derive(Clone, Copy, Debug, Default)]
struct Pace {
    start: Duration,
    stop: Duration,
}

impl Kubelet {
    /// A kubelet that writes through `client` the times of `clock`, binds every claim with a volume and probes
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
            probe_on_notify: None,
            pace: Pace::default(),
        }
    }

    /// Sets how claims are bound.
    #[must_use]
    pub fn claims(mut self, claims: Claims) -> Self {
        self.claims = claims;
        self
    }

    /// Binds only claims of this storage class.
    #[must_use]
    pub fn storage_class(mut self, name: &str) -> Self {
        self.storage_class = Some(name.to_owned());
        self
    }

    /// Runs only pods on nodes with this name prefix.
    #[must_use]
    pub fn nodes(mut self, prefix: &str) -> Self {
        self.nodes = Some(prefix.to_owned());
        self
    }

    /// Sets how sidecars are probed.
    #[must_use]
    pub fn probe(mut self, probe: Probe) -> Self {
        self.probe = probe;
        self
    }

    /// Sets the interval of sidecar probes.
    #[must_use]
    pub fn probe_interval(mut self, interval: Duration) -> Self {
        self.probe_interval = interval;
        self
    }

    /// Skips sidecar probes while nothing is notified on `notify`: after a notification it probes at the next regular
    /// time. For tests whose answers do not change by themselves, where probing every second for an hour dominates
    /// the cost.
    #[must_use]
    pub fn probe_on_notify(mut self, notify: Arc<Notify>) -> Self {
        self.probe_on_notify = Some(notify);
        self
    }

    /// Sets how long a container takes to become ready, and a pod to terminate.
    #[must_use]
    pub fn pace(mut self, start: Duration, stop: Duration) -> Self {
        self.pace = Pace { start, stop };
        self
    }

    /// Runs until dropped. Failed requests are retried forever.
    pub async fn run(self) -> Infallible {
        player::Player::new(self).run().await
    }
}
