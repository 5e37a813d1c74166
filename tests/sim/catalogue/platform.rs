//! What the platform below a fleet does by itself: admission rewrites objects, controllers change their minds, and kubelets
//! report less than others. No node is ill and nobody asked for anything, so a fleet comes to the same end.

use serde_json::{Value, json};
use windlass_sim::kubelet::STEER_LABEL;
use windlass_sim::{Mutation, Policy, Target, proxy};

use crate::catalogue::scenario::{Change, NAMESPACE, Scenario};
use crate::catalogue::world::World;

/// How admission rewrites pods, or the templates of StatefulSets.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Rewrite {
    Annotated,
    /// Pins images to digests.
    Pinned,
    /// Pulls images from another registry.
    Mirrored,
    /// Appends a proxy container.
    Meshed,
    /// Prepends a proxy container.
    MeshedFirst,
}

/// An action of the platform.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Platform {
    /// A policy is installed, and stays.
    Admits(Target, Rewrite),
    /// Another version of the StatefulSet controller serializes revisions differently.
    Reserialises,
    /// The kubelets leave out of the statuses of pods what this word says.
    Reports(&'static str),
}

/// When it happens.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum When {
    /// From before the fleet's creation.
    Always,
    /// While the fleet is at rest, before the scenario's change.
    Before,
    /// Right after the n-th write.
    Within,
}

/// The annotation that admission adds, and the marks of its rewrites.
const ANNOTATION: &str = "platform.test/scanned";
const PROXY: &str = "mesh";
const REGISTRY: &str = "mirror.test";

impl Platform {
    /// All actions, by the name of the fault.
    pub fn all() -> Vec<(&'static str, Self, When)> {
        use Rewrite::{Annotated, Meshed, MeshedFirst, Mirrored, Pinned};
        use Target::{Pods, Templates};
        use When::{Always, Before, Within};
        let rewrites = [
            (
                Pods,
                Annotated,
                ["F16-pods-annotated-always", "F16-pods-annotated-before", "F16-pods-annotated"],
            ),
            (Pods, Pinned, ["F16-pods-pinned-always", "F16-pods-pinned-before", "F16-pods-pinned"]),
            (Pods, Mirrored, ["F16-pods-mirrored-always", "F16-pods-mirrored-before", "F16-pods-mirrored"]),
            (Pods, Meshed, ["F16-pods-meshed-always", "F16-pods-meshed-before", "F16-pods-meshed"]),
            (
                Pods,
                MeshedFirst,
                ["F16-pods-meshed-first-always", "F16-pods-meshed-first-before", "F16-pods-meshed-first"],
            ),
            (
                Templates,
                Annotated,
                [
                    "F16-templates-annotated-always",
                    "F16-templates-annotated-before",
                    "F16-templates-annotated",
                ],
            ),
            (
                Templates,
                Mirrored,
                ["F16-templates-mirrored-always", "F16-templates-mirrored-before", "F16-templates-mirrored"],
            ),
            (
                Templates,
                MeshedFirst,
                [
                    "F16-templates-meshed-first-always",
                    "F16-templates-meshed-first-before",
                    "F16-templates-meshed-first",
                ],
            ),
        ];
        let mut all = Vec::new();
        for (target, rewrite, names) in rewrites {
            for (name, when) in names.into_iter().zip([Always, Before, Within]) {
                all.push((name, Self::Admits(target, rewrite), when));
            }
        }
        all.push(("F16-revisions-before", Self::Reserialises, Before));
        all.push(("F16-revisions", Self::Reserialises, Within));
        all.push(("F16-kwok-always", Self::Reports("kwok"), Always));
        all.push(("F16-virtual-always", Self::Reports("virtual"), Always));
        all.push(("F16-kwok", Self::Reports("kwok"), Within));
        all
    }

    /// True if it makes sense in a scenario. Policies from the start are run where pods are made or compared, but not
    /// in the largest fleets, where they cost more and show the same.
    pub fn fits(when: When, scenario: &Scenario) -> bool {
        let change = scenario.change;
        let rolls = matches!(change, Change::Image | Change::Template | Change::Labels);
        let small = scenario.nodes < 7;
        match when {
            When::Always => small && (rolls || change == Change::Create),
            When::Before => {
                small && (rolls || matches!(change, Change::Up | Change::Repair | Change::Restart))
            }
            When::Within => true,
        }
    }

    /// Performs it.
    pub fn perform(self, world: &World) {
        match self {
            Self::Admits(target, rewrite) => world.cluster.admit(policy(target, rewrite)),
            Self::Reserialises => world.cluster.reserialise_revisions(),
            Self::Reports(word) => {
                let map = json!({
                    "apiVersion": "v1", "kind": "ConfigMap", "data": {"kubelet": word},
                    "metadata": {"name": "kubelet", "namespace": NAMESPACE, "labels": {STEER_LABEL: "true"}},
                });
                // It may exist already, or its namespace may be gone.
                drop(world.cluster.install(map));
            }
        }
    }
}

fn policy(target: Target, rewrite: Rewrite) -> Policy {
    let mutation = match rewrite {
        Rewrite::Annotated => Mutation::Annotation(ANNOTATION.to_owned(), "yes".to_owned()),
        Rewrite::Pinned => Mutation::Digests,
        Rewrite::Mirrored => Mutation::Mirror(REGISTRY.to_owned()),
        Rewrite::Meshed => Mutation::Container { container: proxy(PROXY), first: false },
        Rewrite::MeshedFirst => Mutation::Container { container: proxy(PROXY), first: true },
    };
    Policy::new("platform", target, mutation)
}

/// A pod or a template without what admission added and rewrote.
pub fn without_admission(value: &Value) -> Value {
    match value {
        Value::String(text) => {
            let own = text.strip_prefix(REGISTRY).and_then(|rest| rest.strip_prefix('/')).unwrap_or(text);
            own.split_once("@sha256:").map_or(own, |(name, _)| name).into()
        }
        Value::Array(list) => {
            list.iter().filter(|item| item["name"] != PROXY).map(without_admission).collect()
        }
        Value::Object(map) => {
            let own = map.iter().filter(|(key, _)| *key != ANNOTATION);
            let mut left: serde_json::Map<_, _> =
                own.map(|(key, item)| (key.clone(), without_admission(item))).collect();
            // Drop annotations that only admission wrote.
            if map.get("annotations").is_some_and(|own| own.get(ANNOTATION).is_some())
                && left["annotations"] == json!({})
            {
                left.remove("annotations");
            }
            left.into()
        }
        other => other.clone(),
    }
}

#[test]
fn admission_mutations_are_stripped_from_observed_pods() {
    let asked = json!({
        "metadata": {"labels": {"a": "b"}},
        "spec": {"containers": [{"name": "db", "image": "db:1"}]},
    });
    let done = json!({
        "metadata": {"labels": {"a": "b"}, "annotations": {ANNOTATION: "yes"}},
        "spec": {"containers": [{"name": PROXY, "image": "mesh:1"}, {"name": "db", "image": "mirror.test/db:1@sha256:00"}]},
    });
    assert_eq!(without_admission(&done), asked);
    assert_eq!(without_admission(&asked), asked);
}
