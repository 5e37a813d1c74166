//! What can be wrong with a played Temporal, and how its gates end.

use std::time::Duration;

use chrono::TimeDelta;

/// What is wrong with a Temporal.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub enum Mood {
    /// Nothing.
    #[default]
    Well,
    /// It does not answer at all.
    Down,
    /// It answers after so long.
    Slow(Duration),
    /// It knows nothing of any deployment.
    Forgetful,
    /// It lists no versions.
    Empty,
    /// It limits the rate.
    Limiting,
    /// It refuses the credentials.
    Refusing,
    /// The Secret of the connection is not there.
    Secretless,
    /// It carries writes out, and their answers are lost.
    LosesAnswers,
}

/// How the gates of a build end.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum GateEnd {
    /// Well, after so long.
    Well(TimeDelta),
    /// Not well, with these words.
    Badly(String),
    /// Not at all.
    Never,
}
