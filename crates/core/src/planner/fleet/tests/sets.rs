//! Rollouts that create a set of nodes: every combination of strategy, stage, change of the spec, and request of a
//! user.

use super::super::failed::fail;
use super::super::sets::{SetFacts, SetRollout, stage, status as set_status};
use super::super::{FleetDecision, SidecarFacts, decide};
use super::*;
use crate::api::{BuildId, OnStall, Promotion, RetiringSet, SetName, Stage};
use crate::planner::fleet::Rollout;
use crate::planner::fleet::blocker::Blocker;

const WAYS: [Strategy; 4] =
    [Strategy::InPlace, Strategy::BlueGreen, Strategy::BlueGreenImmediate, Strategy::HardFork];
const MAKERS: [Strategy; 3] = [Strategy::BlueGreen, Strategy::BlueGreenImmediate, Strategy::HardFork];
const BEFORE: [Stage; 3] = [Stage::CreatingEntrants, Stage::AwaitingEntrants, Stage::AwaitingPromotion];

/// How the spec changes in a rollout from v1 to v2.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Becomes {
    Same,
    New,
    Back,
}

/// What else is requested or happens.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Input {
    Nothing,
    Abort,
    Retry,
    Restart,
    Pause,
    NoNodes,
    Refused,
    StallUnderHold,
    StallUnderRollback,
}

const ASKED: [Input; 9] = [
    Input::Nothing,
    Input::Abort,
    Input::Retry,
    Input::Restart,
    Input::Pause,
    Input::NoNodes,
    Input::Refused,
    Input::StallUnderHold,
    Input::StallUnderRollback,
];

fn rollout_to_v2(strategy: Strategy, stage: Stage) -> SetRollout {
    SetRollout {
        strategy,
        stage,
        target: "v2".into(),
        build_id: None,
        incumbent: Some(SetName::FIRST),
        entrant: "v2".into(),
        halt_height: 0,
        left_service_at: None,
    }
}

/// A fleet in the middle of a rollout from v1 to v2 that creates a set.
pub(super) fn amid(strategy: Strategy, stage: Stage) -> FleetFacts {
    let switched = stage == Stage::Retiring;
    let entrants: Vec<ChildFacts> = (0..2).map(|n| node(n).granted("v2").converged()).collect();
    let old = SetFacts { children: fleet(2).children, ..SetFacts::default() };
    let new = SetFacts { children: entrants.clone(), ..SetFacts::default() };
    let base = fleet(2).wanting("v2");
    base.with(|f| {
        f.spec.strategy = strategy;
        f.set = if switched { "v2" } else { "first" }.into();
        f.record.last_completed = Some(if switched { "v2" } else { "v1" }.into());
        if switched {
            f.children = entrants;
        }
        f.sets = [if switched { (SetName::FIRST, old) } else { ("v2".into(), new) }].into();
        f.rollout.now =
            Rollout::Replacing { set: rollout_to_v2(strategy, stage), cause: Cause::TemplateChanged };
    })
}

/// The rollout, which makes a set.
pub(super) fn set_of(facts: &mut FleetFacts) -> &mut SetRollout {
    match &mut facts.rollout.now {
        Rollout::Replacing { set, .. } => set,
        other => panic!("{other:?}"),
    }
}

fn that(facts: FleetFacts, becomes: Becomes, asked: Input) -> FleetFacts {
    let promoting = facts.rollout.now.set().is_some_and(|r| r.stage == Stage::Promoting);
    let facts = match becomes {
        // While a rollout is promoting, its target is read from the status: the planner never sees another one.
        _ if promoting => facts,
        Becomes::Same => facts,
        Becomes::New => facts.wanting("v3"),
        Becomes::Back => facts.wanting("v1"),
    };
    match asked {
        Input::Nothing | Input::StallUnderHold => facts,
        Input::Abort => facts.with(|f| f.requests.abort = Some(plan_to("v2").id)),
        Input::Retry => facts.with(|f| f.requests.retry = Some(plan_to("v2").id)),
        Input::Restart => facts.with(|f| f.requests.restart = Some("2030-01-01T00:00:00Z".into())),
        Input::Pause => facts.paused(),
        Input::NoNodes => facts.with(|f| f.spec.replicas = 0),
        Input::Refused => facts.with(|f| f.findings.blocker = Some(Blocker::Spec("template: no".to_owned()))),
        // A new node cannot run the target.
        Input::StallUnderRollback => {
            let mut facts = facts.with(|f| f.spec.on_stall = OnStall::Rollback);
            if let Some(new) = facts.sets.get_mut("v2") {
                new.children[1] = node(1).granted("v2").seen().failed();
            }
            facts
        }
    }
}

fn goes(target: &str, cause: Cause, strategy: Strategy) -> Start {
    Start { rollout_target: to(target), target: target.into(), cause, strategy }
}

