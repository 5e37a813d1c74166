//! The objects that a pod template names and that its pods cannot start without. Pure.

use std::collections::BTreeSet;

use serde_json::Value;
use strum::{AsRefStr, Display};

/// A kind of object that a pod template names.
#[derive(AsRefStr, Clone, Copy, Debug, Display, Eq, Ord, PartialEq, PartialOrd)]
#[allow(missing_docs, reason = "they are the kinds of Kubernetes")]
pub enum Referent {
    ConfigMap,
    PersistentVolumeClaim,
    PriorityClass,
    Secret,
    ServiceAccount,
}

/// An object that has to exist before a pod of a template can start.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Reference {
    /// The kind of the object.
    pub kind: Referent,
    /// Its name.
    pub name: String,
    /// Where the template names it, such as `volume tls`.
    pub field: String,
}

impl Reference {
    /// The message if the object does not exist.
    #[must_use]
    pub fn is_missing(&self) -> String {
        format!("{}: {} {} does not exist", self.field, self.kind, self.name)
    }

    /// True if the name is a DNS subdomain, as the names of all these kinds are. No object has another name, and a name
    /// with a slash would lead to another path of the API server.
    #[must_use]
    pub fn is_possible(&self) -> bool {
        let is_end = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
        let name = self.name.as_bytes();
        let is_allowed =
            |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.".contains(byte);
        name.len() <= 253 && is_end(name.first()) && is_end(name.last()) && name.iter().all(is_allowed)
    }
}

/// The maximum number of objects that are listed. Each costs a request.
const MOST: usize = 250;

/// The objects that a rendered pod template names, each once, in the order of the template. `claims`: the claim
/// templates of its StatefulSet, which replace the volumes with their names.
///
/// Optional references are left out, and so is whatever a pod starts without: `imagePullSecrets`, which the kubelet
/// ignores if they are missing, the ServiceAccount `default`, which a controller creates, and the PriorityClasses of
/// Kubernetes itself.
#[must_use]
pub fn references(template: &Value, claims: &[Value]) -> Vec<Reference> {
    let spec = &template["spec"];
    let mut found = Found::default();
    let account = [&spec["serviceAccountName"], &spec["serviceAccount"]];
    let account = account.into_iter().find(|name| is_named(name));
    if let Some(account) = account.filter(|name| *name != "default") {
        found.add(Referent::ServiceAccount, account, "serviceAccountName");
    }
    let class = &spec["priorityClassName"];
    if !class.as_str().unwrap_or_default().starts_with("system-") {
        found.add(Referent::PriorityClass, class, "priorityClassName");
    }
    let is_claim = |volume: &&Value| claims.iter().any(|claim| claim["metadata"]["name"] == volume["name"]);
    for volume in list(&spec["volumes"]).filter(|volume| !is_claim(volume)) {
        found.add_volume(volume);
    }
    for field in ["initContainers", "containers"] {
        for container in list(&spec[field]) {
            found.add_container(container);
        }
    }
    // Its driver makes Secrets from the volume, once a pod mounts it.
    let makes_secrets = |volume: &Value| volume["csi"]["driver"] == "secrets-store.csi.k8s.io";
    if list(&spec["volumes"]).any(makes_secrets) {
        found.list.retain(|reference| reference.kind != Referent::Secret);
    }
    found.list
}

#[derive(Default)]
struct Found {
    list: Vec<Reference>,
    known: BTreeSet<(Referent, String)>,
}

impl Found {
    fn add(&mut self, kind: Referent, name: &Value, field: &str) {
        let Some(name) = name.as_str().filter(|name| !name.is_empty()) else { return };
        if self.list.len() < MOST && self.known.insert((kind, name.to_owned())) {
            self.list.push(Reference { kind, name: name.to_owned(), field: field.to_owned() });
        }
    }

    /// Adds what a source with the fields `name` and `optional` names.
    fn add_source(&mut self, kind: Referent, source: &Value, field: &str) {
        if source["optional"] != true {
            self.add(kind, &source["name"], field);
        }
    }

