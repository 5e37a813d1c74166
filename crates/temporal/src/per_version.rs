//! The objects that each version has: the manifests of `spec.perVersion`, checked and rendered. Pure.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};
use windlass_core::api::names::{LABEL_MANAGED_BY, MANAGER};
use windlass_core::observed::ObservedResource;
use windlass_core::revision::hash::hex;

use crate::api::names::{ANNOTATION_RENDERED, LABEL_BUILD_ID, LABEL_WORKERS};
use crate::api::{VersionResource, WorkerDeploymentSpec};
use crate::planner::Facts;
use crate::port::BuildId;
use crate::render::covers;

/// A group and a kind, as `--worker-resource` names them.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct GroupKind {
    /// The group; empty for the core group, whose kinds no operator manages.
    pub group: String,
    /// The kind.
    pub kind: String,
}

impl GroupKind {
    /// The kinds that an operator manages unless it is started with others.
    #[must_use]
    pub fn defaults() -> Vec<Self> {
        [("autoscaling", "HorizontalPodAutoscaler"), ("policy", "PodDisruptionBudget")]
            .map(|(group, kind)| Self { group: group.to_owned(), kind: kind.to_owned() })
            .into()
    }
}

impl std::str::FromStr for GroupKind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (kind, group) = text.split_once('.').unwrap_or((text, ""));
        let is_kind = kind.starts_with(|c: char| c.is_ascii_uppercase())
            && kind.chars().all(|c| c.is_ascii_alphanumeric());
        if !is_kind || group.is_empty() {
            return Err(format!(
                "{text:?} is not a kind and its group, such as HorizontalPodAutoscaler.autoscaling"
            ));
        }
        Ok(Self { group: group.to_owned(), kind: kind.to_owned() })
    }
}

impl std::fmt::Display for GroupKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.group.as_str() {
            "" => f.write_str(&self.kind),
            group => write!(f, "{}.{group}", self.kind),
        }
    }
}

/// The type of an object, as its manifest has it.
#[derive(Clone, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub struct Type {
    /// The group and version.
    pub api_version: String,
    /// The kind.
    pub kind: String,
}

impl Type {
    /// The type of a manifest.
    #[must_use]
    pub fn of(manifest: &Value) -> Self {
        let text = |field: &str| manifest[field].as_str().unwrap_or_default().to_owned();
        Self { api_version: text("apiVersion"), kind: text("kind") }
    }

    /// Its group and kind.
    #[must_use]
    pub fn group_kind(&self) -> GroupKind {
        let group = self.api_version.split_once('/').map_or("", |(group, _)| group);
        GroupKind { group: group.to_owned(), kind: self.kind.clone() }
    }

    /// The type of an object in a status.
    #[must_use]
    pub fn recorded(resource: &VersionResource) -> Self {
        Self { api_version: resource.api_version.clone(), kind: resource.kind.clone() }
    }

    /// The types of an object's manifests and of the objects in its status.
    #[must_use]
    pub fn in_use(facts: &Facts) -> BTreeSet<Self> {
        let recorded = facts.status.versions.iter().flat_map(|version| &version.resources);
        facts.spec.per_version.iter().map(Self::of).chain(recorded.map(Self::recorded)).collect()
    }
}

/// What the manifests of a version refer to.
#[derive(Clone, Copy, Debug)]
pub struct VersionNames<'a> {
    /// The WorkerDeployment.
    pub facts: &'a Facts,
    /// The version.
    pub build: &'a BuildId,
    /// The name of its Deployment.
    pub deployment: &'a str,
}

/// A rendered object.
#[derive(Clone, Debug, PartialEq)]
pub struct Resource {
    /// Its type.
    pub type_: Type,
    /// Its name.
    pub name: String,
    /// Its complete manifest.
    pub manifest: Value,
}

impl Resource {
    /// The object in the status of its version; `problem`: why it is not as rendered.
    #[must_use]
    pub fn record(&self, problem: Option<String>) -> VersionResource {
        VersionResource {
            api_version: self.type_.api_version.clone(),
            kind: self.type_.kind.clone(),
            name: self.name.clone(),
            applied: problem.is_none(),
            message: problem.unwrap_or_default(),
        }
    }

    /// True if a live object has everything that the manifest sets. `compared`: true if it has not changed since Windlass
    /// wrote it.
    #[must_use]
    pub fn matches(&self, live: &ObservedResource, compared: bool) -> bool {
        let is_current = live.meta.annotation(ANNOTATION_RENDERED) == self.hash();
        let content = self.manifest.as_object().into_iter().flatten();
        let mut content = content.filter(|(field, _)| !matches!(field.as_str(), "apiVersion" | "kind"));
        is_current && (compared || content.all(|(field, value)| covers(&live.object[field], value)))
    }

