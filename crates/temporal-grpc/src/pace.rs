//! The rate limit of a namespace: Temporal allows all its clients together 50 describe requests per second.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use windlass_clock::monotonic;
use windlass_temporal::port::TemporalError;

/// The average interval of requests: 25 a second, half of what the server allows.
const EVERY: Duration = Duration::from_millis(40);
/// The burst after an idle time, in requests.
const BURST: u32 = 25;
/// The longest wait; a request that would wait longer fails.
const PATIENCE: Duration = Duration::from_secs(2);

/// The rate limiter of one namespace.
#[derive(Debug)]
pub(crate) struct Pace {
    /// When the requests granted so far are used up at the average rate.
    spent_until: Mutex<Instant>,
}

impl Pace {
    pub(crate) fn new() -> Self {
        Self { spent_until: Mutex::new(monotonic()) }
    }

    /// Waits for a request's turn, two seconds at most.
    pub(crate) async fn turn(&self) -> Result<(), TemporalError> {
        let wait = self.reserve(monotonic())?;
        tokio::time::sleep(wait).await;
        Ok(())
    }

    /// How long a request that arrives now has to wait.
    fn reserve(&self, now: Instant) -> Result<Duration, TemporalError> {
        let mut spent_until = self.spent_until.lock().unwrap_or_else(PoisonError::into_inner);
        let spent = spent_until.saturating_duration_since(now);
        let wait = (spent + EVERY).saturating_sub(EVERY * BURST);
        if wait > PATIENCE {
            return Err(TemporalError::RateLimited {
                message: "Windlass sends at most 25 requests per second to a Temporal namespace, and more requests are waiting"
                    .to_owned(),
                retry_after: Some(wait),
            });
        }
        *spent_until = now + spent + EVERY;
        Ok(wait)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn burst_is_immediate_and_then_25_calls_per_second() {
        let pace = Pace::new();
        let began = monotonic();
        for _ in 0..25 {
            pace.turn().await.unwrap();
        }
        assert_eq!(began.elapsed(), Duration::ZERO);
        for _ in 0..25 {
            pace.turn().await.unwrap();
        }
        // tokio's timer rounds up to its resolution of a millisecond.
        assert!((980..=1030).contains(&began.elapsed().as_millis()), "{:?}", began.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn call_that_would_wait_over_two_seconds_gets_a_retry_delay() {
        let pace = Pace::new();
        let now = monotonic();
        let taken = (0..200).filter(|_| pace.reserve(now).is_ok()).count();
        assert_eq!(taken, 75, "a burst, and what is sent in two seconds");
        let Err(TemporalError::RateLimited { retry_after: Some(after), .. }) = pace.reserve(now) else {
            panic!("one more is refused");
        };
        assert_eq!(after, Duration::from_millis(2040));
        assert!(pace.reserve(now + Duration::from_secs(1)).is_ok(), "and taken later");
    }
}
