//! The world behind its lock, with what wakes its controllers.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use super::faults::FaultPlan;
use super::world::World;
use crate::clock::monotonic;

/// What every client and every watch of a cluster holds on to.
pub(crate) struct Shared {
    world: Mutex<World>,
    pub faults: Mutex<Box<dyn FaultPlan>>,
    /// Tells the controllers that there may be something to do.
    pub stir: Notify,
    pub started: Instant,
}

impl Shared {
    pub(crate) fn new(world: World, faults: Box<dyn FaultPlan>) -> Arc<Self> {
        Arc::new(Self {
            world: Mutex::new(world),
            faults: Mutex::new(faults),
            stir: Notify::new(),
            started: monotonic(),
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
        monotonic().duration_since(self.started)
    }
}
