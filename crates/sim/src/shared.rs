//! The world with its lock, and the wake-up of its controllers.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use super::faults::{EventInfo, FaultPlan, RequestInfo, WatchFate};
use super::world::World;
use windlass_clock::monotonic;

/// The state that all clients and watches of a cluster share.
pub(crate) struct Shared {
    world: Mutex<World>,
    pub faults: Mutex<Box<dyn FaultPlan>>,
    /// Wakes the controllers.
    pub wake: Notify,
    pub started: Instant,
    /// The age of the cluster that this one is a copy of.
    before: Duration,
}

impl Shared {
    pub(crate) fn new(world: World, before: Duration, faults: Box<dyn FaultPlan>) -> Arc<Self> {
        Arc::new(Self {
            world: Mutex::new(world),
            faults: Mutex::new(faults),
            wake: Notify::new(),
            started: monotonic(),
            before,
        })
    }

    /// Locks the world and advances it to the present.
    pub(crate) fn lock(&self) -> MutexGuard<'_, World> {
        let mut world = self.world.lock().unwrap_or_else(PoisonError::into_inner);
        world.agenda.now_ms = self.elapsed().as_millis() as u64;
        world
    }

    /// The age of the cluster, by tokio's clock.
    pub(crate) fn elapsed(&self) -> Duration {
        self.before + monotonic().duration_since(self.started)
    }

    /// The instant at which its age is this many milliseconds.
    pub(crate) fn at_ms(&self, milliseconds: u64) -> Instant {
        self.started + Duration::from_millis(milliseconds).saturating_sub(self.before)
    }
}

/// A watch's access to the fault plan.
pub(crate) struct WatchView {
    pub shared: Arc<Shared>,
    pub request: Arc<RequestInfo>,
}

impl WatchView {
    pub(crate) fn fate(&self, namespace: &str, name: &str, version: u64, deleted: bool) -> WatchFate {
        let mut plan = self.shared.faults.lock().unwrap_or_else(PoisonError::into_inner);
        plan.event(&self.request, &EventInfo { namespace, name, version, deleted })
    }
}
