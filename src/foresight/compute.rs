//! The resources that a pod uses of a quota, as the API server's evaluator computes them.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

/// Amounts by quota resource, in billionths of the unit.
pub(super) type Amounts = BTreeMap<String, i128>;

const ONE: i128 = 1_000_000_000;
const OF_COMPUTE: [&str; 3] = ["cpu", "memory", "ephemeral-storage"];

/// One object, in billionths.
pub(super) fn one() -> i128 {
    ONE
}

/// Parses a quantity, in billionths.
pub(super) fn amount(text: &str) -> Option<i128> {
    let end = text.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(text.len());
    let (number, suffix) = text.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let digits = format!("{whole}{fraction}").parse::<i128>().ok()?;
    let (factor, power): (i128, i32) = match suffix {
        "" => (1, 0),
        "n" => (1, -9),
        "u" => (1, -6),
        "m" => (1, -3),
        "k" => (1, 3),
        "M" => (1, 6),
        "G" => (1, 9),
        "T" => (1, 12),
        "P" => (1, 15),
        "E" => (1, 18),
        "Ki" => (1 << 10, 0),
        "Mi" => (1 << 20, 0),
        "Gi" => (1 << 30, 0),
        "Ti" => (1 << 40, 0),
        "Pi" => (1 << 50, 0),
        "Ei" => (1 << 60, 0),
        exponent => (1, exponent.strip_prefix(['e', 'E'])?.parse().ok()?),
    };
    let power = 9 + power.checked_sub(i32::try_from(fraction.len()).ok()?)?;
    let scale = 10_i128.checked_pow(power.unsigned_abs())?;
    let value = digits.checked_mul(factor)?;
    if power < 0 { Some(value / scale) } else { value.checked_mul(scale) }
}

