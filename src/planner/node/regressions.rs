//! What went wrong once on a real control plane.

use chrono::{TimeZone, Utc};

use super::{LiveSet, NodeDecision, NodeFacts, PodFacts, Running, SetFact, Template, Wanted, decide};
use crate::engine::{Plan, PlanState};

fn new_node(observed: bool) -> NodeFacts {
    let hash = "v1:aa".to_owned();
    NodeFacts {
        wanted: Ok(Wanted { hash: hash.clone(), image: "db:1".to_owned() }),
        granted_hash: hash.clone(),
        grant_id: String::new(),
        spent_grant_id: String::new(),
        set: SetFact::Live(LiveSet {
            uid: "set".to_owned(),
            generation: 1,
            template: Template::At(hash),
            observed,
            update_revision: if observed { "r1".to_owned() } else { String::new() },
            main_image: "db:1".to_owned(),
        }),
        pod: Some(PodFacts {
            uid: "pod".to_owned(),
            revision: "r1".to_owned(),
            owned: true,
            ready: true,
            running: true,
            main_image: "db:1".to_owned(),
            ..PodFacts::default()
        }),
        previous: Running::default(),
        terminating: false,
        suspended: false,
    }
}

fn plan() -> Plan {
    let now = Utc.timestamp_opt(0, 0).single().expect("a time");
    Plan {
        id: "0123456789".to_owned(),
        recipe: "NodeUpdate".to_owned(),
        target_hash: "v1:aa".to_owned(),
        state: PlanState::Active,
        started_at: now,
        finished_at: None,
        attempt: 0,
        retry_at: None,
        tasks: Vec::new(),
        failure: String::new(),
    }
}

#[test]
fn a_pod_that_is_ready_before_its_stateful_sets_status_is_seen_does_not_end_the_first_plan() {
    let now = Utc.timestamp_opt(1, 0).single().expect("a time");
    for observed in [false, true] {
        assert_eq!(decide(&new_node(observed), Some(&plan()), now), NodeDecision::Keep, "{observed}");
    }
}
