//! Compares the rights that a release grants the operator with those that it uses: runs every feature under the
//! chart's rights, cluster-wide and in one namespace, and compares the audit log with the API server's rules.

use std::collections::BTreeSet;
use std::time::Duration;

use kube::api::{DynamicObject, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use windlass::clock::monotonic;
use windlass_process_kubelet::Image;

use crate::install::installed::{image, pods, release};
use windlass_harness::controlplane::{Audit, Mark, Options};
use windlass_harness::systems::cluster::{Cluster, Place, applied};

const PATIENCE: Duration = Duration::from_mins(2);
const GROUP: &str = "windlass.dev/v1alpha1";

/// Rights that are granted but not used by a request of their own, with the reason. A row that is not granted, or
/// used after all, fails the test.
const UNUSED: [(&str, &str, &str, &str); 3] = [
    ("windlass.dev", "nodedeployments/finalizers", "update", OWNERS),
    ("windlass.dev", "statefulnodes/finalizers", "update", OWNERS),
    ("", "persistentvolumeclaims", "delete", OWNERS),
];
const OWNERS: &str = "asked for by the plugin OwnerReferencesPermissionEnforcement where a child names its owner; \
                      tests/cluster/rbac takes it away and is refused";

/// The API server's default rights of every account that the operator uses.
const OF_EVERYBODY: [(&str, &str, &str); 0] = [];

/// A right or a request: namespace (empty: cluster-wide), API group, resource with subresource, and verb.
type Right = (String, String, String, String);

fn words(list: &Value) -> Vec<String> {
    list.as_array().into_iter().flatten().map(|word| word.as_str().unwrap().to_owned()).collect()
}

/// All rights of this account, by roles that are bound to it by name.
async fn granted(cluster: &Cluster, namespace: &str, account: &str) -> BTreeSet<Right> {
    let objects = async |kinds: &str| {
        let said = cluster.cp.kubectl(&["get", kinds, "-A", "-o", "json"]).await.ok();
        serde_json::from_str::<Value>(&said).unwrap()["items"].as_array().unwrap().clone()
    };
    let (bindings, roles) =
        (objects("clusterrolebindings,rolebindings").await, objects("clusterroles,roles").await);
    let is_its = |subject: &Value| {
        subject["kind"] == "ServiceAccount" && subject["name"] == account && subject["namespace"] == namespace
    };
    let mut all = BTreeSet::new();
    for binding in &bindings {
        if !binding["subjects"].as_array().into_iter().flatten().any(is_its) {
            continue;
        }
        let place = binding["metadata"]["namespace"].as_str().unwrap_or_default();
        let names = |role: &&Value| {
            let own = role["metadata"]["namespace"].as_str().unwrap_or_default();
            role["kind"] == binding["roleRef"]["kind"]
                && role["metadata"]["name"] == binding["roleRef"]["name"]
                && (own.is_empty() || own == place)
        };
        let role = roles.iter().find(names).expect("the role of a binding");
        for rule in role["rules"].as_array().into_iter().flatten() {
            assert!(
                rule["resourceNames"].is_null() && rule["nonResourceURLs"].is_null(),
                "not read here: {rule}"
            );
            for group in words(&rule["apiGroups"]) {
                for resource in words(&rule["resources"]) {
                    for verb in words(&rule["verbs"]) {
                        assert!([&group, &resource, &verb].iter().all(|word| *word != "*"), "{rule}");
                        all.insert((place.to_owned(), group.clone(), resource.clone(), verb));
                    }
                }
            }
        }
    }
    assert!(!all.is_empty(), "nothing is granted to {namespace}/{account}");
    all
}

/// All requests, with their namespace. Discovery names no resource.
fn asked(audit: &Audit) -> BTreeSet<Right> {
    let entries = audit.entries().iter().filter(|entry| !entry.object_ref.resource.is_empty());
    entries
        .map(|entry| {
            let object = &entry.object_ref;
            let part = if object.subresource.is_empty() { "" } else { "/" };
            let resource = format!("{}{part}{}", object.resource, object.subresource);
            (object.namespace.clone(), object.group.clone(), resource, entry.verb.clone())
        })
        .collect()
}

/// Fails unless all requests were granted, and all grants used or listed in `UNUSED`.
async fn compare(cluster: &Cluster, mark: Mark, namespace: &str, account: &str) {
    let granted = granted(cluster, namespace, account).await;
    let user = format!("system:serviceaccount:{namespace}:{account}");
    let covers = |right: &Right, request: &Right| {
        (right.0.is_empty() || right.0 == request.0)
            && (&right.1, &right.2, &right.3) == (&request.1, &request.2, &request.3)
    };
    let reasons: BTreeSet<(&str, &str, &str)> =
        UNUSED.iter().map(|(group, resource, verb, _)| (*group, *resource, *verb)).collect();
    let until = monotonic() + PATIENCE;
    loop {
        let audit = cluster.cp.audit_since(mark).await.user(&user);
        let refused = audit.refused();
        assert!(refused.is_empty(), "{user} was not allowed to {refused:#?}");
        let asked = asked(&audit);
        let beyond: Vec<&Right> = asked
            .iter()
            .filter(|request| !granted.iter().any(|right| covers(right, request)))
            .filter(|r| !OF_EVERYBODY.contains(&(&*r.1, &*r.2, &*r.3)))
            .collect();
        assert!(beyond.is_empty(), "used, and not of the release's rights: {beyond:#?}");
        let (used, unused): (Vec<_>, Vec<_>) =
            granted.iter().partition(|right| asked.iter().any(|request| covers(right, request)));
        let has_reason = |right: &Right| reasons.contains(&(&*right.1, &*right.2, &*right.3));
        let stale: Vec<_> = used.into_iter().filter(|right| has_reason(right)).collect();
        assert!(stale.is_empty(), "used, and said not to be: {stale:#?}");
        let unused: BTreeSet<_> = unused.into_iter().collect();
        for (group, resource, verb, why) in UNUSED {
            let there = unused.iter().any(|(_, g, r, v)| (&**g, &**r, &**v) == (group, resource, verb));
            assert!(there, "{verb} of {resource} is not granted, and said to be: {why}");
        }
        let without: Vec<_> = unused.into_iter().filter(|right| !has_reason(right)).collect();
        if without.is_empty() {
            return;
        }
        assert!(monotonic() < until, "granted, never used, and without a reason: {without:#?}");
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

/// The address of the hooks' peer. Of a pod itself, the kubelet says 127.0.0.1.
const PEER: &str = "127.0.0.2";

/// A peer of hooks that answers 200 to everything, until dropped.
async fn peer() -> (u16, tokio::task::JoinHandle<()>) {
    let listener = tokio::net::TcpListener::bind((PEER, 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let serving = tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let _ = stream.read(&mut [0; 4096]).await;
                let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
                let _ = stream.write_all(answer).await;
            });
        }
    });
    (port, serving)
}

