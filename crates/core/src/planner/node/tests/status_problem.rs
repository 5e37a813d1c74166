//! The problem in a node's status: why it does not serve, and since when.

use super::super::status::SidecarAnswer;
use super::status::{Look, broken, down, look, rolling};
use super::*;
use crate::api::conditions::find;

#[test]
fn problem_reports_why_the_node_does_not_serve_and_since_when() {
    let table = [
        ("it serves", look(node()), None),
        ("suspended", look(NodeFacts { suspended: true, ..node().without_pod() }), None),
        ("its pod is gone", look(node().without_pod()), Some("Missing")),
        ("its pod is not ready", look(down()), Some("NotReady")),
        ("its pod cannot run", look(broken()), Some("ImagePullBackOff")),
        ("refused", Look { invalid: Some("no"), ..look(down()) }, Some("InvalidSpec")),
        (
            "its sidecar does not answer",
            look(node().with_pod(pod("v1").kept_out_by_its_sidecar()))
                .asked(SidecarAnswer::Unreachable("x".to_owned())),
            Some("SidecarUnreachable"),
        ),
    ];
    for (what, look, expected) in table {
        let found = look.status().problem;
        assert_eq!(found.as_ref().map(|p| p.reason.as_str()), expected, "{what}");
        let again = look.clone().again().after(60).status().problem;
        assert_eq!(found.map(|p| p.since), again.map(|p| p.since), "{what}: since");
        let mut set_back = look.again();
        if let Some(problem) = &mut set_back.previous.problem {
            problem.since = later(3600);
        }
        for look in [set_back.clone(), Look { sidecar: SidecarAnswer::NotAsked, ..set_back }] {
            let since = look.status().problem.map(|p| p.since);
            assert!(since.is_none_or(|since| since <= now()), "{what}: a clock was set back: {since:?}");
        }
    }
}

#[test]
fn node_without_pod_reports_its_pending_prerequisite() {
    let message = |facts: NodeFacts| look(facts).status().problem.map(|p| p.message).unwrap_or_default();
    let waits = |facts| NodeFacts { awaits: Some("waiting for a claim".to_owned()), ..facts };
    assert_eq!(message(node().without_pod()), "it has no pod");
    assert_eq!(message(waits(node().without_pod())), "it has no pod: waiting for a claim");
}

#[test]
fn eviction_is_reported_until_the_next_pod_exists() {
    let evicted = Problem { message: "Evicted".to_owned(), pod_uid: "pod-1".to_owned(), ..was("NotReady") };
    let after = |before: Problem| {
        let mut look = look(node().without_pod());
        look.previous.problem = Some(before);
        look.status().problem.unwrap()
    };
    assert_eq!(after(evicted.clone()), evicted);
    let crashed = Problem { container: "db".to_owned(), ..evicted };
    assert_eq!(after(crashed).reason, "Missing");
}

fn was(reason: &str) -> Problem {
    Problem { reason: reason.to_owned(), since: later(-60), ..Problem::default() }
}

