//! A container's environment, and the expansion of `$(VAR)`. Pure, except for fetching ConfigMaps and Secrets.

use std::{collections::BTreeMap, net::Ipv4Addr};

use k8s_openapi::api::core::v1::{ConfigMap, Container, EnvVar, Pod, Secret};
use kube::{Api, Client};

use crate::{downward, resources};

/// The referenced ConfigMaps and Secrets, by name.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sources {
    config_maps: BTreeMap<String, ConfigMap>,
    secrets: BTreeMap<String, Secret>,
}

/// The data of one object; `None` if it does not exist.
type Data = Option<BTreeMap<String, Vec<u8>>>;

impl Sources {
    /// Fetches all objects that these containers' environments refer to.
    pub(crate) async fn of_environment(
        client: &Client,
        namespace: &str,
        container: &Container,
    ) -> Result<Self, kube::Error> {
        let mut maps = Vec::new();
        let mut secrets = Vec::new();
        for from in container.env_from.iter().flatten() {
            maps.extend(from.config_map_ref.iter().map(|reference| reference.name.clone()));
            secrets.extend(from.secret_ref.iter().map(|reference| reference.name.clone()));
        }
        for from in container.env.iter().flatten().filter_map(|var| var.value_from.as_ref()) {
            maps.extend(from.config_map_key_ref.iter().map(|reference| reference.name.clone()));
            secrets.extend(from.secret_key_ref.iter().map(|reference| reference.name.clone()));
        }
        Self::fetch(client, namespace, maps, secrets).await
    }

    pub(crate) async fn fetch(
        client: &Client,
        namespace: &str,
        config_maps: Vec<String>,
        secrets: Vec<String>,
    ) -> Result<Self, kube::Error> {
        let mut found = Self::default();
        for name in config_maps {
            let api: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
            if let Some(map) = api.get_opt(&name).await? {
                found.config_maps.insert(name, map);
            }
        }
        for name in secrets {
            let api: Api<Secret> = Api::namespaced(client.clone(), namespace);
            if let Some(secret) = api.get_opt(&name).await? {
                found.secrets.insert(name, secret);
            }
        }
        Ok(found)
    }

    pub(crate) fn config_map(&self, name: &str) -> Data {
        let map = self.config_maps.get(name)?;
        let texts = map.data.iter().flatten().map(|(key, text)| (key.clone(), text.clone().into_bytes()));
        let bytes = map.binary_data.iter().flatten().map(|(key, bytes)| (key.clone(), bytes.0.clone()));
        Some(texts.chain(bytes).collect())
    }

    pub(crate) fn secret(&self, name: &str) -> Data {
        let secret = self.secrets.get(name)?;
        Some(secret.data.iter().flatten().map(|(key, bytes)| (key.clone(), bytes.0.clone())).collect())
    }
}

/// The environment of a container; an error is the message of CreateContainerConfigError.
pub(crate) fn environment(
    pod: &Pod,
    container: &Container,
    image: &BTreeMap<String, String>,
    ip: Ipv4Addr,
    sources: &Sources,
) -> Result<BTreeMap<String, String>, String> {
    let mut env = image.clone();
    for from in container.env_from.iter().flatten() {
        let prefix = from.prefix.as_deref().unwrap_or_default();
        let (kind, name, optional, data) = if let Some(reference) = &from.config_map_ref {
            ("configmap", &reference.name, reference.optional, sources.config_map(&reference.name))
        } else if let Some(reference) = &from.secret_ref {
            ("secret", &reference.name, reference.optional, sources.secret(&reference.name))
        } else {
            continue;
        };
        match data {
            Some(data) => {
                env.extend(data.into_iter().map(|(key, value)| (format!("{prefix}{key}"), lossy(value))));
            }
            None if optional == Some(true) => {}
            None => return Err(format!("{kind} {name:?} not found")),
        }
    }
    for var in container.env.iter().flatten() {
        if let Some(value) = value_of(pod, container, var, &env, ip, sources)? {
            env.insert(var.name.clone(), value);
        }
    }
    Ok(env)
}

fn value_of(
    pod: &Pod,
    container: &Container,
    var: &EnvVar,
    env: &BTreeMap<String, String>,
    ip: Ipv4Addr,
    sources: &Sources,
) -> Result<Option<String>, String> {
    let Some(from) = &var.value_from else {
        return Ok(Some(expand(var.value.as_deref().unwrap_or_default(), env)));
    };
    if let Some(reference) = &from.field_ref {
        return downward::field(pod, &reference.field_path, ip).map(Some);
    }
    if let Some(reference) = &from.resource_field_ref {
        return resources::value(pod, Some(container), reference).map(Some);
    }
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let (kind, name, key, optional, data) = if let Some(reference) = &from.config_map_key_ref {
        let data = sources.config_map(&reference.name);
        ("ConfigMap", &reference.name, &reference.key, reference.optional, data)
    } else if let Some(reference) = &from.secret_key_ref {
        let data = sources.secret(&reference.name);
        ("Secret", &reference.name, &reference.key, reference.optional, data)
    } else {
        return Err(format!("the source of the variable {} is not supported", var.name));
    };
    match data {
        None if optional != Some(true) => Err(format!("{} {name:?} not found", kind.to_lowercase())),
        Some(mut data) => match data.remove(key) {
            None if optional != Some(true) => {
                Err(format!("couldn't find key {key} in {kind} {namespace}/{name}"))
            }
            value => Ok(value.map(lossy)),
        },
        None => Ok(None),
    }
}

