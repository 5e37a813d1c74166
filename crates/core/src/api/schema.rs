//! The schemas of fields that stay raw JSON. They declare only what a validation rule or a reader needs and preserve
//! unknown fields, so that the fields of a newer Kubernetes pass through.

use schemars::{Schema, SchemaGenerator, json_schema};

/// Any object.
#[must_use]
pub fn raw_object(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})
}

/// A container's environment variables.
pub(super) fn env(_: &mut SchemaGenerator) -> Schema {
    raw_objects("An environment variable, as in a pod.", 128)
}

/// A container's volume mounts.
pub(super) fn volume_mounts(_: &mut SchemaGenerator) -> Schema {
    raw_objects("A volume mount, as in a pod.", 64)
}

fn raw_objects(description: &str, most: u32) -> Schema {
    json_schema!({
        "type": "array",
        "maxItems": most,
        "items": {
            "type": "object",
            "description": description,
            "x-kubernetes-preserve-unknown-fields": true,
            "required": ["name"],
            "properties": {"name": {"type": "string", "description": "The name of the entry."}}
        }
    })
}

/// A PodTemplateSpec. Its `metadata` is not declared as that of an embedded resource, because the API server would drop
/// everything but names and labels.
#[must_use]
pub fn pod_template(_: &mut SchemaGenerator) -> Schema {
    let containers = |description: &str| {
        serde_json::json!({
            "type": "array",
            "description": description,
            "maxItems": 64,
            "items": {
                "type": "object",
                "description": "A container, as in a pod.",
                "x-kubernetes-preserve-unknown-fields": true,
                "required": ["name"],
                "properties": {
                    "name": {"type": "string", "description": "The name of the container.", "minLength": 1, "maxLength": 63},
                    "image": {"type": "string", "description": "The image of the container."},
                    "ports": {
                        "type": "array",
                        "description": "ports lists the ports of the container.",
                        "maxItems": 256,
                        "items": {
                            "type": "object",
                            "description": "A port, as in a pod.",
                            "x-kubernetes-preserve-unknown-fields": true,
                            "properties": {
                                "containerPort": {
                                    "type": "integer", "description": "The number of the port.", "minimum": 1, "maximum": 65535
                                },
                                "protocol": {"type": "string", "description": "protocol is UDP, TCP or SCTP.", "maxLength": 63}
                            }
                        }
                    }
                }
            }
        })
    };
    json_schema!({
        "type": "object",
        "x-kubernetes-preserve-unknown-fields": true,
        "required": ["spec"],
        "properties": {
            "metadata": {
                "type": "object",
                "description": "metadata contains labels and annotations of the pod. A change restarts the pod.",
                "x-kubernetes-preserve-unknown-fields": true,
                "properties": {
                    "labels": texts("labels are the labels of the pod."),
                    "annotations": texts("annotations are the annotations of the pod.")
                }
            },
            "spec": {
                "type": "object",
                "description": "A pod spec, with any field that the cluster's Kubernetes version supports.",
                "x-kubernetes-preserve-unknown-fields": true,
                "required": ["containers"],
                "properties": {
                    "containers": containers("containers lists the containers of the pod; at least one."),
                    "initContainers": containers("initContainers lists the init containers of the pod.")
                }
            }
        }
    })
}

/// Labels or annotations.
fn texts(description: &str) -> serde_json::Value {
    serde_json::json!({
        "type": "object",
        "description": description,
        "maxProperties": 256,
        "additionalProperties": {"type": "string"}
    })
}

