//! The nodes that another set replaces: when they are asked to halt, and when they go.

use std::sync::Mutex;

use super::super::{AwaitNodesAtHeight, RetireIncumbents, SubmitHalt};
use super::sets::{Amid, amid, has_plan, not_ready, serving};
use super::*;
use crate::planner::fleet::Blocker;
use crate::planner::node::decide::leaving;
use windlass_kube_port::Selector;

#[tokio::test]
async fn halt_is_not_requested_before_the_promotion_is_recorded() {
    let uid = serving("db-0", "v1")["status"]["podUID"].clone();
    let told = |sidecar: Value, said: Value| {
        let amid = amid("HardFork", "CreatingEntrants").changed("db-0", "/spec/sidecar", sidecar);
        amid.changed("db-0", "/status/sidecar", said)
    };
    let image = || json!({"image": "w:1"});
    let said = told(image(), json!({"podUID": uid, "height": 7})).without_a_write(&SubmitHalt {}).await;
    assert_eq!(said, "waiting for the promotion to be recorded");
    let since = "waiting for db-0 (since 2030-03-17T17:46:40Z) to report a height";
    let mutes = [
        (Value::Null, json!({}), "it has no sidecar"),
        (image(), json!({"podUID": uid}), "its sidecar reports no height"),
        (image(), json!({"podUID": "the pod before", "height": 7}), "its sidecar reports no height"),
    ];
    for (sidecar, said, why) in mutes {
        let waits = told(sidecar, said).without_a_write(&SubmitHalt {}).await;
        assert!(waits.starts_with(since) && waits.contains(why), "{waits}");
    }
    let gone = amid("HardFork", "CreatingEntrants").without("db-0").without_a_write(&SubmitHalt {}).await;
    assert!(gone.starts_with("waiting for db-0 to be recreated"), "{gone}");
    let mut cluster = MockCluster::new();
    cluster
        .expect_patch()
        .once()
        .withf(|target, _, ops| {
            let written: Vec<Value> = ops.iter().map(windlass_kube_port::PatchOp::to_json).collect();
            target.name == "db-0"
                && written[0]["path"] == "/spec/haltHeight"
                && written[0]["value"] == 1000
                && written[1]["path"] == "/spec/haltTaskID"
        })
        .returning(|_, _, _| Ok(json!({})));
    let sidecar = json!({"image": "w:1"});
    let amid = amid("HardFork", "Promoting").changed("db-0", "/spec/sidecar", sidecar);
    assert_eq!(amid.run(cluster, &SubmitHalt {}).await, "waiting for the halt request to db-0");
}

#[tokio::test]
async fn halt_is_not_requested_while_an_entrant_does_not_run() {
    let with_sidecar = |amid: Amid| amid.changed("db-0", "/spec/sidecar", json!({"image": "w:1"}));
    let stopped = || with_sidecar(not_ready(amid("HardFork", "Promoting"), "db-new-0"));
    assert_eq!(stopped().without_a_write(&SubmitHalt {}).await, "waiting for db-new-0 to run the target");
    let mut other = serving("db-1", "v1");
    other["spec"]["sidecar"] = json!({"image": "w:1"});
    other["spec"]["haltHeight"] = json!(1000);
    other["spec"]["haltTaskID"] = json!("task");
    let mut begun = stopped();
    begun.nodes.push(other);
    let mut cluster = MockCluster::new();
    cluster.expect_patch().once().withf(|t, _, _| t.name == "db-0").returning(|_, _, _| Ok(json!({})));
    assert_eq!(begun.run(cluster, &SubmitHalt {}).await, "waiting for the halt request to db-0");
}

#[tokio::test]
async fn unreachable_sidecar_is_named_in_the_wait_message() {
    let ready = json!({"type": "Ready", "status": "True", "reason": "NodeReady", "lastTransitionTime": "2030-01-01T00:00:00Z"});
    let mute = json!({"type": "SidecarReady", "status": "Unknown", "reason": "Unreachable", "message": "no answer", "lastTransitionTime": "2030-01-01T00:00:00Z"});
    let with = |amid: Amid, name: &str| {
        let amid = amid.changed(name, "/spec/sidecar", json!({"image": "w:1"}));
        amid.changed(name, "/status/conditions", json!([ready, mute]))
    };
    let incumbent = with(amid("HardFork", "Promoting"), "db-0");
    let asked = incumbent.changed("db-0", "/spec/haltHeight", json!(1000));
    let asked = asked.changed("db-0", "/spec/haltTaskID", json!("task"));
    let waits = asked.without_a_write(&AwaitNodesAtHeight {}).await;
    assert!(waits.ends_with("; db-0: SidecarUnreachable: no answer"), "{waits}");
}

