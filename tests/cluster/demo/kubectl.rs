//! A served demo with an unmodified kubectl. Tests that change the fleet have a demo of their own.

use std::process::Stdio;
use std::time::Duration;

use windlass::clock::on_the_wall;

use crate::demo::kit::{PATIENCE, Served, shared};

#[test]
fn kubectl_get_prints_definition_columns() {
    let demo = shared();
    let fleet = demo.kubectl("get nd");
    let mut lines = fleet.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    assert_eq!(
        lines.next().unwrap(),
        ["NAME", "STRATEGY", "DESIRED", "UPDATED", "READY", "PHASE", "ROLLOUT", "AGE"]
    );
    assert_eq!(lines.next().unwrap()[..6], ["db", "InPlace", "5", "5", "5", "Ready"]);
    let nodes = demo.kubectl("get sn -o wide");
    assert!(nodes.starts_with("NAME   PHASE     READY   IMAGE"), "{nodes}");
    assert_eq!(nodes.matches("registry.example/db:1.4").count(), 5, "{nodes}");
    assert!(demo.kubectl("get windlass").contains("nodedeployment.windlass.dev/db"), "by their category");
}

#[test]
fn kubectl_prints_objects_as_yaml_jsonpath_and_raw() {
    let demo = shared();
    let yaml = demo.kubectl("get nd db -o yaml");
    assert!(yaml.contains("kind: NodeDeployment") && yaml.contains("recipe: InPlace"), "{yaml}");
    assert_eq!(demo.kubectl("get nd db -o jsonpath={.status.phase}"), "Ready");
    assert!(demo.kubectl("get --raw /version").contains("v1.36.3"));
    assert!(demo.kubectl("version").contains("Server Version: v1.36.3"));
    assert!(demo.kubectl("get nd -l a!=b -o name").contains("nodedeployment.windlass.dev/db"));
}

#[test]
#[ignore = "nightly"]
fn kubectl_describe_shows_an_object_with_events() {
    let demo = shared();
    let fleet = demo.kubectl("describe nd db");
    for word in
        ["Kind:         NodeDeployment", "RolloutComplete", "RolloutSuperseded", "windlass.dev/operator"]
    {
        assert!(fleet.contains(word), "{word}: {fleet}");
    }
    assert!(!fleet.contains("<invalid>"), "no age is of the future: {fleet}");
    assert!(demo.kubectl("describe sn db-0").contains("NodeUpdate is complete"));
    assert!(demo.kubectl("describe pod db-0-0").contains("registry.example/db:1.4"));
    assert!(demo.kubectl("describe sts db-0").contains("1 Running"));
    assert!(demo.kubectl("events --for nd/db").contains("RolloutStarted"));
}

#[test]
#[ignore = "nightly"]
fn kubectl_explain_describes_the_fields() {
    let demo = shared();
    let strategy = demo.kubectl("explain nd.spec.updateStrategy.inPlace");
    assert!(strategy.contains("KIND:       NodeDeployment"), "{strategy}");
    assert!(strategy.contains("maxUnavailable") && strategy.contains("partition"), "{strategy}");
    let deletion = demo.kubectl("explain nd.spec.deletionPolicy");
    assert!(deletion.contains("ENUM:\n    Delete\n    Retain"), "{deletion}");
    assert!(demo.kubectl("explain sts.spec --recursive").contains("volumeClaimTemplates"));
    assert!(demo.refused("explain nd.spec.nonsense").contains("field \"nonsense\" does not exist"));
}

#[test]
#[ignore = "nightly"]
fn unsupported_requests_to_simulated_nodes_are_explained() {
    let demo = shared();
    for (arguments, sentence) in [
        ("logs db-0-0", "container logs of pod \"db-0-0\" are not available: its node is played"),
        ("exec db-0-0 -- ls", "exec of pod \"db-0-0\" is not possible: its node is played"),
        ("create configmap x --from-literal=a=b", "pipe that into kubectl apply -f -"),
        ("rollout status sts/db-0", "only available for RollingUpdate"),
        ("get nonsense", "the server doesn't have a resource type \"nonsense\""),
        ("get nd nonsense", "\"nonsense\" not found"),
        ("patch nd db --type=merge -p '{\"spec\":{\"replicas\":-1}}'", "spec.replicas"),
    ] {
        let said = demo.refused(arguments);
        assert!(said.contains(sentence), "{arguments}: {said}");
    }
    assert_eq!(demo.kubectl("auth can-i delete nd").trim(), "yes");
    assert!(demo.kubectl("api-resources").contains("nodedeployments"));
}

#[test]
fn served_demo_accepts_changes_and_ends_on_ctrl_c() {
    let demo = Served::start();
    let mut watch = demo.command("get nd -w").stdout(Stdio::piped()).spawn().unwrap();
    let fleet = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/fleet.yaml");
    // From here on time passes at real speed.
    demo.kubectl("patch nd db --type=merge -p 'spec: {minReadySeconds: 0}'");
    // The command that the demo shows.
    demo.kubectl("patch nd db --type=merge -p 'spec: {template: {spec: {image: registry.example/db:2.0}}}'");
    demo.until("get sn", |nodes| nodes.matches("db:2.0").count() == 5);
    assert!(demo.kubectl("annotate nd db note=x").contains("annotated"));
    assert!(demo.kubectl("scale nd db --replicas=3").contains("scaled"));
    demo.until("get pods -o name", |pods| pods.lines().count() == 3);
    let quick = std::fs::read_to_string(fleet).unwrap().replace("minReadySeconds: 4", "minReadySeconds: 0");
    assert_eq!(demo.fed("apply -f -", &quick).1, "nodedeployment.windlass.dev/db configured\n");
    let until = "get nd db -o jsonpath={.status.phase}{.status.readyReplicas}{.status.updatedReplicas}";
    demo.until(until, |said| said == "Ready55");
    assert_eq!(demo.fed("apply -f -", &quick).1, "nodedeployment.windlass.dev/db unchanged\n");
    assert!(demo.kubectl("wait nd/db --for=condition=Ready --timeout=30s").contains("condition met"));
    demo.kubectl("delete pod db-0-0 --wait=false");
    demo.kubectl("delete nd db");
    demo.until("get pods -o name", str::is_empty);
    watch.kill().unwrap();
    let output = watch.wait_with_output().unwrap();
    let seen = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(seen.matches("STRATEGY").count(), 1, "{seen}");
    assert!(seen.contains("Upgrading") && seen.contains("Updating 2/5"), "{seen}");
    let (kubeconfig, began) = (demo.kubeconfig.clone(), on_the_wall());
    assert!(kubeconfig.exists());
    assert_eq!(demo.interrupt(), Some(0));
    assert!(began.elapsed() < PATIENCE.min(Duration::from_secs(20)));
    assert!(!kubeconfig.exists(), "nothing is left behind");
}
