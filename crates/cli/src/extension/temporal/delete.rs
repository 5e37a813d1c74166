//! `windlass delete`.

use clap::Args;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::json;
use windlass_core::api::names::CLI_MANAGER;
use windlass_temporal::api::names::ANNOTATION_DELETE;

use super::WORKERS;
use crate::target::{Kind, Named};

/// The arguments of `windlass delete`.
#[derive(Debug, Args)]
pub struct DeleteArgs {
    #[command(flatten)]
    named: Named,
    /// Do not wait for workflows: delete the workers of all versions at once. Workflows that are pinned to them stop making
    /// progress. Under deletionPolicy Retain the workers stay, and Windlass does not wait for Temporal
    #[arg(long)]
    now: bool,
}

/// What is deleted along with an object, in words.
fn deletion_scope(is_retained: bool, now: bool) -> &'static str {
    match (is_retained, now) {
        (true, _) => "its deletionPolicy is Retain: routing and workers are not changed",
        (false, true) => "its workers are deleted now",
        (false, false) => "each version is deleted once no workflow runs on it",
    }
}

/// Deletes `WorkerDeployments`.
pub async fn delete(arguments: DeleteArgs) -> Result<(), String> {
    let cluster = arguments.named.flags.cluster().await?;
    for located in arguments.named.located(&cluster).await? {
        let target = &located.target;
        target.require(Kind::Other(WORKERS), "delete")?;
        let api = target.api(&cluster.client, &located.namespace);
        let sentence = |error: kube::Error| format!("{target}: {}", crate::reader::sentence(&error));
        if arguments.now {
            let patch = json!({"metadata": {"annotations": {ANNOTATION_DELETE: "now"}}});
            let params =
                PatchParams { field_manager: Some(CLI_MANAGER.to_owned()), ..PatchParams::default() };
            api.patch(&target.name, &params, &Patch::Merge(patch)).await.map_err(sentence)?;
        }
        // An object with a finalizer is returned; it stays for now.
        let left = api.delete(&target.name, &DeleteParams::default()).await.map_err(sentence)?.left();
        let spec = left.as_ref().map(|object| &object.data["spec"]);
        let is_retained = spec.is_some_and(|spec| spec["deletionPolicy"] == "Retain");
        crate::print(&format!("{target} is deleted: {}\n", deletion_scope(is_retained, arguments.now)))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::deletion_scope;

    #[test]
    fn retained_objects_are_not_listed_as_deleted() {
        for now in [true, false] {
            assert!(deletion_scope(true, now).contains("are not changed"));
            assert!(deletion_scope(false, now).ends_with(if now { "deleted now" } else { "runs on it" }));
        }
    }
}
