//! The page's buttons, run like the command line's verbs: one guarded patch each, with the rights of the user who
//! runs the page.

use async_trait::async_trait;
use kube::Client;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use crate::forecast::{self, Forecast, Outcome, forecast, forecast_rollout};
use crate::page::{Action, Actions, Button, PageKind, Refused, Rehearsed};
use crate::plan::Prediction;
use crate::target::{Located, Target};
use crate::verbs::change::{Change, Write, change};
use crate::verbs::revisions::{self, StoredRevision};
use crate::verbs::{Carried, How, Needs, Refusal, carry};
use windlass_clock::SharedClock;
use windlass_core::api::names::ANNOTATION_RESTARTED_AT;
use windlass_core::revision::hash::hex;

/// Runs actions with the user's own rights.
pub struct VerbActions {
    client: Client,
    clock: SharedClock,
}

impl VerbActions {
    pub fn new(client: Client, clock: SharedClock) -> Self {
        Self { client, clock }
    }

    async fn carry(&self, action: &Action, how: How<'_>, seal: Option<&str>) -> Result<Carried, Refused> {
        let target = Target { kind: action.kind.kind(), name: action.name.clone() };
        let located = Located { target, namespace: action.namespace.clone() };
        let needs = match (action.button, action.kind) {
            (Button::Rollback, PageKind::Fleet) => Needs::Revisions,
            _ => Needs::Object,
        };
        let now = || self.clock.now();
        let decide = |stored: &[StoredRevision], object: &Value| {
            let change = decided((action.kind, action.button), stored, object, self.clock.now())?;
            match seal {
                Some(looked_at)
                    if change.write.is_some() && looked_at != self::seal(action.button, &change, object) =>
                {
                    Err("the object changed since you opened this page: the current effect is shown below"
                        .to_owned())
                }
                _ => Ok(change),
            }
        };
        let carried = carry(&self.client, &located, needs, how, now, decide).await;
        carried.map_err(|refusal| match refusal {
            Refusal::Unread(sentence) | Refusal::Senseless(sentence) | Refusal::Failed(sentence) => {
                Refused { sentence, insist: None }
            }
            Refusal::Owned(sentence, meant) => {
                let (change, object) = &*meant;
                Refused { sentence, insist: Some(self::seal(action.button, change, object)) }
            }
        })
    }

    /// The effect of a change, in the words of `windlass plan`.
    async fn forecast(&self, action: &Action, carried: &Carried) -> Vec<String> {
        let patch = merge_patch(&desired_state(&carried.before), &desired_state(&carried.after));
        let change = forecast::Change::Merge(patch);
        let (client, now) = (&self.client, self.clock.now());
        let (namespace, name) = (action.namespace.as_str(), action.name.as_str());
        let of_fleet = |forecast: Forecast| {
            // An annotation changes no field, but a rollout may wait for it.
            let is_nothing = forecast.outcome == Outcome::Nothing && forecast.happens.is_empty();
            if is_nothing { Vec::new() } else { Prediction::of(&forecast).under() }
        };
        let asked = match action.kind {
            PageKind::Fleet => forecast(client, namespace, name, &change, now).await.map(of_fleet),
            PageKind::StatefulSets => {
                forecast_rollout(client, namespace, name, &change, now).await.map(of_fleet)
            }
            PageKind::Sheet(paged) => {
                let asked = paged.forecast(client, (namespace, name), &change, now).await;
                asked.map(|prediction| prediction.under())
            }
        };
        match asked {
            Ok(lines) => lines,
            Err(sentence) => vec![format!("The effect could not be computed: {sentence}")],
        }
    }
}

#[async_trait]
impl Actions for VerbActions {
    async fn rehearse(&self, action: &Action) -> Result<Rehearsed, Refused> {
        let how = How { reason: None, dry_run: true, force: action.force };
        let carried = self.carry(action, how, None).await?;
        let changes = carried.change.write.is_some();
        let then = if changes { self.forecast(action, &carried).await } else { Vec::new() };
        Ok(Rehearsed {
            message: carried.change.message.clone(),
            changes,
            then,
            seal: seal(action.button, &carried.change, &carried.before),
        })
    }

    async fn carry_out(&self, action: &Action, reason: Option<&str>) -> Result<String, Refused> {
        let how = How { reason, dry_run: false, force: action.force };
        self.carry(action, how, Some(&action.seal)).await.map(|carried| carried.change.message)
    }
}

fn decided(
    (kind, button): (PageKind, Button),
    stored: &[StoredRevision],
    object: &Value,
    now: chrono::DateTime<chrono::Utc>,
) -> Result<Change, String> {
    match button.decides(kind) {
        Some(verb) => change(&verb, kind.kind(), object, now),
        None => revisions::rollback(object, stored, None),
    }
}

