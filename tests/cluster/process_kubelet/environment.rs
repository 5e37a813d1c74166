//! What a process is given: words, variables, files, folders.

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use serde_json::json;

use crate::process_kubelet::kit::{World, create, shell, with};

#[tokio::test]
#[ignore = "nightly"]
async fn volumes_are_mounted_where_the_container_expects_them() {
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
