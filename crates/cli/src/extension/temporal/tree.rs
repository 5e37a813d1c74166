//! Draws a `WorkerDeployment` as a tree, and as one line. Pure.

use chrono::{DateTime, Utc};
use ratatui::style::{Style, Stylize};
use ratatui::text::Span;
use serde_json::{Value, json};
use windlass_temporal::api::{VersionRecord, VersionState};

use super::WORKERS;
use super::report::WorkersReport;
use crate::extension::{Sheet, SheetRow};
use crate::report::{Verdict, age, clock_time};
use crate::status::Report;
use crate::status::tree::{self, Shown};
use crate::target::{Kind, Target};
use crate::text::{Line, Terminal, mapped};

impl Report for WorkersReport {
    fn verdict(&self) -> Verdict {
        self.verdict
    }

    fn target(&self) -> Target {
        Target { kind: Kind::Other(WORKERS), name: self.name.clone() }
    }

    fn name(&self, namespaces: bool) -> String {
        tree::qualified(&self.namespace, &self.name, namespaces)
    }

    fn waiting_for(&self) -> &str {
        &self.waiting_for
    }

    fn summary(&self) -> &str {
        &self.summary
    }

    fn document(&self) -> Value {
        json!(self)
    }

    fn tree(&self, now: DateTime<Utc>, terminal: Terminal, shown: Shown<'_>) -> Vec<Line> {
        let mut lines = vec![head(self, terminal, shown.namespaces)];
        let mut under = Vec::new();
        if let Some(plan) = self.plan.as_ref().filter(|_| self.elapsed_seconds.is_some()) {
            let mut line = Line::from(self.builds());
            tree::add_plan(&mut line, plan);
            under.push(line);
        }
        if !self.waiting_for.is_empty() {
            under.push(tree::waiting_line(self.verdict, self.waiting_for.clone()));
        }
        let resources = self.versions.iter().flat_map(|version| &version.resources);
        under.extend(resources.filter(|resource| !resource.applied).map(|resource| {
            let sentence =
                format!("{} {} is not applied: {}", resource.kind, resource.name, resource.message);
            tree::waiting_line(self.verdict, sentence)
        }));
        let target = format!("wwd/{} -n {}", self.name, self.namespace);
        under.extend(self.hooks.iter().map(|hook| tree::hook_line(&target, hook)));
        under.extend(
            self.connection.iter().map(|connection| Line::from(format!("connects with {connection}"))),
        );
        for line in under {
            lines.extend(tree::indented(&mapped(&line, |text| shown.typed.text(text)), terminal));
        }
        lines.extend(branches(self, now, terminal, shown));
        lines
    }

    fn healthy(&self, namespaces: bool, width: usize) -> Line {
        let name = self.name(namespaces);
        let mut line = tree::healthy_start(&name, width, &self.strategy, &self.summary);
        let draining = self.versions.iter().filter(|version| version.state == VersionState::Draining).count();
        let draining = match draining {
            0 => String::new(),
            1 => ", 1 version draining".to_owned(),
            count => format!(", {count} versions draining"),
        };
        let evacuation = self.evacuated().map(|of| format!(", {of}"));
        line.push_span(format!(
            "   {} is current{draining}{}",
            self.current_build_id,
            evacuation.unwrap_or_default()
        ));
        line
    }

    fn line(&self) -> Line {
        let mut line = Line::from(format!("{:<14} ", self.summary));
        let ramp = self.ramp.map_or_else(String::new, |ramp| format!("step {}/{}", ramp.step, ramp.of));
        line.push_span(format!("{ramp:<10} "));
        let versions = self.versions.iter().filter(|version| version.state != VersionState::Drained);
        for (index, version) in versions.enumerate() {
            let (glyph, style) = glyph(self, version);
            line.push_span(Span::styled(format!("{}{glyph}", if index == 0 { "" } else { " " }), style));
            line.push_span(format!(" {} {:?}", version.build_id, version.state));
        }
        line.push_span(format!("  {}", self.waiting_for));
        line
    }
}