fn job(name: &str, at: &str, command: &[&str]) -> Value {
    let container = json!({"name": name, "image": "app:1", "command": command});
    let pod =
        json!({"restartPolicy": "Never", "terminationGracePeriodSeconds": 0, "containers": [container]});
    json!({"name": name, "at": at, "job": {"template": {"backoffLimit": 0, "template": {"spec": pod}}}})
}

fn fleet(name: &str, replicas: usize, strategy: &Value) -> Value {
    let claim = json!({"metadata": {"name": "data"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Mi"}}}});
    json!({
        "apiVersion": GROUP, "kind": "NodeDeployment", "metadata": {"name": name},
        "spec": {
            "replicas": replicas, "revisionHistoryLimit": 0, "updateStrategy": strategy,
            "service": {"ports": [{"port": 5432}]},
            "template": {"spec": {
                "image": "app:1", "volumeClaimRetention": "Delete", "volumeClaimTemplates": [claim],
                "podTemplate": {"spec": {
                    "terminationGracePeriodSeconds": 0,
                    "containers": [{"name": name, "image": "app:1", "command": ["sleep", "100000"]}],
                }},
            }},
        },
    })
}

async fn create(place: &Place<'_>, object: Value) {
    let (version, kind) = (object["apiVersion"].as_str().unwrap(), object["kind"].as_str().unwrap());
    let object: DynamicObject = serde_json::from_value(object.clone()).unwrap();
    place.api(version, kind).create(&PostParams::default(), &object).await.expect("it is created");
}

async fn patch(place: &Place<'_>, name: &str, change: Value) {
    let fleets = place.api(GROUP, "NodeDeployment");
    fleets.patch(name, &PatchParams::default(), &Patch::Merge(change)).await.expect("it is patched");
}

async fn rolled(place: &Place<'_>, name: &str, tag: &str) {
    patch(place, name, json!({"spec": {"template": {"spec": {"image": tag}}}})).await;
    over(place, name).await;
}

async fn over(place: &Place<'_>, name: &str) -> Value {
    let over = |db: &Value| applied(db) && db["status"]["rollout"].is_null();
    place.until((GROUP, "NodeDeployment", name), over).await.expect("its rollout is over")
}

/// Every feature of the operator.
async fn everything(place: &Place<'_>, peer: u16) {
    // Created, with claims and a Service, and rolled twice with hooks: the revision before the last is deleted.
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "peer"}, "stringData": {"token": "s3cret"}});
    create(place, secret).await;
    let told = json!({"name": "tell", "at": "AfterNode", "http": {
        "url": format!("http://{PEER}:{peer}/moved"), "intervalSeconds": 1,
        "headers": [{"name": "Authorization", "secretKeyRef": {"name": "peer", "key": "token"}}]}});
    let hooks = json!([job("backup", "BeforeRollout", &["true"]), told]);
    create(place, fleet("db", 2, &json!({"type": "InPlace", "hooks": hooks}))).await;
    over(place, "db").await;
    rolled(place, "db", "app:2").await;
    rolled(place, "db", "app:3").await;

    // A Job is running and its rollout is rolled back: it is deleted.
    let slow = job("backup", "BeforeRollout", &["sleep", "100000"]);
    patch(place, "db", json!({"spec": {"updateStrategy": {"hooks": [slow]}}})).await;
    patch(place, "db", json!({"spec": {"template": {"spec": {"image": "app:2"}}}})).await;
    let runs = |db: &Value| {
        db["status"]["plan"]["tasks"].as_array().is_some_and(|tasks| {
            tasks.iter().any(|task| task["type"] == "run-job" && task["state"] == "Running")
        })
    };
    place.until((GROUP, "NodeDeployment", "db"), runs).await.expect("the Job is under way");
    patch(
        place,
        "db",
        json!({"spec": {"updateStrategy": {"hooks": []}, "template": {"spec": {"image": "app:3"}}}}),
    )
    .await;
    over(place, "db").await;

    // Fields that apply at once, and a fleet that is released and adopted again.
    patch(place, "db", json!({"spec": {"service": {"ports": [{"port": 5433}]}, "deletionPolicy": "Retain"}}))
        .await;
    let alone = |node: &Value| node["metadata"]["ownerReferences"].as_array().is_none_or(Vec::is_empty);
    place.until((GROUP, "StatefulNode", "db-0"), alone).await.expect("the node has no owner");
    patch(place, "db", json!({"spec": {"service": null, "deletionPolicy": "Delete"}})).await;
    place.until((GROUP, "StatefulNode", "db-0"), |node| !alone(node)).await.expect("the node is owned again");
    place.until(("v1", "Service", "db"), Value::is_null).await.expect("the Service is gone");

    patch(place, "db", json!({"spec": {"replicas": 1}})).await;
    place.until((GROUP, "StatefulNode", "db-1"), Value::is_null).await.expect("a node leaves");
    over(place, "db").await;

    // A set takes over from another.
    let promotion = json!({"type": "BlueGreen", "blueGreen": {"retireDelaySeconds": 0}});
    create(place, fleet("bg", 1, &promotion)).await;
    let first = over(place, "bg").await["status"]["activeSet"].clone();
    rolled(place, "bg", "app:2").await;
    let retired = |bg: &Value| bg["status"]["activeSet"] != first && bg["status"]["retiring"].is_null();
    place.until((GROUP, "NodeDeployment", "bg"), retired).await.expect("the old set is gone");

    // A revision that is no longer watched is read by name.
    let db = place.get(GROUP, "NodeDeployment", "db").await.unwrap();
    let revision = db["status"]["updateRevision"].as_str().expect("a revision").to_owned();
    place
        .kubectl(&["label", "controllerrevision", &revision, "windlass.dev/deployment-"])
        .await
        .expect("the label goes");
    rolled(place, "db", "app:1").await;

    // A pod that is refused, and a name that is taken.
    let mut ghost = fleet("ghost", 1, &json!({"type": "InPlace"}));
    ghost["spec"]["template"]["spec"]["podTemplate"]["spec"]["serviceAccountName"] = json!("ghost");
    create(place, ghost).await;
    let failed = |node: &Value| node["status"]["phase"] == "Failed";
    place.until((GROUP, "StatefulNode", "ghost-0"), failed).await.expect("the refusal of the pod is known");
    let labels = json!({"app": "other"});
    let pod =
        json!({"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "app:1"}]}});
    let mine = json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "other-0"}, "spec": {
        "serviceName": "other", "replicas": 0, "selector": {"matchLabels": labels}, "template": pod}});
    create(place, mine).await;
    create(place, fleet("other", 1, &json!({"type": "InPlace"}))).await;
    let refused = |node: &Value| {
        let mut conditions = node["status"]["conditions"].as_array().into_iter().flatten();
        conditions.any(|c| c["type"] == "Stalled" && c["reason"] == "InvalidSpec")
    };
    place
        .until((GROUP, "StatefulNode", "other-0"), refused)
        .await
        .expect("the node says that its name is taken");
}

