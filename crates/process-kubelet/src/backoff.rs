//! The back-off of restarts and pulls. Pure: time is an argument.

use std::time::Duration;

use tokio::time::Instant;

/// The limits of the back-off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackOff {
    /// The wait after the second failure: the first restart is immediate.
    pub base: Duration,
    /// The longest wait; a run of twice this length resets the back-off.
    pub most: Duration,
}

impl Default for BackOff {
    /// 10 s, doubled up to 5 min, as in every kubelet.
    fn default() -> Self {
        Self { base: Duration::from_secs(10), most: Duration::from_mins(5) }
    }
}

/// The state of a back-off.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Turn {
    limits: BackOff,
    /// The wait after the first failure.
    first: Option<Duration>,
    wait: Option<Duration>,
    at: Option<Instant>,
}

impl Turn {
    /// For restarts: the first is immediate.
    pub(crate) fn of_restarts(limits: BackOff) -> Self {
        Self { limits, first: None, wait: None, at: None }
    }

    /// For pulls: already the first failure waits.
    pub(crate) fn of_pulls(limits: BackOff) -> Self {
        Self { limits, first: Some(limits.base), wait: None, at: None }
    }

    /// Records a failure; returns how long to wait, `None`: not at all.
    pub(crate) fn failed(&mut self, at: Instant) -> Option<Duration> {
        let forgotten = self.at.is_none_or(|last| at.duration_since(last) > self.limits.most * 2);
        if forgotten {
            self.wait = self.first;
        }
        self.at = Some(at);
        let wait = self.wait;
        let next = wait.map_or(self.limits.base, |wait| wait * 2);
        self.wait = Some(next.min(self.limits.most));
        wait
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::monotonic;

    const fn secs(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    #[test]
    fn restart_delay_doubles_up_to_five_minutes() {
        let mut turn = Turn::of_restarts(BackOff::default());
        let mut at = monotonic();
        let mut delays = Vec::new();
        for _ in 0..9 {
            let wait = turn.failed(at);
            delays.push(wait.map_or(0, |w| w.as_secs()));
            at += wait.unwrap_or_default() + secs(1);
        }
        assert_eq!(delays, [0, 10, 20, 40, 80, 160, 300, 300, 300]);
    }

    #[test]
    fn image_pull_backs_off_from_first_failure() {
        let mut turn = Turn::of_pulls(BackOff::default());
        let at = monotonic();
        assert_eq!(turn.failed(at), Some(secs(10)));
        assert_eq!(turn.failed(at + secs(10)), Some(secs(20)));
    }

    #[test]
    fn backoff_resets_after_ten_minutes_of_running() {
        let mut turn = Turn::of_restarts(BackOff::default());
        let at = monotonic();
        turn.failed(at);
        assert_eq!(turn.failed(at + secs(1)), Some(secs(10)));
        assert_eq!(turn.failed(at + secs(602)), None);
    }
}
