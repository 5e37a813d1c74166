//! Table columns, and the texts of their cells.

use chrono::{DateTime, Utc};
use serde_json::{Value, json};

/// A column definition of a table.
pub(super) fn column(name: &str, kind: &str, format: &str, priority: i64, description: &str) -> Value {
    json!({"name": name, "type": kind, "format": format, "description": description, "priority": priority})
}

pub(super) fn or(text: &str, other: &str) -> String {
    if text.is_empty() { other.to_owned() } else { text.to_owned() }
}

pub(super) fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

pub(super) fn number(value: &Value) -> i64 {
    value.as_i64().unwrap_or_default()
}

/// The age of a time, in `kubectl`'s format.
pub(super) fn since(time: &Value, now: DateTime<Utc>) -> String {
    match time.as_str().and_then(|time| time.parse::<DateTime<Utc>>().ok()) {
        Some(time) => human((now - time).num_seconds()),
        None => "<unknown>".to_owned(),
    }
}

/// A duration, in `kubectl`'s short format.
pub(super) fn human(seconds: i64) -> String {
    let (minutes, hours) = (seconds / 60, seconds / 3600);
    let pair = |major: i64, one: &str, minor: i64, other: &str| {
        if minor == 0 { format!("{major}{one}") } else { format!("{major}{one}{minor}{other}") }
    };
    match seconds {
        ..-1 => "<invalid>".to_owned(),
        -1 => "0s".to_owned(),
        0..120 => format!("{seconds}s"),
        120..600 => pair(minutes, "m", seconds % 60, "s"),
        600..10_800 => format!("{minutes}m"),
        10_800..28_800 => pair(hours, "h", minutes % 60, "m"),
        28_800..172_800 => format!("{hours}h"),
        172_800..691_200 => pair(hours / 24, "d", hours % 24, "h"),
        691_200..63_072_000 => format!("{}d", hours / 24),
        63_072_000..252_288_000 => pair(hours / 24 / 365, "y", hours / 24 % 365, "d"),
        _ => format!("{}y", hours / 24 / 365),
    }
}

/// The restarts of a container, and when it last restarted.
pub(super) fn restarts(count: i64, last: &Value, now: DateTime<Utc>) -> Value {
    if count == 0 || last.is_null() {
        return json!(count.to_string());
    }
    format!("{count} ({} ago)", since(last, now)).into()
}