/// Formats an amount: memory and storage in powers of 1024 if exact.
pub(super) fn text(what: &str, amount: i128) -> String {
    if amount % ONE != 0 {
        return format!("{}m", (amount + 999_999) / 1_000_000);
    }
    let mut count = amount / ONE;
    let mut unit = 0;
    if what.ends_with("memory") || what.ends_with("storage") {
        while count != 0 && count % 1024 == 0 && unit < 6 {
            count /= 1024;
            unit += 1;
        }
    }
    format!("{count}{}", ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"][unit])
}

/// A pod with the API server's defaults: limits become requests, and `LimitRange`s of the namespace fill in the rest.
pub(super) fn defaulted(mut pod: Value, ranges: &[Value]) -> Value {
    let limits = ranges.iter().flat_map(|range| range["spec"]["limits"].as_array().into_iter().flatten());
    let limits: Vec<&Value> = limits.filter(|limit| limit["type"] == "Container").collect();
    for list in ["containers", "initContainers"] {
        for container in pod["spec"][list].as_array_mut().into_iter().flatten() {
            let resources = &mut container["resources"];
            let own = resources["limits"].clone();
            fill(&mut resources["requests"], &own);
            for limit in &limits {
                fill(&mut resources["limits"], &limit["default"]);
                fill(&mut resources["requests"], &limit["defaultRequest"]);
            }
        }
    }
    pod
}

fn fill(into: &mut Value, from: &Value) {
    let Some(from) = from.as_object() else { return };
    if !into.is_object() {
        *into = Value::Object(Map::new());
    }
    for (what, amount) in from {
        if into[what.as_str()].is_null() {
            into[what.as_str()] = amount.clone();
        }
    }
}

/// All containers of a pod.
fn containers(pod: &Value) -> impl Iterator<Item = &Value> {
    ["containers", "initContainers"]
        .into_iter()
        .flat_map(|list| pod["spec"][list].as_array().into_iter().flatten())
}

fn amounts(list: &Value) -> Amounts {
    let list = list.as_object().into_iter().flatten();
    list.filter_map(|(what, value)| Some((what.clone(), amount(&as_text(value))?))).collect()
}

fn as_text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

pub(super) fn add(to: &mut Amounts, more: &Amounts) {
    for (what, amount) in more {
        *to.entry(what.clone()).or_default() += amount;
    }
}

/// The sum over a pod: concurrent containers add up; an init container counts if it needs more than all of them.
fn summed(pod: &Value, list: &str) -> Amounts {
    let mut sum = Amounts::new();
    let mut concurrent = Amounts::new();
    let mut highest = Amounts::new();
    for container in pod["spec"]["containers"].as_array().into_iter().flatten() {
        add(&mut sum, &amounts(&container["resources"][list]));
    }
    for container in pod["spec"]["initContainers"].as_array().into_iter().flatten() {
        let own = amounts(&container["resources"][list]);
        if container["restartPolicy"] == "Always" {
            add(&mut sum, &own);
            add(&mut concurrent, &own);
        }
        let mut now = concurrent.clone();
        if container["restartPolicy"] != "Always" {
            add(&mut now, &own);
        }
        for (what, amount) in now {
            let most = highest.entry(what).or_default();
            *most = amount.max(*most);
        }
    }
    for (what, amount) in highest {
        let total = sum.entry(what).or_default();
        *total = amount.max(*total);
    }
    sum.extend(amounts(&pod["spec"]["resources"][list]));
    for (what, amount) in amounts(&pod["spec"]["overhead"]) {
        // Overhead does not create a limit that no container has.
        if list == "requests" || sum.contains_key(&what) {
            *sum.entry(what).or_default() += amount;
        }
    }
    sum
}

/// What a pod uses of quotas. A finished pod counts as an object only.
pub(super) fn of_pod(pod: &Value) -> Amounts {
    let mut taken = Amounts::from([("count/pods".to_owned(), ONE)]);
    if matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed")) {
        return taken;
    }
    taken.insert("pods".to_owned(), ONE);
    for (what, amount) in summed(pod, "requests") {
        if OF_COMPUTE.contains(&what.as_str()) || what.starts_with("hugepages-") {
            taken.insert(what.clone(), amount);
        }
        taken.insert(format!("requests.{what}"), amount);
    }
    for (what, amount) in summed(pod, "limits") {
        if OF_COMPUTE.contains(&what.as_str()) {
            taken.insert(format!("limits.{what}"), amount);
        }
    }
    taken
}

/// What a volume claim uses of quotas.
pub(super) fn of_claim(claim: &Value) -> Amounts {
    let storage = amounts(&claim["spec"]["resources"]["requests"]).remove("storage").unwrap_or_default();
    let mut taken = Amounts::from([("count/persistentvolumeclaims".to_owned(), ONE)]);
    let class = claim["spec"]["storageClassName"].as_str().filter(|class| !class.is_empty());
    let of_class = class.map(|class| format!("{class}.storageclass.storage.k8s.io/"));
    for prefix in [Some(String::new()), of_class].into_iter().flatten() {
        taken.insert(format!("{prefix}persistentvolumeclaims"), ONE);
        taken.insert(format!("{prefix}requests.storage"), storage);
    }
    taken
}

/// True if no container requests or limits cpu or memory.
pub(super) fn is_best_effort(pod: &Value) -> bool {
    let asks = |resources: &Value| {
        ["requests", "limits"].iter().any(|list| {
            let list = amounts(&resources[*list]);
            ["cpu", "memory"].iter().any(|what| list.get(*what).is_some_and(|amount| *amount > 0))
        })
    };
    !asks(&pod["spec"]["resources"]) && !containers(pod).any(|container| asks(&container["resources"]))
}

