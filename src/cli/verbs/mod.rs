//! The verbs: what a person asks of a fleet or a node. Each is one guarded patch of a field or an annotation that can
//! be written with `kubectl` just as well; beside it who asked and why is recorded.

mod at_hooks;
mod carry;
pub mod change;
mod gitops;
mod record;
pub mod revisions;
#[cfg(test)]
mod tests;
#[cfg(feature = "temporal")]
pub mod workers;
#[cfg(feature = "temporal")]
mod workers_history;

use clap::Args;
use serde_json::Value;

use super::Failure;
use super::connection::Cluster;
use super::output::Output;
use super::target::{Kind, Located, Meant, Named, Selected};

pub use carry::{Carried, How, Needs, Refusal, carry};
pub use change::Verb;
use change::{Change, change};

/// What every verb is told.
#[derive(Debug, Args)]
pub struct VerbArgs {
    #[command(flatten)]
    named: Named,
    /// Why; recorded with your name in the object, in its history and in an event
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    /// Ask the API server whether it would take the change, and change nothing
    #[arg(long)]
    dry_run: bool,
    /// Write a field that Argo CD, Flux or another manager applies from its source, which may undo it
    #[arg(long)]
    force: bool,
    /// Print the object as it is then
    #[arg(long, short = 'o', value_enum, value_name = "FORMAT")]
    output: Option<Output>,
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

/// What `windlass approve` is told.
#[derive(Debug, Args)]
pub struct ApproveArgs {
    #[command(flatten)]
    verb: VerbArgs,
    /// The task's ID [default: the first that waits for a person; see status.hooks]
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
    #[command(flatten)]
    selected: Selected,
    /// Print the revisions and the plans for a program; name: the revisions' names
    #[arg(long, short = 'o', value_enum, value_name = "FORMAT")]
    output: Option<Output>,
}

/// Carries a verb without words of its own out.
pub async fn run(verb: Verb, arguments: VerbArgs) -> Result<(), String> {
    carry_out(&arguments, Needs::Object, |kind, _, object| change(&verb, kind, object, super::now())).await
}

/// Carries `windlass skip` out.
pub async fn skip(arguments: SkipArgs) -> Result<(), String> {
    run(Verb::Skip { task: arguments.task }, arguments.verb).await
}

/// Carries `windlass approve` out.
pub async fn approve(arguments: ApproveArgs) -> Result<(), String> {
    run(Verb::Approve { task: arguments.task }, arguments.verb).await
}

/// Carries `windlass promote` out.
pub async fn promote(arguments: PromoteArgs) -> Result<(), String> {
    run(Verb::Promote { hash: arguments.hash }, arguments.verb).await
}

/// Carries `windlass rollback` out.
pub async fn rollback(arguments: RollbackArgs) -> Result<(), String> {
    let to = arguments.to.as_deref();
    #[cfg(feature = "temporal")]
    if arguments.verb.named.is_of(super::target::Kind::Workers) {
        return workers::rollback(&arguments.verb, to).await;
    }
    carry_out(&arguments.verb, Needs::Revisions, |_, kept, object| revisions::rollback(object, kept, to))
        .await
}

/// Prints what `windlass history` shows.
pub async fn history(arguments: HistoryArgs) -> Result<(), Failure> {
    let HistoryArgs { selected, output } = arguments;
    selected.meant.require_no_node("history").map_err(Failure::Usage)?;
    let cluster = selected.scope.cluster().await?;
    let mut meant = Vec::new();
    match selected.meant {
        Meant::Nothing => meant.extend(all(Kind::Fleet, &cluster).await?),
        Meant::All(kind) => meant.extend(all(kind, &cluster).await?),
        Meant::These(targets) => {
            for target in targets {
                meant.push((target.kind, target.get(&cluster.client, &cluster.namespace).await?));
            }
        }
    }
    for (index, (kind, object)) in meant.iter().enumerate() {
        let namespace = object["metadata"]["namespace"].as_str().unwrap_or(&cluster.namespace);
        let title = revisions::title(object, index, meant.len());
        let text = match kind {
            #[cfg(feature = "temporal")]
            Kind::Workers => {
                let kept = workers::kept(
                    &cluster.client,
                    namespace,
                    object["metadata"]["name"].as_str().unwrap_or_default(),
                )
                .await?;
                match output {
                    Some(Output::Name) => workers_history::names(&kept),
                    Some(output) => output.document(&workers_history::document(object, &kept))?,
                    None => format!("{title}{}", workers_history::table(object, &kept, super::now())),
                }
            }
            Kind::Fleet | Kind::Node => {
                let kept = revisions::kept(&cluster.client, namespace, object).await?;
                match output {
                    Some(Output::Name) => revisions::names(&kept),
                    Some(output) => output.document(&revisions::document(object, &kept))?,
                    None => format!("{title}{}", revisions::table(object, &kept, super::now())),
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

/// Carries a verb out on each object that is meant. What one of them refuses keeps none of the others from it.
async fn carry_out(
    arguments: &VerbArgs,
    needs: Needs,
    decide: impl Fn(Kind, &[revisions::Kept], &Value) -> Result<Change, String>,
) -> Result<(), String> {
    let cluster = arguments.named.scope.cluster().await?;
    let mut refused = Vec::new();
    for located in arguments.named.located(&cluster).await? {
        let kind = located.target.kind;
        let done =
            carry_out_on(arguments, &cluster, &located, needs, |kept, object| decide(kind, kept, object));
        match done.await {
            Ok(said) => super::print(&said)?,
            Err(sentence) => refused.push(sentence),
        }
    }
    if refused.is_empty() { Ok(()) } else { Err(refused.join("\nwindlass: ")) }
}

/// Carries a verb out on one object. Returns what is to be printed.
async fn carry_out_on(
    arguments: &VerbArgs,
    cluster: &Cluster,
    located: &Located,
    needs: Needs,
    decide: impl Fn(&[revisions::Kept], &Value) -> Result<Change, String>,
) -> Result<String, String> {
    let Located { target, namespace } = located;
    let place = if cluster.all_namespaces { format!(" in {namespace}") } else { String::new() };
    let how = How { reason: arguments.reason.as_deref(), dry_run: arguments.dry_run, force: arguments.force };
    let carried = carry(&cluster.client, located, needs, how, super::now, decide).await;
    let Carried { change, after, .. } = carried.map_err(|refusal| match refusal {
        Refusal::Unread(sentence) => sentence,
        Refusal::Senseless(sentence) => said_of(arguments, located, sentence),
        Refusal::Owned(sentence, _) => {
            format!("{target}{place}: {sentence}; --force writes it here all the same")
        }
        Refusal::Failed(sentence) => format!("{target}{place}: {sentence}"),
    })?;
    let suffix = if arguments.dry_run { " (dry run)" } else { "" };
    match arguments.output {
        Some(output) => output.of(target, &after),
        None => Ok(format!("{target}{place} {}{suffix}\n", change.said)),
    }
}

/// A refusal, with the object's name where several are meant.
fn said_of(arguments: &VerbArgs, located: &Located, sentence: String) -> String {
    if arguments.named.is_one() {
        sentence
    } else {
        format!("{} in {}: {sentence}", located.target, located.namespace)
    }
}
