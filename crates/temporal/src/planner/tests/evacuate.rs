//! When an evacuation begins, waits, and ends.

use serde_json::json;
use windlass_core::api::Rejected;
use windlass_engine::{Plan, TaskState};

use super::{facts, now, version};
use crate::api::{EvacuationRequest, Reason};
use crate::planner::decide::{AnnotationRequests, Cause};
use crate::planner::evacuate::{Evacuation, PendingEvacuation, await_drained, may_send, missing_task_queue};
use crate::planner::facts::{Facts, TemporalState};
use crate::planner::routing::Next;
use crate::planner::{Decision, decide};
use crate::port::{BuildId, DescribedVersion, PinnedWorkflows, TaskQueue, TaskQueueKind, VersionStatus};

fn evacuation(from: &str, to: &str) -> Evacuation {
    Evacuation { from: BuildId::new(from), to: BuildId::new(to), query: None }
}

fn requests(from: &str, to: &str) -> AnnotationRequests {
    let Evacuation { from, to, query } = evacuation(from, to);
    let request = Ok(EvacuationRequest { from, to, query, at: now() });
    let evacuation = Some(PendingEvacuation { digest: "digest".to_owned(), request });
    AnnotationRequests { evacuation, ..AnnotationRequests::default() }
}

/// The current version is `two`, the target, and `one` drains.
fn at_rest() -> Facts {
    let mut facts = facts(json!({}));
    let (one, two) = (BuildId::new("one"), BuildId::new("two"));
    facts.versions.insert(one.clone(), version(&one, VersionStatus::Draining, true));
    let mut current = version(&two, VersionStatus::Current, true);
    super::edit(&mut current, |pool| pool.template_hash = Some(facts.target.template_hash.clone()));
    current.pollers = Some(1);
    facts.versions.insert(two.clone(), current);
    let TemporalState::Known(described) = &mut facts.temporal else { panic!() };
    described.routing.current = Some(two);
    facts.status.last_completed_rollout_hash = Some(facts.target.hash.clone());
    facts
}

/// An evacuation whose first tasks are complete.
fn plan(facts: &Facts, complete: usize) -> Plan {
    let mut plan = evacuation("one", "two").plan(facts, None, now());
    for task in &mut plan.tasks[..complete] {
        task.state = TaskState::Complete;
    }
    if let Some(task) = plan.tasks.get_mut(complete) {
        task.state = TaskState::Running;
    }
    plan
}

#[test]
fn requested_evacuation_starts_at_rest_unless_a_rollout_is_due() {
    let facts = at_rest();
    let wanted = requests("one", "two");
    assert_eq!(decide(&facts, None, &wanted), Decision::Evacuate(evacuation("one", "two")));
    assert_eq!(decide(&facts, None, &AnnotationRequests::default()), Decision::Keep);

    let mut lost = facts.clone();
    lost.temporal = TemporalState::Lost { reason: Reason::TemporalUnreachable, message: String::new() };
    assert_eq!(decide(&lost, None, &wanted), Decision::Keep, "the request stays");

    let mut due = facts.clone();
    due.target.hash = "v1:other".to_owned();
    due.target.template_hash = "v1:other".to_owned();
    let rollout = decide(&due, None, &wanted);
    assert!(matches!(rollout, Decision::Start(Cause::TemplateChanged)), "{rollout:?}");

    // At the limit of versions, an evacuation is what helps.
    let mut full = due;
    full.spec.max_versions = 1;
    full.target.build = BuildId::new("three");
    assert_eq!(decide(&full, None, &wanted), Decision::Evacuate(evacuation("one", "two")));
}

