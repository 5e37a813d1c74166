//! Rollouts of StatefulSets that already run: the kind StatefulSetRollout of the commands. What it has in common with
//! a fleet is read, reported and explained by the same functions.

mod explain;
mod objects;
mod revisions;
#[cfg(test)]
mod tests;
mod tree;
mod verbs;

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use kube::Client;
use serde_json::Value;

use super::objects::ReadObjects;
use super::{Extension, Objects};
use crate::explain::diff::Compared;
use crate::forecast;
use crate::output::Output;
use crate::plan::Prediction;
use crate::reader::FleetSelection;
use crate::report::SeenStatefulSets;
use crate::report::chain::{Chain, TimelineEntry};
use crate::report::timeline::of_stateful_sets;
use crate::target::Target;
use crate::verbs::VerbArgs;
use crate::verbs::change::{Change, Verb};

pub use revisions::pending_changes;
#[cfg(test)]
pub use tree::tests::{ledger, pod_object};
pub use tree::{revisions as revisions_words, words as set_words};

/// The kind StatefulSetRollout.
pub const STATEFUL_SETS: &dyn Extension = &StatefulSets;
const KIND: windlass_kube_port::Kind = windlass_kube_port::Kind::StatefulSetRollout;

#[derive(Debug)]
struct StatefulSets;

#[async_trait]
impl Extension for StatefulSets {
    fn name(&self) -> &'static str {
        "StatefulSetRollout"
    }

    fn short(&self) -> &'static str {
        "ssr"
    }

    fn has_template(&self) -> bool {
        false
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
        let Some(rollouts) = read else { return Ok(None) };
        Ok(Some(Box::new(objects::RolloutObjects::of(client, rollouts, &wanted.scope).await)))
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
        (namespace, name): (&str, &str),
        change: &forecast::Change,
        now: DateTime<Utc>,
    ) -> Result<Prediction, String> {
        let forecast = forecast::forecast_rollout(client, namespace, name, change, now).await?;
        Ok(Prediction::of(&forecast))
    }

    fn story(&self, object: &Value, events: Vec<TimelineEntry>) -> Vec<TimelineEntry> {
        of_stateful_sets(&SeenStatefulSets::of(object, None, &[]), events)
    }

    async fn compare(
        &self,
        client: &Client,
        namespace: &str,
        object: &Value,
        named: &[String],
    ) -> Result<Vec<Compared>, String> {
        revisions::compare(&revisions::stored(client, namespace, object).await?, named)
    }

    fn change(&self, verb: &Verb, object: &Value, now: DateTime<Utc>) -> Result<Change, String> {
        verbs::change(verb, object, now)
    }

    async fn rollback(&self, arguments: &VerbArgs, _: Option<&str>) -> Result<(), String> {
        verbs::rollback(arguments).await
    }

    async fn history(
        &self,
        client: &Client,
        namespace: &str,
        object: &Value,
        output: Option<Output>,
        title: &str,
    ) -> Result<String, String> {
        let stored = revisions::stored(client, namespace, object).await?;
        match output {
            Some(Output::Name) => Ok(revisions::names(&stored)),
            Some(output) => output.document(&revisions::document(object, &stored)),
            None => Ok(format!("{title}{}", revisions::table(object, &stored, crate::now()))),
        }
    }
}
