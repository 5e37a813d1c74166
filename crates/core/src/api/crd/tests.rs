use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use kube::core::cel::{
    CompiledSchema, ErrorKind, ValidationError, Validator, apply_defaults, compile_schema,
};

use super::*;
use crate::api::names::{RESERVED_ANNOTATIONS, RESERVED_LABELS, SIDECAR_CONTAINER};

use cases::{By, Case};

/// The API server rejects the annotation of `kubectl apply` above 256 KiB. A CRD of less than half of that stays readable, and
/// can still grow: the largest one does with each field of a fleet.
const SIZE_LIMIT_BYTES: usize = 128 * 1024;

fn schema_of(crd: &CustomResourceDefinition) -> &JSONSchemaProps {
    crd.spec.versions[0].schema.as_ref().unwrap().open_api_v3_schema.as_ref().unwrap()
}

fn schema_json(kind: &str) -> &'static Value {
    &SCHEMAS[kind].0
}

/// The schema of each kind, and its compiled rules.
static SCHEMAS: LazyLock<BTreeMap<String, (Value, CompiledSchema)>> = LazyLock::new(|| {
    let schema = |crd: &CustomResourceDefinition| serde_json::to_value(schema_of(crd)).unwrap();
    let compiled = |schema: Value| (schema.clone(), compile_schema(&schema));
    crds().iter().map(|crd| (crd.spec.names.kind.clone(), compiled(schema(crd)))).collect()
});

/// Visits this schema and every schema below it, with its path.
fn walk(schema: &Value, path: &str, visit: &mut impl FnMut(&str, &Value)) {
    visit(path, schema);
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        walk(property, &format!("{path}.{name}"), visit);
    }
    for below in ["items", "additionalProperties"] {
        if schema[below].is_object() {
            walk(&schema[below], &format!("{path}[]"), visit);
        }
    }
}

fn every_schema(mut visit: impl FnMut(&str, &Value)) {
    for kind in ["NodeDeployment", "StatefulNode", "StatefulSetRollout"] {
        walk(schema_json(kind), kind, &mut visit);
    }
}

/// The errors that the rules report for an object. kube-cel supports neither `type()` nor an optional `oldSelf`: rules
/// that use them are tested by `tests/cluster/bad_input/mod.rs`.
fn errors(object: &Value, old: Option<&Value>) -> Vec<ValidationError> {
    let (schema, compiled) = &SCHEMAS[object["kind"].as_str().unwrap()];
    let old = old.map(|old| apply_defaults(schema, old));
    match Validator::new().validate_compiled(compiled, &apply_defaults(schema, object), old.as_ref()) {
        Ok(()) => Vec::new(),
        Err(errors) => errors.into_iter().filter(|error| !is_beyond_kube_cel(&error.rule)).collect(),
    }
}

fn complaints(object: &Value, old: Option<&Value>) -> Vec<String> {
    errors(object, old).into_iter().map(|error| error.message).collect()
}

fn is_beyond_kube_cel(rule: &str) -> bool {
    rule.contains("type(") || rule.contains("oldSelf.hasValue()")
}

#[test]
fn invalid_objects_are_rejected_with_the_rule_message() {
    let mut beyond = BTreeSet::new();
    every_schema(|_, schema| {
        let rules = schema["x-kubernetes-validations"].as_array().into_iter().flatten();
        let rules = rules.filter(|rule| is_beyond_kube_cel(rule["rule"].as_str().unwrap()));
        beyond.extend(rules.map(|rule| rule["message"].as_str().unwrap().to_owned()));
    });
    for Case { name, old, bad, says, .. } in cases::all().iter().filter(|case| case.by == By::Rule) {
        let complaints = complaints(bad, old.as_ref());
        let refused = complaints.iter().chain(&beyond).any(|message| message.contains(says));
        assert!(refused, "{name}: {complaints:?}");
    }
}

#[test]
fn valid_counterparts_are_accepted() {
    for Case { name, old, good, .. } in cases::all() {
        assert_eq!(complaints(&good, old.as_ref()), Vec::<String>::new(), "{name}");
    }
}

