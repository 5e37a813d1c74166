//! Evaluates the operator's writes in an audit log.

use std::collections::BTreeMap;

use windlass_harness::controlplane::{Audit, Entry};

/// The most kinds of requests that are printed.
const MOST: usize = 24;

/// Prints the number of requests of each kind.
pub fn print_by_kind(title: &str, audit: &Audit) {
    let mut kinds: BTreeMap<String, usize> = BTreeMap::new();
    for entry in audit.entries() {
        *kinds.entry(described(entry)).or_default() += 1;
    }
    println!("\n{title}: {}", audit.count());
    for (kind, count) in kinds {
        println!("  {count:>6}  {kind}");
    }
}

/// Prints the number of requests by client and kind, and the API server's total time for them, most expensive first.
pub fn print_by_cost(title: &str, audit: &Audit) {
    let mut kinds: BTreeMap<String, (usize, f64)> = BTreeMap::new();
    for entry in audit.entries().iter().filter(|e| e.verb != "watch") {
        let user = entry.user.username.rsplit(':').next().unwrap_or_default();
        let (count, took) = kinds.entry(format!("{user}: {}", described(entry))).or_default();
        *count += 1;
        *took += seconds(&entry.stage_timestamp) - seconds(&entry.request_received_timestamp);
    }
    let mut kinds: Vec<_> = kinds.into_iter().collect();
    kinds.sort_by(|(_, (_, one)), (_, (_, other))| other.total_cmp(one));
    let (requests, all) = kinds.iter().fold((0, 0.0), |(n, t), (_, (count, took))| (n + count, t + took));
    println!("{title}: {requests} requests, {:.0} ms in all", all * 1e3);
    for (kind, (count, took)) in kinds.iter().take(MOST) {
        #[allow(clippy::cast_precision_loss, reason = "counts are small")]
        let each = took * 1e3 / *count as f64;
        println!("  {count:>6}  {each:>6.2} ms each  {:>6.0} ms  {kind}", took * 1e3);
    }
}

/// Prints how often events were listed: each list scans all of them, uncached.
pub fn print_lists_of_events(audit: &Audit) {
    let lists = audit.entries().iter().filter(|e| e.verb == "list" && e.object_ref.resource == "events");
    println!("lists of events: {}", lists.count());
}

fn described(entry: &Entry) -> String {
    let object = &entry.object_ref;
    let part = if object.subresource.is_empty() { String::new() } else { format!("/{}", object.subresource) };
    let dry = if entry.is_dry_run() { " (dry run)" } else { "" };
    let code = if entry.succeeded() { String::new() } else { format!(" -> {}", entry.response_status.code) };
    format!("{} {}{part}{dry}{code}", entry.verb, object.resource)
}

/// The node of an entry, if it is one of the fleet `db`.
fn node(entry: &Entry) -> Option<String> {
    let object = &entry.object_ref;
    let name = match object.resource.as_str() {
        "statefulnodes" | "statefulsets" | "services" => object.name.clone(),
        "pods" => object.name.strip_suffix("-0")?.to_owned(),
        "events" => object.name.split('.').next()?.to_owned(),
        _ => return None,
    };
    name.strip_prefix("db-")
        .is_some_and(|ordinal| ordinal.bytes().all(|b| b.is_ascii_digit()))
        .then_some(name)
}

/// Prints the operator's writes per node, with events and the fleet's status separately.
pub fn print_per_node(audit: &Audit, nodes: u32) {
    let of = |wanted: &dyn Fn(&Entry) -> bool| {
        let mut counts: BTreeMap<String, usize> = BTreeMap::new();
        for entry in audit.entries().iter().filter(|e| wanted(e)) {
            if let Some(node) = node(entry) {
                *counts.entry(node).or_default() += 1;
            }
        }
        counts
    };
    let is_event = |e: &Entry| e.object_ref.resource == "events";
    print_spread("writes a node", &of(&|e| !is_event(e)), nodes);
    print_spread("of them StatefulNode (grant)", &of(&|e| is(e, "statefulnodes", "")), nodes);
    print_spread("of them StatefulNode status", &of(&|e| is(e, "statefulnodes", "status")), nodes);
    print_spread("of them StatefulSet", &of(&|e| is(e, "statefulsets", "")), nodes);
    print_spread("of them Service", &of(&|e| is(e, "services", "")), nodes);
    print_spread("of them pod deletes", &of(&|e| is(e, "pods", "")), nodes);
    print_spread("events a node", &of(&is_event), nodes);
}

fn is(entry: &Entry, resource: &str, subresource: &str) -> bool {
    entry.object_ref.resource == resource && entry.object_ref.subresource == subresource
}

fn print_spread(title: &str, counts: &BTreeMap<String, usize>, nodes: u32) {
    let total: usize = counts.values().sum();
    let (most, at) = counts.iter().map(|(name, n)| (*n, name.as_str())).max().unwrap_or_default();
    let least = if counts.len() < nodes as usize { 0 } else { counts.values().copied().min().unwrap_or(0) };
    #[allow(clippy::cast_precision_loss, reason = "counts are small")]
    let mean = total as f64 / f64::from(nodes);
    println!("  {title:<30} mean {mean:>5.2}   least {least}   most {most} ({at})   total {total}");
}

/// Prints how often the status of the fleet `db` was written, and the shortest interval.
pub fn print_fleet_status(audit: &Audit) {
    let of_fleet = |e: &&Entry| is(e, "nodedeployments", "status");
    let times: Vec<f64> =
        audit.entries().iter().filter(of_fleet).map(|e| seconds(&e.request_received_timestamp)).collect();
    let gaps: Vec<f64> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
    let took = times.last().zip(times.first()).map_or(0.0, |(last, first)| last - first);
    let shown: Vec<String> = gaps.iter().map(|gap| format!("{gap:.2}")).collect();
    println!(
        "  fleet status: {} writes in {took:.1} s; seconds between them: {}",
        times.len(),
        shown.join(" ")
    );
}

/// Seconds since the epoch of a time in RFC 3339.
fn seconds(time: &str) -> f64 {
    let parsed = chrono::DateTime::parse_from_rfc3339(time).expect("a time in the audit log");
    #[allow(clippy::cast_precision_loss, reason = "microseconds since 1970 fit")]
    let micros = parsed.timestamp_micros() as f64;
    micros / 1e6
}
