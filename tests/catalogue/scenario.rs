//! What happens in a run, faults aside: the objects there are, and the change that is then made.

use serde_json::{Value, json};

/// The change that a scenario is about.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Change {
    /// The object is created.
    Create,
    /// Its image changes.
    Image,
    /// Its template changes under the same image.
    Template,
    /// It has one node more.
    Up,
    /// It has one node fewer; from one, none.
    Down,
    /// A node is lost.
    Repair,
    /// The operator is replaced by one of a version that renders another pod template.
    Upgrade,
}

/// A scenario.
#[derive(Clone, Debug)]
pub struct Scenario {
    pub name: String,
    pub change: Change,
    /// Nodes to begin with, or created; 0 for a node that stands alone.
    pub nodes: i64,
    pub max_unavailable: i64,
    pub sidecar: bool,
    /// `updateStrategy.type`.
    pub strategy: &'static str,
}

pub const NAMESPACE: &str = "shop";
/// How long a rollout may stand still, in seconds of simulated time.
pub const DEADLINE_SECONDS: i64 = 120;

impl Scenario {
    /// Every scenario there is.
    pub fn all() -> Vec<Self> {
        let mut all = Vec::new();
        for nodes in [1, 3, 7] {
            for (word, change) in [
                ("create", Change::Create),
                ("image", Change::Image),
                ("template", Change::Template),
                ("up", Change::Up),
                ("down", Change::Down),
                ("repair", Change::Repair),
            ] {
                all.push(Self::new(format!("in-place/{word}/{nodes}"), change, nodes, 1, false));
            }
        }
        all.push(Self::new("wave-of-2/image/5".into(), Change::Image, 5, 2, false));
        all.push(Self::new("wave-of-2/template/3".into(), Change::Template, 3, 2, false));
        all.push(Self::new("upgrade/operator/3".into(), Change::Upgrade, 3, 1, false));
        for (word, change) in
            [("create", Change::Create), ("image", Change::Image), ("template", Change::Template)]
        {
            all.push(Self::new(format!("alone/{word}/1"), change, 0, 1, false));
        }
        all.push(Self::new("sidecar/create/3".into(), Change::Create, 3, 1, true));
        all.push(Self::new("sidecar/image/3".into(), Change::Image, 3, 1, true));
        for (word, change) in [("image", Change::Image), ("template", Change::Template)] {
            let in_place = Self::new(format!("blue-green/{word}/2"), change, 2, 1, false);
            all.push(Self { strategy: "BlueGreen", ..in_place });
        }
        all
    }

    fn new(name: String, change: Change, nodes: i64, max_unavailable: i64, sidecar: bool) -> Self {
        Self { name, change, nodes, max_unavailable, sidecar, strategy: "InPlace" }
    }

    /// The scenario of this name.
    pub fn named(name: &str) -> Self {
        Self::all().into_iter().find(|s| s.name == name).unwrap_or_else(|| panic!("no scenario {name:?}"))
    }

    /// Whether it is about a node that stands alone.
    pub fn is_alone(&self) -> bool {
        self.nodes == 0
    }

    /// The names of the nodes to begin with.
    pub fn node_names(&self) -> Vec<String> {
        if self.is_alone() {
            return vec!["db".to_owned()];
        }
        (0..self.nodes).map(|ordinal| format!("db-{ordinal}")).collect()
    }

    /// The kind of the object that is changed.
    pub fn kind(&self) -> &'static str {
        if self.is_alone() { "StatefulNode" } else { "NodeDeployment" }
    }

    /// The object as it is created.
    pub fn object(&self) -> Value {
        let mut node = json!({
            "podTemplate": {
                "metadata": {},
                "spec": {
                    "terminationGracePeriodSeconds": 1,
                    "containers": [{
                        "name": "db", "image": "db:1", "env": [{"name": "SPEED", "value": "1"}],
                        "volumeMounts": [{"name": "data", "mountPath": "/data"}],
                    }],
                },
            },
            "volumeClaimTemplates": [{
                "metadata": {"name": "data"},
                "spec": {
                    "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}},
                },
            }],
            "progressDeadlineSeconds": DEADLINE_SECONDS,
        });
        if self.sidecar {
            node["sidecar"] = json!({"image": "windlass:1"});
            node["podTemplate"]["metadata"] =
                json!({"annotations": {"windlass.test/sidecar-url": "http://{podIP}:7777"}});
        }
        let metadata = json!({"name": "db", "namespace": NAMESPACE});
        let spec = if self.is_alone() {
            node
        } else {
            json!({
                "replicas": self.nodes,
                "template": {"spec": node},
                "updateStrategy": {
                    "type": self.strategy,
                    "inPlace": {"maxUnavailable": self.max_unavailable},
                    "blueGreen": {"retireDelaySeconds": 5},
                    "progressDeadlineSeconds": DEADLINE_SECONDS,
                },
            })
        };
        json!({
            "apiVersion": "windlass.dev/v1alpha1", "kind": self.kind(), "metadata": metadata, "spec": spec,
        })
    }

    /// A merge patch of the object that gives its nodes this patch of their template.
    pub fn of_nodes(&self, patch: &Value) -> Value {
        if self.is_alone() { json!({"spec": patch}) } else { json!({"spec": {"template": {"spec": patch}}}) }
    }

    /// A merge patch that asks for an image.
    pub fn image(&self, image: &str) -> Value {
        self.of_nodes(&json!({"image": image}))
    }

    /// A merge patch that changes the template under the same image.
    pub fn template(&self, value: &str) -> Value {
        let container = json!({
            "name": "db", "image": "db:1", "env": [{"name": "SPEED", "value": value}],
            "volumeMounts": [{"name": "data", "mountPath": "/data"}],
        });
        self.of_nodes(&json!({"podTemplate": {"spec": {"containers": [container]}}}))
    }
}
