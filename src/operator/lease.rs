//! Leader election by a Lease: one replica acts, the others stand by.
//!
//! A leader that could not renew stops writing before another may start: its fence closes when the lease's
//! own duration, less the longest time that a request may take, has passed since the renewal was *sent*.
//! Whether somebody else's lease has run out is told by how long we ourselves have seen it unchanged, never
//! by comparing its times with our clock. Every write of the Lease is guarded by its resourceVersion.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt};
use serde_json::json;
use tokio::time::Instant;
use tracing::{info, warn};

use crate::api::names::MANAGER;
use crate::clock::{SharedClock, monotonic};
use crate::cluster::kube_port::REQUEST_TIMEOUT;

/// How long a lease is good for after a renewal.
const DURATION: Duration = Duration::from_secs(30);
/// How often it is renewed, and how often a replica that stands by looks at it.
const PERIOD: Duration = Duration::from_secs(5);

/// Which Lease the replicas compete for.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Election {
    /// The Lease's namespace.
    pub namespace: String,
    /// The Lease's name.
    pub name: String,
    /// What this replica calls itself; must differ between replicas.
    pub identity: String,
}

/// Closed until the lease is held, and again when it may be lost. A fence that was never given a lease is
/// always open.
#[derive(Clone, Debug, Default)]
pub struct Fence {
    open_until: Option<Arc<Mutex<Option<Instant>>>>,
}

impl Fence {
    fn closed() -> Self {
        Self { open_until: Some(Arc::default()) }
    }

    /// Whether this replica may write now.
    #[must_use]
    pub fn is_open(&self) -> bool {
        let Some(until) = &self.open_until else { return true };
        let until = *until.lock().unwrap_or_else(PoisonError::into_inner);
        until.is_some_and(|until| monotonic() < until)
    }

    fn open_since(&self, sent: Instant) {
        if let Some(until) = &self.open_until {
            *until.lock().unwrap_or_else(PoisonError::into_inner) = Some(sent + DURATION - REQUEST_TIMEOUT);
        }
    }

    fn close(&self) {
        if let Some(until) = &self.open_until {
            *until.lock().unwrap_or_else(PoisonError::into_inner) = None;
        }
    }
}

/// A replica's part in the election.
pub struct Candidate {
    election: Election,
    leases: Api<Lease>,
    clock: SharedClock,
    fence: Fence,
}

/// What another replica's lease looked like, and since when we have seen it so.
struct Seen {
    version: String,
    since: Instant,
}

impl Candidate {
    /// A candidate that does not lead.
    #[must_use]
    pub fn new(client: &Client, election: Election, clock: SharedClock) -> Self {
        let leases = Api::namespaced(client.clone(), &election.namespace);
        Self { election, leases, clock, fence: Fence::closed() }
    }

    /// Open while this replica leads.
    #[must_use]
    pub fn fence(&self) -> Fence {
        self.fence.clone()
    }

    /// Waits until this replica leads, and until no request of the one before it can still be under way.
    pub async fn lead(&self) {
        let mut seen: Option<Seen> = None;
        loop {
            match self.within(self.attempt(&mut seen)).await {
                Ok(Some(predecessor)) => {
                    info!(lease = %self.election.name, identity = %self.election.identity, "this replica leads");
                    if predecessor {
                        tokio::time::sleep(REQUEST_TIMEOUT).await;
                        // The wait is part of the lease: it must not have run out meanwhile.
                        match self.within(self.renew()).await {
                            Ok(true) => {}
                            Ok(false) => {
                                self.fence.close();
                                continue;
                            }
                            Err(error) => {
                                warn!(%error, "the lease was lost before it was used");
                                continue;
                            }
                        }
                    }
                    return;
                }
                Ok(None) => {}
                Err(error) => warn!(%error, "the lease cannot be read or written; tried again"),
            }
            tokio::time::sleep(PERIOD).await;
        }
    }

