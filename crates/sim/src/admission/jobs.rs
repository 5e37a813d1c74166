//! Jobs.

use serde_json::{Value, json};

use super::super::refusal::Cause;
use super::containers::{default_spec, fill, validate_spec};
use super::metadata;

pub(super) fn default(job: &mut Value) {
    if !job["spec"].is_object() {
        job["spec"] = json!({});
    }
    let spec = &mut job["spec"];
    if spec["parallelism"].is_null() && spec["completions"].is_null() {
        fill(spec, "completions", 1);
    }
    fill(spec, "parallelism", 1);
    fill(spec, "backoffLimit", 6);
    fill(spec, "completionMode", "NonIndexed");
    fill(spec, "suspend", false);
    fill(spec, "manualSelector", false);
    let replaced = if spec["podFailurePolicy"].is_object() { "Failed" } else { "TerminatingOrFailed" };
    fill(spec, "podReplacementPolicy", replaced);
    if spec["template"]["spec"].is_object() {
        default_spec(&mut spec["template"]["spec"]);
    }
    let labels = spec["template"]["metadata"]["labels"].clone();
    if labels.is_object() && job["metadata"]["labels"].is_null() {
        job["metadata"]["labels"] = labels;
    }
}

/// The server chooses the selector labels of a Job.
pub(super) fn prepare_create(job: &mut Value) {
    let (uid, name) = (job["metadata"]["uid"].clone(), job["metadata"]["name"].clone());
    if job["spec"]["manualSelector"] == true {
        return;
    }
    let labels = &mut job["spec"]["template"]["metadata"]["labels"];
    for (key, value) in [
        ("batch.kubernetes.io/controller-uid", &uid),
        ("batch.kubernetes.io/job-name", &name),
        ("controller-uid", &uid),
        ("job-name", &name),
    ] {
        labels[key] = value.clone();
    }
    job["spec"]["selector"] = json!({"matchLabels": {"batch.kubernetes.io/controller-uid": uid}});
}

pub(super) fn validate(job: &Value, old: Option<&Value>) -> Vec<Cause> {
    let spec = &job["spec"];
    let mut causes = Vec::new();
    if let Some(old) = old {
        // A Job's template is immutable.
        causes.extend(Cause::unchanged("spec.template", &old["spec"]["template"], &spec["template"]));
        return causes;
    }
    for field in
        ["parallelism", "completions", "activeDeadlineSeconds", "backoffLimit", "ttlSecondsAfterFinished"]
    {
        if spec[field].as_i64().is_some_and(|n| n < 0) {
            let why = "must be greater than or equal to 0";
            causes.push(Cause::invalid(format!("spec.{field}"), &spec[field], why));
        }
    }
    causes.extend(validate_spec(&spec["template"]["spec"], "spec.template.spec", &[]));
    causes.extend(metadata::labels(&spec["template"]["metadata"]["labels"], "spec.template.labels"));
    let restart = spec["template"]["spec"]["restartPolicy"].as_str().unwrap_or_default();
    if matches!(restart, "" | "Always") {
        let why = "valid values: \"OnFailure\", \"Never\"";
        causes.push(Cause::required("spec.template.spec.restartPolicy", why));
    }
    causes
}