/// The table of `docs/explanation/strategy-blue-green.md` (the spec changes to …), as the planner's decisions.
#[allow(clippy::match_same_arms, reason = "a table, a row for each case")]
fn expected(strategy: Strategy, stage: Stage, becomes: Becomes, asked: Input) -> FleetDecision {
    let next = goes(if becomes == Becomes::New { "v3" } else { "v1" }, Cause::TemplateChanged, strategy);
    let restart = goes("v2", Cause::RestartRequested, Strategy::InPlace);
    match (stage, becomes, asked) {
        (Stage::Promoting, _, _) => FleetDecision::Keep,
        (Stage::Retiring, _, Input::NoNodes | Input::Refused) => FleetDecision::Keep,
        (Stage::Retiring, Becomes::Same, Input::Restart) => FleetDecision::CompleteAndStart(restart),
        (Stage::Retiring, Becomes::Same, _) => FleetDecision::Keep,
        (Stage::Retiring, _, _) => FleetDecision::CompleteAndStart(next),
        (_, _, Input::Abort) => FleetDecision::Abort,
        (_, _, Input::NoNodes) => FleetDecision::ScaledToZero,
        (_, _, Input::Refused) => FleetDecision::Keep,
        (_, Becomes::New, _) => FleetDecision::Supersede(Start { cause: Cause::Superseded, ..next }),
        (_, Becomes::Back, _) => FleetDecision::CancelToCurrent,
        (_, Becomes::Same, Input::StallUnderRollback) => FleetDecision::CancelAfterFailure,
        (_, Becomes::Same, _) => FleetDecision::Keep,
    }
}

#[test]
fn decision_matrix_of_spec_change_stage_strategy_and_request() {
    let stages = BEFORE.into_iter().chain([Stage::Promoting, Stage::Retiring]);
    let mut cells = 0;
    for stage in stages {
        for strategy in MAKERS {
            for becomes in [Becomes::Same, Becomes::New, Becomes::Back] {
                for asked in ASKED {
                    let facts = that(amid(strategy, stage), becomes, asked);
                    let stalled = matches!(asked, Input::StallUnderHold | Input::StallUnderRollback);
                    let decided = decide(&facts, Some(&plan_to("v2")), &to("v2"), stalled);
                    let cell = format!("{strategy:?} {stage:?} {becomes:?} {asked:?}");
                    assert_eq!(decided, expected(strategy, stage, becomes, asked), "{cell}");
                    cells += 1;
                }
            }
        }
    }
    assert_eq!(cells, 5 * 3 * 3 * 9);
}

/// The plan to v2, which has failed.
fn failed_plan() -> Plan {
    let mut plan = plan_to("v2");
    plan.state = crate::engine::PlanState::Failed;
    plan.failure = "task create-entrants failed: refused".to_owned();
    plan
}

#[test]
fn failed_promotion_resumes_only_on_a_matching_retry() {
    for strategy in MAKERS {
        for asked in ASKED {
            let facts = that(amid(strategy, Stage::Promoting), Becomes::Same, asked);
            let stalled = matches!(asked, Input::StallUnderHold | Input::StallUnderRollback);
            let expected = match asked {
                Input::Retry => FleetDecision::Resume(goes("v2", Cause::RetryRequested, strategy)),
                _ => FleetDecision::Keep,
            };
            // Whatever the spec is now, the target is the persisted one.
            for wanted in ["v1", "v2", "v3"] {
                let facts = facts.clone().with(|f| f.requested = wanted.into());
                let decided = decide(&facts, Some(&failed_plan()), &to("v2"), stalled);
                assert_eq!(decided, expected, "{strategy:?} {asked:?} {wanted}");
            }
            let other = facts.clone().with(|f| f.requests.retry = Some("another".into()));
            let decided = decide(&other, Some(&failed_plan()), &to("v2"), stalled);
            assert_eq!(decided, FleetDecision::Keep, "{strategy:?} {asked:?}");
            assert_eq!(decide(&facts, None, &to("v2"), stalled), FleetDecision::Keep, "no plan to name");
        }
    }
}

#[test]
fn failed_plan_outcome_depends_on_its_stage() {
    for (stage, wanted, stays, rejected, goes) in [
        (Stage::CreatingEntrants, "v2", false, true, true),
        (Stage::AwaitingPromotion, "v2", false, true, true),
        (Stage::AwaitingPromotion, "v3", false, false, true),
        (Stage::Promoting, "v2", true, false, false),
        (Stage::Retiring, "v2", false, false, false),
        (Stage::Retiring, "v3", false, false, false),
    ] {
        let facts = amid(Strategy::BlueGreen, stage).wanting(wanted);
        let mut status = rolling_out(&facts, &self::goes("v2", Cause::TemplateChanged, Strategy::BlueGreen));
        set_status::begin(&mut status, &facts, Strategy::BlueGreen, &"v2".into());
        status.rollout.as_mut().unwrap().stage = stage;
        fail(&mut status, &facts, &failed_plan(), "refused", now());
        let case = format!("{stage:?} {wanted}");
        assert_eq!(status.rollout.is_some(), stays, "{case}");
        assert_eq!(status.rejected.is_some(), rejected, "{case}");
        assert_eq!(status.retiring.iter().any(|r| r.set == "v2" && r.unpromoted), goes, "{case}");
        assert_eq!(status.history.last().unwrap().outcome, "Failed", "{case}");
    }
}

