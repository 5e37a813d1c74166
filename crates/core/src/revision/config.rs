//! Restarts on a change of ConfigMaps and Secrets. A pod template names them in an annotation; a digest of their data is
//! another annotation of the template that is rolled out, so that a change of the data is a change of the template.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use super::data::RevisionData;
use super::hex::hex;
use crate::api::NodeDeploymentSpec;
use crate::api::names::{ANNOTATION_CONFIG_DIGEST, ANNOTATION_RESTART_ON};

/// The kind of an object whose data pods read when they start.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum ConfigKind {
    /// A ConfigMap.
    ConfigMap,
    /// A Secret.
    Secret,
}

impl ConfigKind {
    fn word(self) -> &'static str {
        match self {
            Self::ConfigMap => "configmap",
            Self::Secret => "secret",
        }
    }
}

/// An object whose data pods read when they start.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct ConfigReference {
    /// Its kind.
    pub kind: ConfigKind,
    /// Its name.
    pub name: String,
}

impl fmt::Display for ConfigReference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.kind.word(), self.name)
    }
}

/// The maximum number of objects that a pod template may name.
pub const MAX_REFERENCES: usize = 16;

fn annotation<'a>(pod_template: &'a Value, key: &str) -> Option<&'a str> {
    pod_template["metadata"]["annotations"][key].as_str()
}

/// The objects that a pod template names in `windlass.dev/restart-on`. An error says what to correct.
pub fn references(pod_template: &Value) -> Result<Vec<ConfigReference>, String> {
    let text = annotation(pod_template, ANNOTATION_RESTART_ON).unwrap_or_default();
    let refused = |why: String| format!("template: annotation {ANNOTATION_RESTART_ON}: {why}");
    let mut found = Vec::new();
    for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        let (kind, name) = part.split_once('/').unwrap_or(("", part));
        let kind = match kind.to_ascii_lowercase().as_str() {
            "configmap" | "configmaps" | "cm" => ConfigKind::ConfigMap,
            "secret" | "secrets" => ConfigKind::Secret,
            _ => return Err(refused(format!("{part:?} has to be configmap/NAME or secret/NAME"))),
        };
        let is_name = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-.".contains(c);
        if name.is_empty() || name.len() > 253 || !name.chars().all(is_name) {
            return Err(refused(format!("{part:?} has no name of an object after the slash")));
        }
        found.push(ConfigReference { kind, name: name.to_owned() });
    }
    found.sort();
    found.dedup();
    if found.len() > MAX_REFERENCES {
        return Err(refused(format!(
            "it names {} objects: at most {MAX_REFERENCES} are possible",
            found.len()
        )));
    }
    Ok(found)
}

/// The digest of the data of a ConfigMap or a Secret. Its metadata has no effect.
#[must_use]
pub fn digest_of(object: &Value) -> String {
    let mut hasher = Sha256::new();
    for field in ["data", "binaryData"] {
        let data: BTreeMap<&String, &Value> = object[field].as_object().into_iter().flatten().collect();
        for (key, value) in data {
            let value = value.as_str().unwrap_or_default();
            // The lengths keep apart what would be the same text.
            hasher.update(format!("{field} {} {} ", key.len(), value.len()));
            hasher.update(key);
            hasher.update(value);
        }
    }
    hex(&hasher.finalize()[..8])
}

/// The digest of all these objects, with that of each. `seen`: that of an object as it is now; `None` if it does not exist, or
/// cannot be read. Then it stays as it was recorded: neither a deletion nor a missing permission restarts anything.
#[must_use]
pub fn compose(
    references: &[ConfigReference],
    recorded: &str,
    seen: impl Fn(&ConfigReference) -> Option<String>,
) -> String {
    let recorded: BTreeMap<&str, &str> =
        recorded.split(',').filter_map(|part| part.split_once(':')).collect();
    let part = |reference: &ConfigReference| {
        let name = reference.to_string();
        let digest =
            seen(reference).or_else(|| recorded.get(name.as_str()).map(|known| (*known).to_owned()))?;
        Some(format!("{name}:{digest}"))
    };
    references.iter().filter_map(part).collect::<Vec<_>>().join(",")
}

