//! What a platform's policies make of pods, and of the templates of StatefulSets, on their way into the store: the
//! part of `MutatingAdmissionPolicy` objects and of admission webhooks that operators meet.
//!
//! As on a real server they run after defaults and before anything is checked, on every write that they match, a patch
//! of nothing but labels and a dry run among them, and not on writes to a subresource.

use serde_json::{Value, json};

/// The kind of object that a policy is about.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Target {
    /// Pods, as they are made.
    Pods,
    /// The pod templates of StatefulSets, as those are made and changed.
    Templates,
}

/// What is done to a pod, or to a template.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Mutation {
    /// It has an annotation of this name and value.
    Annotation(String, String),
    /// Every image that has no digest is pinned to a made-up one of its own.
    Digests,
    /// Every image is that of this registry.
    Mirror(String),
    /// It has this container beside the others, before or after them.
    Container {
        /// The container, which has a name and an image.
        container: Value,
        /// Whether it comes before all others.
        first: bool,
    },
}

/// A policy of the platform.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Policy {
    /// What it is called: one of the same name takes its place.
    pub name: String,
    /// The namespace that it is for; none: all of them.
    pub namespace: Option<String>,
    /// What it is about.
    pub target: Target,
    /// What it does.
    pub mutation: Mutation,
}

/// Which write an object is on its way in.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Operation {
    Create,
    Update,
}

impl Policy {
    /// A policy for every namespace.
    #[must_use]
    pub fn new(name: &str, target: Target, mutation: Mutation) -> Self {
        Self { name: name.to_owned(), namespace: None, target, mutation }
    }

    fn matches(&self, kind: &str, namespace: &str, operation: Operation) -> bool {
        let of_kind = match self.target {
            Target::Pods => kind == "Pod" && operation == Operation::Create,
            Target::Templates => kind == "StatefulSet",
        };
        of_kind && self.namespace.as_deref().is_none_or(|only| only == namespace)
    }
}

/// Lets every policy that matches have its way with an object; answers whether one did.
pub(crate) fn mutate(policies: &[Policy], kind: &str, operation: Operation, object: &mut Value) -> bool {
    let namespace = super::super::store::meta(object, "namespace").to_owned();
    let matching = policies.iter().filter(|policy| policy.matches(kind, &namespace, operation));
    let mut any = false;
    for policy in matching {
        let pod = if policy.target == Target::Pods { &mut *object } else { &mut object["spec"]["template"] };
        policy.mutation.apply(pod);
        any = true;
    }
    any
}

impl Mutation {
    /// Done twice, the end is the same.
    fn apply(&self, pod: &mut Value) {
        match self {
            Self::Annotation(name, value) => {
                pod["metadata"]["annotations"][name.as_str()] = value.clone().into();
            }
            Self::Digests => images(pod, pinned),
            Self::Mirror(registry) => images(pod, |image| mirrored(image, registry)),
            Self::Container { container, first } => {
                let Some(containers) = pod["spec"]["containers"].as_array_mut() else { return };
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

/// The image with a digest, which is another one for every name.
fn pinned(image: &str) -> Option<String> {
    let digest = || super::super::kubelet::digest_of(image);
    (!image.contains('@')).then(|| format!("{image}@sha256:{}", digest()))
}

fn mirrored(image: &str, registry: &str) -> Option<String> {
    let prefix = format!("{registry}/");
    (!image.starts_with(&prefix)).then(|| format!("{prefix}{image}"))
}

/// A container that platforms add to pods: a proxy that meshes their traffic.
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
    fn images_are_pinned_and_mirrored_and_containers_and_annotations_added() {
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
    fn a_policy_is_for_its_kind_its_namespace_and_its_operations() {
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
