//! A node's status: phase, conditions, the spent grant, and the StatefulSet.

use std::collections::BTreeSet;

use super::super::decide::recipes;
use super::super::status::{SidecarAnswer, StatusInput, status};
use super::*;
use crate::api::conditions::find;
use crate::api::{HistoryEntry, RawPlan, StatefulNodeStatus, StatefulSetRef};
use crate::planner::waits::Wait;

/// What a status is computed from in a reconcile.
#[derive(Clone)]
pub(super) struct Look {
    pub(super) facts: NodeFacts,
    pub(super) previous: StatefulNodeStatus,
    pub(super) plan: Option<Plan>,
    pub(super) sidecar: SidecarAnswer,
    pub(super) invalid: Option<&'static str>,
    pub(super) seconds: i64,
}

pub(super) fn look(facts: NodeFacts) -> Look {
    let previous = StatefulNodeStatus { first_ready_at: Some(now()), ..StatefulNodeStatus::default() };
    Look { facts, previous, plan: None, sidecar: SidecarAnswer::NotConfigured, invalid: None, seconds: 0 }
}

impl Look {
    pub(super) fn never_ready(mut self) -> Self {
        self.previous.first_ready_at = None;
        self
    }

    pub(super) fn carrying_out(self, plan: Plan) -> Self {
        Self { plan: Some(plan), ..self }
    }

    pub(super) fn after(self, seconds: i64) -> Self {
        Self { seconds, ..self }
    }

    pub(super) fn asked(self, sidecar: SidecarAnswer) -> Self {
        Self { sidecar, ..self }
    }

    pub(super) fn with_history(mut self, recipe: &str, outcome: &str) -> Self {
        self.previous.history.push(HistoryEntry {
            plan_id: "p".to_owned(),
            recipe: recipe.to_owned(),
            from_hash: String::new(),
            target_hash: "v1".to_owned(),
            outcome: outcome.to_owned(),
            reason: String::new(),
            message: String::new(),
            started_at: None,
            finished_at: None,
        });
        self
    }

    pub(super) fn status(&self) -> StatefulNodeStatus {
        let input = StatusInput {
            previous: &self.previous,
            generation: 7,
            plan: self.plan.as_ref(),
            raw_plan: None,
            sidecar: &self.sidecar,
            invalid: self.invalid,
            not_applied: None,
            set_name: "db-0",
            restarted_at: None,
            claims: Some(true),
            has_claims: false,
            now: later(self.seconds),
        };
        status(&self.facts, &input)
    }

    /// The same node in the next reconcile.
    pub(super) fn again(self) -> Self {
        Self { previous: self.status(), ..self }
    }
}

pub(super) fn down() -> NodeFacts {
    node().with_pod(pod("v1").not_ready())
}

pub(super) fn broken() -> NodeFacts {
    node().granted("v2").with_template("v2").with_pod(pod("v2").of_another_uid().that_cannot_run())
}

pub(super) fn nothing() -> NodeFacts {
    node().without_set().without_pod()
}

pub(super) fn rolling(target: &str) -> Plan {
    plan(recipes::NODE_UPDATE, target)
}

/// A plan whose running first task counts as stalled after 600 seconds.
pub(super) fn overdue(target: &str) -> Plan {
    let mut plan = rolling(target);
    plan.tasks[0].state = TaskState::Running;
    plan.tasks[0].deadline = Some(later(600));
    plan
}

/// The same, at a hook.
pub(super) fn late_hook(target: &str) -> Plan {
    let mut plan = overdue(target);
    plan.tasks[0].type_ = "call-http".to_owned();
    plan.tasks[0].params = serde_json::json!({"hook": "drain", "at": "BeforeNode"});
    plan
}

pub(super) fn failed(target: &str) -> Plan {
    Plan { failure: "refused".to_owned(), ..ended(rolling(target), PlanState::Failed) }
}