#[test]
fn every_rule_has_a_rejected_case() {
    let said: BTreeSet<&str> = cases::all().iter().map(|case| case.says).collect();
    every_schema(|path, schema| {
        for rule in schema["x-kubernetes-validations"].as_array().into_iter().flatten() {
            let sentence = rule["message"].as_str().unwrap();
            assert!(
                said.iter().any(|says| !says.is_empty() && sentence.contains(says)),
                "{path}: {sentence}"
            );
        }
    });
}

/// All copies of a value with one field removed, at any depth.
fn less_one_field(value: &Value) -> Vec<Value> {
    let mut copies = Vec::new();
    let mut change_below = |step: &dyn Fn(&mut Value) -> &mut Value, below: &Value| {
        copies.extend(less_one_field(below).into_iter().map(|changed| {
            let mut copy = value.clone();
            *step(&mut copy) = changed;
            copy
        }));
    };
    match value {
        Value::Array(items) => {
            items.iter().enumerate().for_each(|(index, item)| change_below(&|copy| &mut copy[index], item));
        }
        Value::Object(fields) => {
            fields.iter().for_each(|(name, field)| change_below(&|copy| &mut copy[name], field));
            for name in fields.keys() {
                let mut fields = fields.clone();
                fields.remove(name);
                copies.push(Value::Object(fields));
            }
        }
        _ => {}
    }
    copies
}

#[test]
fn rules_evaluate_without_error_on_missing_fields() {
    let [of_fleet, of_node, of_rollout] = cases::rich();
    let mut of_forking_fleet = of_fleet.clone();
    of_forking_fleet["spec"]["updateStrategy"] =
        serde_json::json!({"type": "HardFork", "hardFork": {"haltHeight": 7}});
    of_forking_fleet["spec"]["unsafeCustomBuildID"] = "id".into();
    for whole in [of_fleet, of_forking_fleet, of_node, of_rollout] {
        for spec in less_one_field(&whole["spec"]) {
            let mut lesser = whole.clone();
            lesser["spec"] = spec;
            for (object, old) in [(&lesser, &lesser), (&lesser, &whole), (&whole, &lesser)] {
                let errors = errors(object, Some(old));
                let failed = errors.iter().find(|error| error.kind != ErrorKind::ValidationFailure);
                assert!(failed.is_none(), "{failed:?}: {object}");
            }
        }
    }
}

#[test]
fn all_rules_are_attached_to_the_schemas() {
    let of_node = rules::NODE_SPEC.len();
    let lists = [
        (rules::NODE_DEPLOYMENT.len() + rules::NODE_TEMPLATE.len() + of_node, "NodeDeployment"),
        (rules::STATEFUL_NODE.len() + of_node, "StatefulNode"),
        (stateful_set_rules::STATEFUL_SET_ROLLOUT.len(), "StatefulSetRollout"),
    ];
    for (all, kind) in lists {
        let mut attached = 0;
        walk(schema_json(kind), kind, &mut |_, schema| {
            attached += schema["x-kubernetes-validations"].as_array().map_or(0, Vec::len);
        });
        assert_eq!(attached, all, "{kind}");
    }
}

#[test]
fn volume_claims_may_change_when_new_nodes_are_created() {
    let fleet = |type_: &str, build_id: &str, class: &str| {
        let mut claim = cases::claim("data", "1Gi");
        claim["spec"]["storageClassName"] = class.into();
        cases::fleet(&[
            ("spec.updateStrategy.type", type_.into()),
            ("spec.unsafeCustomBuildID", build_id.into()),
            ("spec.template.spec.volumeClaimTemplates", serde_json::json!([claim])),
        ])
    };
    let refused = |old: &Value, new: &Value| {
        complaints(new, Some(old)).iter().any(|message| message.starts_with("volumeClaimTemplates"))
    };
    assert!(refused(&fleet("InPlace", "", "slow"), &fleet("InPlace", "", "fast")));
    assert!(refused(&fleet("BlueGreen", "", "slow"), &fleet("InPlace", "", "fast")));
    assert!(refused(&fleet("BlueGreen", "a", "slow"), &fleet("BlueGreen", "a", "fast")));
    assert!(!refused(&fleet("BlueGreen", "a", "slow"), &fleet("BlueGreen", "b", "fast")));
    assert!(!refused(&fleet("BlueGreen", "", "slow"), &fleet("BlueGreen", "", "fast")));
    assert!(!refused(&fleet("InPlace", "", "slow"), &fleet("HardFork", "", "fast")));
}

