//! `windlass logs`: the history of a fleet and its nodes, or of a `WorkerDeployment`, in order of time: events, ended
//! plans, tasks, conditions.

use clap::Args;
use ratatui::style::Stylize;
use serde_json::json;

use crate::Failure;
use crate::output::Output;
use crate::reader::events;
use crate::report::chain::TimelineEntry;
use crate::report::timeline::of_fleet;
use crate::target::{Kind, Located, ObjectSelector, Selected};
use crate::text::{Line, Terminal};
use windlass_kube_port::observed::{Observed, ObservedFleet};

/// The arguments of `windlass logs`.
#[derive(Debug, Args)]
pub struct LogsArgs {
    #[command(flatten)]
    selected: Selected,
    /// Print data: a list of about, reason, note, at
    #[arg(long, short = 'o', value_enum, value_name = "FORMAT")]
    output: Option<Output>,
}

/// Prints an object's history.
pub async fn logs(arguments: LogsArgs) -> Result<(), Failure> {
    if arguments.selected.selector == ObjectSelector::Nothing {
        return Err(Failure::Usage("name a fleet: nd/NAME".to_owned()));
    }
    arguments.selected.selector.require_no_node("logs").map_err(Failure::Usage)?;
    let cluster = arguments.selected.flags.cluster().await?;
    for Located { target, namespace } in arguments.selected.selector.located(&cluster).await? {
        let object = target.get(&cluster.client, &namespace).await?;
        let (events, unread) = match events(&cluster.client, &namespace, None).await {
            Ok(events) => (events, None),
            Err(sentence) => (Vec::new(), Some(sentence)),
        };
        let story = match target.kind {
            Kind::Other(other) => other.story(&object, events),
            Kind::Fleet | Kind::Node => of_fleet(&ObservedFleet::read(&object), events),
        };
        let text = match arguments.output {
            Some(Output::Name) => format!("{target}\n"),
            Some(format) => format.document(&json!({"items": story}))?,
            None => drawn(&story, Terminal::of_stdout()),
        };
        crate::print(&text)?;
        if let Some(unread) = unread {
            eprintln!("windlass: {unread}");
        }
    }
    Ok(())
}

fn drawn(story: &[TimelineEntry], terminal: Terminal) -> String {
    let about = |happened: &TimelineEntry| happened.about.name.clone();
    let names = story.iter().map(|happened| about(happened).len()).max().unwrap_or_default();
    let reasons = story.iter().map(|happened| happened.reason.len()).max().unwrap_or_default();
    let line = |happened: &TimelineEntry| {
        let mut line = Line::from(happened.at.format("%Y-%m-%d %H:%M:%S").to_string().dim());
        line.push_span(format!("  {:<names$}", about(happened)).bold());
        line.push_span(format!("  {:<reasons$}  {}", happened.reason, happened.note));
        terminal.painted(&line) + "\n"
    };
    story.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fleet_timeline_is_in_time_order_without_other_objects() {
        let fleet = json!({"metadata": {"name": "db"}, "status": {
            "history": [{"planID": "a", "recipe": "InPlace", "targetHash": "v1:0123456", "outcome": "Superseded",
                "reason": "NewTarget", "startedAt": "2026-01-01T04:00:00Z", "finishedAt": "2026-01-01T04:02:00Z"}],
            "plan": {"id": "b", "recipe": "InPlace", "targetHash": "v1:abcdef0", "state": "Active",
                "startedAt": "2026-01-01T04:02:00Z",
                "tasks": [{"id": "b-0", "type": "update-node-specs", "state": "Running", "startedAt": "2026-01-01T04:02:01Z"}]},
            "conditions": [{"type": "Stalled", "status": "False", "reason": "Progressing",
                "lastTransitionTime": "2026-01-01T03:00:00Z"}]}});
        let event = |kind: &str, name: &str, at: &str| TimelineEntry {
            about: crate::report::chain::Subject::of(kind, name),
            reason: "PlanStarted".into(),
            note: "x".into(),
            at: at.parse().unwrap(),
        };
        let events = vec![
            event("StatefulNode", "db-1", "2026-01-01T04:01:00Z"),
            event("StatefulNode", "other-1", "2026-01-01T04:01:00Z"),
            event("Pod", "db-1-0", "2026-01-01T04:01:00Z"),
        ];
        let terminal = Terminal { width: 110, colours: false, unicode: true };
        assert_eq!(
            drawn(&of_fleet(&ObservedFleet::read(&fleet), events), terminal),
            "\
2026-01-01 03:00:00  db    Condition    Stalled=False Progressing
2026-01-01 04:00:00  db    PlanBegan    plan a (InPlace) to 01234
2026-01-01 04:01:00  db-1  PlanStarted  x
2026-01-01 04:02:00  db    PlanEnded    plan a is Superseded: NewTarget
2026-01-01 04:02:00  db    PlanBegan    plan b (InPlace) to abcde
2026-01-01 04:02:01  db    TaskBegan    update-node-specs
"
        );
    }
}