#[test]
fn failed_promotion_reports_cause_and_retry() {
    for paused in [false, true] {
        let facts = amid(Strategy::HardFork, Stage::Promoting).with(|f| f.spec.paused = paused);
        let mut status = rolling_out(&facts, &goes("v2", Cause::TemplateChanged, Strategy::HardFork));
        set_status::begin(&mut status, &facts, Strategy::HardFork, &"v2".into());
        set_status::pass_no_return(&mut status, &facts);
        fail(&mut status, &facts, &failed_plan(), "refused", now());
        let status = look(status, &facts, 5);
        let said = |type_: &str| {
            let found = crate::api::conditions::find(&status.conditions, type_).unwrap();
            (format!("{}/{}", found.status, found.reason), found.message.clone())
        };
        for (type_, verdict) in [("UpToDate", "False/PlanFailed"), ("Stalled", "True/PlanFailed")] {
            let (found, message) = said(type_);
            assert_eq!(found, verdict);
            let retry = format!("windlass.dev/retry={}", plan_to("v2").id);
            assert!(message.contains("refused") && message.contains(&retry), "{message}");
        }
        let reason = if paused { "True/Paused" } else { "True/Stalled" };
        assert_eq!(said("RolloutInProgress").0, reason);
        assert_eq!(said("Reconciling").0, "False/Settled");
    }
}

#[test]
fn idle_fleet_uses_its_strategy_for_a_new_target() {
    for strategy in WAYS {
        let rest = || fleet(2).with(|f| f.spec.strategy = strategy);
        let decided = |facts: &FleetFacts| decide(facts, None, &RolloutTarget::Own, false);
        assert_eq!(decided(&rest()), FleetDecision::Keep, "{strategy:?}");
        let start = FleetDecision::Start(goes("v2", Cause::TemplateChanged, strategy));
        assert_eq!(decided(&rest().wanting("v2")), start, "{strategy:?}");
        assert_eq!(decided(&rest().wanting("v2").paused()), start, "recorded meanwhile: {strategy:?}");
        // Rejected targets are not tried again.
        for outcome in ["Aborted", "RolledBack", "Failed"] {
            assert_eq!(
                decided(&rest().wanting("v2").rejecting(outcome)),
                FleetDecision::Keep,
                "{strategy:?} {outcome}"
            );
        }
        // Before the first completion there is no serving set next to which a new one could be created.
        let first = FleetDecision::Start(goes("v2", Cause::TemplateChanged, Strategy::InPlace));
        assert_eq!(decided(&rest().wanting("v2").never_completed()), first, "{strategy:?}");
    }
}

#[test]
fn strategy_change_supersedes_before_promotion_and_waits_after() {
    for stage in BEFORE {
        for (from, into) in MAKERS.iter().flat_map(|a| WAYS.map(|b| (*a, b))).filter(|(a, b)| a != b) {
            let facts = amid(from, stage).with(|f| f.spec.strategy = into);
            let decided = decide(&facts, Some(&plan_to("v2")), &to("v2"), false);
            let start = goes("v2", Cause::Superseded, into);
            assert_eq!(decided, FleetDecision::Supersede(start), "{from:?} {into:?} {stage:?}");
        }
    }
    for stage in [Stage::Promoting, Stage::Retiring] {
        for (from, into) in MAKERS.iter().flat_map(|a| WAYS.map(|b| (*a, b))) {
            let facts = amid(from, stage).with(|f| f.spec.strategy = into);
            assert_eq!(decide(&facts, Some(&plan_to("v2")), &to("v2"), false), FleetDecision::Keep);
        }
    }
    // An in-place rollout finishes with the strategy with which it began.
    let facts = fleet(2).wanting("v2").with(|f| f.spec.strategy = Strategy::BlueGreen);
    assert_eq!(decide(&facts, Some(&plan_to("v2")), &to("v2"), false), FleetDecision::Keep);
}

#[test]
fn build_id_and_template_select_the_strategy() {
    let with = |active: &str, wanted: &str, target: &str| {
        let facts = fleet(2).wanting(target).with(|f| {
            f.spec.strategy = Strategy::BlueGreen;
            f.record.active_build_id = BuildId::recorded(active);
            f.spec.build_id = BuildId::recorded(wanted);
        });
        facts.strategy_for(&target.into())
    };
    assert_eq!(with("", "", "v2"), Strategy::BlueGreen, "unset, another template");
    assert_eq!(with("", "one", "v2"), Strategy::BlueGreen, "set for the first time");
    assert_eq!(with("one", "one", "v2"), Strategy::InPlace, "the same ID, another template");
    assert_eq!(with("one", "one", "v1"), Strategy::InPlace, "the same ID and template");
    assert_eq!(with("one", "two", "v2"), Strategy::BlueGreen, "another ID");
    assert_eq!(with("one", "", "v2"), Strategy::BlueGreen, "removed");
}

