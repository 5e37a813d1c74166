//! The phases of failure loops: a real kubelet's status alternates during a back-off. Pure: time is an argument.

use std::time::Duration;

use tokio::time::Instant;

/// The kubelet's back-off, doubled from the first to the last, for pulls and restarts.
pub(super) const BACKOFF_FIRST: Duration = Duration::from_secs(10);
pub(super) const BACKOFF_LAST: Duration = Duration::from_mins(5);

/// How long a failed pull is shown before the kubelet reports its back-off.
const FAILED: Duration = Duration::from_secs(12);
/// How long a crashing container runs, and how long its termination is shown.
const RUNS: Duration = Duration::from_secs(3);
const ENDED: Duration = Duration::from_secs(2);

/// The phase of a failure loop.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Turn {
    /// The number of retries.
    pub again: i32,
    /// The start of this attempt.
    pub began: Instant,
    /// The back-off after this attempt.
    pub delay: Duration,
    /// The visible part of the attempt, from 0.
    pub part: usize,
    /// When the next part begins.
    pub until: Instant,
}

/// A pull: it has failed (0), or backs off (1).
pub(super) fn pull(since: Instant, now: Instant) -> Turn {
    turn(since, now, &[FAILED])
}

/// A crashing container: it runs (0), has terminated (1), or backs off (2).
pub(super) fn crash(since: Instant, now: Instant) -> Turn {
    turn(since, now, &[RUNS, ENDED])
}

fn turn(since: Instant, now: Instant, parts: &[Duration]) -> Turn {
    let (mut at, mut delay) = (since, BACKOFF_FIRST);
    let mut again = 0;
    loop {
        let began = at;
        for (part, long) in parts.iter().chain([&delay]).enumerate() {
            at += *long;
            if at > now {
                return Turn { again, began, delay, part, until: at };
            }
        }
        again += 1;
        delay = BACKOFF_LAST.min(delay * 2);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use windlass_clock::monotonic;

    /// The seconds at which the visible phase changes, and the phase, up to a minute.
    fn seen(of: fn(Instant, Instant) -> Turn, most: u64) -> Vec<(u64, i32, usize)> {
        let since = monotonic();
        let (mut now, mut all) = (since, Vec::new());
        while now.duration_since(since).as_secs() < most {
            let turn = of(since, now);
            all.push((now.duration_since(since).as_secs(), turn.again, turn.part));
            now = turn.until;
        }
        all
    }

    #[test]
    fn failing_pull_alternates_with_growing_backoff() {
        assert_eq!(seen(pull, 60), [(0, 0, 0), (12, 0, 1), (22, 1, 0), (34, 1, 1), (54, 2, 0)]);
    }

    #[test]
    fn crashing_container_cycles_through_run_exit_and_backoff() {
        let all = [(0, 0, 0), (3, 0, 1), (5, 0, 2), (15, 1, 0), (18, 1, 1), (20, 1, 2), (40, 2, 0)];
        assert_eq!(seen(crash, 41), all);
        let last = crash(monotonic(), monotonic() + Duration::from_hours(2));
        assert_eq!(last.delay, BACKOFF_LAST);
    }
}
