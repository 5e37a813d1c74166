//! Regression tests for bugs that occurred on a real control plane.

use chrono::{TimeZone, Utc};

use super::problem::pod_facts;
use super::{
    LiveStatefulSet, NodeDecision, NodeFacts, PodFacts, RenderedTarget, Running, StatefulSetFact, Template,
    decide,
};
use crate::api::{PodTemplateHash, Problem};
use crate::engine::{Plan, PlanState};
use crate::observed::{ContainerState, Meta, ObservedPod};
use crate::planner::growth::Growth;

fn new_node(observed: bool) -> NodeFacts {
    let hash = PodTemplateHash::from("v1:aa");
    NodeFacts {
        wanted: Ok(RenderedTarget { hash: hash.clone(), image: "db:1".to_owned() }),
        granted_hash: Some(hash.clone()),
        grant_id: None,
        spent_grant_id: None,
        set: StatefulSetFact::Live(LiveStatefulSet {
            uid: "set".to_owned(),
            generation: 1,
            template: Template::At(hash),
            observed,
            replicas: 1,
            update_revision: if observed { "r1".to_owned() } else { String::new() },
            known_revisions: Vec::new(),
            made_for: None,
            template_digest: String::new(),
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
        refused: None,
        awaits: None,
        previous: Running::default(),
        terminating: false,
        suspended: false,
        removal_id: None,
        move_: None,
        growth: Growth::Done,
    }
}

fn plan() -> Plan {
    let now = Utc.timestamp_opt(0, 0).single().expect("a time");
    Plan {
        id: "0123456789".into(),
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
fn ready_pod_of_an_unobserved_set_does_not_end_plan() {
    let now = Utc.timestamp_opt(1, 0).single().expect("a time");
    for observed in [false, true] {
        assert_eq!(decide(&new_node(observed), Some(&plan()), now), NodeDecision::Keep, "{observed}");
    }
}

#[test]
fn problem_of_a_never_started_pod_keeps_its_start_time() {
    let (began, now) = (Utc.timestamp_opt(1, 0).single(), Utc.timestamp_opt(60, 0).single());
    let (began, now) = (began.expect("a time"), now.expect("a time"));
    let waiting = Some(("ImagePullBackOff".to_owned(), "not found".to_owned()));
    let container = ContainerState { name: "db".to_owned(), waiting, ..ContainerState::default() };
    let meta = Meta { uid: "new".to_owned(), ..Meta::default() };
    let pod = ObservedPod { meta, containers: vec![container], ..ObservedPod::default() };
    let before = Problem {
        reason: "ImagePullBackOff".to_owned(),
        message: "not found".to_owned(),
        since: began,
        container: "db".to_owned(),
        pod_uid: "new".to_owned(),
        ..Problem::default()
    };
    let facts = pod_facts(&pod, "", None, Some(&before), None, now);
    assert_eq!(facts.problem, Some(before), "else every look at it would be a write");
}
