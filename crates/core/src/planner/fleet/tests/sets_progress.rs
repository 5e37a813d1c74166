//! Rollouts that create a set of nodes: their stage, their progress and their messages.

use super::super::sets::{SetFacts, SetRollout, Strategy, has_halted, stage, status as set_status};
use super::super::status::{is_stalled, stall_deadline};
use super::super::{Conflict, SidecarFacts};
use super::sets::{amid, set_of};
use super::*;
use crate::api::conditions::{self, UP_TO_DATE};
use crate::api::{Promotion, RetiringSet, SetName, Stage, TaskId};
use crate::engine::TaskState;
use crate::planner::fleet::Rollout;

const STAGES: [Stage; 5] = [
    Stage::CreatingEntrants,
    Stage::AwaitingEntrants,
    Stage::AwaitingPromotion,
    Stage::Promoting,
    Stage::Retiring,
];

fn halting(child: ChildFacts, height: i64) -> ChildFacts {
    let sidecar = SidecarFacts {
        caught_up: true,
        height: Some(height),
        halt_height: 1000,
        halt_task: Some("task".into()),
        ..SidecarFacts::default()
    };
    child.with(|f| f.sidecar = Some(sidecar))
}

fn halted(child: ChildFacts) -> ChildFacts {
    let mut child = halting(child, 1000);
    child.sidecar.as_mut().unwrap().halted_for = Some("task".into());
    child
}

/// A fleet in a hard fork whose old nodes have to halt at 1000: one has halted, the other is at 900.
fn hard_fork() -> FleetFacts {
    let mut facts = amid(Strategy::HardFork, Stage::Promoting).but(0, halted).but(1, |c| halting(c, 900));
    set_of(&mut facts).halt_height = 1000;
    facts
}

/// The status of a fleet in a rollout to v2 that creates the set v2, at this stage.
fn status_of(facts: &FleetFacts, strategy: Strategy, stage: Stage) -> NodeDeploymentStatus {
    let start =
        Start { rollout_target: to("v2"), target: "v2".into(), cause: Cause::TemplateChanged, strategy };
    let mut status = rolling_out(facts, &start);
    set_status::begin(&mut status, facts, strategy, &"v2".into());
    let rollout = status.rollout.as_mut().unwrap();
    rollout.stage = stage;
    rollout.incumbent_set = "first".to_owned();
    if strategy == Strategy::HardFork && stage == Stage::Promoting {
        rollout.halt_height = 1000;
    }
    status
}

fn rollout_of(facts: &FleetFacts) -> SetRollout {
    facts.rollout.now.set().cloned().unwrap()
}

fn up_to_date(status: &NodeDeploymentStatus) -> (String, String) {
    let said = conditions::find(&status.conditions, UP_TO_DATE).unwrap();
    (said.reason.clone(), said.message.clone())
}

#[test]
fn every_recipe_task_belongs_to_a_stage() {
    let steps = [
        ("create-entrants", Stage::CreatingEntrants),
        ("await-nodes-running", Stage::AwaitingEntrants),
        ("await-caught-up", Stage::AwaitingEntrants),
        ("await-promotion", Stage::AwaitingPromotion),
        ("submit-halt", Stage::Promoting),
        ("await-nodes-at-height", Stage::Promoting),
        ("switch-traffic", Stage::Promoting),
    ];
    let tasks: Vec<String> = steps.iter().map(|(type_, _)| format!("{{type: {type_}}}")).collect();
    let recipe = format!("{{name: X, tasks: [{}]}}", tasks.join(", "));
    let seed = PlanSeed { uid: "u", target_hash: "v2", now: now(), attempt: 0, disambiguator: "" };
    let mut plan = Recipe::parse(&recipe).unwrap().plan(seed);
    for (index, (type_, stage)) in steps.into_iter().enumerate() {
        for before in [Stage::CreatingEntrants, Stage::AwaitingEntrants, Stage::AwaitingPromotion] {
            assert_eq!(
                stage::stage_of(&plan, before, Strategy::BlueGreen),
                stage,
                "{type_} after {before:?}"
            );
        }
        plan.tasks[index].state = TaskState::Complete;
    }
}

#[test]
fn rollout_summary_describes_the_stage() {
    let words = |facts: &FleetFacts, strategy, stage| {
        look(status_of(facts, strategy, stage), facts, 1).rollout.unwrap().summary
    };
    let told = STAGES.map(|stage| {
        let mut facts = amid(Strategy::BlueGreen, stage);
        facts.spec.replicas = 3;
        words(&facts, Strategy::BlueGreen, stage)
    });
    let expected = ["Creating 2/3", "Awaiting 2/3", "Awaiting 2/3", "Promoting 2/3", "Retiring, 2 left"];
    assert_eq!(told, expected);
    let manual =
        amid(Strategy::BlueGreen, Stage::AwaitingPromotion).with(|f| f.spec.promotion = Promotion::Manual);
    assert_eq!(words(&manual, Strategy::BlueGreen, Stage::AwaitingPromotion), "Ready to promote");
    assert_eq!(words(&hard_fork(), Strategy::HardFork, Stage::Promoting), "Halting 1/2");
    let mut surplus = amid(Strategy::BlueGreen, Stage::CreatingEntrants);
    surplus.sets.get_mut("v2").unwrap().children[1].surplus = true;
    assert_eq!(words(&surplus, Strategy::BlueGreen, Stage::CreatingEntrants), "Creating 1/2");
}