#[test]
fn active_set_is_recreated_at_its_own_revision_before_switch() {
    for strategy in MAKERS {
        for stage in BEFORE.into_iter().chain([Stage::Promoting]) {
            let facts = amid(strategy, stage);
            assert_eq!(facts.steady_revision(), "v1", "{strategy:?} {stage:?}");
            let as_in_place = facts.with(|f| f.spec.strategy = Strategy::InPlace);
            assert_eq!(as_in_place.steady_revision(), "v1", "whatever the strategy is by now");
        }
        assert_eq!(amid(strategy, Stage::Retiring).steady_revision(), "v2");
    }
}

#[test]
fn only_complete_set_within_its_delay_is_reused() {
    let known = |since: i64, unpromoted: bool| RetiringSet {
        set: "first".to_owned(),
        hash: "v1".to_owned(),
        build_id: String::new(),
        since: later(since),
        unpromoted,
        served: false,
        halt_height: 0,
    };
    let with = |retiring: RetiringSet, wanted: &str| {
        let mut facts = amid(Strategy::BlueGreen, Stage::Retiring).wanting(wanted);
        facts.spec.retire_delay_seconds = 30;
        facts.sets.get_mut("first").unwrap().retiring = Some(retiring);
        facts
    };
    let lives = |facts: &FleetFacts| facts.living_set(now()).map(ToString::to_string);
    assert_eq!(lives(&with(known(-10, false), "v1")).as_deref(), Some("first"));
    assert_eq!(lives(&with(known(-10, false), "v3")), None, "of another target");
    assert_eq!(lives(&with(known(-30, false), "v1")), None, "it is being removed");
    assert_eq!(lives(&with(known(-10, true), "v1")), None, "it was given up");
    let again = |since: i64| RetiringSet { served: true, ..known(since, true) };
    assert_eq!(lives(&with(again(-10), "v1")).as_deref(), Some("first"), "it served before");
    assert_eq!(lives(&with(again(-30), "v1")), None, "and left service a while ago");
    assert!(again(0).keeps_claims() && !known(0, false).keeps_claims());
    let mut torn = with(known(-10, false), "v1");
    torn.sets.get_mut("first").unwrap().children[0].terminating = true;
    assert_eq!(lives(&torn), None, "a node of it is leaving");
    let mut named = with(known(-10, false), "v1");
    named.spec.build_id = Some("one".into());
    assert_eq!(lives(&named), None, "another build ID");
    named.sets.get_mut("first").unwrap().retiring.as_mut().unwrap().build_id = "one".to_owned();
    assert_eq!(lives(&named).as_deref(), Some("first"));
    named.sets.get_mut("first").unwrap().claims_differ = true;
    assert_eq!(lives(&named), None, "its volumes are not those that are asked for");
    let mut halted = with(known(-10, false), "v1");
    halted.sets.get_mut("first").unwrap().retiring.as_mut().unwrap().halt_height = 1000;
    assert_eq!(lives(&halted), None, "it halted at a height");
    let mut asked = with(known(-10, false), "v1");
    let sidecar = crate::planner::fleet::SidecarFacts { halt_height: 1000, ..Default::default() };
    asked.sets.get_mut("first").unwrap().children[1].sidecar = Some(sidecar);
    assert_eq!(lives(&asked), None, "a node of it was asked to halt");
}

#[test]
fn lost_plan_is_replaced_before_the_promotion_only() {
    for stage in BEFORE {
        let decision = decide(&amid(Strategy::BlueGreen, stage), None, &to("v2"), false);
        assert!(matches!(decision, FleetDecision::Start(_)), "{stage:?}: {decision:?}");
    }
    let promoting = amid(Strategy::BlueGreen, Stage::Promoting);
    assert_eq!(decide(&promoting, None, &to("v2"), false), FleetDecision::Keep);
}

#[test]
fn promotion_requires_running_entrants() {
    let facts = amid(Strategy::BlueGreen, Stage::Promoting);
    let rollout = facts.rollout.now.set().cloned().unwrap();
    assert!(facts.entrants_run(&rollout));
    let with = |change: &dyn Fn(&mut FleetFacts)| {
        let mut facts = facts.clone();
        change(&mut facts);
        facts.entrants_run(&rollout)
    };
    assert!(!with(&|f| f.spec.replicas = 0), "no node is wanted");
    assert!(!with(&|f| f.spec.replicas = 3), "one is missing");
    assert!(!with(&|f| drop(f.sets.remove("v2"))), "there is no set");
    let of = |f: &mut FleetFacts, change: &dyn Fn(&mut ChildFacts)| {
        change(&mut f.sets.get_mut("v2").unwrap().children[1]);
    };
    assert!(!with(&|f| of(f, &|c| c.terminating = true)), "one leaves");
    assert!(!with(&|f| of(f, &|c| c.pod.hash = None)), "one does not run");
    assert!(!with(&|f| of(f, &|c| c.pod.image = "db:v1".to_owned())), "one runs another image");
    assert!(!with(&|f| of(f, &|c| c.spec_hash = Some("v1".into()))), "one was edited");
    let unready = |c: &mut ChildFacts| *c = c.clone().down();
    assert!(!with(&|f| of(f, &unready)), "the container of one is being created anew");
    let runs = |c: &mut ChildFacts| *c = c.clone().down().with_running_pod();
    assert!(with(&|f| of(f, &runs)), "Ready is waited for elsewhere");
    assert!(!with(&|f| of(f, &|c| *c = c.clone().failed().with_running_pod())), "one has failed");
}

