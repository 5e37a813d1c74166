//! What this process keeps in addition to the caches of the port, and may lose at any time: answers of the API server
//! ([`ProbeCache`]), results of computations ([`Computed`]), what no object records ([`Sightings`]), when statuses were
//! written ([`StatusWrites`]), and how often the hold of a StatefulSet was written again ([`Holds`]).

pub mod computed;
mod holds;
pub mod live_pods;
pub mod probes;
pub mod remembered;
mod sightings;
mod status_writes;

pub use computed::Computed;
pub use holds::Holds;
pub use probes::{Asked, Existence, ProbeCache};
pub use sightings::{Sighting, Sightings};
pub use status_writes::StatusWrites;

/// The caches whose loss costs requests and time, and changes no decision.
#[derive(Default)]
pub struct Caches {
    /// Answers of the API server.
    pub probes: ProbeCache,
    /// Results of computations.
    pub computed: Computed,
}

impl Caches {
    /// Removes what is known about the object with this UID.
    pub fn forget(&self, uid: &str) {
        self.probes.forget(uid);
        self.computed.forget(uid);
    }
}
