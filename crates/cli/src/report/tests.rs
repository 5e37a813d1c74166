//! Reports of fleets in every state.
#![allow(clippy::needless_pass_by_value, clippy::must_use_candidate, reason = "as tests read best")]

use std::collections::BTreeMap;
use std::sync::Arc;

use chrono::{DateTime, Utc};
use serde_json::{Value, json};

use super::fleet::Wave;
use super::*;
use windlass_kube_port::observed::Observed;

const NOW: &str = "2026-01-01T04:15:11Z";

fn now() -> DateTime<Utc> {
    NOW.parse().unwrap()
}

fn merged(mut into: Value, changes: Value) -> Value {
    json_patch::merge(&mut into, &changes);
    into
}

/// A fleet of five whose rollout to 1.2 is at its second wave.
pub fn fleet() -> Value {
    let task = |index: u32, type_: &str, state: &str| json!({"id": format!("495ff12537-{index}"), "type": type_, "state": state});
    json!({
        "metadata": {"name": "db", "namespace": "prod", "uid": "fleet", "generation": 3, "resourceVersion": "9"},
        "spec": {"replicas": 5, "minReadySeconds": 4,
            "template": {"spec": {"image": "registry.example/db:1.2", "podTemplate": {"spec": {"containers": [{"name": "db"}]}}}},
            "updateStrategy": {"type": "InPlace", "inPlace": {"maxUnavailable": 2}, "progressDeadlineSeconds": 600}},
        "status": {"observedGeneration": 3, "phase": "Upgrading", "replicas": 5, "activeSet": "first",
            "rollout": {"strategy": "InPlace", "cause": "TemplateChanged", "stage": "Updating",
                "startedAt": "2026-01-01T04:11:01Z", "lastProgressAt": "2026-01-01T04:12:09Z",
                "nodes": {"total": 5, "updated": 2, "ready": 3, "disrupted": 2, "failed": 1}, "summary": "Updating 2/5",
                "unconverged": [{"name": "db-2", "reason": "ImagePullBackOff", "message": "Back-off pulling image \"db:1.2\"",
                    "since": "2026-01-01T04:12:09Z"}],
                "message": "waiting for db-2: ImagePullBackOff: Back-off pulling image \"db:1.2\""},
            "plan": {"id": "495ff12537", "recipe": "InPlace", "targetHash": "v1:a", "state": "Active",
                "startedAt": "2026-01-01T04:11:01Z", "tasks": [task(0, "update-node-specs", "Complete"),
                    task(1, "await-spec-update", "Running"), task(2, "mark-ready", "Pending")]},
            "conditions": [condition("Ready", "False", "NodesFailed"), condition("UpToDate", "Unknown", "Applying"),
                condition("RolloutInProgress", "True", "TemplateChanged"), condition("Stalled", "False", "Progressing"),
                condition("Reconciling", "True", "Progressing")]}
    })
}

fn condition(type_: &str, status: &str, reason: &str) -> Value {
    json!({"type": type_, "status": status, "reason": reason, "message": "", "lastTransitionTime": "2026-01-01T04:00:00Z"})
}

fn node(ordinal: u32, granted: &str, runs: &str, ready: Option<&str>) -> Value {
    let image = |tag: &str| format!("registry.example/db:{tag}");
    let status = if ready.is_some() { "True" } else { "False" };
    json!({
        "metadata": {"name": format!("db-{ordinal}"), "namespace": "prod", "uid": format!("n{ordinal}"), "generation": 1,
            "resourceVersion": "5", "labels": {"windlass.dev/deployment": "db"}},
        "spec": {"image": image(granted), "grantedHash": granted, "podTemplate": {"spec": {"containers": [{"name": "db"}]}}},
        "status": {"observedGeneration": 1, "phase": "Running", "podTemplateHash": runs,
            "currentImage": if runs.is_empty() { String::new() } else { image(runs) },
            "conditions": [{"type": "Ready", "status": status, "reason": "NodeReady",
                "lastTransitionTime": ready.unwrap_or("2026-01-01T04:12:09Z")}]}
    })
}

