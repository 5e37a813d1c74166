//! Chains of the fleet that the report's tests use.

use serde_json::json;

use super::*;

use crate::report::tests::{fleet, nodes, seen};
use windlass_core::api::BuiltFor;
use windlass_kube_port::observed::Observed;

#[test]
fn chain_leads_from_condition_to_kubelet_message_and_commands() {
    let (mut fleet, nodes) = (fleet(), nodes());
    fleet["status"]["plan"]["tasks"][1]["message"] = json!("waiting for db-2 to run the target");
    fleet["status"]["currentRevision"] = json!("db-1");
    let mut seen = seen(&fleet, &nodes);
    let pod = json!({"metadata": {"name": "db-2-0", "namespace": "prod"}, "status": {"phase": "Pending",
        "conditions": [{"type": "Ready", "status": "False", "lastTransitionTime": "2026-01-01T04:12:09Z"}],
        "containerStatuses": [{"name": "db", "state": {"waiting": {"reason": "ImagePullBackOff", "message": "Back-off"}}}]}});
    seen.pods.insert("db-2-0".into(), std::sync::Arc::new(Observed::read(&pod)));
    let report = FleetReport::of(&seen, "2026-01-01T04:15:11Z".parse().unwrap());
    assert_eq!(culprit(&report), Some("db-2"));
    let event = TimelineEntry {
        about: crate::report::chain::Subject::of("Pod", "db-2-0"),
        reason: "Failed".into(),
        note: "Failed to pull image".into(),
        at: "2026-01-01T04:12:10Z".parse().unwrap(),
    };
    let chain = of_fleet(&seen, &report, &[event]);
    let of: Vec<(usize, &str, &str)> =
        chain.links.iter().map(|link| (link.depth, link.of.as_str(), link.says.as_str())).collect();
    assert_eq!(
        of,
        [
            (0, "NodeDeployment db", "Ready=False NodesFailed"),
            (0, "NodeDeployment db", "UpToDate=Unknown Applying"),
            (1, "plan 495ff12537", "InPlace is Active"),
            (2, "task await-spec-update", "waiting for db-2 to run the target"),
            (3, "StatefulNode db-2", "Failed: ImagePullBackOff: Back-off pulling image \"db:1.2\""),
            (5, "pod db-2-0", "container db: ImagePullBackOff: Back-off"),
            (6, "event Failed", "Failed to pull image"),
        ]
    );
    let commands: Vec<&str> = chain.remedies.iter().map(|remedy| remedy.command.as_str()).collect();
    assert_eq!(
        commands,
        [
            "kubectl describe pod db-2-0 -n prod",
            "windlass plan nd/db -n prod --image IMAGE",
            "windlass rollback nd/db -n prod",
            "windlass abort nd/db -n prod",
            "windlass pause nd/db -n prod",
        ]
    );
}

#[test]
fn problem_of_the_budget_is_a_remark_and_a_link() {
    let (mut fleet, nodes) = (fleet(), nodes());
    let message = "PodDisruptionBudget theirs selects pods of this fleet";
    let condition = json!({"type": "DisruptionBudgetReady", "status": "False", "reason": "BudgetsOverlap",
        "message": message, "lastTransitionTime": "2026-01-01T04:00:00Z"});
    fleet["status"]["conditions"].as_array_mut().unwrap().push(condition);
    let seen = seen(&fleet, &nodes);
    let report = FleetReport::of(&seen, "2026-01-01T04:15:11Z".parse().unwrap());
    assert_eq!(report.remarks, [message]);
    let links = of_fleet(&seen, &report, &[]).links;
    let says = format!("DisruptionBudgetReady=False BudgetsOverlap: {message}");
    assert!(links.iter().any(|link| link.depth == 0 && link.says == says), "{links:#?}");
}

