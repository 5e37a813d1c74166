//! Table tests of what each verb changes.

use chrono::{DateTime, Utc};
use serde_json::{Value, json};

use super::change::{Change, Verb, Write, change};
use super::record::ops;
use super::revisions::{StoredRevision, rollback, table};
use crate::target::Kind;
use windlass_core::revision::RevisionData;

const HASH: &str = "v1:0123456789";

fn now() -> DateTime<Utc> {
    "2030-01-01T12:00:00Z".parse().unwrap()
}

/// A rolling fleet, with `changes` merged.
fn fleet(changes: &Value) -> Value {
    let mut fleet = json!({
        "apiVersion": "windlass.dev/v1alpha1", "kind": "NodeDeployment",
        "metadata": {"name": "db", "namespace": "shop", "uid": "u", "generation": 2, "resourceVersion": "7"},
        "spec": {"updateStrategy": {"type": "BlueGreen"}, "template": {"spec": {
            "image": "db:2", "ports": [{"port": 1}], "podTemplate": {"spec": {"containers": [{"name": "db"}]}}}}},
        "status": {"observedGeneration": 2, "requestedRolloutHash": HASH, "lastCompletedRolloutHash": "v1:old",
            "rollout": {"cause": "TemplateChanged", "recipe": "BlueGreen", "stage": "AwaitingEntrants", "entrantSet": "01234"},
            "plan": {"id": "p1", "state": "Active", "tasks": [
                {"id": "p1-0", "type": "create-entrants", "state": "Complete"},
                {"id": "p1-1", "type": "await-caught-up", "state": "Running"},
                {"id": "p1-2", "type": "switch-traffic", "state": "Pending"}]}},
    });
    json_patch::merge(&mut fleet, changes);
    fleet
}

fn write(verb: &Verb, object: &Value) -> Result<Option<Write>, String> {
    change(verb, Kind::Fleet, object, now()).map(|change| change.write)
}

fn annotations(entry: (&str, &str)) -> Value {
    json!({"metadata": {"annotations": {entry.0: entry.1}}})
}

fn with_windows(mut changes: Value) -> Value {
    changes["spec"]["updateStrategy"]["windows"] = json!([{"schedule": "0 2 * * *", "duration": "3h"}]);
    changes
}

