//! Where the story is played: a cluster, and an operator on it that can be killed.

use kube::Client;

use crate::clock::SharedClock;

/// A cluster with Windlass's definitions, and an operator that comes and goes.
pub trait Stage {
    /// The cluster, as the story's own client sees it.
    fn client(&self) -> Client;
    /// The namespace of the fleet.
    fn namespace(&self) -> &str;
    /// The clock that the cluster's timestamps follow.
    fn clock(&self) -> SharedClock;
    /// What there is to know beforehand: lines.
    fn setting(&self) -> Vec<String>;
    /// How to look on from another terminal: lines.
    fn invitation(&self) -> Vec<String>;
    /// Starts an operator.
    fn start_operator(&mut self) -> Result<(), String>;
    /// Kills the operator; it has no say in when.
    fn kill_operator(&mut self) -> impl Future<Output = Result<(), String>>;
    /// What `kill_operator` does to it, in a few words.
    fn killed(&self) -> &'static str;
    /// What the operator said last, if anybody knows.
    fn last_words(&self) -> String;
}