#[test]
fn traffic_switch_updates_status_and_schedules_old_set_removal() {
    let facts = amid(Strategy::BlueGreen, Stage::Promoting).with(|f| f.spec.retire_delay_seconds = 30);
    let start = goes("v2", Cause::TemplateChanged, Strategy::BlueGreen);
    let mut status = rolling_out(&facts, &start);
    set_status::begin(&mut status, &facts, Strategy::BlueGreen, &"v2".into());
    assert_eq!(status.rollout.as_ref().unwrap().stage, Stage::CreatingEntrants);
    set_status::pass_no_return(&mut status, &facts);
    set_status::switched(&mut status, &facts, now());
    assert_eq!((status.active_set.as_str(), status.last_completed_rollout_hash.as_str()), ("v2", "v2"));
    assert_eq!(status.current_revision, "db-revision");
    let retiring = &status.retiring[0];
    assert_eq!((retiring.set.as_str(), retiring.hash.as_str(), retiring.unpromoted), ("first", "v1", false));
    assert_eq!(facts.removal_of(retiring), later(30));
    // Again, after a crash between the write of the Service and this one.
    let once = status.clone();
    set_status::switched(&mut status, &facts, later(5));
    assert_eq!(status, once);
}

#[test]
fn entrants_are_abandoned_only_before_the_point_of_no_return() {
    for stage in BEFORE.into_iter().chain([Stage::Promoting, Stage::Retiring]) {
        let facts = amid(Strategy::BlueGreen, stage);
        let mut status = rolling_out(&facts, &goes("v2", Cause::TemplateChanged, Strategy::BlueGreen));
        set_status::begin(&mut status, &facts, Strategy::BlueGreen, &"v2".into());
        status.rollout.as_mut().unwrap().stage = stage;
        set_status::give_up(&mut status, &facts, now());
        assert_eq!(status.retiring.len(), usize::from(BEFORE.contains(&stage)), "{stage:?}");
        assert!(status.retiring.iter().all(|r| r.unpromoted && r.keeps_claims()));
    }
}

#[test]
fn forced_promotion_is_spent_at_the_point_of_no_return() {
    for force_promote in [false, true] {
        let facts = amid(Strategy::BlueGreen, Stage::AwaitingPromotion)
            .with(|f| f.requests.force_promote = force_promote);
        let mut status = rolling_out(&facts, &goes("v2", Cause::TemplateChanged, Strategy::BlueGreen));
        set_status::begin(&mut status, &facts, Strategy::BlueGreen, &"v2".into());
        set_status::pass_no_return(&mut status, &facts);
        assert_eq!(status.spent_force_promote, if force_promote { "v2" } else { "" });
    }
    let manual = fleet(1).with(|f| f.spec.promotion = Promotion::Manual);
    assert!(manual.awaits_person());
    assert!(!manual.with(|f| f.requests.force_promote = true).awaits_person());
}

#[test]
fn unknown_set_is_removed_after_its_delay_and_keeps_its_claims() {
    let facts = amid(Strategy::BlueGreen, Stage::Retiring).with(|f| f.rollout.now = Rollout::None);
    let mut status = at_rest(&facts);
    status.active_set = "v2".to_owned();
    set_status::refresh_retiring(&mut status, &facts, now());
    assert_eq!(status.retiring.len(), 1);
    assert!(status.retiring[0].keeps_claims() && !status.retiring[0].unpromoted);
    set_status::refresh_retiring(&mut status, &facts.with(|f| f.sets = [].into()), now());
    assert!(status.retiring.is_empty(), "what is gone is forgotten");
}

fn retired() -> RetiringSet {
    RetiringSet {
        set: String::new(),
        hash: "v0".to_owned(),
        build_id: String::new(),
        since: now(),
        unpromoted: false,
        served: false,
        halt_height: 0,
    }
}

#[test]
fn oldest_of_more_than_twenty_sets_skip_their_delay() {
    let facts = amid(Strategy::BlueGreen, Stage::Retiring).with(|f| f.rollout.now = Rollout::None);
    let old = facts.sets.values().next().unwrap().clone();
    let names: Vec<String> = (0..25).map(|index| format!("s{index:02}")).collect();
    let sets = names.iter().map(|name| (name.clone().into(), old.clone())).collect();
    let facts = facts.with(|f| {
        f.sets = sets;
        f.spec.retire_delay_seconds = 30;
    });
    let mut status = at_rest(&facts);
    status.active_set = "v2".to_owned();
    // The youngest first: the times determine the order, not the positions in the list.
    for (age, set) in names.iter().enumerate() {
        status.retiring.push(RetiringSet { set: set.clone(), since: later(-(age as i64)), ..retired() });
    }
    set_status::refresh_retiring(&mut status, &facts, later(1));
    let due = |status: &NodeDeploymentStatus| -> Vec<String> {
        let due = status.retiring.iter().filter(|set| facts.removal_of(set) <= later(1));
        due.map(|set| set.set.clone()).collect()
    };
    assert_eq!(due(&status), ["s24", "s23", "s22", "s21", "s20"]);
    assert_eq!(status.retiring.len(), 25, "they are in the status until they are gone");
    let once = status.clone();
    set_status::refresh_retiring(&mut status, &facts, later(2));
    assert_eq!(status, once);
}

