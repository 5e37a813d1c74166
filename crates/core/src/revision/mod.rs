//! What a template amounts to, independent of how it is written: its canonical form, the two hashes over
//! it, the immutable revisions that a rollout targets, and the difference between two of them as data.
//! Pure: no I/O, no clock, no knowledge of what runs.

pub mod canonical;
pub mod drift;
pub mod hash;
pub mod hashes;
mod quantity;
pub mod revisions;
pub mod template;

pub use drift::{Difference, diff};
pub use hash::{HashVersion, pod_template_hash, rollout_hash};
pub use hashes::Hashes;
pub use revisions::{RevisionData, RevisionSidecar, StoredRevision, revision_name, to_prune};
pub use template::{main_container, main_image};
