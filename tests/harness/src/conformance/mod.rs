//! One suite of API and StatefulSet behaviours, for the simulated cluster and the real control plane.
//! `observed.json` has what each case observed on the real one; both must observe exactly that.
//!
//! `WINDLASS_RECORD=1 cargo test --test cluster conformance` records it again. `CONFORMANCE_CASE=word` runs only the
//! cases whose names contain the word.
#![allow(clippy::similar_names, clippy::needless_pass_by_value, reason = "cases are read, one at a time")]

pub mod cases;
pub mod policies;
pub mod record;
pub mod suite;
