//! Every command block of the pages is run, and every manifest in them is validated by the API server; or an
//! invisible comment on the page says why not (`blocks.rs`).

mod blocks;
mod cargo;
mod developers;
mod fragments;
mod runner;

use std::time::Duration;

use futures::StreamExt;
use windlass::clock::monotonic;
use windlass_process_kubelet::Image;

use crate::install::helm::{HELM, path};
use crate::install::installed::image;
use blocks::{Treated, blocks};
use runner::Reader;
use windlass_harness::controlplane::Options;
use windlass_harness::systems::cluster::Cluster;

/// The page whose installation the others use.
const FIRST: &str = "README.md";
/// The pages with an installation of their own.
const ALONE: [&str; 2] = ["docs/how-to/upgrade.md", "deploy/README.md"];
/// The page that promises a duration, and the duration.
const TUTORIAL: (&str, Duration) = ("docs/tutorial/getting-started.md", Duration::from_mins(10));
/// The installed objects that deleting the namespace leaves; the definitions stay.
const CLUSTER_WIDE: &str =
    "clusterroles,clusterrolebindings,validatingadmissionpolicies,validatingadmissionpolicybindings";
/// The images in the pages.
const IMAGES: [&str; 4] =
    ["registry.example/db:1.0", "registry.example/db:1.1", "nats:2.12.1-alpine", "nats:2.12.2-alpine"];
/// The folders of the pages.
const FOLDERS: [&str; 5] = ["docs", "docs/tutorial", "docs/how-to", "docs/reference", "docs/explanation"];

/// The pages for users, without generated ones.
fn pages() -> Vec<(String, String)> {
    let read = |page: String| {
        let text = std::fs::read_to_string(path(&page)).unwrap();
        (page, text)
    };
    let list = |folder: &str| {
        let files = std::fs::read_dir(path(folder)).unwrap().map(|entry| entry.unwrap().path());
        let files = files.filter(|page| page.extension().is_some_and(|ext| ext == "md"));
        let name = |page: std::path::PathBuf| page.file_name().unwrap().to_string_lossy().into_owned();
        files.map(|page| format!("{folder}/{}", name(page))).collect::<Vec<_>>()
    };
    let docs = FOLDERS.into_iter().flat_map(list);
    let mut pages: Vec<String> =
        docs.chain(["README.md".to_owned(), "deploy/README.md".to_owned()]).collect();
    pages.sort();
    pages.into_iter().map(read).collect()
}

async fn world() -> Cluster {
    let cluster =
        Cluster::start_with(Options { crds: false, ..Options::default() }).await.expect("a cluster");
    cluster.images.add("registry.example/windlass:0.1.0", image(&cluster));
    let sleeps = path("tests/cluster/install/documented/sleeps");
    for name in IMAGES {
        cluster.images.add(name, Image::of("sleeps", sleeps.clone()));
    }
    let begins =
        "[ -s /data/by ] || echo $HOSTNAME >/data/by; echo begun by `cat /data/by`; exec sleep 100000";
    let ledger = Image::new().entrypoint(["sh", "-c", begins]);
    cluster.images.add("registry.example/ledger:1.0", ledger);
    cluster
}

/// The page installs Windlass.
async fn installed(cluster: &Cluster) {
    let helm = HELM.path().expect("Helm");
    let (_, text) = pages().into_iter().find(|(page, _)| page == FIRST).unwrap();
    let reader = Reader::new(cluster, FIRST, &helm).await;
    reader.reads(&text).await.unwrap_or_else(|error| panic!("{error}"));
}

