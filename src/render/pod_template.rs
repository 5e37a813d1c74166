//! The pod template that a node should run, without the node's identity: the same for each node of a
//! fleet at one revision, so that its hash is too.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::api::names::{ANNOTATION_RESTARTED_AT, OWN_PREFIX};
use crate::api::{Sidecar, StatefulNodeSpec};
use crate::revision::template::{main_container, remove_own_keys, set_image};

/// The name of the injected sidecar's container.
pub const SIDECAR_CONTAINER: &str = "windlass-sidecar";
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
    check_shape(pod_template)?;
    let mut template = pod_template.clone();
    remove_own_keys(&mut template);

    let main = main_container(asked, pod_template)
        .ok_or_else(|| malformed("podTemplate.spec.containers[0].name", "a name"))?;
    if !containers(&template, "containers").any(|c| name(c) == Some(main)) {
        return Err(RenderError::NoMainContainer { name: main.to_owned() });
    }
    if !image.is_empty() {
        set_image(&mut template, main, image);
    }
    if let Some(sidecar) = sidecar {
        inject(&mut template, sidecar)?;
    }
    annotate(&mut template, restarted_at, options);
    Ok(template)
}

fn malformed(field: &str, expected: &'static str) -> RenderError {
    RenderError::Malformed { field: field.to_owned(), expected }
}

/// The parts that rendering goes into. The API server judges all others.
fn check_shape(template: &Value) -> Result<(), RenderError> {
    if !template.is_object() {
        return Err(malformed("podTemplate", "an object"));
    }
    if !template["spec"].is_object() {
        return Err(malformed("podTemplate.spec", "an object"));
    }
    for field in ["metadata", "metadata.labels", "metadata.annotations"] {
        let value = template.pointer(&format!("/{}", field.replace('.', "/")));
        if value.is_some_and(|value| !value.is_null() && !value.is_object()) {
            return Err(malformed(&format!("podTemplate.{field}"), "an object"));
        }
    }
    for field in ["containers", "initContainers"] {
        let list = &template["spec"][field];
        if !list.is_null() && !list.is_array() {
            return Err(malformed(&format!("podTemplate.spec.{field}"), "a list"));
        }
        if let Some(index) = containers(template, field).position(|c| !c.is_object()) {
            return Err(malformed(&format!("podTemplate.spec.{field}[{index}]"), "an object"));
        }
    }
    match containers(template, "containers").next() {
        Some(_) => Ok(()),
        None => Err(RenderError::NoContainers),
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
    // First, for init containers start in order: it answers while the user's own still run, which may take
    // hours (a restore), and ends after them all.
    let mut all = vec![sidecar_container(sidecar)];
    all.extend(containers(template, "initContainers").cloned());
    template["spec"]["initContainers"] = Value::Array(all);
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

fn annotate(template: &mut Value, restarted_at: Option<&str>, options: &RenderOptions) {
    let RenderOptions { pod_annotations } = options;
    let added = pod_annotations.iter().filter(|(key, _)| !key.starts_with(OWN_PREFIX));
    for (key, value) in added {
        template["metadata"]["annotations"][key] = value.as_str().into();
    }
    if let Some(time) = restarted_at {
        template["metadata"]["annotations"][ANNOTATION_RESTARTED_AT] = time.into();
    }
}
