//! The page's buttons, carried out as the command line's verbs are: one guarded patch, with the rights of whoever runs the
//! page.

use async_trait::async_trait;
use kube::Client;
use serde_json::{Map, Value, json};

use crate::api::names::ANNOTATION_RESTARTED_AT;
use crate::cli::plan;
use crate::cli::target::{Kind, Located, Target};
use crate::cli::text::Line;
use crate::cli::verbs::change::{Change, Write, change};
use crate::cli::verbs::revisions::{self, Kept};
use crate::cli::verbs::{Carried, How, Needs, Refusal, Verb, carry};
use crate::clock::SharedClock;
use crate::dashboard::{Button, Deed, Hands, Refused, Rehearsed};
use crate::foresight::{self, Outcome, foresee};

/// Hands that write with one's own rights.
pub struct Own {
    client: Client,
    clock: SharedClock,
}

impl Own {
    pub fn new(client: Client, clock: SharedClock) -> Self {
        Self { client, clock }
    }

    async fn carry(&self, deed: &Deed, how: How<'_>, seal: Option<&str>) -> Result<Carried, Refused> {
        let target = Target { kind: Kind::Fleet, name: deed.name.clone() };
        let located = Located { target, namespace: deed.namespace.clone() };
        let needs = if deed.button == Button::Rollback { Needs::Revisions } else { Needs::Object };
        let now = || self.clock.now();
        let decide = |kept: &[Kept], object: &Value| {
            let change = decided(deed.button, kept, object, self.clock.now())?;
            match seal {
                Some(looked_at) if change.write.is_some() && looked_at != self::seal(&change) => {
                    Err(format!("it changed since you looked: now this would be \"{}\"", change.said))
                }
                _ => Ok(change),
            }
        };
        let carried = carry(&self.client, &located, needs, how, now, decide).await;
        carried.map_err(|refusal| match refusal {
            Refusal::Unread(sentence) | Refusal::Senseless(sentence) | Refusal::Failed(sentence) => {
                Refused { sentence, insist: None }
            }
            Refusal::Owned(sentence, change) => Refused { sentence, insist: Some(self::seal(&change)) },
        })
    }

    /// What a change would lead to, in the words of `windlass plan`.
    async fn foreseen(&self, deed: &Deed, carried: &Carried) -> Vec<String> {
        let patch = merge_patch(&wishes(&carried.before), &wishes(&carried.after));
        let change = foresight::Change::Merge(patch);
        let asked = foresee(&self.client, &deed.namespace, &deed.name, &change, self.clock.now()).await;
        match asked {
            Ok(foreseen) if foreseen.outcome == Outcome::Nothing => Vec::new(),
            Ok(foreseen) => {
                // The first line names the fleet; the others are indented under it.
                let under = |line: &Line| line.plain().chars().skip(2).collect();
                plan::lines(&foreseen).iter().skip(1).map(under).collect()
            }
            Err(sentence) => vec![format!("What comes of it nobody can tell: {sentence}")],
        }
    }
}

#[async_trait]
impl Hands for Own {
    async fn rehearse(&self, deed: &Deed) -> Result<Rehearsed, Refused> {
        let how = How { reason: None, dry_run: true, force: deed.force };
        let carried = self.carry(deed, how, None).await?;
        let changes = carried.change.write.is_some();
        let then = if changes { self.foreseen(deed, &carried).await } else { Vec::new() };
        Ok(Rehearsed { said: carried.change.said.clone(), changes, then, seal: seal(&carried.change) })
    }

    async fn carry_out(&self, deed: &Deed, reason: Option<&str>) -> Result<String, Refused> {
        let how = How { reason, dry_run: false, force: deed.force };
        self.carry(deed, how, Some(&deed.seal)).await.map(|carried| carried.change.said)
    }
}

fn decided(
    button: Button,
    kept: &[Kept],
    object: &Value,
    now: chrono::DateTime<chrono::Utc>,
) -> Result<Change, String> {
    let verb = match button {
        Button::Pause => Verb::Pause,
        Button::Resume => Verb::Resume,
        Button::Promote => Verb::Promote { hash: None },
        Button::Approve => Verb::Approve { task: None },
        Button::Abort => Verb::Abort,
        Button::Retry => Verb::Retry,
        Button::Skip => Verb::Skip { task: None },
        Button::Restart => Verb::Restart,
        Button::Rollback => return revisions::rollback(object, kept, None),
    };
    change(&verb, Kind::Fleet, object, now)
}

/// What a change writes, in so few words that a form can hand it back: the plan, the task, the hash or the revision that
/// it is about. When a restart is asked for is no part of it.
fn seal(change: &Change) -> String {
    match (&change.back_to, &change.write) {
        (_, None) => String::new(),
        (Some(revision), _) => format!("back to {revision}"),
        (_, Some(Write::Annotation(key, _))) if *key == ANNOTATION_RESTARTED_AT => (*key).to_owned(),
        (_, Some(Write::Annotation(key, value))) => format!("{key}={value}"),
        (_, Some(Write::Field(path, value))) => format!("{path}={value}"),
        (_, Some(Write::Fields(fields))) => {
            json!(fields.clone().map(|(path, value)| (path, value))).to_string()
        }
    }
}

/// What a person wants of an object: its spec and its annotations.
fn wishes(object: &Value) -> Value {
    json!({"metadata": {"annotations": object["metadata"]["annotations"]}, "spec": object["spec"]})
}

/// The merge patch that makes one object of another.
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
    fn a_merge_patch_makes_one_of_the_other() {
        let before = json!({"spec": {"a": 1, "b": {"c": 2, "gone": 3}, "list": [1, 2]}});
        let after = json!({"spec": {"a": 1, "b": {"c": 4}, "list": [2], "new": {"d": 5}}});
        let patch = merge_patch(&before, &after);
        assert_eq!(patch, json!({"spec": {"b": {"c": 4, "gone": null}, "list": [2], "new": {"d": 5}}}));
        let mut made = before;
        json_patch::merge(&mut made, &patch);
        assert_eq!(made, after);
    }

    #[test]
    fn a_seal_tells_what_is_looked_at_from_what_it_became() {
        let object = |plan: &str| json!({"status": {"plan": {"id": plan, "state": "Active"}, "rollout": {"stage": "Updating"}}});
        let of = |button, plan: &str, second: &str| {
            let now = format!("2026-01-01T00:00:{second}Z").parse().unwrap();
            seal(&decided(button, &[], &object(plan), now).unwrap())
        };
        assert_eq!(of(Button::Abort, "a", "00"), of(Button::Abort, "a", "09"));
        assert_ne!(of(Button::Abort, "a", "00"), of(Button::Abort, "b", "00"));
        assert_eq!(
            of(Button::Restart, "a", "00"),
            of(Button::Restart, "a", "09"),
            "at what time is no part of it"
        );
        assert_ne!(of(Button::Pause, "a", "00"), of(Button::Abort, "a", "00"));
    }
}
