//! The chart: what it renders, that kustomize renders the same, and that unknown values are refused.

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::install::helm::{Objects, helm, is_there, objects, path, rendered};
use crate::install::references::is_as_generated;

/// Labels that Helm adds.
const HELMS: [&str; 2] = ["helm.sh/chart", "app.kubernetes.io/managed-by"];
const GENERATED: &str = "# Made from the chart: UPDATE_DEPLOY=1 cargo test --test cluster kustomize\n";

/// The rendered objects, without the tools' own labels.
fn bare(mut all: Objects) -> Objects {
    all.retain(|(kind, ..), _| kind != "Namespace");
    for object in all.values_mut() {
        for part in ["/metadata/labels", "/metadata/annotations"] {
            if let Some(map) = object.pointer_mut(part).and_then(Value::as_object_mut) {
                map.retain(|key, _| !HELMS.contains(&key.as_str()) && key != "helm.sh/resource-policy");
            }
        }
        fold(object);
        let metadata = object["metadata"].as_object_mut().unwrap();
        metadata.retain(|_, value| *value != json!({}));
    }
    all
}

/// Joins lines: differently folded texts are equal except for white space.
fn fold(value: &mut Value) {
    match value {
        Value::String(text) => *text = text.split_whitespace().collect::<Vec<_>>().join(" "),
        Value::Array(items) => items.iter_mut().for_each(fold),
        Value::Object(fields) => fields.values_mut().for_each(fold),
        _ => {}
    }
}

