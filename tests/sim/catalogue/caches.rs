//! No decision depends on what an operator keeps in its caches: emptied before each reconcile, the same writes follow.

use std::collections::BTreeMap;

use crate::catalogue::point::Point;
use crate::catalogue::run::{Report, play_with};
use crate::catalogue::scenario::Scenario;

/// The operator's successful writes to each object, in order, without statuses and events: which progress they tell depends on how
/// long a request takes.
fn writes(report: &Report) -> BTreeMap<String, Vec<String>> {
    let mut of: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for line in report.trace.iter().filter(|line| !line.ends_with("(dry run)")) {
        let Some((request, _)) = line.split_once(" -> 2") else { continue };
        let words: Vec<&str> = request.split_whitespace().skip(1).collect();
        let [agent, verb, object @ ..] = &words[..] else { continue };
        let object = object.join(" ");
        // How often a StatefulSet is held between two pods depends on that, too.
        let is_told =
            ["/status", "events", "statefulsets.apps ledger"].iter().any(|told| object.contains(told));
        if agent.starts_with("windlass/") && !matches!(*verb, "get" | "list" | "watch") && !is_told {
            of.entry(object).or_default().push((*verb).to_owned());
        }
    }
    of
}

#[test]
fn emptied_caches_do_not_change_the_operators_writes() {
    let mut saved = 0;
    for scenario in Scenario::all() {
        let point = Point::clean(&scenario.name, 1);
        let [kept, emptied] = [true, false].map(|keeps| play_with(&point, None, true, keeps));
        assert_eq!((&kept.failures, &emptied.failures), (&Vec::new(), &Vec::new()), "{point}");
        assert_eq!(writes(&kept), writes(&emptied), "{point}");
        assert!(!writes(&kept).is_empty(), "{point}: nothing was written");
        saved += i64::from(emptied.counts.calls) - i64::from(kept.counts.calls);
    }
    assert!(saved > 100, "the caches save {saved} requests: they are not emptied");
}