/// The resources of this quota that containers have to specify and do not, in the API server's words.
pub(super) fn unspecified(pod: &Value, hard: &Value) -> Option<String> {
    if !pod["spec"]["resources"].is_null() {
        return None;
    }
    let has = |container: &Value, what: &str| {
        let (list, of) = what.split_once('.').unwrap_or(("requests", what));
        !container["resources"][list][of].is_null()
    };
    let names = ["cpu", "limits.cpu", "limits.memory", "memory", "requests.cpu", "requests.memory"];
    let missing = names.into_iter().filter(|what| !hard[*what].is_null()).filter_map(|what| {
        let without = containers(pod).filter(|container| !has(container, what));
        let mut without: Vec<&str> = without.filter_map(|container| container["name"].as_str()).collect();
        without.sort_unstable();
        (!without.is_empty()).then(|| format!("{what} for: {}", without.join(",")))
    });
    let missing: Vec<String> = missing.collect();
    (!missing.is_empty()).then(|| format!("must specify {}", missing.join("; ")))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn quantities_are_read_and_written() {
        for (what, written, in_billionths, message) in [
            ("cpu", "500m", Some(ONE / 2), "500m"),
            ("cpu", "0.1", Some(ONE / 10), "100m"),
            ("cpu", "2e3", Some(2000 * ONE), "2000"),
            ("memory", "1.5Gi", Some(1536 * (1 << 20) * ONE), "1536Mi"),
            ("memory", "1M", Some(1_000_000 * ONE), "1000000"),
            ("requests.storage", "10Gi", Some(10 * (1 << 30) * ONE), "10Gi"),
            ("pods", "1024", Some(1024 * ONE), "1024"),
            ("pods", "many", None, ""),
        ] {
            assert_eq!(amount(written), in_billionths, "{written}");
            if let Some(amount) = in_billionths {
                assert_eq!(text(what, amount), message, "{written}");
            }
        }
    }

    #[test]
    fn a_pod_takes_what_runs_at_once() {
        let container = |cpu: &str| json!({"name": "x", "resources": {"requests": {"cpu": cpu}}});
        let sidecar = |cpu: &str| json!({"name": "s", "restartPolicy": "Always", "resources": {"requests": {"cpu": cpu}}});
        for (spec, millis) in [
            (json!({"containers": [container("1"), container("500m")]}), 1500),
            (json!({"containers": [container("1")], "initContainers": [container("3")]}), 3000),
            (json!({"containers": [container("1")], "initContainers": [sidecar("1"), container("3")]}), 4000),
            (json!({"containers": [container("1")], "initContainers": [container("1"), sidecar("1")]}), 2000),
            (json!({"containers": [container("1")], "overhead": {"cpu": "250m"}}), 1250),
            (json!({"containers": [container("1")], "resources": {"requests": {"cpu": "5"}}}), 5000),
            (json!({"containers": [{"name": "x", "resources": {"limits": {"cpu": "2"}}}]}), 2000),
        ] {
            let pod = defaulted(json!({"spec": spec}), &[]);
            let taken = of_pod(&pod);
            for what in ["cpu", "requests.cpu"] {
                assert_eq!(taken.get(what), Some(&(millis * (ONE / 1000))), "{pod}");
            }
            let mut over = pod.clone();
            over["status"]["phase"] = json!("Failed");
            assert_eq!(of_pod(&over), Amounts::from([("count/pods".to_owned(), ONE)]));
        }
    }

    #[test]
    fn what_a_container_does_not_say_a_limit_range_says() {
        let range = json!({"spec": {"limits": [{"type": "Container", "default": {"cpu": "2"}, "defaultRequest": {"cpu": "1"}}]}});
        let pod = json!({"spec": {"containers": [{"name": "db"}]}});
        let hard = json!({"limits.cpu": "4", "pods": "9"});
        let bare = defaulted(pod.clone(), &[]);
        assert_eq!(unspecified(&bare, &hard).as_deref(), Some("must specify limits.cpu for: db"));
        assert!(is_best_effort(&bare));
        let pod = defaulted(pod, &[range]);
        assert_eq!((unspecified(&pod, &hard), is_best_effort(&pod)), (None, false));
        assert_eq!((of_pod(&pod)["requests.cpu"], of_pod(&pod)["limits.cpu"]), (ONE, 2 * ONE));
    }
}