#[test]
fn verb_writes_one_field_or_annotation_and_is_idempotent() {
    let field = |path, value: Value| Ok(Some(Write::Field(path, value)));
    let annotation = |key, value: &str| Ok(Some(Write::Annotation(key, value.to_owned())));
    let nothing = || Ok(None);
    let skip = |task: Option<&str>| Verb::Skip { task: task.map(str::to_owned) };
    let promote = |hash: Option<&str>| Verb::Promote { hash: hash.map(str::to_owned) };
    let table: Vec<(Verb, Value, Result<Option<Write>, String>)> = vec![
        (Verb::Pause, json!({}), field("/spec/paused", json!(true))),
        (Verb::Pause, json!({"spec": {"paused": true}}), nothing()),
        (Verb::Resume, json!({"spec": {"paused": true}}), field("/spec/paused", json!(false))),
        (Verb::Resume, json!({}), nothing()),
        (Verb::OpenWindow, with_windows(json!({})), annotation("windlass.dev/open-window", "p1")),
        (Verb::OpenWindow, with_windows(json!({"status": {"rollout": {"windowOpened": true}}})), nothing()),
        (
            Verb::OpenWindow,
            with_windows(json!({"spec": {"paused": true}})),
            Err("it is paused: run windlass resume first, then again with --now".to_owned()),
        ),
        (
            Verb::OpenWindow,
            with_windows(json!({"status": {"plan": {"state": "Complete"}}})),
            Err("no rollout is active: there is no window to open".to_owned()),
        ),
        (
            Verb::OpenWindow,
            json!({}),
            Err("spec.updateStrategy.windows is empty: no rollout waits for a window".to_owned()),
        ),
        (Verb::Restart, json!({}), annotation("windlass.dev/restartedAt", "2030-01-01T12:00:00Z")),
        (Verb::Restart, annotations(("windlass.dev/restartedAt", "2029-12-31T00:00:00Z")), nothing()),
        (Verb::Restart, json!({"status": {"rollout": {"cause": "RestartRequested"}}}), nothing()),
        (
            Verb::Restart,
            json!({"status": {"restartedAt": "2030-01-01T12:00:05Z"}}),
            annotation("windlass.dev/restartedAt", "2030-01-01T12:00:06Z"),
        ),
        (Verb::Abort { rollback: false }, json!({}), annotation("windlass.dev/abort", "p1")),
        (Verb::Abort { rollback: false }, annotations(("windlass.dev/abort", "p1")), nothing()),
        (Verb::Abort { rollback: false }, json!({"status": {"plan": {"state": "Aborted"}}}), nothing()),
        (
            Verb::Abort { rollback: false },
            json!({"status": {"rollout": {"stage": "Promoting"}}}),
            Err("plan p1 is promoting and cannot be aborted before traffic has moved; to roll back after that: \
                 windlass rollback"
                .to_owned()),
        ),
        (
            Verb::Abort { rollback: false },
            json!({"status": {"rollout": {"stage": "Retiring"}}}),
            Err("traffic has already moved: there is nothing to abort; to roll back: windlass rollback".to_owned()),
        ),
        (
            Verb::Abort { rollback: false },
            json!({"status": {"plan": {"state": "Complete"}}}),
            Err("no rollout is active: there is nothing to abort".to_owned()),
        ),
        (
            Verb::Retry,
            json!({"status": {"rejected": {"planID": "p0"}}}),
            annotation("windlass.dev/retry", "p0"),
        ),
        (Verb::Retry, json!({"status": {"rollout": {"cause": "RetryRequested"}}}), nothing()),
        (
            Verb::Retry,
            json!({"status": {"plan": {"state": "Failed"}, "rollout": {"cause": "RetryRequested"}}}),
            annotation("windlass.dev/retry", "p1"),
        ),
        (Verb::Retry, json!({}), Err("no target is rejected: there is nothing to retry".to_owned())),
        (skip(None), json!({}), annotation("windlass.dev/skip", "p1-1")),
        (skip(Some("p1-1")), json!({}), annotation("windlass.dev/skip", "p1-1")),
        (skip(None), annotations(("windlass.dev/skip", "p1-1")), nothing()),
        (promote(None), json!({}), field("/spec/forcePromote", json!(HASH))),
        (promote(Some("0123")), json!({}), field("/spec/forcePromote", json!(HASH))),
        (promote(Some("v1:0123")), json!({}), field("/spec/forcePromote", json!(HASH))),
        (promote(Some(HASH)), json!({"spec": {"forcePromote": HASH}}), nothing()),
        (promote(None), json!({"status": {"lastCompletedRolloutHash": HASH}}), nothing()),
        (
            promote(None),
            json!({"spec": {"updateStrategy": {"type": "InPlace"}}, "status": {"rollout": null}}),
            Err("no new nodes wait for promotion".to_owned()),
        ),
        (
            promote(None),
            json!({"spec": {"updateStrategy": {"type": "InPlace"}}}),
            field("/spec/forcePromote", json!(HASH)),
        ),
    ];
    for (verb, changes, expected) in table {
        assert_eq!(write(&verb, &fleet(&changes)), expected, "{verb:?} {changes}");
    }
}

#[test]
fn every_verb_event_has_a_known_reason() {
    let done = |verb| Change::done(verb, Write::Field("/spec/paused", json!(true)), "done").reason();
    let verbs = ["pause", "resume", "restart", "abort", "retry", "skip", "approve", "promote", "rollback"];
    let known = windlass_core::api::reasons::EVENTS_OF_VERBS.iter().map(ToString::to_string);
    assert_eq!(verbs.map(done).to_vec(), known.collect::<Vec<_>>());
}