#[test]
fn retired_set_expires_although_the_clock_was_set_back() {
    let facts = amid(Strategy::BlueGreen, Stage::Retiring);
    let mut status = at_rest(&facts);
    status.active_set = "v2".to_owned();
    set_status::refresh_retiring(&mut status, &facts, later(3600));
    assert_eq!(status.retiring[0].since, later(3600));
    set_status::refresh_retiring(&mut status, &facts, now());
    assert_eq!(status.retiring[0].since, now());
    set_status::refresh_retiring(&mut status, &facts, later(5));
    assert_eq!(status.retiring[0].since, now(), "time that passes does not move it");
}

/// Otherwise they would be kept, and what comes before they leave would be done a second time.
#[test]
fn leaving_nodes_are_not_kept_when_the_clock_is_set_back() {
    let mut facts = amid(Strategy::BlueGreen, Stage::Retiring);
    facts.spec.retire_delay_seconds = 30;
    let mut status = at_rest(&facts);
    status.active_set = "v2".to_owned();
    set_status::refresh_retiring(&mut status, &facts, later(3600));
    let before = status.clone();
    set_status::refresh_retiring(&mut status, &facts, now());
    assert_eq!(facts.removal_of(&status.retiring[0]), later(30), "nobody was asked yet");
    status = before;
    let set = status.retiring[0].set.clone();
    facts.sets.get_mut(set.as_str()).unwrap().children[0].leave.asked = true;
    set_status::refresh_retiring(&mut status, &facts, now());
    assert_eq!(facts.removal_of(&status.retiring[0]), now());
}

#[test]
fn stage_past_no_return_does_not_revert_with_the_next_task() {
    let recipe = "{name: X, tasks: [{type: create-entrants}, {type: own-check}, {type: switch-traffic}]}";
    let seed = PlanSeed { uid: "u", target_hash: "v2", now: now(), attempt: 0, disambiguator: "" };
    let mut plan = Recipe::parse(recipe).unwrap().plan(seed);
    let next = |plan: &Plan, before| stage::stage_of(plan, before, Strategy::BlueGreen);
    assert_eq!(next(&plan, Stage::AwaitingEntrants), Stage::CreatingEntrants);
    assert_eq!(next(&plan, Stage::Promoting), Stage::Promoting);
    plan.tasks[0].state = crate::engine::TaskState::Complete;
    assert_eq!(next(&plan, Stage::CreatingEntrants), Stage::CreatingEntrants, "a user's own step");
    plan.tasks[1].state = crate::engine::TaskState::Complete;
    assert_eq!(next(&plan, Stage::CreatingEntrants), Stage::Promoting);
    assert!(!stage::has_switched(&plan));
    plan.tasks[2].state = crate::engine::TaskState::Complete;
    assert!(stage::has_switched(&plan));
    assert_eq!(next(&plan, Stage::Retiring), Stage::Retiring);
    let old_first =
        |plan: &Plan| stage::stage_of(plan, Stage::CreatingEntrants, Strategy::BlueGreenImmediate);
    plan.tasks[0].state = crate::engine::TaskState::Pending;
    plan.tasks[0].type_ = "retire-incumbents".to_owned();
    assert_eq!(old_first(&plan), Stage::Promoting, "nothing goes before it");
}

