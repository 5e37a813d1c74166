//! The abstract state: one fleet, up to three nodes, and everything in between. Small enough to be hashed, and
//! complete enough for the rules of grants.

use windlass::api::{HookPoint, OnHookFailure};

/// The most nodes.
pub const MAX_NODES: usize = 3;
/// No version at all.
pub const NO_VERSION: u8 = 3;
/// A template that somebody edited by hand.
pub const EDITED: u8 = 7;

/// The names of pod template hashes, by number: none, each version under each of two operators, an edit.
pub const HASHES: [&str; 8] = ["", "v1", "v1'", "v2", "v2'", "v3", "v3'", "edited"];
/// The names of revisions, by version.
pub const REVISIONS: [&str; 4] = ["r1", "r2", "r3", ""];
/// The names of the main container's images, by the number of the hash.
pub const IMAGES: [&str; 8] = ["", "db:1", "db:1", "db:2", "db:2", "db:3", "db:3", "db:edited"];

/// The hash that an operator renders from a version.
pub fn hash_of(version: u8, operator: u8) -> u8 {
    1 + version * 2 + operator
}

/// The number of a name.
pub fn number(names: &[&str], name: &str) -> u8 {
    names.iter().position(|n| *n == name).expect("a name of the model") as u8
}

/// The name of a StatefulSet's revision: its template's hash, and whether it has changed by itself since.
pub fn revision_name(hash: u8, moved: bool) -> String {
    let moves = if moved && hash != 0 { "~" } else { "" };
    format!("{}{moves}", HASHES[hash as usize])
}

/// The bit of a revision in the set of those that a status knows.
pub fn revision_bit(name: &str) -> u16 {
    let (hash, moved) = name.strip_suffix('~').map_or((name, 0), |hash| (hash, 8));
    1 << (number(&HASHES, hash) + moved)
}

/// The state of a plan's hook.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub enum HookState {
    /// The plan has none.
    #[default]
    None,
    /// It is running or about to, and has not answered.
    Due,
    Failed,
    /// It succeeded, or was skipped.
    Over,
}

impl HookState {
    pub fn is_left(self) -> bool {
        matches!(self, Self::Due | Self::Failed)
    }
}

/// The plan of a node's executor.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub enum Doing {
    #[default]
    Nothing,
    /// A plan with the recipe NodeUpdate.
    Update { target: u8, task: u8 },
    /// A plan with the recipe RestartNode.
    Restart { target: u8, task: u8 },
    /// A plan with the recipe MarkReady.
    Mark,
}

impl Doing {
    /// True if the plan may replace the pod.
    pub fn is_rolling(self) -> bool {
        matches!(self, Self::Update { .. } | Self::Restart { .. })
    }
}

/// A StatefulNode as the API server has it.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct Child {
    pub exists: bool,
    pub version: u8,
    pub granted: u8,
    /// The grant is spent.
    pub spent: bool,
    /// The grant was reset by an abort.
    pub pinned: bool,
    /// The status is of an older spec.
    pub behind: bool,
    /// `status.podTemplateHash`.
    pub hash: u8,
    /// Its condition Ready.
    pub available: bool,
    /// It has been Ready for `minReadySeconds`.
    pub waited: bool,
    pub ever: bool,
    pub failed: bool,
    /// `status.podRuns`; only in worlds with a second container.
    pub runs: bool,
    /// Its status has the sidecar as unreachable.
    pub unreachable: bool,
    pub doing: Doing,
    /// The hook before its pod is deleted; only in worlds with one.
    pub hook: HookState,
    /// The revisions that its status knows as made from Windlass's templates, as bits; only in worlds in which
    /// revisions change by themselves.
    pub knows: u16,
}

/// The state of a pod.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub enum Pod {
    #[default]
    Absent,
    Starting,
    Running,
    Ready,
    Stuck,
}

/// The state of a StatefulSet.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub enum Set {
    #[default]
    Missing,
    Live,
    /// Its node is gone, and the garbage collector has not deleted it yet.
    Leaving,
}

