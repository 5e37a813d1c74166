//! A continuous writer, which records the acknowledged writes and the longest gap between them.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::{task::JoinHandle, time::Instant};
use windlass_clock::monotonic;

/// The time-out of a write.
const PATIENCE: Duration = Duration::from_secs(1);
/// The pause between two writes, so that the machine's throughput does not matter.
const PAUSE: Duration = Duration::from_millis(5);

/// A store for writes.
pub trait Store: Send + 'static {
    /// Writes one item; returns where it can be found. Called with another number after a failure, so it has to
    /// switch to another server by then.
    fn write(&mut self, number: u64) -> impl Future<Output = Result<String, String>> + Send;
}

/// The record of a writer.
#[derive(Clone, Debug)]
pub struct Tally {
    /// The location of each acknowledged number. Others may exist all the same.
    pub acknowledged: BTreeMap<u64, String>,
    pub failed: u64,
    /// The longest gap since the last reset.
    pub longest_gap: Duration,
    /// The longest gap of all.
    pub longest_of_all: Duration,
    pub last_failure: String,
    last: Instant,
}

impl Tally {
    fn note(&mut self, number: u64, written: Result<String, String>) {
        match written {
            Ok(place) => {
                self.mind_gap();
                self.last = monotonic();
                self.acknowledged.insert(number, place);
            }
            Err(why) => {
                self.failed += 1;
                self.last_failure = why;
            }
        }
    }

    fn mind_gap(&mut self) {
        self.longest_gap = self.longest_gap.max(self.last.elapsed());
        self.longest_of_all = self.longest_of_all.max(self.longest_gap);
    }
}

/// Prints a writer's record, and fails unless all acknowledged writes exist and no gap was too long.
pub fn judge_tally(what: &str, tally: &Tally, lost: &BTreeSet<u64>, bearable: Duration) {
    eprintln!(
        "{what}: {} acknowledged, {} failed, {} lost, longest gap {} ms",
        tally.acknowledged.len(),
        tally.failed,
        lost.len(),
        tally.longest_of_all.as_millis()
    );
    assert_eq!(*lost, BTreeSet::new());
    assert!(tally.acknowledged.len() > 100, "{}", tally.last_failure);
    assert!(tally.longest_of_all < bearable, "{:?}: {}", tally.longest_of_all, tally.last_failure);
}

pub struct Writer {
    tally: Arc<Mutex<Tally>>,
    task: JoinHandle<()>,
}

impl Writer {
    /// Starts, and runs until it is stopped.
    pub fn start(mut store: impl Store) -> Self {
        let tally = Tally {
            acknowledged: BTreeMap::new(),
            failed: 0,
            longest_gap: Duration::ZERO,
            longest_of_all: Duration::ZERO,
            last_failure: String::new(),
            last: monotonic(),
        };
        let tally = Arc::new(Mutex::new(tally));
        let seen = Arc::clone(&tally);
        let task = tokio::spawn(async move {
            for number in 0_u64.. {
                let written = tokio::time::timeout(PATIENCE, store.write(number)).await;
                let written = written.unwrap_or_else(|_| Err(format!("no answer within {PATIENCE:?}")));
                seen.lock().unwrap_or_else(PoisonError::into_inner).note(number, written);
                tokio::time::sleep(PAUSE).await;
            }
        });
        Self { tally, task }
    }

    /// The record so far, including a current gap.
    pub fn tally(&self) -> Tally {
        let mut tally = self.tally.lock().unwrap_or_else(PoisonError::into_inner).clone();
        tally.mind_gap();
        tally
    }

    /// Resets the gaps: a measurement starts now.
    pub fn forget_gaps(&self) {
        let mut tally = self.tally.lock().unwrap_or_else(PoisonError::into_inner);
        tally.mind_gap();
        tally.longest_gap = Duration::ZERO;
        tally.last = monotonic();
    }

    /// Stops it. A write under way is neither acknowledged nor failed.
    pub async fn stop(self) -> Tally {
        let tally = self.tally();
        self.task.abort();
        let _ = self.task.await;
        tally
    }
}
