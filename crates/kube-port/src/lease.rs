//! Leader election by a Lease: one replica acts, the others stand by.
//!
//! A leader may start writes for `LEASE` after it *sent* the last renewal that was answered; then its fence closes. It
//! gives a write up after one request time-out, and no part of the write leaves the process or its host later. So no
//! write of a leader is in flight any more when `QUIET` has passed since its last renewal, and no other replica acts
//! before that:
//!
//! - A replica that takes over the Lease has seen it unchanged for that long, by its own clock.
//! - A replica that creates the Lease, because there was none or somebody deleted it, waits for that long: the previous
//!   leader may not have noticed yet.
//! - Only a Lease that was released by a leader that had finished its work is taken at once.
//!
//! An API server that has taken in a write, and does not notice that the client gave it up, may carry it out for up to
//! `UNKNOWN_OUTCOME_TTL`. A leader that stops in good order knows whether there is such a write. If so, it does not
//! release the
//! Lease but leaves it, with a duration that covers the write, and a replica that takes the Lease has seen it
//! unchanged for
//! that long. A leader that crashes cannot record this, and its successor does not wait for a write that hardly ever
//! exists: it is guarded by the version of its object, and counts against the wave once it is carried out.
//!
//! A leader stops at once if its Lease is gone or has another holder. An identity belongs to one process: a process
//! never takes the name on a Lease for its own from before. Every write of the Lease is guarded by its resourceVersion.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt};
use serde_json::json;
use tokio::time::Instant;
use tracing::{info, warn};

use crate::client::REQUEST_TIMEOUT;
use crate::view::UNKNOWN_OUTCOME_TTL;
use windlass_clock::{SharedClock, monotonic};
use windlass_core::api::names::MANAGER;

/// How long a leader may start writes after it sent a renewal.
const LEASE: Duration = Duration::from_secs(15);
/// How long after that renewal no request of the leader is in flight any more.
const QUIET: Duration = LEASE.saturating_add(REQUEST_TIMEOUT);
/// How often the Lease is renewed, and how often a standby replica reads it.
const PERIOD: Duration = Duration::from_secs(3);
/// How soon a failed renewal is retried: an API server that sheds load or restarts is back soon, and a leader without
/// an answer for [`LEASE`] loses its caches.
const RETRY: Duration = Duration::from_secs(1);
/// How long a response may take, so that three attempts fit into [`LEASE`] even if none is answered.
const ANSWER: Duration = Duration::from_secs(3);
/// The annotation of the Lease with the version of Windlass that holds it.
pub const ANNOTATION_VERSION: &str = "windlass.dev/version";
/// The duration that is written into a released Lease, as client-go does.
const RELEASED: Duration = Duration::from_secs(1);

/// Which Lease the replicas compete for.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Election {
    /// The Lease's namespace.
    pub namespace: String,
    /// The Lease's name.
    pub name: String,
    /// The identity of this replica. It must differ between processes, including a process and its successor.
    pub identity: String,
}

impl Election {
    /// An election in which this process has a unique identity: the host's name and random digits.
    #[must_use]
    pub fn of_process(namespace: impl Into<String>, name: impl Into<String>, host: &str) -> Self {
        // The keys of the standard library's hash maps come from the operating system's source of randomness.
        let drawn = RandomState::new().hash_one(std::process::id());
        Self { namespace: namespace.into(), name: name.into(), identity: format!("{host}-{drawn:016x}") }
    }
}

/// Allows writes only while the lease is held. A fence that was never given a lease is always open.
#[derive(Clone, Debug, Default)]
pub struct Fence {
    open_until: Option<Arc<Mutex<Option<Instant>>>>,
}

impl Fence {
    fn closed() -> Self {
        Self { open_until: Some(Arc::default()) }
    }

    /// True if this replica may write now.
    #[must_use]
    pub fn is_open(&self) -> bool {
        let Some(until) = &self.open_until else { return true };
        let until = *until.lock().unwrap_or_else(PoisonError::into_inner);
        until.is_some_and(|until| monotonic() < until)
    }

    fn open_since(&self, sent: Instant) {
        if let Some(until) = &self.open_until {
            *until.lock().unwrap_or_else(PoisonError::into_inner) = Some(sent + LEASE);
        }
    }

    fn close(&self) {
        if let Some(until) = &self.open_until {
            *until.lock().unwrap_or_else(PoisonError::into_inner) = None;
        }
    }
}

