//! Reports of StatefulSetRollouts, drawn.

use std::sync::Arc;

use super::*;
use crate::report::chain::{Subject, TimelineEntry, of_stateful_sets};
use crate::report::timeline;
use crate::report::{SeenStatefulSets, Typed};
use windlass_kube_port::observed::{Observed, ObservedPod, ObservedStatefulSet};

const NOW: &str = "2026-01-01T04:15:11Z";

fn now() -> DateTime<Utc> {
    NOW.parse().unwrap()
}

fn condition(type_: &str, status: &str, reason: &str, message: &str) -> Value {
    json!({"type": type_, "status": status, "reason": reason, "message": message,
        "lastTransitionTime": "2026-01-01T04:00:00Z"})
}

/// A rollout of three pods of which the last cannot pull its image.
pub fn ledger(changes: &Value) -> Value {
    let problem = "Back-off pulling image \"db:1.2\"";
    let mut object = json!({
        "apiVersion": "windlass.dev/v1alpha1", "kind": "StatefulSetRollout",
        "metadata": {"name": "ledger", "namespace": "prod", "uid": "ssr", "generation": 1, "resourceVersion": "9"},
        "spec": {"statefulSets": {"names": ["ledger"]}, "strategy": {"maxUnavailable": 1, "progressDeadlineSeconds": 600}},
        "status": {"observedGeneration": 1, "phase": "Upgrading", "replicas": 3,
            "requestedRolloutHash": "v1:b", "lastCompletedRolloutHash": "v1:a",
            "statefulSets": [{"name": "ledger", "uid": "uid of ledger", "currentRevision": "ledger-5b7d9c8f6",
                "updateRevision": "ledger-7c6f5d4b8", "replicas": 3, "ready": 2, "updated": 1, "held": true}],
            "nodes": [{"name": "ledger-2", "podUID": "old", "plan": {"id": "0a1b2c3d4e", "recipe": "PodUpdate", "targetHash": "v1:b",
                "state": "Active", "startedAt": "2026-01-01T04:12:00Z", "tasks": [
                    {"id": "0a1b2c3d4e-0", "type": "replace-pod", "state": "Complete"},
                    {"id": "0a1b2c3d4e-1", "type": "mark-ready", "state": "Running", "message": "waiting for the pod to be ready",
                        "startedAt": "2026-01-01T04:12:05Z"}]}}],
            "rollout": {"strategy": "InPlace", "cause": "TemplateChanged", "stage": "Updating", "targetHash": "v1:b",
                "startedAt": "2026-01-01T04:11:01Z", "lastProgressAt": "2026-01-01T04:12:09Z",
                "nodes": {"total": 3, "updated": 1, "ready": 2, "disrupted": 1, "failed": 1}, "summary": "Updating 1/3",
                "unconverged": [{"name": "ledger-2", "reason": "ImagePullBackOff", "message": problem,
                    "since": "2026-01-01T04:12:09Z"}]},
            "plan": {"id": "495ff12537", "recipe": "InPlace", "targetHash": "v1:b", "state": "Active",
                "startedAt": "2026-01-01T04:11:01Z", "tasks": [
                    {"id": "495ff12537-0", "type": "update-node-specs", "state": "Running"}]},
            "conditions": [condition("Ready", "False", "NodesFailed", ""), condition("UpToDate", "Unknown", "Applying", ""),
                condition("Stalled", "False", "Progressing", ""), condition("Held", "True", "Held", "")]},
    });
    json_patch::merge(&mut object, changes);
    object
}

pub fn pod_object(name: &str, set: &str, revision: &str, is_ready: bool) -> Value {
    let tag = if revision.starts_with('5') { "1.1" } else { "1.2" };
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "prod", "uid": format!("uid of {name}"),
            "labels": {"controller-revision-hash": format!("{set}-{revision}")},
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "StatefulSet", "name": set, "uid": format!("uid of {set}"),
                "controller": true}]},
        "spec": {"containers": [{"name": "db", "image": format!("registry.example/db:{tag}")}]},
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": if is_ready { "True" } else { "False" },
            "lastTransitionTime": "2026-01-01T04:12:09Z"}]},
    })
}

fn pod(name: &str, set: &str, revision: &str, is_ready: bool) -> Arc<ObservedPod> {
    Arc::new(ObservedPod::read(&pod_object(name, set, revision, is_ready)))
}

