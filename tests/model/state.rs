//! The abstract world: one fleet, up to three nodes, and everything that stands between them. Small enough
//! to be hashed, and large enough for the rules of grants.

use windlass::api::{HookPoint, OnHookFailure};

/// The most nodes.
pub const MAX_NODES: usize = 3;
/// No version at all.
pub const NO_VERSION: u8 = 3;
/// A template that somebody edited by hand.
pub const EDITED: u8 = 7;

/// The names of pod template hashes, by number: nothing, each version under each of two operators, an edit.
pub const HASHES: [&str; 8] = ["", "v1", "v1'", "v2", "v2'", "v3", "v3'", "edited"];
/// The names of revisions, by version.
pub const REVISIONS: [&str; 4] = ["r1", "r2", "r3", ""];
/// The names of the main container's images, by the number of the hash.
pub const IMAGES: [&str; 8] = ["", "db:1", "db:1", "db:2", "db:2", "db:3", "db:3", "db:edited"];

/// The hash that an operator renders from a version.
pub fn hash_of(version: u8, operator: u8) -> u8 {
    1 + version * 2 + operator
}

/// The number of a named thing.
pub fn number(names: &[&str], name: &str) -> u8 {
    names.iter().position(|n| *n == name).expect("a name of the model") as u8
}

/// The name of a StatefulSet's revision: the hash of its template, and whether it has moved by itself since.
pub fn revision_name(hash: u8, moved: bool) -> String {
    let moves = if moved && hash != 0 { "~" } else { "" };
    format!("{}{moves}", HASHES[hash as usize])
}

/// The bit of a revision among those that a status knows.
pub fn revision_bit(name: &str) -> u16 {
    let (hash, moved) = name.strip_suffix('~').map_or((name, 0), |hash| (hash, 8));
    1 << (number(&HASHES, hash) + moved)
}

/// How far a hook of a plan is.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub enum HookState {
    /// The plan has none.
    #[default]
    None,
    /// It is asked, or is to be, and has not answered.
    Due,
    Failed,
    /// It succeeded, or it goes on without it.
    Over,
}

impl HookState {
    pub fn is_left(self) -> bool {
        matches!(self, Self::Due | Self::Failed)
    }
}

/// What a node's executor is doing.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub enum Doing {
    #[default]
    Nothing,
    /// A plan of the recipe NodeUpdate.
    Update { target: u8, task: u8 },
    /// A plan of the recipe RestartNode.
    Restart { target: u8, task: u8 },
    /// A plan of the recipe MarkReady.
    Mark,
}

impl Doing {
    /// Whether the plan may replace the pod.
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
    /// The grant was converged to.
    pub spent: bool,
    /// An abort gave the grant back.
    pub pinned: bool,
    /// The status has not seen the spec.
    pub behind: bool,
    /// `status.podTemplateHash`.
    pub hash: u8,
    /// Its condition Ready.
    pub available: bool,
    /// It has been so for `minReadySeconds`.
    pub waited: bool,
    pub ever: bool,
    pub failed: bool,
    /// Its status says that its sidecar cannot be reached.
    pub unreachable: bool,
    pub doing: Doing,
    /// The hook before its pod goes; only in worlds that have one.
    pub hook: HookState,
    /// The revisions that its status knows to be of templates that Windlass wrote, by their bits; only in worlds in which
    /// revisions move.
    pub knows: u16,
}

/// What a pod does.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub enum Pod {
    #[default]
    Absent,
    Starting,
    Running,
    Ready,
    Stuck,
}

/// Whether a StatefulSet is there.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub enum Set {
    #[default]
    Missing,
    Live,
    /// Its node is gone; the garbage collector has not come by.
    Leaving,
}

/// A node and all that belongs to it.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct Node {
    pub child: Child,
    /// What the orchestrator knows of it, while that is older.
    pub known: Option<Child>,
    /// The spec as the executor knows it (version, granted hash, spent), while that is older.
    pub old_spec: Option<(u8, u8, bool)>,
    pub set: Set,
    pub template: u8,
    /// The operator's process remembers that it wrote this template.
    pub remembered: bool,
    /// The node's status records that we wrote this template.
    pub recorded: bool,
    /// The StatefulSet controller has seen the template.
    pub observed: bool,
    /// The revision, by its bit, that the operator's process saw to be of the template that it wrote.
    pub seen: u16,
    /// What the StatefulSet controller makes pods of.
    pub update_revision: u8,
    /// The revision of the template moved by itself: Kubernetes was upgraded, or admission adds to it.
    pub moved: bool,
    pub pod: Pod,
    pub pod_revision: u8,
    /// The pod was made at the revision that moved.
    pub pod_moved: bool,
    pub terminating: bool,
    /// The pod belongs to a StatefulSet that is gone.
    pub orphan: bool,
    /// The pod is the one that the status speaks of.
    pub same_pod: bool,
    /// Its status knows since when this pod is Ready; of no account without `minReadySeconds`.
    pub told_ready: bool,
    /// The machine is dead.
    pub dead: bool,
    /// The sidecar cannot be reached.
    pub mute: bool,
    /// Somebody disturbed it since its last grant.
    pub disturbed: bool,
    /// Windlass took its serving pod down, and it has not served since.
    pub taken_down: bool,
    /// Its grant was given because it was broken anyway.
    pub given_freely: bool,
    /// `maxUnavailable` when it was granted.
    pub granted_under: u8,
}