#[test]
fn no_return_requires_valid_spec_running_nodes_and_no_pause() {
    let may = |facts: &FleetFacts| facts.may_pass_no_return(facts.rollout.now.set().unwrap());
    let fork = || {
        let mut facts = amid(Strategy::HardFork, Stage::CreatingEntrants).with(|f| f.spec.halt_height = 1000);
        for child in &mut facts.children {
            child.sidecar = Some(SidecarFacts { height: Some(0), ..SidecarFacts::default() });
        }
        facts
    };
    let old = |change: &dyn Fn(&mut ChildFacts)| {
        let mut facts = fork();
        facts.children.iter_mut().for_each(change);
        facts
    };
    let old_first = || amid(Strategy::BlueGreenImmediate, Stage::CreatingEntrants);
    let ready = || amid(Strategy::BlueGreen, Stage::AwaitingPromotion);
    let refused =
        |facts: FleetFacts| facts.with(|f| f.findings.blocker = Some(Blocker::Spec("no".to_owned())));
    let ill = |mut facts: FleetFacts| {
        let entrant = facts.rollout.now.set().unwrap().entrant.clone();
        facts.sets.get_mut(&entrant).unwrap().children[0].pod.ready = false;
        facts
    };
    for (what, facts, expected) in vec![
        ("hard fork", fork(), true),
        ("hard fork without a height", fork().with(|f| f.spec.halt_height = 0), false),
        ("hard fork, refused", refused(fork()), false),
        ("hard fork, paused", fork().paused(), false),
        ("hard fork, one has stopped running", ill(fork()), false),
        ("hard fork, old nodes without a sidecar", old(&|c| c.sidecar = None), false),
        (
            "hard fork, old nodes that said no height",
            old(&|c| c.sidecar.as_mut().unwrap().height = None),
            false,
        ),
        (
            "hard fork, old nodes that cannot be asked",
            old(&|c| c.health.unreachable = Some("why".into())),
            false,
        ),
        ("hard fork, old nodes that are being deleted", old(&|c| c.terminating = true), false),
        (
            "hard fork, old nodes that are scaled away",
            old(&|c| (c.sidecar, c.terminating, c.surplus) = (None, true, true)),
            true,
        ),
        (
            "hard fork, an old node that is gone",
            {
                let mut facts = fork();
                facts.children.pop();
                facts
            },
            false,
        ),
        ("blue-green", ready(), true),
        ("blue-green, paused", ready().paused(), false),
        ("blue-green, one has stopped running", ill(ready()), false),
        ("old nodes first", old_first(), true),
        ("old nodes first, paused", old_first().paused(), false),
        ("old nodes first, refused", refused(old_first()), false),
        ("old nodes first, without the Service", old_first().with(|f| f.service.is_missing = true), false),
        ("hard fork, without the Service", fork().with(|f| f.service.is_missing = true), false),
        ("blue-green, without the Service", ready().with(|f| f.service.is_missing = true), true),
    ] {
        assert_eq!(may(&facts), expected, "{what}");
    }
}

#[test]
fn immediate_rollout_is_reversible_while_traffic_cannot_move() {
    let strategy = Strategy::BlueGreenImmediate;
    let facts = || amid(strategy, Stage::CreatingEntrants);
    for (what, facts, stage) in [
        ("nothing is in the way", facts(), Stage::Promoting),
        ("paused", facts().paused(), Stage::CreatingEntrants),
        ("no Service", facts().with(|f| f.service.is_missing = true), Stage::CreatingEntrants),
    ] {
        let mut status = rolling_out(&facts, &goes("v2", Cause::TemplateChanged, strategy));
        set_status::begin(&mut status, &facts, strategy, &"v2".into());
        assert_eq!(status.rollout.unwrap().stage, stage, "{what}");
    }
}

/// The old nodes are asked to halt at height 1000.
fn halting() -> FleetFacts {
    let mut facts = amid(Strategy::HardFork, Stage::Promoting);
    set_of(&mut facts).halt_height = 1000;
    for child in &mut facts.children {
        child.sidecar = Some(crate::planner::fleet::SidecarFacts {
            halt_height: 1000,
            halt_task: Some("task".into()),
            height: Some(900),
            ..Default::default()
        });
    }
    facts
}

fn halted(mut child: ChildFacts) -> ChildFacts {
    child.sidecar.as_mut().unwrap().halted_for = Some("task".into());
    child
}

fn looked_at(facts: &FleetFacts, seconds: i64) -> NodeDeploymentStatus {
    let mut status = rolling_out(facts, &goes("v2", Cause::TemplateChanged, Strategy::HardFork));
    set_status::begin(&mut status, facts, Strategy::HardFork, &"v2".into());
    set_status::pass_no_return(&mut status, facts);
    let rollout = status.rollout.as_mut().unwrap();
    (rollout.stage, rollout.halt_height, rollout.height) = (Stage::Promoting, 1000, 900);
    rollout.max_updated = 1000;
    look(status, facts, seconds)
}

fn named(status: &NodeDeploymentStatus) -> Vec<(&str, &str, &str)> {
    let list = &status.rollout.as_ref().unwrap().unconverged;
    list.iter().map(|u| (u.name.as_str(), u.reason.as_str(), u.message.as_str())).collect()
}

#[test]
fn unhalted_old_nodes_are_reported_with_their_blocker() {
    let not_halted = "it has not halted at height 1000";
    assert_eq!(
        named(&looked_at(&halting(), 0)),
        [("db-0", "NotReady", not_halted), ("db-1", "NotReady", not_halted)]
    );
    let blocked = halting().but(0, halted).but(1, ChildFacts::unreachable);
    let expected = [("db-1", "SidecarUnreachable", "connection refused")];
    assert_eq!(named(&looked_at(&blocked, 0)), expected);
    let stalled = looked_at(&blocked, 630);
    let condition = crate::api::conditions::find(&stalled.conditions, "Stalled").unwrap();
    let why = overdue_at(600, "db-1: SidecarUnreachable: connection refused");
    assert_eq!(condition.message, why);
    let refuses = |mut c: ChildFacts| {
        c.sidecar.as_mut().unwrap().message = Some("the height has passed".to_owned());
        c
    };
    let refusing = halting().but(0, refuses);
    assert_eq!(named(&looked_at(&refusing, 0))[0], ("db-0", "NotReady", "the height has passed"));
    let gone = halting().but(1, ChildFacts::without_pod);
    assert_eq!(named(&looked_at(&gone, 0))[0].1, "Missing");
    // A new node that has failed is listed first: the switch waits for it as well.
    let mut failing = halting();
    let entrant = &mut failing.sets.get_mut("v2").unwrap().children[0];
    *entrant = entrant.clone().failed().with(|f| f.name = "db-v2-0".into());
    assert_eq!(named(&looked_at(&failing, 0))[0].0, "db-v2-0");
    assert_eq!(named(&looked_at(&halting().but(0, halted).but(1, halted), 0)), []);
}

