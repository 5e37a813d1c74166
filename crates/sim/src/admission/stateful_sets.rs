//! StatefulSets.

use serde_json::{Value, json};

use super::super::refusal::Cause;
use super::super::selector::LabelSelector;
use super::containers::{default_spec, fill, validate_spec};
use super::{claims, metadata};

pub(super) fn default(set: &mut Value) {
    let spec = &mut set["spec"];
    if !spec.is_object() {
        *spec = json!({});
    }
    fill(spec, "podManagementPolicy", "OrderedReady");
    if spec["updateStrategy"]["type"].is_null() {
        spec["updateStrategy"]["type"] = "RollingUpdate".into();
        fill(&mut spec["updateStrategy"], "rollingUpdate", json!({}));
    }
    if spec["updateStrategy"]["type"] == "RollingUpdate"
        && let Some(rolling) = spec["updateStrategy"].get_mut("rollingUpdate")
    {
        fill(rolling, "partition", 0);
    }
    // The server drops what a feature gate that is off by default would permit.
    if let Some(Value::Object(rolling)) = spec.pointer_mut("/updateStrategy/rollingUpdate") {
        rolling.remove("maxUnavailable");
    }
    fill(spec, "persistentVolumeClaimRetentionPolicy", json!({}));
    fill(&mut spec["persistentVolumeClaimRetentionPolicy"], "whenDeleted", "Retain");
    fill(&mut spec["persistentVolumeClaimRetentionPolicy"], "whenScaled", "Retain");
    fill(spec, "replicas", 1);
    fill(spec, "revisionHistoryLimit", 10);
    if spec["template"]["spec"].is_object() {
        default_spec(&mut spec["template"]["spec"]);
    }
    for claim in spec.get_mut("volumeClaimTemplates").and_then(Value::as_array_mut).into_iter().flatten() {
        fill(claim, "apiVersion", "v1");
        fill(claim, "kind", "PersistentVolumeClaim");
        claims::default(claim);
        claim["status"]["phase"] = "Pending".into();
    }
}

/// The mutable fields.
const MUTABLE: [&str; 7] = [
    "replicas",
    "ordinals",
    "template",
    "updateStrategy",
    "revisionHistoryLimit",
    "persistentVolumeClaimRetentionPolicy",
    "minReadySeconds",
];

pub(super) fn validate(set: &Value, old: Option<&Value>) -> Vec<Cause> {
    let mut causes = validate_spec_of(&set["spec"], old.is_some());
    let Some(old) = old else { return causes };
    let rest = |set: &Value| {
        let mut spec = set["spec"].as_object().cloned().unwrap_or_default();
        for field in MUTABLE {
            spec.remove(field);
        }
        spec
    };
    if rest(set) != rest(old) {
        causes.push(Cause::forbidden(
            "spec",
            "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden",
        ));
    }
    causes
}

fn validate_spec_of(spec: &Value, is_update: bool) -> Vec<Cause> {
    let mut causes = Vec::new();
    let policy = spec["podManagementPolicy"].as_str().unwrap_or_default();
    if !matches!(policy, "OrderedReady" | "Parallel") {
        let why = "must be 'OrderedReady' or 'Parallel'";
        causes.push(Cause::invalid("spec.podManagementPolicy", &spec["podManagementPolicy"], why));
    }
    causes.extend(validate_strategy(&spec["updateStrategy"]));
    let mut claim_names = Vec::new();
    for (index, claim) in spec["volumeClaimTemplates"].as_array().into_iter().flatten().enumerate() {
        claim_names.push(claim["metadata"]["name"].as_str().unwrap_or_default());
        if !is_update {
            let at = format!("spec.volumeClaimTemplates[{index}].spec");
            causes.extend(claims::validate_spec(&claim["spec"], &at));
        }
    }
    for field in ["replicas", "minReadySeconds"] {
        if spec[field].as_i64().is_some_and(|n| n < 0) {
            let why = "must be greater than or equal to 0";
            causes.push(Cause::invalid(format!("spec.{field}"), &spec[field], why));
        }
    }
    if !is_update
        && let Some(name) = spec["serviceName"].as_str().filter(|name| !name.is_empty())
        && let Some(why) = metadata::dns_label_error(name)
    {
        causes.push(Cause::invalid("spec.serviceName", &spec["serviceName"], &why));
    }
    let selector = LabelSelector::of(&spec["selector"]);
    match &selector {
        None => causes.push(Cause::required("spec.selector", "")),
        Some(selector) if selector.is_empty() => causes.push(Cause::invalid(
            "spec.selector",
            &spec["selector"],
            "empty selector is invalid for statefulset",
        )),
        Some(selector) => {
            let labels = &spec["template"]["metadata"]["labels"];
            if !selector.matches_labels(labels) {
                let shown = if labels.is_null() { json!({}) } else { labels.clone() };
                causes.push(Cause::invalid(
                    "spec.template.metadata.labels",
                    &shown,
                    "`selector` does not match template `labels`",
                ));
            }
        }
    }
    causes.extend(validate_spec(&spec["template"]["spec"], "spec.template.spec", &claim_names));
    causes.extend(metadata::labels(&spec["template"]["metadata"]["labels"], "spec.template.labels"));
    let restart = &spec["template"]["spec"]["restartPolicy"];
    if restart != "Always" {
        let allowed = ["Always".to_owned()];
        causes.push(Cause::unsupported("spec.template.spec.restartPolicy", restart, &allowed));
    }
    causes
}

fn validate_strategy(strategy: &Value) -> Option<Cause> {
    let field = "spec.updateStrategy";
    let partition = &strategy["rollingUpdate"]["partition"];
    // The server shows the structures as its internal types, whose fields have these names and this order.
    let rolling = strategy["rollingUpdate"]
        .is_object()
        .then(|| format!("{{\"Partition\":{},\"MaxUnavailable\":null}}", partition.as_i64().unwrap_or(0)));
    match (strategy["type"].as_str().unwrap_or_default(), rolling) {
        ("OnDelete", Some(rolling)) => Some(Cause::invalid_as(
            format!("{field}.rollingUpdate"),
            &rolling,
            "only allowed for updateStrategy 'RollingUpdate'",
        )),
        ("RollingUpdate", _) if partition.as_i64().is_some_and(|n| n < 0) => Some(Cause::invalid(
            format!("{field}.rollingUpdate.partition"),
            partition,
            "must be greater than or equal to 0",
        )),
        ("OnDelete" | "RollingUpdate", _) => None,
        (other, rolling) => {
            let rolling = rolling.unwrap_or_else(|| "null".into());
            let shown = format!("{{\"Type\":{other:?},\"RollingUpdate\":{rolling}}}");
            Some(Cause::invalid_as(field, &shown, "must be 'RollingUpdate' or 'OnDelete'"))
        }
    }
}
