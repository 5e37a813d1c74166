use super::super::foreseen::Move;
use super::*;

/// `+a` is created, `-a` is removed, `~a` gets another pod; all at the same revision.
fn waves(of: &[&str]) -> Vec<MoveWave> {
    let node = |word: &str| {
        let action = match &word[..1] {
            "+" => Action::Create,
            "~" => Action::Update,
            _ => Action::Remove,
        };
        Move { name: word[1..].to_owned(), action, revision: "new".to_owned() }
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
    let made = Made { spec: &|_| Some(made.clone()), has_claim: &|claim| claim.ends_with("-kept-0") };
    let read = Read { quotas: vec![quota], pods: pods.into(), ..Read::default() };
    judge(read, &waves(of), &made)
}

#[test]
fn a_quota_has_room_for_as_much_as_it_says() {
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
    // The other claim's class is unknown: the quota's usage counts.
    let message = message(quota(of_class, "2Gi", "2Gi"), &["+c"], &all);
    assert_eq!(message.refused, refused(of_class, "1Gi", "2Gi", "2Gi"));
    assert!(message.unread.len() == 1 && message.unread[0].contains("storageClassName"), "{message:?}");
}

#[test]
fn a_quota_of_compute_refuses_pods_that_ask_for_nothing() {
    let must = |what: &str| Some(format!("failed quota: few: must specify {what} for: db"));
    let limited = json!({"limits": {"cpu": "1"}});
    for (what, resources, expected) in [
        ("requests.cpu", json!({}), must("requests.cpu")),
        ("requests.cpu", limited.clone(), None),
        ("limits.memory", limited, must("limits.memory")),
        ("pods", json!({}), None),
        ("requests.storage", json!({}), None),
    ] {
        assert_eq!(message(quota(what, "900Gi", "0"), &["~a"], &resources).refused, expected, "{what}");
    }
}

#[test]
fn a_quota_with_scopes_is_about_the_pods_that_they_name() {
    let full = quota("pods", "2", "2");
    let with = |spec: Value| {
        let mut quota = full.clone();
        let hard = quota["spec"]["hard"].clone();
        quota["spec"] = spec;
        quota["spec"]["hard"] = hard;
        quota
    };
    let selects = |scope: &str, operator: &str| json!({"scopeSelector": {"matchExpressions": [{"scopeName": scope, "operator": operator}]}});
    let (none, some) = (json!({}), json!({"requests": {"cpu": "1"}}));
    for (scope, resources, is_refused) in [
        (json!({"scopes": ["BestEffort"]}), &none, true),
        (json!({"scopes": ["BestEffort"]}), &some, false),
        (json!({"scopes": ["NotBestEffort"]}), &none, false),
        (json!({"scopes": ["NotBestEffort"]}), &some, true),
        (json!({"scopes": ["NotTerminating", "BestEffort"]}), &none, true),
        (json!({"scopes": ["Terminating"]}), &none, false),
        (selects("NotBestEffort", "Exists"), &some, true),
    ] {
        let message = message(with(scope.clone()), &["+c"], resources);
        assert_eq!((message.refused.is_some(), message.unread.len()), (is_refused, 0), "{scope} {resources}");
    }
    let message = message(with(selects("PriorityClass", "In")), &["+c"], &none);
    assert_eq!(message.unread, ["quota few is not looked at: its scope is PriorityClass"]);
    assert_eq!(message.refused, None);
}