#[test]
fn running_and_caught_up_entrants_and_halted_nodes_are_progress() {
    let facts = hard_fork();
    let score = |facts: &FleetFacts| stage::score(facts, &rollout_of(facts));
    // Two nodes are updated; both of them serve and have caught up, and one old node has halted.
    assert_eq!(score(&facts), 2 + 2 + 2 + 1);
    assert_eq!(score(&facts.clone().but(1, halted)), 2 + 2 + 2 + 2);
    let mut behind = facts.clone();
    let sidecar = SidecarFacts { caught_up: false, ..SidecarFacts::default() };
    behind.sets.get_mut("v2").unwrap().children[0].sidecar = Some(sidecar);
    assert_eq!(score(&behind), 2 + 2 + 1 + 1);
    let mut gone = facts;
    gone.sets.clear();
    assert_eq!(score(&gone), 1, "there are no new nodes yet");
}

#[test]
fn newly_ready_entrant_is_progress_before_it_is_available() {
    let facts = amid(Strategy::BlueGreen, Stage::AwaitingEntrants);
    let with = |ready| {
        let mut facts = facts.clone();
        let child = &mut facts.sets.get_mut("v2").unwrap().children[1];
        (child.pod.ready, child.pod.available) = (ready, false);
        facts
    };
    let status = status_of(&facts, Strategy::BlueGreen, Stage::AwaitingEntrants);
    let status = look(look(status, &with(false), 10), &with(true), 20);
    assert_eq!(status.rollout.unwrap().last_progress_at, later(20));
}

#[test]
fn removed_incumbents_are_progress_until_the_last_pod() {
    let mut facts = amid(Strategy::BlueGreen, Stage::Retiring);
    let score = |facts: &FleetFacts| stage::score(facts, &rollout_of(facts));
    assert_eq!(score(&facts), -2);
    let old = facts.sets.get_mut("first").unwrap();
    old.remains = 4;
    old.children.pop();
    assert_eq!(score(&facts), -1);
    facts.sets.get_mut("first").unwrap().children.pop();
    assert_eq!(score(&facts), -1, "its pods are left");
    facts.sets.get_mut("first").unwrap().remains = 0;
    assert_eq!(score(&facts), 0);
    facts.sets.clear();
    assert_eq!(score(&facts), 0);
}

#[test]
fn node_has_halted_when_its_sidecar_reports_this_rollout() {
    let rollout = SetRollout { halt_height: 1000, ..rollout_of(&hard_fork()) };
    let with = |change: &dyn Fn(&mut SidecarFacts)| {
        let mut child = halted(node(0));
        change(child.sidecar.as_mut().unwrap());
        child
    };
    assert!(has_halted(&halted(node(0)), &rollout));
    assert!(!has_halted(&node(0), &rollout), "no sidecar");
    assert!(!has_halted(&with(&|s| s.halt_height = 900), &rollout), "at another height");
    assert!(!has_halted(&with(&|s| s.halted_for = None), &rollout), "not yet");
    assert!(!has_halted(&with(&|s| s.halted_for = Some("other".into())), &rollout), "for another rollout");
    let unasked = with(&|s| (s.halted_for, s.halt_task) = (None, None));
    assert!(!has_halted(&unasked, &rollout), "never asked");
    let without_height = SetRollout { halt_height: 0, ..rollout };
    assert!(!has_halted(&with(&|s| s.halt_height = 0), &without_height), "no halt height is set");
}

#[test]
fn node_is_caught_up_when_ready_and_its_sidecar_reports_it() {
    let says = |caught_up| {
        let sidecar = SidecarFacts { caught_up, ..SidecarFacts::default() };
        node(0).with(|f| f.sidecar = Some(sidecar))
    };
    assert!(says(true).is_caught_up());
    assert!(node(0).is_caught_up(), "one without a sidecar");
    assert!(!says(false).is_caught_up());
    assert!(!says(true).unreachable().is_caught_up());
    assert!(!says(true).down().is_caught_up());
    assert!(!says(true).terminating().is_caught_up());
    assert!(!node(0).down().is_caught_up());
}