/// Its nodes: two are done, one cannot pull its image, one has a terminating pod, one was not reached.
pub fn nodes() -> Vec<Value> {
    let done = |ordinal: u32| {
        let plan = json!({"id": "x", "recipe": "NodeUpdate", "state": "Complete", "targetHash": "1.2", "tasks": [],
            "startedAt": "2026-01-01T04:11:02Z", "finishedAt": "2026-01-01T04:12:02Z"});
        merged(node(ordinal, "1.2", "1.2", Some("2026-01-01T04:12:02Z")), json!({"status": {"plan": plan}}))
    };
    let problem = json!({"reason": "ImagePullBackOff", "message": "Back-off pulling image \"db:1.2\"",
        "since": "2026-01-01T04:12:09Z"});
    let moving = json!({"id": "y", "recipe": "NodeUpdate", "state": "Active", "targetHash": "1.2",
        "startedAt": "2026-01-01T04:14:58Z", "tasks": [
            {"id": "y-0", "type": "apply-stateful-set", "state": "Complete"},
            {"id": "y-1", "type": "replace-pod", "state": "Running", "startedAt": "2026-01-01T04:14:59Z",
                "message": "waiting for the old pod to terminate"}]});
    vec![
        node(0, "1.1", "1.1", Some("2026-01-01T03:00:00Z")),
        merged(node(1, "1.2", "1.1", None), json!({"status": {"phase": "Updating", "plan": moving}})),
        merged(node(2, "1.2", "", None), json!({"status": {"phase": "Failed", "problem": problem}})),
        done(3),
        done(4),
    ]
}

/// The fleet with these nodes.
pub fn seen(fleet: &Value, nodes: &[Value]) -> Seen {
    Seen {
        has_pods: true,
        fleet: Arc::new(Observed::read(fleet)),
        nodes: nodes.iter().map(|node| Arc::new(Observed::read(node))).collect(),
        pods: BTreeMap::new(),
        unread: Vec::new(),
    }
}

#[test]
fn paused_rollout_has_no_time_estimate() {
    let left = |changes: Value| report(changes).rollout.unwrap().about_left_seconds;
    let moving = json!({"status": {"rollout": {"nodes": {"failed": 0, "disrupted": 1}}}});
    assert!(left(moving.clone()).is_some());
    assert_eq!(left(merged(moving.clone(), json!({"spec": {"paused": true}}))), None);
    assert_eq!(left(merged(moving, json!({"status": {"rollout": {"progressPaused": true}}}))), None);
}

fn report(changes: Value) -> FleetReport {
    FleetReport::of(&seen(&merged(fleet(), changes), &nodes()), now())
}

#[test]
fn node_health_and_message_follow_its_plan_and_blockers() {
    let report = report(json!({}));
    let health: Vec<Health> = report.nodes.iter().map(|node| node.health).collect();
    assert_eq!(health, [Health::Before, Health::Moving, Health::Failed, Health::Serving, Health::Serving]);
    assert_eq!(report.nodes[1].message, "the old pod is terminating, 12s of 30s");
    assert_eq!(report.nodes[1].versions(""), "1.1 → 1.2");
    assert_eq!(report.nodes[2].versions(""), "→ 1.2");
    assert_eq!(report.nodes[2].versions("registry.example/db:1.1"), "1.1 → 1.2");
    assert_eq!(report.nodes[2].reason, "ImagePullBackOff");
}

#[test]
fn newly_ready_node_is_settling_until_available() {
    let mut nodes = nodes();
    nodes[3] = node(3, "1.2", "1.2", Some("2026-01-01T04:15:10Z"));
    let report = FleetReport::of(&seen(&fleet(), &nodes), now());
    assert_eq!(report.nodes[3].health, Health::Settling);
    assert_eq!(report.nodes[3].message, "ready; available in 3s");
}