#[test]
fn promotion_forced_while_promoting_is_spent() {
    let facts = amid(Strategy::BlueGreen, Stage::Promoting).with(|f| f.requests.force_promote = true);
    let mut status = rolling_out(&facts, &goes("v2", Cause::TemplateChanged, Strategy::BlueGreen));
    let unforced = facts.clone().with(|f| f.requests.force_promote = false);
    set_status::begin(&mut status, &unforced, Strategy::BlueGreen, &"v2".into());
    set_status::pass_no_return(&mut status, &unforced);
    assert_eq!((status.spent_force_promote.as_str(), status.rollout.as_ref().unwrap().forced), ("", false));
    // The request may arrive in the reconcile in which traffic is switched, or in one before.
    let mut at_once = status.clone();
    set_status::switched(&mut at_once, &facts, now());
    assert_eq!(at_once.spent_force_promote, "v2");
    let looked_at = look(status, &facts, 1);
    let forced = looked_at.rollout.as_ref().unwrap().forced;
    assert_eq!((looked_at.spent_force_promote.as_str(), forced), ("v2", true));
    // Before the point of no return, a user may still change their mind.
    let early = amid(Strategy::BlueGreen, Stage::AwaitingEntrants).with(|f| f.requests.force_promote = true);
    let mut status = rolling_out(&early, &goes("v2", Cause::TemplateChanged, Strategy::BlueGreen));
    set_status::begin(&mut status, &early, Strategy::BlueGreen, &"v2".into());
    assert_eq!(look(status, &early, 1).spent_force_promote, "");
}

#[test]
fn force_promote_of_the_serving_revision_is_spent_at_once() {
    let facts = |requested: &str| fleet(2).wanting(requested).with(|f| f.requests.force_promote = true);
    for (requested, spent) in [("v1", "v1"), ("v2", "")] {
        let facts = facts(requested);
        assert_eq!(look(at_rest(&facts), &facts, 1).spent_force_promote, spent);
    }
}

#[test]
fn spent_force_promote_advises_clearing_it() {
    let facts =
        amid(Strategy::BlueGreen, Stage::AwaitingPromotion).with(|f| f.spec.promotion = Promotion::Manual);
    for (spent, advice) in [("", "set spec.forcePromote to v2"), ("v2", "clear spec.forcePromote")] {
        let mut status = rolling_out(&facts, &goes("v2", Cause::TemplateChanged, Strategy::BlueGreen));
        set_status::begin(&mut status, &facts, Strategy::BlueGreen, &"v2".into());
        status.rollout.as_mut().unwrap().stage = Stage::AwaitingPromotion;
        status.spent_force_promote = spent.to_owned();
        let status = look(status, &facts, 1);
        let condition = crate::api::conditions::find(&status.conditions, "UpToDate").unwrap();
        assert_eq!(condition.reason, "ReadyToPromote");
        assert!(condition.message.starts_with(advice), "{}", condition.message);
    }
}

#[test]
fn stall_message_names_the_retiring_set_over_serving_nodes() {
    for sick in [ChildFacts::down, ChildFacts::failed] {
        let mut facts = amid(Strategy::BlueGreen, Stage::Retiring).but(0, sick);
        facts.spec.on_stall = OnStall::Hold;
        let mut status = rolling_out(&facts, &goes("v2", Cause::TemplateChanged, Strategy::BlueGreen));
        set_status::begin(&mut status, &facts, Strategy::BlueGreen, &"v2".into());
        let rollout = status.rollout.as_mut().unwrap();
        (rollout.stage, rollout.max_updated) = (Stage::Retiring, 1000);
        rollout.incumbent_set = "first".to_owned();
        let old = RetiringSet {
            set: "first".to_owned(),
            hash: "v1".to_owned(),
            build_id: String::new(),
            since: now(),
            unpromoted: false,
            served: false,
            halt_height: 0,
        };
        facts.sets.get_mut("first").unwrap().retiring = Some(old.clone());
        status.retiring = vec![old];
        let mut plan = plan_to("v2");
        plan.tasks[0].message = "waiting for the deletion of set first to complete; remaining objects: Pod \
            db-0-0"
            .to_owned();
        status.plan = Some(crate::api::RawPlan::of(&plan));
        let status = look(status, &facts, 630);
        let condition = crate::api::conditions::find(&status.conditions, "Stalled").unwrap();
        assert_eq!(condition.message, overdue_at(600, &plan.tasks[0].message));
        assert_eq!(named(&status).len(), 1, "it is still named as what does not serve");
    }
}