/// A replica that takes part in the election.
pub struct Candidate {
    election: Election,
    version: String,
    leases: Api<Lease>,
    clock: SharedClock,
    fence: Fence,
    on_standby_change: Box<dyn Fn(StandbyState<'_>) + Send + Sync>,
}

/// The state of a standby replica.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum StandbyState<'a> {
    /// It can read the Lease.
    Well,
    /// The API server forbids access to the Lease. The text is the reason, in one sentence.
    Refused(&'a str),
}

/// Why a request for the Lease failed.
#[derive(Debug)]
struct LeaseError {
    sentence: String,
    /// True if the request is forbidden: waiting does not help.
    is_refused: bool,
}

impl std::fmt::Display for LeaseError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.sentence)
    }
}

/// The version of another replica's Lease, and since when it has been unchanged.
struct Seen {
    version: String,
    since: Instant,
}

/// What a standby replica has seen and done so far.
#[derive(Default)]
struct Standby {
    seen: Option<Seen>,
    /// True if a write that acquires the Lease was sent and not answered. It may have been carried out.
    asked: bool,
}

impl Standby {
    async fn awaits(&mut self, write: impl Future<Output = kube::Result<Lease>>) -> kube::Result<()> {
        self.asked = true;
        let answer = write.await;
        self.asked = !matches!(answer, Ok(_) | Err(kube::Error::Api(_)));
        answer.map(drop)
    }
}

/// The Lease as this replica acquired it.
struct Taken {
    /// When the write that acquired it was sent.
    sent: Instant,
    /// How long after that a write of another replica may be in flight.
    wait: Duration,
}

impl Candidate {
    /// A candidate that does not lead yet. Its version is written into the Lease.
    #[must_use]
    pub fn new(client: &Client, election: Election, version: &str, clock: SharedClock) -> Self {
        let leases = Api::namespaced(client.clone(), &election.namespace);
        let version = version.to_owned();
        Self { election, version, leases, clock, fence: Fence::closed(), on_standby_change: Box::new(|_| ()) }
    }

