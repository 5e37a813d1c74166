//! Actions of people in the middle of a scenario, and illnesses of nodes.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::sleep;
use windlass_sim::Pace;

use crate::catalogue::oracles::condition;
use crate::catalogue::peers;
use crate::catalogue::scenario::{Change, Follow, NAMESPACE, Scenario};
use crate::catalogue::sidecars::Manner;
use crate::catalogue::world::World;

/// An action of a person.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Deed {
    /// Sets a third image.
    Third,
    /// Sets the first image again.
    Back,
    /// Changes the template again.
    OtherTemplate,
    /// Sets an image that cannot be pulled, and a minute later a third one.
    BrokenThenThird,
    DeletePod,
    DeleteChild,
    DeleteSet,
    DeleteService,
    StripChild,
    StripSet,
    /// Removes a StatefulSet's managed-by label, so that it is no longer watched.
    DisownSet,
    StripPod,
    DisownService,
    /// Removes a claim's node label for a while.
    StripClaim,
    DeleteFleetService,
    /// Points the fleet's Service at no node.
    EditSelector,
    EditChild,
    EditSet,
    EditStrategy,
    Pause,
    Abort,
    Restart,
    DeleteFleet,
    DeleteNamespace,
    UnknownTask,
    TruncatedPlan,
    UnknownTaskOfNode,
    TruncatedPlanOfNode,
    /// Writes a task into the plan that this version does not know.
    UnreadablePlan,
    UnreadablePlanOfNode,
    OlderStatus,
    OlderStatusOfNode,
    NewerStatus,
    ToZeroAndBack,
    OneFewerAndBack,
    /// Evicts a pod.
    Evict,
    /// Deletes the Jobs of hooks.
    DeleteJobs,
    /// Drains every machine: evicts each pod once the one before is back.
    Drain,
    /// Removes a field of the fleet's status, another one at each point.
    LoseField,
    LoseFieldOfNode,
}

/// How long a person takes between two steps.
const BREATH: Duration = Duration::from_mins(1);

impl Deed {
    /// Every action, by the name of its fault.
    pub fn all() -> Vec<(&'static str, Self)> {
        use Deed::*;
        vec![
            ("F7-third", Third),
            ("F7-back", Back),
            ("F7-template", OtherTemplate),
            ("F7-broken-third", BrokenThenThird),
            ("F11-delete-pod", DeletePod),
            ("F11-delete-child", DeleteChild),
            ("F11-delete-set", DeleteSet),
            ("F11-delete-service", DeleteService),
            ("F11-strip-child", StripChild),
            ("F11-strip-set", StripSet),
            ("F11-disown-set", DisownSet),
            ("F11-strip-pod", StripPod),
            ("F11-disown-service", DisownService),
            ("F11-strip-claim", StripClaim),
            ("F11-delete-fleet-service", DeleteFleetService),
            ("F11-edit-selector", EditSelector),
            ("F11-edit-child", EditChild),
            ("F11-edit-set", EditSet),
            ("F11-edit-strategy", EditStrategy),
            ("F11-pause", Pause),
            ("F11-abort-retry", Abort),
            ("F11-restart", Restart),
            ("F11-delete-fleet", DeleteFleet),
            ("F11-delete-namespace", DeleteNamespace),
            ("F12-unknown-task", UnknownTask),
            ("F12-truncated", TruncatedPlan),
            ("F12-unknown-task-of-node", UnknownTaskOfNode),
            ("F12-truncated-of-node", TruncatedPlanOfNode),
            ("F12-unreadable", UnreadablePlan),
            ("F12-unreadable-of-node", UnreadablePlanOfNode),
            ("F12-older", OlderStatus),
            ("F12-older-of-node", OlderStatusOfNode),
            ("F12-newer", NewerStatus),
            ("F14-job-deleted", DeleteJobs),
            ("F15-none-and-back", ToZeroAndBack),
            ("F15-fewer-and-back", OneFewerAndBack),
            ("F16-evict", Evict),
            ("F16-drain", Drain),
            ("F16-lost-field", LoseField),
            ("F16-lost-field-of-node", LoseFieldOfNode),
        ]
    }