/// A digest of a click's meaning, short enough for a form to carry: what it writes, and what decides the effect. Two
/// clicks with the same effect have the same seal, so the time of a restart is not part of it.
fn seal(button: Button, change: &Change, object: &Value) -> String {
    let written = match (&change.back_to, &change.write) {
        (_, None) => return String::new(),
        (Some(revision), _) => format!("back to {revision}"),
        (_, Some(Write::Annotation(key, _))) if *key == ANNOTATION_RESTARTED_AT => (*key).to_owned(),
        (_, Some(Write::Annotation(key, value))) => format!("{key}={value}"),
        (_, Some(Write::Field(path, value))) => format!("{path}={value}"),
        (_, Some(Write::Fields(fields))) => json!(fields).to_string(),
        (_, Some(Write::Annotations(annotations))) => json!(annotations).to_string(),
    };
    let digest = Sha256::digest(meaning(button, change, object).to_string());
    format!("{written} {}", hex(&digest[..8]))
}

/// The input of the seal besides the write: the object, its spec and annotations, and the stage of its rollout. The
/// progress of nodes is not part of it: it changes every second and is not what the user decides on.
fn meaning(button: Button, change: &Change, object: &Value) -> Value {
    let (meta, status) = (&object["metadata"], &object["status"]);
    // A pause means the same in every state, and must not fail because something changed.
    if button == Button::Pause {
        return json!([meta["uid"]]);
    }
    let (plan, rollout) = (&status["plan"], &status["rollout"]);
    // Which others wait changes all the time; the task's ID identifies the one that is meant.
    let message = Some(&change.message).filter(|_| !matches!(button, Button::Approve | Button::Skip));
    json!([
        meta["uid"],
        object["spec"],
        message,
        [plan["id"], plan["recipe"], plan["state"] == "Active"],
        [rollout["targetHash"], rollout["entrantSet"]],
        [status["activeSet"], status["lastCompletedRolloutHash"], status["restartedAt"]],
        status["rejected"]["planID"],
    ])
}

/// The desired state of an object: its spec and its annotations.
fn desired_state(object: &Value) -> Value {
    json!({"metadata": {"annotations": object["metadata"]["annotations"]}, "spec": object["spec"]})
}