#[test]
fn unreachable_sidecar_is_a_problem_only_while_needed() {
    let unreachable = || SidecarAnswer::Unreachable("connection refused".to_owned());
    let mark_next = |target: &str| {
        let mut plan = rolling(target);
        plan.tasks[0].state = TaskState::Complete;
        plan
    };
    let problem = |look: &Look| look.status().problem.map(|p| p.reason);
    let sidecar = |look: &Look| {
        let status = look.status();
        let condition = find(&status.conditions, "SidecarReady").unwrap();
        (condition.status.clone(), condition.reason.clone())
    };
    let is = |truth: &str, reason: &str| (truth.to_owned(), reason.to_owned());

    // A Ready node does not need the sidecar, unless a plan marks the node as ready.
    assert_eq!(problem(&look(node()).asked(unreachable())), None);
    let marking = look(node()).carrying_out(mark_next("v1")).asked(unreachable());
    assert_eq!(problem(&marking).as_deref(), Some("SidecarUnreachable"));
    assert_eq!(sidecar(&marking), is("Unknown", "Unreachable"));
    // The last answer holds until the sidecar is asked again, but only while the plan waits for it.
    let again = marking.again().asked(SidecarAnswer::NotAsked);
    assert_eq!(problem(&again).as_deref(), Some("SidecarUnreachable"));
    assert_eq!(sidecar(&again), is("Unknown", "Unreachable"));
    let over = Look { plan: Some(ended(mark_next("v1"), PlanState::Complete)), ..again };
    assert_eq!((problem(&over), sidecar(&over)), (None, is("True", "Ready")));
    // A plan that is at another task does not ask the sidecar.
    let before = look(node()).carrying_out(rolling("v1")).asked(unreachable());
    assert_eq!(problem(&before), None);

    let kept_out = || look(node().with_pod(pod("v1").kept_out_by_its_sidecar()));
    assert_eq!(problem(&kept_out().asked(unreachable())).as_deref(), Some("SidecarUnreachable"));
    assert_eq!(sidecar(&kept_out().asked(SidecarAnswer::NotAsked)), is("False", "NotReady"));
    assert_eq!(sidecar(&kept_out().asked(SidecarAnswer::NotReady)), is("False", "NotReady"));
    assert_eq!(sidecar(&kept_out().asked(SidecarAnswer::Ready)), is("True", "Ready"));
    assert_eq!(sidecar(&look(node()).asked(SidecarAnswer::NotConfigured)), is("False", "NotConfigured"));
    assert_eq!(sidecar(&look(node()).asked(SidecarAnswer::NotAsked)), is("True", "Ready"));
    // A sidecar that is polled keeps its last state until it answers.
    let watched = look(node()).asked(unreachable());
    assert_eq!(sidecar(&watched), is("Unknown", "Unreachable"));
    assert_eq!(sidecar(&watched.again().asked(SidecarAnswer::Awaited)), is("Unknown", "Unreachable"));
    assert_eq!(sidecar(&look(node()).asked(SidecarAnswer::Awaited)), is("True", "Ready"));
    assert_eq!(sidecar(&kept_out().asked(SidecarAnswer::Awaited)), is("False", "NotReady"));
    let marked = look(node()).carrying_out(mark_next("v1")).asked(SidecarAnswer::NotAsked);
    assert_eq!((problem(&marked), sidecar(&marked)), (None, is("True", "Ready")));
    let down_after = Look { facts: down(), ..kept_out().asked(unreachable()).again() };
    assert_eq!(
        sidecar(&down_after.asked(SidecarAnswer::NotAsked)),
        is("False", "NotReady"),
        "it is not asked"
    );
    // A node that is down for another reason reports that reason.
    let sick = look(down()).asked(unreachable());
    assert_eq!(problem(&sick).as_deref(), Some("NotReady"));
}

#[test]
fn outage_start_is_constant_across_reasons_and_pods() {
    let since = |look: &Look| look.status().problem.unwrap().since;
    // The reason may have changed since, and the pod too.
    let gone = look(node().without_pod()).after(10);
    let pulls = |seconds| Look { facts: broken(), ..gone.clone().again() }.after(seconds);
    assert_eq!(since(&gone), later(10));
    assert_eq!(since(&pulls(60)), later(10));
    let waits = Look { facts: down(), ..pulls(60).again() }.after(900);
    assert_eq!((since(&waits), since(&waits.clone().again().after(9000))), (later(10), later(10)));
    // The node served in between.
    let ready = Look { facts: node(), ..waits.again() }.after(1000);
    assert_eq!(ready.status().problem, None);
    assert_eq!(since(&Look { facts: down(), ..ready.again() }.after(2000)), later(2000));
}

#[test]
fn outage_start_of_ready_node_is_taken_from_the_kubelet() {
    let was_ready = look(node()).again();
    let went_down = |uid: &str, at: i64| {
        let pod = PodFacts { uid: uid.to_owned(), unready_since: Some(later(at)), ..pod("v1").not_ready() };
        let look = Look { facts: node().with_pod(pod), ..was_ready.clone() }.after(500);
        look.status().problem.unwrap().since
    };
    let uid = was_ready.previous.pod_uid.as_str();
    assert_eq!(went_down(uid, 300), later(300), "nobody looked for 200 seconds");
    assert_eq!(went_down(uid, 900), later(500), "its clock is ahead");
    assert_eq!(went_down(uid, -900), later(0), "it was Ready then");
    assert_eq!(went_down("another", 300), later(500), "that pod never was Ready");
}

#[test]
fn lost_problem_recovers_its_time_from_the_ready_condition() {
    let mut lost = look(down()).after(10).again();
    lost.previous.problem = None;
    assert_eq!(lost.clone().after(700).status().problem.unwrap().since, later(10));
    // A suspended node was not supposed to serve.
    let suspended = look(NodeFacts { suspended: true, ..down() }).after(10).again();
    let resumed = Look { facts: down(), ..suspended }.after(700);
    assert_eq!(resumed.status().problem.unwrap().since, later(700));
}