fn lossy(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}

/// Expands each `$(NAME)`; `$$` is a dollar sign, and an unknown name stays as it is.
pub(crate) fn expand(text: &str, env: &BTreeMap<String, String>) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        out.push_str(&rest[..at]);
        let after = &rest[at + 1..];
        if let Some(after) = after.strip_prefix('$') {
            out.push('$');
            rest = after;
        } else if let Some((name, after)) = after.strip_prefix('(').and_then(|inner| inner.split_once(')')) {
            match env.get(name) {
                Some(value) => out.push_str(value),
                None => out.extend(["$(", name, ")"]),
            }
            rest = after;
        } else {
            out.push('$');
            rest = after;
        }
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn built(container: Value, sources: &Sources) -> Result<BTreeMap<String, String>, String> {
        let pod: Pod =
            serde_json::from_value(json!({"metadata": {"name": "db-0", "namespace": "ns"}})).unwrap();
        let container: Container = serde_json::from_value(container).unwrap();
        let image = BTreeMap::from([("FROM_IMAGE".to_owned(), "1".to_owned())]);
        environment(&pod, &container, &image, Ipv4Addr::new(127, 200, 0, 1), sources)
    }

    fn sources() -> Sources {
        let map = json!({"data": {"a": "1", "b": "2"}});
        let secret = json!({"data": {"p": "cHc="}});
        Sources {
            config_maps: BTreeMap::from([("m".to_owned(), serde_json::from_value(map).unwrap())]),
            secrets: BTreeMap::from([("s".to_owned(), serde_json::from_value(secret).unwrap())]),
        }
    }

    #[test]
    fn env_merges_all_sources_and_expands_earlier_variables() {
        let env = built(
            json!({"name": "c",
                "envFrom": [{"prefix": "M_", "configMapRef": {"name": "m"}}, {"configMapRef": {"name": "none", "optional": true}}],
                "env": [
                    {"name": "NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
                    {"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
                    {"name": "URL", "value": "http://$(IP)/$(NAME)$(LATER)$$(IP)"},
                    {"name": "LATER", "value": "x"},
                    {"name": "CORES", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}},
                    {"name": "P", "valueFrom": {"secretKeyRef": {"name": "s", "key": "p"}}},
                    {"name": "A", "valueFrom": {"configMapKeyRef": {"name": "m", "key": "a"}}},
                    {"name": "NONE", "valueFrom": {"configMapKeyRef": {"name": "m", "key": "z", "optional": true}}},
                ]}),
            &sources(),
        )
        .unwrap();
        let expected = [
            ("A", "1"),
            ("CORES", "1000"),
            ("FROM_IMAGE", "1"),
            ("IP", "127.200.0.1"),
            ("LATER", "x"),
            ("M_a", "1"),
            ("M_b", "2"),
            ("NAME", "db-0"),
            ("P", "pw"),
            ("URL", "http://127.200.0.1/db-0$(LATER)$(IP)"),
        ];
        let expected: BTreeMap<String, String> =
            expected.into_iter().map(|(k, v)| (k.to_owned(), v.to_owned())).collect();
        assert_eq!(env, expected);
    }

    #[test]
    fn missing_env_source_error_matches_the_kubelet() {
        let of = |env: Value| built(env, &sources()).unwrap_err();
        let key = |map: &str, key: &str| json!({"name": "c", "env": [{"name": "X", "valueFrom": {"configMapKeyRef": {"name": map, "key": key}}}]});
        assert_eq!(of(key("none", "a")), "configmap \"none\" not found");
        assert_eq!(of(key("m", "z")), "couldn't find key z in ConfigMap ns/m");
        let from = json!({"name": "c", "envFrom": [{"secretRef": {"name": "none"}}]});
        assert_eq!(of(from), "secret \"none\" not found");
    }

    #[test]
    fn unknown_variable_and_lone_dollar_are_kept() {
        let env = BTreeMap::from([("A".to_owned(), "1".to_owned())]);
        for (text, expanded) in
            [("$(A)$(B)", "1$(B)"), ("$$(A)", "$(A)"), ("$A $", "$A $"), ("$(A", "$(A"), ("", "")]
        {
            assert_eq!(expand(text, &env), expanded);
        }
    }
}
