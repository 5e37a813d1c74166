//! BlueGreen without interruptions.

use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use windlass_sim::{Before, Failure, FaultPlan, NoFaults, RequestInfo};

use super::world::{
    CLAIM, NODE, blue_green, condition, fleet, is_up_to_date, play, set_of, stage_is, text, to_text,
    with_sidecar,
};

#[test]
fn a_new_set_is_made_takes_over_in_one_write_and_the_old_one_goes_after_its_delay() {
    play(|w| async move {
        let first = w.serve(blue_green(3, json!({"retireDelaySeconds": 30}))).await;
        assert_eq!(w.names(NODE), ["db-0", "db-1", "db-2"]);
        assert_eq!(w.selected(), "first");
        let incumbents: Vec<_> = w.names(NODE).iter().map(|n| w.get(NODE, n)["spec"].clone()).collect();
        w.image("db:2").await;
        let switched = w.until("traffic moved", stage_is("Retiring")).await;
        let set = set_of(text(&switched, "lastCompletedRolloutHash"));
        assert_ne!(text(&switched, "lastCompletedRolloutHash"), first);
        assert_eq!(switched["activeSet"], set.as_str());
        assert_eq!(w.selected(), set);
        assert_eq!(condition(&switched, "UpToDate"), "True/Applied");
        assert_eq!(condition(&switched, "RolloutInProgress"), "True/TemplateChanged");
        assert_eq!(w.names(NODE).len(), 6, "the old nodes live on");
        let after: Vec<_> = (0..3).map(|n| w.get(NODE, &format!("db-{n}"))["spec"].clone()).collect();
        assert_eq!(after, incumbents, "incumbents are not touched");
        let switched_at = w.cluster.clock().now();
        let done = w.until("the old set is gone", is_up_to_date).await;
        assert!((w.cluster.clock().now() - switched_at).num_seconds() >= 29);
        let names: Vec<String> = (0..3).map(|n| format!("db-{set}-{n}")).collect();
        assert_eq!(w.names(NODE), names);
        assert_eq!(condition(&done, "RolloutInProgress"), "False/RolloutComplete");
        assert_eq!(
            w.stages(),
            ["CreatingEntrants", "AwaitingEntrants", "AwaitingPromotion", "Promoting", "Retiring"]
        );
        assert_eq!(w.names(CLAIM).len(), 6, "each set has claims of its own, and those of the old one stay");
        assert!(w.images().iter().all(|i| i.ends_with("db:2")), "{:?}", w.images());
        assert_eq!(done["selector"], format!("windlass.dev/deployment=db,windlass.dev/set={set}").as_str());
        w.is_at_rest().await;
        assert_eq!(w.events("Promoted").len(), 1);
        assert_eq!(w.events("RolloutComplete").len(), 1);
    });
}