fn pods() -> Vec<Arc<ObservedPod>> {
    vec![
        pod("ledger-2", "ledger", "7c6f5d4b8", false),
        pod("ledger-1", "ledger", "5b7d9c8f6", true),
        pod("ledger-0", "ledger", "5b7d9c8f6", true),
        // Of another StatefulSet whose name would fit.
        Arc::new(ObservedPod {
            meta: ObservedPod::read(&json!({"metadata": {"name": "ledger-3", "ownerReferences": [
                {"uid": "another", "controller": true}]}}))
            .meta,
            ..ObservedPod::default()
        }),
    ]
}

fn report(changes: &Value, pods: Option<&[Arc<ObservedPod>]>) -> StatefulSetsReport {
    let unread: Vec<String> = pods.is_none().then(|| "left out".to_owned()).into_iter().collect();
    StatefulSetsReport::of(&SeenStatefulSets::of(&ledger(changes), pods, &unread), now())
}

fn drawn(report: &StatefulSetsReport, all: bool) -> String {
    let terminal = Terminal { width: 110, colours: false, unicode: true };
    let shown = Shown { all, rows: 20, namespaces: false, typed: &Typed::PLAIN };
    let lines = report.tree(now(), terminal, shown);
    lines.iter().map(|line| terminal.painted(line) + "\n").collect()
}

#[test]
fn rollout_is_drawn_with_statefulset_and_blocked_pods() {
    let report = report(&json!({}), Some(&pods()));
    assert_eq!(report.verdict(), Verdict::Progressing);
    assert_eq!(
        drawn(&report, false),
        "\
ledger   StatefulSet   Updating 1/3   ━━━━━━──────────────  wave 2 of 3   4m10s
     1.1 → 1.2 (plan 495ff12537: update-node-specs ◐)
     waiting for ledger-2: ImagePullBackOff for 3m02s (stalls in 6m58s)
└─ ledger   5b7d9c8f6 → 7c6f5d4b8   3 replicas, 2 ready, 1 updated
   ├─ ✗ ledger-2   7c6f5d4b8   ImagePullBackOff: Back-off pulling image \"db:1.2\"  since 04:12:09
   └─ ● 2 pods available at 5b7d9c8f6
"
    );
    let all = drawn(&report, true);
    assert!(all.contains("   ├─ ○ ledger-0   5b7d9c8f6 → 7c6f5d4b8\n   ├─ ○ ledger-1"), "{all}");
    assert!(!all.contains("ledger-3"), "it belongs to another StatefulSet: {all}");
}

#[test]
fn unblocked_pod_shows_its_plan_task() {
    let quiet = json!({"status": {"rollout": {"unconverged": []}}});
    let one = |changes: &Value, pods: &[Arc<ObservedPod>]| {
        let mut changes = changes.clone();
        json_patch::merge(&mut changes, &quiet);
        let report = report(&changes, Some(pods));
        let pod = report.fleet.nodes.iter().find(|pod| pod.name == "ledger-2").unwrap();
        format!("{:?} {} {}", pod.health, pod.versions(""), pod.words())
    };
    assert_eq!(one(&json!({}), &pods()), "Moving 7c6f5d4b8 mark-ready: waiting for the pod to be ready");
    // Between the deletion and the creation of the pod.
    let silent = json!({"status": {"nodes": [{"name": "ledger-2", "plan": {"id": "0a1b2c3d4e", "recipe": "PodUpdate",
        "targetHash": "v1:b", "state": "Active", "startedAt": "2026-01-01T04:12:00Z",
        "tasks": [{"id": "0a1b2c3d4e-0", "type": "replace-pod", "state": "Running"}]}}]}});
    assert_eq!(one(&silent, &pods()[1..]), "Moving → 7c6f5d4b8 replace-pod: it is being created");
    let done = json!({"status": {"nodes": null}});
    let mut ready = pods();
    ready[0] = pod("ledger-2", "ledger", "7c6f5d4b8", true);
    assert_eq!(one(&done, &ready), "Serving 7c6f5d4b8 ");
    assert_eq!(one(&done, &pods()), "Down 7c6f5d4b8 it is not Ready; the operator has not observed that");
    // In a rollback pods go to the current revision.
    let back = json!({"status": {"nodes": null, "rollout": {"targetHash": "v1:a"}}});
    assert_eq!(one(&back, &ready), "Before 7c6f5d4b8 → 5b7d9c8f6 ");
}

