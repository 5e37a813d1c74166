//! The environment of the demo: a cluster, and an operator on it that can be killed.

use kube::Client;

use windlass_clock::SharedClock;

/// A cluster with Windlass's definitions, and an operator.
pub trait Stage {
    /// The client of the scenario itself.
    fn client(&self) -> Client;
    /// The namespace of the fleet.
    fn namespace(&self) -> &str;
    /// The clock of the cluster's timestamps.
    fn clock(&self) -> SharedClock;
    /// An introduction, in lines.
    fn setting(&self) -> Vec<String>;
    /// How to watch from another terminal, in lines.
    fn invitation(&self) -> Vec<String>;
    fn start_operator(&mut self) -> Result<(), String>;
    /// Kills the operator without notice.
    fn kill_operator(&mut self) -> impl Future<Output = Result<(), String>>;
    /// How `kill_operator` kills it, in a few words.
    fn killed(&self) -> &'static str;
    /// The end of the operator's log, if there is one.
    fn last_words(&self) -> String;
}