#[test]
fn reserved_container_name_matches_the_sidecar() {
    let rules = rules::NODE_SPEC.iter().filter(|rule| rule.check.contains(&format!("'{SIDECAR_CONTAINER}'")));
    assert_eq!(rules.count(), 2);
}

#[test]
fn reserved_keys_in_rules_match_the_constants() {
    let quoted = |keys: &[&str]| format!("{keys:?}").replace('"', "'");
    for keys in [&RESERVED_LABELS[..], &RESERVED_ANNOTATIONS] {
        let rules = rules::NODE_TEMPLATE.iter().chain(rules::STATEFUL_NODE);
        assert_eq!(rules.filter(|rule| rule.check.contains(&quoted(keys))).count(), 2, "{keys:?}");
    }
}

#[test]
fn every_field_has_a_description() {
    every_schema(|path, schema| {
        let by_kubernetes = path.ends_with(".metadata") || path.ends_with(".metadata.name");
        assert!(by_kubernetes || path.ends_with("[]") || schema["description"].is_string(), "{path}");
    });
}

#[test]
fn no_field_is_nullable_or_has_an_unknown_format() {
    let known = ["int32", "int64", "date-time"];
    every_schema(|path, schema| {
        assert_ne!(schema["nullable"], true, "{path}");
        assert!(schema["enum"].as_array().is_none_or(|words| !words.contains(&Value::Null)), "{path}");
        assert!(schema["format"].as_str().is_none_or(|format| known.contains(&format)), "{path}");
    });
}

#[test]
fn every_spec_integer_is_bounded() {
    every_schema(|path, schema| {
        if path.contains(".spec.") && schema["type"] == "integer" {
            assert!(
                schema["format"] == "int32" || schema["maximum"].is_number() || path.ends_with("Height"),
                "{path}"
            );
        }
    });
}

#[test]
fn status_fields_of_other_versions_are_preserved() {
    every_schema(|path, schema| {
        if path.contains(".status") {
            assert_eq!(schema["required"], Value::Null, "{path}");
            assert_eq!(schema["enum"], Value::Null, "{path}");
            assert_eq!(schema["default"], Value::Null, "{path}");
            let open = schema["x-kubernetes-preserve-unknown-fields"] == true;
            assert!(open || schema["type"] != "object", "{path}");
        }
    });
}

#[test]
fn defaults_exclude_lists_and_pod_templates() {
    let mut defaults = Vec::new();
    every_schema(|path, schema| {
        if let Some(default) = schema.get("default") {
            assert!(!path.contains("[]") && !path.contains("podTemplate"), "{path}");
            defaults.push(format!("{path}={default}"));
        }
    });
    let node = |at: &str| {
        ["progressDeadlineSeconds=600", "sidecar.port=7777", "volumeClaimRetention=\"Retain\""]
            .map(|field| format!("{at}.{field}"))
    };
    let own = [
        "deletionPolicy=\"Delete\"",
        "disruptionBudget=\"Managed\"",
        "minReadySeconds=0",
        "paused=false",
        "replicas=1",
        "revisionHistoryLimit=10",
        "updateStrategy.blueGreen.promotion=\"WhenReady\"",
        "updateStrategy.blueGreen.retireDelaySeconds=30",
        "updateStrategy.inPlace.maxUnavailable=1",
        "updateStrategy.inPlace.partition=0",
        "updateStrategy.onStall=\"Hold\"",
        "updateStrategy.progressDeadlineSeconds=600",
    ];
    let mut expected: Vec<String> = own.iter().map(|field| format!("NodeDeployment.spec.{field}")).collect();
    expected.extend(node("NodeDeployment.spec.template.spec"));
    expected.extend(node("StatefulNode.spec"));
    expected.push("StatefulNode.spec.suspend=false".to_owned());
    let of_rollout = [
        "paused=false",
        r#"strategy={"groups":"Together","onStall":"Hold","progressDeadlineSeconds":600}"#,
        "strategy.groups=\"Together\"",
        "strategy.maxUnavailable=1",
        "strategy.onStall=\"Hold\"",
        "strategy.progressDeadlineSeconds=600",
    ];
    expected.extend(of_rollout.map(|field| format!("StatefulSetRollout.spec.{field}")));
    expected.sort();
    defaults.sort();
    assert_eq!(defaults, expected);
}

