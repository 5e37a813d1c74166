//! The questions to sidecars, and their answers.

use crate::outward::OutwardSettings;

/// A sidecar. A new pod or a restarted container, which has forgotten everything, is another one.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Peer {
    /// The UID of its pod.
    pub pod_uid: String,
    /// The restart count of its container.
    pub restarts: i64,
    /// Its base URL.
    pub url: String,
    /// The Secret with the token for its tasks; empty for none.
    pub token_secret: String,
    /// The certificates and credentials for all requests.
    pub settings: OutwardSettings,
}

/// A question to a sidecar. An answer is valid only for an equal question.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Question {
    /// The sidecar.
    pub peer: Peer,
    /// The request.
    pub request: SidecarRequest,
}

/// A request to a sidecar.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum SidecarRequest {
    /// Mark the node ready, unless it already is.
    MarkReady {
        /// The task's ID, which makes the request idempotent.
        task_id: String,
    },
    /// Report the application's state, and halt it at a height if one is given.
    Watch {
        /// The height and the task's ID.
        halt: Option<Halt>,
    },
}

impl SidecarRequest {
    /// The kind of the request.
    #[must_use]
    pub fn kind(&self) -> RequestKind {
        match self {
            Self::MarkReady { .. } => RequestKind::MarkReady,
            Self::Watch { .. } => RequestKind::Watch,
        }
    }
}

/// The kinds of requests. A node may have one question of each.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum RequestKind {
    /// Of [`SidecarRequest::MarkReady`].
    MarkReady,
    /// Of [`SidecarRequest::Watch`].
    Watch,
}

/// A request that the application halts.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Halt {
    /// The ID of the task.
    pub task_id: String,
    /// The height.
    pub height: i64,
}

/// The answer of a sidecar.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct SidecarReport {
    /// True if the node is in service.
    pub ready: bool,
    /// True if the application has caught up with its peers.
    pub caught_up: bool,
    /// The application's height, if known.
    pub height: Option<i64>,
    /// The application's role, if known.
    pub role: Option<String>,
    /// True if it has halted as requested.
    pub halted: bool,
    /// Why it cannot halt, in the sidecar's words; empty if it can.
    pub refusal: String,
}
