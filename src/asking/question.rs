//! What a sidecar is asked, and what it says.

/// Where a sidecar is, and which one it is: another pod's, or one that was restarted and has forgotten, is another.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Peer {
    /// The UID of its pod.
    pub pod_uid: String,
    /// How often its container was restarted.
    pub restarts: i64,
    /// The URL that it answers at.
    pub url: String,
    /// The Secret with the token for what it is handed; empty for none.
    pub token_secret: String,
}

/// A question to a sidecar. An answer belongs to the whole of it: what was said to another is none.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Question {
    /// Who is asked.
    pub peer: Peer,
    /// What for.
    pub wish: Wish,
}

/// What a sidecar is asked for.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Wish {
    /// To take the node into service, unless it already has.
    MarkReady {
        /// The task's ID: the same one again has no second effect.
        task_id: String,
    },
    /// What it knows of its application, and to halt that at a height where one is given.
    Watch {
        /// The height, and the task under which it is asked.
        halt: Option<Halt>,
    },
}

impl Wish {
    /// How many kinds of wishes there are: a node may have one of each at a time.
    pub(super) const KINDS: usize = 2;

    pub(super) fn kind(&self) -> usize {
        match self {
            Self::MarkReady { .. } => 0,
            Self::Watch { .. } => 1,
        }
    }
}

/// That an application is to halt.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Halt {
    /// The ID of the task.
    pub task_id: String,
    /// At this height.
    pub height: i64,
}

/// What a sidecar said.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Said {
    /// Whether the node is in service.
    pub ready: bool,
    /// Whether the application has caught up with its peers.
    pub caught_up: bool,
    /// The application's height, where it is known.
    pub height: Option<i64>,
    /// Whether it has halted as it was asked to.
    pub halted: bool,
    /// Why it cannot halt, in the sidecar's words; empty where it can.
    pub refusal: String,
}
