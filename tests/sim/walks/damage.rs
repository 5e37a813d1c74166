//! Damage by a person to every kind of object of a fleet: deletes, edits, removed labels, annotations, finalizers and
//! owners, and lost fields of statuses. What Windlass cannot repair, the person repairs later.

use kube::api::{DeleteParams, PropagationPolicy};
use serde_json::{Value, json};
use windlass::api::names::ANNOTATION_OWNER_UID;
use windlass_sim::Random;

use crate::walks::hand::{Answer, FLEET, Hand, name};
use crate::walks::schema::one;
use crate::walks::steps::Done;

/// A repair that the person owes before the fleet can come to rest.
#[derive(Clone, Debug)]
pub enum Debt {
    /// A merge patch of an object, unless it was replaced.
    Patch { kind: &'static str, name: String, uid: Value, patch: Value },
    /// An orphaned pod that blocks the next one.
    OrphanPod(String),
}

impl Debt {
    /// Carries it out.
    pub async fn settle(&self, hand: &Hand) {
        match self {
            Self::Patch { kind, name, uid, patch } => {
                if hand.get(kind, name).await.is_some_and(|object| object["metadata"]["uid"] == *uid) {
                    drop(hand.patch(kind, name, patch).await);
                }
            }
            Self::OrphanPod(pod) => {
                let orphan = hand.get("Pod", pod).await;
                if orphan.is_some_and(|pod| {
                    pod["metadata"]["ownerReferences"].as_array().is_none_or(Vec::is_empty)
                }) {
                    drop(hand.delete("Pod", pod).await);
                }
            }
        }
    }
}

const HELD: &str = "walk.test/held";

/// Does some damage, and adds the owed repairs.
pub async fn damage(hand: &Hand, random: &mut Random, debts: &mut Vec<Debt>) -> Done {
    let kind = *one(
        &[
            "StatefulNode",
            "StatefulNode",
            "StatefulSet",
            "StatefulSet",
            "Pod",
            "Pod",
            "Service",
            "PersistentVolumeClaim",
            "ControllerRevision",
            "NodeDeployment",
        ],
        random,
    );
    let mut objects = hand.list(kind).await;
    // StatefulSets manage their own revisions.
    objects.retain(|o| {
        kind != "ControllerRevision" || o["metadata"]["labels"]["windlass.dev/deployment"] == FLEET
    });
    if objects.is_empty() {
        return Done::nothing(format!("no {kind} to damage"));
    }
    let object = one(&objects, random).clone();
    let target = Target { hand, kind, name: name(&object), object: &object };
    match kind {
        "StatefulNode" => target.node(random, debts).await,
        "StatefulSet" => target.set(random, debts).await,
        "Pod" => target.pod(random, debts).await,
        "Service" => target.service(random, debts).await,
        "PersistentVolumeClaim" => target.claim(random, debts).await,
        "ControllerRevision" => target.delete(&DeleteParams::background(), "deletes").await,
        _ => target.fleet(random, debts).await,
    }
}

struct Target<'a> {
    hand: &'a Hand,
    kind: &'static str,
    name: String,
    object: &'a Value,
}

