//! Requests in annotations that the operator has not started. The status still describes the state before them.

use windlass_core::api::names::ANNOTATION_RETRY;
use windlass_core::api::{HookState, Rejected, Rollout, Stage};
use windlass_engine::{Plan, PlanState};
use windlass_kube_port::observed::{ObservedFleet, restart_request, retried_plan};

/// A message if a requested restart or retry is pending; `None` if it has started, or waits for something that the
/// status reports.
#[must_use]
pub fn not_begun(fleet: &ObservedFleet) -> Option<&'static str> {
    // With 0 replicas, nothing starts before the next scale-up.
    let wants_nodes = fleet.spec.as_ref().is_ok_and(|spec| spec.replicas > 0);
    if fleet.meta.terminating || !wants_nodes {
        return None;
    }
    if awaits_restart(fleet) {
        return Some("the requested restart has not started");
    }
    awaits_retry(fleet).then_some("the requested retry has not started")
}

/// True if nodes are updated in place: another plan may replace that of such a rollout.
fn is_in_place(rollout: &Rollout) -> bool {
    rollout.entrant_set.is_empty() && rollout.stage == Stage::Updating
}

fn awaits_restart(fleet: &ObservedFleet) -> bool {
    let status = &fleet.status;
    let begins = status.rollout.as_ref().is_none_or(|rollout| match rollout.stage {
        // A restart waits for the remaining hooks of a promotion, and indefinitely if one has failed.
        Stage::Retiring => !status.hooks.iter().any(|hook| hook.state == HookState::Failed.as_ref()),
        _ => is_in_place(rollout),
    });
    begins && restart_request(&fleet.meta, status.restarted_at().as_ref()).is_some()
}

fn awaits_retry(fleet: &ObservedFleet) -> bool {
    let status = &fleet.status;
    let Some(asked) = fleet.meta.annotation(ANNOTATION_RETRY) else { return false };
    if status.hook_retry.as_ref().is_some_and(|retry| retry.request == asked) {
        return false;
    }
    let named = retried_plan(asked);
    let plan: Option<Plan> = status.plan.as_ref().and_then(|plan| plan.parse().ok());
    let plan = plan.filter(|plan| plan.id == *named);
    // With the fleet's plan, a retry applies to every failed hook; with a node's plan, to those of the node.
    let is_of = |task: &str| task.rsplit_once('-').is_some_and(|(of, _)| of == named);
    let mut failed = status.hooks.iter().filter(|hook| hook.state == HookState::Failed.as_ref());
    if failed.any(|hook| plan.is_some() || is_of(&hook.task_id)) {
        return true;
    }
    // The retry waits for a repair in progress.
    let begins = status.rollout.as_ref().is_none_or(|r| is_in_place(r) && !r.own_revisions);
    let is_rejected = |r: &Rejected| r.plan_id == named && r.hash == status.requested_rollout_hash;
    // A promotion whose plan failed is not rejected: it is blocked.
    let holds = plan.is_some_and(|plan| plan.state == PlanState::Failed) && status.rollout.is_some();
    holds || begins && status.rejected.as_ref().is_some_and(is_rejected)
}

#[cfg(test)]
mod tests {
    use chrono::{DateTime, Utc};
    use serde_json::{Value, json};

    use crate::report::tests::{fleet, nodes, seen};
    use crate::report::{FleetReport, Verdict};

    const RESTART: &str = "the requested restart has not started";
    const RETRY: &str = "the requested retry has not started";

    fn report(annotations: &Value, changes: &Value) -> FleetReport {
        let now: DateTime<Utc> = "2026-01-01T04:15:11Z".parse().unwrap();
        let mut fleet = fleet();
        fleet["metadata"]["creationTimestamp"] = json!("2026-01-01T01:00:00Z");
        fleet["metadata"]["annotations"] = annotations.clone();
        json_patch::merge(&mut fleet, changes);
        FleetReport::of(&seen(&fleet, &nodes()), now)
    }

    fn conditions(up_to_date: [&str; 2], stalled: [&str; 2], reconciling: &str) -> Value {
        let of = |type_: &str, [status, reason]: [&str; 2]| json!({"type": type_, "status": status, "reason": reason, "lastTransitionTime": "2026-01-01T04:00:00Z"});
        json!([
            of("UpToDate", up_to_date),
            of("Stalled", stalled),
            of("Ready", ["True", "X"]),
            of("Reconciling", [reconciling, "X"])
        ])
    }

    fn steady() -> Value {
        conditions(["True", "Applied"], ["False", "X"], "False")
    }

    fn stalled(reason: &str) -> Value {
        conditions(["False", reason], ["True", reason], "False")
    }