#[test]
fn drain_during_a_rollout_is_a_remark_and_a_link() {
    let (mut fleet, nodes) = (fleet(), nodes());
    let message =
        "db-0, db-1 have to leave machine m1, which is being drained, at most 2 unavailable at once";
    fleet["status"]["conditions"][4]["message"] = json!(message);
    let seen = seen(&fleet, &nodes);
    let report = FleetReport::of(&seen, "2026-01-01T04:15:11Z".parse().unwrap());
    assert_eq!(
        (report.waiting_for.as_str(), &*report.remarks),
        ("waiting for db-2: ImagePullBackOff", &[message.to_owned()][..])
    );
    let links = of_fleet(&seen, &report, &[]).links;
    assert!(links.iter().any(|link| link.depth == 0 && link.says == message), "{links:#?}");
}

#[test]
fn node_that_does_nothing_says_what_its_fleet_does() {
    let (mut fleet, nodes) = (fleet(), nodes());
    let message =
        "db-0, db-1 have to leave machine m1, which is being drained, at most 2 unavailable at once";
    fleet["status"]["conditions"][4]["message"] = json!(message);
    let fleet = ObservedFleet::read(&fleet);
    for (ordinal, expected) in [(0, vec![message]), (1, vec![])] {
        let mut chain = Chain::default();
        chain.add_fleet(&fleet, &ObservedNode::read(&nodes[ordinal]));
        let said: Vec<&str> = chain.links.iter().map(|link| link.says.as_str()).collect();
        assert_eq!(said, expected, "db-{ordinal}: db-1 has a plan");
    }
}

fn pod_of(node: &str, image: &str, status: &serde_json::Value) -> ObservedPod {
    let annotations: serde_json::Map<String, serde_json::Value> =
        BuiltFor { hash: "v1:a".into(), image: "db:1.2".into(), main_container: "db".into() }
            .to_annotations()
            .iter()
            .map(|(key, value)| ((*key).to_owned(), json!(value)))
            .collect();
    let mut pod = json!({"metadata": {"name": format!("{node}-0"), "namespace": "prod", "annotations": annotations},
        "spec": {"containers": [{"name": "db", "image": image}]}, "status": {"phase": "Running"}});
    json_patch::merge(&mut pod, status);
    ObservedPod::read(&pod)
}

#[test]
fn externally_modified_pod_is_reported_and_can_be_recreated() {
    let node = ObservedNode::read(&nodes()[2]);
    let waits = json!({"status": {"containerStatuses": [{"name": "db", "state": {"waiting": {"reason": "ErrImagePull"}}}]}});
    let explained = |image: &str, status: &serde_json::Value| {
        let chain = of_node(&node, SeenPod::Is(&pod_of("db-2", image, status)), &[]);
        let changed =
            chain.links.into_iter().map(|link| link.says).find(|says| says.contains("a user or a webhook"));
        (changed, chain.remedies.into_iter().map(|remedy| remedy.command).collect::<Vec<_>>())
    };
    let (changed, commands) = explained("db:typo", &waits);
    let says =
        "its container db has image db:typo, but its template has db:1.2: a user or a webhook changed it";
    assert_eq!(changed.as_deref(), Some(says));
    assert!(commands.contains(&"kubectl delete pod db-2-0 -n prod".to_owned()), "{commands:?}");
    let (changed, commands) = explained("db:1.2", &waits);
    assert!(changed.is_none() && !commands.iter().any(|c| c.contains("delete")), "{commands:?}");
    // A healthy pod needs no replacement: admission may have pinned the image.
    let ready = json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}});
    let (changed, commands) = explained("db@sha256:0", &ready);
    assert!(changed.is_some() && !commands.iter().any(|c| c.contains("delete")), "{commands:?}");
}