#[test]
fn without_pods_the_tree_uses_the_status() {
    let text = drawn(&report(&json!({}), None), false);
    assert!(text.contains("     left out\n└─ ledger   5b7d9c8f6 → 7c6f5d4b8"), "{text}");
    assert!(text.ends_with("   └─ ✗ ledger-2   → 7c6f5d4b8   ImagePullBackOff: Back-off pulling image \"db:1.2\"  since 04:12:09\n"), "{text}");
}

/// The status of a steady object.
fn steady(sets: &Value) -> Value {
    json!({"status": {"phase": "Ready", "requestedRolloutHash": "v1:b", "lastCompletedRolloutHash": "v1:b",
        "rollout": null, "nodes": null, "statefulSets": sets, "replicas": 3,
        "plan": {"state": "Complete", "finishedAt": "2026-01-01T04:12:00Z"},
        "conditions": [condition("Ready", "True", "AllNodesReady", ""), condition("UpToDate", "True", "Applied", ""),
            condition("Stalled", "False", "X", ""), condition("Reconciling", "False", "X", ""),
            condition("Held", "True", "Held", "")]}})
}

fn set(name: &str, replicas: i32) -> Value {
    json!({"name": name, "uid": format!("uid of {name}"), "currentRevision": format!("{name}-7c6f"),
        "updateRevision": format!("{name}-7c6f"), "replicas": replicas, "ready": replicas, "updated": replicas, "held": true})
}

fn line(report: &StatefulSetsReport) -> String {
    let terminal = Terminal { width: 200, colours: false, unicode: true };
    terminal.painted(&report.healthy(false, 8))
}

#[test]
fn up_to_date_rollout_is_one_line_and_notes_if_not_held() {
    let pods: Vec<_> = (0..3).map(|i| pod(&format!("ledger-{i}"), "ledger", "7c6f", true)).collect();
    let steady = steady(&json!([set("ledger", 3)]));
    let well = report(&steady, Some(&pods));
    assert_eq!(well.verdict(), Verdict::UpToDate);
    assert_eq!(line(&well), "● ledger     StatefulSet   Ready      3 pods available at 7c6f");
    let mut overwritten = steady.clone();
    overwritten["status"]["conditions"][4] = condition(
        "Held",
        "False",
        "StrategyOverwritten",
        "argocd-controller writes updateStrategy of ledger",
    );
    let said = line(&report(&overwritten, Some(&pods)));
    assert!(
        said.ends_with("not held: StrategyOverwritten: argocd-controller writes updateStrategy of ledger"),
        "{said}"
    );
}

#[test]
fn unobserved_statefulset_change_is_reported_as_progressing() {
    let object = ledger(&steady(&json!([set("ledger", 3)])));
    let of = |generation: i64, revision: &str| {
        let live = ObservedStatefulSet::read(&json!({
            "metadata": {"name": "ledger", "uid": "uid of ledger", "generation": generation},
            "status": {"observedGeneration": 2, "updateRevision": format!("ledger-{revision}")},
        }));
        StatefulSetsReport::of(&SeenStatefulSets::of(&object, None, &[]).beside(&[live]), now())
    };
    assert_eq!(of(2, "7c6f").verdict(), Verdict::UpToDate);
    for (generation, revision) in [(3, "7c6f"), (2, "9d8e")] {
        let report = of(generation, revision);
        assert_eq!(report.verdict(), Verdict::Progressing, "{generation} {revision}");
        assert!(report.waiting_for().starts_with("StatefulSet ledger changed"), "{}", report.waiting_for());
    }
}

#[test]
fn up_to_date_statefulsets_are_counted_instead_of_listed() {
    let sets: Vec<Value> = ["a", "b", "c", "d"].into_iter().map(|name| set(name, 0)).collect();
    let mut changes = steady(&json!(sets));
    changes["status"]["statefulSets"][1]["held"] = json!(false);
    changes["status"]["statefulSets"][2] = json!({"name": "c"});
    changes["status"]["replicas"] = json!(0);
    let report = report(&changes, Some(&[]));
    assert_eq!(report.verdict(), Verdict::UpToDate, "without replicas the conditions decide");
    assert_eq!(
        drawn(&report, false),
        "\
ledger   StatefulSet   Ready
├─ b   7c6f   0 replicas, 0 ready, 0 updated   not held
├─ c          it does not exist yet
└─ ● 2 StatefulSets with 0 pods are up to date
"
    );
    assert_eq!(
        line(&report),
        "● ledger     StatefulSet   Ready      0 of 0 pods of 4 StatefulSets are ready"
    );
}