#[test]
fn growing_height_is_progress_and_is_reported() {
    let facts = hard_fork();
    assert_eq!(stage::lowest_height(&facts), 900);
    assert_eq!(stage::lowest_height(&fleet(2)), 0, "nobody says");
    let began = look(status_of(&facts, Strategy::HardFork, Stage::Promoting), &facts, 10);
    let told = |status: &NodeDeploymentStatus| {
        let rollout = status.rollout.as_ref().unwrap();
        (rollout.height, rollout.last_progress_at)
    };
    assert_eq!(told(&began), (900, later(10)));
    let same = look(began, &facts, 20);
    assert_eq!(told(&same), (900, later(10)), "nothing moved");
    let fell = look(same, &facts.clone().but(1, |c| halting(c, 800)), 30);
    assert_eq!(told(&fell), (900, later(10)), "one restarted from an older state");
    let grew = look(fell, &facts.clone().but(1, |c| halting(c, 901)), 40);
    assert_eq!(told(&grew), (901, later(40)));
    // If no node is asked to halt, heights do not count.
    let early = look(status_of(&facts, Strategy::HardFork, Stage::AwaitingEntrants), &facts, 10);
    assert_eq!(told(&early).0, 0);
    let mut retiring = status_of(&facts, Strategy::HardFork, Stage::Promoting);
    retiring.rollout.as_mut().unwrap().stage = Stage::Retiring;
    assert_eq!(told(&look(retiring, &facts, 10)).0, 0);
    let blue_green = facts.with(|f| {
        f.rollout.now = Rollout::Replacing {
            set: rollout_of(&amid(Strategy::BlueGreen, Stage::Promoting)),
            cause: Cause::TemplateChanged,
        }
    });
    assert_eq!(
        told(&look(status_of(&blue_green, Strategy::BlueGreen, Stage::Promoting), &blue_green, 10)).0,
        0
    );
}

#[test]
fn new_incumbent_resets_lowest_height_but_flapping_does_not() {
    let with = |children: Vec<ChildFacts>| {
        let replicas = children.len() as i32;
        hard_fork().with(|f| {
            f.spec.replicas = replicas;
            f.children = children;
        })
    };
    let old = |ordinal: i32, height: i64| halting(node(ordinal), height);
    let mute = |ordinal: i32| node(ordinal).with(|f| f.sidecar = Some(SidecarFacts::default()));
    let next = |status: &NodeDeploymentStatus, facts: &FleetFacts, seconds: i64| {
        let status = look(status.clone(), facts, seconds);
        let rollout = status.rollout.as_ref().unwrap();
        let told = (rollout.height, rollout.last_progress_at);
        (status, told)
    };
    let two = with(vec![old(0, 800), old(1, 800)]);
    let (began, told) = next(&status_of(&two, Strategy::HardFork, Stage::Promoting), &two, 10);
    assert_eq!(told, (800, later(10)));

    let (made, told) = next(&began, &with(vec![old(0, 800), old(1, 800), old(2, 5)]), 20);
    assert_eq!(told, (5, later(10)), "one that is new is no progress");
    let grew = with(vec![old(0, 800), old(1, 800), old(2, 6)]);
    let (grown, told) = next(&made, &grew, 30);
    assert_eq!(told, (6, later(30)), "the lowest grows");
    let (fell, told) = next(&grown, &with(vec![old(0, 800), old(1, 800), old(2, 4)]), 40);
    assert_eq!(told, (6, later(30)), "none is new");
    let (_, told) = next(&fell, &grew, 50);
    assert_eq!(told, (6, later(30)), "it went back and came again");

    // Usually it is there before it says a height, and what the others do until then says nothing of it.
    let (silent, told) = next(&began, &with(vec![old(0, 800), old(1, 800), mute(2)]), 20);
    assert_eq!(told, (0, later(10)), "nobody knows the lowest");
    let (silent, told) = next(&silent, &with(vec![old(0, 801), old(1, 801), mute(2)]), 30);
    assert_eq!(told, (0, later(10)), "nor now");
    let (said, told) = next(&silent, &with(vec![old(0, 801), old(1, 801), old(2, 5)]), 40);
    assert_eq!(told, (5, later(40)), "it says its first height");
    let (_, told) = next(&said, &with(vec![old(0, 801), old(1, 801), old(2, 6)]), 50);
    assert_eq!(told, (6, later(50)));

    // One is made again between two looks.
    let unseen = |ordinal: i32| {
        mute(ordinal).with(|f| {
            f.controller.status_outdated = true;
            f.pod.ever_ready = false;
        })
    };
    let (again, told) = next(&began, &with(vec![old(0, 801), unseen(1)]), 20);
    assert_eq!(told, (0, later(10)));
    let (_, told) = next(&again, &with(vec![old(0, 801), old(1, 5)]), 30);
    assert_eq!(told, (5, later(30)));

    // The pod of one that was there restarts; one that leaves, or that has no sidecar, will never say any.
    for silent in [mute(1), unseen(1).terminating(), unseen(1).with(|f| f.sidecar = None)] {
        let (_, told) = next(&began, &with(vec![old(0, 801), silent]), 20);
        assert_eq!(told, (801, later(20)), "the other one grows");
    }
}

