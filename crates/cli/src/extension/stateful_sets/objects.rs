//! The StatefulSetRollouts that were read, and the pods of their StatefulSets.

use std::sync::Arc;

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use futures::stream::{self, BoxStream, StreamExt};
use kube::Client;
use serde_json::Value;

use crate::extension::Objects;
use crate::extension::objects::ReadObjects;
use crate::report::{SeenStatefulSets, StatefulSetsReport};
use crate::status::Report;
use windlass_kube_port::Kind;
use windlass_kube_port::observed::{Observed, ObservedPod, ObservedStatefulSet};
use windlass_kube_port::watch::Namespaces;

/// The labels of pods that a StatefulSet created, except those of fleets. The UID identifies the StatefulSet.
pub const PODS: &str = "statefulset.kubernetes.io/pod-name,!windlass.dev/deployment";

/// The labels of StatefulSets that Windlass did not create.
const SETS: &str = "app.kubernetes.io/managed-by!=windlass";

pub struct RolloutObjects {
    rollouts: ReadObjects,
    /// The StatefulSets, if they could be read and watched. They only show what the operator has not seen yet.
    sets: Option<ReadObjects>,
    /// The pods of StatefulSets, unless they could not be read.
    pods: Option<ReadObjects>,
    /// True if the pods may be watched.
    follows_pods: bool,
    /// Which pods are left out, in a sentence.
    unread: Vec<String>,
}

/// Reads the pods of StatefulSets. An error says in a sentence why not.
pub async fn read_pods(client: &Client, scope: &Namespaces) -> Result<ReadObjects, String> {
    let read = ReadObjects::read_labelled(client, Kind::Pod, scope, PODS).await;
    read.map_err(|sentence| format!("left out, because {sentence}"))
}

/// The pods as they are now.
pub fn observed(pods: &ReadObjects) -> Vec<Arc<ObservedPod>> {
    pods.current().iter().map(|pod| Arc::new(ObservedPod::read(pod))).collect()
}

impl RolloutObjects {
    /// These objects, with the pods of their namespaces.
    pub async fn of(client: &Client, rollouts: ReadObjects, scope: &Namespaces) -> Self {
        // Without rollouts, no pods are needed; a rollout that is created later is shown from its status.
        let mut objects = Self { rollouts, sets: None, pods: None, follows_pods: true, unread: Vec::new() };
        if !objects.rollouts.is_empty() {
            objects.sets = ReadObjects::read_labelled(client, Kind::StatefulSet, scope, SETS).await.ok();
            match read_pods(client, scope).await {
                Ok(pods) => objects.pods = Some(pods),
                Err(sentence) => objects.unread.push(sentence),
            }
        }
        objects
    }
}

#[async_trait]
impl Objects for RolloutObjects {
    fn missing(&self) -> &[String] {
        &self.rollouts.missing
    }

    fn refused(&self) -> Option<&str> {
        self.rollouts.refused.as_deref()
    }

    fn current(&self) -> Vec<Value> {
        self.rollouts.current()
    }

    fn reports(&self, now: DateTime<Utc>) -> Vec<Box<dyn Report>> {
        let pods = self.pods.as_ref().map(observed);
        let sets = self.sets.as_ref().map(ReadObjects::current).unwrap_or_default();
        let sets: Vec<ObservedStatefulSet> = sets.iter().map(ObservedStatefulSet::read).collect();
        let report = |object: &Value| {
            let of_namespace = |pods: &Vec<Arc<ObservedPod>>| -> Vec<Arc<ObservedPod>> {
                let is_here =
                    |pod: &&Arc<ObservedPod>| object["metadata"]["namespace"] == *pod.meta.namespace;
                pods.iter().filter(is_here).cloned().collect()
            };
            let pods = pods.as_ref().map(of_namespace);
            let seen = SeenStatefulSets::of(object, pods.as_deref(), &self.unread).beside(&sets);
            Box::new(StatefulSetsReport::of(&seen, now)) as Box<dyn Report>
        };
        self.rollouts.current().iter().map(report).collect()
    }

    async fn may_follow(&mut self, client: &Client) -> Result<(), String> {
        self.rollouts.may_follow(client).await?;
        if let Some(sets) = self.sets.take()
            && sets.may_follow(client).await.is_ok()
        {
            self.sets = Some(sets);
        }
        if let Some(pods) = &self.pods
            && let Err(sentence) = pods.may_follow(client).await
        {
            self.follows_pods = false;
            self.unread.push(format!("not updated live, because {sentence}"));
        }
        Ok(())
    }

    fn watch(&mut self, client: &Client) -> BoxStream<'static, ()> {
        let mut rollouts = self.rollouts.watch(client);
        if let Some(sets) = &mut self.sets {
            rollouts = stream::select(rollouts, sets.watch(client)).boxed();
        }
        match &mut self.pods {
            Some(pods) if self.follows_pods => stream::select(rollouts, pods.watch(client)).boxed(),
            _ => rollouts,
        }
    }
}