#[test]
fn phase_is_the_first_that_applies() {
    let suspended = |facts: NodeFacts| NodeFacts { suspended: true, ..facts };
    let table: Vec<(&str, Look, &str)> = vec![
        ("deleted", look(NodeFacts { terminating: true, ..suspended(broken()) }), "Terminating"),
        ("suspended", look(broken().scaled_down()), "Suspended"),
        ("suspended before it was ever made", look(suspended(nothing())), "Suspended"),
        ("to be suspended, and its StatefulSet was not scaled down", look(suspended(node())), "Running"),
        ("the same, and its pod is gone for now", look(suspended(node().without_pod())), "Pending"),
        ("the same, and its pod cannot run", look(suspended(broken())), "Failed"),
        (
            "its StatefulSet was scaled down, and its pod still ends",
            look(node().scaled_down().with_pod(pod("v1").terminating())),
            "Pending",
        ),
        ("its pod cannot run", look(broken()).carrying_out(rolling("v2")), "Failed"),
        ("its plan failed", look(node().granted("v2")).carrying_out(failed("v2")), "Failed"),
        (
            "a plan for something else failed",
            look(node().granted("v2")).carrying_out(failed("v3")),
            "Running",
        ),
        ("its plan failed, and yet it converged", look(node()).carrying_out(failed("v1")), "Running"),
        ("a plan rolls it", look(node().granted("v2")).carrying_out(rolling("v2")), "Updating"),
        (
            "a plan restarts it",
            look(node().granted("v2")).carrying_out(plan(recipes::RESTART_NODE, "v2")),
            "Updating",
        ),
        ("a plan marks it ready", look(node()).carrying_out(plan(recipes::MARK_READY, "v1")), "Running"),
        ("a plan is over", look(node()).carrying_out(ended(rolling("v1"), PlanState::Complete)), "Running"),
        ("it serves", look(node()), "Running"),
        ("it comes up for the first time", look(down()).never_ready(), "Initializing"),
        ("it does not exist yet", look(nothing()).never_ready(), "Pending"),
        ("it went down", look(down()), "Pending"),
    ];
    for (what, look, expected) in table {
        assert_eq!(look.status().phase, expected, "{what}");
    }
}

/// A name, the input, and the expected conditions: type, status and reason.
type Case = (&'static str, Look, Vec<(&'static str, &'static str, &'static str)>);

#[allow(clippy::too_many_lines, reason = "a table")]
fn cases() -> Vec<Case> {
    let unreachable = || SidecarAnswer::Unreachable("no answer".to_owned());
    let marking = || node().with_pod(pod("v1").kept_out_by_its_sidecar());
    vec![
        (
            "it serves",
            look(node()).with_history(recipes::NODE_UPDATE, "Complete"),
            vec![
                ("Ready", "True", "NodeReady"),
                ("NodeUpdateInProgress", "False", "UpdateComplete"),
                ("SidecarReady", "False", "NotConfigured"),
                ("Stalled", "False", "Progressing"),
                ("Reconciling", "False", "Settled"),
            ],
        ),
        (
            "it does not exist yet",
            look(nothing()).never_ready(),
            vec![
                ("Ready", "False", "NotStarted"),
                ("NodeUpdateInProgress", "False", "NotStarted"),
                ("Reconciling", "True", "Progressing"),
            ],
        ),
        (
            "it is being made",
            look(nothing()).never_ready().carrying_out(rolling("v1")),
            vec![("Ready", "False", "NodesInitializing"), ("NodeUpdateInProgress", "True", "UpdateStarted")],
        ),
        (
            "it went down",
            look(down()),
            vec![("Ready", "False", "PodNotReady"), ("Reconciling", "True", "Progressing")],
        ),
        ("its pod cannot run", look(broken()), vec![("Ready", "False", "NodesFailed")]),
        (
            "it is suspended",
            look(node().scaled_down()),
            vec![("Ready", "False", "Suspended"), ("Reconciling", "False", "Settled")],
        ),
        (
            "it is to be suspended and serves",
            look(NodeFacts { suspended: true, ..node() }),
            vec![("Ready", "True", "NodeReady"), ("Reconciling", "True", "Progressing")],
        ),
        (
            "its update failed",
            look(node().granted("v2"))
                .carrying_out(failed("v2"))
                .with_history(recipes::NODE_UPDATE, "Failed"),
            vec![
                ("NodeUpdateInProgress", "False", "UpdateFailed"),
                ("Stalled", "True", "PlanFailed"),
                ("Reconciling", "False", "Settled"),
                ("Ready", "True", "NodeReady"),
            ],
        ),
        (
            "its update was superseded",
            look(node()).with_history(recipes::RESTART_NODE, "Superseded"),
            vec![("NodeUpdateInProgress", "False", "UpdateSuperseded")],
        ),
        (
            "it was marked ready after an update",
            look(node())
                .with_history(recipes::NODE_UPDATE, "Complete")
                .with_history(recipes::MARK_READY, "Failed"),
            vec![("NodeUpdateInProgress", "False", "UpdateComplete")],
        ),
        (
            "its plan stands still",
            look(node().granted("v2")).carrying_out(overdue("v2")).after(600),
            vec![("Stalled", "True", "NoProgress"), ("Reconciling", "False", "Settled")],
        ),
        (
            "a hook of its plan, which has a time-out of its own, is about to fail",
            look(node().granted("v2")).carrying_out(late_hook("v2")).after(600),
            vec![("Stalled", "False", "Progressing"), ("Reconciling", "True", "Progressing")],
        ),
        (
            "its plan has time left",
            look(node().granted("v2")).carrying_out(overdue("v2")).after(599),
            vec![("Stalled", "False", "Progressing"), ("Reconciling", "True", "Progressing")],
        ),
        (
            "its spec is refused",
            Look { invalid: Some("no"), ..look(node()) },
            vec![("Stalled", "True", "InvalidSpec"), ("Reconciling", "False", "Settled")],
        ),
        (
            "its sidecar says ready",
            look(node()).asked(SidecarAnswer::Ready),
            vec![("SidecarReady", "True", "Ready")],
        ),
        (
            "its sidecar says not ready",
            look(marking()).asked(SidecarAnswer::NotReady),
            vec![("SidecarReady", "False", "NotReady")],
        ),
        (
            "its sidecar does not answer",
            look(marking()).asked(unreachable()),
            vec![("SidecarReady", "Unknown", "Unreachable")],
        ),
        (
            "its sidecar did not answer and was not asked again",
            look(marking()).asked(unreachable()).again().asked(SidecarAnswer::NotAsked),
            vec![("SidecarReady", "Unknown", "Unreachable")],
        ),
        (
            "its sidecar did not answer, and the pod is Ready now",
            Look {
                facts: node(),
                ..look(marking()).asked(unreachable()).again().asked(SidecarAnswer::NotAsked)
            },
            vec![("SidecarReady", "True", "Ready")],
        ),
        (
            "its sidecar was not asked, the pod is not there",
            look(node().without_pod()).asked(SidecarAnswer::NotAsked),
            vec![("SidecarReady", "False", "NotReady")],
        ),
    ]
}