/// A node and its objects.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct Node {
    pub child: Child,
    /// The orchestrator's cached object, while it is stale.
    pub known: Option<Child>,
    /// The executor's cached spec (version, granted hash, spent), while it is stale.
    pub old_spec: Option<(u8, u8, bool)>,
    pub set: Set,
    pub template: u8,
    /// The operator's process remembers that it wrote this template.
    pub remembered: bool,
    /// The node's status records that Windlass wrote this template.
    pub recorded: bool,
    /// The StatefulSet controller has observed the template.
    pub observed: bool,
    /// The revision, as a bit, that the operator's process observed for its own template.
    pub seen: u16,
    /// The revision for new pods.
    pub update_revision: u8,
    /// The template's revision changed by itself: Kubernetes was upgraded, or admission changes it.
    pub moved: bool,
    pub pod: Pod,
    pub pod_revision: u8,
    /// The pod was made at the changed revision.
    pub pod_moved: bool,
    pub terminating: bool,
    /// The pod's StatefulSet is gone.
    pub orphan: bool,
    /// The pod is the one in the status.
    pub same_pod: bool,
    /// The status has the time since which this pod is Ready; only matters with `minReadySeconds`.
    pub told_ready: bool,
    /// The machine is lost.
    pub dead: bool,
    /// The sidecar is unreachable.
    pub mute: bool,
    /// Somebody disturbed it since its last grant.
    pub disturbed: bool,
    /// Windlass took its serving pod down, and it has not served since.
    pub taken_down: bool,
    /// Its grant did not count in the wave, because it was down anyway.
    pub given_freely: bool,
    /// `maxUnavailable` at the time of its grant.
    pub granted_under: u8,
}

/// The fleet.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct Fleet {
    pub wanted: u8,
    pub replicas: u8,
    /// A number of nodes, or a percentage if the world says so.
    pub max_unavailable: u8,
    pub partition: u8,
    pub paused: bool,
    pub completed: u8,
    /// The active rollout: none, to a version, or each node at its own.
    pub rollout: Option<Goal>,
    /// The hook before that rollout.
    pub hook: HookState,
    /// The rejected version, and how its rollout ended.
    pub rejected: Option<(u8, Outcome)>,
    pub abort_asked: bool,
    pub retry_asked: bool,
    pub operator: u8,
}

/// The target of a rollout.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Goal {
    Version(u8),
    Own,
}

/// How a rejected rollout ended.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Outcome {
    Aborted,
    RolledBack,
}

/// How often each event may still happen.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct Budget {
    pub spec: u8,
    pub pause: u8,
    pub scale: u8,
    pub abort: u8,
    pub retry: u8,
    /// Skips of a hook by a person.
    pub skip: u8,
    pub child_deleted: u8,
    pub pod_deleted: u8,
    pub set_deleted: u8,
    pub edit: u8,
    pub death: u8,
    pub operator: u8,
    pub crash: u8,
    /// Changes of `maxUnavailable`.
    pub wave: u8,
    pub partition: u8,
    /// A version that ran stops running.
    pub breaks: u8,
    /// A sidecar becomes unreachable or reachable.
    pub mute: u8,
    /// A StatefulSet's revision changes by itself.
    pub drift: u8,
    /// A write was decided by a replica that no longer leads.
    pub late: u8,
}

/// A late write of an old leader. It succeeds only if its object is unchanged.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Late {
    /// A version and its hash, for a node that was observed like this.
    Grant {
        pinned: bool,
        node: u8,
        version: u8,
        granted: u8,
        wave: u8,
    },
    /// Creates a node.
    Create {
        node: u8,
        version: u8,
        granted: u8,
        wave: u8,
    },
    /// Removes a node.
    Remove {
        node: u8,
    },
    Delete {
        node: u8,
    },
    CreateSet {
        node: u8,
        template: u8,
    },
    Template {
        node: u8,
        template: u8,
    },
    /// Writes a node's status.
    Status {
        node: u8,
        child: Child,
        same_pod: bool,
        recorded: bool,
    },
    /// Writes the fleet's status.
    Fleet {
        fleet: Fleet,
    },
}

/// A state.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct State {
    pub fleet: Fleet,
    pub nodes: [Node; MAX_NODES],
    pub left: Budget,
    /// The versions that do not run, as bits.
    pub broken: u8,
    pub late: Option<Late>,
}

/// The constants of a world.
#[derive(Clone, Copy, Debug)]
pub struct World {
    pub name: &'static str,
    pub nodes: usize,
    pub replicas: u8,
    pub max_unavailable: u8,
    /// `max_unavailable` is a percentage.
    pub percent: bool,
    pub partition: u8,
    /// A node becomes available some time after it is Ready.
    pub min_ready: bool,
    /// Nodes are examined in every order, not only from the highest ordinal.
    pub any_order: bool,
    /// When a late write may land.
    pub lands: Lands,
    /// The versions that do not run.
    pub broken: &'static [u8],
    /// They run, but never become ready.
    pub broken_runs: bool,
    /// There is a second container, and it is that one which does not run. The main container does its work.
    pub beside: bool,
    pub sidecar: bool,
    pub rollback: bool,
    /// The points of hooks, and the effect of each one's failure.
    pub hooks: &'static [(HookPoint, OnHookFailure)],
    /// Nothing exists and nothing has completed.
    pub new: bool,
    pub budget: Budget,
    /// The situation that the world is meant to cover.
    pub meets: fn(&State) -> bool,
}