#[test]
fn strategy_maps_to_its_recipe_and_back() {
    let table = [
        (Strategy::InPlace, "InPlace", "InPlace", false),
        (Strategy::BlueGreen, "BlueGreen", "BlueGreen", true),
        (Strategy::BlueGreenImmediate, "BlueGreenImmediate", "BlueGreen", true),
        (Strategy::HardFork, "HardFork", "HardFork", true),
    ];
    for (strategy, recipe, api_name, creates_set) in table {
        assert_eq!(
            (strategy.recipe(), strategy.api_name(), strategy.creates_set()),
            (recipe, api_name, creates_set)
        );
        if creates_set {
            // It is also read back from the status, even if only the plan contains the recipe.
            let mut status =
                status_of(&amid(strategy, Stage::CreatingEntrants), strategy, Stage::CreatingEntrants);
            assert_eq!(SetRollout::of(&status).unwrap().strategy, strategy);
            status.rollout.as_mut().unwrap().recipe.clear();
            let plan = Plan { recipe: recipe.to_owned(), ..plan_to("v2") };
            status.plan = Some(crate::api::RawPlan::of(&plan));
            assert_eq!(SetRollout::of(&status).unwrap().strategy, strategy);
        }
    }
}

#[test]
fn set_is_deleted_when_no_nodes_or_pods_remain() {
    let set =
        |nodes: i32, remains| SetFacts { children: fleet(nodes).children, remains, ..SetFacts::default() };
    assert!(set(0, 0).is_gone());
    assert!(!set(1, 0).is_gone());
    assert!(!set(0, 1).is_gone());
    assert!(!set(2, 2).is_gone());
}

#[test]
fn entrants_are_the_rollout_set_until_it_serves() {
    let before = amid(Strategy::BlueGreen, Stage::Promoting);
    assert_eq!(before.entrants(), before.sets.get("v2"));
    assert_eq!(before.entrants().unwrap().children.len(), 2);
    assert_eq!(amid(Strategy::BlueGreen, Stage::Retiring).entrants(), None, "they serve");
    assert_eq!(fleet(2).entrants(), None);
}

#[test]
fn active_set_is_repaired_unless_it_is_removed_first() {
    for stage in STAGES {
        for strategy in [Strategy::BlueGreen, Strategy::BlueGreenImmediate, Strategy::HardFork] {
            let goes = strategy == Strategy::BlueGreenImmediate && stage == Stage::Promoting;
            assert_eq!(amid(strategy, stage).active_set_is_removed(), goes, "{strategy:?} {stage:?}");
        }
    }
    assert!(!fleet(2).active_set_is_removed());
}

#[test]
fn facts_can_be_viewed_with_another_active_set() {
    let conflict = |name: &str| Conflict { name: name.into(), ordinal: 5, message: "taken".to_owned() };
    let mut facts = amid(Strategy::BlueGreen, Stage::Promoting).held_below_ordinal(1);
    facts.conflicts.push(conflict("db-5"));
    facts.sets.get_mut("v2").unwrap().conflicts.push(conflict("db-v2-5"));
    facts.shutting_down.push("db-6-0".to_owned());
    facts.sets.get_mut("v2").unwrap().shutting_down.push("db-v2-6-0".to_owned());

    let seen = facts.as_set(&"v2".into());
    assert_eq!((seen.set.as_str(), seen.spec.partition, seen.sets.len()), ("v2", 0, 0));
    assert_eq!((&seen.children, &seen.conflicts), (&facts.sets["v2"].children, &facts.sets["v2"].conflicts));
    assert_eq!(seen.shutting_down, ["db-v2-6-0"]);
    let own = facts.as_set(&SetName::FIRST);
    assert_eq!((own.set.as_str(), own.spec.partition, own.sets.len()), ("first", 0, 0));
    assert_eq!((&own.children, &own.conflicts), (&facts.children, &facts.conflicts));
    let nobody = facts.as_set(&"nobody".into());
    assert!(nobody.children.is_empty() && nobody.shutting_down.is_empty());

    let switched = facts.activated(&"v2".into());
    assert_eq!((switched.set.as_str(), switched.spec.partition), ("v2", 1));
    assert_eq!((&switched.children, &switched.conflicts), (&seen.children, &seen.conflicts));
    let before = &switched.sets["first"];
    assert_eq!((&before.children, &before.conflicts, before.remains), (&facts.children, &facts.conflicts, 2));
    assert_eq!((&switched.shutting_down, &before.shutting_down), (&seen.shutting_down, &facts.shutting_down));
    assert_eq!(switched.sets.len(), 1);
    assert_eq!(facts.activated(&SetName::FIRST), facts);
}