#[test]
fn conditions_reflect_the_state_of_the_node() {
    for (what, look, expected) in cases() {
        let status = look.status();
        for (type_, truth, reason) in expected {
            let found = find(&status.conditions, type_).unwrap();
            assert_eq!((found.status.as_str(), found.reason.as_str()), (truth, reason), "{what}: {type_}");
        }
        let types: BTreeSet<&str> = status.conditions.iter().map(|c| c.type_.as_str()).collect();
        assert_eq!(types.len(), 5, "{what}");
        assert!(status.conditions.iter().all(|c| c.observed_generation == 7), "{what}");
        let truth = |type_| find(&status.conditions, type_).unwrap().status == "True";
        assert!(!(truth("Stalled") && truth("Reconciling")), "{what}");
    }
}

#[test]
fn every_condition_reason_of_a_node_is_covered() {
    let reached: BTreeSet<(String, String)> = cases()
        .into_iter()
        .flat_map(|(_, look, _)| look.status().conditions)
        .map(|c| (c.type_, c.reason))
        .collect();
    let all: [(&str, &[&str]); 5] = [
        (
            "Ready",
            &["NodeReady", "NotStarted", "NodesInitializing", "NodesFailed", "PodNotReady", "Suspended"],
        ),
        (
            "NodeUpdateInProgress",
            &["UpdateStarted", "NotStarted", "UpdateComplete", "UpdateFailed", "UpdateSuperseded"],
        ),
        ("SidecarReady", &["Ready", "NotReady", "NotConfigured", "Unreachable"]),
        ("Stalled", &["NoProgress", "PlanFailed", "InvalidSpec", "Progressing"]),
        ("Reconciling", &["Progressing", "Settled"]),
    ];
    let expected: BTreeSet<(String, String)> = all
        .iter()
        .flat_map(|(t, reasons)| reasons.iter().map(|r| ((*t).to_owned(), (*r).to_owned())))
        .collect();
    assert_eq!(reached, expected);
}

#[test]
fn grant_is_spent_in_the_write_that_reports_convergence() {
    let done = || node().granted("v2").with_template("v2").with_pod(pod("v2").of_another_uid());
    let spent = |facts: NodeFacts| {
        let mut look = look(facts);
        look.previous.spent_grant_id = "grant-1".to_owned();
        look.status()
    };
    assert_eq!(spent(done()).spent_grant_id, "grant-2");
    assert_eq!(spent(done().with_pod(pod("v2").not_ready())).spent_grant_id, "grant-1");
    assert_eq!(spent(done().with_unseen_template("v2")).spent_grant_id, "grant-1");
    assert_eq!(spent(node().granted("v2")).spent_grant_id, "grant-1");
    let status = spent(done());
    assert_eq!(
        (status.pod_template_hash.as_str(), status.current_image.as_str(), status.pod_uid.as_str()),
        ("v2", "db:v2", "pod-2")
    );
    assert_eq!(status.observed_generation, 7);
}