    #[test]
    fn requested_restart_is_awaited_before_it_starts() {
        let asked = |at: &str| json!({"windlass.dev/restartedAt": at});
        let (early, late) = ("2026-01-01T03:00:00Z", "2026-01-01T04:00:00Z");
        let at_rest = |restarted: &str| json!({"status": {"rollout": null, "restartedAt": restarted, "conditions": steady()}});
        let of_set = |stage: &str, hooks: Value, conditions: Value| {
            let rollout = json!({"entrantSet": "28c42", "stage": stage, "unconverged": null, "message": "m"});
            json!({"status": {"rollout": rollout, "hooks": hooks, "conditions": conditions}})
        };
        let with = |mut changes: Value, more: Value| {
            json_patch::merge(&mut changes, &more);
            changes
        };
        let failed = json!([{"hook": "h", "taskID": "495ff12537-3", "state": "Failed"}]);
        let none = json!({"spec": {"replicas": 0}, "status": {"replicas": 0, "requestedRolloutHash": "v1:a",
            "lastCompletedRolloutHash": "v1:a"}});
        for (what, annotations, changes, expected) in [
            ("asked for", asked(late), at_rest(""), Some(Verdict::Progressing)),
            ("asked for again", asked(late), at_rest(early), Some(Verdict::Progressing)),
            ("begun", asked(late), at_rest(late), None),
            ("begun, in another zone", asked("2026-01-01T05:00:00+01:00"), at_rest(late), None),
            ("an older one", asked(early), at_rest(late), None),
            ("no time", asked("soon"), at_rest(""), None),
            ("from before the fleet was made", asked("2026-01-01T01:00:00Z"), at_rest(""), None),
            ("no nodes", asked(late), with(at_rest(""), none), None),
            (
                "of what was aborted",
                asked(late),
                with(at_rest(""), json!({"status": {"conditions": stalled("Aborted")}})),
                Some(Verdict::Progressing),
            ),
            (
                "amid a stall",
                asked(late),
                json!({"status": {"conditions": stalled("Stalled")}}),
                Some(Verdict::Progressing),
            ),
            (
                "the old set goes",
                asked(late),
                of_set("Retiring", json!([]), steady()),
                Some(Verdict::Progressing),
            ),
        ] {
            let report = report(&annotations, &changes);
            let is_told = report.waiting_for == RESTART;
            let expected = expected.unwrap_or(Verdict::UpToDate);
            assert_eq!((report.verdict, is_told), (expected, expected == Verdict::Progressing), "{what}");
        }
        // A blocker that needs a person is reported, and so is one that ends by itself.
        for (what, changes, expected) in [
            (
                "a promotion that stands",
                of_set("AwaitingEntrants", json!([]), stalled("Stalled")),
                Verdict::Stalled,
            ),
            (
                "a hook that failed after it",
                of_set("Retiring", failed, stalled("HookFailed")),
                Verdict::Stalled,
            ),
            (
                "a spec that is refused",
                with(at_rest(""), json!({"status": {"conditions": stalled("InvalidSpec")}})),
                Verdict::Refused,
            ),
            (
                "a promotion under way",
                of_set(
                    "AwaitingEntrants",
                    json!([]),
                    conditions(["Unknown", "Applying"], ["False", "X"], "True"),
                ),
                Verdict::Progressing,
            ),
        ] {
            let report = report(&asked(late), &changes);
            assert_eq!((report.verdict, report.waiting_for == RESTART), (expected, false), "{what}");
        }
        let deleted = with(at_rest(""), json!({"metadata": {"deletionTimestamp": late}}));
        assert_ne!(report(&asked(late), &deleted).waiting_for, RESTART);
        let unseen = with(at_rest(""), json!({"metadata": {"generation": 4}}));
        assert!(report(&asked(late), &unseen).waiting_for.starts_with("waiting for the operator"));
    }

    #[test]
    fn requested_retry_is_awaited_before_it_starts() {
        let rejected = |hash: &str| {
            json!({"status": {"rollout": null, "requestedRolloutHash": "v1:b", "conditions": stalled("Aborted"),
                "rejected": {"hash": hash, "buildID": "", "planID": "aaaaaaaaaa", "outcome": "Aborted"}}})
        };
        let with = |mut changes: Value, more: Value| {
            json_patch::merge(&mut changes, &more);
            changes
        };
        let spent = |asked: &str| json!({"status": {"hookRetry": {"request": asked}}});
        let hook = |task: &str, state: &str| json!({"status": {"hooks": [{"hook": "h", "taskID": task, "state": state}], "conditions": stalled("HookFailed")}});
        let failed = |plan: &str| {
            json!({"status": {"plan": {"id": plan, "state": "Failed"}, "rollout": {"stage": "Promoting", "entrantSet": "28c42"},
                "conditions": stalled("PlanFailed")}})
        };
        let put_right = json!({"status": {"rollout": {"stage": "Updating", "ownRevisions": true}}});
        let rolled_back = json!({"status": {"rollout": {"stage": "Updating"}}});
        for (what, asked, changes, waits) in [
            ("a target", "aaaaaaaaaa", rejected("v1:b"), true),
            ("a target, once more", "aaaaaaaaaa/2", with(rejected("v1:b"), spent("aaaaaaaaaa")), true),
            ("a request that was used up", "aaaaaaaaaa", with(rejected("v1:b"), spent("aaaaaaaaaa")), false),
            ("another plan", "bbbbbbbbbb", rejected("v1:b"), false),
            ("a target that is not wanted", "aaaaaaaaaa", rejected("v1:c"), false),
            ("while a repair stands", "aaaaaaaaaa", with(fleet(), with(rejected("v1:b"), put_right)), false),
            (
                "while the way back stands",
                "aaaaaaaaaa",
                with(fleet(), with(rejected("v1:b"), rolled_back)),
                true,
            ),
            ("a hook", "495ff12537", hook("495ff12537-1", "Failed"), true),
            ("a node's hook by the fleet's plan", "495ff12537", hook("cccccccccc-1", "Failed"), true),
            ("a node's hook by the node's plan", "cccccccccc", hook("cccccccccc-1", "Failed"), true),
            ("a hook of another plan", "bbbbbbbbbb", hook("495ff12537-1", "Failed"), false),
            (
                "a hook that was tried again",
                "495ff12537",
                with(hook("495ff12537-1", "Failed"), spent("495ff12537")),
                false,
            ),
            ("a promotion that holds", "495ff12537", failed("495ff12537"), true),
            ("a promotion of another plan", "bbbbbbbbbb", failed("495ff12537"), false),
        ] {
            let report = report(&json!({"windlass.dev/retry": asked}), &changes);
            let expected = if waits { Verdict::Progressing } else { Verdict::Stalled };
            assert_eq!((report.verdict, report.waiting_for == RETRY), (expected, waits), "{what}");
        }
    }
}
