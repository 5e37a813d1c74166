//! BlueGreen without interruptions.

use std::sync::{Arc, Mutex};

use serde_json::json;
use windlass_sim::{Before, Failure, FaultPlan, NoFaults, RequestInfo};

use super::world::{
    CLAIM, NODE, blue_green, condition, fleet, is_up_to_date, play, set_of, stage_is, text, to_text,
    with_sidecar,
};

#[test]
fn new_set_takes_over_and_old_one_is_deleted_after_the_delay() {
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
fn failing_name_list_blocks_only_new_sets() {
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
fn set_that_was_never_available_is_updated_in_place() {
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
fn transient_name_list_failure_is_not_blamed_on_the_spec() {
    play(|w| async move {
        w.serve(blue_green(2, json!({}))).await;
        w.cluster.set_faults(Box::new(NoList(Arc::default(), 1)));
        w.image("db:2").await;
        let status = w.until("it is said", |s| to_text(s).contains("could not choose a name")).await;
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