#[test]
fn defaulted_objects_deserialize_like_omitted_fields() {
    let fleet = cases::fleet(&[
        ("spec.updateStrategy.inPlace", serde_json::json!({})),
        ("spec.updateStrategy.blueGreen", serde_json::json!({})),
        ("spec.template.spec.sidecar", serde_json::json!({"image": "s:1"})),
    ]);
    let mut read: NodeDeployment = serde_json::from_value(fleet.clone()).unwrap();
    let filled: NodeDeployment =
        serde_json::from_value(apply_defaults(schema_json("NodeDeployment"), &fleet)).unwrap();
    // These two are options: the code that reads them knows the default.
    read.spec.update_strategy.in_place.as_mut().unwrap().max_unavailable =
        filled.spec.update_strategy.in_place.as_ref().unwrap().max_unavailable.clone();
    read.spec.update_strategy.blue_green.as_mut().unwrap().retire_delay_seconds = Some(30);
    assert_eq!(filled, read);
    let node = cases::node(&[]);
    let filled: StatefulNode =
        serde_json::from_value(apply_defaults(schema_json("StatefulNode"), &node)).unwrap();
    assert_eq!(filled, serde_json::from_value(node).unwrap());
    let rollout = cases::rollout(&[("spec.strategy", serde_json::json!({}))]);
    let mut read: StatefulSetRollout = serde_json::from_value(rollout.clone()).unwrap();
    let filled: StatefulSetRollout =
        serde_json::from_value(apply_defaults(schema_json("StatefulSetRollout"), &rollout)).unwrap();
    // An option, too.
    read.spec.strategy.max_unavailable = serde_json::from_value(1.into()).unwrap();
    assert_eq!(filled, read);
}

#[test]
fn objects_accepted_by_the_schema_deserialize() {
    for case in cases::all() {
        for object in [Some(case.good), case.old].into_iter().flatten() {
            let read = match object["kind"].as_str() {
                Some("NodeDeployment") => serde_json::from_value::<NodeDeployment>(object).map(drop),
                Some("StatefulSetRollout") => serde_json::from_value::<StatefulSetRollout>(object).map(drop),
                _ => serde_json::from_value::<StatefulNode>(object).map(drop),
            };
            read.unwrap_or_else(|error| panic!("{}: {error}", case.name));
        }
    }
}

fn deploy_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/crds")
}

#[test]
fn deploy_files_match_the_printed_crds() {
    let write = std::env::var_os("UPDATE_CRDS").is_some();
    let mut together = String::new();
    for crd in crds() {
        let file = deploy_folder().join(format!("{}.yaml", crd.metadata.name.as_ref().unwrap()));
        let text = yaml(&crd);
        if write {
            std::fs::write(&file, &text).unwrap();
        }
        assert!(
            std::fs::read_to_string(&file).unwrap_or_default() == text,
            "{} is not what the types say; run: UPDATE_CRDS=1 cargo test -p windlass-core --lib api::crd",
            file.display()
        );
        together.push_str(&text);
    }
    assert_eq!(crds_yaml(), together);
}

#[test]
fn printed_crds_parse_back_unchanged() {
    let read: Vec<CustomResourceDefinition> = serde_saphyr::from_multiple(&crds_yaml()).unwrap();
    assert_eq!(read, crds());
}

#[test]
fn crds_are_small_and_deterministic() {
    assert_eq!(crds_yaml(), crds_yaml());
    for crd in crds() {
        assert!(yaml(&crd).len() < SIZE_LIMIT_BYTES, "{}: {}", crd.spec.names.kind, yaml(&crd).len());
    }
}