#[test]
fn manual_edit_is_still_detected_after_a_status_write() {
    let written = look(node()).again();
    let before = StatefulSetRef {
        name: "db-0".to_owned(),
        uid: "set-uid".to_owned(),
        generation: 3,
        template_digest: "digest of v1".to_owned(),
        revisions: Vec::new(),
    };
    assert_eq!(written.status().stateful_set, Some(before.clone()));
    let edited = node().with_set(LiveStatefulSet { generation: 4, template: Template::Unknown, ..set("v1") });
    let status = Look { facts: edited, ..written }.status();
    assert_eq!(status.stateful_set, Some(before));
    let other = node().with_set(LiveStatefulSet {
        uid: "other".to_owned(),
        template: Template::Unknown,
        ..set("v1")
    });
    assert_eq!(look(other).again().status().stateful_set.unwrap().generation, 0);
}

#[test]
fn availability_counts_from_kubelet_ready_transition() {
    let status = look(node()).after(500).status();
    assert_eq!(find(&status.conditions, "Ready").unwrap().last_transition_time, now());
}

#[test]
fn status_of_an_unchanged_node_does_not_change() {
    for (what, look, _) in cases() {
        let settled = look.again();
        let once = settled.previous.clone();
        let seconds = if settled.seconds == 599 { 599 } else { settled.seconds + 1 };
        assert_eq!(settled.after(seconds).again().previous, once, "{what}");
    }
}

#[test]
fn unreadable_plan_is_kept_as_stored() {
    let facts = node();
    let raw = RawPlan(serde_json::json!({"id": "x", "newField": true}).into());
    let previous = StatefulNodeStatus::default();
    let input = StatusInput {
        previous: &previous,
        generation: 1,
        plan: None,
        raw_plan: Some(&raw),
        sidecar: &SidecarAnswer::NotConfigured,
        invalid: None,
        not_applied: None,
        set_name: "db-0",
        restarted_at: None,
        claims: Some(true),
        has_claims: false,
        now: now(),
    };
    assert_eq!(status(&facts, &input).plan, Some(raw.clone()));
}

#[test]
fn new_pod_is_ready_once_its_hash_is_known() {
    // After a resume, or for a recreated StatefulSet, the pod may be Ready before the StatefulSet's status is observed.
    // A node that reports Ready without a known hash would count as drifted.
    let unseen = || node().with_unseen_template("v1").with_pod(pod("v1").of_another_uid());
    let before = look(unseen()).status();
    assert_eq!(before.pod_template_hash, "");
    assert_eq!(find(&before.conditions, "Ready").unwrap().status, "False");
    let seen = look(node().with_pod(pod("v1").of_another_uid())).status();
    assert_eq!(seen.pod_template_hash, "v1");
    assert_eq!(find(&seen.conditions, "Ready").unwrap().status, "True");
    // A known pod continues to serve while a new template is not observed yet.
    let known = look(node().with_unseen_template("v2")).status();
    assert_eq!(find(&known.conditions, "Ready").unwrap().status, "True");
    // A pod that was created from an edited template is known not to be what was granted.
    let edited =
        node().with_edited_template().with_pod(PodFacts { revision: "db-0-edited".to_owned(), ..pod("v1") });
    let edited =
        look(edited.with_pod(PodFacts { revision: "db-0-edited".to_owned(), ..pod("v1").of_another_uid() }))
            .status();
    assert_eq!(find(&edited.conditions, "Ready").unwrap().status, "True");
}

#[test]
fn running_container_is_reported_only_for_an_unready_node() {
    let other = || pod("v1").of_another_uid();
    let table: Vec<(&str, NodeFacts, bool)> = vec![
        ("it serves", node(), false),
        ("it runs and is not ready", down(), true),
        ("its sidecar keeps it out", node().with_pod(pod("v1").kept_out_by_its_sidecar()), true),
        ("its container is being created anew", node().with_pod(other().not_running()), false),
        ("its new pod runs", node().with_pod(other().not_ready()), true),
        ("it leaves", node().with_pod(pod("v1").terminating()), false),
        ("it has no pod", node().without_pod(), false),
        (
            "it crashes, and runs for a moment",
            node().with_pod(PodFacts { running: true, ..pod("v1").that_cannot_run() }),
            false,
        ),
        (
            "another container crashes",
            node().with_pod(PodFacts { cannot_run: true, ..pod("v1").not_ready() }),
            true,
        ),
    ];
    for (what, facts, runs) in table {
        assert_eq!(look(facts).status().pod_runs, runs, "{what}");
    }
}