    fn add_volume(&mut self, volume: &Value) {
        let field = format!("volume {}", volume["name"].as_str().unwrap_or_default());
        if volume["secret"]["optional"] != true {
            self.add(Referent::Secret, &volume["secret"]["secretName"], &field);
        }
        self.add_source(Referent::ConfigMap, &volume["configMap"], &field);
        for source in list(&volume["projected"]["sources"]) {
            self.add_source(Referent::Secret, &source["secret"], &field);
            self.add_source(Referent::ConfigMap, &source["configMap"], &field);
        }
        self.add(Referent::PersistentVolumeClaim, &volume["persistentVolumeClaim"]["claimName"], &field);
        self.add(Referent::Secret, &volume["csi"]["nodePublishSecretRef"]["name"], &field);
        self.add(Referent::Secret, &volume["azureFile"]["secretName"], &field);
        for driver in ["flexVolume", "iscsi"] {
            self.add(Referent::Secret, &volume[driver]["secretRef"]["name"], &field);
        }
    }

    fn add_container(&mut self, container: &Value) {
        let field = format!("container {}", container["name"].as_str().unwrap_or_default());
        for source in list(&container["envFrom"]) {
            let field = format!("{field}: envFrom");
            self.add_source(Referent::Secret, &source["secretRef"], &field);
            self.add_source(Referent::ConfigMap, &source["configMapRef"], &field);
        }
        for variable in list(&container["env"]) {
            let field = format!("{field}: env {}", variable["name"].as_str().unwrap_or_default());
            self.add_source(Referent::Secret, &variable["valueFrom"]["secretKeyRef"], &field);
            self.add_source(Referent::ConfigMap, &variable["valueFrom"]["configMapKeyRef"], &field);
        }
    }
}