#[test]
fn nonexistent_node_is_reported_from_fleet_status() {
    let missing = json!({"status": {"rollout": {"unconverged": [{"name": "db-2", "reason": "Missing",
        "message": "the node does not exist yet", "since": "2026-01-01T04:15:00Z"}]}}});
    let mut nodes = nodes();
    nodes.remove(2);
    let report = FleetReport::of(&seen(&merged(fleet(), missing), &nodes), now());
    let last = report.nodes.last().unwrap();
    assert_eq!((last.name.as_str(), last.health, last.set.as_str()), ("db-2", Health::Down, "first"));
}

#[test]
fn rollout_report_has_wave_and_remaining_time() {
    let report = report(json!({}));
    let rollout = report.rollout.clone().unwrap();
    assert_eq!(rollout.wave, Some(Wave { number: 2, of: 3 }));
    assert_eq!(rollout.elapsed_seconds, 250);
    assert_eq!(rollout.about_left_seconds, None, "no estimate for a node that cannot run");
    assert_eq!(rollout.from_image, "registry.example/db:1.1");
    assert_eq!(rollout.stalls_in_seconds, Some(418));
    assert_eq!(report.waiting(now()), "waiting for db-2: ImagePullBackOff for 3m02s (stalls in 6m58s)");
    let well = self::report(json!({"status": {"rollout": {"nodes": {"failed": 0}}}}));
    // Two waves of a minute each, and 4 s of `minReadySeconds`.
    assert_eq!(well.rollout.unwrap().about_left_seconds, Some(128));
}

#[test]
fn wave_is_in_progress_until_its_nodes_are_ready() {
    let mut nodes = nodes();
    // Observed at the target, and not Ready yet.
    nodes[3] = node(3, "1.2", "1.2", None);
    let wave = |nodes: &[Value]| FleetReport::of(&seen(&fleet(), nodes), now()).rollout.unwrap().wave;
    assert_eq!(wave(&nodes), Some(Wave { number: 1, of: 3 }));
    assert_eq!(wave(&[]), Some(Wave { number: 2, of: 3 }), "without nodes, the counts decide");
    let back = json!({"status": {"requestedRolloutHash": "v1:new", "rollout": {"targetHash": "v1:old"}}});
    let back = FleetReport::of(&seen(&merged(fleet(), back), &nodes), now()).rollout.unwrap().wave;
    assert_eq!(
        back,
        Some(Wave { number: 2, of: 3 }),
        "in a rollback, the available revision is not that of the spec"
    );
}

#[test]
fn report_names_the_set_that_receives_traffic() {
    let ready = Some("2026-01-01T03:00:00Z");
    let of_set = |ordinal: u32| {
        let named =
            json!({"metadata": {"name": format!("db-28c42-{ordinal}"), "uid": format!("s{ordinal}")}});
        merged(node(ordinal, "1.2", "1.2", ready), named)
    };
    let words = |nodes: &[Value]| -> Vec<String> {
        let report = FleetReport::of(&seen(&fleet(), nodes), now());
        let groups = report.serving();
        groups.iter().map(|(health, tag, count)| report.group_words(*health, tag, *count)).collect()
    };
    let old = [node(0, "1.1", "1.1", ready), node(1, "1.1", "1.1", ready)];
    assert_eq!(words(&old), ["2 nodes available at 1.1"]);
    let both = [old.as_slice(), &[of_set(0)]].concat();
    assert_eq!(
        words(&both),
        ["2 nodes available at 1.1, with traffic", "1 node available at 1.2, without traffic"]
    );

    let task = |type_: &str, state: &str, params: Value| json!({"id": "abc-0", "type": type_, "state": state, "params": params});
    let hook = json!({"hook": "look", "at": "AfterPromotion"});
    let tasks = [task("switch-traffic", "Complete", json!({})), task("await-approval", "Running", hook)];
    let switched = json!({"status": {
        "rollout": {"strategy": "BlueGreen", "stage": "Promoting", "incumbentSet": "first", "entrantSet": "28c42"},
        "plan": {"id": "abc", "recipe": "BlueGreen", "targetHash": "v1:28c42", "state": "Active",
            "startedAt": "2026-01-01T03:00:00Z", "tasks": tasks},
    }});
    let report = FleetReport::of(&seen(&merged(fleet(), switched), &both), now());
    let groups = report.serving();
    let words: Vec<String> =
        groups.iter().map(|(health, tag, count)| report.group_words(*health, tag, *count)).collect();
    assert_eq!(
        words,
        ["2 nodes available at 1.1, without traffic", "1 node available at 1.2, with traffic"],
        "traffic has moved although the promotion is not complete"
    );
}

