//! The values of `resourceFieldRef`: the container's, or the node's if it has no limit. Pure.
//!
//! Limits are not enforced.

use k8s_openapi::api::core::v1::{Container, Pod, ResourceFieldSelector};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

/// The capacity that each node reports.
pub(crate) const ROOM: [(&str, &str); 4] =
    [("cpu", "1000"), ("memory", "10Ti"), ("ephemeral-storage", "10Ti"), ("pods", "10000")];

/// The value of a reference, in multiples of its divisor, rounded up. `own`: the container of the environment, if
/// any.
pub(crate) fn value(
    pod: &Pod,
    own: Option<&Container>,
    reference: &ResourceFieldSelector,
) -> Result<String, String> {
    let named = reference.container_name.as_deref().filter(|name| !name.is_empty());
    let container = match (named, own) {
        (None, Some(own)) => own,
        (None, None) => return Err("resourceFieldRef in a volume has to name a container".to_owned()),
        (Some(name), _) => {
            let spec = pod.spec.iter();
            let mut all =
                spec.flat_map(|spec| spec.containers.iter().chain(spec.init_containers.iter().flatten()));
            all.find(|container| container.name == name)
                .ok_or_else(|| format!("container {name} not found"))?
        }
    };
    let unsupported = || format!("unsupported container resource: {}", reference.resource);
    let (kind, name) = reference.resource.split_once('.').ok_or_else(unsupported)?;
    let resources = container.resources.as_ref();
    let (limit, request) = (
        resources.and_then(|r| r.limits.as_ref()?.get(name)),
        resources.and_then(|r| r.requests.as_ref()?.get(name)),
    );
    let quantity = match kind {
        // Without a limit: the node's capacity.
        "limits" => limit.map(|quantity| quantity.0.as_str()).or_else(|| room(name)),
        "requests" => Some(request.map_or("0", |quantity| quantity.0.as_str())),
        _ => None,
    };
    let amount = thousandths(quantity.ok_or_else(unsupported)?)?;
    let divisor = reference.divisor.as_ref().map_or("1", |Quantity(text)| text.as_str());
    // The API server stores an absent divisor as 0.
    let divisor = match thousandths(divisor)? {
        0 => 1000,
        divisor => divisor,
    };
    Ok(amount.div_ceil(divisor).to_string())
}

fn room(name: &str) -> Option<&'static str> {
    ROOM.iter().find(|(resource, _)| *resource == name).map(|(_, room)| *room)
}

/// A quantity in thousandths of its unit, rounded up.
pub(crate) fn thousandths(text: &str) -> Result<u128, String> {
    let wrong = || format!("{text:?} is no quantity");
    let end = text.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(text.len());
    let (number, suffix) = text.split_at(end);
    let (whole, part) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && part.is_empty() {
        return Err(wrong());
    }
    // In thousandths.
    let unit: u128 = match suffix {
        "m" => 1,
        "" => 1000,
        "k" => 1000 * 1000,
        "M" => 1000 * 1000_u128.pow(2),
        "G" => 1000 * 1000_u128.pow(3),
        "T" => 1000 * 1000_u128.pow(4),
        "Ki" => 1000 << 10,
        "Mi" => 1000 << 20,
        "Gi" => 1000 << 30,
        "Ti" => 1000 << 40,
        _ => return Err(wrong()),
    };
    let scale = 10_u128.checked_pow(part.len() as u32).ok_or_else(wrong)?;
    let digits: u128 = format!("{whole}{part}").parse().map_err(|_| wrong())?;
    Ok(digits.checked_mul(unit).ok_or_else(wrong)?.div_ceil(scale))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn value_of(reference: Value, own: bool) -> Result<String, String> {
        let pod: Pod = serde_json::from_value(json!({"spec": {
            "initContainers": [{"name": "init", "resources": {"limits": {"memory": "64Mi"}}}],
            "containers": [{"name": "main", "resources": {
                "requests": {"cpu": "250m", "memory": "100M"}, "limits": {"cpu": "1.5", "memory": "1Gi"}}}],
        }}))
        .unwrap();
        let main = pod.spec.as_ref().map(|spec| spec.containers[0].clone()).filter(|_| own);
        value(&pod, main.as_ref(), &serde_json::from_value(reference).unwrap())
    }

    #[test]
    fn resource_is_divided_and_rounded_up() {
        let table = [
            (json!({"resource": "limits.cpu"}), "2"),
            (json!({"resource": "limits.cpu", "divisor": "1m"}), "1500"),
            (json!({"resource": "requests.cpu"}), "1"),
            (json!({"resource": "requests.memory", "divisor": "0"}), "100000000"),
            (json!({"resource": "limits.memory"}), "1073741824"),
            (json!({"resource": "limits.memory", "divisor": "1Mi"}), "1024"),
            (json!({"resource": "requests.ephemeral-storage"}), "0"),
            (json!({"resource": "limits.ephemeral-storage", "divisor": "1Ti"}), "10"),
            (json!({"resource": "limits.memory", "divisor": "1Mi", "containerName": "init"}), "64"),
        ];
        for (reference, expected) in table {
            assert_eq!(value_of(reference.clone(), true).as_deref(), Ok(expected), "{reference}");
        }
    }

    #[test]
    fn unknown_resource_or_container_is_refused() {
        for (reference, own) in [
            (json!({"resource": "limits.gpu"}), true),
            (json!({"resource": "cpu"}), true),
            (json!({"resource": "limits.cpu", "containerName": "none"}), true),
            (json!({"resource": "limits.cpu"}), false),
            (json!({"resource": "limits.cpu", "divisor": "1Qx"}), true),
        ] {
            assert!(value_of(reference.clone(), own).is_err(), "{reference}");
        }
        assert_eq!(
            value_of(json!({"resource": "limits.cpu", "containerName": "main"}), false).as_deref(),
            Ok("2")
        );
    }
}
