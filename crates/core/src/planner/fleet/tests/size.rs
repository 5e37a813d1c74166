//! A fleet's status stays small, whatever kubelets, API servers and users write.

use super::*;
use crate::planner::fleet::blocker::Blocker;

const KIB: usize = 1024;
/// A text that is longer than any that may be stored.
fn endless() -> String {
    "é".repeat(50 * KIB)
}

fn bytes(status: &NodeDeploymentStatus) -> usize {
    serde_json::to_string(status).unwrap().len()
}

#[test]
fn status_of_ten_thousand_failing_nodes_is_below_256_kib() {
    let mut facts = fleet(10_000).wanting("v2").at_most(10_000);
    // No more than these are listed; the others would only make the test slow.
    for child in &mut facts.children[..100] {
        let failed = child.clone().granted("v2").seen().failed();
        *child = failed.with_problem("CrashLoopBackOff", &endless());
    }
    let mut status = rolling_out(&facts, &start(to("v2"), "v2", Cause::TemplateChanged));
    for _ in 0..30 {
        let mut plan = plan_to("v2");
        plan.failure = crate::engine::sentence::cut(&endless(), crate::engine::sentence::MAX_FAILURE_BYTES);
        super::super::status::end(&mut status, &plan, crate::api::Ending::Failed, &plan.failure, now());
    }
    let status = look(status, &facts, 5_000);
    assert_eq!(status.rollout.as_ref().unwrap().unconverged.len(), 20);
    assert!(bytes(&status) < 256 * KIB, "{} bytes", bytes(&status));
}

#[test]
fn long_spec_and_conflict_messages_stay_below_256_kib() {
    let mut facts = fleet(10_000).wanting("v2");
    facts.findings.blocker = Some(Blocker::Spec(endless()));
    facts.conflicts = (0..10_000)
        .map(|ordinal| super::super::Conflict {
            name: format!("db-{ordinal}").into(),
            ordinal,
            message: endless(),
        })
        .collect();
    facts.children.clear();
    let status = look(rolling_out(&facts, &start(to("v2"), "v2", Cause::TemplateChanged)), &facts, 5_000);
    assert!(bytes(&status) < 256 * KIB, "{} bytes", bytes(&status));
}