    /// The hash of the manifest, which the object has in an annotation.
    #[must_use]
    pub fn hash(&self) -> Option<&str> {
        self.manifest["metadata"]["annotations"][ANNOTATION_RENDERED].as_str()
    }
}

/// A mark that differs if the content of an object differs.
#[must_use]
pub fn mark(object: &Value) -> i64 {
    let digest = Sha256::digest(object.to_string());
    digest.iter().take(8).fold(0, |number, byte| number << 8 | i64::from(*byte))
}

/// Why the manifests of a spec cannot be applied, as a sentence.
#[must_use]
pub fn problem(facts: &Facts) -> Option<String> {
    rendered(VersionNames { facts, build: &facts.target.build, deployment: &facts.name }).err()
}

/// Renders the manifests of a version.
pub fn rendered(place: VersionNames<'_>) -> Result<Vec<Resource>, String> {
    let mut known = BTreeSet::new();
    let mut all = Vec::new();
    for (index, manifest) in place.facts.spec.per_version.iter().enumerate() {
        let resource = render(&format!("spec.perVersion[{index}]"), manifest, place)?;
        if !known.insert((resource.type_.group_kind(), resource.name.clone())) {
            return Err(format!(
                "spec.perVersion[{index}]: another {} has the same name; set metadata.name to make them differ",
                resource.type_.kind
            ));
        }
        all.push(resource);
    }
    Ok(all)
}

fn render(at: &str, manifest: &Value, place: VersionNames<'_>) -> Result<Resource, String> {
    let (type_, facts) = (Type::of(manifest), place.facts);
    let mut filled = manifest.clone();
    if let Some(spec) = filled.get_mut("spec") {
        fill_targets(spec, &format!("{at}.spec"), &facts.spec)?;
    }
    let names_deployment =
        manifest["metadata"]["name"].as_str().is_some_and(|name| name.contains("{{deployment}}"));
    fill(&mut filled, at, place)?;
    let given = filled.as_object_mut().and_then(|fields| {
        fields.remove("status");
        fields.remove("metadata")
    });
    let given = given.unwrap_or_else(|| json!({}));
    check_metadata(&given, at, &facts.namespace)?;
    let own = json!({LABEL_WORKERS: facts.name, LABEL_BUILD_ID: place.build.as_str()});
    if let Some(selector) = filled.pointer_mut("/spec/selector/matchLabels").filter(|s| **s == json!({})) {
        *selector = own.clone();
    }
    let name = match given["name"].as_str() {
        None | Some("") => place.deployment.to_owned(),
        Some(name) if names_deployment => name.to_owned(),
        Some(name) => format!("{}-{name}", place.deployment),
    };
    let with = |field: &str, more: Value| {
        let mut fields = given[field].as_object().cloned().unwrap_or_default();
        fields.extend(more.as_object().cloned().unwrap_or_default());
        Value::Object(fields)
    };
    let mut labels = own;
    labels[LABEL_MANAGED_BY] = json!(MANAGER);
    filled["metadata"] = json!({
        "name": name, "namespace": facts.namespace, "labels": with("labels", labels),
        "annotations": with("annotations", Value::Null),
    });
    // While the WorkerDeployment is deleted, its versions still need them: with an owner, a foreground deletion would take
    // them first.
    if facts.deleted_at.is_none() {
        filled["metadata"]["ownerReferences"] = json!([{
            "apiVersion": "windlass.dev/v1alpha1", "kind": "WorkerDeployment", "name": facts.name, "uid": facts.uid,
            "controller": true,
        }]);
    }
    let digest = hex(&Sha256::digest(filled.to_string())[..8]);
    filled["metadata"]["annotations"][ANNOTATION_RENDERED] = json!(digest);
    Ok(Resource { type_, name, manifest: filled })
}