#[test]
fn paused_fleet_shows_requester_and_reason() {
    let by = |paused: bool, verb: &str| {
        let asked = json!({"verb": verb, "by": "alice", "why": "vacuum first", "at": "2026-01-01T04:00:00Z"});
        let annotations = json!({"windlass.dev/last-request": asked.to_string()});
        report(json!({"metadata": {"annotations": annotations}, "spec": {"paused": paused}})).paused_by
    };
    assert_eq!(by(true, "pause"), "alice: vacuum first");
    assert_eq!((by(false, "pause").as_str(), by(true, "restart").as_str()), ("", ""));
}

#[test]
fn ready_to_promote_shows_the_promote_command() {
    let asked = json!({"status": {"rollout": {"unconverged": null, "message": "set spec.forcePromote"},
        "conditions": conditions("Unknown/ReadyToPromote", "True", "False", "True")}});
    let report = report(asked);
    assert_eq!(
        report.waiting_for,
        "the new nodes are ready: windlass promote nd/db -n prod moves traffic to them"
    );
}

#[test]
fn unready_entrant_nodes_are_awaited_instead_of_promotion() {
    let asks = "the new nodes are ready: windlass promote nd/db -n prod moves traffic to them";
    for (up_to_date, progress_paused, reason, expected) in [
        ("Applying", false, "NotReady", "waiting for db-28c42-1: NotReady for 1m00s (stalls in 6m58s)"),
        ("Applying", false, "Missing", "waiting for db-28c42-1: Missing for 1m00s (stalls in 6m58s)"),
        ("Applying", true, "NotReady", "waiting for the fleet to be resumed"),
        // Somebody has skipped the wait for them.
        ("ReadyToPromote", true, "NotReady", asks),
    ] {
        let named =
            json!([{"name": "db-28c42-1", "reason": reason, "message": "", "since": "2026-01-01T04:14:11Z"}]);
        let status = json!({
            "rollout": {"stage": "AwaitingPromotion", "entrantSet": "28c42", "progressPaused": progress_paused,
                "unconverged": named, "message": "waiting for the fleet to be resumed"},
            "conditions": conditions(&format!("Unknown/{up_to_date}"), "True", "False", "True"),
        });
        assert_eq!(report(json!({"status": status})).waiting(now()), expected, "{up_to_date} {reason}");
    }
}

/// Nodes that are Ready and have not caught up are not listed, so the fleet's own message is what is said.
#[test]
fn lagging_entrant_nodes_show_no_promote_command() {
    let message = "waiting for db-28c42-1 to catch up, as reported by its sidecar; after that, a manual promotion is needed";
    let status = json!({
        "rollout": {"stage": "AwaitingPromotion", "entrantSet": "28c42", "unconverged": null, "message": message},
        "conditions": conditions("Unknown/Applying", "True", "False", "True"),
    });
    assert_eq!(report(json!({"status": status})).waiting_for, message);
}

#[test]
fn stopped_progress_clock_shows_no_stall_deadline() {
    let stopped = report(json!({"status": {"rollout": {"progressPaused": true}}}));
    assert_eq!(stopped.waiting(now()), "waiting for db-2: ImagePullBackOff for 3m02s");
    let stalled = report(json!({"status": {"rollout": {"lastProgressAt": "2026-01-01T04:00:00Z"}}}));
    assert!(stalled.waiting(now()).ends_with("(stalled)"), "{}", stalled.waiting(now()));
}

/// The conditions with these values of `UpToDate`, `Ready`, `Stalled` and `Reconciling`.
fn conditions(up_to_date: &str, ready: &str, stalled: &str, reconciling: &str) -> Value {
    let each =
        [("UpToDate", up_to_date), ("Ready", ready), ("Stalled", stalled), ("Reconciling", reconciling)];
    each.map(|(type_, text)| {
        let (status, reason) = text.split_once('/').unwrap_or((text, "X"));
        condition(type_, status, reason)
    })
    .to_vec()
    .into()
}

