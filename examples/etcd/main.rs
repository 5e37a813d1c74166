//! Three members of etcd as real processes under a real control plane, taken to the next patch version while a writer
//! writes to them: first as a fleet by Windlass, then as a plain StatefulSet by Kubernetes itself.
//!
//! ```text
//! cargo run --example etcd              # a minute, then everything is taken down
//! cargo run --example etcd -- --stay    # the cluster stays until Ctrl-C, to look around in
//! ```

use std::{fmt::Write as _, process::ExitCode, time::Duration};

use serde_json::{Value, json};
use tokio::process::Child;
use windlass::clock::monotonic;
use windlass_harness::controlplane::Error;
use windlass_harness::systems::cluster::{Cluster, Place, applied};
use windlass_harness::systems::etcd::{Etcd, Member};
use windlass_harness::systems::programs::{self, ETCD};
use windlass_harness::systems::writer::{Tally, Writer};

const USAGE: &str = "usage: etcd [--stay]    (--stay: the cluster stays until Ctrl-C)";
/// What is shown before and after a rollout, so that there is something to compare it with.
const CALM: Duration = Duration::from_secs(3);
/// No rollout of three members takes longer.
const PATIENCE: Duration = Duration::from_mins(3);
/// How often it is looked at.
const LOOK: Duration = Duration::from_millis(100);
/// Something is said at least this often.
const WORD: Duration = Duration::from_secs(1);

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let stay = match arguments.as_slice() {
        // The example runs itself again as the operator, which ends with it however it ends.
        ["operator", ..] => {
            std::thread::spawn(|| {
                let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
                std::process::exit(0);
            });
            return windlass_cli::main();
        }
        // And as the sidecar of the fleet's pods, which the kubelet starts and ends.
        ["sidecar", ..] => return windlass_cli::main(),
        [] => false,
        ["--stay"] => true,
        ["--help" | "-h"] => {
            println!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    let shown = tokio::runtime::Runtime::new().map_err(Error::from).and_then(|runtime| {
        runtime.block_on(async {
            tokio::select! {
                shown = show(stay) => shown,
                interrupted = tokio::signal::ctrl_c() => Ok(interrupted?),
            }
        })
    });
    match shown {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("etcd: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn show(stay: bool) -> Result<(), Error> {
    println!("Starting etcd, kube-apiserver, kube-controller-manager and kube-scheduler, and three nodes …");
    let cluster = Cluster::start().await?;
    let images = cluster.images.clone();
    tokio::task::spawn_blocking(move || programs::add_etcd(&images)).await??;
    programs::add_windlass(&cluster.images, std::env::current_exe()?);
    println!("    export KUBECONFIG={}", cluster.cp.kubeconfig().display());
    println!("    export PATH={}:$PATH    # a kubectl, if you have none", cluster.cp.bin().display());
    let by_windlass = by_windlass(&cluster).await?;
    let by_kubernetes = by_kubernetes(&cluster).await?;
    println!();
    for (who, rolled) in [("Windlass, InPlace", &by_windlass), ("StatefulSet, RollingUpdate", &by_kubernetes)]
    {
        let Rolled { tally, lost, .. } = rolled;
        println!(
            "{who:<28}{:>6} acknowledged, {} failed, {lost} lost, longest time without a success {} ms",
            tally.acknowledged.len(),
            tally.failed,
            tally.longest_gap.as_millis()
        );
    }
    if stay {
        println!("\nBoth are still there: kubectl get nd,statefulsets,pods -A. Ctrl-C ends everything.");
        std::future::pending::<()>().await;
    }
    Ok(())
}

/// What came of a rollout, and what holds what it was made on.
struct Rolled<'a> {
    tally: Tally,
    lost: usize,
    _place: Place<'a>,
    _operator: Option<Child>,
}

async fn by_windlass(cluster: &Cluster) -> Result<Rolled<'_>, Error> {
    const FLEET: (&str, &str, &str) = ("windlass.dev/v1alpha1", "NodeDeployment", "etcd");
    let place = cluster.namespace("fleet").await;
    println!(
        "\nA fleet of three in {}: kubectl -n {} apply -f examples/etcd/fleet.yaml",
        &*place.ns, &*place.ns
    );
    let operator = Some(place.operator(std::env::current_exe()?).await?);
    place.apply("etcd/fleet.yaml").await?;
    place.until(FLEET, applied).await?;
    let members = Members::new(&place, ["etcd-0-0", "etcd-1-0", "etcd-2-0"]);
    let image = json!({"spec": {"template": {"spec": {"image": ETCD[1]}}}}).to_string();
    let change = ["patch", "nd", "etcd", "--type=merge", "-p", &image];
    let (tally, lost) = members
        .rolled(&change, async || {
            let fleet = place.get(FLEET.0, FLEET.1, FLEET.2).await?;
            let rollout = &fleet["status"]["rollout"];
            let said = |field: &str| rollout[field].as_str().unwrap_or_default();
            // What is waited for beside the wave: a hook, and which.
            let hook = said("message").split(": ").next().filter(|what| what.starts_with("hook "));
            let summary = [Some(said("summary")), hook].into_iter().flatten().collect::<Vec<_>>().join(", ");
            Ok((applied(&fleet), summary))
        })
        .await?;
    drop(members);
    Ok(Rolled { tally, lost, _place: place, _operator: operator })
}

async fn by_kubernetes(cluster: &Cluster) -> Result<Rolled<'_>, Error> {
    let place = cluster.namespace("set").await;
    println!(
        "\nA StatefulSet in {}: kubectl -n {} apply -f examples/etcd/statefulset.yaml",
        &*place.ns, &*place.ns
    );
    place.apply("etcd/statefulset.yaml").await?;
    for pod in ["etcd-0", "etcd-1", "etcd-2"] {
        place.until_ready(pod, &Value::Null).await?;
    }
    let members = Members::new(&place, ["etcd-0", "etcd-1", "etcd-2"]);
    let image = json!({"spec": {"template": {"spec": {"containers": [{"name": "etcd", "image": ETCD[1]}]}}}});
    let image = image.to_string();
    let (tally, lost) = members
        .rolled(&["patch", "statefulset", "etcd", "-p", &image], async || {
            let set = place.get("apps/v1", "StatefulSet", "etcd").await?;
            let count = |field: &str| set["status"][field].as_i64().unwrap_or_default();
            let (updated, ready) = (count("updatedReplicas"), count("readyReplicas"));
            let seen = set["status"]["observedGeneration"] == set["metadata"]["generation"];
            let done = seen && set["status"]["currentRevision"] == set["status"]["updateRevision"];
            let summary = if seen { format!("{updated}/3 updated") } else { String::new() };
            Ok((done && ready == 3, summary))
        })
        .await?;
    drop(members);
    Ok(Rolled { tally, lost, _place: place, _operator: None })
}

