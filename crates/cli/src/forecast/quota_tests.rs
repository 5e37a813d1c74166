use super::*;

/// `+a` is created, `-a` is removed, `~a` gets another pod; all at the same revision.
fn waves(of: &[&str]) -> Vec<MoveWave> {
    let node = |word: &str| {
        let action = match &word[..1] {
            "+" => Action::Create,
            "~" => Action::Update,
            _ => Action::Remove,
        };
        Move { name: word[1..].to_owned(), action, revision: "new".to_owned(), domain: None, last: false }
    };
    let wave = |words: &&str| MoveWave {
        when: "then".to_owned(),
        nodes: words.split_whitespace().map(node).collect(),
    };
    of.iter().map(wave).collect()
}

fn spec(resources: &Value) -> Arc<StatefulNodeSpec> {
    let spec = serde_json::from_value(json!({
        "podTemplate": {"spec": {"containers": [{"name": "db", "image": "db:2", "resources": resources}]}},
        "volumeClaimTemplates": [
            {"metadata": {"name": "data"}, "spec": {"resources": {"requests": {"storage": "10Gi"}}}},
            {"metadata": {"name": "log"}, "spec": {"storageClassName": "fast",
                "resources": {"requests": {"storage": "1Gi"}}}},
        ],
    }));
    Arc::new(spec.expect("a node's spec"))
}

fn pod(node: &str, resources: &Value) -> Value {
    json!({"metadata": {"labels": {LABEL_NODE: node}}, "spec": {"containers": [{"name": "db", "resources": resources}]}})
}

fn quota(what: &str, hard: &str, used: &str) -> Value {
    let hard = json!({what: hard});
    json!({"metadata": {"name": "few"}, "spec": {"hard": hard}, "status": {"hard": hard, "used": {what: used}}})
}