#[test]
fn reconciling_is_true_while_the_node_can_make_progress() {
    let is = |look: &Look| find(&look.status().conditions, "Reconciling").unwrap().status.clone();
    for (what, look, expected) in [
        ("it serves", look(node()), "False"),
        ("it is down", look(down()), "True"),
        ("it is down, as it is to be", look(node().scaled_down()), "False"),
        ("it is to be down, and its pod is there", look(NodeFacts { suspended: true, ..down() }), "True"),
        ("a plan is under way", look(node()).carrying_out(rolling("v1")), "True"),
        ("a plan is over", look(node()).carrying_out(ended(rolling("v1"), PlanState::Complete)), "False"),
        ("its plan failed", look(node().granted("v2")).carrying_out(failed("v2")), "False"),
        ("its plan takes too long", look(down()).carrying_out(overdue("v1")).after(600), "False"),
        ("its spec cannot be carried out", Look { invalid: Some("no"), ..look(down()) }, "False"),
    ] {
        assert_eq!(is(&look), expected, "{what}");
    }
}

#[test]
fn manual_edit_time_is_recorded_only_when_its_repair_begins() {
    let edited = || node().with_edited_template();
    let begun = look(edited()).carrying_out(rolling("v1")).status();
    assert_eq!(begun.edit_found_at, Some(now()));
    let goes_on = Look { previous: begun.clone(), ..look(edited()).carrying_out(rolling("v1")) };
    assert_eq!(goes_on.after(30).status().edit_found_at, Some(now()), "it stays the time of then");
    for (what, facts, plan) in [
        ("no plan begins", edited(), None),
        (
            "the grant is not spent",
            NodeFacts { grant_id: Some("grant-2".into()), ..edited() },
            Some(rolling("v1")),
        ),
        ("nobody changed it", node(), Some(rolling("v1"))),
        ("its pod does not serve", edited().with_pod(pod("v1").not_ready()), Some(rolling("v1"))),
        ("it is only marked ready", edited(), Some(plan(recipes::MARK_READY, "v1"))),
    ] {
        let look = Look { plan, ..look(facts) };
        assert_eq!(look.status().edit_found_at, None, "{what}");
    }
}

#[test]
fn claims_are_pending_until_they_match_the_observed_generation() {
    let of = |observed: i64, was_pending: bool, claims: Option<bool>, has_claims: bool| {
        let (facts, sidecar) = (node(), SidecarAnswer::NotConfigured);
        let previous = StatefulNodeStatus {
            observed_generation: observed,
            claims_pending: was_pending,
            ..StatefulNodeStatus::default()
        };
        let input = StatusInput {
            previous: &previous,
            generation: 7,
            plan: None,
            raw_plan: None,
            sidecar: &sidecar,
            invalid: None,
            not_applied: None,
            set_name: "db-0",
            restarted_at: None,
            claims,
            has_claims,
            now: now(),
        };
        status(&facts, &input).claims_pending
    };
    assert!(of(7, false, Some(false), true), "they could not be changed");
    assert!(!of(6, true, Some(true), true), "they are as it says");
    assert!(of(6, false, None, true), "a plan began first");
    assert!(of(7, true, None, true), "it has not come to them since");
    assert!(!of(7, false, None, true), "nothing is new");
    assert!(!of(0, false, None, true), "it never touched any");
    assert!(!of(6, false, None, false), "it has none");
}

#[test]
fn problem_reports_until_when_the_pod_is_allowed_to_wait() {
    let given = |until: i64| Some(Wait { from: now(), until: later(until) });
    let said = |look: &Look| look.status().problem.unwrap().allowed_until;
    let ends = || node().with_pod(PodFacts { wait: given(1800), ..pod("v1").terminating() });
    let first = look(ends());
    assert_eq!(said(&first), Some(later(1800)));
    let before = first.status();
    let next =
        |facts: NodeFacts, seconds: i64| Look { previous: before.clone(), ..look(facts).after(seconds) };
    assert_eq!(next(ends(), 60).status().problem, before.problem, "nothing is written");
    let gone = next(node().without_pod(), 100);
    assert_eq!(said(&gone), Some(later(100)), "it has ended before");
    let later_on = Look { previous: gone.status(), ..next(node().without_pod(), 200) };
    assert_eq!(said(&later_on), Some(later(100)));
    let starts = node().with_pod(PodFacts { wait: given(4000), ..pod("v1").not_ready() });
    assert_eq!(said(&next(starts, 100)), Some(later(4000)), "the next pod starts");
    assert_eq!(said(&look(node().with_pod(pod("v1").not_ready()))), None, "it is given none");
}
