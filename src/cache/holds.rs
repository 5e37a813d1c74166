//! How often the hold of a StatefulSet was written again because somebody else overwrote it: it limits the rate of these
//! writes, so that two programs that disagree do not write in a loop.

use std::time::Duration;

use tokio::time::Instant;

use super::remembered::Remembered;
use crate::clock::monotonic;
use crate::planner::fleet::pods::Mode;

/// The first pause after a hold was written again. It doubles with each further time.
const FIRST_PAUSE: Duration = Duration::from_secs(30);
/// The longest pause.
const LONGEST_PAUSE: Duration = Duration::from_mins(30);
/// After this time without another overwrite, the next one is the first one again.
const FORGOTTEN_AFTER: Duration = Duration::from_hours(2);

/// By the UID of a StatefulSet.
#[derive(Default)]
pub struct Holds {
    /// How often the hold was written again, when that was last, and the message that says who had overwritten it.
    rewritten: Remembered<str, (u32, Instant, String)>,
    /// The last strategy that this process wrote, and the generation that it made.
    written: Remembered<str, (Mode, i64)>,
}

impl Holds {
    /// Records a strategy that was written.
    pub fn wrote(&self, uid: &str, mode: Mode, generation: i64) {
        self.written.put(uid, (mode, generation));
    }

    /// True if somebody else has written OnDelete, in a later generation than that in which this process wrote the hold.
    pub fn was_opened(&self, uid: &str, live: Mode, generation: i64) -> bool {
        let known = self.written.get(uid);
        live == Mode::Window && known.is_some_and(|(mode, own)| mode == Mode::Hold && own < generation)
    }

    /// How much longer the hold is not written again.
    pub fn pause(&self, uid: &str) -> Duration {
        let Some((count, last, _)) = self.known(uid) else { return Duration::ZERO };
        let pause = FIRST_PAUSE.saturating_mul(1 << (count - 1).min(16)).min(LONGEST_PAUSE);
        pause.saturating_sub(monotonic().duration_since(last))
    }

    /// The message that says who overwrote the hold, if somebody did lately.
    pub fn sentence(&self, uid: &str) -> Option<String> {
        self.known(uid).map(|(_, _, sentence)| sentence)
    }

    /// Records that the hold is written again.
    pub fn rewrite(&self, uid: &str, sentence: &str) {
        let count = self.known(uid).map_or(0, |(count, ..)| count);
        self.rewritten.put(uid, (count + 1, monotonic(), sentence.to_owned()));
    }

    fn known(&self, uid: &str) -> Option<(u32, Instant, String)> {
        self.rewritten.get(uid).filter(|(_, last, _)| monotonic().duration_since(*last) < FORGOTTEN_AFTER)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ondelete_after_own_hold_is_attributed_to_another_manager() {
        let holds = Holds::default();
        assert!(!holds.was_opened("a", Mode::Window, 9), "nothing is known of what an earlier process wrote");
        holds.wrote("a", Mode::Window, 3);
        assert!(!holds.was_opened("a", Mode::Window, 3));
        holds.wrote("a", Mode::Hold, 4);
        let table = [(Mode::Window, 4, false), (Mode::Window, 5, true), (Mode::Hold, 5, false)];
        for (live, generation, expected) in table {
            assert_eq!(holds.was_opened("a", live, generation), expected, "{live:?} {generation}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn each_overwrite_doubles_the_pause_until_expiry() {
        let holds = Holds::default();
        assert_eq!(holds.pause("a"), Duration::ZERO);
        for seconds in [30, 60, 120, 240, 480, 960, 1800, 1800] {
            holds.rewrite("a", "by b");
            assert_eq!(holds.pause("a"), Duration::from_secs(seconds));
            assert_eq!(holds.pause("b"), Duration::ZERO);
        }
        tokio::time::advance(Duration::from_hours(2)).await;
        assert_eq!(holds.pause("a"), Duration::ZERO);
        assert_eq!(holds.sentence("a"), None);
        holds.rewrite("a", "by c");
        assert_eq!(holds.sentence("a").as_deref(), Some("by c"));
        assert_eq!(holds.pause("a"), Duration::from_secs(30));
    }
}