#[test]
fn missing_and_unreadable_pods_are_explained_differently() {
    let node = ObservedNode::read(&nodes()[2]);
    let note = "create Pod db-2-0 in StatefulSet db-2 failed error: pods \"db-2-0\" is forbidden: exceeded quota: few";
    let event = TimelineEntry {
        about: crate::report::chain::Subject::of("StatefulSet", "db-2"),
        reason: "FailedCreate".into(),
        note: note.into(),
        at: "2026-01-01T04:12:10Z".parse().unwrap(),
    };
    let chain = of_node(&node, SeenPod::IsNot, std::slice::from_ref(&event));
    let last: Vec<(&str, &str)> =
        chain.links.iter().rev().take(2).map(|l| (l.of.as_str(), l.says.as_str())).collect();
    assert_eq!(last, [("event FailedCreate", note), ("pod db-2-0", "it does not exist")]);
    let chain = of_node(&node, SeenPod::Unread, &[]);
    assert!(!chain.links.iter().any(|link| link.of.starts_with("pod ")), "{chain:#?}");
    assert!(!chain.remedies.iter().any(|remedy| remedy.command.contains("statefulset")), "{chain:#?}");
}

#[test]
fn timestamp_follows_the_condition_not_its_message() {
    let mut fleet = fleet();
    fleet["status"]["conditions"][0]["message"] = json!("waiting for db-2: windlass approve nd/db -n prod");
    let seen = seen(&fleet, &nodes());
    let chain = of_fleet(&seen, &FleetReport::of(&seen, "2026-01-01T04:15:11Z".parse().unwrap()), &[]);
    let parts: Vec<(&str, &str)> = chain.links.iter().map(Link::parts).collect();
    let message = ": waiting for db-2: windlass approve nd/db -n prod";
    assert!(parts.iter().any(|(says, more)| !says.contains(':') && *more == message), "{parts:?}");
    assert!(
        chain.links.iter().any(|link| link.says.ends_with(message)),
        "a program reads all of it: {chain:#?}"
    );
}

#[test]
fn failed_node_hook_is_a_link_with_remedies() {
    let mut fleet = fleet();
    fleet["status"]["hooks"] = json!([{"hook": "drain", "node": "db-1", "taskID": "0123456789-1", "state": "Failed", "message": "no"}]);
    let seen = seen(&fleet, &[]);
    let chain = of_fleet(&seen, &FleetReport::of(&seen, "2026-01-01T04:15:11Z".parse().unwrap()), &[]);
    assert!(
        chain.links.iter().any(|link| link.of == "hook drain of db-1" && link.says == "no"),
        "{chain:#?}"
    );
    let commands: Vec<&str> = chain.remedies.iter().map(|remedy| remedy.command.as_str()).collect();
    assert!(
        commands.starts_with(&[
            "windlass retry nd/db -n prod",
            "windlass skip nd/db -n prod --task 0123456789-1"
        ]),
        "{commands:?}"
    );
    assert!(commands.contains(&"windlass abort nd/db -n prod"), "{commands:?}");
}

#[test]
fn rollback_is_not_offered_where_impossible() {
    for stage in ["Promoting", "Retiring"] {
        let mut fleet = fleet();
        fleet["status"]["rollout"]["stage"] = json!(stage);
        let seen = seen(&fleet, &[]);
        let chain = of_fleet(&seen, &FleetReport::of(&seen, "2026-01-01T04:15:11Z".parse().unwrap()), &[]);
        let goes_back =
            |remedy: &Remedy| remedy.command.contains("abort") || remedy.command.contains("rollback");
        assert!(!chain.remedies.iter().any(goes_back), "{stage}: {:?}", chain.remedies);
    }
}

