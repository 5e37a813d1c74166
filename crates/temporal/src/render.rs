//! Renders the Deployment of a version. Pure.

use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};
use windlass_core::api::names::{ANNOTATION_RESTARTED_AT, LABEL_MANAGED_BY, MANAGER};
use windlass_core::revision::canonical::{Root, canonical};
use windlass_core::revision::hash::hex;
use windlass_kube_port::PatchOp;

use crate::api::WorkerDeploymentSpec;
use crate::api::names::{
    ANNOTATION_RENDERED, ANNOTATION_REVISION, ANNOTATION_SUNSET, ANNOTATION_TEMPLATE_HASH, LABEL_BUILD_ID,
    LABEL_POOL, LABEL_WORKERS,
};
use crate::port::{BuildId, DeploymentName};

/// The field of the annotations.
pub const ANNOTATIONS: &str = "/metadata/annotations";
/// The field of the replicas.
pub const REPLICAS: &str = "/spec/replicas";

/// The input of a rendering: one pool of a version.
#[derive(Clone, Copy, Debug)]
pub struct Version<'a> {
    /// The WorkerDeployment's name.
    pub owner: &'a str,
    /// Its namespace.
    pub namespace: &'a str,
    /// Its current spec, of which everything but the template applies.
    pub spec: &'a WorkerDeploymentSpec,
    /// The deployment's name in Temporal.
    pub deployment: &'a DeploymentName,
    /// The version's build ID.
    pub build: &'a BuildId,
    /// The pool, if the version has several; empty for that of `spec.template`.
    pub pool: Option<&'a str>,
    /// The desired number of workers; `None`: an autoscaler sets it.
    pub replicas: Option<i32>,
    /// The pool's own template.
    pub template: &'a Value,
    /// The hash of the version's templates.
    pub template_hash: &'a str,
    /// The ControllerRevision that keeps the template.
    pub revision: &'a str,
    /// The last accepted restart.
    pub restarted_at: Option<&'a str>,
}

/// The parts of a Deployment that Windlass writes.
#[derive(Clone, Debug)]
pub struct Rendered {
    /// The pod template.
    pub template: Value,
    /// The update strategy.
    pub strategy: Value,
    /// The annotations, with a hash of template and strategy.
    pub annotations: Map<String, Value>,
    labels: Map<String, Value>,
}

impl Version<'_> {
    /// Renders the version's Deployment.
    #[must_use]
    pub fn rendered(&self) -> Rendered {
        let mut labels = self.selector();
        labels.insert(LABEL_MANAGED_BY.to_owned(), json!(MANAGER));
        let template = self.pod_template(&labels);
        let surge = self.spec.max_surge.as_ref().map_or_else(|| json!("25%"), |surge| json!(surge));
        let fewer = self.spec.max_unavailable.as_ref().map_or_else(|| json!("25%"), |fewer| json!(fewer));
        let strategy =
            json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": surge, "maxUnavailable": fewer}});
        let digest = Sha256::digest(json!([template, strategy]).to_string());
        let annotations = [
            (ANNOTATION_TEMPLATE_HASH, self.template_hash.to_owned()),
            (ANNOTATION_REVISION, self.revision.to_owned()),
            (ANNOTATION_RENDERED, hex(&digest[..8])),
        ];
        let annotations = annotations.into_iter().map(|(key, text)| (key.to_owned(), json!(text))).collect();
        Rendered { template, strategy, annotations, labels }
    }

    /// The labels that select its pods.
    fn selector(&self) -> Map<String, Value> {
        let labels = [(LABEL_WORKERS, self.owner), (LABEL_BUILD_ID, self.build.as_str())];
        let pool = self.pool.map(|pool| (LABEL_POOL, pool));
        labels.into_iter().chain(pool).map(|(key, value)| (key.to_owned(), json!(value))).collect()
    }

    fn pod_template(&self, own: &Map<String, Value>) -> Value {
        let mut template = self.template.clone();
        let metadata = object(&mut template, "metadata");
        object_in(metadata, "labels").extend(own.clone());
        if let Some(at) = self.restarted_at {
            object_in(metadata, "annotations").insert(ANNOTATION_RESTARTED_AT.to_owned(), json!(at));
        }
        let connection = &self.spec.connection;
        let added = [
            ("TEMPORAL_ADDRESS", connection.address.as_str()),
            ("TEMPORAL_NAMESPACE", connection.namespace.as_str()),
            ("TEMPORAL_DEPLOYMENT_NAME", self.deployment.as_str()),
            ("TEMPORAL_WORKER_BUILD_ID", self.build.as_str()),
        ];
        for list in ["initContainers", "containers"] {
            let containers = template.pointer_mut(&format!("/spec/{list}")).and_then(Value::as_array_mut);
            for container in containers.into_iter().flatten() {
                add_env(container, &added);
                if let Some(secret) = &connection.worker_secret {
                    let from = array(container, "envFrom");
                    from.push(json!({"secretRef": {"name": secret}}));
                }
            }
        }
        template
    }
}

