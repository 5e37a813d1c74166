//! A platform's changes to the objects of one namespace: real `MutatingAdmissionPolicies`, each bound to the
//! namespace of its test.

use std::time::Duration;

use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, GroupVersionKind, PostParams};
use serde_json::{Value, json};

use windlass_harness::kit::{PATIENCE, World};

/// The objects of a policy.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum On {
    Pods,
    StatefulSets,
}

/// The change of a policy.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Does {
    /// Pins the first container's image to a digest.
    Pin,
    /// Prepends a container.
    AddFirst,
}

const DIGEST: &str = "@sha256:0000000000000000000000000000000000000000000000000000000000000001";

/// An installed policy.
pub struct Policy {
    name: String,
    on: On,
    does: Does,
}

impl Does {
    /// The CEL expression of the JSON patch.
    fn expression(self, on: On) -> String {
        let (at, path, containers) = match on {
            On::Pods => ("object", "", "Object.spec.containers"),
            On::StatefulSets => {
                ("object.spec.template", "/spec/template", "Object.spec.template.spec.containers")
            }
        };
        match self {
            Self::Pin => format!(
                "{at}.spec.containers[0].image.contains(\"@\") ? [] : [JSONPatch{{op: \"replace\", path: \
                 \"{path}/spec/containers/0/image\", value: {at}.spec.containers[0].image + \"{DIGEST}\"}}]"
            ),
            Self::AddFirst => format!(
                "{at}.spec.containers.exists(c, c.name == \"proxy\") ? [] : [JSONPatch{{op: \"add\", path: \
                 \"{path}/spec/containers/0\", value: {containers}{{name: \"proxy\", image: \"proxy:1\"}}}}]"
            ),
        }
    }

    /// True if a pod or a StatefulSet has the change.
    fn is_in(self, on: On, object: &Value) -> bool {
        let pod = match on {
            On::Pods => object,
            On::StatefulSets => &object["spec"]["template"],
        };
        let containers = pod["spec"]["containers"].as_array().cloned().unwrap_or_default();
        let image = containers.first().and_then(|c| c["image"].as_str()).unwrap_or_default();
        match self {
            Self::Pin => image.contains('@'),
            Self::AddFirst => containers.iter().any(|c| c["name"] == "proxy"),
        }
    }
}

fn api(world: &World, kind: &str) -> Api<DynamicObject> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("admissionregistration.k8s.io", "v1", kind));
    let resource = ApiResource { plural: resource.plural.replace("policys", "policies"), ..resource };
    Api::all_with(world.client.clone(), &resource)
}

async fn make(world: &World, kind: &str, name: &str, spec: &Value) {
    let object = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind,
        "metadata": {"name": name}, "spec": spec});
    let object: DynamicObject = serde_json::from_value(object).unwrap();
    let made = api(world, kind).create(&PostParams::default(), &object).await;
    made.unwrap_or_else(|e| panic!("{kind} {name} is refused: {e}"));
}

impl Policy {
    /// Installs a policy, and waits until the API server applies it.
    pub async fn install(world: &World, on: On, does: Does) -> Self {
        let name = format!("{}-{on:?}-{does:?}", &*world.ns).to_lowercase();
        let (group, resource) = match on {
            On::Pods => ("", "pods"),
            On::StatefulSets => ("apps", "statefulsets"),
        };
        // Containers cannot be added to an existing pod.
        let operations = if on == On::Pods { json!(["CREATE"]) } else { json!(["CREATE", "UPDATE"]) };
        let spec = json!({
            "matchConstraints": {"resourceRules": [{
                "apiGroups": [group], "apiVersions": ["v1"], "operations": operations, "resources": [resource],
            }]},
            "failurePolicy": "Fail",
            "reinvocationPolicy": "Never",
            "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": does.expression(on)}}],
        });
        make(world, "MutatingAdmissionPolicy", &name, &spec).await;
        let here = json!({"matchLabels": {"kubernetes.io/metadata.name": &*world.ns}});
        let bound = json!({"policyName": name, "matchResources": {"namespaceSelector": here}});
        make(world, "MutatingAdmissionPolicyBinding", &name, &bound).await;
        let policy = Self { name, on, does };
        policy.until_obeyed(world, true).await;
        policy
    }

    /// Removes it, and waits until the API server no longer applies it.
    pub async fn remove(self, world: &World) {
        for kind in ["MutatingAdmissionPolicyBinding", "MutatingAdmissionPolicy"] {
            api(world, kind).delete(&self.name, &DeleteParams::default()).await.unwrap();
        }
        self.until_obeyed(world, false).await;
    }

    async fn until_obeyed(&self, world: &World, obeyed: bool) {
        let until = tokio::time::Instant::now() + PATIENCE;
        let dry_run = PostParams { dry_run: true, ..PostParams::default() };
        // A few in a row: the change takes effect asynchronously.
        let mut seen = 0;
        while seen < 3 {
            let made = self.probed(world).create(&dry_run, &self.probe()).await.unwrap();
            let made = serde_json::to_value(made).unwrap();
            seen = if self.does.is_in(self.on, &made) == obeyed { seen + 1 } else { 0 };
            assert!(tokio::time::Instant::now() < until, "the policy {} is not obeyed", self.name);
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    fn probed(&self, world: &World) -> Api<DynamicObject> {
        if self.on == On::Pods { world.pods() } else { world.sets() }
    }

    fn probe(&self) -> DynamicObject {
        let pod = json!({"containers": [{"name": "main", "image": "probe:1"}]});
        let object = if self.on == On::Pods {
            json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "probe"}, "spec": pod})
        } else {
            json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "probe"}, "spec": {
                "serviceName": "probe", "selector": {"matchLabels": {"app": "probe"}},
                "template": {"metadata": {"labels": {"app": "probe"}}, "spec": pod},
            }})
        };
        serde_json::from_value(object).unwrap()
    }
}