/// Substitutes the placeholders in all values.
fn fill(value: &mut Value, at: &str, place: VersionNames<'_>) -> Result<(), String> {
    match value {
        Value::String(text) => *text = substituted(text, at, place)?,
        Value::Array(items) => {
            for (index, item) in items.iter_mut().enumerate() {
                fill(item, &format!("{at}[{index}]"), place)?;
            }
        }
        Value::Object(fields) => {
            for (field, value) in fields {
                fill(value, &format!("{at}.{field}"), place)?;
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
    Ok(())
}

fn substituted(text: &str, at: &str, place: VersionNames<'_>) -> Result<String, String> {
    let mut filled = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("{{") {
        filled.push_str(before);
        // Only a word is a placeholder: other templates, such as those of alerts, also use braces.
        let is_word = |text: &str| {
            let word = text.trim().trim_start_matches('.');
            !word.is_empty() && word.chars().all(|c| c.is_ascii_alphanumeric())
        };
        let Some((word, after)) = after.split_once("}}").filter(|(word, _)| is_word(word)) else {
            filled.push_str("{{");
            rest = after;
            continue;
        };
        filled.push_str(match word {
            "deployment" => place.deployment,
            "buildID" => place.build.as_str(),
            "deploymentName" => place.facts.deployment.as_str(),
            "temporalNamespace" => &place.facts.connection.namespace,
            _ => {
                return Err(format!(
                    "{at}: there is no placeholder {{{{{word}}}}}; use {{{{deployment}}}}, {{{{buildID}}}}, {{{{deploymentName}}}} or \
                     {{{{temporalNamespace}}}}"
                ));
            }
        });
        rest = after;
    }
    filled.push_str(rest);
    Ok(filled)
}

fn check_metadata(metadata: &Value, at: &str, namespace: &str) -> Result<(), String> {
    let none = Map::new();
    let fields = metadata.as_object().unwrap_or(&none);
    let allowed =
        |field: &&String| !matches!(field.as_str(), "name" | "namespace" | "labels" | "annotations");
    if let Some(field) = fields.keys().find(allowed) {
        return Err(format!(
            "{at}.metadata.{field}: only name, labels and annotations can be set; remove it"
        ));
    }
    match metadata["namespace"].as_str() {
        Some(other) if other != namespace => Err(format!(
            "{at}.metadata.namespace: {other} is not the namespace of the WorkerDeployment; remove it"
        )),
        _ => Ok(()),
    }
}

/// The replicas that the spec sets for a pool, the empty one for `spec.template`; `None`: an autoscaler sets them.
#[must_use]
pub fn replicas(spec: &WorkerDeploymentSpec, pool: &str) -> Option<i32> {
    let declared = match pool {
        "" => spec.replicas,
        pool => spec.pools.iter().find(|of| of.name == pool).and_then(|of| of.replicas),
    };
    declared.filter(|_| !spec.per_version.iter().any(|manifest| scales(manifest, pool)))
}

/// True if a part of a manifest refers to the Deployment of a pool, to scale it.
fn scales(part: &Value, pool: &str) -> bool {
    let is_of = |target: &Value| match target["name"].as_str() {
        Some(name) => {
            name.strip_prefix("{{deployment}}").is_some_and(|of| of.trim_start_matches('-') == pool)
        }
        None => pool.is_empty(),
    };
    match part {
        Value::Array(items) => items.iter().any(|item| scales(item, pool)),
        Value::Object(fields) => fields
            .iter()
            .any(|(field, part)| if field == "scaleTargetRef" { is_of(part) } else { scales(part, pool) }),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

/// Fills in each empty `scaleTargetRef`. Another one has to refer to a Deployment of the version.
fn fill_targets(value: &mut Value, at: &str, spec: &WorkerDeploymentSpec) -> Result<(), String> {
    match value {
        Value::Array(items) => {
            for (index, item) in items.iter_mut().enumerate() {
                fill_targets(item, &format!("{at}[{index}]"), spec)?;
            }
        }
        Value::Object(fields) => {
            for (field, value) in fields {
                let at = format!("{at}.{field}");
                if field == "scaleTargetRef" {
                    fill_target(value, &at, spec)?;
                } else {
                    fill_targets(value, &at, spec)?;
                }
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
    Ok(())
}

fn fill_target(target: &mut Value, at: &str, spec: &WorkerDeploymentSpec) -> Result<(), String> {
    if *target == json!({}) {
        *target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "{{deployment}}"});
    }
    let pool = target["name"].as_str().and_then(|name| name.strip_prefix("{{deployment}}"));
    let is_deployment = target["kind"].as_str().is_none_or(|kind| kind == "Deployment");
    let pools = spec.pools.iter().enumerate();
    let mut of_pools = std::iter::once((String::new(), "spec.replicas".to_owned(), spec.replicas)).chain(
        pools.map(|(index, pool)| {
            (format!("-{}", pool.name), format!("spec.pools[{index}].replicas"), pool.replicas)
        }),
    );
    let found = pool.filter(|_| is_deployment).and_then(|pool| of_pools.find(|(suffix, ..)| suffix == pool));
    let Some((_, field, replicas)) = found else {
        return Err(format!(
            "{at}: it has to refer to a Deployment of the version; set it to {{}}, or its name to {{{{deployment}}}}-POOL"
        ));
    };
    match replicas {
        Some(_) => Err(format!("{field}: the autoscaler in {at} sets it; remove {field}")),
        None => Ok(()),
    }
}
