//! Mutating admission of pods, of StatefulSets, of their templates, and of the metadata of any kind: the part of `MutatingAdmissionPolicy` objects
//! and webhooks that operators meet.
//!
//! As on a real server, policies run after defaults and before validation, on every matching write, including patches
//! of labels only and dry runs, but not on subresources.

use serde_json::{Value, json};

/// The objects of a policy.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Target {
    /// Pods, when created.
    Pods,
    /// The pod templates of StatefulSets, when created and updated.
    Templates,
    /// StatefulSets beside their templates, when created and updated.
    StatefulSets,
    /// The metadata of the objects of this kind, when created and updated.
    MetadataOf(&'static str),
}

/// A mutation: of a pod or a template, of a StatefulSet, or of metadata.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Mutation {
    /// Sets an annotation of a pod, a template, or an object of which only the metadata is changed.
    Annotation(String, String),
    /// Sets a label of an object of which only the metadata is changed.
    Label(String, String),
    /// Pins every image of a pod or a template without a digest to a generated one.
    Digests,
    /// Replaces the registry of every image of a pod or a template.
    Mirror(String),
    /// Adds a container to a pod or a template.
    Container {
        /// The container, with a name and an image.
        container: Value,
        /// True to insert it first.
        first: bool,
    },
    /// Sets the `persistentVolumeClaimRetentionPolicy` of a StatefulSet.
    ClaimRetention(Value),
    /// Sets the type of the `updateStrategy` of a StatefulSet.
    UpdateStrategy(String),
    /// Raises the `replicas` of a StatefulSet to this number.
    MinReplicas(i64),
}

/// An admission policy.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Policy {
    /// Its name; installing another with this name replaces it.
    pub name: String,
    /// Its namespace; `None`: all.
    pub namespace: Option<String>,
    /// Its objects.
    pub target: Target,
    /// Its mutation.
    pub mutation: Mutation,
}

/// The operation of a write.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Operation {
    Create,
    Update,
}

impl Policy {
    /// A policy for all namespaces.
    ///
    /// # Panics
    ///
    /// If the mutation is not one of these objects.
    #[must_use]
    pub fn new(name: &str, target: Target, mutation: Mutation) -> Self {
        assert!(mutation.is_of(target), "{mutation:?} is no mutation of {target:?}");
        Self { name: name.to_owned(), namespace: None, target, mutation }
    }

    fn matches(&self, kind: &str, namespace: &str, operation: Operation) -> bool {
        let of_kind = match self.target {
            Target::Pods => kind == "Pod" && operation == Operation::Create,
            Target::Templates | Target::StatefulSets => kind == "StatefulSet",
            Target::MetadataOf(of) => kind == of,
        };
        of_kind && self.namespace.as_deref().is_none_or(|only| only == namespace)
    }
}

/// Applies every matching policy to an object; true if one matched.
pub(crate) fn mutate(policies: &[Policy], kind: &str, operation: Operation, object: &mut Value) -> bool {
    let namespace = super::super::store::meta(object, "namespace").to_owned();
    let matching = policies.iter().filter(|policy| policy.matches(kind, &namespace, operation));
    let mut any = false;
    for policy in matching {
        let mutated = match policy.target {
            Target::Pods | Target::StatefulSets | Target::MetadataOf(_) => &mut *object,
            Target::Templates => &mut object["spec"]["template"],
        };
        policy.mutation.apply(mutated);
        any = true;
    }
    any
}

impl Mutation {
    fn is_of(&self, target: Target) -> bool {
        match self {
            Self::Digests | Self::Mirror(_) | Self::Container { .. } => {
                matches!(target, Target::Pods | Target::Templates)
            }
            Self::Annotation(..) => target != Target::StatefulSets,
            Self::Label(..) => matches!(target, Target::MetadataOf(_)),
            Self::ClaimRetention(_) | Self::UpdateStrategy(_) | Self::MinReplicas(_) => {
                target == Target::StatefulSets
            }
        }
    }

    /// Applies it to an object or a template. Idempotent.
    fn apply(&self, object: &mut Value) {
        match self {
            Self::Annotation(name, value) => {
                object["metadata"]["annotations"][name.as_str()] = value.clone().into();
            }
            Self::Label(name, value) => object["metadata"]["labels"][name.as_str()] = value.clone().into(),
            Self::Digests => images(object, pinned),
            Self::Mirror(registry) => images(object, |image| mirrored(image, registry)),
            Self::ClaimRetention(retention) => {
                object["spec"]["persistentVolumeClaimRetentionPolicy"] = retention.clone();
            }
            Self::UpdateStrategy(strategy) => object["spec"]["updateStrategy"] = json!({"type": strategy}),
            Self::MinReplicas(least) => {
                let replicas = object["spec"]["replicas"].as_i64().unwrap_or_default().max(*least);
                object["spec"]["replicas"] = replicas.into();
            }
            Self::Container { container, first } => {
                let Some(containers) = object["spec"]["containers"].as_array_mut() else { return };
                if containers.iter().any(|there| there["name"] == container["name"]) {
                    return;
                }
                let at = if *first { 0 } else { containers.len() };
                containers.insert(at, container.clone());
            }
        }
    }
}

fn images(pod: &mut Value, rewritten: impl Fn(&str) -> Option<String>) {
    for list in ["initContainers", "containers"] {
        for container in pod["spec"].get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
            if let Some(image) = container["image"].as_str().and_then(&rewritten) {
                container["image"] = image.into();
            }
        }
    }
}

