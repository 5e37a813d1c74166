//! One suite of API and StatefulSet behaviours, for the simulated cluster and the real control plane.
//! `conformance/observed.json` has what each case observed on the real one; both must observe exactly that.
//!
//! `WINDLASS_RECORD=1 cargo test --test sim real` records it again. `CONFORMANCE_CASE=word` runs only the
//! cases whose names contain the word.
#![allow(clippy::similar_names, clippy::needless_pass_by_value, reason = "cases are read, one at a time")]

mod simulated;

use windlass_harness::conformance::{cases, record};

#[test]
fn suite_has_at_least_eighty_uniquely_named_cases() {
    let names: std::collections::BTreeSet<&str> = cases::all().iter().map(|case| case.name).collect();
    assert_eq!(names.len(), cases::all().len());
    assert!(names.len() >= 80, "{}", names.len());
}

#[test]
fn simulated_cluster_matches_the_recorded_control_plane() {
    let recorded = record::read();
    let results = cases::chosen().into_iter().map(|case| (case.name, simulated::run(case))).collect();
    record::compare(&recorded, &results);
}
