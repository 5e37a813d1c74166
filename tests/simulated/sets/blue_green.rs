//! BlueGreen as it goes when nothing comes between.

use serde_json::json;

use super::world::{
    CLAIM, NODE, blue_green, condition, is_up_to_date, play, set_of, stage_is, text, with_sidecar,
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
        assert_eq!(w.events("Promoted").len(), 1);
        assert_eq!(w.events("RolloutComplete").len(), 1);
        w.is_at_rest().await;
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
