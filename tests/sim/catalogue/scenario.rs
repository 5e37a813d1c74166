//! Scenarios: the initial objects, and the change that is made.

use serde_json::{Value, json};

/// The change of a scenario.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Change {
    /// The object is created.
    Create,
    /// Its image changes.
    Image,
    /// Its template changes under the same image.
    Template,
    /// One node more.
    Up,
    /// Two nodes more, and another image, at once.
    UpAndImage,
    /// The image of a second container changes, which is in a crash loop on every node while the main container runs.
    Beside,
    /// One node fewer; from one, none.
    Down,
    /// A node is lost.
    Repair,
    /// The operator is replaced by a version that renders another pod template.
    Upgrade,
    /// A restart is requested.
    Restart,
    /// The image changes to one that cannot be pulled, with rollback on stall.
    Stall,
    /// The image changes to one that cannot be pulled.
    Broken,
    /// The image before is set again.
    Back,
    /// The template changes under the same build ID.
    SameBuild,
    /// The build ID changes with the same template.
    NewBuild,
    /// The labels of its children change, which applies at once and restarts no pod.
    Labels,
    /// Its nodes and claims are to stay from now on when the fleet is deleted.
    Retain,
    /// Its nodes and claims are to go from now on when the fleet is deleted.
    LetGo,
    /// The machine of all its pods is drained, and another one is added.
    Drain,
    /// Its claims grow, while their pods run.
    Grow,
    /// Its claims grow, and their file systems only when a pod is started.
    GrowOffline,
}

/// The size to which claims grow.
pub const GROWN: &str = "2Gi";

/// How the person who made the change reacts.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Follow {
    #[default]
    Nothing,
    /// Promotes once it is ready.
    Promote,
    /// Aborts the rollout where it waits, retries it, and does what it waits for.
    AbortAndRetry,
    /// Sets the image before again once traffic has moved, while the old set still exists.
    BackOnceMoved,
}

/// A scenario.
#[derive(Clone, Debug)]
pub struct Scenario {
    pub name: String,
    pub change: Change,
    /// The initial number of nodes, or the number created; 0 for a StatefulNode without a fleet.
    pub nodes: i64,
    pub max_unavailable: i64,
    pub sidecar: bool,
    /// `updateStrategy.type`.
    pub strategy: &'static str,
    /// `updateStrategy.blueGreen.promotion`.
    pub promotion: &'static str,
    pub follow: Follow,
    /// True if claims are deleted with their nodes.
    pub claims_go: bool,
    /// True if it has a hook at each point, half of which fail and are skipped.
    pub hooks: bool,
    /// True if it is rolled back when it stalls.
    pub rolls_back: bool,
    /// `minReadySeconds`.
    pub min_ready_seconds: i64,
    /// The image of its hooks' Job, if hooks send requests and run one.
    pub job: Option<&'static str>,
    /// The time zone of its windows, which are open every other minute; `None` if it has none.
    pub windows: Option<&'static str>,
    /// The StatefulSets that somebody else created, with their sizes, if a StatefulSetRollout is in front of them.
    pub stateful_sets: &'static [(&'static str, i64)],
}

pub const NAMESPACE: &str = "shop";
/// `progressDeadlineSeconds`, in simulated time.
pub const DEADLINE_SECONDS: i64 = 120;
/// The height of the halt.
pub const HALT_HEIGHT: i64 = 1000;

/// A time zone whose clock is set forward at 2027-03-28T01:00:00Z.
const ZONE_OF_CHANGED_CLOCK: &str = "Europe/Berlin";

const CHANGES: [(&str, Change); 6] = [
    ("create", Change::Create),
    ("image", Change::Image),
    ("template", Change::Template),
    ("up", Change::Up),
    ("down", Change::Down),
    ("repair", Change::Repair),
];

