//! Patches that were decided on an outdated state, and remove what is gone by now.

use serde_json::json;
use windlass_sim::{After, EventInfo, Failure, FaultPlan, NoFaults, RequestInfo, WatchFate};

use super::sets::world::{NODE, SET, World, condition, fleet, is_up_to_date, play};

const NODES: &str = "statefulnodes.windlass.dev";

/// The answer to the operator's next patch of a node is lost, and the operator hears nothing of nodes any more.
#[derive(Default)]
struct LostAnswer {
    is_lost: bool,
}

impl FaultPlan for LostAnswer {
    fn after(&mut self, request: &RequestInfo, _: u16) -> After {
        let is_of_node = request.resource == NODES && request.subresource.is_empty();
        if self.is_lost || request.user_agent != "windlass" || request.verb != "patch" || !is_of_node {
            return After::Pass;
        }
        self.is_lost = true;
        After::Fail(Failure::Disconnect)
    }

    fn event(&mut self, watch: &RequestInfo, _: &EventInfo<'_>) -> WatchFate {
        let is_heard = watch.user_agent != "windlass" || watch.resource != NODES;
        if is_heard { WatchFate::Show } else { WatchFate::Silent }
    }
}

/// How many patches of nodes the API server could not apply.
fn unapplied(w: &World) -> usize {
    let audit = w.cluster.audit();
    let patches = audit.iter().filter(|e| e.verb == "patch" && e.resource == NODES);
    patches.filter(|e| e.code == 422).count()
}

#[test]
fn repeated_label_removal_is_not_blamed_on_the_spec() {
    play(|w| async move {
        let mut fleet = fleet(1, json!({"type": "InPlace"}));
        fleet["spec"]["template"]["metadata"] = json!({"labels": {"team": "one"}});
        w.serve(fleet).await;
        assert_eq!(w.get(NODE, "db-0")["metadata"]["labels"]["team"], "one");
        w.rest(10).await;
        w.cluster.set_faults(Box::new(LostAnswer::default()));
        w.change(json!({"template": {"metadata": {"labels": {"team": null}}}})).await;
        w.rest(15).await;
        assert!(unapplied(&w) > 0, "it is removed once more");
        w.cluster.set_faults(Box::new(NoFaults));
        w.rest(120).await;
        for kind in [NODE, SET] {
            assert!(w.get(kind, "db-0")["metadata"]["labels"]["team"].is_null(), "{kind:?}");
        }
        w.until("all is well", is_up_to_date).await;
        assert_eq!(w.events("InvalidSpec"), Vec::<String>::new());
        for (_, fleet) in w.seen_objects() {
            let status = &fleet["status"];
            assert_ne!(condition(status, "UpToDate"), "False/InvalidSpec", "{status:#}");
            assert!(!condition(status, "Stalled").starts_with("True"), "{status:#}");
        }
        w.is_at_rest().await;
    });
}