#[tokio::test]
async fn node_has_halted_when_its_sidecar_reports_the_current_task() {
    let asked = |said: Value| {
        let spec =
            |amid: Amid, field: &str, value: Value| amid.changed("db-0", &format!("/spec/{field}"), value);
        let amid = spec(amid("HardFork", "Promoting"), "sidecar", json!({"image": "w:1"}));
        let amid = spec(spec(amid, "haltHeight", json!(1000)), "haltTaskID", json!("task"));
        amid.changed("db-0", "/status/sidecar", said)
    };
    let said = |halted: bool, task: &str, pod: &str| json!({"podUID": pod, "halted": halted, "haltTaskID": task, "height": 900});
    let await_height = &AwaitNodesAtHeight {};
    assert_eq!(asked(said(true, "task", "pod-1")).without_a_write(await_height).await, "done");
    for other in [
        said(false, "task", "pod-1"),
        said(true, "earlier", "pod-1"),
        said(true, "task", "pod-0"),
        Value::Null,
    ] {
        let waits = asked(other.clone()).without_a_write(await_height).await;
        assert!(waits.starts_with("waiting for db-0 to halt at height 1000"), "{other}: {waits}");
    }
}

#[tokio::test]
async fn incumbents_are_deleted_first_only_after_claims_are_released() {
    let immediate = |retention: &str| {
        let amid = amid("BlueGreen", "Promoting").without("db-new-0");
        let templates = json!([{"metadata": {"name": "data"}}]);
        let amid = amid.changed("db-0", "/spec/volumeClaimTemplates", templates);
        let amid = amid.changed("db-0", "/spec/removalID", json!("remove-2"));
        let amid = amid.changed("db-0", "/status/plan", leaving("remove-2"));
        amid.changed("db-0", "/spec/volumeClaimRetention", json!(retention))
    };
    let claim = |owned: bool| {
        let mut metadata = meta("data-db-0-0", "claim-uid", 6, None);
        metadata["labels"] = json!({"windlass.dev/node": "db-0"});
        if owned {
            metadata["ownerReferences"] =
                json!([{"kind": "StatefulNode", "name": "db-0", "uid": "uid of db-0"}]);
        }
        json!({"metadata": metadata})
    };
    // No watch shows a claim without the node's label (`shown`). `unanswered` is the version of the claim that a write
    // with an unknown outcome was based on.
    for (retention, owned, shown, unanswered, goes) in [
        ("Retain", false, true, "", true),
        ("Retain", false, true, "5", true),
        ("Retain", false, true, "6", false),
        ("Retain", false, false, "6", false),
        ("Retain", true, true, "", false),
        ("Retain", true, false, "", false),
        ("Delete", false, true, "", false),
    ] {
        let mut cluster = MockCluster::new();
        cluster
            .expect_get()
            .withf(|kind, _, name| *kind == Kind::PersistentVolumeClaim && name == "data-db-0-0")
            .returning(move |_, _, _| Ok(Some(claim(owned))));
        if goes {
            cluster.expect_delete().once().withf(|target| target.name == "db-0").returning(|_| Ok(()));
        }
        let view = View::shared();
        let mut scope = immediate(retention).scope(cluster, &view);
        has_plan(&mut scope, "BlueGreenImmediate");
        if shown {
            view.observe(Kind::PersistentVolumeClaim, &claim(owned));
        }
        if !unanswered.is_empty() {
            let key = Key::new("test", "data-db-0-0");
            let namespace = claim(owned)["metadata"]["namespace"].as_str().unwrap_or_default().to_owned();
            view.doubt(Kind::PersistentVolumeClaim, Key { namespace, ..key }, unanswered);
        }
        let env = Env::new().with(scope);
        let waits = said(&run_in(&env, &plan("BlueGreenImmediate"), &RetireIncumbents {}).await);
        assert!(
            waits.starts_with("waiting for the deletion of set first to complete"),
            "{retention} {owned} {shown} {unanswered}: {waits}"
        );
        // Nothing else reports what the rollout waits for.
        let named = waits.contains("node db-0 is not deleted yet");
        assert_eq!(named, !goes, "{retention} {owned} {shown} {unanswered}: {waits}");
        assert_eq!(
            waits.contains("PersistentVolumeClaim data-db-0-0"),
            !goes && retention == "Retain",
            "{waits}"
        );
    }
}

