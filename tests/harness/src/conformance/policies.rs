//! Installs a platform policy: on the real control plane a `MutatingAdmissionPolicy` for the namespace of the case,
//! on the simulated one its counterpart.

use serde_json::{Value, json};
use windlass_sim::{Mutation, Policy, Target};

use super::suite::Ctx;

const GROUP: &str = "/apis/admissionregistration.k8s.io/v1";

impl Ctx {
    /// Installs a policy for the case's namespace, and waits until the server applies it.
    pub async fn admit(&self, name: &str, target: Target, mutation: Mutation) {
        if let Some(cluster) = &self.simulated {
            let policy = Policy::new(name, target, mutation);
            return cluster.admit(Policy { namespace: Some(self.ns.clone()), ..policy });
        }
        let before = self.tried(target).await;
        let full = format!("{}-{name}", self.ns);
        self.made(&format!("{GROUP}/mutatingadmissionpolicies"), policy(&full, target, &mutation)).await;
        self.made(&format!("{GROUP}/mutatingadmissionpolicybindings"), binding(&full, &self.ns)).await;
        self.policies.lock().unwrap().push(full);
        self.until("the policy to be heeded", async || (self.tried(target).await != before).then_some(()))
            .await;
    }

    /// The result of a dry run.
    async fn tried(&self, target: Target) -> Value {
        let template = json!({
            "metadata": {"labels": {"app": "tried"}}, "spec": {"containers": [{"name": "main", "image": "tried:1"}]},
        });
        // Token volumes have generated names.
        let pod = |metadata: &Value, spec: &Value| {
            let containers = spec["containers"].as_array().into_iter().flatten();
            let containers: Value = containers.map(|c| json!([c["name"], c["image"]])).collect();
            json!([metadata["annotations"], containers])
        };
        match target {
            Target::Pods => {
                let mut body = template.clone();
                body["metadata"]["name"] = "tried".into();
                let came = self.post(&self.at("pods?dryRun=All"), body).await.body;
                pod(&came["metadata"], &came["spec"])
            }
            Target::MetadataOf(kind) => {
                let path = format!("{}?dryRun=All", resources(kind));
                let came = self.post(&self.at(&path), json!({"metadata": {"name": "tried"}})).await.body;
                json!([came["metadata"]["labels"], came["metadata"]["annotations"]])
            }
            Target::Templates | Target::StatefulSets => {
                let spec = json!({"selector": {"matchLabels": {"app": "tried"}}, "template": template});
                let body = json!({"metadata": {"name": "tried"}, "spec": spec});
                let came = self.post(&self.at("apps:statefulsets?dryRun=All"), body).await.body;
                if target == Target::StatefulSets {
                    let fields = ["persistentVolumeClaimRetentionPolicy", "updateStrategy", "replicas"];
                    return fields.map(|field| came["spec"][field].clone()).into_iter().collect();
                }
                let template = &came["spec"]["template"];
                pod(&template["metadata"], &template["spec"])
            }
        }
    }

    /// Removes cluster-scoped objects.
    pub async fn clear_away(&self) {
        let names = std::mem::take(&mut *self.policies.lock().unwrap());
        for name in names {
            for kind in ["mutatingadmissionpolicybindings", "mutatingadmissionpolicies"] {
                self.delete(&format!("{GROUP}/{kind}/{name}"), Value::Null).await;
            }
        }
    }
}

/// The binding of a policy to a namespace.
pub fn binding(name: &str, namespace: &str) -> Value {
    let selector = json!({"matchLabels": {"kubernetes.io/metadata.name": namespace}});
    json!({
        "metadata": {"name": name},
        "spec": {"policyName": name, "matchResources": {"namespaceSelector": selector}},
    })
}