#[test]
fn where_no_name_is_free_for_a_set_that_is_said_and_nothing_is_harmed() {
    play(|w| async move {
        w.serve(blue_green(1, json!({"promotion": "Manual"}))).await;
        w.image("db:2").await;
        let ready = w.until("it is made", |s| condition(s, "UpToDate") == "Unknown/ReadyToPromote").await;
        let set = text(&ready["rollout"], "entrantSet").to_owned();
        w.image("db:1").await;
        w.until("it is given up", |s| is_up_to_date(s) && w.names(NODE) == ["db-0"]).await;
        for number in 2..=99 {
            w.create(json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim",
                "metadata": {"name": format!("data-db-{set}-{number}-0-0")},
                "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}))
                .await;
        }
        w.image("db:2").await;
        let refused = w.until("it is refused", |s| condition(s, "UpToDate") == "False/InvalidSpec").await;
        let said =
            refused["conditions"].as_array().unwrap().iter().find(|c| c["type"] == "UpToDate").unwrap();
        assert!(text(said, "message").starts_with("no name is free for a new set"), "{said}");
        assert!(refused["rollout"].is_null());
        assert_eq!(w.events("InvalidSpec").len(), 1);
        w.rest(120).await;
        assert_eq!(w.names(NODE), ["db-0"]);
        assert_eq!(w.images(), ["db-0-0 db:1"]);
        // Changes unrelated to the new set apply.
        w.change(json!({"replicas": 2})).await;
        w.until("it grows", |s| s["readyReplicas"] == 2).await;
        assert_eq!(w.images(), ["db-0-0 db:1", "db-1-0 db:1"]);
        w.delete(CLAIM, &format!("data-db-{set}-7-0-0")).await;
        let made = w.until("a name is free", |s| !s["rollout"].is_null()).await;
        assert_eq!(made["rollout"]["entrantSet"], format!("{set}-7").as_str());
    });
}

#[test]
fn names_of_another_fleet_are_no_obstacle_and_are_not_touched() {
    play(|w| async move {
        w.serve(blue_green(1, json!({"promotion": "Manual", "retireDelaySeconds": 1}))).await;
        w.image("db:2").await;
        let made = w.until("it is made", |s| condition(s, "UpToDate") == "Unknown/ReadyToPromote").await;
        let set = text(&made["rollout"], "entrantSet").to_owned();
        w.image("db:1").await;
        w.until("it is given up", |s| is_up_to_date(s) && w.names(NODE) == ["db-0"]).await;
        // A fleet whose nodes have the names of a set of db.
        let mut other = blue_green(1, json!({}));
        other["metadata"]["name"] = json!(format!("db-{set}-2"));
        w.create(other).await;
        let theirs = format!("db-{set}-2-0");
        w.until("it is there", |_| w.names(NODE).contains(&theirs)).await;
        let uid = w.get(NODE, &theirs)["metadata"]["uid"].clone();
        w.image("db:2").await;
        let made = w.until("it is made", |s| condition(s, "UpToDate") == "Unknown/ReadyToPromote").await;
        assert_eq!(made["rollout"]["entrantSet"], format!("{set}-3").as_str());
        w.change(json!({"forcePromote": made["requestedRolloutHash"]})).await;
        w.until("it is over", |s| is_up_to_date(s) && s["activeSet"] != "first").await;
        assert_eq!(w.get(NODE, &theirs)["metadata"]["uid"], uid);
    });
}

#[test]
fn caught_up_is_waited_for_where_there_is_a_sidecar() {
    play(|w| async move {
        w.serve(with_sidecar(blue_green(2, json!({})))).await;
        w.applications.catch_up(false);
        w.image("db:2").await;
        w.until("entrants are ready", |s| text(&s["rollout"], "message").contains("catch up")).await;
        w.rest(60).await;
        assert_eq!(w.status()["rollout"]["stage"], "AwaitingEntrants");
        assert_eq!(w.selected(), "first");
        w.applications.catch_up(true);
        w.until("traffic moved", stage_is("Retiring")).await;
        let done = w.until("it is over", is_up_to_date).await;
        for name in w.names(NODE) {
            w.until("nobody is watched any more", |_| {
                w.get(NODE, &name)["spec"]["watchSidecar"].as_bool() != Some(true)
            })
            .await;
        }
        assert_eq!(done["activeSet"], w.selected().as_str());
        w.is_at_rest().await;
    });
}

/// Fails the first lists of volume claims, and counts them.
struct NoList(Arc<Mutex<usize>>, usize);

impl FaultPlan for NoList {
    fn before(&mut self, request: &RequestInfo) -> Before {
        if request.verb == "list" && request.resource.starts_with("persistentvolumeclaims") {
            let mut asked = self.0.lock().unwrap();
            *asked += 1;
            return if *asked <= self.1 { Before::Fail(Failure::Unavailable) } else { Before::Pass };
        }
        Before::Pass
    }
}

#[test]
fn while_names_cannot_be_listed_that_is_said_and_all_other_care_of_the_fleet_goes_on() {
    play(|w| async move {
        w.serve(blue_green(2, json!({}))).await;
        let asked: Arc<Mutex<usize>> = Arc::default();
        w.cluster.set_faults(Box::new(NoList(asked.clone(), usize::MAX)));
        w.image("db:2").await;
        w.until("it is said", |s| condition(s, "UpToDate") == "False/InvalidSpec").await;
        w.change(json!({"replicas": 3})).await;
        w.until("it grows", |s| s["readyReplicas"] == 3).await;
        w.delete(NODE, "db-0").await;
        w.until("what is lost is made again", |s| s["readyReplicas"] == 3 && w.names(NODE).len() == 3).await;
        w.delete(("apps/v1", "StatefulSet"), "db-1").await;
        w.rest(120).await;
        assert_eq!(w.images(), ["db-0-0 db:1", "db-1-0 db:1", "db-2-0 db:1"]);
        let asked = *asked.lock().unwrap();
        assert!((3..=10).contains(&asked), "it is asked again after a while, not at each look: {asked}");
        w.cluster.set_faults(Box::new(NoFaults));
        w.until("it goes on", |s| is_up_to_date(s) && s["activeSet"] != "first").await;
    });
}

#[test]
fn what_was_never_available_long_enough_never_completed_and_is_changed_where_it_is() {
    let hard_fork = json!({"type": "HardFork", "hardFork": {"haltHeight": 10}});
    for fleet in [fleet(2, json!({"type": "BlueGreen"})), with_sidecar(fleet(2, hard_fork))] {
        play(|w| async move {
            let mut fleet = fleet;
            fleet["spec"]["minReadySeconds"] = json!(60);
            w.create(fleet).await;
            w.until("they are ready, and not yet for long enough", |s| s["readyReplicas"] == 2).await;
            assert!(w.status()["lastCompletedRolloutHash"].is_null());
            w.image("db:2").await;
            let done = w.until("it is complete", is_up_to_date).await;
            assert_eq!(w.images(), ["db-0-0 db:2", "db-1-0 db:2"], "no second set");
            assert_eq!((text(&done, "activeSet"), w.events("NodeCreated").len()), ("first", 2));
            // A completed set is not changed any more.
            w.image("db:3").await;
            w.until("a set is made", |_| w.names(NODE).len() == 4).await;
        });
    }
}

#[test]
fn what_was_available_long_enough_has_completed_although_nobody_was_there_to_say_so() {
    play(|w| async move {
        let mut fleet = fleet(2, json!({"type": "BlueGreen", "blueGreen": {"promotion": "Manual"}}));
        fleet["spec"]["minReadySeconds"] = json!(60);
        w.create(fleet).await;
        w.until("they are ready", |s| s["readyReplicas"] == 2).await;
        w.kill_operator();
        w.rest(120).await;
        w.image("db:2").await;
        w.start_operator();
        let status = w.until("a set is made", |_| w.names(NODE).len() == 4).await;
        assert_eq!(status["rollout"]["incumbentSet"], "first");
    });
}

/// Forbids the operator to create nodes.
struct NoNode;

impl FaultPlan for NoNode {
    fn before(&mut self, request: &RequestInfo) -> Before {
        let is_it = request.verb == "create" && request.resource.starts_with("statefulnodes");
        if is_it && request.user_agent == "windlass" {
            return Before::Fail(Failure::Forbidden("no".to_owned()));
        }
        Before::Pass
    }
}

#[test]
fn a_fleet_whose_name_is_too_long_for_its_next_set_says_so_with_what_to_do() {
    play(|w| async move {
        let name = format!("db-{}", "a".repeat(36));
        let mut fleet = blue_green(1, json!({"promotion": "Manual"}));
        fleet["metadata"]["name"] = json!(name);
        let of = || w.get(("windlass.dev/v1alpha1", "NodeDeployment"), &name)["status"].clone();
        let until = async |holds: &dyn Fn(&Value) -> bool| {
            for _ in 0..1200 {
                if holds(&of()) {
                    return of();
                }
                w.rest(1).await;
            }
            panic!("waited in vain: {:#}", of());
        };
        w.create(fleet).await;
        until(&|s| is_up_to_date(s)).await;
        let change = async |spec: Value| {
            let patch = kube::api::Patch::Merge(json!({"spec": spec}));
            w.fleets().patch(&name, &kube::api::PatchParams::default(), &patch).await.unwrap();
        };
        change(json!({"template": {"spec": {"image": "db:2"}}})).await;
        let made = until(&|s| stage_is("AwaitingPromotion")(s)).await;
        let set = text(&made["rollout"], "entrantSet").to_owned();
        change(json!({"template": {"spec": {"image": "db:1"}}})).await;
        until(&|s| is_up_to_date(s) && w.names(NODE).len() == 1).await;
        // Nine sets of this name have left claims; node names of the tenth would be too long from the thousandth on.
        for number in 2..=9 {
            w.create(json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim",
                "metadata": {"name": format!("data-{name}-{set}-{number}-0-0")},
                "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}))
                .await;
        }
        w.cluster.set_faults(Box::new(NoNode));
        change(json!({"replicas": 1001, "template": {"spec": {"image": "db:2"}}})).await;
        let refused = until(&|s| condition(s, "UpToDate") == "False/InvalidSpec").await;
        let all = refused["conditions"].as_array().unwrap();
        let said = text(all.iter().find(|c| c["type"] == "UpToDate").unwrap(), "message");
        assert!(said.starts_with("metadata.name: ") && said.contains("53 characters"), "{said}");
        assert!(said.contains("shorter name") && said.contains("remove what is left"), "{said}");
        assert!(refused["rollout"].is_null());
        w.rest(60).await;
        assert_eq!(w.images(), [format!("{name}-0-0 db:1")], "what runs is left alone");
        w.cluster.set_faults(Box::new(NoFaults));
        change(json!({"replicas": 1})).await;
        let made = until(&|s| stage_is("AwaitingPromotion")(s)).await;
        assert_eq!(made["rollout"]["entrantSet"], format!("{set}-10").as_str());
    });
}

#[test]
fn names_that_could_not_be_listed_for_a_moment_are_asked_for_again_soon_and_are_no_fault_of_the_spec() {
    play(|w| async move {
        w.serve(blue_green(2, json!({}))).await;
        w.cluster.set_faults(Box::new(NoList(Arc::default(), 1)));
        w.image("db:2").await;
        let status = w.until("it is said", |s| to_text(s).contains("cannot be named now")).await;
        assert_eq!(condition(&status, "Stalled"), "False/Progressing");
        assert_eq!(condition(&status, "Reconciling"), "True/Progressing");
        assert_eq!(condition(&status, "UpToDate"), "Unknown/Applying");
        let said_at = w.cluster.clock().now();
        w.until("it begins", |s| s["rollout"].is_object()).await;
        assert!((w.cluster.clock().now() - said_at).num_seconds() < 10);
        w.until("it is over", |s| is_up_to_date(s) && s["activeSet"] != "first").await;
        assert!(w.events("InvalidSpec").is_empty());
        w.is_at_rest().await;
    });
}
