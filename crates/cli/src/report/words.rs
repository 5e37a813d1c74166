//! Times and images in readable form.

use chrono::{DateTime, TimeDelta, Utc};

/// A duration in its two largest units: `12s`, `3m02s`, `2h05m`, `3d04h`.
#[must_use]
pub fn age(passed: TimeDelta) -> String {
    let seconds = passed.num_seconds().max(0);
    let two = |large: i64, unit: &str, small: i64, part: &str| format!("{large}{unit}{small:02}{part}");
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3_600 => two(seconds / 60, "m", seconds % 60, "s"),
        3_600..86_400 => two(seconds / 3_600, "h", seconds % 3_600 / 60, "m"),
        _ => two(seconds / 86_400, "d", seconds % 86_400 / 3_600, "h"),
    }
}

/// The time of day in UTC, with the date unless it is today.
#[must_use]
pub fn clock_time(at: DateTime<Utc>, now: DateTime<Utc>) -> String {
    let form = if at.date_naive() == now.date_naive() { "%H:%M:%S" } else { "%Y-%m-%d %H:%M:%S" };
    at.format(form).to_string()
}

/// The tag of an image, or the first digits of its digest.
#[must_use]
pub fn tag(image: &str) -> String {
    let (name, digest) = image.split_once('@').map_or((image, None), |(name, digest)| (name, Some(digest)));
    let last = name.rsplit('/').next().unwrap_or(name);
    match (last.split_once(':'), digest) {
        (Some((_, tag)), _) => tag.to_owned(),
        (None, Some(digest)) => {
            digest.split_once(':').map_or(digest, |(_, hex)| hex).chars().take(7).collect()
        }
        (None, None) => last.to_owned(),
    }
}
