//! What moves the clock of the embedded cluster. The runtime's time is paused and goes from timer to timer by
//! itself as long as it may; here it is held to so many times the pace of the machine's own clock.

use std::time::Duration;

use tokio::time::sleep;

use crate::clock::on_the_wall;

/// How long time stands still between two leaps, on the machine's clock.
const TICK: Duration = Duration::from_millis(10);
/// A leap makes up for no more than this: a machine that cannot keep up shows slower time, not holes in it.
const MOST: Duration = Duration::from_millis(100);

/// Lets time pass at this many times the machine's pace, for ever. Only for a runtime of one thread whose time is
/// paused; nothing else there may block a thread.
pub async fn keep(speed: f64) {
    let mut last = on_the_wall();
    loop {
        // While a thread is blocked, a paused clock does not move by itself.
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
    use crate::clock::monotonic;

    #[tokio::test(start_paused = true)]
    async fn an_hour_passes_quickly_at_a_high_speed_and_not_at_once() {
        let (began, wall) = (monotonic(), on_the_wall());
        let pace = tokio::spawn(keep(36_000.0));
        sleep(Duration::from_hours(1)).await;
        pace.abort();
        assert!(monotonic().duration_since(began) >= Duration::from_hours(1));
        let took = wall.elapsed();
        assert!(took >= Duration::from_millis(90) && took < Duration::from_secs(30), "{took:?}");
    }
}
