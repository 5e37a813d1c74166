//! The pod template that a node should run, without the node's identity. It is the same for each node of a fleet at one
//! revision, and so is its hash.

use std::collections::BTreeMap;

use serde_json::{Value, json};

pub use crate::api::names::SIDECAR_CONTAINER;
use crate::api::names::{ANNOTATION_RESTARTED_AT, OWN_PREFIX};
use crate::api::{Sidecar, StatefulNodeSpec};
use crate::revision::template::{main_container, remove_reserved_keys, set_image};

/// The path of the sidecar's readiness probe.
const READYZ: &str = "/readyz";
/// The name of the sidecar's port.
const SIDECAR_PORT: &str = "windlass";
/// The seconds between two readiness probes: a node that was marked as ready waits at most this long for traffic.
const PROBE_SECONDS: i32 = 2;

/// What a platform that embeds Windlass adds. The default adds nothing.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct RenderOptions {
    /// Annotations of every pod. They override the template's, and are part of the pod template hash: a change of them
    /// rolls out as `OperatorDrift`. Keys under `windlass.dev/` are ignored.
    pub pod_annotations: BTreeMap<String, String>,
}

/// Why a spec cannot be rendered.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum RenderError {
    /// A part of the template is missing or has the wrong type.
    #[error("{field} has to be {expected}")]
    Malformed {
        /// The field's path in the node's spec.
        field: String,
        /// What is expected.
        expected: &'static str,
    },
    /// The template has no container.
    #[error("podTemplate.spec.containers is empty; a node needs a main container")]
    NoContainers,
    /// The main container does not exist.
    #[error("mainContainer is {name:?}, but podTemplate.spec.containers has no container of that name")]
    NoMainContainer {
        /// The requested name.
        name: String,
    },
    /// A container has the name of the injected sidecar.
    #[error(
        "podTemplate.spec.{field} has a container named {SIDECAR_CONTAINER:?}; Windlass reserves that \
         name for the injected sidecar: rename the container"
    )]
    SidecarNameTaken {
        /// `containers` or `initContainers`.
        field: &'static str,
    },
}

/// The pod template that a node should run, without its identity. `restarted_at` is the node's latest restart, as it
/// was written.
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
        // In the StatefulSet next to the pod template, or in the Service.
        volume_claim_templates: _,
        volume_claim_retention: _,
        ports: _,
        service_annotations: _,
        suspend: _,
        // Only for the node's controller.
        progress_deadline_seconds: _,
        granted_hash: _,
        grant_id: _,
        halt_height: _,
        halt_task_id: _,
        watch_sidecar: _,
        removal_id: _,
        move_: _,
        claim_sizes: _,
    } = spec;
    check_shape(pod_template)?;
    let mut template = Value::clone(pod_template);
    remove_reserved_keys(&mut template);

    let main = main_container(asked, pod_template)
        .ok_or_else(|| malformed("podTemplate.spec.containers[0].name", "a non-empty string"))?;
    if !containers(&template, "containers").any(|c| name(c) == Some(main)) {
        return Err(RenderError::NoMainContainer { name: main.to_owned() });
    }
    if !image.is_empty() {
        set_image(&mut template, main, image);
    }
    if let Some(sidecar) = sidecar.as_ref().filter(|sidecar| sidecar.is_injected()) {
        inject(&mut template, sidecar)?;
    }
    annotate(&mut template, restarted_at, options);
    Ok(template)
}

fn malformed(field: &str, expected: &'static str) -> RenderError {
    RenderError::Malformed { field: field.to_owned(), expected }
}

/// Checks the parts that rendering reads. The API server validates all others.
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
    // First, because init containers start in order: the sidecar answers while the user's own init containers still
    // run, which may take hours (a restore), and ends after all of them.
    let mut all = vec![sidecar_container(sidecar)];
    all.extend(containers(template, "initContainers").cloned());
    template["spec"]["initContainers"] = Value::Array(all);
    Ok(())
}