    /// True if it makes sense in a scenario.
    pub fn fits(self, scenario: &Scenario) -> bool {
        use Deed::*;
        let fleet_only = matches!(
            self,
            DeleteChild
                | StripChild
                | EditChild
                | Pause
                | Abort
                | UnknownTask
                | TruncatedPlan
                | UnreadablePlan
                | OlderStatus
                | NewerStatus
                | ToZeroAndBack
                | LoseField
        );
        if matches!(self, DeleteFleetService | EditSelector) && !scenario.makes_sets() {
            return false;
        }
        // Two people with different targets have no common end.
        let wants = matches!(self, Third | Back | OtherTemplate | BrokenThenThird);
        if wants
            && (scenario.follow == Follow::BackOnceMoved
                || matches!(scenario.change, Change::Broken | Change::Beside))
        {
            return false;
        }
        // A promotion from the first write on is finished whatever the next target is, and this one cannot run.
        if self == BrokenThenThird && scenario.promotion == "Immediately" {
            return false;
        }
        // Nodes that stay after their fleet are no end.
        if self.is_the_end() && scenario.releases() {
            return false;
        }
        // What only a fleet of Windlass' own has.
        let of_own = matches!(
            self,
            DeleteChild
                | DeleteSet
                | DeleteService
                | StripChild
                | StripSet
                | DisownSet
                | StripPod
                | DisownService
                | StripClaim
                | EditChild
                | EditSet
                | UnknownTaskOfNode
                | TruncatedPlanOfNode
                | UnreadablePlanOfNode
                | OlderStatusOfNode
                | LoseFieldOfNode
        );
        // The restart is of a time before the object was created.
        let is_early = self == Restart && scenario.change == Change::Create;
        if (of_own || is_early) && scenario.is_held() {
            return false;
        }
        if self == DeleteJobs {
            return scenario.job.is_some();
        }
        if self == OneFewerAndBack {
            return scenario.nodes > 1
                && !matches!(scenario.change, Change::Up | Change::UpAndImage | Change::Down);
        }
        // A fleet that is filled again is filled with the target, without a rollout that a stall could roll back.
        let scales = matches!(
            scenario.change,
            Change::Up | Change::UpAndImage | Change::Down | Change::Stall | Change::Beside
        );
        if self == ToZeroAndBack && scales {
            return false;
        }
        !(fleet_only && scenario.is_alone())
    }

    /// True if it changes the end.
    pub fn moves_the_end(self) -> bool {
        use Deed::*;
        matches!(
            self,
            Third | Back | OtherTemplate | BrokenThenThird | Restart | DeleteFleet | DeleteNamespace
        ) || matches!(self, Deed::EditChild)
    }

    /// True if a plan may end so that only a retry by a person continues.
    pub fn may_need_retry(self) -> bool {
        use Deed::*;
        matches!(
            self,
            Abort | UnknownTask | TruncatedPlan | UnreadablePlan | OlderStatus | NewerStatus | LoseField
        )
    }

    /// True if nothing is left that could converge.
    pub fn is_the_end(self) -> bool {
        matches!(self, Self::DeleteFleet | Self::DeleteNamespace)
    }

