//! The world behind its lock, with what wakes its controllers.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use super::faults::{EventInfo, FaultPlan, RequestInfo, WatchFate};
use super::world::World;
use windlass_clock::monotonic;

/// What every client and every watch of a cluster holds on to.
pub(crate) struct Shared {
    world: Mutex<World>,
    pub faults: Mutex<Box<dyn FaultPlan>>,
    /// Tells the controllers that there may be something to do.
    pub stir: Notify,
    pub started: Instant,
    /// How long the cluster had existed by then: in the one that it is a copy of.
    before: Duration,
}

impl Shared {
    pub(crate) fn new(world: World, before: Duration, faults: Box<dyn FaultPlan>) -> Arc<Self> {
        Arc::new(Self {
            world: Mutex::new(world),
            faults: Mutex::new(faults),
            stir: Notify::new(),
            started: monotonic(),
            before,
        })
    }

    /// The world, as of now.
    pub(crate) fn lock(&self) -> MutexGuard<'_, World> {
        let mut world = self.world.lock().unwrap_or_else(PoisonError::into_inner);
        world.agenda.now_ms = self.elapsed().as_millis() as u64;
        world
    }

    /// How long the cluster has existed, on tokio's clock.
    pub(crate) fn elapsed(&self) -> Duration {
        self.before + monotonic().duration_since(self.started)
    }

    /// When it will have existed for so many milliseconds, on tokio's clock.
    pub(crate) fn at_ms(&self, milliseconds: u64) -> Instant {
        self.started + Duration::from_millis(milliseconds).saturating_sub(self.before)
    }
}

/// One watch's way to ask the plan.
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
