//! What is exported, and the page that lists the metrics.

use super::*;

/// Metrics with every series.
fn all() -> Metrics {
    let metrics = Metrics::default();
    metrics.reconciled("StatefulNode", "done", Duration::from_millis(20));
    metrics.reconciled("StatefulNode", "done", Duration::from_millis(40));
    metrics.clone().reconciled("NodeDeployment", "persist", Duration::from_secs(2));
    metrics.queued("StatefulNode");
    metrics.taken("StatefulNode", Duration::from_millis(2));
    metrics.retried("NodeDeployment");
    metrics.queue("StatefulNode", Box::new(|| 3));
    metrics.queue("StatefulNode", Box::new(|| 4));
    metrics.count_request("patch", "statefulnodes/status".to_owned(), Some(409), Duration::from_millis(7));
    metrics.count_request("get", "pods".to_owned(), None, Duration::from_secs(10));
    metrics.cache_age("Pod", Duration::from_secs(9));
    metrics.task_ended("replace-pod", "Complete", Duration::from_secs(12));
    metrics.rollout_ended("Complete", Duration::from_mins(4));
    metrics
}

fn fleet(name: &str) -> FleetSample {
    FleetSample {
        namespace: "shop".to_owned(),
        name: name.to_owned(),
        strategy: "InPlace".to_owned(),
        set: "first".to_owned(),
        nodes: vec![("desired", 5), ("ready", 4)],
        up_to_date: false,
        stalled: true,
        reason: "Stalled".to_owned(),
        rollout: Some((1_000.5, 2_000.0)),
        waiting: true,
        held: Some(false),
        limits_not_applied: vec!["TopologyKnown"],
    }
}

#[track_caller]
fn assert_has(text: &str, line: &str) {
    assert!(text.lines().any(|known| known == line), "{line} is not in\n{text}");
}

#[test]
fn operations_are_counted_by_kind_and_outcome_and_timed() {
    let text = all().text(true, &[]);
    for line in [
        "windlass_reconcile_total{kind=\"StatefulNode\",outcome=\"done\"} 2",
        "windlass_reconcile_total{kind=\"NodeDeployment\",outcome=\"persist\"} 1",
        "windlass_reconcile_errors_total{kind=\"NodeDeployment\"} 1",
        "windlass_reconcile_errors_total{kind=\"StatefulNode\"} 0",
        "windlass_reconcile_duration_seconds_count{kind=\"StatefulNode\"} 2",
        "windlass_reconcile_duration_seconds_bucket{le=\"0.03\",kind=\"StatefulNode\"} 1",
        "windlass_workqueue_depth{name=\"statefulnode\"} 7",
        "windlass_workqueue_adds_total{name=\"statefulnode\"} 1",
        "windlass_workqueue_queue_duration_seconds_sum{name=\"statefulnode\"} 0.002",
        "windlass_workqueue_retries_total{name=\"nodedeployment\"} 1",
        "windlass_api_requests_total{verb=\"patch\",resource=\"statefulnodes/status\",code=\"409\"} 1",
        "windlass_api_requests_total{verb=\"get\",resource=\"pods\",code=\"<none>\"} 1",
        "windlass_api_request_duration_seconds_count{verb=\"get\",resource=\"pods\"} 1",
        "windlass_cache_age_seconds{kind=\"Pod\"} 9.0",
        "windlass_task_duration_seconds_sum{type=\"replace-pod\",outcome=\"Complete\"} 12.0",
        "windlass_rollout_duration_seconds_sum{outcome=\"Complete\"} 240.0",
        "windlass_leader 1",
        concat!("windlass_build_info{version=\"", env!("CARGO_PKG_VERSION"), "\"} 1"),
    ] {
        assert_has(&text, line);
    }
    assert_has(&all().text(false, &[]), "windlass_leader 0");
}

#[test]
fn fleet_metrics_exist_while_the_fleet_exists() {
    let metrics = Metrics::default();
    let text = metrics.text(true, &[fleet("db"), fleet("web")]);
    for line in [
        "windlass_fleet_info{namespace=\"shop\",name=\"db\",strategy=\"InPlace\",set=\"first\"} 1",
        "windlass_fleet_nodes{namespace=\"shop\",name=\"db\",state=\"ready\"} 4",
        "windlass_fleet_up_to_date{namespace=\"shop\",name=\"db\"} 0",
        "windlass_fleet_up_to_date_reason{namespace=\"shop\",name=\"db\",reason=\"Stalled\"} 1",
        "windlass_fleet_stalled{namespace=\"shop\",name=\"db\"} 1",
        "windlass_fleet_held{namespace=\"shop\",name=\"db\"} 0",
        "windlass_fleet_limit_not_applied{namespace=\"shop\",name=\"db\",condition=\"TopologyKnown\"} 1",
        "windlass_fleet_rollout_started_timestamp_seconds{namespace=\"shop\",name=\"db\"} 1000.5",
        "windlass_fleet_rollout_last_progress_timestamp_seconds{namespace=\"shop\",name=\"web\"} 2000.0",
    ] {
        assert_has(&text, line);
    }
    let settled = FleetSample { rollout: None, ..fleet("db") };
    let text = metrics.text(true, &[settled]);
    assert!(!text.contains("web") && !text.contains("rollout_started_timestamp_seconds{"), "{text}");
    let none = metrics.text(false, &[]);
    assert!(!none.contains("shop"), "{none}");
}

/// The table of docs/reference/metrics.md, from the registered metrics: name, type, labels, help.
fn table() -> String {
    let text = all().text(true, &[fleet("db")]);
    let mut rows = String::from("| metric | type | what it says |\n|---|---|---|\n");
    for line in text.lines() {
        let Some((name, help)) = line.strip_prefix("# HELP ").and_then(|told| told.split_once(' ')) else {
            continue;
        };
        let type_line = text.lines().find_map(|l| l.strip_prefix(&format!("# TYPE {name} ")));
        let sample =
            text.lines().find(|l| l.starts_with(name)).unwrap_or_else(|| panic!("{name} is never told of"));
        // OpenMetrics names the family of a counter without the suffix of its samples.
        let name = if type_line == Some("counter") { format!("{name}_total") } else { name.to_owned() };
        let labels: Vec<&str> = sample
            .split_once('{')
            .map(|(_, rest)| rest.split('}').next().unwrap_or_default())
            .into_iter()
            .flat_map(|labels| labels.split("\","))
            .filter_map(|label| label.split('=').next())
            .filter(|label| *label != "le")
            .collect();
        let labels = if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
        rows.extend([format!("| `{name}{labels}` | {} | {help} |\n", type_line.unwrap_or("untyped"))]);
    }
    rows
}

#[test]
fn metrics_page_lists_all_metrics() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/reference/metrics.md");
    let (begin, end) = ("<!-- generated: UPDATE_DOCS=1 cargo test --lib metrics -->\n", "<!-- end -->\n");
    let page = std::fs::read_to_string(path).unwrap();
    let (before, rest) = page.split_once(begin).expect("where the table begins");
    let (known, after) = rest.split_once(end).expect("where it ends");
    let table = table();
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(path, format!("{before}{begin}{table}{end}{after}")).unwrap();
        return;
    }
    assert!(
        known == table,
        "docs/reference/metrics.md is out of date: UPDATE_DOCS=1 cargo test --lib metrics"
    );
}