fn sidecar_container(sidecar: &Sidecar) -> Value {
    // A change of how the operator reaches the sidecar applies at once, so these fields may not be in the pod.
    let Sidecar {
        image,
        port,
        resources,
        args,
        env,
        volume_mounts,
        security_context,
        url: _,
        token_secret: _,
        tls: _,
        auth: _,
    } = sidecar;
    let bind = format!("0.0.0.0:{port}");
    let args: Vec<&str> =
        ["sidecar", "--bind", &bind].into_iter().chain(args.iter().map(String::as_str)).collect();
    let mut container = json!({
        "name": SIDECAR_CONTAINER,
        "image": image,
        "restartPolicy": "Always",
        "args": args,
        "ports": [{"name": SIDECAR_PORT, "containerPort": port, "protocol": "TCP"}],
        "readinessProbe": {
            "httpGet": {"path": READYZ, "port": port},
            "periodSeconds": PROBE_SECONDS,
        },
        // The rest of the default context is added outside of the hash: see `stateful_set_template`.
        "securityContext": {"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}},
    });
    for (field, value) in security_context.as_object().into_iter().flatten() {
        container["securityContext"][field] = value.clone();
    }
    if !resources.is_null() {
        container["resources"] = resources.clone();
    }
    for (field, list) in [("env", env), ("volumeMounts", volume_mounts)] {
        if !list.is_empty() {
            container[field] = Value::Array(list.clone());
        }
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

#[cfg(test)]
mod tests {
    use serde_json::from_value;

    use super::*;
    use crate::revision::pod_template_hash;

    fn spec(value: Value) -> StatefulNodeSpec {
        from_value(value).unwrap()
    }

    fn render(value: Value) -> Value {
        pod_template(&spec(value), None, &RenderOptions::default()).unwrap()
    }

    fn refusal(value: Value) -> String {
        pod_template(&spec(value), Some("now"), &RenderOptions::default()).unwrap_err().to_string()
    }

    #[test]
    fn template_is_passed_through_unchanged() {
        let template = json!({
            "metadata": {"creationTimestamp": null, "labels": {"a": ""}},
            "spec": {"containers": [{"name": "db", "futureField": {"x": null}}], "futureField": [{}], "initContainers": []},
        });
        assert_eq!(render(json!({"podTemplate": template})), template);
    }

    #[test]
    fn image_is_set_on_the_main_container() {
        let containers = json!([{"name": "db", "image": "db:1"}, {"name": "log", "image": "log:1"}]);
        let template = json!({"spec": {"containers": containers}});
        let first = render(json!({"image": "x:2", "podTemplate": template}));
        assert_eq!(
            first["spec"]["containers"],
            json!([{"name": "db", "image": "x:2"}, {"name": "log", "image": "log:1"}])
        );
        let named = render(json!({"image": "x:2", "mainContainer": "log", "podTemplate": template}));
        assert_eq!(
            named["spec"]["containers"],
            json!([{"name": "db", "image": "db:1"}, {"name": "log", "image": "x:2"}])
        );
    }

    #[test]
    fn sidecar_is_a_native_sidecar_and_starts_first() {
        let rendered = render(json!({
            "podTemplate": {"spec": {"containers": [{"name": "db"}], "initContainers": [{"name": "restore"}]}},
            "sidecar": {"image": "w:1", "port": 7780, "resources": {"limits": {"cpu": "50m"}}, "url": "http://x", "tokenSecret": "t"},
        }));
        let sidecar = json!({
            "name": "windlass-sidecar",
            "image": "w:1",
            "restartPolicy": "Always",
            "args": ["sidecar", "--bind", "0.0.0.0:7780"],
            "ports": [{"name": "windlass", "containerPort": 7780, "protocol": "TCP"}],
            "readinessProbe": {"httpGet": {"path": "/readyz", "port": 7780}, "periodSeconds": 2},
            "securityContext": {"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}},
            "resources": {"limits": {"cpu": "50m"}},
        });
        assert_eq!(rendered["spec"]["initContainers"], json!([sidecar, {"name": "restore"}]));
        assert_eq!(rendered["spec"]["containers"], json!([{"name": "db"}]));
    }

    #[test]
    fn sidecar_args_are_appended_and_its_env_is_passed_through() {
        let env = json!([{"name": "A", "value": ""}, {"name": "B", "futureField": {"x": null}}]);
        let mounts = json!([{"name": "token", "mountPath": "/t", "futureField": 1}]);
        let rendered = render(json!({
            "podTemplate": {"spec": {"containers": [{"name": "db"}]}},
            "sidecar": {"image": "w:1", "args": ["--height-url", "http://127.0.0.1:80"], "env": env, "volumeMounts": mounts},
        }));
        let sidecar = &rendered["spec"]["initContainers"][0];
        let args = json!(["sidecar", "--bind", "0.0.0.0:7777", "--height-url", "http://127.0.0.1:80"]);
        assert_eq!([&sidecar["args"], &sidecar["env"], &sidecar["volumeMounts"]], [&args, &env, &mounts]);
    }

    #[test]
    fn sidecar_without_an_image_is_not_injected() {
        let template = json!({"spec": {"containers": [{"name": "db"}]}});
        let sidecar = json!({"url": "http://monitor/{name}", "args": ["x"]});
        assert_eq!(render(json!({"podTemplate": template, "sidecar": sidecar})), template);
    }

    #[test]
    fn sidecar_connection_settings_are_not_rendered_into_the_pod() {
        let template = json!({"spec": {"containers": [{"name": "db"}], "initContainers": null}});
        let bare = render(json!({"podTemplate": template, "sidecar": {"image": "w:1"}}));
        let reached = json!({"image": "w:1", "port": 7777, "url": "https://x", "tokenSecret": "t",
            "tls": {"caSecret": "ca", "serverName": "x"}, "auth": {"basicSecret": "b"}});
        assert_eq!(render(json!({"podTemplate": template, "sidecar": reached})), bare);
        for field in ["resources", "env", "volumeMounts"] {
            assert_eq!(bare["spec"]["initContainers"][0].get(field), None, "{field}");
        }
    }

    #[test]
    fn restart_and_platform_annotations_change_the_hash() {
        let spec = spec(json!({"podTemplate": {
            "metadata": {"annotations": {"a": "user"}}, "spec": {"containers": [{"name": "db"}]}}}));
        let none = RenderOptions::default();
        let platform = RenderOptions {
            pod_annotations: [("a", "platform"), ("b", ""), ("windlass.dev/x", "y")]
                .map(|(k, v)| (k.to_owned(), v.to_owned()))
                .into(),
        };
        let plain = pod_template(&spec, None, &none).unwrap();
        let restarted = pod_template(&spec, Some("2026-01-01T00:00:00Z"), &none).unwrap();
        let added = pod_template(&spec, None, &platform).unwrap();
        assert_eq!(
            restarted["metadata"]["annotations"],
            json!({"a": "user", "windlass.dev/restartedAt": "2026-01-01T00:00:00Z"})
        );
        assert_eq!(added["metadata"]["annotations"], json!({"a": "platform", "b": ""}));
        let hashes = [&plain, &restarted, &added].map(pod_template_hash);
        assert!(hashes[0] != hashes[1] && hashes[0] != hashes[2] && hashes[1] != hashes[2]);
    }

    #[test]
    fn restart_annotation_is_added_to_missing_metadata() {
        for metadata in [json!(null), json!({}), json!({"annotations": null})] {
            let template = json!({"metadata": metadata, "spec": {"containers": [{"name": "db"}]}});
            let spec = spec(json!({"podTemplate": template}));
            let rendered = pod_template(&spec, Some("now"), &RenderOptions::default()).unwrap();
            assert_eq!(rendered["metadata"]["annotations"], json!({"windlass.dev/restartedAt": "now"}));
        }
    }

    #[test]
    fn user_labels_except_reserved_ones_reach_the_pod() {
        let rendered = render(json!({"podTemplate": {
            "metadata": {
                "labels": {"windlass.dev/set": "x", "a": "b", "app.kubernetes.io/managed-by": "Helm"},
                "annotations": {"windlass.dev/image": "x", "windlass.dev/note": "y"}},
            "spec": {"containers": [{"name": "db"}]}}}));
        let expected = json!({
            "labels": {"a": "b", "app.kubernetes.io/managed-by": "Helm"},
            "annotations": {"windlass.dev/note": "y"}});
        assert_eq!(rendered["metadata"], expected);
    }

    #[test]
    fn unrenderable_template_is_refused_with_the_reason() {
        let with_spec = |spec: Value| json!({"podTemplate": {"spec": spec}});
        let with_metadata = |metadata: Value| json!({"podTemplate": {"metadata": metadata, "spec": {"containers": [{"name": "db"}]}}});
        for (value, sentence) in [
            (json!({"podTemplate": []}), "podTemplate has to be an object"),
            (json!({"podTemplate": {}}), "podTemplate.spec has to be an object"),
            (with_spec(json!("x")), "podTemplate.spec has to be an object"),
            (with_spec(json!({})), "podTemplate.spec.containers is empty; a node needs a main container"),
            (
                with_spec(json!({"containers": null})),
                "podTemplate.spec.containers is empty; a node needs a main container",
            ),
            (
                with_spec(json!({"containers": []})),
                "podTemplate.spec.containers is empty; a node needs a main container",
            ),
            (with_spec(json!({"containers": {}})), "podTemplate.spec.containers has to be a list"),
            (
                with_spec(json!({"containers": [{"name": "a"}, "b"]})),
                "podTemplate.spec.containers[1] has to be an object",
            ),
            (
                with_spec(json!({"containers": [{}]})),
                "podTemplate.spec.containers[0].name has to be a non-empty string",
            ),
            (
                with_spec(json!({"containers": [{"name": "a"}], "initContainers": {}})),
                "podTemplate.spec.initContainers has to be a list",
            ),
            (
                with_spec(json!({"containers": [{"name": "a"}], "initContainers": [1]})),
                "podTemplate.spec.initContainers[0] has to be an object",
            ),
            (with_metadata(json!("x")), "podTemplate.metadata has to be an object"),
            (with_metadata(json!({"labels": []})), "podTemplate.metadata.labels has to be an object"),
            (
                with_metadata(json!({"annotations": 1})),
                "podTemplate.metadata.annotations has to be an object",
            ),
        ] {
            assert_eq!(refusal(value), sentence);
        }
    }

    #[test]
    fn main_container_must_exist_with_or_without_an_image() {
        for image in ["", "x:1"] {
            let value = json!({"image": image, "mainContainer": "nope", "podTemplate": {"spec": {"containers": [{"name": "db"}]}}});
            assert_eq!(
                refusal(value),
                "mainContainer is \"nope\", but podTemplate.spec.containers has no container of that name"
            );
        }
    }

    #[test]
    fn sidecar_name_is_reserved_only_with_an_injected_sidecar() {
        for field in ["containers", "initContainers"] {
            let mut value = json!({"podTemplate": {"spec": {"containers": [{"name": "db"}]}}});
            let list = json!([{"name": SIDECAR_CONTAINER}]);
            value["podTemplate"]["spec"][field] = list;
            render(value.clone());
            value["sidecar"] = json!({"image": "w:1"});
            let sentence = refusal(value);
            assert!(
                sentence.starts_with(&format!("podTemplate.spec.{field} has a container named")),
                "{sentence}"
            );
        }
    }
}
