//! A hook's Job: its name and its manifest.

use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use crate::api::names::{
    ANNOTATION_ATTEMPT, ANNOTATION_TASK, GROUP, LABEL_DEPLOYMENT, LABEL_HOOK, LABEL_MANAGED_BY,
    LABEL_WORKERS, MANAGER, VERSION, argument_of,
};
use crate::hooks::{Filled, Values};
use windlass_kube_port::Kind;

/// How long a Job is kept after its end, at least, in seconds: until its end was read, also by an operator that was
/// away.
const MIN_TTL_SECONDS: i64 = 3_600;
/// The maximum length of a Job's name, which is also a label value of the Job's pods.
const MAX_NAME: usize = 63;
/// The environment variable with the attempt.
const ATTEMPT_VARIABLE: &str = "WINDLASS_ATTEMPT";

/// The owner of a Job.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct JobOwner {
    /// A fleet of nodes, a node, or a fleet of workers.
    pub kind: Kind,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
    /// The name of the fleet: the owner's own, or that of the node's fleet. Empty for a node without a fleet.
    pub fleet: String,
}

impl JobOwner {
    /// An owner that is itself a fleet, of nodes or of workers.
    #[must_use]
    pub fn itself(kind: Kind, namespace: &str, name: &str, uid: &str) -> Self {
        let own = str::to_owned;
        Self { kind, namespace: own(namespace), name: own(name), uid: own(uid), fleet: own(name) }
    }

    /// The fleet as an argument of `windlass` commands.
    #[must_use]
    pub fn command_argument(&self) -> String {
        let short = match self.kind {
            Kind::WorkerDeployment => "wwd",
            Kind::StatefulSetRollout => "ssr",
            _ => "nd",
        };
        argument_of(short, &self.fleet, &self.namespace)
    }

    /// The label that names a Job's fleet.
    fn label(&self) -> &'static str {
        if self.kind == Kind::WorkerDeployment { LABEL_WORKERS } else { LABEL_DEPLOYMENT }
    }
}

/// The name of a hook's Job. Each attempt of a task has one name, also after a restart. A name that is too long is cut;
/// the digits at the end are a digest of the task and the attempt, so no other Job has them.
#[must_use]
pub fn job_name(owner: &str, hook: &str, task_id: &str, attempt: u32) -> String {
    let digest = Sha256::digest(format!("{task_id}/{attempt}"));
    let digits = crate::revision::hash::hex(&digest[..4]);
    let mut whose = format!("{owner}-{hook}");
    whose.truncate(MAX_NAME - 1 - digits.len());
    format!("{}-{digits}", whose.trim_end_matches('-'))
}

/// One attempt of a task. Each attempt has its own Job.
#[derive(Clone, Copy, Debug)]
pub(super) struct Attempt<'a> {
    pub hook: &'a str,
    pub task_id: &'a str,
    pub number: u32,
}

/// The manifest of a hook's Job.
pub(super) fn manifest(owner: &JobOwner, attempt: Attempt<'_>, template: &Value, values: &Values) -> Value {
    let mut spec = template.clone();
    if let Some(fields) = spec.as_object_mut() {
        let ttl = fields.entry("ttlSecondsAfterFinished").or_insert(Value::Null);
        // The API server rejects a value that is negative or not a number.
        if ttl.is_null() || ttl.as_i64().is_some_and(|seconds| (0..MIN_TTL_SECONDS).contains(&seconds)) {
            *ttl = json!(MIN_TTL_SECONDS);
        }
    }
    fill_claim_names(&mut spec, values);
    let number = attempt.number.to_string();
    let mut variables: Vec<(&str, &str)> = values.variables().collect();
    variables.push((ATTEMPT_VARIABLE, &number));
    for list in ["initContainers", "containers"] {
        let containers = spec.pointer_mut(&format!("/template/spec/{list}")).and_then(Value::as_array_mut);
        for container in containers.into_iter().flatten() {
            if let Some(container) = container.as_object_mut() {
                add_variables(container, &variables);
            }
        }
    }
    let mut labels = json!({LABEL_MANAGED_BY: MANAGER, LABEL_HOOK: attempt.hook});
    if !owner.fleet.is_empty() {
        labels[owner.label()] = json!(owner.fleet);
    }
    json!({
        "apiVersion": Kind::Job.api_version(),
        "kind": Kind::Job.name(),
        "metadata": {
            "name": job_name(&owner.name, attempt.hook, attempt.task_id, attempt.number),
            "namespace": owner.namespace,
            "labels": labels,
            "annotations": {ANNOTATION_TASK: attempt.task_id, ANNOTATION_ATTEMPT: number},
            "ownerReferences": [{
                "apiVersion": format!("{GROUP}/{VERSION}"),
                "kind": owner.kind.name(),
                "name": owner.name,
                "uid": owner.uid,
                "controller": true,
                "blockOwnerDeletion": true,
            }],
        },
        "spec": spec,
    })
}

/// Substitutes the placeholders in the names of the claims that the Job's pods mount.
fn fill_claim_names(spec: &mut Value, values: &Values) {
    let volumes = spec.pointer_mut("/template/spec/volumes").and_then(Value::as_array_mut);
    for volume in volumes.into_iter().flatten() {
        let Some(name) = volume.pointer_mut("/persistentVolumeClaim/claimName") else { continue };
        let filled = name.as_str().and_then(|text| Filled::parse(text).ok()?.fill_plainly(values).ok());
        if let Some(filled) = filled {
            *name = filled.into();
        }
    }
}

