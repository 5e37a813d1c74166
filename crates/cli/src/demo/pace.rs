//! Paces the clock of the embedded cluster. The runtime's time is paused and jumps from timer to timer by itself;
//! here it is held to a multiple of the real clock.

use std::time::Duration;

use tokio::time::sleep;

use windlass_clock::on_the_wall;

/// The pause between two jumps, by the real clock.
const TICK: Duration = Duration::from_millis(10);
/// The most that a jump makes up for: on a slow machine the cluster's time slows down instead of skipping.
const MOST: Duration = Duration::from_millis(100);

/// Advances time at this multiple of the real clock, forever. Only for a single-threaded runtime with paused time;
/// nothing else may block its thread.
pub async fn keep(speed: f64) {
    let mut last = on_the_wall();
    loop {
        // A paused clock does not advance by itself while a blocking task runs.
        let rest = tokio::task::spawn_blocking(|| std::thread::sleep(TICK)).await;
        if rest.is_err() {
            return;
        }
        let now = on_the_wall();
        let passed = now.duration_since(last).min(MOST);
        last = now;
        sleep(passed.mul_f64(speed)).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use windlass_clock::monotonic;

    #[tokio::test(start_paused = true)]
    async fn hour_at_high_speed_passes_quickly_but_not_instantly() {
        let (began, wall) = (monotonic(), on_the_wall());
        let pace = tokio::spawn(keep(36_000.0));
        sleep(Duration::from_hours(1)).await;
        pace.abort();
        assert!(monotonic().duration_since(began) >= Duration::from_hours(1));
        let took = wall.elapsed();
        assert!(took >= Duration::from_millis(90) && took < Duration::from_secs(30), "{took:?}");
    }
}