#[test]
fn impossible_request_is_refused_with_advice() {
    let fleet = |changes: Value| fleet(&changes);
    let skip = |task: &str| Verb::Skip { task: Some(task.to_owned()) };
    let promote = |hash: &str| Verb::Promote { hash: Some(hash.to_owned()) };
    let rolling = |rollout: Value| fleet(json!({"status": {"rollout": rollout}}));
    let table = [
        // These would have no effect, or another one much later.
        (Kind::Fleet, promote(HASH), rolling(json!({"entrantSet": ""})), "updated in place"),
        (
            Kind::Fleet,
            promote(HASH),
            rolling(json!({"recipe": "HardFork"})),
            "once its old nodes have halted",
        ),
        (
            Kind::Fleet,
            promote(HASH),
            rolling(json!({"recipe": "BlueGreenImmediate"})),
            "as soon as they are available",
        ),
        (Kind::Fleet, promote(HASH), rolling(json!({"stage": "Retiring"})), "no new nodes wait"),
        (
            Kind::Fleet,
            promote(HASH),
            fleet(json!({"spec": {"forcePromote": HASH}, "status": {"spentForcePromote": HASH}})),
            "clear spec.forcePromote",
        ),
        (
            Kind::Fleet,
            Verb::Abort { rollback: false },
            fleet(json!({"status": {"plan": {"state": "Failed"}, "rollout": {"stage": "Promoting"}}})),
            "windlass retry",
        ),
        (
            Kind::Fleet,
            skip("p1-1"),
            fleet(json!({"status": {"plan": {"state": "Aborted"}}})),
            "plan p1 has already ended",
        ),
        (Kind::Fleet, skip("p1-2"), fleet(json!({})), "cannot be skipped"),
        (Kind::Fleet, skip("p9-9"), fleet(json!({})), "see status.plan.tasks"),
        (Kind::Fleet, promote("v1:99999"), fleet(json!({})), "check the change again"),
        (Kind::Fleet, promote("v2:01234"), fleet(json!({})), "check the change again"),
        (Kind::Fleet, promote("012"), fleet(json!({})), "at least 4 digits"),
        (Kind::Fleet, promote("v1:012"), fleet(json!({})), "at least 4 digits"),
        (
            Kind::Fleet,
            Verb::Promote { hash: None },
            fleet(json!({"metadata": {"generation": 3}})),
            "try again in a moment",
        ),
        (Kind::Node, Verb::Pause, json!({}), "spec.suspend"),
        (Kind::Node, Verb::Abort { rollback: false }, json!({}), "nd/NAME"),
        (Kind::Node, Verb::Retry, json!({}), "retried automatically"),
    ];
    for (kind, verb, object, expected) in table {
        let error = change(&verb, kind, &object, now()).unwrap_err();
        assert!(error.contains(expected), "{verb:?}: {error}");
    }
}

#[test]
fn mark_ready_may_be_skipped_only_on_the_node() {
    let node = json!({"status": {"plan": {"id": "n", "state": "Active", "tasks": [
        {"id": "n-0", "type": "mark-ready", "state": "Running"}]}}});
    let verb = Verb::Skip { task: None };
    let change_of = |kind| change(&verb, kind, &node, now());
    assert_eq!(
        change_of(Kind::Node).unwrap().write,
        Some(Write::Annotation("windlass.dev/skip", "n-0".to_owned()))
    );
    assert!(change_of(Kind::Fleet).unwrap_err().contains("cannot be skipped"));
}

#[test]
fn skip_of_a_custom_task_is_left_to_the_operator() {
    let plan = |type_: &str| {
        json!({"status": {"plan": {"id": "p", "state": "Active", "tasks": [
            {"id": "p-0", "type": type_, "state": "Running"}]}}})
    };
    for (kind, task) in [(Kind::Fleet, None), (Kind::Fleet, Some("p-0".to_owned())), (Kind::Node, None)] {
        let change = change(&Verb::Skip { task }, kind, &plan("await-backup"), now()).unwrap();
        assert_eq!(change.write, Some(Write::Annotation("windlass.dev/skip", "p-0".to_owned())));
        assert!(change.message.contains("an event SkipRefused reports"), "{}", change.message);
    }
    for type_ in ["update-node-specs", "replace-pod"] {
        for kind in [Kind::Fleet, Kind::Node] {
            let error = change(&Verb::Skip { task: None }, kind, &plan(type_), now()).unwrap_err();
            assert!(error.contains("cannot be skipped"), "{error}");
        }
    }
}