/// Prepends environment variables, so that the container's own can refer to them. One that the container sets itself
/// is replaced: a worker that polls as another version would take that version's tasks.
fn add_env(container: &mut Value, added: &[(&str, &str)]) {
    let env = array(container, "env");
    env.retain(|variable| !added.iter().any(|(name, _)| variable["name"] == *name));
    let added = added.iter().map(|(name, value)| json!({"name": name, "value": value}));
    env.splice(0..0, added);
}

fn array<'a>(of: &'a mut Value, field: &str) -> &'a mut Vec<Value> {
    let fields = as_object(of);
    let value = fields.entry(field.to_owned()).or_insert_with(|| json!([]));
    if !value.is_array() {
        *value = json!([]);
    }
    match value {
        Value::Array(items) => items,
        // The code above makes it an array.
        _ => unreachable!("an array"),
    }
}

fn object<'a>(of: &'a mut Value, field: &str) -> &'a mut Map<String, Value> {
    object_in(as_object(of), field)
}

fn object_in<'a>(fields: &'a mut Map<String, Value>, field: &str) -> &'a mut Map<String, Value> {
    as_object(fields.entry(field.to_owned()).or_insert_with(|| json!({})))
}

fn as_object(value: &mut Value) -> &mut Map<String, Value> {
    if !value.is_object() {
        *value = json!({});
    }
    match value {
        Value::Object(fields) => fields,
        // The code above makes it an object.
        _ => unreachable!("an object"),
    }
}

impl Rendered {
    /// The complete Deployment, to create it.
    #[must_use]
    pub fn manifest(&self, version: &Version<'_>, name: &str) -> Value {
        let mut spec = json!({
            "selector": {"matchLabels": version.selector()},
            "revisionHistoryLimit": 2,
            "strategy": self.strategy,
            "template": self.template,
        });
        if let Some(replicas) = version.replicas {
            spec["replicas"] = json!(replicas);
        }
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {
                "name": name, "namespace": version.namespace, "labels": self.labels, "annotations": self.annotations,
            },
            "spec": spec,
        })
    }

    /// The JSON patch operations that make a live Deployment match this rendering.
    #[must_use]
    pub fn differences(&self, live: &Value, compared: bool) -> Vec<PatchOp> {
        let mut ops = Vec::new();
        let annotations = &live["metadata"]["annotations"];
        let is_current = |key: &str| annotations[key] == self.annotations[key];
        let edited = !compared && !covers(&form(&live["spec"]["template"]), &form(&self.template));
        if !is_current(ANNOTATION_RENDERED) || edited {
            ops.push(PatchOp::set("/spec/template", self.template.clone()));
            ops.push(PatchOp::set("/spec/strategy", self.strategy.clone()));
        }
        if !self.annotations.keys().all(|key| is_current(key)) {
            ops.push(annotate(live, &self.annotations, &[]));
        }
        ops
    }

    /// True if a live Deployment's template matches, regardless of its annotations.
    #[must_use]
    pub fn matches_live(&self, live: &Value) -> bool {
        covers(&form(&live["spec"]["template"]), &form(&self.template))
    }
}

/// The patch operation that sets and removes annotations.
#[must_use]
pub fn annotate(live: &Value, set: &Map<String, Value>, remove: &[&str]) -> PatchOp {
    let mut annotations = live["metadata"]["annotations"].as_object().cloned().unwrap_or_default();
    annotations.extend(set.clone());
    annotations.retain(|key, _| !remove.contains(&key.as_str()));
    PatchOp::set(ANNOTATIONS, Value::Object(annotations))
}

/// The patch that scales a retired version up again.
#[must_use]
pub fn revive(live: &Value, replicas: Option<i32>) -> Vec<PatchOp> {
    vec![
        annotate(live, &Map::new(), &[ANNOTATION_SUNSET]),
        PatchOp::set(REPLICAS, json!(replicas.unwrap_or(1))),
    ]
}

/// The patch that scales an idle version to zero.
#[must_use]
pub fn scale_down(live: &Value) -> Vec<PatchOp> {
    let set = Map::from_iter([(ANNOTATION_SUNSET.to_owned(), json!("true"))]);
    vec![annotate(live, &set, &[]), PatchOp::set(REPLICAS, json!(0))]
}

fn form(template: &Value) -> Value {
    canonical(template, Root::PodTemplate)
}

/// True if `live` contains all of `wanted`; the API server adds defaults.
pub(crate) fn covers(live: &Value, wanted: &Value) -> bool {
    match (live, wanted) {
        (Value::Object(live), Value::Object(wanted)) => {
            wanted.iter().all(|(key, value)| live.get(key).is_some_and(|live| covers(live, value)))
        }
        (Value::Array(live), Value::Array(wanted)) => {
            live.len() == wanted.len() && live.iter().zip(wanted).all(|(live, wanted)| covers(live, wanted))
        }
        (live, wanted) => live == wanted,
    }
}