fn is_named(name: &Value) -> bool {
    name.as_str().is_some_and(|name| !name.is_empty())
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// What a pod with this spec needs, as messages without "does not exist".
    fn of(spec: &Value, claims: &[Value]) -> Vec<String> {
        let missing = references(&json!({"spec": spec}), claims).into_iter().map(|found| found.is_missing());
        missing.map(|message| message.replace(" does not exist", "")).collect()
    }

    #[test]
    fn every_kind_of_reference_is_found() {
        let volume = |source: Value| {
            let mut volume = json!({"name": "v"});
            volume.as_object_mut().unwrap().extend(source.as_object().unwrap().clone());
            json!({"volumes": [volume]})
        };
        let container = |container: Value| json!({"containers": [container]});
        let env = |source: Value| {
            container(
                json!({"name": "db", "env": [{"name": "A", "value": "a"}, {"name": "B", "valueFrom": source}]}),
            )
        };
        let from = |source: Value| container(json!({"name": "db", "envFrom": [source]}));
        for (spec, expected) in [
            (json!({}), None),
            (volume(json!({"emptyDir": {}})), None),
            (volume(json!({"secret": {"secretName": "s"}})), Some("volume v: Secret s")),
            (volume(json!({"secret": {"secretName": "s", "optional": false}})), Some("volume v: Secret s")),
            (volume(json!({"secret": {"secretName": "s", "optional": true}})), None),
            (volume(json!({"configMap": {"name": "c"}})), Some("volume v: ConfigMap c")),
            (volume(json!({"configMap": {"name": "c", "optional": true}})), None),
            (volume(json!({"configMap": {"name": ""}})), None),
            (
                volume(json!({"projected": {"sources": [{"secret": {"name": "s"}}]}})),
                Some("volume v: Secret s"),
            ),
            (volume(json!({"projected": {"sources": [{"secret": {"name": "s", "optional": true}}]}})), None),
            (
                volume(
                    json!({"projected": {"sources": [{"downwardAPI": {}}, {"configMap": {"name": "c"}}]}}),
                ),
                Some("volume v: ConfigMap c"),
            ),
            (volume(json!({"projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}})), None),
            (
                volume(json!({"persistentVolumeClaim": {"claimName": "p"}})),
                Some("volume v: PersistentVolumeClaim p"),
            ),
            (volume(json!({"ephemeral": {"volumeClaimTemplate": {"spec": {}}}})), None),
            (volume(json!({"csi": {"nodePublishSecretRef": {"name": "s"}}})), Some("volume v: Secret s")),
            (volume(json!({"azureFile": {"secretName": "s"}})), Some("volume v: Secret s")),
            (volume(json!({"iscsi": {"secretRef": {"name": "s"}}})), Some("volume v: Secret s")),
            (volume(json!({"flexVolume": {"secretRef": {"name": "s"}}})), Some("volume v: Secret s")),
            (env(json!({"secretKeyRef": {"name": "s", "key": "k"}})), Some("container db: env B: Secret s")),
            (env(json!({"secretKeyRef": {"name": "s", "key": "k", "optional": true}})), None),
            (
                env(json!({"configMapKeyRef": {"name": "c", "key": "k"}})),
                Some("container db: env B: ConfigMap c"),
            ),
            (env(json!({"configMapKeyRef": {"name": "c", "key": "k", "optional": true}})), None),
            (env(json!({"fieldRef": {"fieldPath": "metadata.name"}})), None),
            (from(json!({"secretRef": {"name": "s"}})), Some("container db: envFrom: Secret s")),
            (from(json!({"secretRef": {"name": "s", "optional": true}})), None),
            (from(json!({"configMapRef": {"name": "c"}})), Some("container db: envFrom: ConfigMap c")),
            (from(json!({"configMapRef": {"name": "c", "optional": true}})), None),
            (
                json!({"initContainers": [{"name": "init", "envFrom": [{"secretRef": {"name": "s"}}]}]}),
                Some("container init: envFrom: Secret s"),
            ),
            (json!({"serviceAccountName": "a"}), Some("serviceAccountName: ServiceAccount a")),
            (json!({"serviceAccount": "a"}), Some("serviceAccountName: ServiceAccount a")),
            (json!({"serviceAccountName": "default"}), None),
            (json!({"priorityClassName": "high"}), Some("priorityClassName: PriorityClass high")),
            (json!({"priorityClassName": "system-node-critical"}), None),
            (json!({"imagePullSecrets": [{"name": "s"}]}), None),
            (json!({"volumes": "none", "containers": [3], "serviceAccountName": 4}), None),
        ] {
            let expected: Vec<&str> = expected.into_iter().collect();
            assert_eq!(of(&spec, &[]), expected, "{spec}");
        }
    }

    #[test]
    fn claim_templates_replace_volumes_of_their_name() {
        let spec = json!({"volumes": [
            {"name": "data", "persistentVolumeClaim": {"claimName": "old"}},
            {"name": "tls", "secret": {"secretName": "tls"}},
            {"name": "shared", "persistentVolumeClaim": {"claimName": "shared"}},
        ]});
        let claims = ["data", "tls"].map(|name| json!({"metadata": {"name": name}}));
        assert_eq!(of(&spec, &claims), ["volume shared: PersistentVolumeClaim shared"]);
    }

    #[test]
    fn object_is_listed_once_unless_kinds_differ() {
        let mount = json!([{"secretRef": {"name": "x", "optional": true}}, {"secretRef": {"name": "x"}}]);
        let spec = json!({
            "volumes": [{"name": "b", "secret": {"secretName": "x"}}, {"name": "a", "configMap": {"name": "x"}}],
            "containers": [{"name": "db", "envFrom": mount}],
        });
        assert_eq!(of(&spec, &[]), ["volume b: Secret x", "volume a: ConfigMap x"]);
        let volumes: Vec<Value> = (0..300)
            .map(|at| json!({"name": format!("v{at}"), "configMap": {"name": format!("c{at}")}}))
            .collect();
        assert_eq!(of(&json!({"volumes": volumes}), &[]).len(), MOST);
    }

    #[test]
    fn only_dns_subdomains_can_be_names_of_objects() {
        let long = "a".repeat(254);
        for (name, expected) in [
            ("db-tls", true),
            ("db.tls.2", true),
            ("0", true),
            ("", false),
            ("Db", false),
            ("-db", false),
            ("db-", false),
            ("..", false),
            ("../../kube-system/secrets/x", false),
            ("x?watch=1", false),
            (&long[1..], true),
            (&long, false),
        ] {
            let found = Reference { kind: Referent::Secret, name: name.to_owned(), field: String::new() };
            assert_eq!(found.is_possible(), expected, "{name:?}");
        }
    }
}