#[test]
fn retry_reports_that_it_waits_for_another_plan() {
    let rejected = |plan: Value| {
        let mut fleet = fleet(&json!({"status": {"rejected": {"planID": "p0"}}}));
        json_patch::merge(&mut fleet, &json!({"status": {"plan": plan}}));
        fleet
    };
    let message = |fleet: &Value| change(&Verb::Retry, Kind::Fleet, fleet, now()).unwrap().message;
    let active = rejected(json!({"state": "Active"}));
    assert_eq!(message(&active), "retry of plan p0 requested; it starts when plan p1 has ended or stalled");
    assert_eq!(message(&rejected(json!({"state": "Complete"}))), "retry of plan p0 requested");
    let mut repair = active.clone();
    repair["status"]["rollout"]["ownRevisions"] = json!(true);
    assert_eq!(message(&repair), "retry of plan p0 requested; it starts when plan p1 has ended");
    let mut again = active;
    json_patch::merge(&mut again, &annotations(("windlass.dev/retry", "p0")));
    assert_eq!(
        message(&again),
        "unchanged: the retry of plan p0 is already requested; it starts when plan p1 has ended or stalled"
    );
}

#[test]
fn skip_of_a_complete_task_is_reported_as_unchanged() {
    let complete = fleet(&json!({"status": {"plan": {"tasks": [
        {"id": "p1-1", "type": "await-caught-up", "state": "Complete"},
        {"id": "p1-2", "type": "switch-traffic", "state": "Running"}]}}}));
    let verb = Verb::Skip { task: Some("p1-1".to_owned()) };
    let change = change(&verb, Kind::Fleet, &complete, now()).unwrap();
    assert_eq!(
        (change.write, change.message.as_str()),
        (None, "unchanged: task p1-1 (await-caught-up) is already complete")
    );
}

fn patch(object: &mut Value, ops: Vec<Value>) {
    let patch: json_patch::Patch = serde_json::from_value(Value::Array(ops)).unwrap();
    json_patch::patch(object, &patch).unwrap();
}

/// Writes a change as alice.
fn written(object: &mut Value, change: &Change) {
    let ops = ops(object, change, change.write.clone().unwrap(), "alice", None, now());
    patch(object, ops);
}

#[test]
fn patch_is_guarded_and_records_the_requester() {
    let abort = Change::done("abort", Write::Annotation("windlass.dev/abort", "p1".to_owned()), "");
    for (annotations, expected) in [(Value::Null, 1), (json!({"a": "b"}), 2)] {
        let mut object = fleet(&json!({"metadata": {"annotations": annotations}}));
        let ops = ops(&object, &abort, abort.write.clone().unwrap(), "alice", Some("disk full"), now());
        assert_eq!(ops[0], json!({"op": "add", "path": "/metadata/resourceVersion", "value": "7"}));
        patch(&mut object, ops);
        let written = object["metadata"]["annotations"].as_object().unwrap();
        assert_eq!(written.len(), expected + 1, "{written:?}");
        assert_eq!(written["windlass.dev/abort"], "p1");
        let asked: Value =
            serde_json::from_str(written["windlass.dev/last-request"].as_str().unwrap()).unwrap();
        assert_eq!(
            asked,
            json!({"verb": "abort", "by": "alice", "why": "disk full", "at": "2030-01-01T12:00:00Z"})
        );
    }
}

fn stored(number: i64, image: &str) -> StoredRevision {
    let data = json!({"image": image, "podTemplate": {"spec": {"containers": [{"name": "db"}]}}});
    StoredRevision {
        name: format!("db-{number}"),
        number,
        made_at: Some(now() - chrono::TimeDelta::hours(10 - number)),
        build_id: Some(String::new()),
        data: RevisionData::from_value(&data).unwrap(),
    }
}

fn three() -> Vec<StoredRevision> {
    vec![stored(1, "db:0"), stored(2, "db:1"), stored(3, "db:2")]
}

fn image_set(change: &Change) -> String {
    match &change.write {
        Some(Write::Field("/spec/template/spec", spec)) => {
            assert_eq!(spec["ports"], json!([{"port": 1}]), "what applies at once stays");
            spec["image"].as_str().unwrap().to_owned()
        }
        other => format!("{other:?}"),
    }
}