#[test]
fn clock_stops_for_manual_promotion_and_retire_delay() {
    let due = |facts: &FleetFacts, status: &NodeDeploymentStatus| stall_deadline(status, facts, now());
    let manual =
        amid(Strategy::BlueGreen, Stage::AwaitingPromotion).with(|f| f.spec.promotion = Promotion::Manual);
    let status = status_of(&manual, Strategy::BlueGreen, Stage::AwaitingPromotion);
    assert_eq!(due(&manual, &status), None);
    assert_eq!(due(&manual.clone().with(|f| f.requests.force_promote = true), &status), Some(later(600)));
    let unasked = manual.clone().with(|f| f.spec.promotion = Promotion::WhenReady);
    assert_eq!(due(&unasked, &status), Some(later(600)));
    // The time for which it waited does not count.
    let waited = look(status, &manual, 5000);
    assert_eq!(
        up_to_date(&waited),
        ("ReadyToPromote".into(), "set spec.forcePromote to v2, or run windlass promote".into())
    );
    let went_on = look(waited, &unasked, 5001);
    assert_eq!(went_on.rollout.unwrap().last_progress_at, later(5001));
    for stage in [Stage::CreatingEntrants, Stage::AwaitingEntrants, Stage::Promoting] {
        let facts = amid(Strategy::BlueGreen, stage).with(|f| f.spec.promotion = Promotion::Manual);
        let status = status_of(&facts, Strategy::BlueGreen, stage);
        assert_eq!(due(&facts, &status), Some(later(600)), "{stage:?}");
        let none = facts.with(|f| f.spec.replicas = 0);
        assert_eq!(due(&none, &status), None, "{stage:?}, over no node");
    }
    let facts = amid(Strategy::BlueGreen, Stage::Retiring).with(|f| f.spec.retire_delay_seconds = 3600);
    let mut status = status_of(&facts, Strategy::BlueGreen, Stage::Retiring);
    let goes = |set: &str, since| RetiringSet {
        set: set.to_owned(),
        hash: "v1".to_owned(),
        build_id: String::new(),
        since,
        unpromoted: false,
        served: false,
        halt_height: 0,
    };
    status.retiring = vec![goes("older", later(90)), goes("first", now())];
    assert_eq!(due(&facts, &status), Some(later(3600 + 600)));
    assert!(!is_stalled(&status, &facts, later(4199)) && is_stalled(&status, &facts, later(4200)));
    status.rollout.as_mut().unwrap().stage = Stage::AwaitingEntrants;
    assert_eq!(due(&facts, &status), Some(later(600)), "before it is promoted nothing goes");
}

#[test]
fn manual_promotion_is_requested_only_while_entrants_are_ready() {
    let manual =
        amid(Strategy::BlueGreen, Stage::AwaitingPromotion).with(|f| f.spec.promotion = Promotion::Manual);
    let but = |change: &dyn Fn(&mut ChildFacts)| {
        let mut facts = manual.clone();
        change(&mut facts.sets.get_mut("v2").unwrap().children[1]);
        facts
    };
    let unready = but(&|c| (c.pod.ready, c.pod.available, c.pod.runs) = (false, false, true));
    let said = |status: &NodeDeploymentStatus| {
        let rollout = status.rollout.as_ref().unwrap();
        (up_to_date(status).0, rollout.summary.clone(), rollout.progress_paused)
    };
    let asks = || ("ReadyToPromote".to_owned(), "Ready to promote".to_owned(), true);
    let waits = |summary: &str| ("Applying".to_owned(), summary.to_owned(), false);

    let status = status_of(&manual, Strategy::BlueGreen, Stage::AwaitingPromotion);
    let none = manual.clone().with(|f| f.spec.replicas = 0);
    assert_eq!(stall_deadline(&status, &none, now()), None, "over no node");
    let ready = look(status, &manual, 5000);
    assert_eq!((said(&ready), stall_deadline(&ready, &manual, now())), (asks(), None));
    // Hours later one of them is not Ready any more. It has all of the time that a rollout has.
    assert!(!is_stalled(&ready, &unready, later(20_000)));
    let fell = look(ready.clone(), &unready, 20_000);
    assert_eq!(
        (said(&fell), stall_deadline(&fell, &unready, now())),
        (waits("Awaiting 1/2"), Some(later(20_600)))
    );
    assert!(!is_stalled(&fell, &unready, later(20_599)) && is_stalled(&fell, &unready, later(20_600)));
    assert_eq!(look(fell.clone(), &unready, 20_001), fell, "as long as nothing changes, nothing is written");
    let stalled = look(fell, &unready, 20_600);
    assert_eq!(up_to_date(&stalled).0, "Stalled");
    let back = look(stalled, &manual, 20_700);
    assert_eq!((said(&back), stall_deadline(&back, &manual, now())), (asks(), None));

    let gone = || {
        (but(&|c| (c.pod.ready, c.pod.available, c.surplus) = (false, false, true)))
            .with(|f| f.spec.replicas = 1)
    };
    let behind = || but(&|c| c.sidecar = Some(SidecarFacts::default()));
    let unproven = || but(&|c| c.pod.available = false);
    let stopped = || but(&|c| (c.pod.ready, c.pod.available) = (false, false));
    let more = || manual.clone().with(|f| f.spec.replicas = 3);
    for (what, facts, expected) in [
        ("one that leaves is not Ready", gone(), asks()),
        ("one has not caught up", behind(), waits("Awaiting 2/2")),
        ("one is Ready, and not for minReadySeconds", unproven(), waits("Awaiting 2/2")),
        ("one does not run", stopped(), waits("Awaiting 1/2")),
        ("one more is desired", more(), waits("Awaiting 2/3")),
    ] {
        assert_eq!(said(&look(ready.clone(), &facts, 5001)), expected, "{what}");
    }

    // Who has skipped the wait for that is asked all the same, but not to promote what does not run.
    let recipe = "{name: BlueGreen, tasks: [{type: await-caught-up}, {type: await-promotion}]}";
    let seed = PlanSeed { uid: "u", target_hash: "v2", now: now(), attempt: 0, disambiguator: "" };
    let mut plan = Recipe::parse(recipe).unwrap().plan(seed);
    for (state, facts, expected) in [
        (TaskState::Complete, behind(), waits("Awaiting 2/2")),
        (TaskState::Skipped, behind(), asks()),
        (TaskState::Skipped, unready.clone(), asks()),
        (TaskState::Skipped, stopped(), waits("Awaiting 1/2")),
    ] {
        plan.tasks[0].state = state;
        let mut status = ready.clone();
        status.plan = Some(crate::api::RawPlan::of(&plan));
        assert_eq!(said(&look(status, &facts, 5001)), expected, "{state:?}");
    }
}