#[tokio::test]
async fn incumbents_are_not_deleted_first_while_traffic_cannot_switch() {
    let anothers = json!({"metadata": meta("db", "service-uid", 9, None),
        "spec": {"selector": {"windlass.dev/deployment": "db", "windlass.dev/set": "first"}}});
    for (is, said_so) in [
        ("another's", "waiting for the fleet's Service: service: Service db exists and belongs to no fleet"),
        ("gone", "waiting for the fleet's Service to exist"),
        ("refused", "waiting: service: the API server rejects it"),
    ] {
        for stage in ["CreatingEntrants", "Promoting"] {
            let view = View::shared();
            // Any write would panic.
            let mut scope = amid("BlueGreen", stage).without("db-new-0").scope(MockCluster::new(), &view);
            match is {
                "another's" => view.observe(Kind::Service, &anothers),
                "gone" => view.deleted(Kind::Service, &Key::new("shop", "db"), "service-uid"),
                _ => scope.block(Blocker::Service("service: the API server rejects it: no".to_owned())),
            }
            let env = Env::new().with(scope);
            let waits = said(&run_in(&env, &plan("BlueGreenImmediate"), &RetireIncumbents {}).await);
            assert!(waits.starts_with(said_so), "{is}, {stage}: {waits}");
        }
    }
}

/// Some of the old nodes may be gone by then: the promotion of what was wanted is finished first.
#[tokio::test]
async fn invalid_spec_keeps_incumbents_until_the_promotion_starts() {
    let refused = "template: the API server rejects it: no";
    for stage in ["CreatingEntrants", "Promoting"] {
        let goes = stage == "Promoting";
        let mut cluster = MockCluster::new();
        if goes {
            cluster.expect_delete().once().withf(|target| target.name == "db-0").returning(|_| Ok(()));
        }
        let amid = amid("BlueGreen", stage).without("db-new-0");
        let amid = amid.changed("db-0", "/spec/removalID", json!("remove-2"));
        let amid = amid.changed("db-0", "/status/plan", leaving("remove-2"));
        let amid = amid.changed("db-0", "/spec/volumeClaimRetention", json!("Retain"));
        let mut scope = amid.scope(cluster, &View::shared());
        has_plan(&mut scope, "BlueGreenImmediate");
        scope.blocker = Some(Blocker::TemplateRefused("no".to_owned()));
        let env = Env::new().with(scope);
        let waits = said(&run_in(&env, &plan("BlueGreenImmediate"), &RetireIncumbents {}).await);
        let expected = if goes {
            "waiting for the deletion of set first to complete".to_owned()
        } else {
            format!("waiting: {refused}")
        };
        assert!(waits.starts_with(&expected), "{stage}: {waits}");
    }
}

#[tokio::test]
async fn halt_is_not_requested_while_traffic_cannot_switch() {
    let view = View::shared();
    let amid = amid("HardFork", "CreatingEntrants").changed("db-0", "/spec/sidecar", json!({"image": "w:1"}));
    let amid = amid.changed("db-0", "/status/sidecar", json!({"podUID": "pod-1", "height": 7}));
    // Any write would panic.
    let scope = amid.scope(MockCluster::new(), &view);
    view.deleted(Kind::Service, &Key::new("shop", "db"), "service-uid");
    let waits = said(&run_in(&Env::new().with(scope), &plan("HardFork"), &SubmitHalt {}).await);
    assert_eq!(waits, "waiting for the fleet's Service to exist");
}