/// When a late write may land.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Lands {
    /// Within the request's time-out, which a new leader waits for.
    InTime,
    /// At any time: the process was suspended between checking the lease and the write.
    Whenever,
}

impl State {
    /// True if a template with this hash does not run.
    pub fn is_broken(&self, hash: u8) -> bool {
        is_broken(self.broken, hash)
    }
}

/// True if a template with this hash is of a version that does not run.
pub fn is_broken(broken: u8, hash: u8) -> bool {
    hash != 0 && hash != EDITED && broken & (1 << ((hash - 1) / 2)) != 0
}

impl World {
    /// True if revisions change by themselves in this world; elsewhere the records of what pods were made for are not
    /// modelled.
    pub fn drifts(&self) -> bool {
        self.budget.drift > 0
    }

    pub fn start(&self) -> State {
        let mut state = State { left: self.budget, ..State::default() };
        state.fleet.replicas = self.replicas;
        state.fleet.max_unavailable = self.max_unavailable;
        state.fleet.partition = self.partition;
        state.broken = self.broken.iter().map(|v| 1 << v).sum();
        if self.new {
            state.fleet.completed = NO_VERSION;
            return state;
        }
        for node in &mut state.nodes[..self.replicas as usize] {
            let v1 = hash_of(0, 0);
            node.child = Child {
                exists: true,
                granted: v1,
                spent: true,
                hash: v1,
                available: true,
                waited: true,
                ever: true,
                knows: if self.drifts() { revision_bit(&revision_name(v1, false)) } else { 0 },
                ..Child::default()
            };
            *node = Node {
                set: Set::Live,
                template: v1,
                recorded: true,
                observed: true,
                update_revision: v1,
                ..*node
            };
            *node = Node {
                pod: Pod::Ready,
                pod_revision: v1,
                same_pod: true,
                told_ready: self.min_ready,
                ..*node
            };
        }
        state
    }
}

impl Node {
    /// The orchestrator's view of it.
    pub fn view(&self) -> Child {
        self.known.unwrap_or(self.child)
    }

    /// The executor's view of the spec: version, granted hash, spent.
    pub fn spec(&self) -> (u8, u8, bool) {
        self.old_spec.unwrap_or((self.child.version, self.child.granted, self.child.spent))
    }

    /// Changes the object; the orchestrator's cache may stay stale.
    pub fn write(&mut self, change: impl FnOnce(&mut Child)) {
        let before = self.child;
        change(&mut self.child);
        if self.child != before && self.known.is_none() {
            self.known = Some(before);
        }
        if self.known == Some(self.child) {
            self.known = None;
        }
    }

    /// Removes the object and, some time later, its dependents.
    pub fn remove(&mut self) {
        self.write(|child| *child = Child::default());
        self.old_spec = None;
        self.same_pod = false;
        (self.remembered, self.recorded) = (false, false);
        (self.taken_down, self.given_freely) = (false, false);
        if self.set == Set::Live {
            self.set = Set::Leaving;
        }
    }

    pub fn set_is_gone(&mut self) {
        self.set = Set::Missing;
        (self.template, self.update_revision) = (0, 0);
        (self.observed, self.remembered, self.recorded) = (false, false, false);
        if self.pod != Pod::Absent {
            (self.terminating, self.orphan) = (true, true);
        }
    }

    /// True if nothing outside of Windlass's control keeps it from serving.
    pub fn may_serve(&self) -> bool {
        !self.dead && !self.mute
    }

    /// True if its main container may do its work: in worlds with a second container also where it is not Ready.
    pub fn is_at_work(&self, world: &World) -> bool {
        self.pod == Pod::Ready || (world.beside && self.pod == Pod::Running)
    }

    pub fn serves(&self) -> bool {
        self.pod == Pod::Ready && !self.terminating
    }

    /// With `minReadySeconds` it counts as taken down until they have passed.
    pub fn becomes_ready(&mut self, min_ready: bool) {
        self.pod = Pod::Ready;
        self.taken_down &= min_ready;
    }

    /// `minReadySeconds` have passed, in the orchestrator's view or also for the object itself.
    pub fn time_passes(&mut self, object_too: bool) {
        let wait = |child: Child| Child { waited: child.available, ..child };
        self.known = self.known.map(wait);
        if object_too {
            self.child = wait(self.child);
            self.taken_down &= !(self.serves() || self.disturbed);
        }
        if self.known == Some(self.child) {
            self.known = None;
        }
    }

    /// Somebody breaks it. If it served until then, Windlass did not take it down.
    pub fn disturb(&mut self, change: impl FnOnce(&mut Self)) {
        self.taken_down &= !self.serves();
        change(self);
        self.disturbed = true;
    }
}
