//! The real control plane does what the cases of the suite once observed on it.

use std::sync::Arc;

use futures::StreamExt;
use windlass_harness::conformance::suite::{self, Case, Ctx};
use windlass_harness::conformance::{cases, record};
use windlass_harness::controlplane::ControlPlane;

#[tokio::test]
async fn control_plane_matches_the_recorded_behaviour() {
    let cp = ControlPlane::shared().await;
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
