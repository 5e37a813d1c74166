//! The operator dies before, and right after, each of its writes, to Kubernetes and to Temporal; another one starts.

use windlass_sim::{After, Before, Failure, FaultPlan, RequestInfo};

use crate::stage::{End, Stage, spec};

async fn run(s: &Stage) -> End {
    let end = s.through_two_versions(spec("v1")).await;
    s.assert_no_orphans();
    end
}

#[tokio::test(start_paused = true)]
async fn death_at_any_write_to_temporal_changes_nothing_of_the_end() {
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

/// Fails one write of the operator's, before it is carried out or after, and kills it.
struct Death {
    write: u64,
    before: bool,
    kill: Option<Box<dyn FnOnce() + Send>>,
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
async fn death_at_any_write_to_kubernetes_changes_nothing_of_the_end() {
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