#[test]
fn state_awaiting_a_person_offers_the_next_command() {
    let first = |status: serde_json::Value, paused: bool| {
        let mut fleet = fleet();
        json_patch::merge(&mut fleet, &json!({"spec": {"paused": paused}, "status": status}));
        let seen = seen(&fleet, &[]);
        let report = FleetReport::of(&seen, "2026-01-01T04:15:11Z".parse().unwrap());
        of_fleet(&seen, &report, &[]).remedies.first().map(|remedy| remedy.command.clone())
    };
    let condition = |type_: &str, status: &str, reason: &str| json!([{"type": type_, "status": status, "reason": reason, "lastTransitionTime": "2026-01-01T04:00:00Z"}]);
    let quiet = json!({"unconverged": []});
    let status = |conditions| first(json!({"rollout": quiet, "conditions": conditions}), false);
    assert_eq!(
        status(condition("UpToDate", "Unknown", "ReadyToPromote")).as_deref(),
        Some("windlass promote nd/db -n prod")
    );
    assert_eq!(
        status(condition("UpToDate", "False", "Aborted")).as_deref(),
        Some("windlass retry nd/db -n prod")
    );
    assert_eq!(
        status(condition("UpToDate", "False", "InvalidSpec")).as_deref(),
        Some("kubectl edit nd/db -n prod")
    );
    assert_eq!(
        first(json!({"rollout": quiet, "conditions": []}), true).as_deref(),
        Some("windlass resume nd/db -n prod")
    );
    assert_eq!(first(json!({"rollout": null, "conditions": []}), false), None, "no action is needed");
}

#[test]
fn unobserved_generation_is_explained_first() {
    let mut fleet = fleet();
    fleet["metadata"]["generation"] = json!(4);
    let seen = seen(&fleet, &nodes());
    let report = FleetReport::of(&seen, "2026-01-01T04:15:11Z".parse().unwrap());
    let chain = of_fleet(&seen, &report, &[]);
    assert_eq!(chain.links[0].says, report.waiting_for, "the words are those of status");
    assert!(chain.links[0].says.contains("has not observed generation 4 (observed: 3)"));
    assert!(chain.links.len() > 1, "the last known state follows it");
    let commands: Vec<&str> = chain.remedies.iter().map(|remedy| remedy.command.as_str()).collect();
    assert_eq!(commands, ["windlass version --operator-namespace windlass-system"]);
}

#[test]
fn abort_of_a_new_set_is_described_as_removing_its_nodes() {
    let abort = |set: &str| {
        let mut fleet = fleet();
        json_patch::merge(
            &mut fleet,
            &json!({"status": {"rollout": {"stage": "AwaitingPromotion", "entrantSet": set}}}),
        );
        let seen = seen(&fleet, &nodes());
        let report = FleetReport::of(&seen, "2026-01-01T04:15:11Z".parse().unwrap());
        let chain = of_fleet(&seen, &report, &[]);
        chain.remedies.into_iter().find(|r| r.command.contains("abort")).map(|r| r.to)
    };
    assert_eq!(abort("1a2b3").as_deref(), Some("abort; remove the new nodes"));
    assert_eq!(abort("").as_deref(), Some("abort; nodes keep their revisions"));
}

#[test]
fn timed_out_approval_is_no_longer_offered() {
    let mut fleet = fleet();
    let task = json!({"id": "495ff12537-1", "type": "await-approval", "state": "Failed", "message": "nobody approved in time",
        "params": {"hook": "look"}});
    fleet["status"]["plan"]["tasks"][1] = task;
    let seen = seen(&fleet, &[]);
    let chain = of_fleet(&seen, &FleetReport::of(&seen, "2026-01-01T04:15:11Z".parse().unwrap()), &[]);
    let commands: Vec<&str> = chain.remedies.iter().map(|remedy| remedy.command.as_str()).collect();
    assert!(!commands.iter().any(|command| command.contains("approve")), "{commands:?}");
    for verb in ["windlass retry", "windlass skip", "windlass abort"] {
        assert!(commands.iter().any(|command| command.starts_with(verb)), "{verb}: {commands:?}");
    }
}