#[test]
fn rollout_wait_is_reported_in_every_stage() {
    let said = |stage, change: &dyn Fn(FleetFacts) -> FleetFacts| {
        let mut facts = change(amid(Strategy::BlueGreen, stage));
        // By the Service, the old set is not needed any more.
        facts.service.selected = Some(facts.set.clone());
        let mut status = status_of(&facts, Strategy::BlueGreen, stage);
        let mut plan = plan_to("v2");
        plan.tasks[0].message = "waiting for the world".to_owned();
        status.plan = Some(crate::api::RawPlan::of(&plan));
        up_to_date(&look(status, &facts, 5))
    };
    let same = |facts: FleetFacts| facts;
    let waits = || "waiting for the world".to_owned();
    assert_eq!(said(Stage::CreatingEntrants, &same), ("Applying".into(), waits()));
    assert_eq!(said(Stage::AwaitingEntrants, &same), ("Applying".into(), waits()));
    assert_eq!(said(Stage::AwaitingPromotion, &same), ("Applying".into(), waits()));
    let manual = |f: FleetFacts| f.with(|f| f.spec.promotion = Promotion::Manual);
    assert_eq!(said(Stage::AwaitingPromotion, &manual).0, "ReadyToPromote");
    let forced = |f: FleetFacts| {
        f.with(|f| {
            f.spec.promotion = Promotion::Manual;
            f.requests.force_promote = true;
        })
    };
    assert_eq!(said(Stage::AwaitingPromotion, &forced), ("Applying".into(), waits()));
    assert_eq!(said(Stage::Promoting, &same), ("Promoting".into(), waits()));
    assert_eq!(said(Stage::Retiring, &same).0, "Applied");
    let paused = "waiting for the fleet to be resumed: spec.paused is true".to_owned();
    assert_eq!(said(Stage::CreatingEntrants, &FleetFacts::paused), ("Applying".into(), paused));
    let failing = |mut f: FleetFacts| {
        let child = &mut f.sets.get_mut("v2").unwrap().children[1];
        *child = child.clone().failed();
        f
    };
    let why = "waiting for db-1: ImagePullBackOff: no such image".to_owned();
    assert_eq!(said(Stage::CreatingEntrants, &failing), ("Applying".into(), why));
}

#[test]
fn history_keeps_the_previous_revision_after_the_switch() {
    use super::super::status::end;
    use crate::api::Ending;
    let facts = amid(Strategy::BlueGreen, Stage::Promoting);
    let mut status = status_of(&facts, Strategy::BlueGreen, Stage::Promoting);
    set_status::switched(&mut status, &facts, now());
    assert_eq!(status.last_completed_rollout_hash, "v2");
    end(&mut status, &plan_to("v2"), Ending::Complete, "", now());
    assert_eq!(status.history[0].from_hash, "v1");
}