fn kustomized(folder: &str) -> Objects {
    // In the control plane's version: kustomize is part of kubectl.
    let program = windlass_harness::controlplane::binary().expect("a kubectl");
    let output = Command::new(program).args(["kubectl", "kustomize"]).arg(path(folder)).output();
    let output = output.expect("it starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    objects(&String::from_utf8(output.stdout).unwrap())
}

/// The chart's documents that kustomize builds on, without Helm's labels.
fn documents(sets: &[&str], wanted: impl Fn(&Value) -> bool) -> String {
    let text = rendered(sets).ok();
    let lines = text.lines().filter(|line| {
        let line = line.trim_start();
        !line.starts_with("# Source:") && !HELMS.iter().any(|label| line.starts_with(&format!("{label}:")))
    });
    let text = lines.collect::<Vec<_>>().join("\n");
    let documents = text.split("\n---\n").map(|d| d.trim_start_matches("---\n").trim());
    let documents = documents.filter(|d| {
        let read: Vec<Value> = serde_saphyr::from_multiple(d).unwrap_or_default();
        read.first().is_some_and(|object| object.is_object() && wanted(object))
    });
    format!("{GENERATED}{}\n", documents.collect::<Vec<_>>().join("\n---\n"))
}

const NAMESPACED: &str = "watchNamespaces={windlass-system}";

#[test]
fn kustomize_renders_the_same_as_the_chart() {
    if !is_there() {
        return;
    }
    if std::env::var_os("UPDATE_DEPLOY").is_some() {
        std::fs::write(path("deploy/kustomize/base/windlass.yaml"), documents(&[], |_| true)).unwrap();
        let rights = documents(&[NAMESPACED], |object| {
            matches!(object["kind"].as_str(), Some("Role" | "RoleBinding"))
                && !object["metadata"]["name"].as_str().unwrap().ends_with("-leader-election")
        });
        std::fs::write(path("deploy/kustomize/overlays/namespaced/rights.yaml"), rights).unwrap();
    }
    for (folder, sets) in
        [("deploy/kustomize/base", &[][..]), ("deploy/kustomize/overlays/namespaced", &[NAMESPACED])]
    {
        let (of_kustomize, of_helm) = (bare(kustomized(folder)), bare(objects(&rendered(sets).ok())));
        let names = |all: &Objects| all.keys().cloned().collect::<Vec<_>>();
        assert_eq!(names(&of_kustomize), names(&of_helm), "{folder}");
        for (key, object) in of_helm {
            assert_eq!(of_kustomize[&key], object, "{folder}: {key:?}; UPDATE_DEPLOY=1 makes it anew");
        }
    }
}

#[test]
fn chart_passes_lint_and_rejects_a_misspelt_value() {
    if !is_there() {
        return;
    }
    let chart = path("deploy/helm/windlass");
    let said = helm(Path::new("/nonexistent"), &["lint", "--strict", chart.to_str().unwrap()]).ok();
    assert!(said.contains("0 chart(s) failed"), "{said}");
    for (set, name) in [
        ("replica=3", "'replica'"),
        ("image.tagg=1", "'tagg'"),
        ("metrics.serviceMonitor.enable=true", "'enable'"),
        ("logFormat=xml", "logFormat"),
        ("image.digest=sha256:1", "digest"),
        ("watchNamespaces={Shop}", "watchNamespaces"),
        ("traces.otlpEndpoint=grpc://x", "otlpEndpoint"),
        ("metrics.tokenReview=true,metrics.podMonitor.enabled=true", "set metrics.tokenSecret.create"),
        ("metrics.tokenSecret.nam=x", "'nam'"),
        ("resources.limit.memory=1Gi", "'limit'"),
        ("affinity.nodeAfinity.x=y", "'nodeAfinity'"),
        ("tolerations[0].keys=db", "'keys'"),
        ("extraEnv[0].name=A,extraEnv[0].val=b", "'val'"),
        ("imagePullSecrets[0].secret=pull", "'secret'"),
        ("topologySpreadConstraints[0].maxSkews=1", "'maxSkews'"),
        ("networkPolicy.egress[0].port=443", "'port'"),
        ("networkPolicy.from[0].selector.a=b", "'selector'"),
        ("windlass-crds.instal=true", "'instal'"),
        ("statefulSets.enable=false", "'enable'"),
    ] {
        let said = rendered(&[set]);
        assert!(!said.ok && said.err.contains(name), "{set}: {}{}", said.out, said.err);
    }
}

#[test]
fn chart_operator_is_restricted_spread_and_leader_elected() {
    if !is_there() {
        return;
    }
    let all = objects(&rendered(&[]).ok());
    let pod = &all[&("Deployment".into(), "windlass-system".into(), "windlass".into())]["spec"];
    assert_eq!(pod["replicas"], 2);
    let spec = &pod["template"]["spec"];
    assert_eq!(spec["topologySpreadConstraints"].as_array().map(Vec::len), Some(2));
    assert_eq!(
        (&spec["securityContext"]["runAsNonRoot"], &spec["securityContext"]["runAsUser"]),
        (&json!(true), &json!(65532))
    );
    let container = &spec["containers"][0];
    let expected = json!({"allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true, "capabilities": {"drop": ["ALL"]}});
    assert_eq!(container["securityContext"], expected);
    assert!(container["args"].as_array().unwrap().contains(&json!("--leader-elect")));
    let digest = format!("sha256:{}", "a".repeat(64));
    let sets = [
        format!("image.repository=registry.example/windlass,image.digest={digest}"),
        "extraArgs={--hook-host=a.example}".to_owned(),
        "extraEnv[0].name=RUST_LOG,extraEnv[0].value=debug".to_owned(),
        "priorityClassName=high,labels.team=db,podLabels.a=b,podAnnotations.c=d,nodeSelector.disk=ssd"
            .to_owned(),
        "affinity.nodeAffinity.x=y,tolerations[0].key=db,imagePullSecrets[0].name=pull".to_owned(),
        "serviceAccount.annotations.e=f,serviceAccount.name=other".to_owned(),
    ];
    let all = objects(&rendered(&sets.each_ref().map(String::as_str)).ok());
    let template =
        &all[&("Deployment".into(), "windlass-system".into(), "windlass".into())]["spec"]["template"];
    let (meta, spec) = (&template["metadata"], &template["spec"]);
    let container = &spec["containers"][0];
    for (found, expected) in [
        (&container["image"], json!(format!("registry.example/windlass@{digest}"))),
        (&container["args"].as_array().unwrap().last().cloned().unwrap(), json!("--hook-host=a.example")),
        (&container["env"], json!([{"name": "RUST_LOG", "value": "debug"}])),
        (&spec["priorityClassName"], json!("high")),
        (&spec["nodeSelector"], json!({"disk": "ssd"})),
        (&spec["tolerations"], json!([{"key": "db"}])),
        (&spec["affinity"], json!({"nodeAffinity": {"x": "y"}})),
        (&spec["imagePullSecrets"], json!([{"name": "pull"}])),
        (&spec["serviceAccountName"], json!("other")),
        (&meta["labels"]["team"], json!("db")),
        (&meta["labels"]["a"], json!("b")),
        (&meta["annotations"]["c"], json!("d")),
    ] {
        assert_eq!(*found, expected);
    }
}

#[test]
fn unready_operator_does_not_block_node_drain() {
    for file in ["deploy/operator.yaml", "deploy/kustomize/base/windlass.yaml"] {
        let all = objects(&std::fs::read_to_string(path(file)).unwrap());
        let budget = &all[&("PodDisruptionBudget".into(), "windlass-system".into(), "windlass".into())];
        assert_eq!(budget["spec"]["unhealthyPodEvictionPolicy"], "AlwaysAllow", "{file}");
    }
}

#[test]
fn optional_chart_parts_are_rendered_on_request() {
    if !is_there() {
        return;
    }
    let sets = [
        "watchNamespaces={a,b},rbac.claimOwners=true,rbac.hookJobs=true,rbac.references=true,networkPolicy.egress[0].ports[0].port=443",
        "metrics.serviceMonitor.enabled=true,metrics.serviceMonitor.labels.release=prom,metrics.podMonitor.enabled=true",
        "metrics.prometheusRule.enabled=true,metrics.dashboard.enabled=true",
    ];
    let all = objects(&rendered(&sets).ok());
    let get = |kind: &str, namespace: &str, name: &str| {
        let key = (kind.to_owned(), namespace.to_owned(), name.to_owned());
        all.get(&key).unwrap_or_else(|| panic!("{key:?} is not among {:#?}", all.keys().collect::<Vec<_>>()))
    };
    let system = "windlass-system";
    for namespace in ["a", "b"] {
        for name in ["", "-claim-owners", "-hook-jobs", "-references", "-stateful-sets"] {
            let name = &format!("windlass{name}");
            assert_eq!(get("RoleBinding", namespace, name)["subjects"][0]["namespace"], system);
            assert!(!get("Role", namespace, name)["rules"].as_array().unwrap().is_empty());
        }
    }
    assert!(!all.keys().any(|(kind, _, name)| kind == "ClusterRole" && name == "windlass"));
    assert_eq!(get("NetworkPolicy", system, "windlass")["spec"]["policyTypes"], json!(["Ingress", "Egress"]));
    let monitor = get("ServiceMonitor", system, "windlass");
    assert_eq!(
        (&monitor["metadata"]["labels"]["release"], &monitor["spec"]["endpoints"][0]["honorLabels"]),
        (&json!("prom"), &json!(true))
    );
    assert_eq!(get("PodMonitor", system, "windlass")["spec"]["podMetricsEndpoints"][0]["port"], "http");
    let alerts = std::fs::read_to_string(path("deploy/monitoring/alerts.yaml")).unwrap();
    let alerts: Value = serde_saphyr::from_str(&alerts).unwrap();
    assert_eq!(get("PrometheusRule", system, "windlass")["spec"], alerts);
    let dashboard = get("ConfigMap", system, "windlass-dashboard")["data"]["windlass.json"].as_str().unwrap();
    assert!(serde_json::from_str::<Value>(dashboard).unwrap()["panels"].is_array());
    let bound = &get("ValidatingAdmissionPolicyBinding", "", "windlass-retain")["spec"]["matchResources"];
    assert_eq!(bound["namespaceSelector"]["matchExpressions"][0]["values"], json!(["a", "b"]));
}

#[test]
fn protected_metrics_and_traces_add_arguments_and_permissions() {
    if !is_there() {
        return;
    }
    let sets = [
        "metrics.tokenReview=true,metrics.serviceMonitor.enabled=true",
        "traces.otlpEndpoint=http://otel:4318",
    ];
    let all = objects(&rendered(&sets).ok());
    let get = |kind: &str, namespace: &str, name: &str| &all[&(kind.into(), namespace.into(), name.into())];
    let system = "windlass-system";
    let args = &get("Deployment", system, "windlass")["spec"]["template"]["spec"]["containers"][0]["args"];
    for argument in ["--metrics-auth=token-review", "--otlp-endpoint=http://otel:4318"] {
        assert!(args.as_array().unwrap().contains(&json!(argument)), "{args}");
    }
    let rules = &get("ClusterRole", "", "windlass-metrics")["rules"];
    let granted: Vec<&Value> = rules.as_array().unwrap().iter().map(|rule| &rule["resources"]).collect();
    assert_eq!(granted, [&json!(["tokenreviews"]), &json!(["subjectaccessreviews"])]);
    assert_eq!(get("ClusterRoleBinding", "", "windlass-metrics")["subjects"][0]["namespace"], system);
    let reads = &get("ClusterRole", "", "windlass-metrics-reader")["rules"];
    assert_eq!(*reads, json!([{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}]));
    let endpoint = &get("ServiceMonitor", system, "windlass")["spec"]["endpoints"][0];
    assert!(endpoint["bearerTokenFile"].is_string());
    let shown = objects(&rendered(&["dashboard.enabled=true,dashboard.hosts={fleets.example}"]).ok());
    let container = &shown[&("Deployment".into(), system.into(), "windlass".into())]["spec"]["template"]["spec"]
        ["containers"][0];
    for argument in ["--dashboard", "--dashboard-bind=0.0.0.0:8082", "--dashboard-host=fleets.example"] {
        assert!(container["args"].as_array().unwrap().contains(&json!(argument)), "{container:#}");
    }
    let port = json!({"name": "dashboard", "containerPort": 8082});
    assert!(container["ports"].as_array().unwrap().contains(&port), "{container:#}");
    let service = &shown[&("Service".into(), system.into(), "windlass-dashboard".into())]["spec"]["ports"][0];
    assert_eq!(service["targetPort"], "dashboard");
    let plain = objects(&rendered(&[]).ok());
    assert!(!plain.keys().any(|(_, _, name)| name == "windlass-metrics-reader"));
}

#[test]
fn certificates_and_tokens_of_servers_are_mounted_for_their_flags() {
    if !is_there() {
        return;
    }
    let sets = [
        "prometheus.url=https://p:9090,prometheus.caSecret=p-ca,prometheus.tokenSecret=p-token",
        "prometheus.headers.X-Scope-OrgID=shop,traces.otlpEndpoint=https://otel:4318,traces.caSecret=otel-ca",
    ];
    let pod = |sets: &[&str]| {
        let all = objects(&rendered(sets).ok());
        all[&("Deployment".into(), "windlass-system".into(), "windlass".into())]["spec"]["template"]["spec"]
            .clone()
    };
    let spec = pod(&sets);
    let container = &spec["containers"][0];
    let arguments: Vec<&str> =
        container["args"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    let mut flags: Vec<_> =
        arguments.iter().filter(|a| a.starts_with("--prom") || a.starts_with("--otlp")).collect();
    flags.sort();
    let expected = [
        "--otlp-ca-file=/etc/windlass/otlp-ca/ca.crt",
        "--otlp-endpoint=https://otel:4318",
        "--prometheus-ca-file=/etc/windlass/prometheus-ca/ca.crt",
        "--prometheus-header=X-Scope-OrgID=shop",
        "--prometheus-token-file=/etc/windlass/prometheus-token/token",
        "--prometheus-url=https://p:9090",
    ];
    assert_eq!(flags, expected.iter().collect::<Vec<_>>());
    let item = |key: &str| json!([{"key": key, "path": key}]);
    let volume = |name: &str, secret: &str, key: &str| json!({"name": name, "secret": {"secretName": secret, "items": item(key)}});
    let volumes = json!([
        volume("otlp-ca", "otel-ca", "ca.crt"),
        volume("prometheus-ca", "p-ca", "ca.crt"),
        volume("prometheus-token", "p-token", "token"),
    ]);
    assert_eq!(spec["volumes"], volumes);
    let mounts: Vec<_> =
        container["volumeMounts"].as_array().unwrap().iter().map(|m| &m["mountPath"]).collect();
    let paths =
        ["otlp-ca", "prometheus-ca", "prometheus-token"].map(|name| json!(format!("/etc/windlass/{name}")));
    assert_eq!(mounts, paths.iter().collect::<Vec<_>>());
    assert!(pod(&[])["volumes"].is_null());
}

#[test]
fn temporal_workers_add_argument_permissions_and_definition() {
    if !is_there() {
        return;
    }
    let all = objects(&rendered(&["temporal.enabled=true"]).ok());
    let get = |kind: &str, namespace: &str, name: &str| &all[&(kind.into(), namespace.into(), name.into())];
    let system = "windlass-system";
    let container = &get("Deployment", system, "windlass")["spec"]["template"]["spec"]["containers"][0];
    assert!(container["args"].as_array().unwrap().contains(&json!("--temporal")), "{container:#}");
    let text = std::fs::read_to_string(path("deploy/temporal/all-namespaces.yaml")).unwrap();
    let documented =
        &objects(&text)[&("ClusterRole".into(), String::new(), "windlass-temporal".into())]["rules"];
    assert_eq!(get("ClusterRole", "", "windlass-temporal")["rules"], *documented);
    assert_eq!(get("ClusterRoleBinding", "", "windlass-temporal")["subjects"][0]["namespace"], system);
    for kind in ["workerdeployments", "temporalconnections", "clustertemporalconnections"] {
        let definition = get("CustomResourceDefinition", "", &format!("{kind}.windlass.dev"));
        assert_eq!(definition["metadata"]["annotations"]["helm.sh/resource-policy"], "keep");
    }
    let text = std::fs::read_to_string(path("deploy/temporal/cluster-connections.yaml")).unwrap();
    let name = "windlass-cluster-connections";
    let documented = &objects(&text)[&("ClusterRole".into(), String::new(), name.into())]["rules"];
    assert_eq!(get("ClusterRole", "", name)["rules"], *documented);
    get("ValidatingAdmissionPolicyBinding", "", "windlass-connections");
    for role in ["windlass-view", "windlass-edit"] {
        let seen = get("ClusterRole", "", role)["rules"][0]["resources"].as_array().unwrap();
        for kind in ["workerdeployments", "temporalconnections"] {
            assert!(seen.contains(&json!(kind)), "{role}: {seen:?}");
        }
    }
    let in_one = objects(&rendered(&["temporal.enabled=true,watchNamespaces={a},crds.install=false"]).ok());
    assert!(in_one.contains_key(&("Role".into(), "a".into(), "windlass-temporal".into())));
    assert!(!in_one.keys().any(|(kind, ..)| kind == "CustomResourceDefinition"));
    let resources =
        std::fs::read_to_string(path("deploy/temporal/worker-resources-all-namespaces.yaml")).unwrap();
    let documented = &objects(&resources)
        [&("ClusterRole".into(), String::new(), "windlass-worker-resources".into())]["rules"];
    assert_eq!(get("ClusterRole", "", "windlass-worker-resources")["rules"], *documented);
    let policy = ("ValidatingAdmissionPolicy".into(), String::new(), "windlass-worker-resources".into());
    let shipped = objects(&std::fs::read_to_string(path("deploy/policies/worker-resources.yaml")).unwrap());
    assert_eq!(all[&policy]["spec"], shipped[&policy]["spec"]);
    let kind = "temporal.enabled=true,temporal.workerResources[0].kind=ScaledObject,temporal.workerResources[0].group=keda.sh,\
                temporal.workerResources[0].resource=scaledobjects";
    let other = rendered(&[kind]).ok();
    assert!(other.contains("--worker-resource=ScaledObject.keda.sh"), "{other}");
    assert!(!other.contains("--worker-resource=HorizontalPodAutoscaler"), "{other}");
    let other = objects(&other);
    assert_eq!(
        other[&policy]["spec"]["variables"][0]["expression"],
        "{'ScaledObject.keda.sh': 'scaledobjects'}"
    );
    let role = &other[&("ClusterRole".into(), String::new(), "windlass-worker-resources".into())];
    assert_eq!(role["rules"][0]["resources"], json!(["scaledobjects"]));
    let plain = rendered(&[]).ok();
    assert!(!plain.contains("workerdeployments") && !plain.contains("--temporal"));
    assert!(!plain.contains("temporalconnections"));
}

#[test]
fn statefulset_rollouts_can_be_left_out_of_the_chart() {
    if !is_there() {
        return;
    }
    let key = |kind: &str, name: &str| (kind.to_owned(), String::new(), name.to_owned());
    let all = objects(&rendered(&[]).ok());
    let definition = &all[&key("CustomResourceDefinition", "statefulsetrollouts.windlass.dev")];
    assert_eq!(definition["metadata"]["annotations"]["helm.sh/resource-policy"], "keep");
    assert!(all.contains_key(&key("ClusterRoleBinding", "windlass-stateful-sets")));
    for (role, resource) in [
        ("windlass-view", "statefulsetrollouts"),
        ("windlass-view", "statefulsetrollouts/status"),
        ("windlass-edit", "statefulsetrollouts"),
        ("windlass-admin", "statefulsetrollouts/status"),
    ] {
        let granted = all[&key("ClusterRole", role)]["rules"][0]["resources"].as_array().unwrap();
        assert!(granted.contains(&json!(resource)), "{role}: {granted:?}");
    }
    let container = |all: &Objects| {
        let key = ("Deployment".into(), "windlass-system".into(), "windlass".into());
        all[&key]["spec"]["template"]["spec"]["containers"][0].to_string()
    };
    assert!(!container(&all).contains("--stateful-sets"));
    assert!(
        !objects(&rendered(&["crds.install=false"]).ok())
            .keys()
            .any(|(kind, ..)| kind == "CustomResourceDefinition")
    );

    let without = objects(&rendered(&["statefulSets.enabled=false,policies.hold=true"]).ok());
    assert!(container(&without).contains("\"--stateful-sets=false\""));
    assert!(!without.keys().any(|(kind, ..)| kind == "MutatingAdmissionPolicy"));
    assert!(!without.values().any(|object| object.to_string().contains("statefulsetrollouts")));
    assert!(!without.keys().any(|(.., name)| name == "windlass-stateful-sets"));
}

#[test]
fn hold_policy_names_the_service_account_of_the_release() {
    if !is_there() {
        return;
    }
    let key = |kind: &str| (kind.to_owned(), String::new(), "windlass-hold".to_owned());
    let plain = objects(&rendered(&[]).ok());
    assert!(!plain.contains_key(&key("MutatingAdmissionPolicy")));
    let all = objects(&rendered(&["policies.hold=true,serviceAccount.name=other,watchNamespaces={a}"]).ok());
    let policy = &all[&key("MutatingAdmissionPolicy")]["spec"];
    let condition = policy["matchConditions"][0]["expression"].as_str().unwrap();
    assert_eq!(condition, "request.userInfo.username != 'system:serviceaccount:windlass-system:other'");
    let binding = &all[&key("MutatingAdmissionPolicyBinding")]["spec"];
    assert_eq!(binding["policyName"], "windlass-hold");
    let bound = &binding["matchResources"]["namespaceSelector"]["matchExpressions"][0]["values"];
    assert_eq!(*bound, json!(["a"]));
    let shipped = objects(&std::fs::read_to_string(path("deploy/policies/hold.yaml")).unwrap());
    let as_shipped = objects(&rendered(&["policies.hold=true"]).ok());
    assert_eq!(
        as_shipped[&key("MutatingAdmissionPolicy")]["spec"],
        shipped[&key("MutatingAdmissionPolicy")]["spec"]
    );
    let chart = path("deploy/helm/windlass");
    let earlier = ["--kube-version", "1.35", "--set", "policies.hold=true"];
    let words = [&["template", "windlass", chart.to_str().unwrap()][..], &earlier].concat();
    let said = helm(Path::new("/nonexistent"), &words);
    assert!(!said.ok && said.err.contains("policies.hold needs Kubernetes 1.36"), "{}{}", said.out, said.err);
}

/// The chart grants the operator the same as deploy/rbac, which another test compares with its requests.
#[test]
fn chart_grants_the_same_as_deploy_rbac() {
    if !is_there() {
        return;
    }
    let rules =
        |all: &Objects, name: &str| all[&("ClusterRole".into(), String::new(), name.into())]["rules"].clone();
    // A right to create Jobs allows anything, and ConfigMaps are private: both are granted only on request.
    let requested = ["\"jobs\"", "\"configmaps\"", "\"priorityclasses\""];
    for plain in [&[][..], &["watchNamespaces={a}"]] {
        let all = objects(&rendered(plain).ok());
        for right in requested {
            assert!(!all.values().any(|o| o["rules"].to_string().contains(right)), "{plain:?}: {right}");
        }
    }
    let sets = "rbac.hookJobs=true,rbac.claimOwners=true,rbac.references=true,drain.enabled=true";
    let of_chart = objects(&rendered(&[sets]).ok());
    for right in requested {
        assert!(of_chart.values().any(|o| o["rules"].to_string().contains(right)), "{right}");
    }
    for (file, name) in [
        ("all-namespaces", "windlass"),
        ("hook-jobs-all-namespaces", "windlass-hook-jobs"),
        ("claim-owners-all-namespaces", "windlass-claim-owners"),
        ("stateful-sets-all-namespaces", "windlass-stateful-sets"),
        ("references-all-namespaces", "windlass-references"),
        ("priority-classes", "windlass-priority-classes"),
        ("drain", "windlass-drain"),
    ] {
        let text = std::fs::read_to_string(path(&format!("deploy/rbac/{file}.yaml"))).unwrap();
        assert_eq!(rules(&of_chart, name), rules(&objects(&text), name), "{file}");
    }
}

/// Every value with its default and its description, from the comments above it.
fn table(values: &str) -> String {
    let mut rows = String::from("| value | default | what it is |\n|---|---|---|\n");
    let (mut at, mut said): (Vec<(usize, String)>, Vec<String>) = (Vec::new(), Vec::new());
    let lines: Vec<&str> = values.lines().collect();
    for (index, line) in lines.iter().enumerate() {
        let depth = line.len() - line.trim_start().len();
        let line = line.trim();
        if let Some(comment) = line.strip_prefix('#') {
            said.push(comment.trim().to_owned());
            continue;
        }
        let Some((key, value)) = line.split_once(':') else { continue };
        at.retain(|(of, _)| *of < depth);
        at.push((depth, key.to_owned()));
        let name: Vec<&str> = at.iter().map(|(_, key)| key.as_str()).collect();
        let (value, text) = (value.trim(), std::mem::take(&mut said).join(" "));
        let has_more =
            lines[index + 1..].first().is_some_and(|next| next.starts_with(&" ".repeat(depth + 2)));
        if text.is_empty() {
            assert!(has_more || name.len() > 2, "{} is not explained", name.join("."));
        } else {
            let shown = if has_more { "see values.yaml" } else { value };
            rows.extend([format!("| `{}` | `{shown}` | {text} |\n", name.join("."))]);
        }
    }
    rows
}

#[test]
fn all_values_are_documented_and_listed() {
    let values = std::fs::read_to_string(path("deploy/helm/windlass/values.yaml")).unwrap();
    let head = "# Values of the chart\n\nMade from `deploy/helm/windlass/values.yaml`: UPDATE_DOCS=1 cargo test --test cluster values\n\n";
    is_as_generated("docs/reference/helm-values.md", &format!("{head}{}", table(&values)));
    let schema: Value = serde_json::from_str(
        &std::fs::read_to_string(path("deploy/helm/windlass/values.schema.json")).unwrap(),
    )
    .unwrap();
    let values: Value = serde_saphyr::from_str(&values).unwrap();
    for key in values.as_object().unwrap().keys() {
        assert!(schema["properties"][key].is_object(), "values.schema.json does not know {key}");
    }
    let mut open = Vec::new();
    open_objects(&schema, "", &mut open);
    assert!(open.iter().all(|path| OF_KUBERNETES.iter().any(|known| path == known)), "{open:?}");
}

/// Kubernetes objects within values, which the API server validates.
const OF_KUBERNETES: [&str; 13] = [
    "networkPolicy.from.podSelector",
    "networkPolicy.from.namespaceSelector",
    "networkPolicy.from.ipBlock",
    "networkPolicy.egress.to",
    "networkPolicy.egress.ports",
    "extraEnv.valueFrom",
    "affinity.nodeAffinity",
    "affinity.podAffinity",
    "affinity.podAntiAffinity",
    "topologySpreadConstraints.labelSelector",
    "resources.claims",
    // Helm's own.
    "global",
    "windlass-crds.global",
];

/// The objects whose properties a schema does not restrict.
fn open_objects(schema: &Value, path: &str, into: &mut Vec<String>) {
    if schema["type"] == "object" && schema["additionalProperties"].is_null() {
        into.push(path.to_owned());
    }
    for (key, part) in schema["properties"].as_object().into_iter().flatten() {
        let dot = if path.is_empty() { "" } else { "." };
        open_objects(part, &format!("{path}{dot}{key}"), into);
    }
    if schema["items"].is_object() {
        open_objects(&schema["items"], path, into);
    }
}
