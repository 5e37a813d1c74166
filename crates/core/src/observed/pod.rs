//! The parts of a pod that are read.

use chrono::{DateTime, Utc};
use serde_json::Value;

use super::meta::{Meta, text, time};
use crate::api::names::LABEL_NODE;
use crate::api::{MadeFor, Shared};
use crate::parts::Parts;

/// The state of a container.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct ContainerState {
    /// Its name.
    pub name: String,
    /// True if it is an init container.
    pub init: bool,
    /// True if the status has an image ID; there is none before the image was pulled.
    pub has_image: bool,
    /// True if it runs.
    pub running: bool,
    /// Since when it runs, if it does.
    pub running_since: Option<DateTime<Utc>>,
    /// True if it has terminated, successfully or not, and does not wait to be restarted yet.
    pub ended: bool,
    /// True if it is ready.
    pub ready: bool,
    /// Why it waits: reason and message.
    pub waiting: Option<(String, String)>,
    /// How often it was restarted.
    pub restarts: i64,
}

/// A pod's condition.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct PodCondition {
    /// True if its status is `True`.
    pub holds: bool,
    /// Its reason.
    pub reason: String,
    /// Its message.
    pub message: String,
    /// Since when.
    pub since: Option<DateTime<Utc>>,
}

/// A pod.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct ObservedPod {
    /// Its metadata.
    pub meta: Meta,
    /// The label `controller-revision-hash`.
    pub revision: String,
    /// Container names and images of its spec, in order.
    pub images: Shared<Vec<(String, String)>>,
    /// `status.phase`.
    pub phase: String,
    /// Its IP address.
    pub ip: String,
    /// The states of its containers, init containers first.
    pub containers: Vec<ContainerState>,
    /// The condition Ready.
    pub ready: Option<PodCondition>,
    /// The condition PodScheduled.
    pub scheduled: Option<PodCondition>,
}

impl ObservedPod {
    /// What it was created for, by its annotations.
    #[must_use]
    pub fn made_for(&self) -> Option<MadeFor> {
        MadeFor::read(|key| self.meta.annotation(key))
    }

    /// The node that its label names.
    #[must_use]
    pub fn node(&self) -> Option<&str> {
        self.meta.label(LABEL_NODE)
    }

    /// The container with this name.
    #[must_use]
    pub fn container(&self, name: &str) -> Option<&ContainerState> {
        self.containers.iter().find(|c| c.name == name)
    }

    /// True if its condition Ready is `True`.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.ready.as_ref().is_some_and(|c| c.holds)
    }
}

/// The parts of a pod that are read. Environment variables and volumes, which are most of it, are not.
pub(super) const POD: Parts = Parts::Only(&[
    ("spec", Parts::Only(&[("containers", Parts::Only(&[("name", Parts::All), ("image", Parts::All)]))])),
    (
        "status",
        Parts::Only(&[
            ("phase", Parts::All),
            ("podIP", Parts::All),
            ("conditions", Parts::All),
            ("initContainerStatuses", CONTAINER),
            ("containerStatuses", CONTAINER),
        ]),
    ),
]);

const CONTAINER: Parts = Parts::Only(&[
    ("name", Parts::All),
    ("imageID", Parts::All),
    ("state", Parts::All),
    ("ready", Parts::All),
    ("restartCount", Parts::All),
]);

pub(super) fn read_pod(object: &Value, meta: Meta) -> ObservedPod {
    let status = &object["status"];
    let states = |field: &str, init: bool| {
        let list = status[field].as_array().map(Vec::as_slice).unwrap_or_default();
        list.iter().map(move |c| container_state(c, init)).collect::<Vec<_>>()
    };
    let mut containers = states("initContainerStatuses", true);
    containers.extend(states("containerStatuses", false));
    ObservedPod {
        revision: meta.label("controller-revision-hash").unwrap_or_default().to_owned(),
        images: images(&object["spec"]),
        phase: text(&status["phase"]),
        ip: text(&status["podIP"]),
        containers,
        ready: condition(status, "Ready"),
        scheduled: condition(status, "PodScheduled"),
        meta,
    }
}

fn container_state(status: &Value, init: bool) -> ContainerState {
    let waiting = &status["state"]["waiting"];
    ContainerState {
        name: text(&status["name"]),
        init,
        has_image: status["imageID"].as_str().is_some_and(|id| !id.is_empty()),
        running: status["state"]["running"].is_object(),
        running_since: time(&status["state"]["running"]["startedAt"]),
        ended: status["state"]["terminated"].is_object(),
        ready: status["ready"].as_bool().unwrap_or_default(),
        waiting: waiting.is_object().then(|| (text(&waiting["reason"]), text(&waiting["message"]))),
        restarts: status["restartCount"].as_i64().unwrap_or_default(),
    }
}

fn condition(status: &Value, type_: &str) -> Option<PodCondition> {
    let list = status["conditions"].as_array()?;
    let found = list.iter().find(|c| c["type"] == type_)?;
    Some(PodCondition {
        holds: found["status"] == "True",
        reason: text(&found["reason"]),
        message: text(&found["message"]),
        since: time(&found["lastTransitionTime"]),
    })
}

pub(super) fn images(pod_spec: &Value) -> Shared<Vec<(String, String)>> {
    let list = pod_spec["containers"].as_array().map(Vec::as_slice).unwrap_or_default();
    list.iter().map(|c| (text(&c["name"]), text(&c["image"]))).collect::<Vec<_>>().into()
}