#[test]
fn impossible_evacuation_is_refused() {
    let facts = at_rest();
    let refused = |facts: &Facts, from: &str, to: &str| match decide(facts, None, &requests(from, to)) {
        Decision::RefuseEvacuation { message } => message,
        other => panic!("{other:?}"),
    };
    for (from, to, words) in [
        ("one", "one", "name two versions"),
        ("two", "one", "is the current version"),
        ("zero", "two", "Temporal lists no version zero of shop/orders; it lists: one, two"),
        ("one", "three", "Temporal lists no version three"),
    ] {
        let message = refused(&facts, from, to);
        assert!(message.contains(words), "{message}");
    }
    let mut deserted = facts.clone();
    let three = BuildId::new("three");
    let mut of_others = version(&three, VersionStatus::Draining, true);
    of_others.workers = None;
    deserted.versions.insert(three.clone(), of_others);
    assert!(refused(&deserted, "one", "three").contains("could not keep its workers"));
    assert_eq!(
        decide(&deserted, None, &requests("three", "two")),
        Decision::Evacuate(evacuation("three", "two")),
        "workflows may leave workers of another client"
    );

    // The target of an aborted rollout is left, any other target is about to be rolled out.
    let mut aborted = facts;
    aborted.target.build = three.clone();
    aborted.target.hash = "v1:three".to_owned();
    aborted.versions.insert(three.clone(), version(&three, VersionStatus::Draining, true));
    aborted.status.rejected = Some(Rejected {
        hash: "v1:three".to_owned(),
        build_id: "three".to_owned(),
        plan_id: "0123456789".to_owned(),
        outcome: "Aborted".to_owned(),
        message: String::new(),
    });
    let wanted = requests("three", "two");
    assert_eq!(decide(&aborted, None, &wanted), Decision::Evacuate(evacuation("three", "two")));
    aborted.status.rejected = None;
    aborted.unchecked = Some("no answer".to_owned());
    assert!(refused(&aborted, "three", "two").contains("change spec.template first"));
}

#[test]
fn new_target_waits_only_for_a_described_batch() {
    let mut due = at_rest();
    due.target.hash = "v1:other".to_owned();
    due.target.template_hash = "v1:other".to_owned();
    let none = AnnotationRequests::default();
    let starts = |plan: &Plan| matches!(decide(&due, Some(plan), &none), Decision::Start(_));
    let (counting, mut moving, draining) = (plan(&due, 0), plan(&due, 1), plan(&due, 2));
    assert!(starts(&counting) && starts(&moving) && starts(&draining));
    moving.tasks[1].progress = json!({"batch": "windlass-evacuate-x-1"});
    assert_eq!(decide(&due, Some(&moving), &none), Decision::Keep);
    moving.tasks[1].state = TaskState::Failed;
    assert!(starts(&moving), "nothing runs any more");

    let facts = at_rest();
    let abort = AnnotationRequests { abort: Some(moving.id.to_string()), ..none };
    assert_eq!(decide(&facts, Some(&moving), &abort), Decision::Abort);
}

#[test]
fn second_evacuation_waits_until_the_batch_of_the_first_has_ended() {
    let facts = at_rest();
    let wanted = requests("one", "two");
    for complete in [0, 1] {
        assert_eq!(decide(&facts, Some(&plan(&facts, complete)), &wanted), Decision::Keep, "{complete}");
    }
    let draining = plan(&facts, 2);
    assert_eq!(decide(&facts, Some(&draining), &wanted), Decision::Evacuate(evacuation("one", "two")));
    assert_eq!(decide(&facts, Some(&draining), &requests("two", "one")), Decision::Keep, "refused later");
}

#[test]
fn lost_current_version_is_drift_also_after_an_evacuation() {
    let mut facts = at_rest();
    let mut ended = plan(&facts, 3);
    ended.state = windlass_engine::PlanState::Complete;
    let TemporalState::Known(described) = &mut facts.temporal else { panic!() };
    described.routing.current = None;
    let decision = decide(&facts, Some(&ended), &AnnotationRequests::default());
    assert_eq!(decision, Decision::Start(Cause::ChildDrift));
}