impl Scenario {
    /// All scenarios.
    pub fn all() -> Vec<Self> {
        let mut all = Vec::new();
        for nodes in [1, 3, 7] {
            for (word, change) in CHANGES {
                all.push(Self::new(format!("in-place/{word}/{nodes}"), change, nodes, 1, false));
            }
        }
        all.push(Self::new("wave-of-2/image/5".into(), Change::Image, 5, 2, false));
        all.push(Self::new("wave-of-2/template/3".into(), Change::Template, 3, 2, false));
        all.push(Self::new("in-place/labels/5".into(), Change::Labels, 5, 1, false));
        all.push(Self::new("in-place/up-and-image/3".into(), Change::UpAndImage, 3, 1, false));
        all.push(Self::new("in-place/beside/3".into(), Change::Beside, 3, 1, false));
        all.push(Self::new("drain/in-place/3".into(), Change::Drain, 3, 1, false));
        all.push(Self::new("drain/sidecar/3".into(), Change::Drain, 3, 2, true));
        all.push(Self { hooks: true, ..Self::new("drain/hooks/2".into(), Change::Drain, 2, 1, false) });
        all.push(Self::blue_green("drain/blue-green/2", Change::Drain, 2));
        all.push(Self::new("grow/in-place/3".into(), Change::Grow, 3, 1, false));
        all.push(Self {
            hooks: true,
            ..Self::new("grow/offline/2".into(), Change::GrowOffline, 2, 1, false)
        });
        all.push(Self::new("grow/sidecar/2".into(), Change::GrowOffline, 2, 1, true));
        all.push(Self::new("grow/alone/1".into(), Change::GrowOffline, 0, 1, false));
        all.push(Self::blue_green("grow/blue-green/2", Change::Grow, 2));
        all.push(Self::new("upgrade/operator/3".into(), Change::Upgrade, 3, 1, false));
        let retain = Self::new("release/retain/3".into(), Change::Retain, 3, 1, false);
        all.push(Self { claims_go: true, ..retain });
        all.push(Self::new("release/let-go/3".into(), Change::LetGo, 3, 1, false));
        for (word, change) in
            [("create", Change::Create), ("image", Change::Image), ("template", Change::Template)]
        {
            all.push(Self::new(format!("alone/{word}/1"), change, 0, 1, false));
        }
        all.push(Self::new("sidecar/create/3".into(), Change::Create, 3, 1, true));
        all.push(Self::new("sidecar/image/3".into(), Change::Image, 3, 1, true));
        all.extend(Self::verbs());
        for nodes in [1, 3, 7] {
            for (word, change) in CHANGES {
                all.push(Self::blue_green(&format!("blue-green/{word}/{nodes}"), change, nodes));
                all.push(Self::hard_fork(&format!("hard-fork/{word}/{nodes}"), change, nodes));
            }
        }
        all.push(Self::blue_green("blue-green/labels/2", Change::Labels, 2));
        all.extend(Self::verbs_of_sets());
        all.extend(Self::with_hooks());
        all.extend(Self::held());
        all.extend(Self::in_windows());
        all
    }

    /// Rollouts that wait for windows, and do not end within one. In one of them the clock is set forward by an hour
    /// meanwhile.
    fn in_windows() -> Vec<Self> {
        let of = |word: &str, nodes| Self {
            windows: Some("UTC"),
            min_ready_seconds: 25,
            ..Self::new(format!("windows/{word}/{nodes}"), Change::Image, nodes, 1, false)
        };
        let set = Self::blue_green("windows/blue-green/2", Change::Image, 2);
        vec![
            of("in-place", 4),
            Self { windows: Some(ZONE_OF_CHANGED_CLOCK), ..of("changed-clock", 4) },
            Self { hooks: true, ..of("hooks", 3) },
            Self { windows: Some("UTC"), ..set },
            Self { stateful_sets: &[("ledger", 3)], ..of("held", 3) },
        ]
    }

    /// When it begins, in seconds since 1970. Where the clock is changed, that happens two minutes later.
    pub fn begins_at(&self) -> i64 {
        if self.windows == Some(ZONE_OF_CHANGED_CLOCK) { 1_806_195_480 } else { 1_767_225_600 }
    }