fn head(report: &WorkersReport, terminal: Terminal, namespaces: bool) -> Line {
    let mut line =
        tree::head_start(report.name(namespaces), &report.strategy, report.verdict, &report.summary);
    let Some(elapsed) = report.elapsed_seconds else { return line };
    let step = report.ramp.map_or_else(String::new, |ramp| format!("  step {} of {}", ramp.step, ramp.of));
    let tail = format!("{step}   {}", age(chrono::TimeDelta::seconds(elapsed)));
    if report.ramp.is_some() {
        let percent = usize::try_from(report.ramp_percent.unwrap_or_default()).unwrap_or_default();
        tree::add_bar(&mut line, (percent, 100), &tail, terminal);
    }
    line.push_span(tail);
    line
}

fn glyph(report: &WorkersReport, version: &VersionRecord) -> (&'static str, Style) {
    let is_wanted = version.build_id.as_str() == report.target_build_id;
    match version.state {
        VersionState::Drained => ("○", Style::new().dim()),
        _ if version.replicas == 0 || version.ready < version.replicas => ("◐", Style::new().yellow()),
        VersionState::Current | VersionState::Ramping => ("●", Style::new().green()),
        VersionState::Inactive | VersionState::NotRegistered if is_wanted => ("◐", Style::new().yellow()),
        _ => ("○", Style::new().cyan()),
    }
}

impl WorkersReport {
    /// Its sheet on the page.
    pub fn sheet(&self) -> Sheet {
        let row = |version: &VersionRecord| {
            let is_short = version.ready < version.replicas;
            let serves = match version.state {
                VersionState::Current | VersionState::Ramping => Some(!is_short),
                VersionState::Draining if is_short => Some(false),
                _ => None,
            };
            SheetRow {
                glyph: glyph(self, version).0,
                serves,
                name: version.build_id.to_string(),
                words: words(version),
                since: version.since,
            }
        };
        Sheet {
            verdict: self.verdict,
            strategy: self.strategy.clone(),
            summary: self.summary.clone(),
            revisions: self.builds(),
            waiting_for: self.waiting_for.clone(),
            percent: self.elapsed_seconds.map(|_| self.ramp_percent.unwrap_or_default()),
            elapsed_seconds: self.elapsed_seconds,
            plan: self.plan.clone(),
            title: "Versions",
            rows: self.versions.iter().map(row).collect(),
            is_terminating: self.is_terminating,
        }
    }
}

fn branches(report: &WorkersReport, now: DateTime<Utc>, terminal: Terminal, shown: Shown<'_>) -> Vec<Line> {
    let rows = if shown.all { usize::MAX } else { shown.rows.max(1) };
    let hidden = report.versions.len().saturating_sub(rows);
    let named = &report.versions[..report.versions.len() - hidden];
    let width =
        named.iter().map(|version| version.build_id.as_str().chars().count()).max().unwrap_or_default();
    let last = if hidden > 0 { usize::MAX } else { named.len().saturating_sub(1) };
    let mut lines: Vec<Line> = named
        .iter()
        .enumerate()
        .map(|(index, version)| {
            let mut line = Line::from(if index == last { "└─ " } else { "├─ " }.dim());
            let (glyph, style) = glyph(report, version);
            line.push_span(Span::styled(glyph, style));
            line.push_span(format!(" {:<width$}   {}", version.build_id.as_str(), words(version)));
            if let Some(since) = version.since {
                line.push_span(format!("  since {}", clock_time(since, now)).dim());
            }
            terminal.cut(&line)
        })
        .collect();
    if hidden > 0 {
        lines.push(Line::from(format!("└─ … and {hidden} more; list them with --all").dim()));
    }
    lines
}

