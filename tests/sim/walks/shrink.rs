//! Shrinks a failing walk: removes steps, by halves and then one by one, as long as it still fails.

use crate::walks::walk::{Walk, play};

/// The most walks of a search.
const TRIES: u32 = 120;

/// A shorter walk that fails in the same way. `fails` tests a walk.
pub fn shortest(walk: &Walk, mut fails: impl FnMut(&Walk) -> bool) -> Walk {
    let mut kept = walk.steps();
    let mut size = kept.len().div_ceil(2).max(1);
    let mut tries = 0;
    loop {
        let (mut at, mut shorter) = (0, false);
        while at < kept.len() && tries < TRIES {
            let end = (at + size).min(kept.len());
            let rest: Vec<u64> = kept[..at].iter().chain(&kept[end..]).copied().collect();
            let try_ = Walk { seed: walk.seed, keep: Some(rest.clone()) };
            tries += 1;
            if fails(&try_) {
                kept = rest;
                shorter = true;
            } else {
                at = end;
            }
        }
        if tries >= TRIES || (size == 1 && !shorter) {
            return Walk { seed: walk.seed, keep: Some(kept) };
        }
        size = size.div_ceil(2).max(1);
        if kept.is_empty() {
            return Walk { seed: walk.seed, keep: Some(kept) };
        }
    }
}

/// The class of a failure: its first words, without names and numbers.
pub fn class(failure: &str) -> String {
    let words = failure.split([':', '@', '{']).next().unwrap_or(failure);
    words
        .split(' ')
        .filter(|word| !word.contains(|c: char| c.is_ascii_digit()))
        .take(8)
        .collect::<Vec<_>>()
        .join(" ")
}

/// The shortest walk with the same first failure.
pub fn of_failure(walk: &Walk, failures: &[String]) -> Walk {
    let wanted = failures.first().map(|failure| class(failure)).unwrap_or_default();
    shortest(walk, |shorter| play(shorter, false).failures.iter().any(|failure| class(failure) == wanted))
}

#[test]
fn shrinking_keeps_only_the_failing_steps() {
    let walk = Walk { seed: 1, keep: Some((0..30).collect()) };
    let short = shortest(&walk, |w| w.steps().contains(&4) && w.steps().contains(&21));
    assert_eq!(short.steps(), [4, 21]);
    let none = shortest(&walk, |_| true);
    assert_eq!(none.steps(), Vec::<u64>::new());
}
