//! 99 pods in three StatefulSets, one for each zone: a rollout while pods of other zones fail, and a bad image that is
//! taken back. If `WINDLASS_ROLLOUT_OPERATOR` is the path of a grafana/rollout-operator, it does the same, to compare the
//! two; only Windlass is judged.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use futures::StreamExt;
use kube::api::DynamicObject;
use kube::runtime::watcher::{self, Event};
use serde_json::{Value, json};
use tokio::process::{Child, Command};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::e2e::commands::windlass;
use windlass_harness::kit::tools::{image_of, is_up};
use windlass_harness::kit::{World, condition, with};

const ZONES: [&str; 3] = ["zone-a", "zone-b", "zone-c"];
const PODS: usize = 99;
/// How many pods may be unavailable at once.
const LIMIT: usize = 10;
/// Pods of a zone that fail together, and for how long.
const FAILING: std::ops::Range<usize> = 14..19;
const FAIL_FOR: Duration = Duration::from_secs(15);
/// Nobody can know of a failure at once: a pod that failed counts after this time.
const NOTICE: Duration = Duration::from_secs(1);
/// Nothing happens any more if nothing happened for so long: six rounds of the rollout-operator, which looks every 5 s.
const QUIET: Duration = Duration::from_secs(30);
/// Longer than any step may take.
const PATIENCE: Duration = Duration::from_mins(10);

/// A pod's readiness takes 5 s, in the simulated kubelet, because of the tag.
const IMAGES: [&str; 2] = ["db:1", "db:2-slow"];

/// What a watch of the pods saw.
#[derive(Default)]
struct Seen {
    pods: BTreeMap<String, Pod>,
    /// The most pods that were unavailable at once.
    most: usize,
    /// The most at the deletion of a pod that served, with this pod: others that had just failed do not count.
    most_by_choice: usize,
    /// When a pod was last created, or became available or unavailable.
    changed: Option<Instant>,
}

struct Pod {
    uid: String,
    image: String,
    /// Unavailable since when, and whether because it was deleted.
    down: Option<(Instant, bool)>,
}

impl Seen {
    fn take(&mut self, event: Event<DynamicObject>) {
        match event {
            Event::Init | Event::InitDone => {}
            Event::InitApply(pod) | Event::Apply(pod) => self.apply(&json!(pod), false),
            Event::Delete(pod) => self.apply(&json!(pod), true),
        }
    }

    fn apply(&mut self, pod: &Value, is_gone: bool) {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (name, uid) = (text(&pod["metadata"]["name"]), text(&pod["metadata"]["uid"]));
        let serves = is_up(pod) && !is_gone;
        let before = self.pods.get(&name);
        if before.is_none_or(|before| before.uid != uid || before.down.is_none() != serves) {
            self.changed = Some(Instant::now());
        }
        let is_deleted = is_gone || !pod["metadata"]["deletionTimestamp"].is_null();
        let down = match before.map(|before| before.down) {
            _ if serves => None,
            // Deleted pods are not ready for a while after they are created again.
            Some(Some(down)) => Some(down),
            Some(None) => Some((Instant::now(), is_deleted)),
            None => Some((Instant::now(), false)),
        };
        let is_chosen = before.is_some_and(|before| before.down.is_none()) && !serves && is_deleted;
        self.pods.insert(name, Pod { uid, image: image_of(pod).to_owned(), down });
        self.most = self.most.max(PODS - self.serving().min(PODS));
        if is_chosen {
            let is_known =
                |pod: &&Pod| pod.down.is_some_and(|(since, deleted)| deleted || since.elapsed() > NOTICE);
            self.most_by_choice = self.most_by_choice.max(self.pods.values().filter(is_known).count());
        }
    }

    fn serving(&self) -> usize {
        self.pods.values().filter(|pod| pod.down.is_none()).count()
    }

    fn serving_with(&self, image: &str) -> usize {
        self.pods.values().filter(|pod| pod.down.is_none() && pod.image == image).count()
    }

