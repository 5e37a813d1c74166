//! The output in a real terminal, character by character: the shipped program with fleets that the operator made, at
//! 80 and 110 columns, with colours, without them, and without UTF-8. The files in tests/cluster/screens have the expected
//! screens; `UPDATE_SCREENS=1` writes them again, for review. They run every night.

mod scene;
mod terminal;

use std::fmt::Write;
use std::path::{Path, PathBuf};

use serde_json::json;
use windlass_sim::Cluster;

use scene::{NAMESPACE, Scene};
use terminal::{Like, Terminal, Terminals};

/// The files, each with the command typed for it. `NEW` is the file of a fleet that does not exist.
const TYPED: [(&str, &str); 12] = [
    ("status-steady", "status nd/cache"),
    ("status-mid-rollout", "status nd/queue"),
    ("status-ill", "status nd/db"),
    ("status-ready-to-promote", "status nd/web"),
    ("status-several", "status"),
    ("status-every-node", "status --all nd/queue nd/cache"),
    ("explain-ill", "explain nd/db"),
    ("explain-ready-to-promote", "explain nd/web"),
    ("plan-image", "plan nd/cache --image registry.example/cache:1.1"),
    ("plan-nothing", "plan nd/cache"),
    ("plan-ill", "plan nd/db --image registry.example/db:1.2 --replicas 6"),
    ("plan-new", "plan -f NEW"),
];
const WATCHED: [(&str, &str); 2] = [("watch-ill", "status -w nd/db"), ("watch-several", "status -w")];

/// The terminals for each command.
fn terminals(rows: u32) -> impl Iterator<Item = (&'static str, Like)> {
    let like = move |columns, colours, utf8| Like { columns, rows, colours, utf8 };
    [110, 80].into_iter().flat_map(move |columns| {
        [
            ("NO_COLOR", like(columns, false, true)),
            ("in colours", like(columns, true, true)),
            ("NO_COLOR and no UTF-8", like(columns, false, false)),
        ]
    })
}

/// Compares a screen with its file, or updates the file.
fn compare(name: &str, seen: &str, differ: &mut Vec<String>) {
    let file = windlass_harness::root().join(format!("tests/cluster/screens/{name}.txt"));
    if std::env::var_os("UPDATE_SCREENS").is_some_and(|value| !value.is_empty()) {
        std::fs::write(&file, seen).unwrap();
        return;
    }
    let known = std::fs::read_to_string(&file).unwrap_or_default();
    if known != seen {
        differ.push(format!("{name}: to be seen is\n{known}\nand seen is\n{seen}"));
    }
}

/// A kubeconfig of the cluster, which is served from here on.
async fn served(cluster: &Cluster, folder: &Path) -> PathBuf {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(cluster.serve(listener));
    let file = folder.join("kubeconfig");
    let text = json!({"apiVersion": "v1", "kind": "Config", "current-context": "x",
        "clusters": [{"name": "x", "cluster": {"server": server}}],
        "users": [{"name": "x", "user": {}}],
        "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x", "namespace": NAMESPACE}}]});
    std::fs::write(&file, text.to_string()).unwrap();
    file
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "nightly"]
async fn screens_match_their_recorded_files() {
    let Some(terminals_of_tmux) = Terminals::start() else { return };
    let Scene { image, now } = tokio::task::spawn_blocking(scene::played).await.unwrap();
    let cluster = Cluster::resume(&image);
    let kubeconfig = served(&cluster, terminals_of_tmux.folder()).await;
    let new = terminals_of_tmux.folder().join("new.yaml");
    let manifest = scene::fleet("ledger", 4, &json!({"type": "InPlace", "inPlace": {"maxUnavailable": 2}}));
    std::fs::write(&new, manifest.to_string()).unwrap();
    let looked = tokio::task::spawn_blocking(move || {
        let mut differ = Vec::new();
        for (name, typed) in TYPED {
            let typed = typed.replace("NEW", new.to_str().unwrap());
            let mut seen = String::new();
            for (how, like) in terminals(40) {
                let terminal = terminals_of_tmux.run(like, now, &kubeconfig, &typed);
                let code = terminal.end();
                let screen = terminal.screen();
                write!(seen, "=== {} columns, {how}, exit code {code}\n{screen}\n", like.columns).unwrap();
                // A command has to be in one piece to be pasted; everything else is wrapped between words, or
                // truncated.
                let broken: Vec<String> = terminal
                    .wrapped()
                    .into_iter()
                    .filter(|line| !line.contains("windlass ") && !line.contains("kubectl "))
                    .collect();
                if !broken.is_empty() {
                    differ
                        .push(format!("{name} at {}, {how}: the terminal breaks {broken:#?}", like.columns));
                }
                if !like.utf8 && !screen.is_ascii() {
                    differ.push(format!("{name} at {}: more than ASCII: {screen}", like.columns));
                }
                if !like.colours && screen.contains("\\e") {
                    differ.push(format!("{name} at {}: colours: {screen}", like.columns));
                }
            }
            compare(name, &seen, &mut differ);
        }
        for (name, typed) in WATCHED {
            let mut seen = String::new();
            for (how, like) in terminals(24) {
                let terminal = terminals_of_tmux.run(like, now, &kubeconfig, typed);
                terminal.says("q quit");
                let screen = terminal.screen();
                write!(seen, "=== {} columns, {how}\n{screen}\n", like.columns).unwrap();
                terminal.press("q");
                assert_eq!(terminal.end(), 0);
                // The last state stays on the regular screen.
                let left = terminal.screen();
                write!(seen, "=== after q\n{left}\n").unwrap();
            }
            compare(name, &seen, &mut differ);
        }
        assert!(differ.is_empty(), "{}", differ.join("\n\n"));
    });
    looked.await.unwrap();
}

