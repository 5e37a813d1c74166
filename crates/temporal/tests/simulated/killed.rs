//! The operator dies before, and right after, each of its writes to Kubernetes and to Temporal; another one starts.

use windlass_sim::{After, Before, Failure, FaultPlan, RequestInfo};
use windlass_temporal::port::RoutingWrite;
use windlass_temporal_fake::Write;

use crate::stage::{End, Stage, deployment, spec};

async fn run(s: &Stage) -> End {
    let end = s.through_two_versions(spec("v1")).await;
    s.assert_no_orphans();
    end
}

#[tokio::test(start_paused = true)]
async fn operator_death_at_any_temporal_write_changes_no_result() {
    let clean = Stage::new();
    let end = run(&clean).await;
    let writes = clean.temporal.writes().len() as u64;
    assert!(writes >= 6, "{:?}", clean.temporal.writes());
    for number in 1..=writes {
        for before in [true, false] {
            let s = Stage::new();
            s.temporal.at_write(number, before, s.killer());
            assert_eq!(run(&s).await, end, "write {number} to Temporal, before: {before}");
        }
    }
}

/// Fails one write of the operator, before or after it is carried out, and kills the operator.
pub struct Death {
    pub write: u64,
    pub before: bool,
    pub kill: Option<Box<dyn FnOnce() + Send>>,
}

impl Death {
    fn is_it(&self, request: &RequestInfo) -> bool {
        request.user_agent == "operator" && request.write_number == self.write
    }
}

impl FaultPlan for Death {
    fn before(&mut self, request: &RequestInfo) -> Before {
        if self.before && self.is_it(request) {
            self.kill.take().into_iter().for_each(|kill| kill());
            return Before::Fail(Failure::Disconnect);
        }
        Before::Pass
    }

    fn after(&mut self, request: &RequestInfo, _: u16) -> After {
        if !self.before && self.is_it(request) {
            self.kill.take().into_iter().for_each(|kill| kill());
            return After::Fail(Failure::Disconnect);
        }
        After::Pass
    }
}

#[tokio::test(start_paused = true)]
async fn operator_death_at_any_kubernetes_write_changes_no_result() {
    let clean = Stage::new();
    let end = run(&clean).await;
    let of_operator = |entry: &&windlass_sim::AuditEntry| entry.user_agent == "operator" && entry.is_write();
    let writes = clean.cluster.audit().iter().filter(of_operator).count() as u64;
    assert!(writes > 20, "{writes}");
    for write in 1..=writes {
        for before in [true, false] {
            let s = Stage::new();
            let kill: Box<dyn FnOnce() + Send> = Box::new(s.killer());
            s.cluster.set_faults(Box::new(Death { write, before, kill: Some(kill) }));
            assert_eq!(run(&s).await, end, "write {write} to Kubernetes, before: {before}");
        }
    }
}

/// A stage whose current version has a running workflow.
async fn begun() -> Stage {
    let (s, _) = Stage::running(spec("v1")).await;
    s.temporal.start(&deployment(), "long", None, 99.0);
    s
}

/// Deletes the object while the workflow runs, which ends some time later.
async fn gone(s: &Stage, what: &str) {
    s.delete().await;
    s.seconds(90).await;
    assert!(s.object().is_some() && !s.deployments().is_empty(), "{what}: a workflow runs");
    s.temporal.end("long");
    s.until("it is gone", |s| s.object().is_none() && s.deployments().is_empty()).await;
    s.assert_no_orphans();
    let left = s.cluster.snapshot_of("shop", &["ControllerRevision"]);
    assert!(left.is_empty(), "{what}: {left:?}");
    let writes = s.temporal.writes();
    assert!(writes.contains(&Write::Routing(RoutingWrite::Current(None))), "{what}: {writes:?}");
    assert!(writes.contains(&Write::Manager(None)), "{what}: {writes:?}");
}

#[tokio::test(start_paused = true)]
async fn operator_death_at_any_deletion_write_leaves_nothing_behind() {
    let clean = begun().await;
    let of_operator = |entry: &&windlass_sim::AuditEntry| entry.user_agent == "operator" && entry.is_write();
    let count = |s: &Stage| s.cluster.audit().iter().filter(of_operator).count() as u64;
    let (kubernetes, temporal) = (count(&clean), clean.temporal.writes().len() as u64);
    gone(&clean, "nobody dies").await;
    let (kubernetes, temporal) =
        (count(&clean) - kubernetes, clean.temporal.writes().len() as u64 - temporal);
    assert!(kubernetes >= 5 && temporal >= 3, "{kubernetes} and {temporal} writes");
    for before in [true, false] {
        for write in 1..=kubernetes {
            let s = begun().await;
            let kill: Box<dyn FnOnce() + Send> = Box::new(s.killer());
            s.cluster.set_faults(Box::new(Death { write: count(&s) + write, before, kill: Some(kill) }));
            gone(&s, &format!("write {write} of the deletion to Kubernetes, before: {before}")).await;
        }
        for write in 1..=temporal {
            let s = begun().await;
            s.temporal.at_write(write, before, s.killer());
            gone(&s, &format!("write {write} of the deletion to Temporal, before: {before}")).await;
        }
    }
}
