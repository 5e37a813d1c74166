//! The verbs as users of kubectl expect them: naming of objects, flags of the cluster and the user, and output; and
//! fields that are managed from a source elsewhere.

use kube::api::{DynamicObject, Patch, PatchParams};
use serde_json::{Value, json};

use crate::e2e::commands::{Ran, windlass, windlass_plain};
use windlass_harness::kit::{World, fleet};

fn named(name: &str) -> Value {
    let mut fleet = fleet(1, "db:1");
    fleet["metadata"]["name"] = name.into();
    fleet
}

/// Runs a command that must succeed without warnings; returns its output.
async fn done(world: &World, words: &[&str]) -> String {
    let Ran { code, out, err } = windlass(world, words).await;
    assert_eq!((code, err.as_str()), (0, ""), "{words:?}: {out}");
    out
}

async fn paused(world: &World) -> Vec<bool> {
    let mut paused = Vec::new();
    for name in ["db", "web"] {
        let fleet = world.get(&world.fleets(), name).await;
        paused.push(fleet["spec"]["paused"].as_bool().unwrap_or_default());
    }
    paused
}

#[tokio::test(flavor = "multi_thread")]
async fn objects_are_named_and_printed_as_in_kubectl() {
    let world = World::without_operator("named").await;
    world.fleet(named("db")).await;
    world.fleet(named("web")).await;

    assert_eq!(
        done(&world, &["pause", "nd/db", "nodedeployments.windlass.dev/web"]).await,
        "nodedeployment.windlass.dev/db paused\nnodedeployment.windlass.dev/web paused\n"
    );
    done(&world, &["resume", "nd", "db", "web"]).await;
    assert_eq!(paused(&world).await, [false, false]);

    let ran = windlass(&world, &["pause", "nd", "db", "none", "web"]).await;
    assert_eq!(ran.code, 1, "{}{}", ran.out, ran.err);
    assert!(ran.err.contains("nodedeployment.windlass.dev/none does not exist in namespace"), "{}", ran.err);
    assert_eq!(paused(&world).await, [true, true], "what one refuses keeps no other from it");

    done(&world, &["resume", "nd", "--all"]).await;
    assert_eq!(paused(&world).await, [false, false]);
    for (words, said) in [
        (vec!["pause", "nd"], "write nd/NAME, or nd --all"),
        (vec!["pause", "nd/db", "--all"], "--all needs a type without a name"),
        (vec!["pause", "nd/db", "web"], "write TYPE/NAME each time"),
        (vec!["pause", "nd/db", "-o", "wide"], "[possible values: json, yaml, name]"),
    ] {
        let ran = windlass(&world, &words).await;
        assert!(
            ran.code == 2 && ran.out.is_empty() && ran.err.contains(said),
            "{words:?}: {}{}",
            ran.out,
            ran.err
        );
    }
    let ran = windlass_plain(world.cp.kubeconfig(), &["pause", "nd/db", "-A"]).await;
    assert!(ran.code == 2 && ran.err.contains("TYPE --all"), "{}", ran.err);
    assert_eq!(paused(&world).await, [false, false]);

    let name = done(&world, &["pause", "nd/db", "nd/web", "-o", "name"]).await;
    assert_eq!(name, "nodedeployment.windlass.dev/db\nnodedeployment.windlass.dev/web\n");
    let object: Value =
        serde_json::from_str(&done(&world, &["resume", "nd/db", "-o", "json"]).await).unwrap();
    assert_eq!((&object["kind"], &object["spec"]["paused"]), (&json!("NodeDeployment"), &json!(false)));
    let yaml: Value =
        serde_saphyr::from_str(&done(&world, &["resume", "nd/db", "-o", "yaml"]).await).unwrap();
    assert_eq!(yaml, object, "nothing changed, so it is printed as it is");
    let planned: Value =
        serde_json::from_str(&done(&world, &["pause", "nd/db", "--dry-run", "-o", "json"]).await).unwrap();
    assert_eq!(planned["spec"]["paused"], true);
    assert_eq!(paused(&world).await, [false, true]);
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "nightly"]
async fn one_command_pauses_all_fleets_of_all_namespaces() {
    let (world, other) = (World::without_operator("all").await, World::without_operator("alltoo").await);
    for world in [&world, &other] {
        world.fleet(named("db")).await;
    }
    // The control plane is shared with other tests, so this is a dry run.
    let ran = windlass_plain(world.cp.kubeconfig(), &["pause", "nd", "--all", "-A", "--dry-run"]).await;
    for world in [&world, &other] {
        let line = format!("nodedeployment.windlass.dev/db in {} paused (dry run)\n", &*world.ns);
        assert!(ran.out.contains(&line), "{line} is not in {}{}", ran.out, ran.err);
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "nightly"]
async fn cluster_and_user_flags_work_as_in_kubectl() {
    let world = World::without_operator("flags").await;
    world.fleet(named("db")).await;
    world.fleet(named("web")).await;
    let admin: Value =
        serde_saphyr::from_str(&std::fs::read_to_string(world.cp.kubeconfig()).unwrap()).unwrap();
    let mut config = admin.clone();
    let mut elsewhere = admin["contexts"][0].clone();
    elsewhere["name"] = "nowhere".into();
    elsewhere["context"]["cluster"] = "nowhere".into();
    let mut here = admin["contexts"][0].clone();
    here["name"] = "here".into();
    here["context"]["namespace"] = (*world.ns).into();
    config["contexts"] = json!([elsewhere, here]);
    config["clusters"] =
        json!([admin["clusters"][0], {"name": "nowhere", "cluster": {"server": "https://127.0.0.1:1"}}]);
    config["current-context"] = "nowhere".into();
    let path = world.cp.kubeconfig().with_file_name(format!("{}-contexts.kubeconfig", &*world.ns));
    std::fs::write(&path, config.to_string()).unwrap();
    let path_text = path.to_str().unwrap();

    let none = std::path::Path::new("/nonexistent/kubeconfig");
    let pause = ["pause", "nd/db", "--kubeconfig", path_text];
    let ran = windlass_plain(none, &pause).await;
    assert!(ran.code == 1 && ran.err.contains("cannot reach the API server"), "{}{}", ran.out, ran.err);
    let ran = windlass_plain(none, &[&pause[..], &["--context", "here"]].concat()).await;
    assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{}", ran.out);
    let ran = windlass_plain(&path, &["pause", "nd/web", "--context", "here"]).await;
    assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{}", ran.out);
    assert_eq!(paused(&world).await, [true, true]);
    let ran = windlass_plain(&path, &["resume", "nd/web", "--context", "typo"]).await;
    assert!(ran.code == 1 && ran.err.contains("no context typo: it defines nowhere, here"), "{}", ran.err);

    let ran = windlass(&world, &["resume", "nd/db", "--as", "jo"]).await;
    assert!(ran.code == 1 && ran.err.contains("User \"jo\" cannot get"), "{}{}", ran.out, ran.err);
    let groups = ["--as", "jo", "--as-group", "system:masters", "--as-group", "oncall"];
    done(&world, &[&["resume", "nd/db", "--reason", "back"][..], &groups].concat()).await;
    let asked =
        world.get(&world.fleets(), "db").await["metadata"]["annotations"]["windlass.dev/last-request"]
            .clone();
    let asked: Value = serde_json::from_str(asked.as_str().unwrap()).unwrap();
    assert_eq!((&asked["by"], &asked["why"]), (&json!("jo"), &json!("back")));
    let ran = windlass(&world, &["resume", "nd/db", "--as-group", "oncall"]).await;
    assert!(ran.code == 2 && ran.err.contains("--as <USER>"), "{}", ran.err);
}

#[tokio::test(flavor = "multi_thread")]
async fn field_applied_by_a_source_changes_only_when_forced() {
    let world = World::new("gitops").await;
    world.settled_fleet(fleet(1, "db:1")).await;
    let apply = async |image: &str, paused: Option<bool>| {
        let mut of_git = fleet(1, image);
        of_git["apiVersion"] = "windlass.dev/v1alpha1".into();
        of_git["kind"] = "NodeDeployment".into();
        of_git["metadata"] = json!({"name": "db", "annotations": {"argocd.argoproj.io/tracking-id": "shop:windlass.dev/NodeDeployment:x/db"}});
        if let Some(paused) = paused {
            of_git["spec"]["paused"] = paused.into();
        }
        let of_git: DynamicObject = serde_json::from_value(of_git).unwrap();
        let params = PatchParams::apply("argocd-controller").force();
        world.fleets().patch("db", &params, &Patch::Apply(&of_git)).await.expect("it is applied");
    };
    apply("db:2", None).await;
    world.until_applied_again().await;
    assert_eq!(world.images().await, ["db:2"]);

    // The manifest in Git does not set `paused`.
    done(&world, &["pause", "nd/db"]).await;
    done(&world, &["resume", "nd/db"]).await;
    // The manifest in Git pauses the fleet.
    apply("db:2", Some(true)).await;
    let ran = windlass(&world, &["resume", "nd/db"]).await;
    assert!(ran.code == 1 && ran.out.is_empty(), "{}{}", ran.out, ran.err);
    for said in [
        "spec.paused is managed by argocd-controller",
        "Set spec.paused: false in the source of the Argo CD application shop",
    ] {
        assert!(ran.err.contains(said), "{said} is not in {}", ran.err);
    }
    apply("db:2", Some(false)).await;
    // The operator writes the status meanwhile.
    let before = world.db().await["metadata"]["generation"].clone();
    let ran = windlass(&world, &["pause", "nd/db"]).await;
    let said = "spec.paused is managed by argocd-controller, which would revert the change. Set spec.paused: true in the source of the \
                Argo CD application shop; use --force to write it anyway";
    assert!(ran.code == 1 && ran.out.is_empty() && ran.err.contains(said), "{}{}", ran.out, ran.err);
    let ran = windlass(&world, &["rollback", "nd/db"]).await;
    assert!(ran.code == 1 && ran.out.is_empty(), "{}", ran.out);
    for said in [
        "spec.template.spec is managed by argocd-controller",
        "to that of revision 1",
        "\"db:2\"",
        "\"db:1\"",
    ] {
        assert!(ran.err.contains(said), "{said} is not in {}", ran.err);
    }
    let ran = windlass(&world, &["rollback", "nd/db", "--dry-run"]).await;
    assert_eq!(ran.code, 1, "what would be refused is refused in a rehearsal, too: {}", ran.out);
    assert_eq!(world.db().await["metadata"]["generation"], before, "nothing was written");
    // Annotations are not in the manifest.
    done(&world, &["restart", "nd/db", "--dry-run"]).await;

    let out = done(&world, &["rollback", "nd/db", "--force"]).await;
    assert!(out.contains("rolled back to revision 1 (db:1)"), "{out}");
    done(&world, &["pause", "nd/db", "--force"]).await;
    assert_eq!(world.db().await["spec"]["paused"], true);
}

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_plugin_completes_names_and_prints_versions() {
    let mut world = World::without_operator("plugin").await;
    world.fleet(named("db")).await;
    world.fleet(named("web")).await;
    let node = json!({"metadata": {"name": "alone"}, "spec": {"podTemplate": {"spec": {"containers": [{"name": "x", "image": "x:1"}]}}}});
    world.create("windlass.dev/v1alpha1", "StatefulNode", node).await;

    let folder = world.cp.kubeconfig().with_file_name(format!("{}-plugins", &*world.ns));
    std::fs::create_dir_all(&folder).unwrap();
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_windlass"), folder.join("kubectl-windlass")).unwrap();
    let mut path = vec![folder, world.cp.bin()];
    path.extend(std::env::split_paths(&std::env::var_os("PATH").unwrap()));
    let path = std::env::join_paths(path).unwrap();
    let kubectl = async |words: &[&str]| {
        let mut command = tokio::process::Command::new("kubectl");
        command
            .args(words)
            .envs(world.cp.environment())
            .env("PATH", &path)
            .env("KUBECONFIG", world.cp.kubeconfig());
        let output = command.output().await.unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
    };
    let (code, out, err) = kubectl(&["windlass", "pause", "nd/db", "-n", &world.ns]).await;
    assert_eq!((code, out.as_str()), (0, "nodedeployment.windlass.dev/db paused\n"), "{err}");
    let (code, _, err) = kubectl(&["windlass", "pause"]).await;
    assert!(code == 2 && err.contains("see --help"), "{err}");

    // The request of the `windlass completion bash` script when Tab is pressed.
    let completed = async |words: &[&str]| {
        let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_windlass"));
        let index = (words.len() - 1).to_string();
        command.arg("--").args(words).env("KUBECONFIG", world.cp.kubeconfig());
        command.envs([("COMPLETE", "bash"), ("_CLAP_COMPLETE_INDEX", &index), ("_CLAP_IFS", "\n")]);
        command.envs([("_CLAP_COMPLETE_COMP_TYPE", "9"), ("_CLAP_COMPLETE_SPACE", "false")]);
        String::from_utf8(command.output().await.unwrap().stdout).unwrap()
    };
    let ns = &*world.ns;
    assert_eq!(completed(&["windlass", "pau"]).await, "pause");
    assert_eq!(completed(&["windlass", "pause", "-n", ns, "nd/"]).await, "nd/db\nnd/web");
    assert_eq!(completed(&["windlass", "pause", "-n", ns, "nd/w"]).await, "nd/web");
    assert_eq!(completed(&["windlass", "pause", "-n", ns, "nd", "d"]).await, "db");
    assert!(completed(&["windlass", "pause", "--dry"]).await.starts_with("--dry-run"));
    // And those of fish and zsh.
    for shell in ["fish", "zsh"] {
        let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_windlass"));
        command.args(["--", "windlass", "pause", "-n", ns, "nd/"]).env("KUBECONFIG", world.cp.kubeconfig());
        command.envs([("COMPLETE", shell), ("_CLAP_COMPLETE_INDEX", "4"), ("_CLAP_IFS", "\n")]);
        let offered = String::from_utf8(command.output().await.unwrap().stdout).unwrap();
        let names: Vec<&str> = offered.lines().filter_map(|line| line.split([':', '\t']).next()).collect();
        assert_eq!(names, ["nd/db", "nd/web"], "{shell}: {offered}");
        let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_windlass"));
        command
            .args(["--", "windlass", "explain", "-n", ns, "sn/al"])
            .env("KUBECONFIG", world.cp.kubeconfig());
        command.envs([("COMPLETE", shell), ("_CLAP_COMPLETE_INDEX", "4"), ("_CLAP_IFS", "\n")]);
        let offered = String::from_utf8(command.output().await.unwrap().stdout).unwrap();
        assert!(offered.contains("sn/alone"), "{shell}: {offered}");
    }
    for (shell, part) in [("bash", "complete "), ("zsh", "#compdef windlass"), ("fish", "complete ")] {
        let script = done_without_namespace(&world, &["completion", shell]).await;
        assert!(script.contains(part) && script.contains("COMPLETE"), "{shell}: {script}");
    }

    let pages = world.cp.kubeconfig().with_file_name(format!("{}-man", &*world.ns));
    done_without_namespace(&world, &["man", "--dir", pages.to_str().unwrap()]).await;
    let page = std::fs::read_to_string(pages.join("windlass-rollback.1")).unwrap();
    assert!(page.contains("\\-\\-force") && page.contains("Argo CD"), "{page}");

    let own = env!("CARGO_PKG_VERSION");
    let client = done_without_namespace(&world, &["version", "--client"]).await;
    assert_eq!(client, format!("Client Version: {own}\n"));
    let ran = windlass_plain(world.cp.kubeconfig(), &["version", "--operator-namespace", ns]).await;
    assert!(
        ran.code == 1 && ran.out == client && ran.err.contains("no operator holds a Lease"),
        "{}",
        ran.err
    );
    crate::e2e::leader::may_elect(&world).await;
    world.start_electing_operator().await;
    let ns = world.ns.to_string();
    let until = tokio::time::Instant::now() + windlass_harness::kit::PATIENCE;
    let known = loop {
        let asked = ["version", "--operator-namespace", &ns, "-o", "json"];
        let ran = windlass_plain(world.cp.kubeconfig(), &asked).await;
        if ran.code == 0 {
            break serde_json::from_str::<Value>(&ran.out).unwrap();
        }
        assert!(tokio::time::Instant::now() < until, "{}", ran.err);
        tokio::time::sleep(std::time::Duration::from_millis(200)).await;
    };
    assert_eq!(
        (&known["clientVersion"], &known["operators"][0]["version"]),
        (&json!(own), &json!(own)),
        "{known:#}"
    );
}

async fn done_without_namespace(world: &World, words: &[&str]) -> String {
    let Ran { code, out, err } = windlass_plain(world.cp.kubeconfig(), words).await;
    assert_eq!((code, err.as_str()), (0, ""), "{words:?}: {out}");
    out
}