#[tokio::test]
async fn old_set_is_kept_until_the_traffic_switch_is_recorded() {
    let recipe = "{name: BlueGreen, tasks: [{type: switch-traffic}, \
        {type: await-approval, params: {hook: look, at: AfterPromotion}}, {type: retire-incumbents}]}";
    let seed = PlanSeed { uid: "uid", target_hash: "v1:x", now: now(), attempt: 0, disambiguator: "" };
    let mut plan = Recipe::parse(recipe).unwrap().plan(seed);
    plan.tasks[0].state = crate::engine::TaskState::Complete;
    plan.tasks[1].state = crate::engine::TaskState::Skipped;
    // Any write would panic.
    let scope = amid("BlueGreen", "Promoting").scope(MockCluster::new(), &View::shared());
    let waits = said(&run_in(&Env::new().with(scope), &plan, &RetireIncumbents {}).await);
    assert_eq!(waits, "waiting for the promotion to be recorded");
}

#[tokio::test]
async fn conflicting_node_delete_records_no_event() {
    for (answer, told) in
        [(Ok(()), 1), (Err(ClusterError::Conflict { object: String::new(), message: String::new() }), 0)]
    {
        let mut cluster = MockCluster::new();
        cluster.expect_delete().once().return_once(move |_| answer);
        let view = View::shared();
        let scope = amid("BlueGreen", "Promoting").scope(cluster, &view);
        let deleted = scope.delete_node(&"db-0".into(), "of a test").await;
        assert_eq!((deleted.is_ok(), scope.recorder.take().len()), (told == 1, told));
    }
}

#[tokio::test]
async fn orphaned_pod_is_awaited_with_advice_to_delete_it() {
    const BY: (&str, &str, &str) = ("StatefulSet", "db-0", "set-uid");
    for (owner, named) in
        [(Some(BY), "Pod db-0-0"), (None, "Pod db-0-0 (it no longer has an owner: delete it)")]
    {
        let view = View::shared();
        let mut metadata = meta("db-0-0", "pod-uid", 6, owner);
        metadata["labels"] = json!({"windlass.dev/deployment": "db", "windlass.dev/set": "first",
            "windlass.dev/node": "db-0"});
        view.observe(Kind::Pod, &json!({"metadata": metadata}));
        let scope = amid("BlueGreen", "Retiring").without("db-0").scope(MockCluster::new(), &view);
        let waits = said(&run_in(&Env::new().with(scope), &plan("BlueGreen"), &RetireIncumbents {}).await);
        assert!(waits.ends_with(&format!("remaining objects: {named}")), "{waits}");
    }
}

#[tokio::test]
async fn entrants_wait_for_an_old_pod_missing_from_the_watch() {
    for strategy in ["BlueGreen", "BlueGreenImmediate"] {
        let immediately = strategy == "BlueGreenImmediate";
        let mut metadata = meta("db-0-0", "pod-uid", 6, None);
        metadata["labels"] = json!({"windlass.dev/deployment": "db", "windlass.dev/set": "first"});
        let left = Arc::new(Mutex::new(vec![json!({"metadata": metadata})]));
        let (shown, mut cluster) = (left.clone(), MockCluster::new());
        cluster.expect_selected().times(if immediately { 2 } else { 0 }).returning(
            move |kind, namespace, by| {
                let of_set = "windlass.dev/deployment=db,windlass.dev/set=first".to_owned();
                assert_eq!((kind, namespace, by), (Kind::Pod, "shop", Selector::Labels(of_set)));
                Ok(shown.lock().unwrap().clone())
            },
        );
        let mut scope = amid("BlueGreen", "Promoting").without("db-0").scope(cluster, &View::shared());
        has_plan(&mut scope, strategy);
        let env = Env::new().with(scope);
        let plan = plan(strategy);
        let before = run_in(&env, &plan, &RetireIncumbents {}).await;
        if immediately {
            let waits = "waiting for the deletion of set first to complete; remaining objects: Pod db-0-0 (it no \
                longer has an owner: delete it)";
            assert_eq!(said(&before), waits);
            left.lock().unwrap().clear();
        }
        assert!(matches!(run_in(&env, &plan, &RetireIncumbents {}).await, Ok(Outcome::Done)), "{strategy}");
    }
}
