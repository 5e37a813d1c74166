//! The fields of the downward API. Pure.

use std::{collections::BTreeMap, net::Ipv4Addr};

use k8s_openapi::api::core::v1::Pod;

/// The value of a `fieldPath`.
pub(crate) fn field(pod: &Pod, path: &str, ip: Ipv4Addr) -> Result<String, String> {
    let meta = &pod.metadata;
    let spec = pod.spec.as_ref();
    let text = |value: Option<&String>| Ok(value.cloned().unwrap_or_default());
    if let Some((map, key)) = subscript(path) {
        let map = match map {
            "metadata.labels" => meta.labels.as_ref(),
            "metadata.annotations" => meta.annotations.as_ref(),
            _ => return Err(format!("fieldPath {path:?} has no keys")),
        };
        return text(map.and_then(|map| map.get(key)));
    }
    match path {
        "metadata.name" => text(meta.name.as_ref()),
        "metadata.namespace" => text(meta.namespace.as_ref()),
        "metadata.uid" => text(meta.uid.as_ref()),
        "metadata.labels" => Ok(lines(meta.labels.as_ref())),
        "metadata.annotations" => Ok(lines(meta.annotations.as_ref())),
        "spec.nodeName" => text(spec.and_then(|spec| spec.node_name.as_ref())),
        "spec.serviceAccountName" => text(spec.and_then(|spec| spec.service_account_name.as_ref())),
        "status.podIP" | "status.podIPs" => Ok(ip.to_string()),
        "status.hostIP" | "status.hostIPs" => Ok(Ipv4Addr::LOCALHOST.to_string()),
        _ => Err(format!("fieldPath {path:?} is not supported")),
    }
}

/// `metadata.labels['a/b']` as its two parts.
fn subscript(path: &str) -> Option<(&str, &str)> {
    let (map, key) = path.strip_suffix("']")?.split_once("['")?;
    Some((map, key))
}

/// Labels or annotations as in a volume: a line each, values quoted.
fn lines(map: Option<&BTreeMap<String, String>>) -> String {
    let line = |(key, value): (&String, &String)| format!("{key}={value:?}");
    map.into_iter().flatten().map(line).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn downward_fields_are_resolved_and_unknown_ones_refused() {
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {"name": "db-0", "namespace": "ns", "uid": "u", "labels": {"a": "1", "b/c": "x\"y"}, "annotations": {"n": "2"}},
            "spec": {"nodeName": "here", "containers": []},
        }))
        .unwrap();
        let of = |path: &str| field(&pod, path, Ipv4Addr::new(127, 200, 1, 2));
        let expected = [
            ("metadata.name", "db-0"),
            ("metadata.namespace", "ns"),
            ("metadata.uid", "u"),
            ("metadata.labels['b/c']", "x\"y"),
            ("metadata.labels['none']", ""),
            ("metadata.annotations['n']", "2"),
            ("metadata.labels", "a=\"1\"\nb/c=\"x\\\"y\""),
            ("spec.nodeName", "here"),
            ("status.podIP", "127.200.1.2"),
            ("status.hostIP", "127.0.0.1"),
        ];
        for (path, value) in expected {
            assert_eq!(of(path).as_deref(), Ok(value), "{path}");
        }
        assert!(of("spec.nope").is_err());
        assert!(of("spec.nodeName['x']").is_err());
    }
}
