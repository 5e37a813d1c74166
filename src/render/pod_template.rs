//! The pod template that a node should run, without the node's identity: the same for each node of a
//! fleet at one revision, so that its hash is too.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

pub use crate::api::names::SIDECAR_CONTAINER;
use crate::api::names::{ANNOTATION_RESTARTED_AT, OWN_PREFIX};
use crate::api::{Sidecar, StatefulNodeSpec};
use crate::revision::template::{main_container, remove_own_keys, set_image};

/// The path of the sidecar's readiness probe.
const READYZ: &str = "/readyz";
/// The name of the sidecar's port.
const SIDECAR_PORT: &str = "windlass";
/// Seconds between two readiness probes: how long a node that was marked ready still waits for traffic.
const PROBE_SECONDS: i32 = 2;

/// What an embedding platform adds. The default adds nothing.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct RenderOptions {
    /// Annotations of every pod. They win over the template's, and are part of the pod template hash: a
    /// change of them rolls out as `OperatorDrift`. Keys under `windlass.dev/` are ignored.
    pub pod_annotations: BTreeMap<String, String>,
}

/// Why a spec cannot be rendered.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum RenderError {
    /// A part of the template is not what it has to be.
    #[error("{field} has to be {expected}")]
    Malformed {
        /// The field's path in the node's spec.
        field: String,
        /// What it has to be.
        expected: &'static str,
    },
    /// The template has no container.
    #[error("podTemplate.spec.containers is empty; a node needs a main container")]
    NoContainers,
    /// The main container does not exist.
    #[error("mainContainer is {name:?}, but podTemplate.spec.containers has no container of that name")]
    NoMainContainer {
        /// The name that was asked for.
        name: String,
    },
    /// A container has the name of the injected sidecar.
    #[error(
        "podTemplate.spec.{field} has a container named {SIDECAR_CONTAINER:?}; that name is the injected sidecar's, choose another"
    )]
    SidecarNameTaken {
        /// `containers` or `initContainers`.
        field: &'static str,
    },
}

/// The pod template that a node should run, without its identity. `restarted_at` is the restart that the
/// node last obeyed, as it was written.
pub fn pod_template(
    spec: &StatefulNodeSpec,
    restarted_at: Option<&str>,
    options: &RenderOptions,
) -> Result<Value, RenderError> {
    let StatefulNodeSpec {
        image,
        main_container: asked,
        pod_template,
        sidecar,
        // Beside the pod template in the StatefulSet, or in the Service.
        volume_claim_templates: _,
        volume_claim_retention: _,
        ports: _,
        service_annotations: _,
        suspend: _,
        // Said to the executor.
        progress_deadline_seconds: _,
        granted_hash: _,
        grant_id: _,
    } = spec;
    let mut template = pod_template.clone();
    check_containers(&template)?;
    remove_own_keys(&mut template);

    let main = main_container(asked, pod_template).ok_or_else(|| RenderError::Malformed {
        field: "podTemplate.spec.containers[0].name".to_owned(),
        expected: "a name",
    })?;
    if !containers(&template, "containers").any(|c| name(c) == Some(main)) {
        return Err(RenderError::NoMainContainer { name: main.to_owned() });
    }
    if !image.is_empty() {
        set_image(&mut template, main, image);
    }
    if let Some(sidecar) = sidecar {
        inject(&mut template, sidecar)?;
    }
    annotate(&mut template, restarted_at, options)?;
    Ok(template)
}