impl Target<'_> {
    fn done(&self, what: &str, answer: Answer) -> Done {
        Done::new(format!("{what} {} {}", self.kind, self.name), answer)
    }

    async fn patch(&self, what: &str, patch: Value) -> Done {
        self.done(&format!("{what} {patch} of"), self.hand.patch(self.kind, &self.name, &patch).await)
    }

    /// Patches this object, but not another one with its name.
    async fn patch_this(&self, what: &str, patch: Value) -> Done {
        let mut of_this = patch.clone();
        of_this["metadata"]["uid"] = self.object["metadata"]["uid"].clone();
        self.done(&format!("{what} {patch} of"), self.hand.patch(self.kind, &self.name, &of_this).await)
    }

    async fn delete(&self, how: &DeleteParams, what: &str) -> Done {
        self.done(what, self.hand.delete_so(self.kind, &self.name, how).await)
    }

    fn owes(&self, patch: Value, debts: &mut Vec<Debt>) {
        let uid = self.object["metadata"]["uid"].clone();
        debts.push(Debt::Patch { kind: self.kind, name: self.name.clone(), uid, patch });
    }

    /// Removes a label, annotation or other entry of the metadata.
    async fn strip(&self, of: &str, random: &mut Random, debts: &mut Vec<Debt>) -> Done {
        let keys: Vec<String> = self.object["metadata"][of]
            .as_object()
            .map(|map| map.keys().cloned().collect())
            .unwrap_or_default();
        if keys.is_empty() {
            return Done::nothing(format!("no {of} of {} {}", self.kind, self.name));
        }
        let key = one(&keys, random);
        if key == ANNOTATION_OWNER_UID {
            return self.disown_by_word(key, debts).await;
        }
        self.patch("strips", json!({"metadata": {of: {key: null}}})).await
    }

    /// Windlass does not touch an object without an owner, and reports it: only the person can restore it.
    async fn disown(&self, debts: &mut Vec<Debt>) -> Done {
        let owners = &self.object["metadata"]["ownerReferences"];
        // Otherwise the repair is owed already.
        if owners.as_array().is_some_and(|list| !list.is_empty()) {
            self.owes(json!({"metadata": {"ownerReferences": owners}}), debts);
        }
        self.patch_this("strips", json!({"metadata": {"ownerReferences": null}})).await
    }

    /// Under `deletionPolicy: Retain` this annotation is the only owner reference.
    async fn disown_by_word(&self, key: &str, debts: &mut Vec<Debt>) -> Done {
        let owner = &self.object["metadata"]["annotations"][key];
        self.owes(json!({"metadata": {"annotations": {key: owner}}}), debts);
        self.patch_this("strips", json!({"metadata": {"annotations": {key: null}}})).await
    }

    /// Adds a finalizer, for a while.
    async fn hold(&self, debts: &mut Vec<Debt>) -> Done {
        let list = self.object["metadata"]["finalizers"].clone();
        let mut held = list.as_array().cloned().unwrap_or_default();
        held.retain(|finalizer| finalizer != HELD);
        self.owes(json!({"metadata": {"finalizers": held}}), debts);
        held.push(HELD.into());
        let done = self.patch_this("holds", json!({"metadata": {"finalizers": held}})).await;
        if done.refused.is_some() {
            return done;
        }
        self.delete(&DeleteParams::background(), "holds and deletes").await
    }

    /// Removes a field of the status, or all of it.
    async fn lose(&self, random: &mut Random) -> Done {
        let fields: Vec<String> =
            self.object["status"].as_object().map(|map| map.keys().cloned().collect()).unwrap_or_default();
        if fields.is_empty() {
            return Done::nothing(format!("no status of {} {}", self.kind, self.name));
        }
        let field = one(&fields, random).clone();
        let patch = json!({"status": {&field: null}});
        self.done(&format!("loses {field} of"), self.hand.patch_status(self.kind, &self.name, &patch).await)
    }

    async fn node(&self, random: &mut Random, debts: &mut Vec<Debt>) -> Done {
        match random.between(0, 13) {
            0 | 1 => self.delete(&DeleteParams::background(), "deletes").await,
            2 => self.delete(&DeleteParams::foreground(), "deletes (foreground)").await,
            3 | 4 => self.strip("labels", random, debts).await,
            5 => self.strip("annotations", random, debts).await,
            6 => self.disown(debts).await,
            7 => self.hold(debts).await,
            8 => self.patch("edits", json!({"spec": {"image": "db:edited"}})).await,
            9 => {
                let mut template = self.object["spec"]["podTemplate"].clone();
                template["metadata"]["annotations"]["by"] = "hand".into();
                self.patch("edits", json!({"spec": {"podTemplate": template}})).await
            }
            10 => {
                let field = *one(&["grantedHash", "grantID", "removalID", "haltHeight"], random);
                let value = if field == "haltHeight" { json!(1) } else { json!("by-hand") };
                let value = if random.between(0, 1) == 0 { Value::Null } else { value };
                self.patch("edits", json!({"spec": {field: value}})).await
            }
            11 => {
                self.owes(json!({"spec": {"suspend": false}}), debts);
                self.patch("edits", json!({"spec": {"suspend": true}})).await
            }
            _ => self.lose(random).await,
        }
    }

    async fn set(&self, random: &mut Random, debts: &mut Vec<Debt>) -> Done {
        let orphan =
            DeleteParams { propagation_policy: Some(PropagationPolicy::Orphan), ..DeleteParams::default() };
        match random.between(0, 11) {
            0 | 1 => self.delete(&DeleteParams::background(), "deletes").await,
            2 => self.delete(&orphan, "deletes (orphan)").await,
            3 => self.strip("labels", random, debts).await,
            4 => self.strip("annotations", random, debts).await,
            5 => self.disown(debts).await,
            6 => self.hold(debts).await,
            7 => {
                let edit = json!({"spec": {"template": {"metadata": {"annotations": {"by": "hand"}}}}});
                self.patch("edits", edit).await
            }
            8 => {
                let mut containers = self.object["spec"]["template"]["spec"]["containers"].clone();
                containers[0]["image"] = one(&["db:edited", "db:edited-nope"], random).to_owned().into();
                self.patch("edits", json!({"spec": {"template": {"spec": {"containers": containers}}}})).await
            }
            9 => self.patch("edits", json!({"spec": {"replicas": *one(&[0, 2], random)}})).await,
            10 => self.patch("edits", json!({"spec": {"updateStrategy": {"type": "RollingUpdate"}}})).await,
            _ => {
                self.patch("edits", json!({"spec": {"minReadySeconds": 5, "revisionHistoryLimit": 1}})).await
            }
        }
    }

    async fn pod(&self, random: &mut Random, debts: &mut Vec<Debt>) -> Done {
        match random.between(0, 8) {
            0 | 1 => self.delete(&DeleteParams::background(), "deletes").await,
            2 => self.delete(&DeleteParams::default().grace_period(0), "deletes by force").await,
            3 => self.done("evicts", self.hand.evict(&self.name).await),
            4 => {
                // Nothing restores a pod's labels.
                self.owes(json!({"metadata": {"labels": self.object["metadata"]["labels"]}}), debts);
                debts.push(Debt::OrphanPod(self.name.clone()));
                self.strip("labels", random, debts).await
            }
            5 => {
                self.owes(
                    json!({"metadata": {"annotations": self.object["metadata"]["annotations"]}}),
                    debts,
                );
                self.strip("annotations", random, debts).await
            }
            6 => {
                debts.push(Debt::OrphanPod(self.name.clone()));
                self.disown(debts).await
            }
            7 => self.hold(debts).await,
            _ => self.patch("edits", json!({"metadata": {"labels": {"by": "hand"}}})).await,
        }
    }

    async fn service(&self, random: &mut Random, debts: &mut Vec<Debt>) -> Done {
        match random.between(0, 5) {
            0 => self.delete(&DeleteParams::background(), "deletes").await,
            1 => self.strip("labels", random, debts).await,
            2 => self.strip("annotations", random, debts).await,
            3 => self.disown(debts).await,
            4 => self.patch("edits", json!({"spec": {"selector": {"windlass.dev/set": "none"}}})).await,
            _ => self.patch("edits", json!({"spec": {"ports": [{"port": 4321}]}})).await,
        }
    }

    async fn claim(&self, random: &mut Random, debts: &mut Vec<Debt>) -> Done {
        match random.between(0, 4) {
            0 => self.delete(&DeleteParams::background(), "deletes").await,
            1 => {
                let label = &self.object["metadata"]["labels"]["windlass.dev/node"];
                self.owes(json!({"metadata": {"labels": {"windlass.dev/node": label}}}), debts);
                self.strip("labels", random, debts).await
            }
            2 => self.strip("annotations", random, debts).await,
            3 => self.disown(debts).await,
            _ => self.patch("edits", json!({"metadata": {"labels": {"by": "hand"}}})).await,
        }
    }

    async fn fleet(&self, random: &mut Random, debts: &mut Vec<Debt>) -> Done {
        match random.between(0, 3) {
            0 => self.strip("annotations", random, debts).await,
            1 => self.patch("edits", json!({"metadata": {"labels": {"by": "hand"}}})).await,
            _ => self.lose(random).await,
        }
    }
}