    /// Performs it. `at` selects the node.
    #[allow(clippy::too_many_lines, reason = "one deed after the other")]
    pub async fn perform(self, world: &World, at: u32) {
        let scenario = &world.scenario;
        let names = world.nodes_about();
        let node = names[at as usize % names.len()].as_str();
        let (pod, set) = (scenario.pod_of(node), scenario.set_of(node));
        match self {
            Self::Third => world.set_image("db:3").await,
            Self::Back => world.set_image("db:1").await,
            Self::OtherTemplate => world.set_template("3").await,
            Self::BrokenThenThird => {
                world.set_image("db:4-nope").await;
                sleep(BREATH).await;
                world.set_image("db:3").await;
            }
            Self::DeletePod => world.delete("v1", "Pod", &pod).await,
            Self::DeleteChild => world.delete("windlass.dev/v1alpha1", "StatefulNode", node).await,
            Self::DeleteSet => world.delete("apps/v1", "StatefulSet", node).await,
            Self::DeleteService => world.delete("v1", "Service", node).await,
            Self::StripChild => {
                let strip = json!({"metadata": {"labels": {"windlass.dev/deployment": null}}});
                world.patch("windlass.dev/v1alpha1", "StatefulNode", node, &strip).await;
            }
            Self::StripSet => {
                let strip = json!({"metadata": {"labels": {"windlass.dev/node": null}}});
                world.patch("apps/v1", "StatefulSet", node, &strip).await;
            }
            Self::DisownSet => {
                world.patch("apps/v1", "StatefulSet", node, &unmarked()).await;
            }
            Self::DisownService => {
                world.patch("v1", "Service", node, &unmarked()).await;
            }
            Self::StripPod => {
                let strip = json!({"metadata": {"labels": {"windlass.dev/node": null}}});
                world.patch("v1", "Pod", &pod, &strip).await;
                // The StatefulSet releases it, and cannot create another one with its name: only the person can give
                // it back.
                sleep(BREATH).await;
                if world.get("apps/v1", "StatefulSet", node).is_none() {
                    // The StatefulSet was deleted meanwhile, and would have taken the pod along.
                    return world.delete("v1", "Pod", &pod).await;
                }
                let back = json!({"metadata": {"labels": {"windlass.dev/node": node}}});
                world.patch("v1", "Pod", &pod, &back).await;
            }
            Self::StripClaim => {
                let claim = format!("data-{pod}");
                let label = |value: Value| json!({"metadata": {"labels": {"windlass.dev/node": value}}});
                world.patch("v1", "PersistentVolumeClaim", &claim, &label(Value::Null)).await;
                // A recreated node does not adopt it, and reports what to do.
                sleep(BREATH).await;
                world.patch("v1", "PersistentVolumeClaim", &claim, &label(node.into())).await;
            }
            Self::DeleteFleetService => world.delete("v1", "Service", "db").await,
            Self::EditSelector => {
                let edit = json!({"spec": {"selector": {"windlass.dev/set": "none"}}});
                world.patch("v1", "Service", "db", &edit).await;
            }
            Self::EditChild => {
                let edit = json!({"spec": {"image": "db:9"}});
                world.patch("windlass.dev/v1alpha1", "StatefulNode", node, &edit).await;
            }
            Self::EditSet => {
                let edit = json!({"spec": {"template": {"metadata": {"annotations": {"by": "hand"}}}}});
                world.patch("apps/v1", "StatefulSet", node, &edit).await;
            }
            Self::EditStrategy => {
                let edit = json!({"spec": {"updateStrategy": {"type": "RollingUpdate"}}});
                world.patch("apps/v1", "StatefulSet", &set, &edit).await;
            }
            Self::Pause => {
                world.patch_object(&json!({"spec": {"paused": true}})).await;
                sleep(BREATH).await;
                world.patch_object(&json!({"spec": {"paused": false}})).await;
            }
            Self::Abort => {
                let plan = world.object().map(|o| o["status"]["plan"].clone()).unwrap_or_default();
                if plan["state"] == "Active" {
                    let abort = json!({"metadata": {"annotations": {"windlass.dev/abort": plan["id"]}}});
                    world.patch_object(&abort).await;
                    sleep(BREATH).await;
                }
            }
            Self::Restart => {
                let asked = json!({"windlass.dev/restartedAt": scenario.time(30)});
                world.patch_object(&json!({"metadata": {"annotations": asked}})).await;
            }
            Self::DeleteFleet => world.delete("windlass.dev/v1alpha1", scenario.kind(), "db").await,
            Self::DeleteNamespace => world.delete("v1", "Namespace", NAMESPACE).await,
            Self::UnknownTask => change_plan(world, scenario.kind(), "db", unknown_task).await,
            Self::TruncatedPlan => change_plan(world, scenario.kind(), "db", truncate).await,
            Self::UnknownTaskOfNode => change_plan(world, "StatefulNode", node, unknown_task).await,
            Self::TruncatedPlanOfNode => change_plan(world, "StatefulNode", node, truncate).await,
            Self::UnreadablePlan => change_plan(world, scenario.kind(), "db", unreadable).await,
            Self::UnreadablePlanOfNode => change_plan(world, "StatefulNode", node, unreadable).await,
            Self::OlderStatus => older(world, scenario.kind(), "db").await,
            Self::OlderStatusOfNode => older(world, "StatefulNode", node).await,
            Self::NewerStatus => change_plan(world, scenario.kind(), "db", from_the_future).await,
            Self::ToZeroAndBack => scale(world, -scenario.nodes).await,
            Self::OneFewerAndBack => scale(world, -1).await,
            Self::Evict => world.evict(&pod).await,
            Self::DeleteJobs => {
                for job in world.cluster.snapshot_of(NAMESPACE, &["Job"]) {
                    world
                        .delete("batch/v1", "Job", job["metadata"]["name"].as_str().unwrap_or_default())
                        .await;
                }
            }
            Self::Drain => {
                for node in &names {
                    drain(world, &scenario.pod_of(node)).await;
                }
            }
            Self::LoseField => lose_field(world, scenario.kind(), "db", at).await,
            Self::LoseFieldOfNode => {
                lose_field(world, "StatefulNode", node, at / names.len() as u32).await;
            }
        }
    }
}

