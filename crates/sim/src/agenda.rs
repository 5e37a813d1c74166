//! The workqueue of the controllers. Each item is queued once; its latency is drawn from the seed, within bounds that
//! a test may set.

use std::collections::{BTreeMap, BTreeSet};

use super::random::Random;
use super::store::{Key, Place};

/// An item for a controller to reconcile.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) enum Job {
    /// A set, for the StatefulSet controller.
    StatefulSet(Key),
    /// An object that may have lost its owners, for the garbage collector.
    Collect(Place),
    /// An owner that waits for its dependents or orphans them, for the garbage collector.
    Release(Place),
    /// A terminating namespace, for the namespace controller.
    Namespace(String),
    /// A pod, for the scheduler.
    Schedule(Key),
    /// A claim, for the volume controller.
    Claim(Key),
    /// A Service, for the endpoints controller.
    Endpoints(Key),
    /// A Job, for the Job controller.
    Work(Key),
}

/// The latencies of the controllers, in milliseconds: least and greatest.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// The StatefulSet and Job controllers, after a change of a pod or of their own object.
    pub stateful_set: (u64, u64),
    /// The greatest lag of the StatefulSet controller's cache of sets, in milliseconds.
    pub stateful_set_lag: u64,
    /// The scheduler.
    pub scheduler: (u64, u64),
    /// The garbage collector.
    pub collector: (u64, u64),
    /// The namespace controller.
    pub namespaces: (u64, u64),
    /// Volumes and endpoints.
    pub others: (u64, u64),
}

impl Default for Pace {
    /// Measured on a real control plane on two cores: a pod is recreated one or two milliseconds after it is gone.
    fn default() -> Self {
        Self {
            stateful_set: (1, 2),
            stateful_set_lag: 0,
            scheduler: (1, 3),
            collector: (2, 6),
            namespaces: (5, 20),
            others: (1, 5),
        }
    }
}

impl Pace {
    fn of(&self, job: &Job) -> (u64, u64) {
        match job {
            Job::StatefulSet(_) | Job::Work(_) => self.stateful_set,
            Job::Collect(_) | Job::Release(_) => self.collector,
            Job::Namespace(_) => self.namespaces,
            Job::Schedule(_) => self.scheduler,
            Job::Claim(_) | Job::Endpoints(_) => self.others,
        }
    }
}

/// The items by due time.
#[derive(Clone, Debug)]
pub(crate) struct Agenda {
    pub pace: Pace,
    random: Random,
    queue: BTreeSet<(u64, u64, Job)>,
    due: BTreeMap<Job, (u64, u64)>,
    order: u64,
    /// The time of the last request or step, in milliseconds since the cluster started.
    pub now_ms: u64,
    /// True while the StatefulSet controller is suspended.
    pub stateful_sets_suspended: bool,
}

impl Agenda {
    pub(crate) fn new(pace: Pace, random: Random) -> Self {
        Self {
            pace,
            random,
            queue: BTreeSet::new(),
            due: BTreeMap::new(),
            order: 0,
            now_ms: 0,
            stateful_sets_suspended: false,
        }
    }

    /// Queues an item with its controller's latency, or moves it earlier.
    pub(crate) fn soon(&mut self, job: Job) {
        let (low, high) = self.pace.of(&job);
        let delay = self.random.between(low, high);
        self.after(job, delay);
    }

    /// Queues an item after a delay in milliseconds.
    pub(crate) fn after(&mut self, job: Job, delay_ms: u64) {
        let due = self.now_ms + delay_ms;
        if let Some((listed, order)) = self.due.get(&job).copied() {
            if listed <= due {
                return;
            }
            self.queue.remove(&(listed, order, job.clone()));
        }
        self.order += 1;
        self.due.insert(job.clone(), (due, self.order));
        self.queue.insert((due, self.order, job));
    }

    /// The due time of the next item, in milliseconds.
    pub(crate) fn next_due(&self) -> Option<u64> {
        self.queue.iter().find(|entry| self.may_run(&entry.2)).map(|entry| entry.0)
    }

    /// Takes the next item that is due.
    pub(crate) fn take(&mut self) -> Option<Job> {
        let entry = self.queue.iter().find(|entry| self.may_run(&entry.2))?.clone();
        if entry.0 > self.now_ms {
            return None;
        }
        self.queue.remove(&entry);
        self.due.remove(&entry.2);
        Some(entry.2)
    }

    /// True if the garbage collector has items in the queue.
    pub(crate) fn is_collecting(&self) -> bool {
        self.due.keys().any(|job| matches!(job, Job::Collect(_) | Job::Release(_)))
    }

    fn may_run(&self, job: &Job) -> bool {
        !(self.stateful_sets_suspended && matches!(job, Job::StatefulSet(_)))
    }
}
