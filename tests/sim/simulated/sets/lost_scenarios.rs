//! The situations in which statuses lose fields: at rest, and in the middle of every recipe.

use serde_json::{Value, json};

use super::world::{FLEET, NODE, World, blue_green, condition, fleet, is_up_to_date, text, with_sidecar};

macro_rules! scenarios {
    ($($name:ident),+ $(,)?) => {
        /// The state of a fleet, or of a node without one, when its statuses lose fields.
        #[derive(Clone, Copy, Debug, PartialEq)]
        pub enum Scenario {
            $($name),+
        }

        use Scenario::{$($name),+};

        pub const ALL: [Scenario; [$(stringify!($name)),+].len()] = [$($name),+];
    };
}

scenarios! {
    Create,
    Rest,
    RestOfSet,
    Image,
    Template,
    Restart,
    Superseded,
    Aborted,
    RolledBack,
    ScaleOut,
    ScaleIn,
    MarkReady,
    BlueGreen,
    Manual,
    Immediately,
    AbortedSet,
    HardFork,
    LoneCreate,
    LoneRest,
    LoneUpdate,
    LoneRestart,
    LoneMarkReady,
}

/// A requested restart.
const LATER: &str = "2099-01-01T00:00:00Z";

/// A node like those of this fleet.
fn lone_node(mut fleet: Value) -> Value {
    let spec = fleet["spec"]["template"]["spec"].take();
    json!({"apiVersion": "windlass.dev/v1alpha1", "kind": "StatefulNode", "metadata": {"name": "db"}, "spec": spec})
}

/// Another pod template with the same image.
fn other_template() -> Value {
    let main = json!({"name": "main", "image": "db:0", "env": [{"name": "SPEED", "value": "2"}]});
    json!({"podTemplate": {"spec": {"containers": [main]}}})
}

impl Scenario {
    pub fn is_lone(self) -> bool {
        matches!(self, LoneCreate | LoneRest | LoneUpdate | LoneRestart | LoneMarkReady)
    }

    /// True if nothing changes, so that no write is to be expected.
    pub fn is_at_rest(self) -> bool {
        matches!(self, Rest | RestOfSet | LoneRest)
    }

    /// True if no pod is to be replaced.
    pub fn keeps_pods(self) -> bool {
        self.is_at_rest() || matches!(self, MarkReady | LoneMarkReady)
    }

    fn object(self) -> Value {
        let retire = json!({"retireDelaySeconds": 20});
        match self {
            BlueGreen | RestOfSet | AbortedSet => blue_green(2, retire),
            Manual => blue_green(2, json!({"retireDelaySeconds": 20, "promotion": "Manual"})),
            Immediately => blue_green(2, json!({"promotion": "Immediately"})),
            HardFork => with_sidecar(fleet(
                2,
                json!({"type": "HardFork", "hardFork": {"haltHeight": 1000}, "blueGreen": retire}),
            )),
            RolledBack => {
                fleet(3, json!({"type": "InPlace", "onStall": "Rollback", "progressDeadlineSeconds": 30}))
            }
            MarkReady => with_sidecar(fleet(2, json!({"type": "InPlace"}))),
            ScaleIn => fleet(4, json!({"type": "InPlace"})),
            LoneMarkReady => lone_node(with_sidecar(fleet(1, json!({})))),
            _ if self.is_lone() => lone_node(fleet(1, json!({}))),
            _ => fleet(3, json!({"type": "InPlace"})),
        }
    }

    /// Brings the object to the point from which fields may be lost.
    pub async fn prepare(self, w: &World) {
        w.applications.reach(500);
        if matches!(self, Create | LoneCreate) {
            return;
        }
        w.create(self.object()).await;
        if self.is_lone() {
            w.until("the node runs", |_| is_settled(&w.get(NODE, "db"))).await;
            return;
        }
        w.until("the fleet is complete", is_up_to_date).await;
        match self {
            RestOfSet => {
                w.image("db:2").await;
                w.until("the new set serves", |s| is_up_to_date(s) && w.images().len() == 2).await;
                w.rest(60).await;
            }
            Aborted | AbortedSet | Superseded => {
                w.image("db:2-nope").await;
                let failed = |s: &Value| s["rollout"]["nodes"]["failed"].as_i64().is_some_and(|n| n > 0);
                w.until("a node failed", failed).await;
            }
            _ => {}
        }
    }

    /// Starts the change.
    pub async fn begin(self, w: &World) {
        let of_node = async |spec: Value| w.merge(NODE, "db", &json!({"spec": spec})).await;
        match self {
            Create | LoneCreate => w.create(self.object()).await,
            Rest | RestOfSet | LoneRest => {}
            Restart => w.annotate("windlass.dev/restartedAt", LATER).await,
            Superseded => w.image("db:3").await,
            Aborted | AbortedSet => abort(w).await,
            RolledBack => w.image("db:2-nope").await,
            Template => w.change(json!({"template": {"spec": other_template()}})).await,
            ScaleOut => w.change(json!({"replicas": 5})).await,
            ScaleIn => w.change(json!({"replicas": 2})).await,
            MarkReady | LoneMarkReady => w.applications.forget_ready(),
            LoneUpdate => of_node(json!({"image": "db:2"})).await,
            LoneRestart => of_node(other_template()).await,
            Image | BlueGreen | Manual | Immediately | HardFork => w.image("db:2").await,
        }
    }

