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
            "properties": {"name": {"type": "string", "description": "Its name."}}
        }
    })
}

/// A PodTemplateSpec. Its `metadata` is not declared like that of an embedded resource, which would drop everything but
/// names and labels.
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
                    "name": {"type": "string", "description": "The container's name.", "minLength": 1, "maxLength": 63},
                    "image": {"type": "string", "description": "The container's image."},
                    "ports": {
                        "type": "array",
                        "description": "The container's ports.",
                        "maxItems": 256,
                        "items": {
                            "type": "object",
                            "description": "A port, as in a pod.",
                            "x-kubernetes-preserve-unknown-fields": true,
                            "properties": {
                                "containerPort": {
                                    "type": "integer", "description": "The port's number.", "minimum": 1, "maximum": 65535
                                },
                                "protocol": {"type": "string", "description": "UDP, TCP or SCTP.", "maxLength": 63}
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
                "description": "Labels and annotations of the pod. A change of them restarts it.",
                "x-kubernetes-preserve-unknown-fields": true,
                "properties": {
                    "labels": texts("The pod's labels."),
                    "annotations": texts("The pod's annotations.")
                }
            },
            "spec": {
                "type": "object",
                "description": "A pod's spec, with every field that the cluster's Kubernetes knows.",
                "x-kubernetes-preserve-unknown-fields": true,
                "required": ["containers"],
                "properties": {
                    "containers": containers("The pod's containers; at least one."),
                    "initContainers": containers("The pod's init containers.")
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
                    "description": "The claim's name, labels and annotations.",
                    "x-kubernetes-preserve-unknown-fields": true,
                    "required": ["name"],
                    "properties": {
                        "name": {
                            "type": "string",
                            "description": "The name that the containers' volumeMounts use.",
                            "maxLength": 63
                        },
                        "labels": texts("The claim's labels."),
                        "annotations": texts("The claim's annotations.")
                    }
                },
                "spec": {
                    "type": "object",
                    "description": "The claim's spec, as in a StatefulSet.",
                    "x-kubernetes-preserve-unknown-fields": true,
                    "properties": {
                        "accessModes": {
                            "type": "array",
                            "description": "How the volume is mounted.",
                            "maxItems": 16,
                            "items": {"type": "string", "description": "A mode.", "maxLength": 63}
                        },
                        "resources": {
                            "type": "object",
                            "description": "What the volume has at least.",
                            "x-kubernetes-preserve-unknown-fields": true,
                            "properties": {
                                "requests": {
                                    "type": "object",
                                    "description": "What is requested.",
                                    "x-kubernetes-preserve-unknown-fields": true,
                                    "properties": {"storage": {
                                        "description": "The volume's size.",
                                        "x-kubernetes-int-or-string": true,
                                        "maxLength": 63
                                    }}
                                }
                            }
                        },
                        "storageClassName": {
                            "type": "string", "description": "The class of the volume.", "maxLength": 253
                        },
                        "volumeMode": {
                            "type": "string", "description": "Filesystem or Block.", "maxLength": 63
                        },
                        "volumeName": {
                            "type": "string", "description": "The volume's name.", "maxLength": 253
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
                "description": "Labels that an object must have.",
                "maxProperties": 64,
                "additionalProperties": {"type": "string", "maxLength": 63}
            },
            "matchExpressions": {
                "type": "array",
                "description": "Requirements on labels, all of which must hold.",
                "maxItems": 64,
                "items": {
                    "type": "object",
                    "description": "A requirement on a label.",
                    "required": ["key", "operator"],
                    "properties": {
                        "key": {"type": "string", "description": "The label's key.", "minLength": 1, "maxLength": 317},
                        "operator": {
                            "type": "string",
                            "description": "How the label's value is compared.",
                            "enum": ["In", "NotIn", "Exists", "DoesNotExist"]
                        },
                        "values": {
                            "type": "array",
                            "description": "The values of In and NotIn.",
                            "maxItems": 64,
                            "items": {"type": "string", "maxLength": 63}
                        }
                    }
                }
            }
        }
    })
}