#[test]
fn rollback_selects_last_completed_or_named_revision() {
    // The second revision was aborted: the one before it ran last.
    let ended = |number: i64, image: &str, outcome: &str| json!({"targetHash": stored(number, image).data.rollout_hash(""), "outcome": outcome});
    let history =
        json!([ended(1, "db:0", "Complete"), ended(2, "db:1", "Aborted"), ended(3, "db:2", "Complete")]);
    let at = |current: &str| {
        fleet(&json!({"status": {"rollout": null, "currentRevision": current, "history": history}}))
    };
    let table = [
        ("db-2", None, "db:1"),
        ("db-3", None, "db:0"),
        ("db-2", Some("1"), "db:0"),
        ("db-3", Some("db-1"), "db:0"),
        ("db-2", Some("3"), "None"),
    ];
    for (current, to, expected) in table {
        let change = rollback(&at(current), &three(), to).unwrap();
        assert_eq!(image_set(&change), expected, "{current} {to:?}");
    }
    // Traffic has moved, and the plan is not in the history yet.
    let from = stored(1, "db:0").data.rollout_hash("");
    let retiring = fleet(&json!({"status": {"currentRevision": "db-3", "history": [],
        "rollout": {"stage": "Retiring", "cause": "TemplateChanged", "fromHash": from}}}));
    assert_eq!(image_set(&rollback(&retiring, &three(), None).unwrap()), "db:0");
    let refused = [
        (at("db-2"), three(), Some("9"), "see windlass history"),
        (at(""), three(), None, "no rollout has completed yet"),
        (at("db-3"), vec![stored(3, "db:2")], None, "name one with --to"),
    ];
    for (fleet, stored, to, expected) in refused {
        let error = rollback(&fleet, &stored, to).unwrap_err();
        assert!(error.contains(expected), "{error}");
    }
}

/// Windlass cannot restore data, and an older template is another release than the one that worked with it.
#[test]
fn rollback_of_changed_data_selects_no_older_release() {
    let named = json!({"metadata": {"annotations": {"windlass.dev/restart-on": "configmap/conf"}}});
    let with_data = |number: i64, image: &str, digest: &str| {
        let mut revision = stored(number, image);
        let mut data = revision.data.to_value();
        json_patch::merge(&mut data["podTemplate"], &named);
        revision.data = RevisionData::from_value(&data).unwrap().with_config(digest);
        revision
    };
    let revisions =
        vec![with_data(1, "db:1", "conf:a"), with_data(2, "db:2", "conf:a"), with_data(3, "db:2", "conf:b")];
    let ended = |revision: &StoredRevision| json!({"targetHash": revision.data.rollout_hash(""), "outcome": "Complete"});
    let history: Vec<Value> = revisions.iter().map(ended).collect();
    let under_way = json!({"cause": "ConfigChanged", "stage": "Updating"});
    for (current, rollout, history) in
        [("db-2", under_way, &history[..2]), ("db-3", Value::Null, &history[..])]
    {
        let spec = json!({"template": {"spec": {"podTemplate": named}}});
        let fleet = fleet(&json!({"spec": spec, "status": {
            "rollout": rollout, "currentRevision": current, "history": history}}));
        let change = rollback(&fleet, &revisions, None).unwrap();
        assert!(change.write.is_none(), "{current}");
        let expected =
            "its template is already that of revision 2; the data of its ConfigMaps and Secrets does";
        assert!(change.message.contains(expected), "{}", change.message);
    }
}