/// A version's state, such as `Draining   2/2 ready   3 workflows run`.
pub(super) fn words(version: &VersionRecord) -> String {
    let takes_tasks = matches!(version.state, VersionState::Current | VersionState::Ramping);
    let running = match version.running_workflows.filter(|_| !takes_tasks) {
        None => String::new(),
        Some(0) => "   no workflow runs".to_owned(),
        Some(1) => "   1 workflow runs".to_owned(),
        Some(running) => format!("   {running} workflows run"),
    };
    format!("{:?}   {}/{} ready{running}", version.state, version.ready, version.replicas)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Typed;

    fn report(change: &Value) -> WorkersReport {
        let condition = |type_: &str, status: &str, reason: &str, message: &str| {
            json!({"type": type_, "status": status, "reason": reason, "message": message,
                "lastTransitionTime": "2026-01-01T04:00:00Z"})
        };
        let mut object = json!({
            "metadata": {"namespace": "shop", "name": "orders", "generation": 2},
            "spec": {"replicas": 2, "connection": {"address": "t:7233"}, "template": {"spec": {"containers": []}},
                "rollout": {"steps": [{"percent": 5}, {"percent": 50}]}},
            "status": {
                "observedGeneration": 2, "targetBuildID": "1.2-b", "currentBuildID": "1.1-a",
                "rampingBuildID": "1.2-b", "rampPercent": 50,
                "versions": [
                    {"buildID": "1.0-z", "state": "Draining", "replicas": 2, "ready": 2, "runningWorkflows": 3,
                        "since": "2026-01-01T03:00:00Z"},
                    {"buildID": "1.1-a", "state": "Current", "replicas": 2, "ready": 2},
                    {"buildID": "1.2-b", "state": "Ramping", "replicas": 2, "ready": 1},
                ],
                "plan": {"id": "0123456789", "recipe": "WorkerRollout", "targetHash": "v1:b", "state": "Active",
                    "startedAt": "2026-01-01T04:00:00Z", "tasks": [
                    {"id": "0123456789-0", "type": "ramp", "state": "Complete"},
                    {"id": "0123456789-1", "type": "ramp", "state": "Running"},
                ]},
                "conditions": [condition("UpToDate", "Unknown", "Ramping", "at 50% for 3s of 60s")],
            },
        });
        json_patch::merge(&mut object, change);
        WorkersReport::of(&object, "2026-01-01T04:04:10Z".parse().unwrap())
    }

    fn drawn(report: &WorkersReport, rows: usize) -> String {
        let terminal = Terminal { width: 100, colours: false, unicode: true };
        let shown = Shown { all: false, rows, namespaces: false, typed: &Typed::PLAIN };
        let lines = report.tree("2026-01-01T04:04:10Z".parse().unwrap(), terminal, shown);
        lines.iter().map(|line| terminal.painted(line) + "\n").collect()
    }

    #[test]
    fn worker_rollout_is_drawn_with_share_plan_and_versions() {
        assert_eq!(
            drawn(&report(&json!({})), 20),
            "\
orders   Progressive   Ramping 50%   ━━━━━━━━━━──────────  step 2 of 2   4m10s
     1.1-a → 1.2-b (plan 0123456789: ramp ✓, ramp ◐)
     at 50% for 3s of 60s
├─ ◐ 1.2-b   Ramping   1/2 ready
├─ ● 1.1-a   Current   2/2 ready
└─ ○ 1.0-z   Draining   2/2 ready   3 workflows run  since 03:00:00
"
        );
        assert!(
            drawn(&report(&json!({})), 2).ends_with("2/2 ready\n└─ … and 1 more; list them with --all\n")
        );
    }

    #[test]
    fn up_to_date_worker_deployment_is_one_line() {
        let conditions = json!([
            {"type": "UpToDate", "status": "True", "reason": "Applied", "lastTransitionTime": "2026-01-01T04:00:00Z"},
            {"type": "Ready", "status": "True", "reason": "WorkersReady", "lastTransitionTime": "2026-01-01T04:00:00Z"},
        ]);
        let report = report(&json!({"status": {"conditions": conditions, "plan": {"state": "Complete"}}}));
        let terminal = Terminal { width: 100, colours: false, unicode: true };
        assert_eq!(
            terminal.painted(&report.healthy(true, 12)),
            "● shop/orders    Progressive   UpToDate   1.1-a is current, 1 version draining"
        );
    }

    #[test]
    fn hook_awaiting_approval_shows_the_approve_command() {
        let hooks = json!([{"hook": "release", "taskID": "0123456789-3", "state": "AwaitingApproval", "message": ""}]);
        let text = drawn(&report(&json!({"status": {"hooks": hooks}})), 20);
        assert!(
            text.contains(
                "hook release waits for a person: windlass approve wwd/orders -n shop --task 0123456789-3"
            ),
            "{text}"
        );
    }
}
