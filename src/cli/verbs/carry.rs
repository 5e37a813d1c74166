//! Carries a change out: decided over the object as it is, written guarded, and decided anew where it changed meanwhile.

use kube::Client;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use super::change::Change;
use super::{gitops, record, revisions};
use crate::api::names::CLI_MANAGER;
use crate::cli::target::{Kind, Located};

/// How often a patch is decided anew when the object changed meanwhile: the status of a fleet that rolls changes once
/// a second.
const ATTEMPTS: u32 = 8;

/// What a verb is decided over, and no more: a person may have no right to the rest.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Needs {
    /// The object alone.
    Object,
    /// A fleet and the revisions that it keeps.
    Revisions,
}

/// How a change is written.
#[derive(Clone, Copy, Debug, Default)]
pub struct How<'a> {
    /// Why, as it is recorded.
    pub reason: Option<&'a str>,
    /// Whether the API server is only asked if it would take the change.
    pub dry_run: bool,
    /// Whether a field is written that another program applies from elsewhere.
    pub force: bool,
}

/// Why a change is not written.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Refusal {
    /// It, or what it is decided over, cannot be read: a whole sentence.
    Unread(String),
    /// What the object says now leaves nothing to do.
    Senseless(String),
    /// The field belongs to a program that would undo it: what would be written all the same, and into which object.
    Owned(String, Box<(Change, Value)>),
    /// The API server does not take it, or does not answer.
    Failed(String),
}

/// A change that was carried out, or that nothing had to be written for.
#[derive(Clone, Debug)]
pub struct Carried {
    /// What was decided.
    pub change: Change,
    /// The object that it was decided over.
    pub before: Value,
    /// The object as it is then.
    pub after: Value,
}

/// Carries a change out on one object.
pub async fn carry(
    client: &Client,
    located: &Located,
    needs: Needs,
    how: How<'_>,
    now: impl Fn() -> chrono::DateTime<chrono::Utc>,
    decide: impl Fn(&[revisions::Kept], &Value) -> Result<Change, String>,
) -> Result<Carried, Refusal> {
    let Located { target, namespace } = located;
    if needs == Needs::Revisions {
        target.require(Kind::Fleet, "rollback").map_err(Refusal::Unread)?;
    }
    for _ in 0..ATTEMPTS {
        let object = target.get(client, namespace).await.map_err(Refusal::Unread)?;
        let kept = match needs {
            Needs::Revisions => revisions::kept(client, namespace, &object).await.map_err(Refusal::Unread)?,
            Needs::Object => Vec::new(),
        };
        let change = decide(&kept, &object).map_err(Refusal::Senseless)?;
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
            .map_err(|error| Refusal::Failed(format!("it cannot be written as a patch: {error}")))?;
        let params = PatchParams {
            dry_run: how.dry_run,
            field_manager: Some(CLI_MANAGER.to_owned()),
            ..PatchParams::default()
        };
        match target.api(client, namespace).patch(&target.name, &params, &Patch::<()>::Json(patch)).await {
            Ok(written) => {
                if !how.dry_run {
                    record::tell(client, &object, &change, &by, how.reason, now()).await;
                }
                return Ok(Carried { change, before: object, after: json!(written) });
            }
            // It changed meanwhile: what is right for it may be something else.
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            Err(kube::Error::Api(status)) => {
                return Err(Refusal::Failed(format!("the API server refuses it: {}", status.message)));
            }
            Err(error) => return Err(Refusal::Failed(error.to_string())),
        }
    }
    Err(Refusal::Failed("it changes faster than it can be patched; try again".to_owned()))
}
