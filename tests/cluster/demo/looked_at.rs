//! A served demo with an unmodified kubectl. Tests that change the fleet have a demo of their own.

use std::process::Stdio;
use std::time::Duration;

use windlass::clock::on_the_wall;

use crate::demo::kit::{PATIENCE, Served, shared, text, windlass};

#[test]
fn get_prints_the_columns_of_the_definitions() {
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
#[ignore = "nightly"]
fn get_prints_the_columns_that_built_in_kinds_have() {
    let demo = shared();
    for (kind, words) in [
        ("pods", "NAME READY STATUS RESTARTS AGE"),
        ("statefulsets", "NAME READY AGE"),
        ("services", "NAME TYPE CLUSTER-IP EXTERNAL-IP PORT(S) AGE"),
        ("nodes", "NAME STATUS ROLES AGE VERSION"),
        ("events", "LAST SEEN TYPE REASON OBJECT MESSAGE"),
        ("namespaces", "NAME STATUS AGE"),
        ("controllerrevisions", "NAME CONTROLLER REVISION AGE"),
        ("crd", "NAME CREATED AT"),
    ] {
        let printed = demo.kubectl(&format!("get {kind}"));
        let head: Vec<&str> = printed.lines().next().unwrap().split_whitespace().collect();
        assert_eq!(head.join(" "), words, "{printed}");
        assert!(printed.lines().count() > 1, "{printed}");
    }
    let all = demo.kubectl("get all");
    for name in ["pod/db-0-0", "service/db-0", "statefulset.apps/db-0"] {
        assert!(all.contains(name), "{all}");
    }
    assert!(demo.kubectl("get pods -o wide").contains("node-a"), "wide columns too");
}

#[test]
fn yaml_jsonpath_and_raw_show_the_objects() {
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
fn describe_shows_an_object_with_its_events() {
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
fn explain_tells_the_fields() {
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
fn what_a_played_node_cannot_do_is_said_so() {
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
#[ignore = "nightly"]
fn built_in_objects_are_applied_and_taken_away() {
    let demo = shared();
    let service = |port: u16| {
        format!(
            "apiVersion: v1\nkind: Service\nmetadata: {{name: extra}}\nspec:\n  selector: {{a: b}}\n  ports:\n  - {{name: web, port: {port}}}\n  - {{name: more, port: 90}}\n"
        )
    };
    let apply = |text: &str| {
        let (code, out, err) = demo.fed("apply -f -", text);
        assert_eq!((code, err.as_str()), (0, ""), "{out}");
        out
    };
    assert_eq!(apply(&service(80)), "service/extra created\n");
    assert_eq!(apply(&service(80)), "service/extra unchanged\n");
    assert_eq!(apply(&service(81)), "service/extra configured\n");
    assert_eq!(demo.kubectl("get svc extra -o jsonpath={.spec.ports[*].port}"), "81 90");
    let (code, _, err) = demo.fed("apply -f -", &service(81).replace("selector", "selektor"));
    assert!(code != 0 && err.contains("unknown field \"spec.selektor\""), "{err}");
    let (code, out, err) = demo.fed("diff -f -", &service(82));
    assert!(code == 1 && out.contains("+  - name: web") || out.contains("port: 82"), "{out}{err}");
    let (code, out, err) = demo.fed(
        "apply --server-side -f -",
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\ndata: {a: b}\n",
    );
    assert_eq!((code, out.as_str()), (0, "configmap/c serverside-applied\n"), "{err}");
    assert_eq!(
        demo.kubectl("delete svc/extra cm/c"),
        "service \"extra\" deleted from default namespace\nconfigmap \"c\" deleted from default namespace\n"
    );
}

#[test]
fn a_fleet_is_changed_watched_and_deleted_and_ctrl_c_ends_it() {
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

#[test]
#[ignore = "nightly"]
fn its_page_shows_what_status_says() {
    let served = shared();
    let output = windlass().args(["status", "nd/db"]).env("KUBECONFIG", &served.kubeconfig).output().unwrap();
    let (said, complaints) = text(&output);
    assert_eq!(output.status.code(), Some(0), "{complaints}");
    let nodes =
        said.lines().last().unwrap().split_once("● ").unwrap_or_else(|| panic!("{said}")).1.to_owned();
    assert!(nodes.starts_with("5 nodes serve "), "{said}");
    let (base, _) = served.page.split_once("/?token=").unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let read = runtime.block_on(async {
        let http = reqwest::Client::builder().no_proxy().redirect(reqwest::redirect::Policy::none());
        let http = http.build().unwrap();
        let fleet = format!("{base}/fleets/default/db");
        assert_eq!(http.get(&fleet).send().await.unwrap().status(), 401, "without what it printed");
        let opened = http.get(&served.page).send().await.unwrap();
        let cookie = opened.headers()["set-cookie"].to_str().unwrap().split(';').next().unwrap().to_owned();
        let answer = http.get(&fleet).header("cookie", cookie).send().await.unwrap();
        assert_eq!(answer.status(), 200);
        answer.text().await.unwrap()
    });
    for words in [nodes.as_str(), "What happened", "What comes next"] {
        assert!(read.contains(words), "{words}: {read}");
    }
}