/// Reads /metrics with a token, which the operator reviews with the API server.
async fn scraped(cluster: &Cluster, namespace: &str) {
    let pods = pods(&cluster.cp.client().await, namespace).await;
    let token = cluster.cp.service_account_token("default", "prometheus").await.unwrap();
    let http = reqwest::Client::builder().no_proxy().build().unwrap();
    for pod in pods {
        let url = format!("http://{}:8080/metrics", pod["status"]["podIP"].as_str().unwrap());
        let answer = http.get(url).bearer_auth(&token).send().await.unwrap();
        assert_eq!(answer.status(), 403, "its account may not");
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "nightly"]
async fn what_a_release_is_granted_it_uses_and_what_it_uses_it_is_granted() {
    if !crate::install::helm::is_there() {
        return;
    }
    let options = Options { crds: false, ..Options::default() };
    let cluster = Cluster::start_with(options).await.expect("a cluster");
    cluster.images.add("windlass:0.1.0", image(&cluster));
    for tag in ["app:1", "app:2", "app:3"] {
        cluster.images.add(tag, Image::new());
    }
    let (port, serving) = peer().await;
    let all =
        "rbac.hookJobs=true,rbac.claimOwners=true,metrics.tokenReview=true,extraArgs={--hook-host=127.0.0.2}";
    for (namespace, watched) in [("windlass-system", false), ("team-system", true)] {
        let place = cluster.namespace(if watched { "team" } else { "shop" }).await;
        let mut into = vec!["install", "windlass", "-n", namespace, "--create-namespace", "--set", all];
        let watch = format!("watchNamespaces={{{}}}", &*place.ns);
        if watched {
            // The definitions stay, and belong to the previous release.
            into.extend(["--set", &watch, "--set", "crds.install=false"]);
        }
        let mark = cluster.cp.audit_mark().await;
        release(&cluster, &into).ok();
        everything(&place, port).await;
        scraped(&cluster, namespace).await;
        compare(&cluster, mark, namespace, "windlass").await;
        place.kubectl(&["delete", "nd", "--all", "--wait"]).await.expect("the fleets go");
        release(&cluster, &["uninstall", "windlass", "-n", namespace, "--wait"]).ok();
    }
    serving.abort();
}