#[test]
fn history_lists_each_revision_with_its_changes() {
    let fleet = fleet(&json!({"status": {
        "currentRevision": "db-2", "updateRevision": "db-3",
        "history": [{"planID": "p0", "recipe": "InPlace", "targetHash": "v1:abcdef", "outcome": "Aborted",
            "reason": "AbortRequested", "message": "abort by alice: disk full", "finishedAt": "2030-01-01T11:00:00Z"}],
    }}));
    let mut revisions = three();
    revisions[0].build_id = None;
    revisions[2].build_id = Some("two".to_owned());
    let shown = table(&fleet, &revisions, now());
    let expected = "\
REVISION   NAME   STATUS           AGE   BUILD       IMAGE   CHANGE
3          db-3   target           7h    two         db:2    podTemplate.spec.containers[name=db].image changes from \"db:1\" to \"db:2\"
2          db-2   last completed   8h    <none>      db:1    podTemplate.spec.containers[name=db].image changes from \"db:0\" to \"db:1\"
1          db-1                    9h    <unknown>   db:0    the oldest stored revision

PLAN   RECIPE    TARGET   OUTCOME   ENDED     WHY
p0     InPlace   abcde    Aborted   60m ago   AbortRequested: abort by alice: disk full
";
    assert_eq!(shown, expected, "{shown}");
}

#[test]
fn rollback_from_first_rollout_restores_the_initial_revision() {
    let hash = |number: i64, image: &str| stored(number, image).data.rollout_hash("");
    let first = json!([{"fromHash": hash(2, "db:1"), "targetHash": hash(3, "db:2"), "outcome": "Complete"}]);
    let released = fleet(&json!({"status": {"rollout": null, "currentRevision": "db-3", "history": first}}));
    let change = rollback(&released, &[stored(2, "db:1"), stored(3, "db:2")], None).unwrap();
    assert_eq!(image_set(&change), "db:1");
}

#[test]
fn repeated_rollback_is_idempotent_and_waits_during_promotion() {
    let amid = |image: &str, rollout: Value| {
        let mut fleet = fleet(&json!({"spec": {"template": {"spec": {"image": image}}}}));
        fleet["status"]["rollout"] = rollout;
        fleet["status"]["currentRevision"] = json!("db-2");
        fleet
    };
    let promoting = || json!({"cause": "TemplateChanged", "stage": "Promoting"});
    let message = rollback(&amid("db:2", promoting()), &three(), None).unwrap().message;
    assert!(
        message.starts_with("rolled back to revision 2") && message.contains("once traffic has moved"),
        "{message}"
    );
    for rollout in [promoting(), json!({"cause": "Superseded", "stage": "Updating"})] {
        let again = rollback(&amid("db:1", rollout), &three(), None).unwrap();
        assert_eq!(again.write, None, "{}", again.message);
    }
    // A restart or repair is no rollback.
    let restarted = json!({"cause": "RestartRequested", "stage": "Updating"});
    let asked = rollback(&amid("db:1", restarted), &three(), None);
    assert!(asked.is_err_and(|error| error.contains("name one with --to")));
}

#[test]
fn completed_rollback_is_not_repeated_until_target_changes() {
    let of = |number: i64| three().remove(usize::try_from(number).unwrap() - 1);
    let hash = |number: i64| of(number).data.rollout_hash("");
    let ended = |id: &str, from: i64, to: i64, outcome: &str| json!({"planID": id, "fromHash": hash(from), "targetHash": hash(to), "outcome": outcome});
    let mut object =
        fleet(&json!({"status": {"rollout": null, "currentRevision": "db-3", "plan": {"id": "p2"},
        "history": [ended("p1", 1, 2, "Complete"), ended("p2", 2, 3, "Complete")]}}));
    let first = rollback(&object, &three(), None).unwrap();
    assert_eq!(image_set(&first), "db:1");
    written(&mut object, &first);
    let again = |object: &Value| rollback(object, &three(), None).unwrap();
    let is_again = |object: &Value| {
        let again = again(object);
        let words =
            ["was already rolled back to revision 2 (requested by alice at 2030-01-01T12:00:00Z)", "--to"];
        assert!(words.iter().all(|word| again.message.contains(word)), "{}", again.message);
        assert_eq!(again.write, None);
    };
    is_again(&object);
    object["status"]["plan"]["id"] = json!("p3");
    object["status"]["rollout"] = json!({"cause": "TemplateChanged", "stage": "Updating"});
    is_again(&object);
    // A pause and a resume are no other request, nor is an aborted restart.
    for paused in [Verb::Pause, Verb::Resume] {
        let change = change(&paused, Kind::Fleet, &object, now()).unwrap();
        written(&mut object, &change);
        is_again(&object);
    }
    object["status"]["rollout"] = Value::Null;
    object["status"]["currentRevision"] = json!("db-2");
    object["status"]["history"].as_array_mut().unwrap().push(ended("p3", 3, 2, "Complete"));
    is_again(&object);
    object["status"]["rejected"] = json!({"hash": hash(2), "planID": "p4"});
    object["status"]["history"].as_array_mut().unwrap().push(ended("p4", 2, 2, "Aborted"));
    is_again(&object);
    assert_eq!(image_set(&rollback(&object, &three(), Some("1")).unwrap()), "db:0", "another by its name");

    // The rollback was given up.
    let mut rejected = object.clone();
    rejected["status"]["currentRevision"] = json!("db-3");
    assert_eq!(image_set(&again(&rejected)), "db:2");
    // Another person changed the template.
    let mut applied = object.clone();
    applied["spec"]["template"]["spec"]["image"] = json!("db:2");
    assert_eq!(image_set(&again(&applied)), "db:1");
    // And changed it back.
    let mut returned = object.clone();
    let entries = [ended("p5", 2, 3, "Complete"), ended("p6", 3, 2, "Complete")];
    returned["status"]["history"].as_array_mut().unwrap().extend(entries);
    assert_eq!(image_set(&again(&returned)), "db:2");
    // The record of an older Windlass lacks the revision.
    let asked = json!({"verb": "rollback", "by": "alice", "at": "2030-01-01T12:00:00Z"}).to_string();
    object["metadata"]["annotations"]["windlass.dev/last-request"] = json!(asked);
    assert_eq!(image_set(&again(&object)), "db:2");
}