/// Adds environment variables to a container, before its own, which may refer to them: `$(WINDLASS_NODE)`. A variable
/// that the container sets itself is not changed.
fn add_variables(container: &mut Map<String, Value>, variables: &[(&str, &str)]) {
    let own = match container.remove("env") {
        Some(Value::Array(own)) => own,
        None | Some(Value::Null) => Vec::new(),
        // If `env` is not a list, the API server reports that.
        Some(other) => {
            container.insert("env".to_owned(), other);
            return;
        }
    };
    let is_set = |name: &str| own.iter().any(|variable| variable["name"] == name);
    let added = variables.iter().filter(|(name, _)| !is_set(name));
    let added = added.map(|(name, value)| json!({"name": name, "value": value}));
    let all = added.chain(own.iter().cloned()).collect();
    container.insert("env".to_owned(), Value::Array(all));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner() -> JobOwner {
        JobOwner {
            kind: Kind::StatefulNode,
            namespace: "shop".to_owned(),
            name: "db-0".to_owned(),
            uid: "uid-0".to_owned(),
            fleet: "db".to_owned(),
        }
    }

    #[test]
    fn job_name_is_unique_per_attempt() {
        let name = job_name("db-0", "backup", "0123456789-2", 1);
        assert_eq!(name, "db-0-backup-5336b111");
        assert_ne!(name, job_name("db-0", "backup", "0123456789-2", 2));
        assert_ne!(name, job_name("db-0", "backup", "0123456789-21", 1));
        let (owner, hook) = ("a".repeat(52), "b".repeat(63));
        let long = job_name(&owner, &hook, "0123456789-2", 1);
        assert_eq!(long.len(), 63);
        assert!(long.starts_with(&format!("{owner}-b-")), "{long}");
        let cut_at_a_dash = job_name(&"a".repeat(52), "-b", "0123456789-2", 1);
        assert!(!cut_at_a_dash.contains("--"), "{cut_at_a_dash}");
    }

    #[test]
    fn containers_get_hook_variables_and_keep_their_own() {
        let template = json!({
            "backoffLimit": 0,
            "futureField": [null],
            "template": {"spec": {
                "restartPolicy": "Never",
                "initContainers": [{"name": "i"}],
                "containers": [
                    {"name": "a", "env": [{"name": "TO", "value": "s3://$(WINDLASS_NODE)"}]},
                    {"name": "b", "env": [{"name": "WINDLASS_NODE", "value": "mine"}]},
                ],
            }},
        });
        let values =
            Values { node: Some("db-0".to_owned()), from_hash: Some(String::new()), ..Values::default() };
        let attempt = Attempt { hook: "backup", task_id: "0123456789-2", number: 2 };
        let job = manifest(&owner(), attempt, &template, &values);
        let spec = &job["spec"];
        assert_eq!((&spec["backoffLimit"], &spec["futureField"]), (&json!(0), &json!([null])));
        assert_eq!(spec["ttlSecondsAfterFinished"], 3_600);
        let ours = [
            json!({"name": "WINDLASS_NODE", "value": "db-0"}),
            json!({"name": "WINDLASS_FROM_HASH", "value": ""}),
            json!({"name": "WINDLASS_ATTEMPT", "value": "2"}),
        ];
        let pod = &spec["template"]["spec"];
        assert_eq!(pod["initContainers"][0]["env"], json!(ours));
        let own = json!({"name": "TO", "value": "s3://$(WINDLASS_NODE)"});
        assert_eq!(pod["containers"][0]["env"], json!([ours[0], ours[1], ours[2], own]));
        let mine = json!({"name": "WINDLASS_NODE", "value": "mine"});
        assert_eq!(pod["containers"][1]["env"], json!([ours[1], ours[2], mine]));
        let meta = &job["metadata"];
        assert_eq!(meta["ownerReferences"][0]["uid"], "uid-0");
        assert_eq!(meta["labels"][LABEL_DEPLOYMENT], "db");
        assert_eq!(meta["annotations"][ANNOTATION_TASK], "0123456789-2");
        // The Job's pods must not get the fleet's labels.
        assert_eq!(spec["template"]["metadata"], Value::Null);
    }

    #[test]
    fn names_of_mounted_claims_are_filled_in() {
        let volume = |claim: &str| json!({"name": "v", "persistentVolumeClaim": {"claimName": claim}});
        let template = |claim: &str| json!({"template": {"spec": {"volumes": [{"name": "e", "emptyDir": {}}, volume(claim)]}}});
        let values = Values { pod: Some("db-0-0".to_owned()), ..Values::default() };
        let attempt = Attempt { hook: "seed", task_id: "0123456789-0", number: 1 };
        for (claim, filled) in
            [("data-{{pod}}", "data-db-0-0"), ("shared", "shared"), ("data-{{node}}", "data-{{node}}")]
        {
            let job = manifest(&owner(), attempt, &template(claim), &values);
            assert_eq!(job["spec"]["template"]["spec"]["volumes"][1], volume(filled));
        }
    }

    #[test]
    fn job_is_kept_for_at_least_an_hour() {
        for (asked, kept) in [
            (json!(null), json!(3_600)),
            (json!(0), json!(3_600)),
            (json!(3_599), json!(3_600)),
            (json!(7_200), json!(7_200)),
            (json!(-1), json!(-1)),
            (json!("5"), json!("5")),
        ] {
            let template = json!({"ttlSecondsAfterFinished": asked, "template": {}});
            let attempt = Attempt { hook: "backup", task_id: "0123456789-2", number: 1 };
            let job = manifest(&owner(), attempt, &template, &Values::default());
            assert_eq!(job["spec"], json!({"ttlSecondsAfterFinished": kept, "template": {}}), "{asked}");
        }
    }
}