/// The image with a digest derived from its name.
fn pinned(image: &str) -> Option<String> {
    let digest = || super::super::kubelet::digest_of(image);
    (!image.contains('@')).then(|| format!("{image}@sha256:{}", digest()))
}

fn mirrored(image: &str, registry: &str) -> Option<String> {
    let prefix = format!("{registry}/");
    (!image.starts_with(&prefix)).then(|| format!("{prefix}{image}"))
}

/// A sidecar container, as a service mesh injects it.
#[must_use]
pub fn proxy(name: &str) -> Value {
    json!({"name": name, "image": format!("{name}:1")})
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod() -> Value {
        json!({
            "metadata": {"name": "a", "namespace": "ns"},
            "spec": {"containers": [{"name": "main", "image": "db:1"}], "initContainers": [{"name": "i", "image": "x@sha256:0"}]},
        })
    }

    fn after(mutation: Mutation) -> Value {
        let policies = [Policy::new("p", Target::Pods, mutation)];
        let mut once = pod();
        assert!(mutate(&policies, "Pod", Operation::Create, &mut once));
        let mut twice = once.clone();
        mutate(&policies, "Pod", Operation::Create, &mut twice);
        assert_eq!(once, twice, "done twice, the end is the same");
        once
    }

    #[test]
    fn mutations_pin_and_mirror_images_and_add_containers() {
        let pinned = after(Mutation::Digests);
        let image = pinned["spec"]["containers"][0]["image"].as_str().unwrap();
        assert!(image.starts_with("db:1@sha256:") && image.len() == 76, "{image}");
        assert_eq!(pinned["spec"]["initContainers"][0]["image"], "x@sha256:0");
        let mirrored = after(Mutation::Mirror("mirror.test".into()));
        assert_eq!(mirrored["spec"]["containers"][0]["image"], "mirror.test/db:1");
        let annotated = after(Mutation::Annotation("platform.test/a".into(), "1".into()));
        assert_eq!(annotated["metadata"]["annotations"]["platform.test/a"], "1");
        for (first, at) in [(true, 0), (false, 1)] {
            let injected = after(Mutation::Container { container: proxy("mesh"), first });
            assert_eq!(injected["spec"]["containers"][at]["name"], "mesh");
        }
    }

    #[test]
    fn stateful_set_policy_leaves_the_pod_template_unchanged() {
        let retention = json!({"whenDeleted": "Delete", "whenScaled": "Retain"});
        let policies = [Policy::new("p", Target::StatefulSets, Mutation::ClaimRetention(retention.clone()))];
        let before = json!({"metadata": {"namespace": "ns"}, "spec": {"replicas": 1, "template": pod()}});
        let mut set = before.clone();
        assert!(mutate(&policies, "StatefulSet", Operation::Update, &mut set));
        assert_eq!(set["spec"]["persistentVolumeClaimRetentionPolicy"], retention);
        assert_eq!(set["spec"]["template"], before["spec"]["template"]);
        assert!(!mutate(&policies, "Pod", Operation::Create, &mut pod()));
    }

    #[test]
    fn set_policy_sets_update_strategy_and_minimum_replicas() {
        let policy = |mutation| Policy::new("p", Target::StatefulSets, mutation);
        let rolls = Mutation::UpdateStrategy("RollingUpdate".into());
        let policies = [policy(Mutation::MinReplicas(2)), policy(rolls)];
        for (replicas, expected) in [(0, 2), (1, 2), (3, 3)] {
            let spec = json!({"replicas": replicas, "updateStrategy": {"type": "OnDelete"}});
            let mut set = json!({"metadata": {"namespace": "ns"}, "spec": spec});
            mutate(&policies, "StatefulSet", Operation::Update, &mut set);
            let expected = json!({"replicas": expected, "updateStrategy": {"type": "RollingUpdate"}});
            assert_eq!(set["spec"], expected);
        }
    }

    #[test]
    fn metadata_policy_applies_only_to_its_kind() {
        let label = Mutation::Label("team".into(), "platform".into());
        let policies = [Policy::new("p", Target::MetadataOf("ConfigMap"), label)];
        let before =
            json!({"metadata": {"namespace": "ns", "labels": {"team": "one", "tier": "db"}}, "data": {}});
        let mut map = before.clone();
        assert!(mutate(&policies, "ConfigMap", Operation::Update, &mut map));
        assert_eq!(map["metadata"]["labels"], json!({"team": "platform", "tier": "db"}));
        assert!(!mutate(&policies, "Secret", Operation::Update, &mut before.clone()));
    }

    #[test]
    #[should_panic(expected = "is no mutation of Templates")]
    fn template_policy_with_claim_retention_panics() {
        let _ = Policy::new("p", Target::Templates, Mutation::ClaimRetention(json!({})));
    }

    #[test]
    fn policy_matches_only_its_kind_namespace_and_operations() {
        let policy = |target| Policy::new("p", target, Mutation::Digests);
        let elsewhere = Policy { namespace: Some("other".into()), ..policy(Target::Pods) };
        let is_for = |policy: &Policy, kind: &str, operation| policy.matches(kind, "ns", operation);
        assert!(is_for(&policy(Target::Pods), "Pod", Operation::Create));
        assert!(!is_for(&policy(Target::Pods), "Pod", Operation::Update));
        assert!(!is_for(&policy(Target::Pods), "StatefulSet", Operation::Create));
        assert!(is_for(&policy(Target::Templates), "StatefulSet", Operation::Update));
        assert!(!is_for(&elsewhere, "Pod", Operation::Create));
    }
}