/// Volume claim templates, as in a StatefulSet.
pub(super) fn volume_claim_templates(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "maxItems": 16,
        "items": {
            "type": "object",
            "description": "A PersistentVolumeClaim, as in a StatefulSet.",
            "x-kubernetes-preserve-unknown-fields": true,
            "required": ["metadata"],
            "properties": {
                "metadata": {
                    "type": "object",
                    "description": "metadata contains the name, labels and annotations of the claim.",
                    "x-kubernetes-preserve-unknown-fields": true,
                    "required": ["name"],
                    "properties": {
                        "name": {
                            "type": "string",
                            "description": "The name of the claim, which the containers' volumeMounts refer to.",
                            "maxLength": 63
                        },
                        "labels": texts("labels are the labels of the claim."),
                        "annotations": texts("annotations are the annotations of the claim.")
                    }
                },
                "spec": {
                    "type": "object",
                    "description": "The spec of the claim, as in a StatefulSet.",
                    "x-kubernetes-preserve-unknown-fields": true,
                    "properties": {
                        "accessModes": {
                            "type": "array",
                            "description": "accessModes lists the access modes of the volume.",
                            "maxItems": 16,
                            "items": {"type": "string", "description": "An access mode.", "maxLength": 63}
                        },
                        "resources": {
                            "type": "object",
                            "description": "resources contains the minimum resources of the volume.",
                            "x-kubernetes-preserve-unknown-fields": true,
                            "properties": {
                                "requests": {
                                    "type": "object",
                                    "description": "requests contains the requested resources.",
                                    "x-kubernetes-preserve-unknown-fields": true,
                                    "properties": {"storage": {
                                        "description": "The size of the volume.",
                                        "x-kubernetes-int-or-string": true,
                                        "maxLength": 63
                                    }}
                                }
                            }
                        },
                        "storageClassName": {
                            "type": "string", "description": "The name of the StorageClass.", "maxLength": 253
                        },
                        "volumeMode": {
                            "type": "string", "description": "volumeMode is Filesystem or Block.", "maxLength": 63
                        },
                        "volumeName": {
                            "type": "string", "description": "The name of the PersistentVolume.", "maxLength": 253
                        }
                    }
                }
            }
        }
    })
}

/// A number or a string.
#[must_use]
pub fn int_or_string(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"x-kubernetes-int-or-string": true, "maxLength": 63})
}

/// A number of nodes or a percentage.
pub(super) fn max_unavailable(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"x-kubernetes-int-or-string": true, "maxLength": 63, "default": 1})
}

/// Labels of pods.
pub(super) fn pod_labels(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "maxProperties": 8,
        "additionalProperties": {"type": "string", "maxLength": 63}
    })
}

/// The steps of a rollout: each a number of nodes or a percentage.
pub(super) fn steps(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "maxItems": 10,
        "items": {"x-kubernetes-int-or-string": true, "maxLength": 63}
    })
}

/// The names of StatefulSets.
pub(super) fn stateful_set_names(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "maxItems": 50,
        "items": {"type": "string", "minLength": 1, "maxLength": 253},
        "x-kubernetes-list-type": "set"
    })
}

/// A label selector, as in Kubernetes.
pub(super) fn label_selector(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "properties": {
            "matchLabels": {
                "type": "object",
                "description": "matchLabels contains labels that an object must have.",
                "maxProperties": 64,
                "additionalProperties": {"type": "string", "maxLength": 63}
            },
            "matchExpressions": {
                "type": "array",
                "description": "matchExpressions lists requirements on labels. An object must meet all of them.",
                "maxItems": 64,
                "items": {
                    "type": "object",
                    "description": "A requirement on a label.",
                    "required": ["key", "operator"],
                    "properties": {
                        "key": {"type": "string", "description": "The key of the label.", "minLength": 1, "maxLength": 317},
                        "operator": {
                            "type": "string",
                            "description": "operator is In, NotIn, Exists or DoesNotExist.",
                            "enum": ["In", "NotIn", "Exists", "DoesNotExist"]
                        },
                        "values": {
                            "type": "array",
                            "description": "values lists the values for In and NotIn.",
                            "maxItems": 64,
                            "items": {"type": "string", "maxLength": 63}
                        }
                    }
                }
            }
        }
    })
}