/// The members, and where they are.
struct Members<'a> {
    place: &'a Place<'a>,
    pods: [&'static str; 3],
    etcd: Etcd,
}

impl<'a> Members<'a> {
    fn new(place: &'a Place<'a>, pods: [&'static str; 3]) -> Self {
        let etcd = Etcd::new(pods.iter().map(|pod| place.cluster.address(&place.ns, pod)));
        Self { place, pods, etcd }
    }

    /// Writes, makes the change, shows what happens until it is done, and says what was seen and how much was lost.
    async fn rolled(
        &self,
        change: &[&str],
        done: impl AsyncFn() -> Result<(bool, String), Error>,
    ) -> Result<(Tally, usize), Error> {
        let writer = Writer::start(self.etcd.clone());
        let began = monotonic();
        let mut shown = Shown::default();
        while began.elapsed() < CALM {
            shown.look(self, &writer, "").await;
        }
        writer.forget_gaps();
        let quoted = |word: &&str| if word.contains('{') { format!("'{word}'") } else { (*word).to_owned() };
        let words: Vec<String> = change.iter().map(quoted).collect();
        println!("  kubectl -n {} {}", &*self.place.ns, words.join(" "));
        self.place.kubectl(change).await?;
        let mut over = None;
        while over.is_none_or(|over: tokio::time::Instant| over.elapsed() < CALM) {
            let (is_done, summary) = done().await?;
            if is_done && over.is_none() {
                over = Some(monotonic());
            }
            if began.elapsed() > PATIENCE {
                return Err(format!("the rollout takes too long: {summary}").into());
            }
            shown.look(self, &writer, &summary).await;
        }
        let tally = writer.stop().await;
        let lost = self.etcd.lost(&tally.acknowledged).await?.len();
        println!("  read back: {} acknowledged, {lost} lost", tally.acknowledged.len());
        Ok((tally, lost))
    }
}

/// What was last said.
#[derive(Default)]
struct Shown {
    members: Vec<Option<Member>>,
    /// When, and how many writes were acknowledged by then.
    at: Option<(tokio::time::Instant, usize)>,
}

impl Shown {
    /// Says how things are, if they are otherwise than they were or nothing was said for a while.
    async fn look(&mut self, all: &Members<'_>, writer: &Writer, summary: &str) {
        tokio::time::sleep(LOOK).await;
        let members = all.etcd.members().await;
        if members == self.members && self.at.is_some_and(|(at, _)| at.elapsed() < WORD) {
            return;
        }
        let mut line = String::new();
        for (pod, member) in all.pods.iter().zip(&members) {
            let said = member.as_ref().map_or("down".to_owned(), |member| {
                format!("{}{}", member.version, if member.leads { " leads" } else { "" })
            });
            let _ = write!(line, "  {pod} {said:<13}");
        }
        let tally = writer.tally();
        let written = tally.acknowledged.len();
        let of_a_second = |(at, before): (tokio::time::Instant, usize)| {
            (written - before) as u128 * 1000 / at.elapsed().as_millis().max(1)
        };
        let rate = self.at.map_or(0, of_a_second);
        println!(
            "{line}{written:>6} written, {rate:>3} a second, {} failed, longest gap {:>4} ms  {summary}",
            tally.failed,
            tally.longest_gap.as_millis()
        );
        (self.members, self.at) = (members, Some((monotonic(), written)));
    }
}