/// Evicts a pod, and waits until one with its name is ready again.
async fn drain(world: &World, pod: &str) {
    let uid = |pod: &Value| pod["metadata"]["uid"].clone();
    let Some(before) = world.get("v1", "Pod", pod) else { return };
    world.evict(pod).await;
    for _ in 0..BREATH.as_secs() {
        sleep(Duration::from_secs(1)).await;
        let serves = |found: &Value| uid(found) != uid(&before) && condition(found, "Ready").0 == "True";
        if world.get("v1", "Pod", pod).is_some_and(|found| serves(&found)) {
            return;
        }
    }
}

/// Removes one field of a status, selected by the number.
async fn lose_field(world: &World, kind: &str, name: &str, number: u32) {
    let Some(object) = world.get("windlass.dev/v1alpha1", kind, name) else { return };
    let fields: Vec<&String> =
        object["status"].as_object().map(|map| map.keys().collect()).unwrap_or_default();
    if !fields.is_empty() {
        let lost = fields[number as usize % fields.len()];
        world.patch_status(kind, name, &json!({"status": {lost: null}})).await;
    }
}

fn unmarked() -> Value {
    json!({"metadata": {"labels": {"app.kubernetes.io/managed-by": null}}})
}

async fn scale(world: &World, by: i64) {
    let replicas = world.object().and_then(|o| o["spec"]["replicas"].as_i64());
    world.scale_by(by).await;
    sleep(BREATH).await;
    world.scale_by(replicas.map_or(0, |before| before - world.scenario.nodes)).await;
}

async fn change_plan(world: &World, kind: &str, name: &str, change: fn(&mut Value)) {
    let Some(object) = world.get("windlass.dev/v1alpha1", kind, name) else { return };
    let mut plan = object["status"]["plan"].clone();
    if plan["state"] == "Active" {
        change(&mut plan);
        world.patch_status(kind, name, &json!({"status": {"plan": plan}})).await;
    }
}

fn unknown_task(plan: &mut Value) {
    if let Some(task) = plan["tasks"].as_array_mut().and_then(|tasks| tasks.last_mut()) {
        task["type"] = "teleport".into();
    }
}

fn truncate(plan: &mut Value) {
    if let Some(tasks) = plan["tasks"].as_array_mut() {
        tasks.remove(0);
    }
}

fn unreadable(plan: &mut Value) {
    if let Some(task) = plan["tasks"].as_array_mut().and_then(|tasks| tasks.last_mut()) {
        task["state"] = "Pondering".into();
    }
}

/// Simulates a newer version with one more task and parameter.
fn from_the_future(plan: &mut Value) {
    let id = plan["id"].as_str().unwrap_or_default().to_owned();
    let Some(tasks) = plan["tasks"].as_array_mut() else { return };
    if let Some(task) = tasks.last_mut() {
        task["params"]["newer"] = true.into();
    }
    let id = format!("{id}-{}", tasks.len());
    tasks.push(json!({"id": id, "type": "rehearse", "params": {}, "state": "Pending", "attempts": 0}));
}

/// Simulates an older version, which drops newer fields of a status.
async fn older(world: &World, kind: &str, name: &str) {
    let fields = json!({
        "rollout": null, "problem": null, "buildID": null, "history": null, "conditions": null,
        "spentGrantID": null, "firstReadyAt": null, "podTemplateHash": null, "podUID": null, "plan": null,
    });
    world.patch_status(kind, name, &json!({"status": fields})).await;
}

/// An illness of a node, from before the change until it is cured.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Illness {
    /// Steers its pod with these words.
    Steered(&'static str),
    /// Its claim is not bound.
    Unbound,
    /// The machine is cordoned.
    Cordoned,
    /// The StatefulSet controller is suspended.
    Held,
    /// The StatefulSet controller's cache lags by five seconds.
    Lagging,
    Sidecars(Manner),
    /// The peers of hooks answer like this.
    Peers(peers::Manner),
    /// The garbage collector takes this long, in milliseconds: least and greatest.
    Collector(u64, u64),
}