/// The objects whose digests differ between two results of [`compose`].
#[must_use]
pub fn changed<'a>(before: &str, now: &'a str) -> Vec<&'a str> {
    let before: Vec<&str> = before.split(',').collect();
    let parts = now.split(',').filter(|part| !before.contains(part));
    parts.filter_map(|part| Some(part.split_once(':')?.0)).collect()
}

/// The digest in a pod template; empty if it has none.
#[must_use]
pub fn digest_in(pod_template: &Value) -> &str {
    annotation(pod_template, ANNOTATION_CONFIG_DIGEST).unwrap_or_default()
}

/// A spec whose pod template has this digest; `None` if it has it already. A template that names no objects has none.
#[must_use]
pub fn with_digest(spec: &NodeDeploymentSpec, digest: &str) -> Option<NodeDeploymentSpec> {
    let template: &Value = &spec.template.spec.pod_template;
    let names_any = annotation(template, ANNOTATION_RESTART_ON).is_some();
    let wanted = if names_any { digest } else { "" };
    if digest_in(template) == wanted {
        return None;
    }
    let mut changed = spec.clone();
    changed.template.spec.pod_template = with_digest_in(template, wanted).into();
    Some(changed)
}

fn with_digest_in(template: &Value, digest: &str) -> Value {
    let mut template = template.clone();
    if let Some(annotations) = template["metadata"]["annotations"].as_object_mut() {
        set(annotations, digest);
    }
    template
}

fn set(annotations: &mut Map<String, Value>, digest: &str) {
    if digest.is_empty() {
        annotations.remove(ANNOTATION_CONFIG_DIGEST);
    } else {
        annotations.insert(ANNOTATION_CONFIG_DIGEST.to_owned(), digest.into());
    }
}

impl RevisionData {
    /// The same without the digest of its objects: what a person has written.
    #[must_use]
    pub fn without_config(mut self) -> Self {
        if !digest_in(&self.pod_template).is_empty() {
            self.pod_template = with_digest_in(&self.pod_template, "").into();
        }
        self
    }

    /// The same with this digest, if its pod template names objects.
    #[must_use]
    pub fn with_config(mut self, digest: &str) -> Self {
        if annotation(&self.pod_template, ANNOTATION_RESTART_ON).is_some() {
            self.pod_template = with_digest_in(&self.pod_template, digest).into();
        }
        self
    }

