//! What the controllers have yet to do, and when. Each thing to look at is listed once, as in a work queue; how
//! long it takes until somebody looks is drawn from the seed, within bounds that a test may set.

use std::collections::{BTreeMap, BTreeSet};

use super::random::Random;
use super::store::{Key, Place};

/// One thing for a controller to look at.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) enum Job {
    /// The StatefulSet controller and a set.
    StatefulSet(Key),
    /// The garbage collector and an object that may have lost its owners.
    Collect(Place),
    /// The garbage collector and an owner that waits for its dependents, or gives them up.
    Release(Place),
    /// The namespace controller and a namespace that is going away.
    Namespace(String),
    /// The scheduler and a pod.
    Schedule(Key),
    /// The volume controller and a claim.
    Claim(Key),
    /// The endpoints controller and a service.
    Endpoints(Key),
    /// The Job controller and a Job.
    Work(Key),
}

/// How long controllers take to notice, in milliseconds: at least, and at most.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// The StatefulSet and Job controllers, after a change of a pod or of one of theirs.
    pub stateful_set: (u64, u64),
    /// How much older than the truth the StatefulSet controller's picture of a set may be, in milliseconds.
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
    /// Measured on a real control plane on two cores: a pod is made again a millisecond or two after it is gone.
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

/// The list of jobs by due time.
#[derive(Clone, Debug)]
pub(crate) struct Agenda {
    pub pace: Pace,
    random: Random,
    queue: BTreeSet<(u64, u64, Job)>,
    due: BTreeMap<Job, (u64, u64)>,
    order: u64,
    /// Milliseconds since the cluster began, as of the last request or step.
    pub now_ms: u64,
    /// The StatefulSet controller is held up until somebody lets it go on.
    pub held: bool,
}

impl Agenda {
    pub(crate) fn new(pace: Pace, random: Random) -> Self {
        Self { pace, random, queue: BTreeSet::new(), due: BTreeMap::new(), order: 0, now_ms: 0, held: false }
    }

    /// Lists a job, to be done within its controller's pace; no later than it already was to be done.
    pub(crate) fn soon(&mut self, job: Job) {
        let (low, high) = self.pace.of(&job);
        let delay = self.random.between(low, high);
        self.after(job, delay);
    }

    /// Lists a job, to be done after so many milliseconds.
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

    /// When the next job is due.
    pub(crate) fn next_due(&self) -> Option<u64> {
        self.queue.iter().find(|entry| self.may_run(&entry.2)).map(|entry| entry.0)
    }

    /// Takes the next job that is due.
    pub(crate) fn take(&mut self) -> Option<Job> {
        let entry = self.queue.iter().find(|entry| self.may_run(&entry.2))?.clone();
        if entry.0 > self.now_ms {
            return None;
        }
        self.queue.remove(&entry);
        self.due.remove(&entry.2);
        Some(entry.2)
    }

    /// Whether the garbage collector has something to look at yet.
    pub(crate) fn is_collecting(&self) -> bool {
        self.due.keys().any(|job| matches!(job, Job::Collect(_) | Job::Release(_)))
    }

    fn may_run(&self, job: &Job) -> bool {
        !(self.held && matches!(job, Job::StatefulSet(_)))
    }
}