#[test]
fn deletion_shows_age_and_finalizers_without_useless_remedies() {
    let mut fleet = fleet();
    let deletion = json!({"kind": "NodeDeployment", "metadata": {"deletionTimestamp": "2026-01-01T04:10:00Z",
        "finalizers": ["example.com/a", "example.com/b"]}, "spec": {"paused": true}});
    json_patch::merge(&mut fleet, &deletion);
    let seen = seen(&fleet, &nodes());
    let report = FleetReport::of(&seen, "2026-01-01T04:15:11Z".parse().unwrap());
    let chain = of_fleet(&seen, &report, &[]).of_deleted(Deletion::read(&fleet).as_ref());
    let first = &chain.links[0];
    assert_eq!(first.of, "NodeDeployment db");
    assert_eq!(first.says, "it is being deleted and waits for finalizers example.com/a, example.com/b");
    assert_eq!(first.since, Some("2026-01-01T04:10:00Z".parse().unwrap()));
    let commands: Vec<&str> = chain.remedies.iter().map(|remedy| remedy.command.as_str()).collect();
    assert_eq!(commands, ["kubectl describe nd/db -n prod"]);
    let mut node = nodes()[0].clone();
    node["kind"] = json!("StatefulNode");
    assert_eq!(Deletion::read(&node), None);
    let held =
        json!({"metadata": {"deletionTimestamp": "2026-01-01T04:10:00Z", "finalizers": ["example.com/a"]}});
    json_patch::merge(&mut node, &held);
    let chain =
        of_node(&ObservedNode::read(&node), SeenPod::IsNot, &[]).of_deleted(Deletion::read(&node).as_ref());
    let first = (chain.links[0].of.as_str(), chain.links[0].says.as_str());
    assert_eq!(first, ("StatefulNode db-0", "it is being deleted and waits for finalizer example.com/a"));
}

#[test]
fn running_pods_with_externally_changed_image_are_reported() {
    let mut seen = seen(&fleet(), &nodes());
    let ready = json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}});
    for node in ["db-3", "db-4"] {
        seen.pods.insert(format!("{node}-0"), std::sync::Arc::new(pod_of(node, "db:typo", &ready)));
    }
    let report = FleetReport::of(&seen, "2026-01-01T04:15:11Z".parse().unwrap());
    let chain = of_fleet(&seen, &report, &[]);
    let told: Vec<&str> = chain
        .links
        .iter()
        .map(|link| link.says.as_str())
        .filter(|says| says.contains("a user or a webhook"))
        .collect();
    assert_eq!(
        told,
        [
            "its container db has image db:typo, but its template has db:1.2: a user or a webhook changed it (and 1 more)"
        ]
    );
}

#[test]
fn rollout_that_waits_for_a_window_can_begin_now() {
    let (mut fleet, nodes) = (fleet(), nodes());
    let mut offers = |waits_for: &str| {
        fleet["status"]["rollout"]["waitingFor"] = json!(waits_for);
        let seen = seen(&fleet, &nodes);
        let report = FleetReport::of(&seen, "2026-01-01T04:15:11Z".parse().unwrap());
        let open = Remedy {
            to: "open the window now".to_owned(),
            command: "windlass resume nd/db -n prod --now --reason TEXT".to_owned(),
        };
        of_fleet(&seen, &report, &[]).remedies.contains(&open)
    };
    assert_eq!(["Window", "Predecessors", ""].map(&mut offers), [true, false, false]);
}

#[test]
fn suspended_node_can_be_resumed() {
    let mut node = nodes().remove(0);
    node["spec"]["suspend"] = json!(true);
    node["status"]["phase"] = json!("Suspended");
    let chain = of_node(&Observed::read(&node), SeenPod::IsNot, &[]);
    let remedy = Remedy {
        to: "resume the node".to_owned(),
        command: r#"kubectl patch sn/db-0 -n prod --type=merge -p '{"spec":{"suspend":false}}'"#.to_owned(),
    };
    assert_eq!(chain.remedies, [remedy]);
    assert_eq!(chain.links.len(), 2, "{chain:?}");
}