    /// True if nothing differs from another revision but the data of the objects that the pod template names.
    #[must_use]
    pub fn differs_in_config_only(&self, other: &Self) -> bool {
        let differs = digest_in(&self.pod_template) != digest_in(&other.pod_template);
        let is_same = || self.clone().without_config().diff(&other.clone().without_config()).is_empty();
        differs && is_same()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::api::{NodeTemplate, StatefulNodeSpec};

    fn template(annotations: &Value) -> Value {
        json!({"metadata": {"annotations": annotations}, "spec": {"containers": [{"name": "db", "image": "db:1"}]}})
    }

    fn spec(annotations: &Value) -> NodeDeploymentSpec {
        let node =
            StatefulNodeSpec { pod_template: template(annotations).into(), ..StatefulNodeSpec::default() };
        NodeDeploymentSpec {
            template: NodeTemplate { spec: node, ..NodeTemplate::default() },
            ..NodeDeploymentSpec::default()
        }
    }

    #[test]
    fn annotation_names_objects_or_says_what_to_correct() {
        let named = |text: &str| {
            references(&template(&json!({"windlass.dev/restart-on": text})))
                .map(|found| found.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "))
        };
        for (text, expected) in [
            ("configmap/db-conf,secret/db-tls", Ok("configmap/db-conf secret/db-tls")),
            (" secret/b , ConfigMap/a,secret/b, ", Ok("configmap/a secret/b")),
            ("", Ok("")),
            ("db-conf", Err("\"db-conf\" has to be configmap/NAME or secret/NAME")),
            ("pod/db-0", Err("\"pod/db-0\" has to be configmap/NAME or secret/NAME")),
            ("secret/", Err("\"secret/\" has no name")),
            ("secret/a/b", Err("\"secret/a/b\" has no name")),
            ("secret/A B", Err("has no name")),
        ] {
            match (named(text), expected) {
                (Ok(found), Ok(expected)) => assert_eq!(found, expected, "{text}"),
                (Err(why), Err(expected)) => {
                    assert!(why.starts_with("template: annotation windlass.dev/restart-on: "), "{why}");
                    assert!(why.contains(expected), "{text}: {why}");
                }
                (found, _) => panic!("{text}: {found:?}"),
            }
        }
        let many: Vec<String> = (0..17).map(|n| format!("secret/s{n}")).collect();
        assert!(named(&many.join(",")).is_err_and(|why| why.contains("at most 16")));
    }

    #[test]
    fn digest_depends_on_the_data_alone() {
        let object =
            |data: Value| json!({"metadata": {"resourceVersion": "7"}, "type": "Opaque", "data": data});
        let one = digest_of(&object(json!({"a": "1", "b": "2"})));
        assert_eq!(
            one,
            digest_of(&json!({"data": {"b": "2", "a": "1"}, "metadata": {"labels": {"x": "y"}}}))
        );
        // Pods of running fleets have it: it never changes.
        assert_eq!(one, "3d0b4beb4f16ce0a");
        for other in [
            object(json!({"a": "1"})),
            object(json!({"a": "12", "b": ""})),
            object(json!({"a1": "", "b": "2"})),
            json!({"binaryData": {"a": "1", "b": "2"}}),
            json!({"data": {"a": "1"}, "binaryData": {"b": "2"}}),
        ] {
            assert_ne!(one, digest_of(&other), "{other}");
        }
        assert_eq!(digest_of(&json!({})), digest_of(&json!({"data": {}})));
    }

    #[test]
    fn objects_that_cannot_be_seen_keep_their_recorded_digests() {
        let both =
            references(&template(&json!({"windlass.dev/restart-on": "configmap/a,secret/b"}))).unwrap();
        let nothing = |_: &ConfigReference| None;
        let all = |_: &ConfigReference| Some("2".to_owned());
        assert_eq!(compose(&both, "", all), "configmap/a:2,secret/b:2");
        assert_eq!(compose(&both, "configmap/a:1,secret/b:1", all), "configmap/a:2,secret/b:2");
        assert_eq!(compose(&both, "configmap/a:1,secret/b:1", nothing), "configmap/a:1,secret/b:1");
        assert_eq!(compose(&both, "configmap/a:1", nothing), "configmap/a:1");
        let one = |of: &ConfigReference| (of.kind == ConfigKind::Secret).then(|| "3".to_owned());
        assert_eq!(compose(&both, "configmap/a:1,secret/b:1", one), "configmap/a:1,secret/b:3");
        assert_eq!(
            compose(&both[..1], "configmap/a:1,secret/b:1", nothing),
            "configmap/a:1",
            "no longer named"
        );
    }

    #[test]
    fn only_a_template_that_names_objects_has_a_digest() {
        let named = spec(&json!({"windlass.dev/restart-on": "secret/b"}));
        let changed = with_digest(&named, "secret/b:1").unwrap();
        assert_eq!(digest_in(&changed.template.spec.pod_template), "secret/b:1");
        assert_eq!(with_digest(&changed, "secret/b:1"), None);
        assert_eq!(with_digest(&changed, ""), Some(named.clone()));
        let hash = |spec: &NodeDeploymentSpec| RevisionData::of(&spec.template.spec).rollout_hash("");
        assert_ne!(hash(&named), hash(&changed), "it is a part of the target");
        let written = spec(&json!({"windlass.dev/config-digest": "by a person", "team": "a"}));
        assert_eq!(with_digest(&written, "secret/b:1"), Some(spec(&json!({"team": "a"}))));
        assert_eq!(with_digest(&spec(&json!({"team": "a"})), "secret/b:1"), None);

        let (before, after) =
            (RevisionData::of(&named.template.spec), RevisionData::of(&changed.template.spec));
        assert!(before.differs_in_config_only(&after) && !before.differs_in_config_only(&before));
        assert_eq!(after.clone().without_config(), before);
        assert_eq!(before.clone().with_config("secret/b:1"), after);
        let mut other = after;
        other.image = "db:2".to_owned();
        assert!(!before.differs_in_config_only(&other));
    }
}