/// The judgement of a quota on nodes whose pods have these resources; each existing pod requests 1 CPU and 1 GiB.
fn message(quota: Value, of: &[&str], resources: &Value) -> QuotaVerdict {
    let now = json!({"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "1", "memory": "1Gi"}});
    let pods = ["a", "b"].map(|node| pod(node, &now));
    let made = spec(resources);
    let made = CreatedNodes { spec: &|_| Some(made.clone()), has_claim: &|claim| claim.ends_with("-kept-0") };
    let read = Read { quotas: vec![quota], pods: pods.into(), ..Read::default() };
    judge(read, &waves(of), &made)
}

#[test]
fn quota_is_checked_against_its_hard_limit() {
    let all = json!({"requests": {"cpu": "1500m", "memory": "1Gi"}, "limits": {"cpu": "2", "memory": "2Gi"}});
    let refused = |what: &str, more: &str, used: &str, hard: &str| {
        Some(format!(
            "exceeded quota: few, requested: {what}={more}, used: {what}={used}, limited: {what}={hard}"
        ))
    };
    let of_class = "fast.storageclass.storage.k8s.io/requests.storage";
    for (what, hard, used, of, expected) in [
        ("pods", "3", "2", &["+c"][..], None),
        ("pods", "3", "2", &["+c +d"], refused("pods", "2", "2", "3")),
        ("pods", "2", "2", &["~a ~b"], None),
        // A scale-down exceeds a quota at first, while all nodes exist.
        ("pods", "3", "2", &["+c +d", "-a -b"], refused("pods", "2", "2", "3")),
        ("pods", "2", "2", &["-a -b", "+c +d"], None),
        ("count/pods", "2", "2", &["+c"], refused("count/pods", "1", "2", "2")),
        (
            "count/statefulnodes.windlass.dev",
            "2",
            "2",
            &["+c"],
            refused("count/statefulnodes.windlass.dev", "1", "2", "2"),
        ),
        ("count/statefulnodes.windlass.dev", "2", "2", &["~a"], None),
        // A removal frees its usage.
        ("requests.cpu", "3", "2", &["~a", "~b"], None),
        ("requests.cpu", "2500m", "2", &["~a", "~b"], refused("requests.cpu", "3", "0", "2500m")),
        ("cpu", "2", "2", &["~b"], refused("cpu", "1500m", "1", "2")),
        ("limits.cpu", "4", "2", &["~a ~b"], None),
        ("limits.cpu", "3", "2", &["~a ~b"], refused("limits.cpu", "4", "0", "3")),
        ("requests.memory", "2Gi", "2Gi", &["~a ~b"], None),
        ("memory", "3Gi", "2Gi", &["+c +d"], refused("memory", "2Gi", "2Gi", "3Gi")),
        ("limits.memory", "5Gi", "2Gi", &["+c +d"], refused("limits.memory", "4Gi", "2Gi", "5Gi")),
        // A node that is created in one wave and updated in a later one has one pod.
        ("pods", "3", "2", &["+c", "~c"], None),
        ("requests.cpu", "3500m", "2", &["+c", "~c"], None),
        ("pods", "3", "2", &["+c", "-c", "+d"], None),
        // A lowered quota refuses what it accepted before.
        ("pods", "1", "2", &["~a"], refused("pods", "1", "1", "1")),
        ("persistentvolumeclaims", "6", "4", &["+c"], None),
        ("persistentvolumeclaims", "5", "4", &["+c"], refused("persistentvolumeclaims", "2", "4", "5")),
        // A retained claim is reused; a node that keeps its claim creates none.
        ("persistentvolumeclaims", "4", "4", &["+kept ~a"], None),
        ("requests.storage", "32Gi", "22Gi", &["+c"], refused("requests.storage", "11Gi", "22Gi", "32Gi")),
        ("requests.storage", "33Gi", "22Gi", &["+c"], None),
        ("services", "0", "0", &["+c"], None),
    ] {
        let message = message(quota(what, hard, used), of, &all);
        assert_eq!(message.refused, expected, "{what} {of:?}");
        assert!(message.unread.is_empty(), "{message:?}");
    }
    let unchecked = message(quota(of_class, "2Gi", "2Gi"), &["+c"], &all);
    let expected = format!("{of_class} of quota few not checked: it is limited to a storage class");
    assert_eq!((unchecked.refused, unchecked.unread), (None, vec![expected]));
}

/// A `LimitRange` may fill in what a container does not set.
#[test]
fn quota_is_unchecked_for_resources_no_container_sets() {
    let unset = |what: &str, field: &str| {
        vec![format!("{what} of quota few not checked: container db does not set resources.{field}")]
    };
    let limited = json!({"limits": {"cpu": "1"}});
    for (what, resources, expected) in [
        ("requests.cpu", json!({}), unset("requests.cpu", "requests.cpu")),
        ("cpu", json!({}), unset("cpu", "requests.cpu")),
        ("requests.cpu", limited.clone(), vec![]),
        ("limits.memory", limited, unset("limits.memory", "limits.memory")),
        ("pods", json!({}), vec![]),
        ("requests.storage", json!({}), vec![]),
    ] {
        let message = message(quota(what, "900Gi", "0"), &["~a"], &resources);
        assert_eq!((message.refused, message.unread), (None, expected), "{what}");
    }
}

#[test]
fn quota_with_scopes_is_not_checked() {
    let full = quota("pods", "2", "2");
    let selector = json!({"matchExpressions": [{"scopeName": "PriorityClass", "operator": "Exists"}]});
    for (field, scope) in [("scopes", json!(["BestEffort"])), ("scopeSelector", selector)] {
        let mut quota = full.clone();
        quota["spec"][field] = scope;
        let message = message(quota, &["+c"], &json!({}));
        assert_eq!(message.unread, ["quota few not checked: it has scopes"]);
        assert_eq!(message.refused, None);
    }
}

#[test]
fn pod_usage_is_the_peak_of_its_containers() {
    let container = |cpu: &str| json!({"name": "x", "resources": {"requests": {"cpu": cpu}}});
    let sidecar =
        |cpu: &str| json!({"name": "s", "restartPolicy": "Always", "resources": {"requests": {"cpu": cpu}}});
    for (spec, millis) in [
        (json!({"containers": [container("1"), container("500m")]}), 1500),
        (json!({"containers": [container("1")], "initContainers": [container("3")]}), 3000),
        (json!({"containers": [container("1")], "initContainers": [container("1"), sidecar("1")]}), 2000),
        (json!({"containers": [container("1")], "resources": {"requests": {"cpu": "5"}}}), 5000),
        (json!({"containers": [{"name": "x", "resources": {"limits": {"cpu": "2"}}}]}), 2000),
    ] {
        let mut pod = json!({"spec": spec});
        for what in ["cpu", "requests.cpu"] {
            assert_eq!(of_pod(&pod).get(what), Some(&(millis * (NANOS / 1000))), "{pod}");
        }
        pod["status"]["phase"] = json!("Failed");
        assert_eq!(of_pod(&pod), Amounts::from([("count/pods".to_owned(), NANOS)]));
    }
}
