//! One suite of API and StatefulSet behaviours, for the simulated cluster and the real control plane.
//! `conformance/observed.json` has what each case observed on the real one; both must observe exactly that.
//!
//! `WINDLASS_RECORD=1 cargo test --test conformance real` records it again. `CONFORMANCE_CASE=word` runs only the
//! cases whose names contain the word.
#![recursion_limit = "256"]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]
#![allow(clippy::similar_names, clippy::needless_pass_by_value, reason = "cases are read, one at a time")]

#[path = "conformance/cases/mod.rs"]
mod cases;
#[path = "controlplane/mod.rs"]
mod controlplane;
#[path = "conformance/policies.rs"]
mod policies;
#[path = "conformance/record.rs"]
mod record;
#[path = "conformance/simulated.rs"]
mod simulated;
#[path = "conformance/suite.rs"]
mod suite;

use std::sync::Arc;

use futures::StreamExt;
use suite::{Case, Ctx};

#[test]
fn the_suite_has_at_least_eighty_cases_with_names_of_their_own() {
    let names: std::collections::BTreeSet<&str> = cases::all().iter().map(|case| case.name).collect();
    assert_eq!(names.len(), cases::all().len());
    assert!(names.len() >= 80, "{}", names.len());
}

#[test]
fn the_simulated_cluster_does_what_the_real_control_plane_was_seen_to_do() {
    let recorded = record::read();
    let results = cases::chosen().into_iter().map(|case| (case.name, simulated::run(case))).collect();
    record::compare(&recorded, &results);
}

#[tokio::test]
async fn the_real_control_plane_does_what_it_was_seen_to_do_before() {
    let cp = controlplane::ControlPlane::shared().await;
    let client = cp.client().await;
    suite::prepare(&client).await;
    let run = |case: Case| {
        let client = client.clone();
        async move {
            let ns = cp.namespace("conf").await;
            let ctx = Arc::new(Ctx::new(client, &ns));
            (case.name, suite::run(case, ctx).await)
        }
    };
    let results = futures::stream::iter(cases::chosen()).map(run).buffer_unordered(6).collect().await;
    if std::env::var_os("WINDLASS_RECORD").is_some() {
        record::write(&results);
    }
    record::compare(&record::read(), &results);
}