#[test]
fn reused_set_is_removed_from_the_retiring_list() {
    let facts = amid(Strategy::BlueGreen, Stage::CreatingEntrants);
    let mut status = at_rest(&facts);
    let goes = |set: &str| RetiringSet {
        set: set.to_owned(),
        hash: "v2".to_owned(),
        build_id: String::new(),
        since: now(),
        unpromoted: false,
        served: false,
        halt_height: 0,
    };
    status.retiring = vec![goes("v2"), goes("other")];
    set_status::begin(&mut status, &facts, Strategy::BlueGreen, &"v2".into());
    let left: Vec<&str> = status.retiring.iter().map(|r| r.set.as_str()).collect();
    assert_eq!(left, ["other"]);
}

#[test]
fn retiring_set_is_listed_once_until_deleted_or_reused() {
    let mut facts = amid(Strategy::BlueGreen, Stage::AwaitingEntrants);
    facts.sets.insert("old".into(), SetFacts { children: fleet(1).children, ..SetFacts::default() });
    facts.sets.insert("claims".into(), SetFacts::default());
    facts.sets.insert("pods".into(), SetFacts { remains: 1, ..SetFacts::default() });
    let mut status = status_of(&facts, Strategy::BlueGreen, Stage::AwaitingEntrants);
    let listed =
        |status: &NodeDeploymentStatus| status.retiring.iter().map(|r| r.set.clone()).collect::<Vec<_>>();
    set_status::refresh_retiring(&mut status, &facts, now());
    assert_eq!(listed(&status), ["old"], "neither what enters, nor what has no node");
    set_status::refresh_retiring(&mut status, &facts, later(1));
    assert_eq!(listed(&status), ["old"]);
    // The new set is listed once it is abandoned; a second call adds nothing.
    set_status::give_up(&mut status, &facts, later(2));
    set_status::give_up(&mut status, &facts, later(3));
    assert_eq!(listed(&status), ["old", "v2"]);
    // It stays listed while its pods are left.
    let old = facts.sets.get_mut("old").unwrap();
    (old.children, old.remains) = (Vec::new(), 1);
    status.rollout = None;
    set_status::refresh_retiring(&mut status, &facts, later(4));
    assert_eq!(listed(&status), ["old", "v2"]);
    facts.sets.remove("old");
    set_status::refresh_retiring(&mut status, &facts, later(5));
    assert_eq!(listed(&status), ["v2"]);
    // If a plan has failed, or nobody knows which set serves, nothing is added.
    for (outcome, undecided, expected) in
        [("Failed", None, 0), ("Aborted", None, 1), ("", None, 1), ("", Some("which?"), 0)]
    {
        let mut status = at_rest(&facts);
        status.rejected =
            (!outcome.is_empty()).then(|| Rejected { outcome: outcome.to_owned(), ..Rejected::default() });
        let facts = facts.clone().with(|f| {
            f.findings.undecided = undecided.map(str::to_owned);
            f.rollout.now = Rollout::None;
        });
        set_status::refresh_retiring(&mut status, &facts, now());
        assert_eq!(status.retiring.len(), expected, "{outcome} {undecided:?}");
    }
    let mut rolling = status_of(&facts, Strategy::BlueGreen, Stage::AwaitingEntrants);
    rolling.rejected = Some(Rejected { outcome: "Failed".to_owned(), ..Rejected::default() });
    facts.sets.insert("old".into(), SetFacts { children: fleet(1).children, ..SetFacts::default() });
    set_status::refresh_retiring(&mut rolling, &facts, now());
    assert_eq!(listed(&rolling), ["old"], "a rollout is under way: somebody has asked for something");
}

#[test]
fn incumbents_halt_only_during_promotion_at_a_height() {
    for stage in STAGES {
        for halt_height in [0, 1000] {
            let rollout = SetRollout { halt_height, ..rollout_of(&amid(Strategy::HardFork, stage)) };
            let halts = stage == Stage::Promoting && halt_height == 1000;
            assert_eq!(rollout.is_halting(), halts, "{stage:?} {halt_height}");
        }
    }
}

#[test]
fn node_with_any_halt_request_is_recognized() {
    let with = |halt_height, halted_for: &str| {
        let halted_for = TaskId::recorded(halted_for);
        let sidecar = SidecarFacts { halted_for, halt_height, ..SidecarFacts::default() };
        node(0).with(|f| f.sidecar = Some(sidecar))
    };
    assert!(with(1000, "").halt_is_requested());
    assert!(with(0, "task").halt_is_requested(), "it has halted, and is not asked any more");
    assert!(!with(0, "").halt_is_requested());
    assert!(!node(0).halt_is_requested());
}