#[test]
fn batch_is_sent_only_to_polling_workers() {
    let wanted = evacuation("one", "two");
    let reason = |facts: &Facts| match may_send(facts, &wanted) {
        Ok(Next::Wait { reason, .. }) => Some(reason),
        Ok(Next::Done) => None,
        other => panic!("{other:?}"),
    };
    let mut facts = at_rest();
    assert_eq!(reason(&facts), None);
    facts.spec.paused = true;
    assert_eq!(reason(&facts), Some(Reason::Paused));
    facts.spec.paused = false;
    let two = BuildId::new("two");
    facts.versions.get_mut(&two).unwrap().pollers = Some(0);
    assert_eq!(reason(&facts), Some(Reason::WaitingForPollers));
    super::edit(facts.versions.get_mut(&two).unwrap(), |pool| pool.available = 0);
    assert_eq!(reason(&facts), Some(Reason::WorkersNotReady));
    let TemporalState::Known(described) = &mut facts.temporal else { panic!() };
    described.routing.current = Some(BuildId::new("one"));
    assert!(may_send(&facts, &wanted).unwrap_err().contains("new workflows start on it"));
}

#[test]
fn missing_workflow_task_queue_is_named() {
    let queue = |name: &str, kind| TaskQueue { name: name.to_owned(), kind };
    let described = |build: &str, task_queues| {
        let summary = version(&BuildId::new(build), VersionStatus::Draining, true).listed.unwrap();
        DescribedVersion { summary, task_queues }
    };
    let one = described(
        "one",
        vec![
            queue("orders", TaskQueueKind::Workflow),
            queue("refunds", TaskQueueKind::Workflow),
            queue("mail", TaskQueueKind::Activity),
        ],
    );
    let two = described("two", vec![queue("orders", TaskQueueKind::Workflow)]);
    let mut wanted = evacuation("one", "two");
    assert!(missing_task_queue(&wanted, &one, &two).unwrap().contains("task queue refunds of one"));
    assert_eq!(missing_task_queue(&wanted, &two, &one), None);
    wanted.query = Some("TaskQueue != 'refunds'".to_owned());
    assert_eq!(missing_task_queue(&wanted, &one, &two), None);
}

#[test]
fn wait_ends_when_temporal_reports_the_version_as_drained() {
    let mut facts = at_rest();
    let mut wanted = evacuation("one", "two");
    let is_done = |facts: &Facts, wanted: &Evacuation, left| {
        await_drained(facts, wanted, left, now()) == Ok(Next::Done)
    };
    assert!(!is_done(&facts, &wanted, Some(0)), "Temporal checks the drainage itself");
    let one = BuildId::new("one");
    facts.versions.insert(one.clone(), version(&one, VersionStatus::Drained, true));
    assert!(is_done(&facts, &wanted, Some(3)), "counts lag");
    // Of a version that never received tasks, the drainage says nothing.
    facts.versions.insert(one.clone(), version(&one, VersionStatus::Inactive, false));
    assert!(!is_done(&facts, &wanted, Some(3)) && is_done(&facts, &wanted, Some(0)));
    facts.versions.insert(one.clone(), version(&one, VersionStatus::Draining, true));
    wanted.query = Some("WorkflowType = 'Refund'".to_owned());
    assert!(!is_done(&facts, &wanted, None) && !is_done(&facts, &wanted, Some(1)));
    assert!(is_done(&facts, &wanted, Some(0)), "others stay");
    let TemporalState::Known(described) = &mut facts.temporal else { panic!() };
    described.routing.current = Some(one);
    assert!(await_drained(&facts, &wanted, Some(0), now()).is_err());
}

#[test]
fn query_is_one_condition_of_the_visibility_query() {
    let mut workflows =
        PinnedWorkflows { deployment: facts(json!({})).deployment, build: BuildId::new("one"), query: None };
    let all = "TemporalWorkerDeploymentVersion = 'shop/orders:one' AND TemporalWorkflowVersioningBehavior = 'Pinned' AND \
               ExecutionStatus = 'Running'";
    assert_eq!(workflows.visibility_query(), all);
    workflows.query = Some("A = 1 OR B = 2".to_owned());
    assert_eq!(workflows.visibility_query(), format!("{all} AND (A = 1 OR B = 2)"));
}