    /// Renews until the lease is lost. The fence is closed when this returns.
    pub async fn hold(&self) {
        while self.fence.is_open() {
            tokio::time::sleep(PERIOD).await;
            match self.within(self.renew()).await {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) => warn!(%error, "the lease could not be renewed; tried again"),
            }
        }
        self.fence.close();
    }

    /// Gives the lease up, so that another replica need not wait for it to run out.
    pub async fn release(&self) {
        self.fence.close();
        let released = self.within(async {
            let Some(lease) = self.leases.get_opt(&self.election.name).await? else { return Ok(()) };
            if holder(&lease) != self.election.identity {
                return Ok(());
            }
            self.write(&lease, "", false).await.map(drop)
        });
        if let Err(error) = released.await {
            warn!(%error, "the lease could not be released; it runs out by itself");
        }
    }

    /// `Some` when the lease is now ours; whether another replica held it before.
    async fn attempt(&self, seen: &mut Option<Seen>) -> kube::Result<Option<bool>> {
        let sent = monotonic();
        let Some(lease) = self.leases.get_opt(&self.election.name).await? else {
            self.create().await?;
            self.fence.open_since(sent);
            return Ok(Some(false));
        };
        let holder = holder(&lease).to_owned();
        let version = lease.resource_version().unwrap_or_default();
        let since = match seen {
            Some(known) if known.version == version => known.since,
            _ => {
                *seen = Some(Seen { version, since: sent });
                sent
            }
        };
        // Our own name on it is that of a process that is gone: a pod's container that was restarted.
        let free = holder.is_empty() || holder == self.election.identity;
        if !free && sent.duration_since(since) < DURATION {
            return Ok(None);
        }
        self.write(&lease, &self.election.identity, true).await?;
        self.fence.open_since(sent);
        // One that gave it up may have left a request under way, too.
        Ok(Some(true))
    }

    /// Whether the lease is still ours.
    async fn renew(&self) -> kube::Result<bool> {
        let sent = monotonic();
        let lease = self.leases.get(&self.election.name).await?;
        if holder(&lease) != self.election.identity {
            warn!(holder = holder(&lease), "another replica holds the lease");
            return Ok(false);
        }
        self.write(&lease, &self.election.identity, false).await?;
        self.fence.open_since(sent);
        Ok(true)
    }

    async fn create(&self) -> kube::Result<Lease> {
        let now = self.now();
        let lease = json!({
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": self.election.name, "namespace": self.election.namespace},
            "spec": {
                "holderIdentity": self.election.identity,
                "leaseDurationSeconds": DURATION.as_secs(),
                "acquireTime": now,
                "renewTime": now,
                "leaseTransitions": 0,
            },
        });
        let lease = serde_json::from_value(lease).map_err(kube::Error::SerdeError)?;
        self.leases.create(&PostParams::default(), &lease).await
    }

    async fn write(&self, lease: &Lease, holder: &str, acquire: bool) -> kube::Result<Lease> {
        let now = self.now();
        let mut ops = vec![
            json!({"op": "replace", "path": "/metadata/resourceVersion", "value": lease.resource_version()}),
            json!({"op": "add", "path": "/spec/holderIdentity", "value": holder}),
            json!({"op": "add", "path": "/spec/leaseDurationSeconds", "value": DURATION.as_secs()}),
            json!({"op": "add", "path": "/spec/renewTime", "value": now}),
        ];
        if acquire {
            let transitions = lease.spec.as_ref().and_then(|s| s.lease_transitions).unwrap_or_default();
            ops.push(json!({"op": "add", "path": "/spec/acquireTime", "value": now}));
            ops.push(json!({"op": "add", "path": "/spec/leaseTransitions", "value": transitions.saturating_add(1)}));
        }
        let patch = serde_json::from_value(json!(ops)).map_err(kube::Error::SerdeError)?;
        let params = PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
        self.leases.patch(&self.election.name, &params, &Patch::<()>::Json(patch)).await
    }

    async fn within<T>(&self, call: impl Future<Output = kube::Result<T>>) -> Result<T, String> {
        match tokio::time::timeout(PERIOD, call).await {
            Ok(answer) => answer.map_err(|error| sentence(error, &self.election.namespace)),
            Err(_) => Err(format!("no answer within {} s", PERIOD.as_secs())),
        }
    }

    fn now(&self) -> String {
        self.clock.now().format("%Y-%m-%dT%H:%M:%S%.6fZ").to_string()
    }
}

fn holder(lease: &Lease) -> &str {
    lease.spec.as_ref().and_then(|s| s.holder_identity.as_deref()).unwrap_or_default()
}

/// What the API server says, in one line; its own words for an error are the whole object that it sent.
fn sentence(error: kube::Error, namespace: &str) -> String {
    match error {
        kube::Error::Api(status) if status.code == 403 => {
            format!(
                "{}: apply deploy/rbac/leader-election.yaml, which allows it, for namespace {namespace}",
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
    fn a_lease_that_may_not_be_touched_is_said_in_one_sentence_with_what_to_do() {
        let refused = |code| {
            let said = "leases \"windlass\" is forbidden";
            sentence(kube::Error::Api(Box::new(Status::failure(said, "").with_code(code))), "shop")
        };
        assert_eq!(
            refused(403),
            "leases \"windlass\" is forbidden: apply deploy/rbac/leader-election.yaml, which allows it, for namespace shop"
        );
        assert_eq!(refused(500), "leases \"windlass\" is forbidden");
    }
}