#[test]
fn rollback_during_immediate_promotion_warns_about_new_nodes() {
    let amid = |recipe: &str| {
        let rollout = json!({"cause": "TemplateChanged", "stage": "Promoting", "recipe": recipe});
        fleet(&json!({"status": {"rollout": rollout, "currentRevision": "db-2"}}))
    };
    let message = |recipe: &str| rollback(&amid(recipe), &three(), None).unwrap().message;
    let immediately = message("BlueGreenImmediate");
    assert!(
        immediately.contains("the new nodes are available") && immediately.contains("cannot be rolled back"),
        "{immediately}"
    );
    assert!(!message("BlueGreen").contains("the new nodes are available"));
}

#[test]
fn rollback_restores_the_build_id_with_the_template() {
    let of = |id: Option<&str>, r: StoredRevision| StoredRevision { build_id: id.map(str::to_owned), ..r };
    let hash = |number: i64, image: &str, id: &str| stored(number, image).data.rollout_hash(id);
    let history = json!([{"fromHash": hash(1, "db:1", "one"), "targetHash": hash(2, "db:2", "two"), "outcome": "Complete"}]);
    let released = fleet(&json!({"spec": {"unsafeCustomBuildID": "two"},
        "status": {"rollout": null, "currentRevision": "db-2", "history": history}}));
    let two = of(Some("two"), stored(2, "db:2"));
    for (id, image, message) in [
        (Some("one"), "db:1", "build ID one"),
        (Some("one"), "db:2", "build ID one"),
        (Some(""), "db:1", "without unsafeCustomBuildID"),
    ] {
        let change = rollback(&released, &[of(id, stored(1, image)), two.clone()], Some("1")).unwrap();
        assert!(change.message.contains(message), "{}", change.message);
        let mut object = released.clone();
        written(&mut object, &change);
        assert_eq!(object["spec"]["unsafeCustomBuildID"], id.unwrap());
        assert_eq!(object["spec"]["template"]["spec"]["image"], image);
    }
    // Without a name it goes to what ran before, whatever its ID.
    let before = rollback(&released, &[of(Some("one"), stored(1, "db:1")), two.clone()], None).unwrap();
    let message = &before.message;
    assert!(message.contains("revision 1") && message.contains("build ID one"), "{message}");
    let unknown = rollback(&released, &[of(None, stored(1, "db:1")), two], Some("1")).unwrap_err();
    assert!(
        unknown.contains("spec.unsafeCustomBuildID") && unknown.contains("controllerrevision db-1"),
        "{unknown}"
    );
}