    /// The least number of Ready pods of the set that serves, at any time.
    pub fn least_ready(self) -> usize {
        match self {
            Rest | ScaleOut => 3,
            // Both of two, or two of three with one disrupted at most.
            RestOfSet | BlueGreen | Manual | AbortedSet | HardFork | ScaleIn | Image | Template | Restart
            | Superseded | Aborted | RolledBack => 2,
            LoneRest => 1,
            Create | Immediately | MarkReady | LoneCreate | LoneUpdate | LoneRestart | LoneMarkReady => 0,
        }
    }

    /// The number of pods at the end.
    fn size(self) -> usize {
        match self {
            ScaleOut => 5,
            RestOfSet | BlueGreen | Manual | Immediately | AbortedSet | HardFork | ScaleIn | MarkReady => 2,
            _ if self.is_lone() => 1,
            _ => 3,
        }
    }

    fn image(self) -> &'static str {
        match self {
            Superseded => "db:3",
            Image | RestOfSet | BlueGreen | Manual | Immediately | HardFork | LoneUpdate => "db:2",
            _ => "db:1",
        }
    }

    /// True if exactly the wanted pods run, with the wanted template.
    fn runs(self, w: &World) -> bool {
        let pods = w.cluster.snapshot_of("test", &["Pod"]);
        let is_wanted = |pod: &Value| {
            let main = &pod["spec"]["containers"][0];
            let is_new = main["env"][0]["value"] == "2";
            main["image"] == self.image() && is_new == matches!(self, Template | LoneRestart)
        };
        pods.len() == self.size() && pods.iter().all(is_wanted)
    }

    /// True if the object has got where it should.
    pub fn has_converged(self, w: &World) -> bool {
        if self.is_lone() {
            return self.runs(w) && is_settled(&w.get(NODE, "db"));
        }
        let fleet = w.get(FLEET, "db");
        let status = &fleet["status"];
        let rejected = |reason: &str| {
            status["rollout"].is_null() && condition(status, "UpToDate") == format!("False/{reason}")
        };
        let serves = || {
            is_up_to_date(status)
                && status["retiring"].is_null()
                && self.runs(w)
                && w.names(NODE).len() == self.size()
        };
        match self {
            Aborted => rejected("Aborted"),
            AbortedSet => rejected("Aborted") && self.runs(w),
            // A person may have taken the image back instead.
            RolledBack => self.runs(w) && (rejected("RolledBack") || serves()),
            Restart => serves() && status["restartedAt"] == LATER,
            _ => serves(),
        }
    }

    /// Does what the fleet asks a person to do, or what the person of the scenario does: promotes, and aborts or takes
    /// back what does not run.
    pub async fn act(self, w: &World, may_repeat: bool) {
        if self.is_lone() {
            return;
        }
        let status = w.status();
        if condition(&status, "UpToDate") == "Unknown/ReadyToPromote" && self == Manual {
            w.change(json!({"forcePromote": ""})).await;
            w.rest(10).await;
            w.change(json!({"forcePromote": w.status()["requestedRolloutHash"]})).await;
            w.rest(5).await;
        }
        if status["rollout"]["stage"] == "Promoting" {
            w.applications.reach(1000);
        }
        if let Some(plan) = plan_to_retry(&status) {
            w.annotate("windlass.dev/retry", &plan).await;
        }
        if may_repeat && condition(&status, "Stalled").starts_with("True/") {
            match self {
                Aborted | AbortedSet => abort(w).await,
                RolledBack => w.image("db:1").await,
                _ => {}
            }
        }
    }
}

/// Aborts the fleet's plan.
async fn abort(w: &World) {
    w.annotate("windlass.dev/abort", text(&w.status()["plan"], "id")).await;
}

/// The plan that the fleet asks a person to retry.
fn plan_to_retry(status: &Value) -> Option<String> {
    if condition(status, "UpToDate") != "False/PlanFailed" {
        return None;
    }
    let said = status["conditions"].as_array()?.iter().find(|c| c["type"] == "UpToDate")?;
    let plan = text(said, "message").split("windlass.dev/retry").nth(1)?.trim_start_matches(['=', ':', ' ']);
    Some(plan.split(' ').next()?.to_owned())
}

/// True if a node runs what its spec says.
fn is_settled(node: &Value) -> bool {
    let status = &node["status"];
    status["phase"] == "Running"
        && condition(status, "Ready") == "True/NodeReady"
        && condition(status, "Stalled").starts_with("False/")
        && status["observedGeneration"] == node["metadata"]["generation"]
        && status["currentImage"] == node["spec"]["image"]
        && !text(status, "podTemplateHash").is_empty()
        && status["plan"]["state"] != "Active"
}
