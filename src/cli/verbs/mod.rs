//! The verbs: what a person asks of a fleet or a node. Each is one guarded patch of a field or an annotation that can
//! be written with `kubectl` just as well; beside it who asked and why is recorded.

mod change;
mod record;
mod revisions;
mod target;
#[cfg(test)]
mod tests;

use clap::Args;
use kube::api::{Patch, PatchParams};
use serde_json::Value;

pub use change::Verb;
use change::{Change, change};
use target::{Kind, Target};

/// How often a patch is decided anew when the object changed meanwhile: the status of a fleet that rolls changes once
/// a second.
const ATTEMPTS: u32 = 8;

/// What every verb is told.
#[derive(Debug, Args)]
pub struct VerbArgs {
    /// nd/NAME for a NodeDeployment, sn/NAME for a StatefulNode
    #[arg(value_name = "KIND/NAME")]
    target: Target,
    /// The namespace [default: the kubeconfig's]
    #[arg(long, short = 'n', value_name = "NS")]
    namespace: Option<String>,
    /// Why; recorded with your name in the object, in its history and in an event
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    /// Ask the API server whether it would take the change, and change nothing
    #[arg(long)]
    dry_run: bool,
}

/// What `windlass skip` is told.
#[derive(Debug, Args)]
pub struct SkipArgs {
    #[command(flatten)]
    verb: VerbArgs,
    /// The task's ID [default: the task that the plan waits in]
    #[arg(long, value_name = "ID")]
    task: Option<String>,
}

/// What `windlass promote` is told.
#[derive(Debug, Args)]
pub struct PromoteArgs {
    #[command(flatten)]
    verb: VerbArgs,
    /// Promote only if this is what is wanted: the hash of what you looked at, or its first digits,
    /// at least 4
    #[arg(long, value_name = "HASH")]
    hash: Option<String>,
}

/// What `windlass rollback` is told.
#[derive(Debug, Args)]
pub struct RollbackArgs {
    #[command(flatten)]
    verb: VerbArgs,
    /// The revision, by its number or name in `windlass history` [default: the last completed one, or, where that is
    /// wanted already, the one before it; asked again, the same]
    #[arg(long, value_name = "REVISION")]
    to: Option<String>,
}

/// What `windlass history` is told.
#[derive(Debug, Args)]
pub struct HistoryArgs {
    /// nd/NAME
    #[arg(value_name = "KIND/NAME")]
    target: Target,
    /// The namespace [default: the kubeconfig's]
    #[arg(long, short = 'n', value_name = "NS")]
    namespace: Option<String>,
}

/// Carries a verb without words of its own out.
pub async fn run(verb: Verb, arguments: VerbArgs) -> Result<(), String> {
    carry_out(&arguments, Needs::Object, |_, object| {
        change(&verb, arguments.target.kind, object, super::now())
    })
    .await
}

/// Carries `windlass skip` out.
pub async fn skip(arguments: SkipArgs) -> Result<(), String> {
    let verb = Verb::Skip { task: arguments.task };
    let kind = arguments.verb.target.kind;
    carry_out(&arguments.verb, Needs::Object, |_, object| change(&verb, kind, object, super::now())).await
}

/// Carries `windlass promote` out.
pub async fn promote(arguments: PromoteArgs) -> Result<(), String> {
    let verb = Verb::Promote { hash: arguments.hash };
    let kind = arguments.verb.target.kind;
    carry_out(&arguments.verb, Needs::Object, |_, object| change(&verb, kind, object, super::now())).await
}

/// Carries `windlass rollback` out.
pub async fn rollback(arguments: RollbackArgs) -> Result<(), String> {
    arguments.verb.target.require(Kind::Fleet, "rollback")?;
    let to = arguments.to.as_deref();
    carry_out(&arguments.verb, Needs::Revisions, |kept, object| revisions::rollback(object, kept, to)).await
}

/// Prints what `windlass history` shows.
pub async fn history(arguments: HistoryArgs) -> Result<(), String> {
    arguments.target.require(Kind::Fleet, "history")?;
    let (client, home) = super::cluster_client(super::AGENT).await?;
    let namespace = arguments.namespace.unwrap_or(home);
    let object = arguments.target.get(&client, &namespace).await?;
    let kept = revisions::kept(&client, &namespace, &object).await?;
    super::print(&revisions::table(&object, &kept, super::now()))
}

/// What a verb is decided over, and no more: a person may have no right to the rest.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Needs {
    /// The object alone.
    Object,
    /// A fleet and the revisions that it keeps.
    Revisions,
}

/// Decides a verb over the object as it is, writes it guarded, and decides anew where it changed meanwhile.
async fn carry_out(
    arguments: &VerbArgs,
    needs: Needs,
    decide: impl Fn(&[revisions::Kept], &Value) -> Result<Change, String>,
) -> Result<(), String> {
    let (client, home) = super::cluster_client(super::AGENT).await?;
    let namespace = arguments.namespace.as_deref().unwrap_or(&home);
    let target = &arguments.target;
    for _ in 0..ATTEMPTS {
        let object = target.get(&client, namespace).await?;
        let kept = match needs {
            Needs::Revisions => revisions::kept(&client, namespace, &object).await?,
            Needs::Object => Vec::new(),
        };
        let change = decide(&kept, &object)?;
        let suffix = if arguments.dry_run { " (dry run)" } else { "" };
        let Some(write) = change.write.clone() else {
            return super::print(&format!("{target} {}{suffix}\n", change.said));
        };
        let by = record::who(&client).await;
        let ops = record::ops(&object, &change, write, &by, arguments.reason.as_deref(), super::now());
        let patch = serde_json::from_value(Value::Array(ops)).map_err(|e| format!("{target}: {e}"))?;
        let params = PatchParams {
            dry_run: arguments.dry_run,
            field_manager: Some("windlass-cli".to_owned()),
            ..PatchParams::default()
        };
        match target.api(&client, namespace).patch(&target.name, &params, &Patch::<()>::Json(patch)).await {
            Ok(_) => {
                if !arguments.dry_run {
                    let reason = arguments.reason.as_deref();
                    record::tell(&client, &object, &change, &by, reason, super::now()).await;
                }
                return super::print(&format!("{target} {}{suffix}\n", change.said));
            }
            // It changed meanwhile: what is right for it may be something else.
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            Err(kube::Error::Api(status)) => {
                return Err(format!("{target}: the API server refuses it: {}", status.message));
            }
            Err(error) => return Err(format!("{target}: {error}")),
        }
    }
    Err(format!("{target} changes faster than it can be patched; try again"))
}
