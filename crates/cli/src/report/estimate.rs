//! Estimates the remaining time of a rollout from the nodes that it has moved. Always presented as "about".

use chrono::{DateTime, TimeDelta, Utc};

use super::age;
use windlass_kube_port::observed::ObservedNode;

/// The most nodes that are sampled: more would cost time without improving the estimate.
const SAMPLES: usize = 50;

/// The typical duration of a node's plan, in seconds: the median over nodes that were moved since `from`; `None`
/// without any.
pub fn node_seconds<'a>(
    nodes: impl Iterator<Item = &'a ObservedNode>,
    from: Option<DateTime<Utc>>,
) -> Option<i64> {
    let took = |node: &ObservedNode| {
        let plan = node.status.plan.as_ref()?.0.value();
        let time = |field: &str| plan[field].as_str()?.parse::<DateTime<Utc>>().ok();
        let is_move = matches!(plan["recipe"].as_str(), Some("NodeUpdate" | "RestartNode"));
        let (began, ended) = (time("startedAt")?, time("finishedAt")?);
        let counts = is_move && plan["state"] == "Complete" && from.is_none_or(|from| began >= from);
        counts.then(|| (ended - began).num_seconds().max(1))
    };
    let mut all: Vec<i64> = nodes.filter_map(took).take(SAMPLES).collect();
    all.sort_unstable();
    all.get(all.len() / 2).copied()
}

/// A rough duration: to ten seconds below a minute, to minutes below two hours.
#[must_use]
pub fn about(left: TimeDelta) -> String {
    let seconds = left.num_seconds().max(1);
    match seconds {
        0..55 => format!("about {}s", (seconds + 9) / 10 * 10),
        55..7_200 => format!("about {}m", ((seconds + 30) / 60).max(1)),
        7_200..172_800 => format!("about {}h", (seconds + 1_800) / 3_600),
        _ => format!("about {}", age(left)),
    }
}
