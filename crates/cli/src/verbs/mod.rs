//! The verbs. Each is one guarded patch of a field or an annotation, which `kubectl` could write as well, and also
//! records who requested it and why.

pub mod at_hooks;
mod carry;
pub mod change;
mod gitops;
mod record;
mod remarks;
#[cfg(test)]
mod request_tests;
pub mod revisions;
#[cfg(test)]
mod tests;

use clap::Args;
use serde_json::Value;

use super::Failure;
use super::connection::Cluster;
use super::output::Output;
use super::target::{Kind, Located, Named, ObjectSelector, Selected};

use windlass_core::api::names::argument_of;

pub use carry::{Carried, How, Needs, Refusal, carry};
pub use change::Verb;
use change::{Change, change};

/// The arguments of every verb.
#[derive(Debug, Args)]
pub struct VerbArgs {
    #[command(flatten)]
    pub named: Named,
    /// Why; recorded with your name in the object, in its history and in an event
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    /// Validate the change on the API server without writing it
    #[arg(long)]
    pub dry_run: bool,
    /// Write a field that Argo CD, Flux or another manager applies from its source, which may undo it
    #[arg(long)]
    force: bool,
    /// Print the object after the change
    #[arg(long, short = 'o', value_enum, value_name = "FORMAT")]
    pub output: Option<Output>,
}

/// The arguments of `windlass abort`.
#[derive(Debug, Args)]
pub struct AbortArgs {
    #[command(flatten)]
    verb: VerbArgs,
    /// Also roll back the updated pods of a StatefulSetRollout, in waves; the template is not changed
    #[arg(long)]
    rollback: bool,
}

/// The arguments of `windlass resume`.
#[derive(Debug, Args)]
pub struct ResumeArgs {
    #[command(flatten)]
    verb: VerbArgs,
    /// Open the window of the active rollout now; later rollouts wait for their windows
    #[arg(long)]
    now: bool,
}

/// The arguments of `windlass skip`.
#[derive(Debug, Args)]
pub struct SkipArgs {
    #[command(flatten)]
    verb: VerbArgs,
    /// The task's ID [default: the task that the plan waits in]
    #[arg(long, value_name = "ID")]
    task: Option<String>,
}

/// The arguments of `windlass approve`.
#[derive(Debug, Args)]
pub struct ApproveArgs {
    #[command(flatten)]
    verb: VerbArgs,
    /// The task's ID [default: the first that waits for a person; see status.hooks]
    #[arg(long, value_name = "ID")]
    task: Option<String>,
}

/// The arguments of `windlass promote`.
#[derive(Debug, Args)]
pub struct PromoteArgs {
    #[command(flatten)]
    verb: VerbArgs,
    /// Promote only if the target has this hash, or a hash with this prefix of at least 4 digits
    #[arg(long, value_name = "HASH")]
    hash: Option<String>,
}

/// The arguments of `windlass rollback`.
#[derive(Debug, Args)]
pub struct RollbackArgs {
    #[command(flatten)]
    verb: VerbArgs,
    /// The revision, by its number or name in `windlass history` [default: the newest completed one that is not
    /// the current target; running the command twice does not go further back]
    #[arg(long, value_name = "REVISION")]
    to: Option<String>,
}

/// The arguments of `windlass history`.
#[derive(Debug, Args)]
pub struct HistoryArgs {
    #[command(flatten)]
    selected: Selected,
    /// Print the revisions and plans as data; name: the names of the revisions
    #[arg(long, short = 'o', value_enum, value_name = "FORMAT")]
    output: Option<Output>,
}

/// Runs a verb without its own arguments.
pub async fn run(verb: Verb, arguments: VerbArgs) -> Result<(), String> {
    carry_out(&arguments, Needs::Object, |kind, _, object| change(&verb, kind, object, super::now())).await
}

/// Runs `windlass abort`.
pub async fn abort(arguments: AbortArgs) -> Result<(), String> {
    run(Verb::Abort { rollback: arguments.rollback }, arguments.verb).await
}

/// Runs `windlass resume`.
pub async fn resume(arguments: ResumeArgs) -> Result<(), String> {
    run(if arguments.now { Verb::OpenWindow } else { Verb::Resume }, arguments.verb).await
}

/// Runs `windlass skip`.
pub async fn skip(arguments: SkipArgs) -> Result<(), String> {
    run(Verb::Skip { task: arguments.task }, arguments.verb).await
}

/// Runs `windlass approve`.
pub async fn approve(arguments: ApproveArgs) -> Result<(), String> {
    run(Verb::Approve { task: arguments.task }, arguments.verb).await
}

/// Runs `windlass promote`.
pub async fn promote(arguments: PromoteArgs) -> Result<(), String> {
    run(Verb::Promote { hash: arguments.hash }, arguments.verb).await
}