fn check_containers(template: &Value) -> Result<(), RenderError> {
    let malformed = |field: &str, expected| RenderError::Malformed { field: field.to_owned(), expected };
    let template = template.as_object().ok_or_else(|| malformed("podTemplate", "an object"))?;
    let spec = template
        .get("spec")
        .and_then(Value::as_object)
        .ok_or_else(|| malformed("podTemplate.spec", "an object"))?;
    match spec.get("containers") {
        None | Some(Value::Null) => Err(RenderError::NoContainers),
        Some(Value::Array(containers)) if containers.is_empty() => Err(RenderError::NoContainers),
        Some(Value::Array(containers)) => match containers.iter().position(|c| !c.is_object()) {
            Some(index) => Err(malformed(&format!("podTemplate.spec.containers[{index}]"), "an object")),
            None => Ok(()),
        },
        Some(_) => Err(malformed("podTemplate.spec.containers", "a list")),
    }
}

fn containers<'a>(template: &'a Value, field: &str) -> impl Iterator<Item = &'a Value> {
    template["spec"][field].as_array().into_iter().flatten()
}

fn name(container: &Value) -> Option<&str> {
    container.get("name")?.as_str()
}

fn inject(template: &mut Value, sidecar: &Sidecar) -> Result<(), RenderError> {
    for field in ["containers", "initContainers"] {
        if containers(template, field).any(|c| name(c) == Some(SIDECAR_CONTAINER)) {
            return Err(RenderError::SidecarNameTaken { field });
        }
    }
    let list = &mut template["spec"]["initContainers"];
    if list.is_null() {
        *list = json!([]);
    }
    let list = list.as_array_mut().ok_or_else(|| RenderError::Malformed {
        field: "podTemplate.spec.initContainers".to_owned(),
        expected: "a list",
    })?;
    // First, for init containers start in order: it answers while the user's own still run, which may take
    // hours (a restore), and ends after them all.
    list.insert(0, sidecar_container(sidecar));
    Ok(())
}

fn sidecar_container(sidecar: &Sidecar) -> Value {
    // How the operator reaches the sidecar applies at once, so nothing of it may be in the pod.
    let Sidecar { image, port, resources, url: _, token_secret: _ } = sidecar;
    let mut container = json!({
        "name": SIDECAR_CONTAINER,
        "image": image,
        "restartPolicy": "Always",
        "args": ["sidecar", "--bind", format!("0.0.0.0:{port}")],
        "ports": [{"name": SIDECAR_PORT, "containerPort": port, "protocol": "TCP"}],
        "readinessProbe": {
            "httpGet": {"path": READYZ, "port": port},
            "periodSeconds": PROBE_SECONDS,
        },
        // All that the Pod Security level "restricted" asks of a container and that no pod-level field can
        // say; a server of a few paths needs none of it.
        "securityContext": {"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}},
    });
    if !resources.is_null() {
        container["resources"] = resources.clone();
    }
    container
}

fn annotate(
    template: &mut Value,
    restarted_at: Option<&str>,
    options: &RenderOptions,
) -> Result<(), RenderError> {
    let RenderOptions { pod_annotations } = options;
    let added = pod_annotations
        .iter()
        .filter(|(key, _)| !key.starts_with(OWN_PREFIX))
        .map(|(key, value)| (key.clone(), Value::from(value.as_str())))
        .chain(restarted_at.map(|time| (ANNOTATION_RESTARTED_AT.to_owned(), time.into())));
    let mut added = added.peekable();
    if added.peek().is_some() {
        metadata_map(template, "annotations")?.extend(added);
    }
    Ok(())
}

/// The map at `metadata.<field>` of a pod template, made where it is not there.
fn metadata_map<'a>(template: &'a mut Value, field: &str) -> Result<&'a mut Map<String, Value>, RenderError> {
    let malformed = |field: String| RenderError::Malformed { field, expected: "an object" };
    let mut at = template;
    let mut path = "podTemplate".to_owned();
    for key in ["metadata", field] {
        let fields = at.as_object_mut().ok_or_else(|| malformed(path.clone()))?;
        path = format!("{path}.{key}");
        at = fields.entry(key).or_insert(Value::Null);
        if at.is_null() {
            *at = json!({});
        }
    }
    at.as_object_mut().ok_or_else(|| malformed(path))
}