async fn read(cluster: &Cluster, page: &str, text: &str) -> Result<usize, String> {
    let helm = HELM.path().expect("Helm");
    let reader = Reader::new(cluster, page, &helm).await;
    let speaks_of_it = |block: &blocks::Block| {
        block.treated == Treated::Run
            && (block.given.is_some()
                || block.text.contains(" db")
                || block.text.contains("/db")
                || block.text.contains("nd NAME"))
    };
    let all = blocks(text).map_err(|error| format!("{page}: {error}"))?;
    if !ALONE.contains(&page) && all.iter().any(speaks_of_it) && !text.contains("examples/fleet.yaml") {
        reader.fleet().await?;
    }
    let began = monotonic();
    let done = reader.reads(text).await?;
    let took = monotonic() - began;
    eprintln!("{page}: {done} commands and manifests in {} s", took.as_secs());
    if page == TUTORIAL.0 && took > TUTORIAL.1 {
        return Err(format!("{page}: it takes {} s", took.as_secs()));
    }
    Ok(done)
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "nightly"]
async fn documented_blocks_work_as_described() {
    if !crate::install::helm::is_there() {
        return;
    }
    let cluster = world().await;
    installed(&cluster).await;
    let kinds = ["workerdeployments", "temporalconnections", "clustertemporalconnections"];
    let definitions = kinds.map(|kind| format!("deploy/temporal/{kind}.windlass.dev.yaml"));
    for file in
        definitions.iter().map(String::as_str).chain(["tests/cluster/install/documented/namespaces.yaml"])
    {
        let file = path(file);
        cluster.cp.kubectl(&["apply", "-f", file.to_str().unwrap()]).await.ok();
    }
    // Marked as installed by Helm, so that Helm can adopt it.
    let definition = "crd/workerdeployments.windlass.dev";
    for (verb, words) in [
        ("label", &["app.kubernetes.io/managed-by=Helm"][..]),
        (
            "annotate",
            &["meta.helm.sh/release-name=windlass", "meta.helm.sh/release-namespace=windlass-system"],
        ),
    ] {
        cluster.cp.kubectl(&[&[verb, definition][..], words].concat()).await.ok();
    }
    let all = pages();
    let others = all.iter().filter(|(page, _)| page != FIRST && !ALONE.contains(&page.as_str()));
    let read_all =
        futures::stream::iter(others).map(|(page, text)| read(&cluster, page, text)).buffer_unordered(8);
    let ended: Vec<Result<usize, String>> = read_all.collect().await;
    let mut wrong: Vec<String> = ended.iter().filter_map(|ended| ended.clone().err()).collect();
    let mut count: usize = ended.into_iter().flatten().sum();
    for (page, text) in all.iter().filter(|(page, _)| ALONE.contains(&page.as_str())) {
        // Left by the previous page.
        cluster.cp.kubectl(&["delete", "namespace", "windlass-system", "--ignore-not-found"]).await.ok();
        let all = cluster.cp.kubectl(&["get", CLUSTER_WIDE, "-o", "name"]).await.ok();
        let left: Vec<&str> = all.lines().filter(|name| name.contains("/windlass")).collect();
        if !left.is_empty() {
            cluster.cp.kubectl(&[&["delete"][..], &left].concat()).await.ok();
        }
        match read(&cluster, page, text).await {
            Ok(more) => count += more,
            Err(error) => wrong.push(error),
        }
    }
    assert!(wrong.is_empty(), "{} blocks do not do what they say:\n{}", wrong.len(), wrong.join("\n\n"));
    assert!(count > 60, "so few commands are in the pages: {count}");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "nightly"]
async fn wrong_flags_fields_and_names_are_detected() {
    if !crate::install::helm::is_there() {
        return;
    }
    let cluster = Cluster::start().await.expect("a cluster");
    let helm = HELM.path().expect("Helm");
    let reader = Reader::new(&cluster, "made-up", &helm).await;
    for (block, said) in [
        ("```sh\nwindlass status --nosuch\n```\n", "unexpected argument '--nosuch'"),
        ("```sh\nkubectl get nd --nosuch\n```\n", "unknown flag: --nosuch"),
        ("```sh\nkubectl get nodedeploymentz\n```\n", "doesn't have a resource type"),
        ("```sh\nhelm template deploy/helm/windlass --set replica=1\n```\n", "'replica'"),
        ("```sh\nkubectl apply -f examples/nosuch.yaml\n```\n", "nosuch.yaml"),
        ("```console\n$ kubectl windlass history nd/none\nREVISION\n```\n", "does not exist in namespace"),
        ("```sh\ncargo test --test nosuch\n```\n", "there is no test nosuch"),
        ("```sh\ncargo test --test cluster nosuch_at_all\n```\n", "no test of cluster"),
        ("```sh\ncargo run --release -- operator --nosuch\n```\n", "unexpected argument"),
        ("```sh\nfalse | cat\n```\n", "exit status: 1"),
        ("```yaml\nhooks:\n- {name: a, at: BeforeRollot, approval: {}}\n```\n", "BeforeRollot"),
        ("```yaml\nupdateStrategy: {type: InPlace, inPlace: {maxUnavailble: 1}}\n```\n", "maxUnavailble"),
        (
            "```yaml\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndate: {}\n```\n",
            "unknown field \"date\"",
        ),
        ("```yaml\nsomething: else\n```\n", "say why it is not run"),
        ("<!-- given: nothing of the kind -->\n```sh\ntrue\n```\n", "no state that this test knows"),
    ] {
        let error = reader.reads(block).await.expect_err(block);
        assert!(error.starts_with("made-up:") && error.contains(said), "{block}: {error}");
    }
    assert_eq!(reader.reads("```sh\nkubectl get nd   # none\nkubectl get nd -w\n```\n").await, Ok(2));
}
