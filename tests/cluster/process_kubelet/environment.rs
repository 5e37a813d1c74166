//! What a process is given: words, variables, files, folders.

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use serde_json::json;

use crate::process_kubelet::kit::{World, create, shell, with};

#[tokio::test]
#[ignore = "nightly"]
async fn a_process_gets_its_variables_from_all_their_sources() {
    let world = World::new("env").await;
    let map = json!({"metadata": {"name": "m"}, "data": {"COLOUR": "green", "key": "from map"}});
    create::<ConfigMap>(&world.api(), map).await;
    create::<Secret>(&world.api(), json!({"metadata": {"name": "s"}, "stringData": {"password": "pw"}}))
        .await;
    let field =
        |name: &str, path: &str| json!({"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}});
    let script = "env | sort | grep -E '^(M_|P_|N_|URL|PASSWORD|KEY|ARG)'; echo args $0 $1";
    let main = with(
        json!({"name": "main", "image": "tools:1", "command": ["sh", "-c"], "args": [script, "$(P_NAME)", "$(NONE)"]}),
        json!({
            "envFrom": [{"prefix": "M_", "configMapRef": {"name": "m"}}, {"secretRef": {"name": "none", "optional": true}}],
            "env": [
                field("P_NAME", "metadata.name"), field("P_NAMESPACE", "metadata.namespace"), field("P_UID", "metadata.uid"),
                field("P_LABEL", "metadata.labels['app']"), field("P_NOTE", "metadata.annotations['a/note']"),
                field("P_IP", "status.podIP"), field("N_NAME", "spec.nodeName"),
                {"name": "PASSWORD", "valueFrom": {"secretKeyRef": {"name": "s", "key": "password"}}},
                {"name": "KEY", "valueFrom": {"configMapKeyRef": {"name": "m", "key": "key"}}},
                {"name": "URL", "value": "http://$(P_IP):80/$(P_NAME)"},
            ],
        }),
    );
    let metadata = json!({"name": "p", "labels": {"app": "web"}, "annotations": {"a/note": "n"}});
    world.labelled(metadata, json!({"restartPolicy": "Never", "containers": [main]})).await;
    let pod = world.until_phase("p", "Succeeded").await;
    let (ip, uid, ns) = (world.address("p"), pod["metadata"]["uid"].as_str().unwrap(), &*world.ns);
    assert_eq!(pod["status"]["podIP"], ip);
    assert!(ip.starts_with("127."));
    let expected = [
        "KEY=from map".to_owned(),
        "M_COLOUR=green".to_owned(),
        "M_key=from map".to_owned(),
        format!("N_NAME={ns}"),
        format!("P_IP={ip}"),
        "P_LABEL=web".to_owned(),
        "P_NAME=p".to_owned(),
        format!("P_NAMESPACE={ns}"),
        "P_NOTE=n".to_owned(),
        format!("P_UID={uid}"),
        "PASSWORD=pw".to_owned(),
        format!("URL=http://{ip}:80/p"),
        "args p $(NONE)".to_owned(),
    ];
    let told = world.logs(&["p"]).await;
    let mut told: Vec<&str> = told.lines().collect();
    told.sort_unstable();
    let mut expected: Vec<&str> = expected.iter().map(String::as_str).collect();
    expected.sort_unstable();
    assert_eq!(told, expected);
}

#[tokio::test]
#[ignore = "nightly"]
async fn volumes_are_files_and_folders_where_the_container_expects_them() {
    let world = World::new("volumes").await;
    let map = json!({"metadata": {"name": "m"}, "data": {"a.conf": "one", "b.conf": "two"}});
    create::<ConfigMap>(&world.api(), map).await;
    create::<Secret>(&world.api(), json!({"metadata": {"name": "s"}, "stringData": {"password": "pw"}}))
        .await;
    let script =
        "cat /etc/app/a.conf /etc/app/b.conf; echo; cat /etc/single.conf; echo; cat /all/x/password; echo
        cat /all/name; echo; echo here > /scratch/file; cat /sub/file; ls /scratch/deep; cat note; pwd
        test -s /var/run/secrets/kubernetes.io/serviceaccount/token && echo token";
    let main = with(
        shell("main", script),
        json!({
            "workingDir": "/scratch/deep",
            "volumeMounts": [
                {"name": "map", "mountPath": "/etc/app"}, {"name": "map", "mountPath": "/etc/single.conf", "subPath": "b.conf"},
                {"name": "all", "mountPath": "/all"}, {"name": "scratch", "mountPath": "/scratch"},
                {"name": "scratch", "mountPath": "/sub", "subPath": ""}, {"name": "scratch", "mountPath": "/deep", "subPath": "deep"},
            ],
        }),
    );
    let first = with(
        shell("first", "echo noted > /here/note"),
        json!({"volumeMounts": [{"name": "scratch", "mountPath": "/here", "subPath": "deep"}]}),
    );
    let volumes = json!([
        {"name": "map", "configMap": {"name": "m"}}, {"name": "scratch", "emptyDir": {}},
        {"name": "all", "projected": {"sources": [
            {"secret": {"name": "s", "items": [{"key": "password", "path": "x/password"}]}},
            {"downwardAPI": {"items": [{"path": "name", "fieldRef": {"fieldPath": "metadata.name"}}]}},
        ]}},
    ]);
    let spec = json!({"restartPolicy": "Never", "initContainers": [first], "containers": [main], "volumes": volumes});
    world.pod("p", spec).await;
    world.until_phase("p", "Succeeded").await;
    let told = world.logs(&["p"]).await;
    let told: Vec<&str> = told.lines().collect();
    assert_eq!(told[..7], ["onetwo", "two", "pw", "p", "here", "note", "noted"]);
    assert!(told[7].ends_with("/scratch/deep"), "{told:?}");
    assert_eq!(told[8], "token");
}
