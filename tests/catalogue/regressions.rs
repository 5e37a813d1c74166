//! Points that once failed. Each is run on its own, whatever else of the catalogue is.

use crate::run;
use crate::sweep::Baselines;

/// The line that replays it, and what it showed.
const KEPT: [(&str, &str); 0] = [];

#[test]
fn what_once_failed_does_not_fail_again() {
    let baselines = Baselines::default();
    for (line, showed) in KEPT {
        let point = line.parse().unwrap();
        let report = run::play(&point, Some(&baselines.of(&point)), false);
        assert!(report.failures.is_empty(), "{showed}\n{}\n{}", point.command(), report.failures.join("\n"));
    }
}