/// A real policy that does what the mutation says.
pub fn policy(name: &str, target: Target, mutation: &Mutation) -> Value {
    let rule = match target {
        Target::Pods => {
            json!({"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]})
        }
        Target::MetadataOf(kind) => json!({
            "apiGroups": ["*"], "apiVersions": ["*"], "operations": ["CREATE", "UPDATE"], "resources": [resources(kind)],
        }),
        Target::Templates | Target::StatefulSets => json!({
            "apiGroups": ["apps"], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"], "resources": ["statefulsets"],
        }),
    };
    json!({
        "metadata": {"name": name},
        "spec": {
            "matchConstraints": {"resourceRules": [rule]}, "failurePolicy": "Fail", "reinvocationPolicy": "Never",
            "mutations": [mutation_of(target, mutation)],
        },
    })
}

/// The name of a kind's resources.
fn resources(kind: &str) -> String {
    format!("{}s", kind.to_lowercase())
}

/// The mutation in CEL, of an object, or of a template in its set.
fn mutation_of(target: Target, mutation: &Mutation) -> Value {
    let (at, path) = match target {
        Target::Pods | Target::StatefulSets | Target::MetadataOf(_) => ("", ""),
        Target::Templates => (".spec.template", "/spec/template"),
    };
    let laid_over = |part: &str, value: String| {
        let inner = format!("Object{at}{{{part}: Object{at}.{part}{{{value}}}}}");
        let whole =
            if at.is_empty() { inner } else { format!("Object{{spec: Object.spec{{template: {inner}}}}}") };
        json!({"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": whole}})
    };
    let images = |image: &str| {
        let each = format!("Object{at}.spec.containers{{name: c.name, image: {image}}}");
        laid_over("spec", format!("containers: object{at}.spec.containers.map(c, {each})"))
    };
    match mutation {
        Mutation::Annotation(key, value) => {
            laid_over("metadata", format!("annotations: {{{key:?}: {value:?}}}"))
        }
        Mutation::Label(key, value) => laid_over("metadata", format!("labels: {{{key:?}: {value:?}}}")),
        Mutation::Digests => {
            images(&format!("c.image.contains('@') ? c.image : c.image + '@sha256:{}'", "0".repeat(64)))
        }
        Mutation::Mirror(registry) => {
            images(&format!("c.image.startsWith('{registry}/') ? c.image : '{registry}/' + c.image"))
        }
        Mutation::ClaimRetention(retention) => {
            let field = "persistentVolumeClaimRetentionPolicy";
            let (deleted, scaled) = (&retention["whenDeleted"], &retention["whenScaled"]);
            let value = format!("Object.spec.{field}{{whenDeleted: {deleted}, whenScaled: {scaled}}}");
            let add = format!("[JSONPatch{{op: 'add', path: '/spec/{field}', value: {value}}}]");
            json!({"patchType": "JSONPatch", "jsonPatch": {"expression": add}})
        }
        Mutation::UpdateStrategy(strategy) => {
            let value = format!("Object.spec.updateStrategy{{type: {strategy:?}}}");
            let add = format!("[JSONPatch{{op: 'add', path: '/spec/updateStrategy', value: {value}}}]");
            json!({"patchType": "JSONPatch", "jsonPatch": {"expression": add}})
        }
        Mutation::MinReplicas(least) => {
            let add = format!("JSONPatch{{op: 'add', path: '/spec/replicas', value: {least}}}");
            let expression = format!("object.spec.replicas < {least} ? [{add}] : []");
            json!({"patchType": "JSONPatch", "jsonPatch": {"expression": expression}})
        }
        Mutation::Container { container, first } => {
            let (name, image) = (&container["name"], &container["image"]);
            let end = if *first { "0" } else { "-" };
            let value = format!("Object{at}.spec.containers{{name: {name}, image: {image}}}");
            let add = format!("JSONPatch{{op: 'add', path: '{path}/spec/containers/{end}', value: {value}}}");
            let there = format!("object{at}.spec.containers.exists(c, c.name == {name})");
            json!({"patchType": "JSONPatch", "jsonPatch": {"expression": format!("{there} ? [] : [{add}]")}})
        }
    }
}
