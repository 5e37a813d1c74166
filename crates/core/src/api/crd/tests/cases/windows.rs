//! Windows, and the fleets that come first.

use serde_json::{Value, json};

use super::{Case, fleet, rollout};

type Place = fn(Value) -> Value;

/// Where the fields are, for each kind, and the paths of their errors.
const PLACES: [(Place, [&str; 5]); 2] = [
    (
        |strategy| {
            let mut fleet = fleet(&[]);
            for (field, value) in strategy.as_object().into_iter().flatten() {
                fleet["spec"]["updateStrategy"][field] = value.clone();
            }
            fleet
        },
        [
            "spec.updateStrategy.windows[0].schedule",
            "spec.updateStrategy.windows[0].duration",
            "spec.updateStrategy.windows[0].timeZone",
            "spec.updateStrategy.after[0].kind",
            "spec.updateStrategy.after[0].name",
        ],
    ),
    (
        |strategy| rollout(&[("spec.strategy", strategy)]),
        [
            "spec.strategy.windows[0].schedule",
            "spec.strategy.windows[0].duration",
            "spec.strategy.windows[0].timeZone",
            "spec.strategy.after[0].kind",
            "spec.strategy.after[0].name",
        ],
    ),
];

pub(super) fn windows() -> Vec<Case> {
    let night = json!({"schedule": "0 2 * * 1-5", "duration": "3h", "timeZone": "Europe/Berlin"});
    let mut cases = Vec::new();
    for (place, [schedule, duration, zone, kind, name]) in PLACES {
        let with = |field: &str, value: &str| {
            let mut window = night.clone();
            window[field] = value.into();
            place(json!({"windows": [window]}))
        };
        let after = |kind: &str, name: &str| place(json!({"after": [{"kind": kind, "name": name}]}));
        cases.extend([
            Case::new(
                "a schedule with six fields",
                with("schedule", "0 0 2 * * *"),
                with("schedule", " 0  2 */2 JAN-jun ?"),
                schedule,
                "windows[].schedule has to be the schedule of a CronJob",
            ),
            Case::new(
                "a schedule without days",
                with("schedule", "02:00"),
                with("schedule", "@daily"),
                schedule,
                "windows[].schedule has to be the schedule of a CronJob",
            ),
            Case::new(
                "a duration of 0",
                with("duration", "0h"),
                with("duration", "1h30m"),
                duration,
                "windows[].duration has to be hours and minutes above 0",
            ),
            Case::new(
                "a duration in another unit",
                with("duration", "2d"),
                with("duration", "48h"),
                duration,
                "windows[].duration has to be hours and minutes above 0",
            ),
            Case::new(
                "no time zone",
                with("timeZone", "UTC+1 (Berlin)"),
                with("timeZone", "Etc/GMT-1"),
                zone,
                "windows[].timeZone has to be the name of a time zone",
            ),
            Case::new(
                "an object of another kind",
                after("Deployment", "cache"),
                after("StatefulSetRollout", "cache"),
                kind,
                "Unsupported value",
            )
            .by_schema(),
            Case::new(
                "an object without a name",
                after("NodeDeployment", ""),
                after("NodeDeployment", "a"),
                name,
                "at least 1 chars long",
            )
            .by_schema(),
        ]);
    }
    cases
}
