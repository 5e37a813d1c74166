//! A kind for the suite, with one of each schema feature.

use serde_json::{Value, json};

use crate::conformance::suite::Ctx;

pub fn definition() -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.conformance.windlass.dev"},
        "spec": {
            "group": "conformance.windlass.dev", "scope": "Namespaced",
            "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList", "shortNames": ["wd"]},
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "subresources": {
                    "status": {},
                    "scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas", "labelSelectorPath": ".status.selector"},
                },
                "schema": {"openAPIV3Schema": {
                    "type": "object", "required": ["spec"],
                    "x-kubernetes-validations": [
                        {"rule": "self.metadata.name.size() <= 20", "message": "the name may have at most 20 characters"},
                    ],
                    "properties": {
                        "spec": {
                            "type": "object", "required": ["kind"],
                            "x-kubernetes-validations": [
                                {"rule": "has(self.fixed) == has(oldSelf.fixed)", "message": "fixed may not come or go"},
                                {"rule": "self.replicas <= self.limit", "message": "replicas may not exceed limit"},
                            ],
                            "properties": {
                                "kind": {"type": "string", "enum": ["Square", "Round"]},
                                "replicas": {"type": "integer", "format": "int32", "minimum": 0, "maximum": 100, "default": 1},
                                "limit": {"type": "integer", "default": 50},
                                "name": {"type": "string", "maxLength": 10, "pattern": "^[a-z]*$"},
                                "fixed": {"type": "string", "maxLength": 20, "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "fixed is fixed"}]},
                                "share": {"x-kubernetes-int-or-string": true, "maxLength": 5, "x-kubernetes-validations": [
                                    {"rule": "type(self) == int ? self > 0 : self.matches('^([1-9][0-9]?|100)%$')", "message": "share must be above zero"}]},
                                "raw": {"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {"known": {"type": "string"}}},
                                "tags": {"type": "array", "maxItems": 3, "items": {"type": "string", "maxLength": 10}, "x-kubernetes-list-type": "set"},
                                "parts": {"type": "array", "maxItems": 5, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
                                    "items": {"type": "object", "required": ["name"], "properties": {
                                        "name": {"type": "string", "maxLength": 10}, "size": {"type": "integer", "default": 7}}}},
                                "maybe": {"type": "string", "nullable": true},
                                "deep": {"type": "object", "default": {}, "properties": {"inner": {"type": "string", "default": "x"}}},
                            },
                        },
                        "status": {"type": "object", "properties": {
                            "replicas": {"type": "integer"}, "selector": {"type": "string"}, "message": {"type": "string"},
                            "task": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
                            "conditions": {"type": "array", "items": {"type": "object", "properties": {"type": {"type": "string"}, "status": {"type": "string"}}}},
                        }},
                    },
                }},
            }],
        },
    })
}

/// A widget with this spec.
pub fn widget(name: &str, spec: Value) -> Value {
    json!({"apiVersion": "conformance.windlass.dev/v1", "kind": "Widget", "metadata": {"name": name}, "spec": spec})
}

/// A plain widget that exists.
pub async fn made(w: &Ctx, name: &str) -> Value {
    w.made(&w.at("conf:widgets"), widget(name, json!({"kind": "Square"}))).await
}
