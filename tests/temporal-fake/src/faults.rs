//! The faults of the fake Temporal, and how its gates end.

use std::time::Duration;

use chrono::TimeDelta;

/// A fault of the fake Temporal.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub enum Fault {
    /// None.
    #[default]
    None,
    /// It does not answer.
    Down,
    /// It answers after this long.
    Slow(Duration),
    /// It knows no deployment.
    Forgetful,
    /// It lists no versions.
    Empty,
    /// It lists one version, which is nobody's here, as another Temporal would.
    Foreign,
    /// It counts no workflows.
    Uncounting,
    /// It limits the rate.
    Limiting,
    /// It refuses the credentials.
    Refusing,
    /// The Secret of the connection does not exist.
    Secretless,
    /// It never reports that all task queues use the routing.
    Unsettled,
    /// It carries out writes and loses the answers.
    LosesAnswers,
}

/// How the gates of a build end.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum GateEnd {
    /// They succeed after this long.
    Succeeds(TimeDelta),
    /// They fail with this message.
    Fails(String),
    /// They do not end.
    Never,
}