#[test]
fn verdict_and_exit_code_follow_the_conditions() {
    let gone = json!(null);
    let scaled = |completed: &Value| {
        json!({"replicas": 0, "rollout": gone, "requestedRolloutHash": "v1:b", "lastCompletedRolloutHash": completed,
        "conditions": conditions("Unknown/NotStarted", "True", "False", "False")})
    };
    let cases = [
        (
            "steady",
            json!({"rollout": gone, "conditions": conditions("True/Applied", "True", "False", "False")}),
            Verdict::UpToDate,
            0,
        ),
        (
            "applied, not ready",
            json!({"rollout": gone, "conditions": conditions("True/Applied", "False", "False", "True")}),
            Verdict::Progressing,
            3,
        ),
        ("rolling", json!({}), Verdict::Progressing, 3),
        (
            "stalled",
            json!({"conditions": conditions("False/Stalled", "False", "True/NoProgress", "False")}),
            Verdict::Stalled,
            1,
        ),
        (
            "a hook failed",
            json!({"conditions": conditions("False/HookFailed", "True", "True/HookFailed", "False")}),
            Verdict::Stalled,
            1,
        ),
        (
            "refused",
            json!({"rollout": gone, "conditions": conditions("False/InvalidSpec", "True", "True/InvalidSpec", "False")}),
            Verdict::Refused,
            1,
        ),
        (
            "aborted",
            json!({"rollout": gone, "conditions": conditions("False/Aborted", "True", "True/Aborted", "False")}),
            Verdict::Stalled,
            1,
        ),
        (
            "not looked at",
            json!({"observedGeneration": 2, "rollout": gone, "conditions": conditions("True/Applied", "True", "False", "False")}),
            Verdict::Progressing,
            3,
        ),
        (
            "the old set goes",
            json!({"rollout": {"stage": "Retiring"}, "conditions": conditions("True/Applied", "True", "False", "True")}),
            Verdict::UpToDate,
            0,
        ),
        (
            "waits for a person",
            json!({"rollout": {"stage": "AwaitingPromotion"}, "conditions": conditions("Unknown/ReadyToPromote", "True", "False", "True")}),
            Verdict::Progressing,
            3,
        ),
        ("no nodes, and what is wanted ran before", scaled(&json!("v1:b")), Verdict::UpToDate, 0),
        ("no nodes, another image", scaled(&json!("v1:a")), Verdict::ScaledToZero, 3),
        ("made without nodes", scaled(&json!(null)), Verdict::ScaledToZero, 3),
        (
            "a node is missing",
            json!({"replicas": 4, "rollout": gone, "conditions": conditions("True/Applied", "True", "False", "True")}),
            Verdict::Progressing,
            3,
        ),
    ];
    for (what, status, verdict, code) in cases {
        let replicas = if status["replicas"] == 0 { 0 } else { 5 };
        let report = report(json!({"spec": {"replicas": replicas}, "status": status}));
        let is_told = report.waiting_for == "has 0 replicas: the target starts with the next scale-up";
        assert_eq!(is_told, verdict == Verdict::ScaledToZero, "{what}");
        assert_eq!((report.verdict, report.verdict.exit_code()), (verdict, code), "{what}");
        let is_stalled = report.qualifier().as_deref() == Some("stalled");
        assert_eq!(is_stalled, verdict == Verdict::Stalled && report.rollout.is_some(), "{what}");
    }
}

#[test]
fn failed_rollout_reports_its_reason() {
    let mut conditions = conditions("False/Aborted", "True", "True/Aborted", "False");
    conditions[0]["message"] = json!("plan 495ff12537 was aborted; windlass retry tries it again");
    let report = report(json!({"status": {"rollout": null, "conditions": conditions}}));
    assert_eq!(report.waiting(now()), "Aborted: plan 495ff12537 was aborted; windlass retry tries it again");
    assert_eq!(report.summary, "Upgrading");
}

