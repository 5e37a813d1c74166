//! Templates, independent of how they are written: the canonical form, the two hashes of it, the immutable revisions
//! that a rollout targets, and the differences between two revisions as data. Pure: no I/O, no clock, no knowledge of
//! what runs.

pub mod canonical;
mod claims;
pub mod config;
mod data;
pub mod drift;
pub mod hash;
mod hex;
pub mod quantity;
pub mod references;
pub mod revisions;
pub mod rollout;
pub mod template;

pub use claims::{ClaimsComparison, are_same_claims, growth, is_smaller, sizes_of, with_sizes};
pub use data::{RevisionData, RevisionSidecar};
pub use drift::{Difference, diff};
pub use hash::pod_template_hash;
pub use revisions::{StoredRevision, revision_name, to_prune};
pub use rollout::{revision_label, rollout_hash};
pub use template::{main_container, main_image};