#[test]
fn json_document_has_fleet_fields_and_statefulsets() {
    let document = report(&json!({}), Some(&pods())).document();
    assert_eq!(document["kind"], "StatefulSetRollout");
    assert_eq!(document["rollout"]["fromImage"], "registry.example/db:1.1");
    assert_eq!(document["statefulSets"][0]["updateRevision"], "ledger-7c6f5d4b8");
    let pod = &document["nodes"][2];
    assert_eq!(
        (&pod["name"], &pod["set"], &pod["revision"], &pod["targetRevision"]),
        (&json!("ledger-2"), &json!("ledger"), &json!("7c6f5d4b8"), &json!("7c6f5d4b8"))
    );
}

fn explained(changes: &Value) -> String {
    let pods = pods();
    let seen = SeenStatefulSets::of(&ledger(changes), Some(&pods), &[]);
    let report = StatefulSetsReport::of(&seen, now());
    let event = TimelineEntry {
        about: Subject::of("Pod", "ledger-2"),
        reason: "Failed".into(),
        note: "manifest unknown".into(),
        at: now(),
    };
    let chain = of_stateful_sets(&seen, &report, &[event]);
    let links =
        chain.links.iter().map(|link| format!("{}{}  {}\n", "  ".repeat(link.depth), link.of, link.says));
    let remedies = chain.remedies.iter().map(|remedy| format!("{}: {}\n", remedy.to, remedy.command));
    links.chain(remedies).collect()
}

#[test]
fn chain_leads_from_condition_through_plan_to_pod() {
    assert_eq!(
        explained(&json!({})),
        "\
StatefulSetRollout ledger  Ready=False NodesFailed
StatefulSetRollout ledger  UpToDate=Unknown Applying
  plan 495ff12537  InPlace is Active
    task update-node-specs  Running
      StatefulSet ledger  3 replicas, 2 ready, 1 updated
        plan 0a1b2c3d4e (PodUpdate), task mark-ready  waiting for the pod to be ready
          pod ledger-2  pod ledger-2 is not ready
            event Failed  manifest unknown
see the pod with its events: kubectl describe pod ledger-2 -n prod
roll back to the previous revision: windlass abort ssr/ledger -n prod --rollback
abort; pods keep their revisions: windlass abort ssr/ledger -n prod
pause the rollout: windlass pause ssr/ledger -n prod
"
    );
    let ended = json!({"status": {"rollout": null, "plan": {"state": "Aborted"}, "conditions": [
        condition("UpToDate", "False", "Aborted", "plan 495ff12537 was aborted"),
        condition("Held", "False", "StrategyOverwritten", "helm writes updateStrategy")]}});
    let text = explained(&ended);
    for part in [
        "UpToDate=False Aborted: plan 495ff12537 was aborted\n",
        "Held=False StrategyOverwritten: helm writes updateStrategy\n",
        "retry the same target: windlass retry ssr/ledger -n prod\n",
        "roll back to the previous revision: kubectl rollout undo statefulset/ledger -n prod\n",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn timeline_includes_events_of_statefulsets_and_their_pods() {
    let event = |kind: &str, name: &str| TimelineEntry {
        about: Subject::of(kind, name),
        reason: "X".into(),
        note: String::new(),
        at: now(),
    };
    let of = [
        ("StatefulSetRollout", "ledger"),
        ("StatefulSet", "ledger"),
        ("Pod", "ledger-10"),
        ("Pod", "ledger-a-1"),
        ("StatefulSet", "other"),
        ("NodeDeployment", "ledger"),
    ];
    let seen = SeenStatefulSets::of(&ledger(&json!({})), None, &[]);
    let told = timeline::of_stateful_sets(&seen, of.map(|(kind, name)| event(kind, name)).into());
    let events: Vec<String> =
        told.iter().filter(|entry| entry.reason == "X").map(|entry| entry.about.to_string()).collect();
    assert_eq!(events, ["StatefulSetRollout ledger", "StatefulSet ledger", "Pod ledger-10"]);
    assert!(told.iter().any(|entry| entry.reason == "PlanBegan"), "{told:?}");
}