/// Types the start of a word and checks its completion.
fn completes(shell: &Terminal<'_>, kubeconfig: &Path, source: &str) {
    shell.type_in(&format!("export KUBECONFIG='{}'\n", kubeconfig.display()));
    shell.type_in(&format!("{source}; clear; echo re''ady\n"));
    shell.says("ready");
    shell.type_in("windlass expl\t");
    shell.says("$ windlass explain");
    shell.type_in("nd/ca\t");
    shell.says("$ windlass explain nd/cache");
    shell.type_in("\n");
    shell.says("NodeDeployment cache");
    // With several candidates, all are listed.
    shell.type_in("clear\n");
    shell.type_in("windlass status nd/\t\t");
    for name in ["nd/cache", "nd/db", "nd/queue", "nd/web"] {
        shell.says(name);
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "nightly"]
async fn shells_complete_verbs_and_fleet_names() {
    let Some(terminals) = Terminals::start() else { return };
    let Scene { image, .. } = tokio::task::spawn_blocking(scene::played).await.unwrap();
    let cluster = Cluster::resume(&image);
    let kubeconfig = served(&cluster, terminals.folder()).await;
    let typed = tokio::task::spawn_blocking(move || {
        completes(&terminals.bash(), &kubeconfig, "source <(windlass completion bash)");
        if let Some(zsh) = terminals.zsh() {
            completes(&zsh, &kubeconfig, "source <(windlass completion zsh)");
        }
        if let Some(fish) = terminals.fish() {
            completes(&fish, &kubeconfig, "windlass completion fish | source");
        }
    });
    typed.await.unwrap();
}

/// The lines of a tree that are about nodes.
fn branches(screen: &str) -> Vec<String> {
    screen.lines().filter(|line| line.starts_with(['├', '└'])).map(str::to_owned).collect()
}

#[test]
#[ignore = "nightly"]
fn demo_drawing_matches_status_output() {
    let Some(terminals) = Terminals::start() else { return };
    let demo = terminals.bash();
    demo.type_in("windlass demo --speed 1000 --serve\n");
    demo.says("until Ctrl-C");
    let seen = demo.screen();
    let kubeconfig = seen.lines().find_map(|line| line.trim().strip_prefix("export KUBECONFIG="));
    let status = terminals.bash();
    status.type_in(&format!(
        "clear; KUBECONFIG={} windlass status nd/db --all; echo end $?\n",
        kubeconfig.expect(&seen)
    ));
    status.says("end 0");
    let (drawn, said) = (branches(&seen), branches(&status.screen()));
    assert_eq!(drawn, said, "{seen}");
    assert_eq!(said.len(), 5, "{seen}");
    let head = |screen: &str| screen.lines().find(|line| line.starts_with("db ")).map(str::to_owned);
    assert_eq!(head(&seen), head(&status.screen()), "{seen}");
    demo.press("C-c");
}