#[test]
fn restart_requested_during_a_rollout_follows_promotion() {
    let restart_request = Some("2030-01-01T00:00:00Z".into());
    let facts =
        amid(Strategy::BlueGreen, Stage::AwaitingEntrants).with(|f| f.requests.restart = restart_request);
    let mut status = status_of(&facts, Strategy::BlueGreen, Stage::AwaitingEntrants);
    let mut plan = plan_to("v2");
    plan.tasks[0].message = "waiting for the world".to_owned();
    status.plan = Some(crate::api::RawPlan::of(&plan));
    let message = look(status, &facts, 5).rollout.unwrap().message;
    assert_eq!(
        message,
        "waiting for the world; the restart requested at 2030-01-01T00:00:00Z follows the promotion"
    );
}

#[test]
fn pending_entrants_are_not_unconverged_during_retirement() {
    let mut facts = amid(Strategy::BlueGreenImmediate, Stage::Promoting);
    facts.sets.clear();
    let named = |task: &str, stage| {
        let mut status = status_of(&facts, Strategy::BlueGreenImmediate, stage);
        let recipe = format!("{{name: X, tasks: [{{type: {task}}}]}}");
        let seed = PlanSeed { uid: "u", target_hash: "v2", now: now(), attempt: 0, disambiguator: "" };
        status.plan = Some(crate::api::RawPlan::of(&Recipe::parse(&recipe).unwrap().plan(seed)));
        look(status, &facts, 5).rollout.unwrap().unconverged.len()
    };
    assert_eq!(named("retire-incumbents", Stage::Promoting), 0);
    assert_eq!(named("create-entrants", Stage::Promoting), 2);
    assert_eq!(named("retire-incumbents", Stage::CreatingEntrants), 0, "it waits for the Service");
}

/// Somebody else's object, or a finalizer, may keep it away for hours.
#[test]
fn clock_stops_while_only_the_service_is_missing() {
    let fork = |running: bool| {
        let mut facts = amid(Strategy::HardFork, Stage::CreatingEntrants).with(|f| f.spec.halt_height = 1000);
        for child in &mut facts.children {
            child.sidecar = Some(SidecarFacts { height: Some(0), ..SidecarFacts::default() });
        }
        facts.sets.get_mut("v2").unwrap().children[1].pod.ready = running;
        facts
    };
    let old_first = |stage| amid(Strategy::BlueGreenImmediate, stage);
    for (what, facts, strategy, stands) in [
        ("old nodes first", old_first(Stage::CreatingEntrants), Strategy::BlueGreenImmediate, true),
        ("old nodes first, promoting", old_first(Stage::Promoting), Strategy::BlueGreenImmediate, false),
        ("hard fork", fork(true), Strategy::HardFork, true),
        ("hard fork, a new node does not run", fork(false), Strategy::HardFork, false),
        ("blue-green", amid(Strategy::BlueGreen, Stage::AwaitingEntrants), Strategy::BlueGreen, false),
    ] {
        let stage = rollout_of(&facts).stage;
        let lacking = facts.clone().with(|f| f.service.is_missing = true);
        let status = look(status_of(&lacking, strategy, stage), &lacking, 100);
        assert_eq!(stall_deadline(&status, &lacking, now()).is_none(), stands, "{what}");
        assert_eq!(is_stalled(&status, &lacking, later(700)), !stands, "{what}");
        if stands {
            // The time for which it waited does not count.
            let there = look(status, &facts, 9_000);
            assert_eq!(stall_deadline(&there, &facts, now()), Some(later(9_600)), "{what}");
        }
    }
}

#[test]
fn only_hard_fork_records_a_halt_height_at_no_return() {
    for (strategy, height) in
        [(Strategy::HardFork, 1000), (Strategy::BlueGreen, 0), (Strategy::BlueGreenImmediate, 0)]
    {
        let facts = amid(strategy, Stage::AwaitingEntrants).with(|f| f.spec.halt_height = 1000);
        let mut status = status_of(&facts, strategy, Stage::AwaitingEntrants);
        set_status::pass_no_return(&mut status, &facts);
        let rollout = status.rollout.unwrap();
        assert_eq!((rollout.stage, rollout.halt_height), (Stage::Promoting, height), "{strategy:?}");
    }
}

#[test]
fn entrant_and_active_sets_are_not_listed_as_retiring() {
    let mut facts = amid(Strategy::BlueGreen, Stage::AwaitingEntrants);
    facts.sets.insert(SetName::FIRST, SetFacts { remains: 1, ..SetFacts::default() });
    let mut status = status_of(&facts, Strategy::BlueGreen, Stage::AwaitingEntrants);
    let goes = |set: &str| RetiringSet {
        set: set.to_owned(),
        hash: "v1".to_owned(),
        build_id: String::new(),
        since: now(),
        unpromoted: false,
        served: false,
        halt_height: 0,
    };
    status.retiring = vec![goes("v2"), goes("first"), goes("gone")];
    set_status::refresh_retiring(&mut status, &facts, now());
    assert_eq!(status.retiring, []);
}
