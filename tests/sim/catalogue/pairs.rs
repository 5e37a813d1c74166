//! Pairs of faults that are always run: the target is superseded in each stage of a promotion, and the operator dies
//! at one of its next writes.

use crate::catalogue::point::{Point, Strike};
use crate::catalogue::scenario::{Change, Scenario};

/// The superseding actions.
const SUPERSEDED: [&str; 3] = ["F7-third", "F7-back", "F7-template"];
const DIES: [&str; 2] = ["F1-before", "F1-after"];
/// How many of the following writes are struck, each in a run of its own.
const NEXT: u32 = 4;

/// The name of these pairs in the table.
pub const FAMILY: &str = "F7+F1";

/// All pairs of a scenario whose clean run has this many writes.
pub fn of(scenario: &Scenario, writes: u32, seed: u64) -> Vec<Point> {
    let promotes = matches!(scenario.change, Change::Image | Change::Template) && scenario.makes_sets();
    if !promotes || scenario.nodes > 3 {
        return Vec::new();
    }
    let mut all = Vec::new();
    for superseded in SUPERSEDED {
        let Some(fits) = crate::catalogue::faults::table().into_iter().find(|entry| entry.name == superseded)
        else {
            continue;
        };
        for dies in DIES.iter().filter(|_| fits.fits(scenario)) {
            for at in 1..=writes {
                for next in 1..=NEXT {
                    let mut point = Point::struck(&scenario.name, superseded, at, seed);
                    point.strikes.push(Strike { fault: (*dies).to_owned(), at: at + next });
                    all.push(point);
                }
            }
        }
    }
    all
}