    /// Calls this function whenever the Lease was read, and whenever access to it is forbidden.
    #[must_use]
    pub fn on_standby_change(mut self, observer: impl Fn(StandbyState<'_>) + Send + Sync + 'static) -> Self {
        self.on_standby_change = Box::new(observer);
        self
    }

    /// The fence, which is open while this replica is the leader.
    #[must_use]
    pub fn fence(&self) -> Fence {
        self.fence.clone()
    }

    /// Waits until this replica is the leader and no request of another replica can be in flight.
    pub async fn lead(&self) {
        let mut standby = Standby::default();
        let (lease, identity) = (&self.election.name, &self.election.identity);
        loop {
            let attempt = self.within(self.attempt(&mut standby)).await;
            match &attempt {
                Ok(_) => (self.on_standby_change)(StandbyState::Well),
                Err(trouble) if trouble.is_refused => {
                    (self.on_standby_change)(StandbyState::Refused(&trouble.sentence));
                }
                Err(_) => {}
            }
            match attempt {
                Ok(Some(taken)) => {
                    info!(%lease, %identity, wait = ?taken.wait, "this replica acquired the lease, and waits until \
                        no write of another replica can be in flight");
                    if self.wait_out(&taken).await {
                        info!(%lease, %identity, "this replica is the leader");
                        return;
                    }
                }
                Ok(None) => {}
                Err(error) => warn!(%error, "could not read or write the lease; will retry"),
            }
            tokio::time::sleep(PERIOD).await;
        }
    }

    /// Renews the Lease until no request of another replica can be in flight, then opens the fence. Returns false if
    /// the Lease was lost in the meantime.
    async fn wait_out(&self, taken: &Taken) -> bool {
        let (over, mut renewed, mut pause) = (taken.sent + taken.wait, taken.sent, PERIOD);
        loop {
            let now = monotonic();
            if now >= renewed + LEASE {
                warn!("the lease was lost before it was used");
                return false;
            }
            if now >= over {
                self.fence.open_since(renewed);
                return true;
            }
            tokio::time::sleep(pause.min(over - now)).await;
            pause = PERIOD;
            match self.within(self.renew()).await {
                Ok(Some(sent)) => {
                    renewed = sent;
                    (self.on_standby_change)(StandbyState::Well);
                }
                Ok(None) => return false,
                Err(error) => {
                    warn!(%error, "could not renew the lease; will retry");
                    pause = RETRY;
                }
            }
        }
    }

    /// Renews the Lease until it is lost. The fence is closed when this returns.
    pub async fn hold(&self) {
        let mut pause = PERIOD;
        while self.fence.is_open() {
            tokio::time::sleep(pause).await;
            pause = PERIOD;
            match self.within(self.renew()).await {
                Ok(Some(sent)) => self.fence.open_since(sent),
                Ok(None) => break,
                Err(error) => {
                    warn!(%error, "could not renew the lease; will retry");
                    pause = RETRY;
                }
            }
        }
        self.fence.close();
    }

    /// Releases the Lease, so that another replica need not wait for it to expire.
    pub async fn release(&self) {
        self.fence.close();
        let released = self.within(async {
            let Some(lease) = self.leases.get_opt(&self.election.name).await? else { return Ok(()) };
            if holder(&lease) != self.election.identity {
                return Ok(());
            }
            self.write(&lease, "", RELEASED, false).await.map(drop)
        });
        if let Err(error) = released.await {
            warn!(%error, "could not release the lease; it will expire");
        }
    }

    /// Stops without a release: a write of this replica may still be carried out for this long. The Lease keeps its
    /// holder, and runs out when neither that write nor any other can be under way.
    pub async fn leave(&self, doubt: Duration) {
        self.fence.close();
        let (lease, wait) = (&self.election.name, QUIET.max(whole_seconds(doubt)));
        warn!(%lease, ?wait, "the API server may still carry out a write that got no response: the lease is not \
            released and will expire");
        let left = self.within(async {
            let Some(lease) = self.leases.get_opt(&self.election.name).await? else { return Ok(()) };
            if holder(&lease) != self.election.identity {
                return Ok(());
            }
            self.write(&lease, &self.election.identity, wait, false).await.map(drop)
        });
        if let Err(error) = left.await {
            warn!(%error, "could not update the lease before stopping; it will expire");
        }
    }

    /// Acquires the Lease, if that is allowed now.
    async fn attempt(&self, standby: &mut Standby) -> kube::Result<Option<Taken>> {
        let sent = monotonic();
        let found = self.leases.get_opt(&self.election.name).await?;
        let Some(lease) = found else {
            let sent = monotonic();
            standby.awaits(self.create()).await?;
            return Ok(Some(Taken { sent, wait: QUIET }));
        };
        // A slow API server may carry out a request that timed out. If our own write counted as another replica's, the
        // wait would start again each time.
        if standby.asked && holder(&lease) == self.election.identity {
            return Ok(Some(Taken { sent, wait: QUIET }));
        }
        let version = lease.resource_version().unwrap_or_default();
        let since = match &standby.seen {
            Some(known) if known.version == version => known.since,
            _ => {
                standby.seen = Some(Seen { version, since: monotonic() });
                sent
            }
        };
        let given_up = is_given_up(&lease);
        if !given_up && sent.duration_since(since) < lapses_after(&lease) {
            return Ok(None);
        }
        let sent = monotonic();
        standby.awaits(self.write(&lease, &self.election.identity, QUIET, true)).await?;
        // A leader that ended without a release may have left a request at a server that is slow to execute it.
        Ok(Some(Taken { sent, wait: if given_up { Duration::ZERO } else { REQUEST_TIMEOUT } }))
    }

    /// Renews the Lease. Returns when the renewal was sent; `None` if another replica holds the Lease or it is gone.
    async fn renew(&self) -> kube::Result<Option<Instant>> {
        let sent = monotonic();
        let Some(lease) = self.leases.get_opt(&self.election.name).await? else {
            warn!("the lease no longer exists");
            return Ok(None);
        };
        if holder(&lease) != self.election.identity {
            warn!(holder = holder(&lease), "another replica holds the lease");
            return Ok(None);
        }
        self.write(&lease, &self.election.identity, QUIET, false).await?;
        Ok(Some(sent))
    }

    async fn create(&self) -> kube::Result<Lease> {
        let now = self.now();
        let lease = json!({
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {
                "name": self.election.name,
                "namespace": self.election.namespace,
                "annotations": {ANNOTATION_VERSION: self.version},
            },
            "spec": {
                "holderIdentity": self.election.identity,
                "leaseDurationSeconds": QUIET.as_secs(),
                "acquireTime": now,
                "renewTime": now,
                "leaseTransitions": 0,
            },
        });
        let lease = serde_json::from_value(lease).map_err(kube::Error::SerdeError)?;
        self.leases.create(&PostParams::default(), &lease).await
    }

    async fn write(
        &self,
        lease: &Lease,
        holder: &str,
        duration: Duration,
        acquire: bool,
    ) -> kube::Result<Lease> {
        let now = self.now();
        let mut ops = vec![
            json!({"op": "replace", "path": "/metadata/resourceVersion", "value": lease.resource_version()}),
            json!({"op": "add", "path": "/spec/holderIdentity", "value": holder}),
            json!({"op": "add", "path": "/spec/leaseDurationSeconds", "value": duration.as_secs()}),
            json!({"op": "add", "path": "/spec/renewTime", "value": now}),
        ];
        if acquire {
            let transitions = lease.spec.as_ref().and_then(|s| s.lease_transitions).unwrap_or_default();
            ops.push(json!({"op": "add", "path": "/spec/acquireTime", "value": now}));
            let mut annotations = lease.annotations().clone();
            annotations.insert(ANNOTATION_VERSION.to_owned(), self.version.clone());
            ops.push(json!({"op": "add", "path": "/metadata/annotations", "value": annotations}));
            ops.push(json!({"op": "add", "path": "/spec/leaseTransitions", "value": transitions.saturating_add(1)}));
        }
        let patch = serde_json::from_value(json!(ops)).map_err(kube::Error::SerdeError)?;
        let params = PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
        self.leases.patch(&self.election.name, &params, &Patch::<()>::Json(patch)).await
    }

    async fn within<T>(&self, call: impl Future<Output = kube::Result<T>>) -> Result<T, LeaseError> {
        let Ok(answer) = tokio::time::timeout(ANSWER, call).await else {
            let sentence = format!("no response within {} s", ANSWER.as_secs());
            return Err(LeaseError { sentence, is_refused: false });
        };
        answer.map_err(|error| LeaseError {
            is_refused: matches!(&error, kube::Error::Api(status) if status.code == 403),
            sentence: sentence(error, &self.election.namespace),
        })
    }

    fn now(&self) -> String {
        self.clock.now().format("%Y-%m-%dT%H:%M:%S%.6fZ").to_string()
    }
}

fn holder(lease: &Lease) -> &str {
    lease.spec.as_ref().and_then(|s| s.holder_identity.as_deref()).unwrap_or_default()
}

/// True if the last holder released the Lease in good order. A person who removes the holder's name leaves the
/// duration unchanged.
fn is_given_up(lease: &Lease) -> bool {
    holder(lease).is_empty() && duration(lease).is_some_and(|duration| duration <= RELEASED)
}

fn duration(lease: &Lease) -> Option<Duration> {
    let seconds = lease.spec.as_ref().and_then(|s| s.lease_duration_seconds)?;
    Some(Duration::from_secs(u64::try_from(seconds).unwrap_or_default()))
}

/// For how long a Lease has to be unchanged before another replica takes it. Its holder may have left it with a write
/// that may still be carried out. No such write needs more than [`UNKNOWN_OUTCOME_TTL`], whatever a person wrote into
/// the Lease.
fn lapses_after(lease: &Lease) -> Duration {
    duration(lease).unwrap_or_default().clamp(QUIET, UNKNOWN_OUTCOME_TTL)
}

/// The duration in whole seconds, rounded up.
fn whole_seconds(duration: Duration) -> Duration {
    Duration::from_secs(duration.as_secs() + u64::from(duration.subsec_nanos() > 0))
}

/// The API server's message, in one line. The `Display` of kube's error would contain the whole Status object.
fn sentence(error: kube::Error, namespace: &str) -> String {
    match error {
        kube::Error::Api(status) if status.code == 403 => {
            format!(
                "{}: to grant the permission, apply deploy/rbac/leader-election.yaml for namespace {namespace}",
                status.message
            )
        }
        kube::Error::Api(status) => status.message.clone(),
        error => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    #[test]
    fn forbidden_lease_is_reported_with_advice() {
        let refused = |code| {
            let said = "leases \"windlass\" is forbidden";
            sentence(kube::Error::Api(Box::new(Status::failure(said, "").with_code(code))), "shop")
        };
        assert_eq!(
            refused(403),
            "leases \"windlass\" is forbidden: to grant the permission, apply deploy/rbac/leader-election.yaml for namespace shop"
        );
        assert_eq!(refused(500), "leases \"windlass\" is forbidden");
    }
}

#[cfg(test)]
#[path = "lease_tests.rs"]
mod replicas;