/// The merge patch that turns `before` into `after`.
fn merge_patch(before: &Value, after: &Value) -> Value {
    let (Some(old), Some(new)) = (before.as_object(), after.as_object()) else { return after.clone() };
    let mut patch = Map::new();
    for (key, value) in new {
        match old.get(key) {
            Some(known) if known == value => {}
            Some(known) => drop(patch.insert(key.clone(), merge_patch(known, value))),
            None => drop(patch.insert(key.clone(), value.clone())),
        }
    }
    for key in old.keys().filter(|key| !new.contains_key(*key)) {
        patch.insert(key.clone(), Value::Null);
    }
    Value::Object(patch)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merge_patch_transforms_before_into_after() {
        let before = json!({"spec": {"a": 1, "b": {"c": 2, "gone": 3}, "list": [1, 2]}});
        let after = json!({"spec": {"a": 1, "b": {"c": 4}, "list": [2], "new": {"d": 5}}});
        let patch = merge_patch(&before, &after);
        assert_eq!(patch, json!({"spec": {"b": {"c": 4, "gone": null}, "list": [2], "new": {"d": 5}}}));
        let mut made = before;
        json_patch::merge(&mut made, &patch);
        assert_eq!(made, after);
    }

    #[test]
    fn seal_changes_with_the_viewed_state_but_not_with_time() {
        let object = |plan: &str| json!({"status": {"plan": {"id": plan, "state": "Active"}, "rollout": {"stage": "Updating"}}});
        let of = |button, plan: &str, second: &str| {
            let now = format!("2026-01-01T00:00:{second}Z").parse().unwrap();
            let object = object(plan);
            seal(button, &decided((PageKind::Fleet, button), &[], &object, now).unwrap(), &object)
        };
        assert_eq!(of(Button::Abort, "a", "00"), of(Button::Abort, "a", "09"));
        assert_ne!(of(Button::Abort, "a", "00"), of(Button::Abort, "b", "00"));
        assert_eq!(
            of(Button::Restart, "a", "00"),
            of(Button::Restart, "a", "09"),
            "the time is not part of it"
        );
        assert_ne!(of(Button::Pause, "a", "00"), of(Button::Abort, "a", "00"));
    }

    #[test]
    fn statefulset_rollback_button_aborts_with_rollback() {
        let object = json!({"metadata": {"uid": "u"}, "status": {"plan": {"id": "a", "state": "Active"}}});
        let of = (PageKind::StatefulSets, Button::Rollback);
        let change = decided(of, &[], &object, AT.parse().unwrap()).unwrap();
        let Some(Write::Annotations(written)) = &change.write else { panic!("{change:?}") };
        assert!(written.iter().all(|(_, plan)| plan == "a"), "{written:?}");
    }

    #[cfg(feature = "temporal")]
    #[test]
    fn worker_form_is_valid_only_for_the_rollout_it_showed() {
        let kind = PageKind::Sheet(crate::extension::PAGED[0]);
        let sealed = |button: Button, object: &Value| {
            seal(button, &decided((kind, button), &[], object, AT.parse().unwrap()).unwrap(), object)
        };
        let shown = crate::extension::ramping();
        let with = |change: Value| {
            let mut object = shown.clone();
            json_patch::merge(&mut object, &change);
            object
        };
        for button in [Button::Abort, Button::Skip] {
            let looked_at = sealed(button, &shown);
            assert!(looked_at.starts_with("windlass.dev/"), "{looked_at}");
            let moved = with(json!({"metadata": {"resourceVersion": "9"}, "status": {"rampPercent": 50}}));
            assert_eq!(sealed(button, &moved), looked_at, "{button:?}: a higher share is the same rollout");
            let tasks = json!([{"id": "other-1", "type": "ramp", "state": "Running"}]);
            let another = with(json!({"status": {"plan": {"id": "other", "tasks": tasks}}}));
            assert_ne!(sealed(button, &another), looked_at, "{button:?}");
        }
    }

    /// A fleet for which every button except Roll back does something.
    fn standing() -> Value {
        json!({
            "metadata": {"uid": "u", "resourceVersion": "7", "generation": 3},
            "spec": {"paused": true, "replicas": 3, "template": {"spec": {"image": "db:1.1",
                "podTemplate": {"spec": {"containers": [{"name": "db"}]}}}},
                "updateStrategy": {"type": "InPlace", "inPlace": {"maxUnavailable": 1}}},
            "status": {
                "observedGeneration": 3, "requestedRolloutHash": "v1:b", "activeSet": "first",
                "plan": {"id": "a", "recipe": "InPlace", "state": "Active", "tasks": [
                    {"id": "a-0", "type": "await-caught-up", "state": "Running"}]},
                "rollout": {"stage": "Updating", "targetHash": "v1:b", "nodes": {"updated": 1}},
                "hooks": [{"hook": "go", "taskID": "a-0", "state": "AwaitingApproval"}],
                "rejected": {"planID": "x"},
            },
        })
    }

    /// The same fleet, with `changes` merged.
    fn with(changes: &Value) -> Value {
        let mut object = standing();
        json_patch::merge(&mut object, changes);
        object
    }

    const AT: &str = "2026-01-01T00:00:00Z";

    fn sealed(button: Button, object: &Value) -> String {
        let stored: Vec<StoredRevision> =
            ["db-1", "db-2"].iter().enumerate().map(|(index, name)| stored(name, index)).collect();
        let of = (PageKind::Fleet, button);
        seal(button, &decided(of, &stored, object, AT.parse().unwrap()).unwrap(), object)
    }

    fn stored(name: &str, index: usize) -> StoredRevision {
        let spec = serde_json::from_value(json!({"image": format!("db:1.{index}"),
            "podTemplate": {"spec": {"containers": [{"name": "db"}]}}}));
        StoredRevision {
            name: name.to_owned(),
            number: i64::try_from(index).unwrap() + 1,
            made_at: None,
            build_id: Some(String::new()),
            data: windlass_core::revision::RevisionData::of(&spec.unwrap()),
        }
    }

    #[test]
    fn form_is_valid_only_for_the_state_it_showed() {
        let shown = with(&json!({"status": {"currentRevision": "db-1", "updateRevision": "db-2",
            "lastCompletedRolloutHash": "v1:a"}}));
        let buttons = [
            Button::Resume,
            Button::Approve,
            Button::Restart,
            Button::Abort,
            Button::Retry,
            Button::Skip,
            Button::Rollback,
        ];
        let changed = [
            ("another image", json!({"spec": {"template": {"spec": {"image": "db:2.0-other"}}}})),
            ("another wave", json!({"spec": {"updateStrategy": {"inPlace": {"maxUnavailable": 3}}}})),
            ("another fleet of that name", json!({"metadata": {"uid": "another"}})),
            ("a rollout that ended", json!({"status": {"lastCompletedRolloutHash": "v1:b"}})),
        ];
        for button in buttons {
            let looked_at = sealed(button, &shown);
            assert!(!looked_at.is_empty(), "{button:?}");
            for (what, change) in &changed {
                let mut object = shown.clone();
                json_patch::merge(&mut object, change);
                assert_ne!(sealed(button, &object), looked_at, "{button:?} after {what}");
            }
            let moved = json!({"metadata": {"resourceVersion": "9"},
                "status": {"rollout": {"nodes": {"updated": 2}, "stage": "Updating"}}});
            let mut object = shown.clone();
            json_patch::merge(&mut object, &moved);
            assert_eq!(sealed(button, &object), looked_at, "{button:?}: a node more is the same rollout");
        }
        let running = with(&json!({"spec": {"paused": false}}));
        let another = with(&json!({"spec": {"paused": false, "template": {"spec": {"image": "db:3"}}}}));
        assert_eq!(
            sealed(Button::Pause, &running),
            sealed(Button::Pause, &another),
            "a pause has the same effect on both"
        );
    }
}
