//! What Windlass reads from a pod template, and the two changes that it makes to one: it applies the image override,
//! and removes Windlass's own keys.

use serde_json::Value;

use crate::api::StatefulNodeSpec;
use crate::api::names::{
    ANNOTATION_CONFIG_DIGEST, ANNOTATION_RESTARTED_AT, LABEL_MANAGED_BY, OWN_PREFIX, RESERVED_ANNOTATIONS,
    RESERVED_LABELS,
};

/// True if a label or annotation is Windlass's own, and so never a user's.
#[must_use]
pub fn is_own_key(key: &str) -> bool {
    key.starts_with(OWN_PREFIX) || key == LABEL_MANAGED_BY
}

/// The name of the main container: `asked` or, if that is empty, the name of the first container. `None` if that
/// container is missing or has no name. A container with the name `asked` need not exist.
#[must_use]
pub fn main_container<'a>(asked: &'a str, pod_template: &'a Value) -> Option<&'a str> {
    if asked.is_empty() {
        containers(pod_template)?.first()?.get("name")?.as_str().filter(|name| !name.is_empty())
    } else {
        Some(asked)
    }
}

/// The image that a node's main container should run; `None` if none is specified.
#[must_use]
pub fn main_image(spec: &StatefulNodeSpec) -> Option<&str> {
    if !spec.image.is_empty() {
        return Some(&spec.image);
    }
    image_of(&spec.pod_template, main_container(&spec.main_container, &spec.pod_template)?)
}

/// The image of this container of a pod template, or of a pod; `None` if there is none.
#[must_use]
pub fn image_of<'a>(pod_template: &'a Value, container: &str) -> Option<&'a str> {
    let found = containers(pod_template)?.iter().find(|c| is_named(c, container))?;
    found.get("image")?.as_str().filter(|image| !image.is_empty())
}

/// Sets the image of this container. Returns false if the container was not found.
pub fn set_image(pod_template: &mut Value, container: &str, image: &str) -> bool {
    let found = pod_template
        .pointer_mut("/spec/containers")
        .and_then(Value::as_array_mut)
        .and_then(|containers| containers.iter_mut().find(|c| is_named(c, container)))
        .and_then(Value::as_object_mut);
    match found {
        Some(fields) => {
            fields.insert("image".to_owned(), image.into());
            true
        }
        None => false,
    }
}

/// Removes the labels and annotations under Windlass's prefix that a user's template may not have. New objects have none;
/// in one that was stored before they were refused, they have no effect, as before.
pub fn remove_reserved_keys(pod_template: &mut Value) {
    let fields: [(&str, &[&str]); 2] =
        [("/metadata/labels", &RESERVED_LABELS), ("/metadata/annotations", &RESERVED_ANNOTATIONS)];
    for (field, reserved) in fields {
        if let Some(texts) = pod_template.pointer_mut(field).and_then(Value::as_object_mut) {
            texts.retain(|key, _| !key.starts_with(OWN_PREFIX) || !reserved.contains(&key.as_str()));
        }
    }
}

/// The annotations of Windlass that are there to change what runs.
const CHANGE_WHAT_RUNS: [&str; 2] = [ANNOTATION_RESTARTED_AT, ANNOTATION_CONFIG_DIGEST];

/// Removes all labels and annotations that are outside of the hash: those under Windlass's prefix, except for those that are
/// there to change what runs, and the label that Windlass used to set on pods.
pub fn remove_own_keys(pod_template: &mut Value) {
    if let Some(labels) = pod_template.pointer_mut("/metadata/labels").and_then(Value::as_object_mut) {
        labels.retain(|key, _| !is_own_key(key));
    }
    if let Some(annotations) =
        pod_template.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut)
    {
        annotations.retain(|key, _| !key.starts_with(OWN_PREFIX) || CHANGE_WHAT_RUNS.contains(&key.as_str()));
    }
}

fn containers(pod_template: &Value) -> Option<&Vec<Value>> {
    pod_template.pointer("/spec/containers")?.as_array()
}

fn is_named(container: &Value, name: &str) -> bool {
    container.get("name").and_then(Value::as_str) == Some(name)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn spec(image: &str, main_container: &str, pod_template: Value) -> StatefulNodeSpec {
        StatefulNodeSpec {
            image: image.to_owned(),
            main_container: main_container.to_owned(),
            pod_template: pod_template.into(),
            ..StatefulNodeSpec::default()
        }
    }

    fn two() -> Value {
        json!({"spec": {"containers": [{"name": "db", "image": "db:1"}, {"name": "log", "image": "log:1"}]}})
    }

    #[test]
    fn main_container_is_the_first_unless_named() {
        assert_eq!(main_container("", &two()), Some("db"));
        assert_eq!(main_container("log", &two()), Some("log"));
        assert_eq!(main_container("", &json!({"spec": {"containers": []}})), None);
        assert_eq!(main_container("", &json!({"spec": {"containers": [{"name": ""}]}})), None);
        assert_eq!(main_container("", &json!({})), None);
    }

    #[test]
    fn main_image_is_the_override_or_that_of_the_main_container() {
        assert_eq!(main_image(&spec("", "", two())), Some("db:1"));
        assert_eq!(main_image(&spec("", "log", two())), Some("log:1"));
        assert_eq!(main_image(&spec("db:2", "", two())), Some("db:2"));
        assert_eq!(main_image(&spec("", "nope", two())), None);
        assert_eq!(main_image(&spec("", "", json!({"spec": {"containers": [{"name": "db"}]}}))), None);
    }

    #[test]
    fn image_is_set_only_on_the_named_container() {
        let mut template = two();
        assert!(set_image(&mut template, "log", "log:2"));
        assert_eq!(image_of(&template, "log"), Some("log:2"));
        assert_eq!(image_of(&template, "db"), Some("db:1"));
        assert!(!set_image(&mut template, "nope", "x"));
    }

    #[test]
    fn windlass_keys_except_restart_are_removed() {
        let mut template = json!({"metadata": {
            "labels": {"windlass.dev/node": "x", "app.kubernetes.io/managed-by": "Helm", "windlass.development/a": "b"},
            "annotations": {
                "windlass.dev/restartedAt": "now", "windlass.dev/x": "y", "app.kubernetes.io/managed-by": "Helm", "a": "b"
            }
        }});
        remove_own_keys(&mut template);
        let left = json!({"metadata": {
            "labels": {"windlass.development/a": "b"},
            "annotations": {"windlass.dev/restartedAt": "now", "app.kubernetes.io/managed-by": "Helm", "a": "b"}
        }});
        assert_eq!(template, left);
    }
}