    fn worst(&self) -> (usize, usize) {
        (self.most, self.most_by_choice)
    }

    /// What was until now does not count.
    fn forget(&mut self) {
        (self.most, self.most_by_choice, self.changed) = (0, 0, None);
    }

    fn is_quiet(&self) -> bool {
        self.changed.is_none_or(|at| at.elapsed() > QUIET)
    }
}

struct Sight {
    seen: Arc<Mutex<Seen>>,
    task: JoinHandle<()>,
}

impl Sight {
    fn of(world: &World) -> Self {
        let seen = Arc::new(Mutex::new(Seen::default()));
        let told = seen.clone();
        let mut events = watcher::watcher(world.pods(), watcher::Config::default()).boxed();
        let task = tokio::spawn(async move {
            while let Some(event) = events.next().await {
                told.lock().unwrap().take(event.expect("the watch goes on"));
            }
        });
        Self { seen, task }
    }

    fn now(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap()
    }

    async fn until(&self, what: &str, holds: impl Fn(&Seen) -> bool) {
        let until = Instant::now() + PATIENCE;
        while !holds(&self.now()) {
            assert!(Instant::now() < until, "waited in vain until {what}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

impl Drop for Sight {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Who rolls out.
enum Contender {
    Windlass,
    RolloutOperator(PathBuf),
}

impl Contender {
    /// Windlass, and a rollout-operator if there is one.
    fn all() -> impl Iterator<Item = Self> {
        let program = std::env::var_os("WINDLASS_ROLLOUT_OPERATOR");
        [Self::Windlass].into_iter().chain(program.map(|program| Self::RolloutOperator(program.into())))
    }

    fn name(&self) -> &'static str {
        match self {
            Self::Windlass => "Windlass",
            Self::RolloutOperator(_) => "rollout-operator",
        }
    }
}

/// The three StatefulSets, all pods available, in front of which the contender is.
struct Stage {
    world: World,
    sight: Sight,
    rollout_operator: Option<Child>,
}

/// As charts render it for the contender.
fn zone(name: &str, contender: &Contender, policy: &str) -> Value {
    let labels = json!({"app": "db", "name": name});
    let set = json!({
        "metadata": {"name": name, "labels": labels},
        "spec": {
            "replicas": PODS / ZONES.len(), "serviceName": "db", "podManagementPolicy": policy,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {
                "terminationGracePeriodSeconds": 1, "containers": [{"name": "db", "image": IMAGES[0]}],
            }},
        },
    });
    match contender {
        Contender::Windlass => set,
        Contender::RolloutOperator(_) => with(
            set,
            &json!({
                "metadata": {
                    "labels": {"rollout-group": "db"},
                    "annotations": {"rollout-max-unavailable": LIMIT.to_string()},
                },
                "spec": {"updateStrategy": {"type": "OnDelete"}},
            }),
        ),
    }
}

/// The kind that a rollout-operator waits for at its start. There is no object of it.
async fn define_budgets(world: &World) {
    let (group, plural) = ("rollout-operator.grafana.com", "zoneawarepoddisruptionbudgets");
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{group}")},
        "spec": {
            "group": group, "scope": "Namespaced",
            "names": {"plural": plural, "kind": "ZoneAwarePodDisruptionBudget"},
            "versions": [
                {"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}},
            ],
        },
    });
    world.cp.kubectl_with(&["apply", "-f", "-"], &definition.to_string()).await.ok();
    let crd = format!("crd/{plural}.{group}");
    world.cp.kubectl(&["wait", "--for=condition=Established", &crd]).await.ok();
}

fn start_rollout_operator(world: &World, program: &Path) -> Child {
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let log = std::env::var_os("WINDLASS_TEST_LOG").is_some();
    Command::new(program)
        .arg(format!("-kubernetes.api-url={}", world.cp.server()))
        .arg(format!("-kubernetes.config-file={}", world.cp.kubeconfig().display()))
        .arg(format!("-kubernetes.namespace={}", &*world.ns))
        .arg(format!("-server.port={port}"))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(if log { Stdio::inherit() } else { Stdio::null() })
        .kill_on_drop(true)
        .spawn()
        .expect("the rollout-operator starts")
}

impl Stage {
    async fn set(contender: &Contender, policy: &str) -> Self {
        let mut world = World::without_operator("zones").await;
        for name in ZONES {
            world.create("apps/v1", "StatefulSet", zone(name, contender, policy)).await;
        }
        let sight = Sight::of(&world);
        sight.until("all pods are available", |seen| seen.serving() == PODS).await;
        let rollout_operator = match contender {
            Contender::Windlass => {
                world.start_operator(&[]).await;
                let rollout = json!({
                    "metadata": {"name": "db"},
                    "spec": {
                        "statefulSets": {"names": ZONES},
                        "strategy": {"maxUnavailable": LIMIT, "groups": "OneAtATime"},
                    },
                });
                world.create("windlass.dev/v1alpha1", "StatefulSetRollout", rollout).await;
                let rollouts = world.api("windlass.dev/v1alpha1", "StatefulSetRollout");
                let is_held = |rollout: &Value| condition(rollout, "Held") == "True/Held";
                world.until(&rollouts, "db", "it is held", is_held).await;
                None
            }
            Contender::RolloutOperator(program) => {
                define_budgets(&world).await;
                Some(start_rollout_operator(&world, program))
            }
        };
        sight.now().forget();
        Self { world, sight, rollout_operator }
    }

    async fn image(&self, image: &str) {
        let containers = json!([{"name": "db", "image": image}]);
        let template = json!({"spec": {"template": {"spec": {"containers": containers}}}});
        for name in ZONES {
            self.world.patch(&self.world.sets(), name, template.clone()).await;
        }
    }

    /// Pods of a zone are not Ready for a while.
    async fn fail(&self, zone: &str) {
        for ordinal in FAILING {
            self.world.steer(&format!("{zone}-{ordinal}"), "unready").await;
        }
        tokio::time::sleep(FAIL_FOR).await;
        for ordinal in FAILING {
            self.world.steer(&format!("{zone}-{ordinal}"), "default").await;
        }
    }

    /// Rolls out, while pods fail of a zone whose turn is to come, and then of one whose turn is over.
    async fn roll(&self) -> Duration {
        let began = Instant::now();
        let updated = |count: usize| move |seen: &Seen| seen.serving_with(IMAGES[1]) >= count;
        self.image(IMAGES[1]).await;
        self.sight.until("the first zone is being updated", updated(12)).await;
        self.fail(ZONES[1]).await;
        self.sight.until("the second zone is being updated", updated(45)).await;
        self.fail(ZONES[0]).await;
        self.sight.until("all pods are updated", updated(PODS)).await;
        began.elapsed()
    }

    /// Rolls out an image that does not exist, until nothing happens any more; the number of pods that it cost.
    async fn spoil(&self, image: &str) -> usize {
        if self.rollout_operator.is_none() {
            // Before that, an abort goes back to what ran before the last rollout.
            let rollouts = self.world.api("windlass.dev/v1alpha1", "StatefulSetRollout");
            let is_over = |rollout: &Value| {
                condition(rollout, "UpToDate") == "True/Applied" && rollout["status"]["rollout"].is_null()
            };
            self.world.until(&rollouts, "db", "the last rollout is over", is_over).await;
        }
        self.image(image).await;
        self.sight.until("a pod is broken", |seen| seen.serving() < PODS).await;
        self.sight.until("nothing happens any more", Seen::is_quiet).await;
        PODS - self.sight.now().serving()
    }

    /// Waits until all pods serve as before. Whenever nothing happens any more, a broken pod is deleted by hand; the number
    /// of these.
    async fn restored(&self) -> (usize, Duration) {
        let began = Instant::now();
        self.sight.now().changed = Some(began);
        let mut by_hand = 0;
        let is_back = |seen: &Seen| seen.serving_with(IMAGES[1]) == PODS;
        loop {
            self.sight.until("something happens", |seen| is_back(seen) || seen.is_quiet()).await;
            if is_back(&self.sight.now()) {
                return (by_hand, began.elapsed());
            }
            assert!(began.elapsed() < PATIENCE, "the pods do not come back");
            let broken = self.sight.now().pods.iter().find(|(_, pod)| pod.down.is_some()).unwrap().0.clone();
            self.world.delete(&self.world.pods(), &broken).await;
            self.sight.now().changed = Some(Instant::now());
            by_hand += 1;
        }
    }
}

/// What was measured, as two rows of tables.
async fn measure(contender: &Contender, rolled: &mut Vec<String>, restored: &mut Vec<String>) {
    let who = contender.name();
    let stage = Stage::set(contender, "Parallel").await;
    let took = stage.roll().await;
    let (most, by_choice) = stage.sight.now().worst();
    rolled.push(format!("| {who} | {by_choice} | {most} | {} s |", took.as_secs()));
    let mut row = |way: &str, broken: usize, (by_hand, took): (usize, Duration)| {
        restored.push(format!("| {who} | {way} | {broken} | {by_hand} | {} s |", took.as_secs()));
    };

    let broken = stage.spoil("db:3-nope").await;
    stage.image(IMAGES[1]).await;
    let back = stage.restored().await;
    row("the old image in the templates", broken, back);
    let Contender::Windlass = contender else { return };
    assert!(by_choice <= LIMIT, "a pod was deleted when {by_choice} were unavailable with it");
    assert_eq!((broken, back.0), (LIMIT, 0));

    let broken = stage.spoil("db:4-nope").await;
    let aborted = windlass(&stage.world, &["abort", "--rollback", "ssr/db"]).await;
    assert_eq!(aborted.code, 0, "{}{}", aborted.out, aborted.err);
    let back = stage.restored().await;
    row("`windlass abort --rollback`", broken, back);
    assert_eq!((broken, back.0), (LIMIT, 0));
    for name in ZONES {
        let set = stage.world.get(&stage.world.sets(), name).await;
        assert_eq!(set["spec"]["template"]["spec"]["containers"][0]["image"], "db:4-nope");
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "nightly"]
async fn three_zones_stay_within_limit_with_failures_and_bad_image() {
    let (mut rolled, mut restored) = (Vec::new(), Vec::new());
    for contender in Contender::all() {
        measure(&contender, &mut rolled, &mut restored).await;
    }
    println!("| | most unavailable when it deleted a pod (limit {LIMIT}) | most unavailable | time |");
    println!("|---|---|---|---|\n{}\n", rolled.join("\n"));
    println!("| | way back | pods with the bad image | deleted by hand | time until all {PODS} serve |");
    println!("|---|---|---|---|---|\n{}", restored.join("\n"));
}

/// As long as the order of the pods slows a rollout down, it is watched.
const WATCHED: Duration = Duration::from_mins(1);

#[tokio::test(flavor = "multi_thread")]
#[ignore = "nightly"]
async fn three_zones_with_ordered_pod_starts_stay_within_limit() {
    let mut rows = Vec::new();
    for contender in Contender::all() {
        let stage = Stage::set(&contender, "OrderedReady").await;
        stage.image(IMAGES[1]).await;
        stage.sight.until("a pod is being updated", |seen| seen.serving() < PODS).await;
        tokio::time::sleep(WATCHED).await;
        let (most, by_choice) = stage.sight.now().worst();
        let updated = stage.sight.now().serving_with(IMAGES[1]);
        rows.push(format!("| {} | {by_choice} | {most} | {updated} |", contender.name()));
        if let Contender::Windlass = contender {
            assert!(by_choice <= LIMIT, "a pod was deleted when {by_choice} were unavailable with it");
        }
    }
    println!("| | most unavailable when it deleted a pod (limit {LIMIT}) | most unavailable | updated |");
    println!("|---|---|---|---|\n{}", rows.join("\n"));
}