impl Illness {
    /// Every illness, by the name of its fault.
    pub fn all() -> Vec<(&'static str, Self)> {
        vec![
            ("F10-image", Self::Steered("nope")),
            ("F10-crash", Self::Steered("crash")),
            ("F10-unready", Self::Steered("unready")),
            ("F10-creating", Self::Steered("creating")),
            ("F10-dead", Self::Steered("dead")),
            ("F10-terminating", Self::Steered("hold-terminating")),
            ("F10-unbound", Self::Unbound),
            ("F10-cordoned", Self::Cordoned),
            ("F10-held", Self::Held),
            ("F10-lagging", Self::Lagging),
            ("F14-dead", Self::Sidecars(Manner::Dead)),
            ("F14-5xx", Self::Sidecars(Manner::Failing)),
            ("F14-lying", Self::Sidecars(Manner::Lying)),
            ("F14-late", Self::Sidecars(Manner::Late)),
            ("F14-mute", Self::Sidecars(Manner::Mute)),
            ("F14-peer-dead", Self::Peers(peers::Manner::Dead)),
            ("F14-peer-slow", Self::Peers(peers::Manner::Slow)),
            ("F14-peer-lying", Self::Peers(peers::Manner::Lying)),
            ("F14-peer-late", Self::Peers(peers::Manner::Late)),
            ("F14-peer-erring", Self::Peers(peers::Manner::Erring)),
            ("F16-pulls", Self::Steered("pull-loop")),
            ("F16-restarts", Self::Steered("crash-loop")),
            ("F16-oom", Self::Steered("oom")),
            ("F16-evicted", Self::Steered("evicted")),
            ("F16-swallowed", Self::Sidecars(Manner::Swallowing)),
            ("F16-collector-slow", Self::Collector(20_000, 40_000)),
            ("F16-collector-early", Self::Collector(0, 0)),
        ]
    }

    /// True if it makes sense in a scenario.
    pub fn fits(self, scenario: &Scenario) -> bool {
        // The scenario's own stall could not be told from another one.
        // Nor from the progress that a new node makes once there is one.
        let stands =
            matches!(scenario.change, Change::Stall | Change::Broken | Change::Beside | Change::UpAndImage);
        // For everything else that a node has, the target that it was given is blamed. Where a node has to be Ready for
        // longer than the deadline, no stall is due when the deadline has passed.
        let is_blameless = matches!(self, Self::Steered("dead" | "hold-terminating"));
        if scenario.rolls_back && (!is_blameless || scenario.min_ready_seconds > 0) {
            return false;
        }
        let is_there = match self {
            // Every few seconds there is another pod: none is down for long, and nothing is under way.
            Self::Steered("evicted") => !scenario.is_held() || scenario.change != Change::Create,
            Self::Sidecars(_) => scenario.sidecar,
            Self::Peers(_) => scenario.job.is_some(),
            _ => true,
        };
        is_there && !stands
    }

    /// What the status says about the cause; empty if that changes from moment to moment.
    pub fn cause(self) -> &'static str {
        match self {
            Self::Steered("nope" | "pull-loop") => "ImagePullBackOff",
            Self::Steered("crash" | "crash-loop") => "CrashLoopBackOff",
            Self::Steered("oom") => "OOMKilled, exit code 137",
            Self::Steered("creating") => "FailedMount",
            Self::Steered("unready") => "is running but not ready",
            _ => "",
        }
    }

    /// True if it concerns one node, and not the whole cluster.
    pub fn is_of_a_node(self) -> bool {
        matches!(self, Self::Steered(_) | Self::Unbound)
    }

    /// Begins.
    pub async fn begin(self, world: &World, node: &str) {
        match self {
            Self::Steered(word) => world.steer(json!({world.scenario.pod_of(node): word})).await,
            Self::Unbound => {
                world.steer(json!({format!("claim.data-{}", world.scenario.pod_of(node)): "unbound"})).await;
            }
            Self::Cordoned => world.cordon(true).await,
            Self::Held => world.cluster.suspend_stateful_sets(true),
            Self::Lagging => world.cluster.set_pace(Pace { stateful_set_lag: 5000, ..Pace::default() }),
            Self::Sidecars(manner) => world.sidecars.behave(manner),
            Self::Peers(manner) => world.peers.behave(manner),
            Self::Collector(least, most) => {
                world.cluster.set_pace(Pace { collector: (least, most), ..Pace::default() });
            }
        }
    }

    /// Ends.
    pub async fn end(self, world: &World) {
        match self {
            Self::Steered(_) | Self::Unbound => world.steer(json!({})).await,
            Self::Cordoned => world.cordon(false).await,
            Self::Held => world.cluster.suspend_stateful_sets(false),
            Self::Lagging | Self::Collector(..) => world.cluster.set_pace(Pace::default()),
            Self::Sidecars(_) => world.sidecars.behave(Manner::Well),
            Self::Peers(_) => world.peers.behave(peers::Manner::Well),
        }
    }
}