#[test]
fn fleets_are_sorted_worst_first() {
    let named = |name: &str, status: Value| {
        let fleet = merged(fleet(), json!({"metadata": {"name": name}, "status": status}));
        FleetReport::of(&seen(&fleet, &[]), now())
    };
    let well = json!({"rollout": null, "conditions": conditions("True/Applied", "True", "False", "False")});
    let mut reports = vec![
        named("a", well.clone()),
        named("c", json!({})),
        named("b", json!({"conditions": conditions("False/Stalled", "False", "True/NoProgress", "False")})),
        named("d", well),
    ];
    worst_first(&mut reports);
    let names: Vec<&str> = reports.iter().map(|report| report.name.as_str()).collect();
    assert_eq!(names, ["b", "c", "a", "d"]);
}

#[test]
fn durations_and_images_are_formatted_for_humans() {
    let seconds = |n: i64| age(chrono::TimeDelta::seconds(n));
    assert_eq!(
        [seconds(-3), seconds(12), seconds(182), seconds(7_500), seconds(273_600)],
        ["0s", "12s", "3m02s", "2h05m", "3d04h"]
    );
    let left = |n: i64| about(chrono::TimeDelta::seconds(n));
    assert_eq!(
        [left(0), left(41), left(58), left(360), left(10_000)],
        ["about 10s", "about 50s", "about 1m", "about 6m", "about 3h"]
    );
    for (image, expected) in [
        ("registry.example:5000/a/db:1.2", "1.2"),
        ("db@sha256:0123456789", "0123456"),
        ("db:1.2@sha256:0123456789", "1.2"),
        ("registry.example:5000/db", "db"),
        ("", ""),
    ] {
        assert_eq!(tag(image), expected);
    }
    let at = |text: &str| clock_time(text.parse().unwrap(), now());
    assert_eq!(at("2026-01-01T04:12:09Z"), "04:12:09");
    assert_eq!(at("2025-12-31T23:12:09Z"), "2025-12-31 23:12:09");
}

#[test]
fn json_field_names_are_stable() {
    let value = serde_json::to_value(report(json!({}))).unwrap();
    let keys = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>().join(" ");
    assert_eq!(
        keys(&value),
        "activeSet image name namespace nodes phase plan replicas rollout strategy summary verdict waitingFor waitingSince"
    );
    assert_eq!(
        keys(&value["rollout"]),
        "cause disrupted elapsedSeconds failed fromImage ready stage stallsInSeconds startedAt toImage total updated wave"
    );
    assert_eq!(keys(&value["nodes"][2]), "health image message name reason set since targetImage");
    assert_eq!(keys(&value["plan"]), "id recipe startedAt state tasks");
    assert_eq!(value["verdict"], "Progressing");
}

/// A rollout's target as in the fleet's status.
fn hash_of(image: &str) -> String {
    let spec: windlass_core::api::StatefulNodeSpec = serde_json::from_value(json!({
        "image": image, "podTemplate": {"spec": {"containers": [{"name": "db"}]}},
    }))
    .unwrap();
    windlass_core::revision::RevisionData::of(&spec).rollout_hash("").to_string()
}

#[test]
fn rollback_report_shows_its_own_target_not_the_spec() {
    let back = merged(
        fleet(),
        json!({"status": {"rollout": {"targetHash": hash_of("registry.example/db:1.1"), "unconverged": null}}}),
    );
    let report = FleetReport::of(&seen(&back, &nodes()), now());
    let rollout = report.rollout.unwrap();
    assert_eq!(
        (rollout.from_image.as_str(), rollout.to_image.as_str()),
        ("registry.example/db:1.2", "registry.example/db:1.1")
    );
}

