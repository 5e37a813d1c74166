//! Applies a change: decides on the current object, writes guarded, and decides again on a conflict.

use kube::Client;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use super::change::Change;
use super::{gitops, record, revisions};
use crate::extension::STATEFUL_SETS;
use crate::target::{Kind, Located};
use windlass_core::api::names::CLI_MANAGER;

/// The most attempts on conflicts: during a rollout the status changes every second.
const ATTEMPTS: u32 = 8;

/// What a verb has to read; the user may have no right to more.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Needs {
    /// The object alone.
    Object,
    /// A fleet and its revisions.
    Revisions,
}

/// Options of a write.
#[derive(Clone, Copy, Debug, Default)]
pub struct How<'a> {
    /// The person's reason, for the record.
    pub reason: Option<&'a str>,
    /// True for a dry run on the API server.
    pub dry_run: bool,
    /// True to write a field that another program applies.
    pub force: bool,
}

/// Why a change is not written.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Refusal {
    /// The object, or what the decision needs, cannot be read; a whole sentence.
    Unread(String),
    /// The object's current state leaves nothing to do.
    Senseless(String),
    /// The field belongs to a program that would revert it; with the change and the object.
    Owned(String, Box<(Change, Value)>),
    /// The API server rejects the change, or does not respond.
    Failed(String),
}

/// A change that was written, or that needed no write.
#[derive(Clone, Debug)]
pub struct Carried {
    /// The decision.
    pub change: Change,
    /// The object that it was decided on.
    pub before: Value,
    /// The object afterwards.
    pub after: Value,
}

/// Applies a change to one object.
pub async fn carry(
    client: &Client,
    located: &Located,
    needs: Needs,
    how: How<'_>,
    now: impl Fn() -> chrono::DateTime<chrono::Utc>,
    decide: impl Fn(&[revisions::StoredRevision], &Value) -> Result<Change, String>,
) -> Result<Carried, Refusal> {
    let Located { target, namespace } = located;
    if needs == Needs::Revisions {
        target.require(Kind::Fleet, "rollback").map_err(Refusal::Unread)?;
    }
    for _ in 0..ATTEMPTS {
        let object = target.get(client, namespace).await.map_err(Refusal::Unread)?;
        if let Some(sentence) = deletion(target.kind, &object) {
            return Err(Refusal::Senseless(sentence));
        }
        let stored = match needs {
            Needs::Revisions => {
                revisions::stored(client, namespace, &object).await.map_err(Refusal::Unread)?
            }
            Needs::Object => Vec::new(),
        };
        let change = decide(&stored, &object).map_err(Refusal::Senseless)?;
        let Some(write) = change.write.clone() else {
            return Ok(Carried { change, after: object.clone(), before: object });
        };
        if !how.force
            && let Some(refusal) = gitops::refusal(&object, &change, &write)
        {
            return Err(Refusal::Owned(refusal, Box::new((change, object))));
        }
        let by = record::who(client).await;
        let ops = record::ops(&object, &change, write, &by, how.reason, now());
        let patch = serde_json::from_value(Value::Array(ops))
            .map_err(|error| Refusal::Failed(format!("cannot serialize the patch: {error}")))?;
        let params = PatchParams {
            dry_run: how.dry_run,
            field_manager: Some(CLI_MANAGER.to_owned()),
            ..PatchParams::default()
        };
        match target.api(client, namespace).patch(&target.name, &params, &Patch::<()>::Json(patch)).await {
            Ok(written) => {
                if !how.dry_run {
                    record::send_event(client, &object, &change, &by, how.reason, now()).await;
                }
                return Ok(Carried { change, before: object, after: json!(written) });
            }
            // The object changed in between: decide again.
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            Err(kube::Error::Api(status)) => {
                return Err(Refusal::Failed(format!("the API server rejects it: {}", status.message)));
            }
            Err(error) => return Err(Refusal::Failed(error.to_string())),
        }
    }
    Err(Refusal::Failed("the patch conflicted with other changes too often; try again".to_owned()))
}

/// Why no verb has an effect on a fleet or a StatefulSetRollout that is being deleted; `None` of any other object. Its
/// `deletionPolicy` decides whether its nodes are deleted, and none of its plans continues.
fn deletion(kind: Kind, object: &Value) -> Option<String> {
    let is_rollout = kind == Kind::Fleet || kind == Kind::Other(STATEFUL_SETS);
    let since = object["metadata"]["deletionTimestamp"].as_str().filter(|_| is_rollout)?;
    Some(format!("it is being deleted since {since}; this command would have no effect"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verb_on_a_fleet_being_deleted_is_refused() {
        let mut object = json!({"metadata": {"name": "db"}});
        assert_eq!(deletion(Kind::Fleet, &object), None);
        object["metadata"]["deletionTimestamp"] = json!("2030-01-01T12:00:00Z");
        let sentence = deletion(Kind::Fleet, &object).unwrap();
        assert!(sentence.starts_with("it is being deleted since 2030-01-01T12:00:00Z; "), "{sentence}");
        assert_eq!(deletion(Kind::Node, &object), None, "the fleet of a node may still change it");
    }
}