    /// The time so many seconds after it begins.
    pub fn time(&self, seconds: i64) -> String {
        let at = chrono::DateTime::from_timestamp(self.begins_at() + seconds, 0).unwrap_or_default();
        at.to_rfc3339_opts(chrono::SecondsFormat::Secs, true)
    }

    fn windows(&self) -> Value {
        // No window opens in the hour that the changed clock skips, so a wrong offset delays the rollout by an hour.
        let hours = if self.windows == Some(ZONE_OF_CHANGED_CLOCK) { "1,3-23" } else { "*" };
        let schedule = format!("*/2 {hours} * * *");
        let window = |zone| json!({"schedule": schedule, "duration": "1m", "timeZone": zone});
        self.windows.map(window).into_iter().collect()
    }

    /// A StatefulSetRollout in front of one StatefulSet, and of two that move one after the other.
    fn held() -> Vec<Self> {
        const ONE: &[(&str, i64)] = &[("ledger", 3)];
        const TWO: &[(&str, i64)] = &[("ledger-a", 2), ("ledger-b", 2)];
        let of = |name: &str, change, stateful_sets: &'static [(&str, i64)]| {
            let nodes = stateful_sets.iter().map(|(_, replicas)| replicas).sum();
            Self { stateful_sets, ..Self::new(format!("held/{name}"), change, nodes, 1, false) }
        };
        vec![
            of("create/3", Change::Create, ONE),
            of("image/3", Change::Image, ONE),
            of("up-and-image/3", Change::UpAndImage, ONE),
            of("restart/3", Change::Restart, ONE),
            of("stall/3", Change::Stall, ONE),
            Self { hooks: true, ..of("hooks/3", Change::Image, ONE) },
            of("zones/4", Change::Image, TWO),
            of("drain/4", Change::Drain, TWO),
        ]
    }

    /// Fleets with a hook at each point of their strategy.
    fn with_hooks() -> Vec<Self> {
        let in_place = |word: &str, change| Self::new(format!("hooks/{word}/3"), change, 3, 1, false);
        let scenarios = [
            in_place("image", Change::Image),
            in_place("down", Change::Down),
            in_place("restart", Change::Restart),
            Self::blue_green("hooks-blue-green/image/2", Change::Image, 2),
            Self {
                promotion: "Immediately",
                ..Self::blue_green("hooks-immediately/image/2", Change::Image, 2)
            },
            Self::hard_fork("hooks-hard-fork/image/2", Change::Image, 2),
            in_place("create", Change::Create),
            in_place("up", Change::Up),
            in_place("up-and-image", Change::UpAndImage),
            Self { claims_go: true, ..in_place("repair", Change::Repair) },
        ];
        // Jobs that succeed, fail, and never start; the last two are skipped.
        let asking = [
            (in_place("peers", Change::Image), "backup:1"),
            (Self::blue_green("hooks-blue-green/peers/2", Change::Image, 2), "backup:1"),
            (Self::new("hooks/job-fails/1".into(), Change::Image, 1, 1, false), "backup:crash"),
            (Self::new("hooks/job-never-starts/1".into(), Change::Image, 1, 1, false), "backup:nope"),
        ];
        let asking = asking.map(|(scenario, image)| Self { job: Some(image), ..scenario });
        scenarios.into_iter().chain(asking).map(|scenario| Self { hooks: true, ..scenario }).collect()
    }

    /// A Job, requests and a query, at separate points, and an approval that never comes.
    fn hooks_that_ask(&self, image: &str) -> Value {
        let pod = json!({"restartPolicy": "Never", "terminationGracePeriodSeconds": 1,
            "containers": [{"name": "backup", "image": image}]});
        // It is kept for longer than the run.
        let job = json!({"backoffLimit": 0, "ttlSecondsAfterFinished": 86_400, "template": {"spec": pod}});
        let http = |what: &str| {
            let url = format!("http://{{{{podIP}}}}:7/{what}?node={{{{node}}}}");
            json!({"url": url, "method": "POST", "success": "body.state == 'drained'",
                "failure": "body.state == 'failed'", "intervalSeconds": 1, "requestTimeoutSeconds": 1})
        };
        let query = json!({"promql": "errors", "success": "scalar < 0.5", "intervalSeconds": 1});
        let (before, after) = if self.makes_sets() {
            ("BeforePromotion", "AfterPromotion")
        } else {
            ("AfterStep", "AfterRollout")
        };
        json!([
            {"name": "backup", "at": "BeforeRollout", "timeoutSeconds": 20, "onFailure": "Continue",
                "job": {"template": job}},
            {"name": "drain", "at": "BeforeNode", "timeoutSeconds": 86_400, "http": http("drain")},
            {"name": "look", "at": "AfterNode", "timeoutSeconds": 86_400, "http": http("look")},
            {"name": "errors", "at": before, "timeoutSeconds": 86_400, "query": query},
            {"name": "go", "at": after, "approval": {}, "timeoutSeconds": 1, "onFailure": "Continue"},
            {"name": "leave", "at": "BeforeRemove", "timeoutSeconds": 86_400, "http": http("leave")},
        ])
    }

    /// True if it creates nodes, or loses one.
    fn adds_nodes(&self) -> bool {
        matches!(self.change, Change::Create | Change::Up | Change::UpAndImage | Change::Repair)
    }

    /// A short wait at each point, and an approval that never comes.
    fn list_of_hooks(&self) -> Value {
        if let Some(image) = self.job {
            return self.hooks_that_ask(image);
        }
        let points: &[&str] = match (self.strategy, self.promotion) {
            _ if self.adds_nodes() => &[
                "BeforeCreate",
                "AfterFirstCreation",
                "AfterCreate",
                "BeforeRemove",
                "AfterScaleUp",
                "AfterRollout",
            ],
            _ if self.is_held() => &["BeforeRollout", "BeforeNode", "AfterNode", "AfterStep", "AfterRollout"],
            ("InPlace", _) => {
                &["BeforeRollout", "BeforeNode", "AfterNode", "AfterStep", "AfterRollout", "BeforeRemove"]
            }
            (_, "Immediately") => &["BeforeRollout", "AfterRollout", "BeforeRemove"],
            ("HardFork", _) => &["BeforeRollout", "BeforePromotion", "AfterRollout", "BeforeRemove"],
            _ => &["BeforeRollout", "BeforePromotion", "AfterPromotion", "AfterRollout", "BeforeRemove"],
        };
        let each = points.iter().enumerate().map(|(index, at)| {
            let name = at.to_lowercase();
            if index % 2 == 0 {
                json!({"name": name, "at": at, "wait": {"seconds": 1}})
            } else {
                json!({"name": name, "at": at, "approval": {}, "timeoutSeconds": 1, "onFailure": "Continue"})
            }
        });
        each.collect()
    }

    /// Verbs for in-place fleets.
    fn verbs() -> Vec<Self> {
        let of = |word: &str, change| Self::new(format!("in-place-verbs/{word}/3"), change, 3, 1, false);
        vec![
            of("restart", Change::Restart),
            of("stall", Change::Stall),
            of("rollback", Change::Back),
            Self { follow: Follow::AbortAndRetry, ..of("abort", Change::Image) },
            Self { rolls_back: true, ..of("blameless", Change::Image) },
            Self {
                rolls_back: true,
                min_ready_seconds: DEADLINE_SECONDS + 10,
                ..of("patient", Change::Image)
            },
        ]
    }

    /// Promotions, and verbs for fleets with sets.
    fn verbs_of_sets() -> Vec<Self> {
        let mut all = Vec::new();
        for nodes in [1, 3] {
            for (word, change) in [("image", Change::Image), ("template", Change::Template)] {
                let manual = Self::blue_green(&format!("manual/{word}/{nodes}"), change, nodes);
                all.push(Self { promotion: "Manual", follow: Follow::Promote, ..manual });
                let at_once = Self::blue_green(&format!("immediately/{word}/{nodes}"), change, nodes);
                all.push(Self { promotion: "Immediately", ..at_once });
            }
        }
        let of = |word: &str, change| Self::blue_green(&format!("blue-green-verbs/{word}/2"), change, 2);
        all.extend([
            of("restart", Change::Restart),
            of("stall", Change::Stall),
            of("rollback", Change::Back),
            of("same-build", Change::SameBuild),
            of("new-build", Change::NewBuild),
            Self { follow: Follow::AbortAndRetry, promotion: "Manual", ..of("abort", Change::Image) },
            Self { follow: Follow::BackOnceMoved, ..of("quick-back", Change::Image) },
            Self { claims_go: true, ..of("claims-go", Change::Image) },
            Self { sidecar: true, ..of("sidecar", Change::Image) },
        ]);
        let of = |word: &str, change| Self::hard_fork(&format!("hard-fork-verbs/{word}/2"), change, 2);
        all.extend([
            of("restart", Change::Restart),
            of("stall", Change::Stall),
            Self { follow: Follow::AbortAndRetry, ..of("abort", Change::Broken) },
        ]);
        all
    }

    fn blue_green(name: &str, change: Change, nodes: i64) -> Self {
        Self { strategy: "BlueGreen", ..Self::new(name.to_owned(), change, nodes, 1, false) }
    }

    fn hard_fork(name: &str, change: Change, nodes: i64) -> Self {
        Self { strategy: "HardFork", ..Self::new(name.to_owned(), change, nodes, 1, true) }
    }

    fn new(name: String, change: Change, nodes: i64, max_unavailable: i64, sidecar: bool) -> Self {
        Self {
            name,
            change,
            nodes,
            max_unavailable,
            sidecar,
            strategy: "InPlace",
            promotion: "WhenReady",
            follow: Follow::Nothing,
            claims_go: false,
            hooks: false,
            rolls_back: change == Change::Stall,
            min_ready_seconds: 0,
            job: None,
            windows: None,
            stateful_sets: &[],
        }
    }

    /// The scenario with this name.
    pub fn named(name: &str) -> Self {
        Self::all().into_iter().find(|s| s.name == name).unwrap_or_else(|| panic!("no scenario {name:?}"))
    }

    /// True if the fleet is well before the change.
    pub fn begins_well(&self) -> bool {
        !matches!(self.change, Change::Create | Change::Beside)
    }

    /// True if it is about a StatefulNode without a fleet.
    pub fn is_alone(&self) -> bool {
        self.nodes == 0
    }

    /// True if it is about a StatefulSetRollout.
    pub fn is_held(&self) -> bool {
        !self.stateful_sets.is_empty()
    }

    /// What the names of all its nodes begin with.
    pub fn subjects(&self) -> Vec<&'static str> {
        if self.is_held() { self.stateful_sets.iter().map(|(name, _)| *name).collect() } else { vec!["db-"] }
    }

    /// The pod of a node; a StatefulSetRollout has pods only.
    pub fn pod_of(&self, node: &str) -> String {
        if self.is_held() { node.to_owned() } else { format!("{node}-0") }
    }

    /// The StatefulSet of a node.
    pub fn set_of(&self, node: &str) -> String {
        let of_pod = node.rsplit_once('-').map(|(set, _)| set).filter(|_| self.is_held());
        of_pod.unwrap_or(node).to_owned()
    }

    /// True if its rollouts create sets.
    pub fn makes_sets(&self) -> bool {
        self.strategy != "InPlace"
    }

    /// The reason of `UpToDate` at the end of the scenario's rollout.
    pub fn ending(&self) -> &'static str {
        if self.change == Change::Stall { "RolledBack" } else { "Applied" }
    }

    /// True if a deletion of the fleet leaves, or may leave, nodes behind.
    pub fn releases(&self) -> bool {
        matches!(self.change, Change::Retain | Change::LetGo)
    }

    /// A merge patch that has nodes and claims stay, or go.
    pub fn release(stay: bool) -> Value {
        let word = if stay { "Retain" } else { "Delete" };
        json!({"spec": {"deletionPolicy": word, "template": {"spec": {"volumeClaimRetention": word}}}})
    }

    /// The names of the nodes of a set.
    pub fn nodes_of(&self, set: &str) -> Vec<String> {
        let set = set.into();
        (0..self.nodes as i32).map(|ordinal| windlass::api::names::node_name("db", &set, ordinal)).collect()
    }

    /// The names of the initial nodes.
    pub fn node_names(&self) -> Vec<String> {
        if self.is_alone() {
            return vec!["db".to_owned()];
        }
        if self.is_held() {
            let of = |&(set, replicas): &(&'static str, i64)| {
                (0..replicas).map(move |ordinal| format!("{set}-{ordinal}"))
            };
            return self.stateful_sets.iter().flat_map(of).collect();
        }
        (0..self.nodes).map(|ordinal| format!("db-{ordinal}")).collect()
    }

    /// The kind of the changed object.
    pub fn kind(&self) -> &'static str {
        match () {
            () if self.is_held() => "StatefulSetRollout",
            () if self.is_alone() => "StatefulNode",
            () => "NodeDeployment",
        }
    }

    /// The StatefulSets in front of which a StatefulSetRollout is put.
    pub fn stateful_sets(&self) -> Vec<Value> {
        let of = |&(name, replicas): &(&str, i64)| {
            json!({
                "apiVersion": "apps/v1", "kind": "StatefulSet",
                "metadata": {"name": name, "namespace": NAMESPACE},
                "spec": {
                    "replicas": replicas, "serviceName": name, "podManagementPolicy": "Parallel",
                    "selector": {"matchLabels": {"app": name}},
                    "template": {
                        "metadata": {"labels": {"app": name}},
                        "spec": {"terminationGracePeriodSeconds": 1, "containers": [Self::container("db:1", "1")]},
                    },
                    "volumeClaimTemplates": [Self::claim()],
                },
            })
        };
        self.stateful_sets.iter().map(of).collect()
    }

    fn rollout_of_stateful_sets(&self) -> Value {
        let names: Vec<&str> = self.stateful_sets.iter().map(|(name, _)| *name).collect();
        let mut strategy = json!({
            "maxUnavailable": self.max_unavailable, "progressDeadlineSeconds": DEADLINE_SECONDS,
            "groups": if names.len() > 1 { "OneAtATime" } else { "Together" },
        });
        if self.hooks {
            strategy["hooks"] = self.list_of_hooks();
            strategy["steps"] = json!([1, "100%"]);
        }
        strategy["windows"] = self.windows();
        if self.rolls_back {
            strategy["onStall"] = "Rollback".into();
        }
        json!({
            "apiVersion": "windlass.dev/v1alpha1", "kind": "StatefulSetRollout",
            "metadata": {"name": "db", "namespace": NAMESPACE},
            "spec": {"statefulSets": {"names": names}, "strategy": strategy},
        })
    }

    fn claim() -> Value {
        json!({
            "metadata": {"name": "data"},
            "spec": {
                "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}},
            },
        })
    }

    pub fn container(image: &str, speed: &str) -> Value {
        json!({
            "name": "db", "image": image, "env": [{"name": "SPEED", "value": speed}],
            "volumeMounts": [{"name": "data", "mountPath": "/data"}],
        })
    }

    /// The initial object.
    pub fn object(&self) -> Value {
        if self.is_held() {
            return self.rollout_of_stateful_sets();
        }
        let mut node = json!({
            "podTemplate": {
                "metadata": {},
                "spec": {
                    "terminationGracePeriodSeconds": 1,
                    "containers": [Self::container("db:1", "1")],
                },
            },
            "volumeClaimTemplates": [Self::claim()],
            "progressDeadlineSeconds": DEADLINE_SECONDS,
        });
        if self.change == Change::Beside {
            node["podTemplate"]["spec"]["containers"] = Self::beside("exporter:1-crash");
        }
        if self.claims_go {
            node["volumeClaimRetention"] = "Delete".into();
        }
        if self.sidecar {
            node["sidecar"] = json!({"image": "windlass:1"});
            node["podTemplate"]["metadata"] =
                json!({"annotations": {"windlass.test/sidecar-url": "http://{podIP}:7777"}});
        }
        let metadata = json!({"name": "db", "namespace": NAMESPACE});
        let spec = if self.is_alone() {
            node
        } else {
            let mut fleet = json!({
                "replicas": self.nodes,
                "template": {"spec": node},
                "updateStrategy": {
                    "type": self.strategy,
                    "inPlace": {"maxUnavailable": self.max_unavailable},
                    "blueGreen": {"retireDelaySeconds": self.retire_delay(), "promotion": self.promotion},
                    "progressDeadlineSeconds": DEADLINE_SECONDS,
                },
            });
            if self.change == Change::LetGo {
                fleet["deletionPolicy"] = "Retain".into();
            }
            if self.hooks {
                fleet["updateStrategy"]["hooks"] = self.list_of_hooks();
                fleet["updateStrategy"]["inPlace"]["steps"] = json!([1, "100%"]);
            }
            if self.follow == Follow::AbortAndRetry && !self.makes_sets() {
                fleet["updateStrategy"]["inPlace"]["partition"] = 1.into();
            }
            if self.makes_sets() {
                fleet["service"] = json!({"ports": [{"port": 80}]});
            }
            if self.strategy == "HardFork" {
                fleet["updateStrategy"]["hardFork"] = json!({"haltHeight": HALT_HEIGHT});
            }
            if self.min_ready_seconds > 0 {
                fleet["minReadySeconds"] = self.min_ready_seconds.into();
            }
            fleet["updateStrategy"]["windows"] = self.windows();
            if self.rolls_back {
                fleet["updateStrategy"]["onStall"] = "Rollback".into();
            }
            if matches!(self.change, Change::SameBuild | Change::NewBuild) {
                fleet["unsafeCustomBuildID"] = "one".into();
            }
            fleet
        };
        json!({
            "apiVersion": "windlass.dev/v1alpha1", "kind": self.kind(), "metadata": metadata, "spec": spec,
        })
    }

    /// Long enough to return to the old set, or almost none.
    fn retire_delay(&self) -> i64 {
        if self.follow == Follow::BackOnceMoved { 60 } else { 5 }
    }

    /// A merge patch of the object that applies this patch to its nodes' template.
    pub fn of_nodes(&self, patch: &Value) -> Value {
        if self.is_alone() { json!({"spec": patch}) } else { json!({"spec": {"template": {"spec": patch}}}) }
    }

    /// The containers of a fleet with a second container, with its image.
    pub fn beside(image: &str) -> Value {
        json!([Self::container("db:1", "1"), {"name": "exporter", "image": image}])
    }

    /// A merge patch that lets its claims grow.
    pub fn grown(&self) -> Value {
        if self.is_alone() {
            return json!({"spec": {"claimSizes": {"data": GROWN}}});
        }
        let mut claim = Self::claim();
        claim["spec"]["resources"]["requests"]["storage"] = GROWN.into();
        self.of_nodes(&json!({"volumeClaimTemplates": [claim]}))
    }

    /// A merge patch that sets an image.
    pub fn image(&self, image: &str) -> Value {
        self.of_nodes(&json!({"image": image}))
    }

    /// A merge patch that changes the template but not the image.
    pub fn template(&self, value: &str) -> Value {
        let containers = json!([Self::container("db:1", value)]);
        self.of_nodes(&json!({"podTemplate": {"spec": {"containers": containers}}}))
    }
}