#[test]
fn retiring_set_is_not_the_source_of_a_rollout() {
    let mut nodes = vec![node(0, "1.1", "1.1", Some("2026-01-01T03:00:00Z"))];
    for (set, runs) in [("28c42", "1.15"), ("f00d1", "1.2")] {
        let of_set = json!({"metadata": {"name": format!("db-{set}-0"), "uid": set}});
        nodes.insert(0, merged(node(0, runs, runs, Some("2026-01-01T03:00:00Z")), of_set));
    }
    let sets = json!({"incumbentSet": "first", "entrantSet": "f00d1", "stage": "AwaitingEntrants"});
    let rolled = merged(fleet(), json!({"status": {"rollout": sets}}));
    let rollout = FleetReport::of(&seen(&rolled, &nodes), now()).rollout.unwrap();
    assert_eq!(
        (rollout.from_image.as_str(), rollout.to_image.as_str()),
        ("registry.example/db:1.1", "registry.example/db:1.2")
    );

    // An obsolete promotion that is finished.
    let target = json!({"status": {"rollout": {"targetHash": hash_of("registry.example/db:1.15"), "entrantSet": "28c42"}}});
    let rollout = FleetReport::of(&seen(&merged(rolled, target), &nodes), now()).rollout.unwrap();
    assert_eq!(
        (rollout.from_image.as_str(), rollout.to_image.as_str()),
        ("registry.example/db:1.1", "registry.example/db:1.15")
    );
}

#[test]
fn unobserved_generation_and_stalled_unready_node_are_reported() {
    let mut fleet = fleet();
    let generation = fleet["metadata"]["generation"].as_i64().unwrap_or_default().max(2);
    fleet["metadata"]["generation"] = json!(generation);
    fleet["status"]["observedGeneration"] = json!(generation - 1);
    let now = "2026-01-01T04:15:11Z".parse().unwrap();
    let waiting_for = FleetReport::of(&seen(&fleet, &[]), now).waiting_for;
    assert!(
        waiting_for.starts_with("waiting for the operator, which has not observed generation"),
        "{waiting_for}"
    );
    fleet["status"]["observedGeneration"] = json!(generation);
    fleet["status"]["rollout"]["unconverged"] =
        json!([{"name": "db-1", "reason": "NotReady", "message": "", "since": "2026-01-01T04:14:11Z"}]);
    for (stalled, expected) in [("True", "waiting for db-1: NotReady"), ("False", "")] {
        fleet["status"]["conditions"] = json!([{"type": "Stalled", "status": stalled, "reason": "NoProgress",
            "lastTransitionTime": "2026-01-01T04:15:00Z"}]);
        let waiting_for = FleetReport::of(&seen(&fleet, &[]), now).waiting_for;
        assert_eq!(waiting_for.starts_with("waiting for db-1"), !expected.is_empty(), "{waiting_for}");
        assert!(waiting_for.starts_with(expected), "{waiting_for}");
    }
}

#[test]
fn in_progress_fleet_with_unavailable_node_sorts_first() {
    let named = |name: &str, nodes: &[Value]| {
        let quiet = json!({"metadata": {"name": name}, "status": {"rollout": {"unconverged": [], "nodes": {"failed": 0}}}});
        FleetReport::of(&seen(&merged(fleet(), quiet), nodes), now())
    };
    let serves = [node(0, "1.1", "1.1", Some("2026-01-01T03:00:00Z"))];
    let mut reports = [
        named("a-held", &serves),
        named("b-out", &[node(0, "1.1", "1.1", None)]),
        named("c-failed", &nodes()),
    ];
    worst_first(&mut reports);
    let names: Vec<&str> = reports.iter().map(|report| report.name.as_str()).collect();
    assert_eq!(names, ["b-out", "c-failed", "a-held"]);
}

