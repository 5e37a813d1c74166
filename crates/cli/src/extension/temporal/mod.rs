//! Versioned Temporal workers: the kind `WorkerDeployment` of the commands, and its controller in the operator.

mod chain;
mod controller;
mod delete;
mod diff;
mod evacuate;
mod explain;
mod forecast;
mod history;
mod hooks;
mod objects;
mod report;
mod tree;
mod verbs;

use std::sync::Arc;

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use clap::{Args, Subcommand};
use kube::Client;
use serde_json::Value;
use windlass::internal::HookRules;
use windlass::operator::Controller;

use super::objects::ReadObjects;
use super::{Extension, Objects, Paged, Sheet};
use crate::explain::diff::Compared;
use crate::help;
use crate::output::Output;
use crate::plan::Prediction;
use crate::reader::FleetSelection;
use crate::report::chain::{Chain, TimelineEntry};
use crate::target::{Kind, Target};
use crate::verbs::VerbArgs;
use crate::verbs::change::{Change, Verb};
use objects::WorkersObjects;
use report::WorkersReport;
use windlass_temporal::per_version::GroupKind;

#[cfg(test)]
pub use report::tests::ramping;

/// The kind `WorkerDeployment`.
pub const WORKERS: &dyn Extension = &Workers;
/// The same kind, on the page.
pub const WORKERS_ON_PAGE: &dyn Paged = &Workers;
const KIND: windlass_kube_port::Kind = windlass_kube_port::Kind::WorkerDeployment;

/// The flags of `windlass operator`.
#[derive(Debug, Args)]
pub struct OperatorFlags {
    /// Also roll out versioned Temporal workers. Their definition and rights are in deploy/temporal
    #[arg(long)]
    temporal: bool,
    /// Manage objects of this kind for each version of Temporal workers (`spec.perVersion`): a kind and its group. Can be
    /// repeated. The rights are in deploy/temporal/worker-resources-all-namespaces.yaml
    #[arg(
        long,
        requires = "temporal",
        value_name = "KIND.GROUP",
        default_values_t = GroupKind::defaults(),
        hide_default_value = true
    )]
    worker_resource: Vec<GroupKind>,
}

impl OperatorFlags {
    /// The controllers that the flags select, in these namespaces, or in all, under these rules for hooks.
    pub fn controllers(
        &self,
        namespaces: &[String],
        instance: &str,
        hook_rules: HookRules,
    ) -> Vec<Arc<dyn Controller>> {
        if !self.temporal {
            return Vec::new();
        }
        let controller = controller::WorkersController::new(namespaces, instance, hook_rules);
        vec![Arc::new(controller.resources(&self.worker_resource))]
    }
}

/// The flags of `windlass crds`.
#[derive(Debug, Args)]
pub struct CrdsFlags {
    /// Print only the definitions of `WorkerDeployment` and its connections, which `windlass operator --temporal` needs
    #[arg(long)]
    temporal: bool,
}

impl CrdsFlags {
    /// The definitions that the flags select instead of those of fleets and nodes.
    pub fn yaml(&self) -> Option<String> {
        self.temporal.then(windlass_temporal::api::crds_yaml)
    }
}

/// Additional commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Delete `WorkerDeployments`: each version is removed once no workflow runs on it
    #[command(mut_arg("words", |arg| arg.help(help::named(|kind| kind == Kind::Other(WORKERS)))))]
    Delete(delete::DeleteArgs),
    /// Move the pinned workflows of a version of a `WorkerDeployment` to another version
    #[command(after_long_help = crate::help::OF_VERBS)]
    Evacuate(evacuate::EvacuateArgs),
}

impl Command {
    pub async fn run(self) -> Result<(), String> {
        match self {
            Self::Delete(arguments) => delete::delete(arguments).await,
            Self::Evacuate(arguments) => evacuate::evacuate(arguments).await,
        }
    }
}

#[derive(Debug)]
struct Workers;

impl Paged for Workers {
    fn sheet(&self, object: &Value, now: DateTime<Utc>) -> Sheet {
        WorkersReport::of(object, now).sheet()
    }
}

#[async_trait]
impl Extension for Workers {
    fn name(&self) -> &'static str {
        "WorkerDeployment"
    }

    fn short(&self) -> &'static str {
        "wwd"
    }

    fn has_template(&self) -> bool {
        true
    }

    async fn read(
        &self,
        client: &Client,
        wanted: &FleetSelection,
        is_named: bool,
    ) -> Result<Option<Box<dyn Objects>>, String> {
        let read = if is_named {
            Some(ReadObjects::read(client, KIND, wanted).await?)
        } else {
            ReadObjects::read_if_installed(client, KIND, wanted).await?
        };
        Ok(read.map(|objects| Box::new(WorkersObjects(objects)) as Box<dyn Objects>))
    }

    async fn explain(
        &self,
        client: &Client,
        namespace: &str,
        target: &Target,
    ) -> Result<(Chain, Vec<String>), String> {
        explain::explain(client, namespace, target).await
    }

    async fn forecast(
        &self,
        client: &Client,
        place: (&str, &str),
        change: &crate::forecast::Change,
        now: DateTime<Utc>,
    ) -> Result<Prediction, String> {
        forecast::forecast(client, place, change, now).await.map(|forecast| forecast.prediction())
    }

    fn story(&self, object: &Value, events: Vec<TimelineEntry>) -> Vec<TimelineEntry> {
        report::story(object, events)
    }

    async fn compare(
        &self,
        client: &Client,
        namespace: &str,
        object: &Value,
        named: &[String],
    ) -> Result<Vec<Compared>, String> {
        Ok(vec![diff::compare(object, &verbs::stored(client, namespace, object).await?, named)?])
    }

    fn change(&self, verb: &Verb, object: &Value, now: DateTime<Utc>) -> Result<Change, String> {
        verbs::change(verb, object, now)
    }

    async fn rollback(&self, arguments: &VerbArgs, to: Option<&str>) -> Result<(), String> {
        verbs::rollback(arguments, to).await
    }

    async fn history(
        &self,
        client: &Client,
        namespace: &str,
        object: &Value,
        output: Option<Output>,
        title: &str,
    ) -> Result<String, String> {
        let stored = verbs::stored(client, namespace, object).await?;
        match output {
            Some(Output::Name) => Ok(history::names(&stored)),
            Some(output) => output.document(&history::document(object, &stored)),
            None => Ok(format!("{title}{}", history::table(object, &stored, crate::now()))),
        }
    }
}
