//! A node's status stays small, whatever kubelets, API servers and sidecars write.

use serde_json::json;

use super::super::problem::pod_facts;
use super::super::status::{SidecarAnswer, StatusInput, status};
use super::*;
use crate::api::status::remember;
use crate::api::{HistoryEntry, StatefulNodeStatus};
use crate::engine::sentence::{MAX_FAILURE_BYTES, MAX_MESSAGE_BYTES, cut};
use crate::observed::{Observed, ObservedPod};

#[test]
fn status_of_node_with_very_long_problems_stays_under_16_kib() {
    let endless = "é".repeat(50_000);
    let object = json!({
        "metadata": {"name": "db-0-0", "uid": "pod-1", "labels": {"controller-revision-hash": "db-0-v2"},
            "ownerReferences": [{"kind": "StatefulSet", "name": "db-0", "uid": "set-uid", "controller": true}]},
        "spec": {"containers": [{"name": "db", "image": "i".repeat(512)}]},
        "status": {"containerStatuses": [{"name": "db", "state": {"waiting": {"reason": "ImagePullBackOff", "message": endless}}}]},
    });
    let pod = pod_facts(&ObservedPod::read(&object), "db", Some("set-uid"), None, None, now());
    let facts = node().granted("v2").with_template("v2").with_pod(pod);

    let mut previous = StatefulNodeStatus::default();
    for _ in 0..30 {
        let failure = cut(&endless, MAX_FAILURE_BYTES);
        let hash = format!("v1:{}", "0".repeat(64));
        remember(
            &mut previous.history,
            HistoryEntry {
                plan_id: "0123456789".to_owned(),
                recipe: "NodeUpdate".to_owned(),
                from_hash: hash.clone(),
                target_hash: hash,
                outcome: "Failed".to_owned(),
                reason: failure,
                message: String::new(),
                started_at: Some(now()),
                finished_at: Some(now()),
            },
        );
    }
    let yaml = "{name: NodeUpdate, tasks: [{type: a}, {type: b}, {type: c}, {type: d}, {type: e}]}";
    let seed = PlanSeed { uid: "uid", target_hash: "v2", now: now(), attempt: 0, disambiguator: "" };
    let mut plan = Recipe::parse(yaml).unwrap().plan(seed);
    plan.tasks[0].message = cut(&endless, MAX_MESSAGE_BYTES);
    for state in [PlanState::Active, PlanState::Failed] {
        let plan = Plan { state, failure: cut(&endless, MAX_FAILURE_BYTES), ..plan.clone() };
        let input = StatusInput {
            previous: &previous,
            generation: 7,
            plan: Some(&plan),
            raw_plan: None,
            sidecar: &SidecarAnswer::Unreachable(endless.clone()),
            invalid: Some(&endless),
            not_applied: None,
            set_name: "db-0",
            restarted_at: Some(&"2030-01-01T00:00:00Z".into()),
            claims: Some(true),
            has_claims: false,
            now: now(),
        };
        let bytes = serde_json::to_string(&status(&facts, &input)).unwrap().len();
        assert!(bytes < 16 * 1024, "{state:?}: {bytes} bytes");
    }
}
