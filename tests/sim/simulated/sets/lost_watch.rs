//! What holds at every change in the store, whatever a status has lost.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::Value;
use windlass_sim::{Before, FaultPlan, RequestInfo};

use super::lost_scenarios::Scenario;
use super::world::{World, condition, is_up_to_date, text};

/// Holds back the operator's writes after a number of them.
#[derive(Clone)]
pub struct Halt {
    after: usize,
    seen: Arc<AtomicUsize>,
    reached: Arc<AtomicBool>,
}

impl Halt {
    pub fn after(after: usize) -> Self {
        Self { after, seen: Arc::default(), reached: Arc::default() }
    }

    /// True once the write that follows is held back.
    pub fn is_reached(&self) -> bool {
        self.reached.load(Ordering::SeqCst)
    }

    /// The writes so far.
    pub fn seen(&self) -> usize {
        self.seen.load(Ordering::SeqCst)
    }
}

impl FaultPlan for Halt {
    fn before(&mut self, request: &RequestInfo) -> Before {
        let beside = request.resource.starts_with("events") || request.resource.starts_with("leases");
        if request.user_agent != "windlass" || request.write_number == 0 || beside {
            return Before::Pass;
        }
        if self.seen() < self.after {
            self.seen.fetch_add(1, Ordering::SeqCst);
            return Before::Pass;
        }
        self.reached.store(true, Ordering::SeqCst);
        Before::Delay(Duration::from_secs(1))
    }
}

/// A pod as it was last seen.
struct Pod {
    set: String,
    image: String,
    is_ready: bool,
    is_leaving: bool,
}

impl Pod {
    fn of(pod: &Value) -> Self {
        let is_ready = |c: &Value| c["type"] == "Ready" && c["status"] == "True";
        let is_leaving = !pod["metadata"]["deletionTimestamp"].is_null();
        Self {
            set: text(&pod["metadata"]["labels"], "windlass.dev/set").to_owned(),
            image: text(&pod["spec"]["containers"][0], "image").to_owned(),
            is_ready: !is_leaving
                && pod["status"]["conditions"].as_array().is_some_and(|l| l.iter().any(is_ready)),
            is_leaving,
        }
    }
}

/// Follows the store.
pub struct Watch {
    scenario: Scenario,
    version: u64,
    pods: BTreeMap<String, Pod>,
    /// The set that the fleet's Service selects.
    selected: String,
    /// The sets that had all their Ready pods once.
    whole: BTreeSet<String>,
    /// True if a person may have promoted.
    pub promoted: bool,
}

impl Watch {
    pub fn begin(w: &World, scenario: Scenario) -> Self {
        let pods = w.cluster.snapshot_of("test", &["Pod"]);
        let named = |pod: &Value| (text(&pod["metadata"], "name").to_owned(), Pod::of(pod));
        Self {
            scenario,
            version: w.cluster.version(),
            pods: pods.iter().map(named).collect(),
            selected: w.selected(),
            whole: BTreeSet::from(["first".to_owned()]),
            promoted: false,
        }
    }

    /// Checks every change since the last call.
    pub fn look(&mut self, w: &World) -> Result<(), String> {
        let mut found = Ok(());
        let mut version = self.version;
        let is_whole = w.cluster.replay(self.version, |step| {
            version = step.version;
            if found.is_ok() {
                found = self.check(step.before, step.after);
            }
        });
        self.version = version;
        if is_whole { found } else { Err("the store's history is too short".to_owned()) }
    }

    fn check(&mut self, before: Option<&Value>, after: Option<&Value>) -> Result<(), String> {
        let Some(object) = after.or(before) else { return Ok(()) };
        let name = text(&object["metadata"], "name");
        match text(object, "kind") {
            "Pod" => {
                self.pods.remove(name);
                if let Some(pod) = after {
                    self.pods.insert(name.to_owned(), Pod::of(pod));
                }
                self.serves()
            }
            "Service" if name == "db" && !self.scenario.is_lone() => {
                text(&object["spec"]["selector"], "windlass.dev/set").clone_into(&mut self.selected);
                if self.scenario == Scenario::Manual && !self.promoted && self.selected != "first" {
                    return Err(format!("{} was promoted, and nobody asked for it", self.selected));
                }
                self.serves()
            }
            "NodeDeployment" => after.map_or(Ok(()), |fleet| self.says_what_runs(fleet)),
            _ => Ok(()),
        }
    }

    fn of_set<'a>(&'a self, set: &'a str) -> impl Iterator<Item = &'a Pod> {
        self.pods.values().filter(move |pod| pod.set == set)
    }

    /// The set that serves has its Ready pods, and no more of them leave at a time than the wave allows.
    fn serves(&mut self) -> Result<(), String> {
        let is_first = self.selected.is_empty() && !self.scenario.is_lone();
        let set = if is_first { "first".to_owned() } else { self.selected.clone() };
        let ready = self.of_set(&set).filter(|pod| pod.is_ready).count();
        let least = self.scenario.least_ready();
        if ready >= least {
            self.whole.insert(set.clone());
        }
        // A hard fork moves traffic to nodes that run, and may be Ready a moment later.
        let may_lack = self.scenario == Scenario::HardFork && !self.whole.contains(&set);
        if ready < least && !may_lack {
            return Err(format!("{ready} nodes of set {set} serve, and {least} have to"));
        }
        let leaving = self.of_set(&set).filter(|pod| pod.is_leaving).count();
        if self.scenario == Scenario::ScaleIn && leaving > 1 {
            return Err(format!("{leaving} nodes leave at once"));
        }
        Ok(())
    }

    /// A fleet that says that all is as wanted runs the image that its spec names.
    fn says_what_runs(&self, fleet: &Value) -> Result<(), String> {
        let status = &fleet["status"];
        let is_said =
            status["observedGeneration"] == fleet["metadata"]["generation"] && is_up_to_date(status);
        let image = text(&fleet["spec"]["template"]["spec"], "image");
        let other = self.of_set(text(status, "activeSet")).find(|pod| pod.image != image);
        match other.filter(|_| is_said) {
            Some(pod) => Err(format!("{image} is said to run, and {} does", pod.image)),
            None => Ok(()),
        }
    }
}

/// What is active and has no plan that carries it out, unless its object says that it stands still, or waits for a
/// person.
pub fn active_without_plan(w: &World) -> Option<String> {
    let has_plan = |object: &Value| object["status"]["plan"]["state"] == "Active";
    let is_told = |object: &Value| {
        condition(&object["status"], "Stalled").starts_with("True/")
            || condition(&object["status"], "UpToDate") == "Unknown/ReadyToPromote"
    };
    let is_active = |object: &Value| match text(object, "kind") {
        "NodeDeployment" => !object["status"]["rollout"].is_null(),
        _ => condition(&object["status"], "NodeUpdateInProgress").starts_with("True/"),
    };
    let all = w.cluster.snapshot_of("test", &["NodeDeployment", "StatefulNode"]);
    let object = all.iter().find(|o| is_active(o) && !has_plan(o) && !is_told(o))?;
    Some(text(&object["metadata"], "name").to_owned())
}
