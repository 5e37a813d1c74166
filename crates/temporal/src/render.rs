//! Renders the Deployment of a version. Pure.

use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};
use windlass_core::api::names::{
    ANNOTATION_CONFIG_DIGEST, ANNOTATION_RESTARTED_AT, LABEL_MANAGED_BY, MANAGER,
};
use windlass_core::revision::canonical::{Root, canonical};
use windlass_core::revision::hash::hex;
use windlass_kube_port::PatchOp;

use crate::api::connection::{CA, CERTIFICATE, PRIVATE_KEY};
use crate::api::names::{
    ANNOTATION_RENDERED, ANNOTATION_REVISION, ANNOTATION_SUNSET, ANNOTATION_TEMPLATE_HASH, LABEL_BUILD_ID,
    LABEL_POOL, LABEL_WORKERS,
};
use crate::api::{Connection, WorkerDeploymentSpec};
use crate::port::{BuildId, DeploymentName};

/// The volume with the workers' certificates.
const FILES: &str = "windlass-temporal-tls";
/// Where it is mounted.
const FOLDER: &str = "/var/run/secrets/windlass.dev/temporal";
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
    /// The connection.
    pub connection: &'a Connection,
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
    /// The digest of the workers' Secrets; empty if they have none.
    pub secrets: &'a str,
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
        if !self.secrets.is_empty() {
            object_in(metadata, "annotations")
                .insert(ANNOTATION_CONFIG_DIGEST.to_owned(), json!(self.secrets));
        }
        let connection = self.connection;
        let text = |name: &str, value: &str| json!({"name": name, "value": value});
        let mut added = vec![
            text("TEMPORAL_ADDRESS", &connection.address),
            text("TEMPORAL_NAMESPACE", &connection.namespace),
            text("TEMPORAL_DEPLOYMENT_NAME", self.deployment.as_str()),
            text("TEMPORAL_WORKER_BUILD_ID", self.build.as_str()),
        ];
        added.extend(credentials(connection));
        let files = files(connection);
        if let Some(files) = &files {
            let volumes = array(object(&mut template, "spec"), "volumes");
            replace(volumes, std::slice::from_ref(files));
        }
        for list in ["initContainers", "containers"] {
            let containers = template.pointer_mut(&format!("/spec/{list}")).and_then(Value::as_array_mut);
            for container in containers.into_iter().flatten() {
                // A worker that polls as another version would take that version's tasks.
                replace(array(as_object(container), "env"), &added);
                if files.is_some() {
                    let mount = json!({"name": FILES, "mountPath": FOLDER, "readOnly": true});
                    replace(array(as_object(container), "volumeMounts"), &[mount]);
                }
                if let Some(secret) = &connection.worker_secret {
                    let from = array(as_object(container), "envFrom");
                    from.push(json!({"secretRef": {"name": secret}}));
                }
            }
        }
        template
    }
}

/// The environment variables of the workers' credentials, as the SDKs' environment configuration reads them.
fn credentials(connection: &Connection) -> Vec<Value> {
    let Some(workers) = &connection.workers else { return Vec::new() };
    let text = |name: &str, value: &str| json!({"name": name, "value": value});
    let path = |name: &str, file: &str| text(name, &format!("{FOLDER}/{file}"));
    let (tls, key) = (workers.tls.as_ref(), workers.api_key_secret.as_ref());
    let mut added = Vec::new();
    if connection.is_tls() || tls.is_some() || key.is_some() {
        added.push(text("TEMPORAL_TLS", "true"));
    }
    if tls.is_some_and(|tls| tls.cert_secret.is_some()) {
        added.push(path("TEMPORAL_TLS_CLIENT_CERT_PATH", CERTIFICATE));
        added.push(path("TEMPORAL_TLS_CLIENT_KEY_PATH", PRIVATE_KEY));
    }
    if tls.is_some_and(|tls| tls.ca_secret.is_some()) {
        added.push(path("TEMPORAL_TLS_SERVER_CA_CERT_PATH", CA));
    }
    if let Some(name) = connection.tls.as_ref().and_then(|tls| tls.server_name.as_ref()) {
        added.push(text("TEMPORAL_TLS_SERVER_NAME", name));
    }
    if let Some(key) = key {
        let from = json!({"secretKeyRef": {"name": key.name, "key": key.key}});
        added.push(json!({"name": "TEMPORAL_API_KEY", "valueFrom": from}));
    }
    added
}

/// The volume with the workers' certificates, if they have any. It has only the keys that they read.
fn files(connection: &Connection) -> Option<Value> {
    let tls = connection.workers.as_ref()?.tls.as_ref()?;
    let source = |name: &Option<String>, keys: &[&str]| {
        let items: Vec<Value> = keys.iter().map(|key| json!({"key": key, "path": key})).collect();
        name.as_ref().map(|name| json!({"secret": {"name": name, "items": items}}))
    };
    let sources = [source(&tls.cert_secret, &[CERTIFICATE, PRIVATE_KEY]), source(&tls.ca_secret, &[CA])];
    let sources: Vec<Value> = sources.into_iter().flatten().collect();
    (!sources.is_empty()).then(|| json!({"name": FILES, "projected": {"sources": sources}}))
}

/// Prepends items to a list with names, so that the container's own variables can refer to them. They replace the
/// container's own of the same name.
fn replace(list: &mut Vec<Value>, added: &[Value]) {
    list.retain(|item| !added.iter().any(|new| item["name"] == new["name"]));
    list.splice(0..0, added.iter().cloned());
}

fn array<'a>(fields: &'a mut Map<String, Value>, field: &str) -> &'a mut Vec<Value> {
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