#[test]
fn down_pod_overrides_stale_ready_status() {
    let well = json!({"spec": {"replicas": 1}, "status": {"replicas": 1, "rollout": null,
        "conditions": conditions("True/Applied", "True", "False", "False")}});
    let ready_node = node(0, "1.2", "1.2", Some("2026-01-01T03:00:00Z"));
    let with_pod = |node: &Value, status: &str, since: Value| {
        let pod = json!({"metadata": {"name": "db-0-0", "namespace": "prod"}, "status": {"phase": "Running",
            "conditions": [{"type": "Ready", "status": status, "lastTransitionTime": since}]}});
        let mut seen = seen(&merged(fleet(), well.clone()), std::slice::from_ref(node));
        seen.pods.insert("db-0-0".into(), Arc::new(Observed::read(&pod)));
        let report = FleetReport::of(&seen, now());
        let offered = chain::of_fleet(&seen, &report, &[]).remedies;
        (report, offered.iter().any(|remedy| remedy.command.starts_with("windlass version")))
    };
    let (report, offers) = with_pod(&ready_node, "False", json!("2026-01-01T04:10:00Z"));
    assert_eq!((report.verdict, report.nodes[0].health, offers), (Verdict::Progressing, Health::Down, true));
    assert_eq!(report.nodes[0].words(), "its pod is not Ready; the operator has not observed that");
    assert_eq!(report.nodes[0].since, Some("2026-01-01T04:10:00Z".parse().unwrap()));
    assert_eq!(
        report.waiting_for,
        "db-0: its pod is not Ready; the operator has not observed that; windlass version shows whether one runs"
    );
    // The operator may be about to see it; and nobody knows since when a pod is gone.
    for (status, since) in [
        ("False", json!("2026-01-01T04:14:42Z")),
        ("False", Value::Null),
        ("True", json!("2026-01-01T04:10:00Z")),
    ] {
        let (report, offers) = with_pod(&ready_node, status, since);
        assert_eq!(
            (report.verdict, report.nodes[0].health, offers),
            (Verdict::UpToDate, Health::Serving, false)
        );
    }
    let gone =
        FleetReport::of(&seen(&merged(fleet(), well.clone()), std::slice::from_ref(&ready_node)), now());
    assert_eq!((gone.verdict, gone.nodes[0].health), (Verdict::UpToDate, Health::Serving));
    // What the operator has seen is told in its words, and a task that it carries out, too.
    let problem =
        json!({"reason": "NotReady", "message": "readiness probe failed", "since": "2026-01-01T04:12:09Z"});
    let known = merged(node(0, "1.2", "1.2", None), json!({"status": {"problem": problem}}));
    let (report, offers) = with_pod(&known, "False", json!("2026-01-01T04:10:00Z"));
    assert_eq!((report.nodes[0].words().as_str(), offers), ("NotReady: readiness probe failed", false));
    let (moves, _) = with_pod(
        &merged(ready_node, json!({"status": {"plan": nodes()[1]["status"]["plan"]}})),
        "False",
        json!("2026-01-01T04:10:00Z"),
    );
    assert_eq!(moves.nodes[0].health, Health::Moving);
}

#[test]
fn refused_spec_is_reported_before_the_active_rollout() {
    let refused = json!({"type": "UpToDate", "status": "False", "reason": "InvalidSpec",
        "message": "hook drain: no", "lastTransitionTime": "2026-01-01T04:00:00Z"});
    let mut changes = json!({"status": {"conditions": fleet()["status"]["conditions"]}});
    changes["status"]["conditions"][1] = refused;
    changes["status"]["conditions"][4]["message"] = json!("waiting for db-2: ImagePullBackOff");
    let report = report(changes);
    assert_eq!((report.verdict, &*report.waiting_for), (Verdict::Refused, "InvalidSpec: hook drain: no"));
    assert_eq!(
        (report.waiting_since, &*report.remarks),
        (None, &["waiting for db-2: ImagePullBackOff".to_owned()][..])
    );
}

#[test]
fn suspended_node_is_reported_as_suspended() {
    let mut nodes = nodes();
    let ready = json!({"type": "Ready", "status": "False", "reason": "Suspended",
        "message": "the node is suspended", "lastTransitionTime": "2026-01-01T04:00:00Z"});
    let suspended =
        json!({"spec": {"suspend": true}, "status": {"phase": "Suspended", "conditions": [ready]}});
    nodes[0] = merged(node(0, "1.1", "", None), suspended);
    let mut seen = seen(&fleet(), &nodes);
    let pod = json!({"metadata": {"name": "db-3-0", "namespace": "prod"}});
    seen.pods.insert("db-3-0".into(), Arc::new(Observed::read(&pod)));
    let report = FleetReport::of(&seen, now());
    assert_eq!(report.nodes[0].words(), "the node is suspended");
}