/// The fleet.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct Fleet {
    pub wanted: u8,
    pub replicas: u8,
    /// Nodes, or a percentage of them where the world says so.
    pub max_unavailable: u8,
    pub partition: u8,
    pub paused: bool,
    pub completed: u8,
    /// The active rollout: nothing, to a version, or each node at its own.
    pub rollout: Option<Goal>,
    /// The hook before that rollout.
    pub hook: HookState,
    /// The version that is not tried again, and how it ended.
    pub rejected: Option<(u8, Outcome)>,
    pub abort_asked: bool,
    pub retry_asked: bool,
    pub operator: u8,
}

/// Where a rollout goes.
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

/// How often each thing may still happen.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct Budget {
    pub spec: u8,
    pub pause: u8,
    pub scale: u8,
    pub abort: u8,
    pub retry: u8,
    /// Hooks that a person goes on without.
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
    /// A version that ran does so no longer.
    pub breaks: u8,
    /// A sidecar cannot be reached, or can again.
    pub mute: u8,
    /// A StatefulSet's revision moves by itself.
    pub drift: u8,
    /// A write is decided on by a leader that is none any more.
    pub late: u8,
}

/// A write that an old leader has decided on. It lands only on the object that it was decided on, unchanged.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Late {
    /// A version and its hash, for a node that was observed so.
    Grant {
        pinned: bool,
        node: u8,
        version: u8,
        granted: u8,
        wave: u8,
    },
    /// A new node.
    Create {
        node: u8,
        version: u8,
        granted: u8,
        wave: u8,
    },
    /// A node goes.
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
    /// A node's status.
    Status {
        node: u8,
        child: Child,
        same_pod: bool,
        recorded: bool,
    },
    /// The fleet's status.
    Fleet {
        fleet: Fleet,
    },
}

/// Everything.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct State {
    pub fleet: Fleet,
    pub nodes: [Node; MAX_NODES],
    pub left: Budget,
    /// A bit for each version that does not run.
    pub broken: u8,
    pub late: Option<Late>,
}

/// What does not change within a world.
#[derive(Clone, Copy, Debug)]
pub struct World {
    pub name: &'static str,
    pub nodes: usize,
    pub replicas: u8,
    pub max_unavailable: u8,
    /// `max_unavailable` is a percentage.
    pub percent: bool,
    pub partition: u8,
    /// A node is available only some time after it is Ready.
    pub min_ready: bool,
    /// Nodes are looked at in every order, not from the highest ordinal.
    pub any_order: bool,
    /// When a late write may land.
    pub lands: Lands,
    /// The versions that do not run.
    pub broken: &'static [u8],
    /// They run, and never become ready.
    pub broken_runs: bool,
    pub sidecar: bool,
    pub rollback: bool,
    /// Where hooks stand, and what the failure of each leads to.
    pub hooks: &'static [(HookPoint, OnHookFailure)],
    /// Nothing exists and nothing has completed.
    pub new: bool,
    pub budget: Budget,
    /// A situation that the world is there for.
    pub meets: fn(&State) -> bool,
}

/// When a late write may land.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Lands {
    /// Within the request's time-out, which a new leader waits for.
    InTime,
    /// At any time: the process slept between its look at the lease and the write.
    Whenever,
}

impl State {
    /// Whether a template with this hash does not run.
    pub fn is_broken(&self, hash: u8) -> bool {
        is_broken(self.broken, hash)
    }
}

/// Whether a template with this hash is of one of the versions that do not run.
pub fn is_broken(broken: u8, hash: u8) -> bool {
    hash != 0 && hash != EDITED && broken & (1 << ((hash - 1) / 2)) != 0
}

impl World {
    /// Whether revisions move here; elsewhere nothing is kept of what pods say that they were made for.
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
    /// What the orchestrator knows of it.
    pub fn view(&self) -> Child {
        self.known.unwrap_or(self.child)
    }

    /// The spec that the executor knows: version, granted hash, spent.
    pub fn spec(&self) -> (u8, u8, bool) {
        self.old_spec.unwrap_or((self.child.version, self.child.granted, self.child.spent))
    }

    /// Changes the object; the orchestrator may go on knowing what was before.
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

    /// The object goes, and with it, some time later, all that belongs to it.
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

    /// Whether nothing that Windlass has no say in keeps it from serving.
    pub fn may_serve(&self) -> bool {
        !self.dead && !self.mute
    }

    pub fn serves(&self) -> bool {
        self.pod == Pod::Ready && !self.terminating
    }

    /// Where a node is available only some time later, it counts as taken down until then.
    pub fn becomes_ready(&mut self, min_ready: bool) {
        self.pod = Pod::Ready;
        self.taken_down &= min_ready;
    }

    /// It has been Ready for `minReadySeconds`, by what the orchestrator knows of it or by the object itself.
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

    /// Somebody breaks it. What served until then is down by them, not by Windlass.
    pub fn disturb(&mut self, change: impl FnOnce(&mut Self)) {
        self.taken_down &= !self.serves();
        change(self);
        self.disturbed = true;
    }
}