/// Runs `windlass rollback`.
pub async fn rollback(arguments: RollbackArgs) -> Result<(), String> {
    let to = arguments.to.as_deref();
    if let Some(Kind::Other(other)) = arguments.verb.named.kind() {
        return other.rollback(&arguments.verb, to).await;
    }
    carry_out(&arguments.verb, Needs::Revisions, |_, stored, object| revisions::rollback(object, stored, to))
        .await
}

/// Runs `windlass history`.
pub async fn history(arguments: HistoryArgs) -> Result<(), Failure> {
    let HistoryArgs { selected, output } = arguments;
    selected.selector.require_no_node("history").map_err(Failure::Usage)?;
    let cluster = selected.flags.cluster().await?;
    let mut selector = Vec::new();
    match selected.selector {
        ObjectSelector::Nothing => selector.extend(all(Kind::Fleet, &cluster).await?),
        ObjectSelector::All(kind) => selector.extend(all(kind, &cluster).await?),
        ObjectSelector::These(targets) => {
            for target in targets {
                selector.push((target.kind, target.get(&cluster.client, &cluster.namespace).await?));
            }
        }
    }
    for (index, (kind, object)) in selector.iter().enumerate() {
        let namespace = object["metadata"]["namespace"].as_str().unwrap_or(&cluster.namespace);
        let title = revisions::title(object, index, selector.len());
        let text = match kind {
            Kind::Other(other) => other.history(&cluster.client, namespace, object, output, &title).await?,
            Kind::Fleet | Kind::Node => {
                let stored = revisions::stored(&cluster.client, namespace, object).await?;
                match output {
                    Some(Output::Name) => revisions::names(&stored),
                    Some(output) => output.document(&revisions::document(object, &stored))?,
                    None => format!("{title}{}", revisions::table(object, &stored, super::now())),
                }
            }
        };
        super::print(&text)?;
    }
    Ok(())
}

async fn all(kind: Kind, cluster: &Cluster) -> Result<Vec<(Kind, Value)>, String> {
    Ok(kind.list(cluster).await?.into_iter().map(|object| (kind, object)).collect())
}

/// Runs a verb on each selected object. A refusal of one does not affect the others.
async fn carry_out(
    arguments: &VerbArgs,
    needs: Needs,
    decide: impl Fn(Kind, &[revisions::StoredRevision], &Value) -> Result<Change, String>,
) -> Result<(), String> {
    let cluster = arguments.named.flags.cluster().await?;
    let mut refused = Vec::new();
    for located in arguments.named.located(&cluster).await? {
        let kind = located.target.kind;
        let done =
            carry_out_on(arguments, &cluster, &located, needs, |stored, object| decide(kind, stored, object));
        match done.await {
            Ok(message) => super::print(&message)?,
            Err(sentence) => refused.push(sentence),
        }
    }
    if refused.is_empty() { Ok(()) } else { Err(refused.join("\nwindlass: ")) }
}

/// Runs a verb on one object. Returns the output.
pub async fn carry_out_on(
    arguments: &VerbArgs,
    cluster: &Cluster,
    located: &Located,
    needs: Needs,
    decide: impl Fn(&[revisions::StoredRevision], &Value) -> Result<Change, String>,
) -> Result<String, String> {
    let Located { target, namespace } = located;
    let place = if cluster.all_namespaces { format!(" in {namespace}") } else { String::new() };
    let how = How { reason: arguments.reason.as_deref(), dry_run: arguments.dry_run, force: arguments.force };
    let carried = carry(&cluster.client, located, needs, how, super::now, decide).await;
    let Carried { change, after, .. } = carried.map_err(|refusal| match refusal {
        Refusal::Unread(sentence) => sentence,
        Refusal::Senseless(sentence) => refusal_of(arguments, located, sentence),
        Refusal::Owned(sentence, _) => {
            format!("{target}{place}: {sentence}; use --force to write it anyway")
        }
        Refusal::Failed(sentence) => format!("{target}{place}: {sentence}"),
    })?;
    let suffix = if arguments.dry_run { " (dry run)" } else { "" };
    if let Some(output) = arguments.output {
        return output.of(target, &after);
    }
    let named = argument_of(target.kind.short(), &target.name, namespace);
    let remarks = remarks::remarks(&change, &after, &named, super::now());
    let typed = arguments.named.flags.connection.typed();
    let remarks: Vec<String> = remarks.iter().map(|remark| typed.text(remark) + "\n").collect();
    Ok(format!("{target}{place} {}{suffix}\n{}", change.message, remarks.concat()))
}

/// A refusal, with the object's name if several are selected.
fn refusal_of(arguments: &VerbArgs, located: &Located, sentence: String) -> String {
    if arguments.named.is_one() {
        sentence
    } else {
        format!("{} in {}: {sentence}", located.target, located.namespace)
    }
}
