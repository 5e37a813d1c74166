//! Maintenance windows: whether one is open, and when the next one opens. Stateless: everything follows from the spec and
//! the time, so that a clock that jumps cannot make a window open twice or never. Pure.

use chrono::{DateTime, SecondsFormat, TimeDelta, Utc};
use cronexpr::{Crontab, FallbackTimezoneOption, MakeTimestamp, ParseOptions};
use jiff::Timestamp;
use jiff::civil::DateTime as Local;
use jiff::tz::{TimeZone, TimeZoneDatabase};

use crate::api::Window;

/// When the next window opens.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Opening {
    /// The time; `None` if it is not within the next years.
    pub at: Option<DateTime<Utc>>,
    /// The local time and the time zone, for a message.
    local: String,
}

impl Opening {
    /// What is waited for, in a sentence that does not change until the window opens.
    #[must_use]
    pub fn sentence(&self) -> String {
        let Some(at) = self.at else { return "waiting for a window".to_owned() };
        format!("{}, {}", self.stem(), at.to_rfc3339_opts(SecondsFormat::Secs, true))
    }

    fn stem(&self) -> String {
        format!("waiting for the window that opens {}", self.local)
    }
}

/// A message that contains the [`Opening::sentence`] of this time, for a person who reads it now: with the time that is left.
#[must_use]
pub fn relative(message: &str, at: DateTime<Utc>, now: DateTime<Utc>) -> String {
    let absolute = format!(", {}", at.to_rfc3339_opts(SecondsFormat::Secs, true));
    message.replace(&absolute, &format!(", in {}", in_words((at - now).max(TimeDelta::zero()))))
}

/// A duration as hours and minutes, rounded up.
fn in_words(left: TimeDelta) -> String {
    let minutes = (left.num_seconds() + 59).div_euclid(60);
    let (days, hours, minutes) = (minutes / 1440, minutes / 60 % 24, minutes % 60);
    match (days, hours) {
        (0, 0) => format!("{minutes}m"),
        (0, _) => format!("{hours}h{minutes:02}m"),
        _ => format!("{days}d{hours}h"),
    }
}

/// The state of a list of windows at some time.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum State {
    /// There are no windows, or one of them is open; until when at least.
    Open(Option<DateTime<Utc>>),
    /// None is open.
    Closed(Opening),
}

/// The state of these windows. One that cannot be read never opens: nothing is updated at a time that nobody chose.
#[must_use]
pub fn state(windows: &[Window], now: DateTime<Utc>) -> State {
    if windows.is_empty() {
        return State::Open(None);
    }
    let closed = State::Closed(Opening { at: None, local: String::new() });
    let Ok(time) = Timestamp::from_second(now.timestamp()) else { return closed };
    let mut next: Option<(Timestamp, &Window)> = None;
    for window in windows {
        let Ok(parsed) = Parsed::of(window) else { continue };
        match parsed.first_that_ends_after(time) {
            // The nanoseconds of `now` are cut off, so that a window opens in its first second.
            Some(start) if start <= time => return State::Open(utc(parsed.end_of(start))),
            Some(start) if next.is_none_or(|(known, _)| start < known) => next = Some((start, window)),
            _ => {}
        }
    }
    let Some((start, window)) = next else { return closed };
    let zone = zone_name(window);
    let local = zone_of(window).map(|zone| zone.to_datetime(start)).unwrap_or_default();
    let local = format!("{:02}:{:02} {zone}", local.hour(), local.minute());
    State::Closed(Opening { at: utc(start), local })
}

/// Why a list of windows cannot be used, in a sentence; `None` if it can. `field`: the name of the list.
#[must_use]
pub fn why_not(field: &str, windows: &[Window]) -> Option<String> {
    let refused = |(index, window)| {
        let why = Parsed::of(window).err()?;
        Some(format!("{field}[{index}].{why}"))
    };
    windows.iter().enumerate().find_map(refused)
}

fn utc(time: Timestamp) -> Option<DateTime<Utc>> {
    DateTime::from_timestamp(time.as_second(), 0)
}

fn zone_name(window: &Window) -> &str {
    if window.time_zone.is_empty() { "UTC" } else { &window.time_zone }
}

fn zone_of(window: &Window) -> Option<TimeZone> {
    // The copy in the program: which zones exist must not depend on the machine.
    TimeZoneDatabase::bundled().get(zone_name(window)).ok()
}

struct Parsed {
    schedule: Crontab,
    zone: TimeZone,
    duration: jiff::SignedDuration,
}

impl Parsed {
    fn of(window: &Window) -> Result<Self, String> {
        let Window { schedule, duration, time_zone } = window;
        let schedule = parse_schedule(schedule).map_err(|why| format!("schedule: {schedule:?} {why}"))?;
        let duration = parse_duration(duration).ok_or_else(|| {
            format!(
                "duration: {duration:?} is not a duration above 0: use hours and minutes, such as 3h or 1h30m"
            )
        })?;
        let zone = zone_of(window).ok_or_else(|| {
            format!(
                "timeZone: {time_zone:?} is not known: use the name of a time zone, such as Europe/Berlin"
            )
        })?;
        Ok(Self { schedule, zone, duration })
    }

    /// The first start of a window whose end is after this time.
    fn first_that_ends_after(&self, time: Timestamp) -> Option<Timestamp> {
        // The schedule is about local times. They are read as if they were UTC, and converted below.
        let from = self.zone.to_datetime(time.checked_sub(self.duration).ok()?);
        // A clock that is set back repeats local times: none of them may be left out.
        let mut local = from.checked_sub(jiff::SignedDuration::from_hours(SET_BACK_HOURS)).ok()?;
        let mut found: Option<Timestamp> = None;
        loop {
            let after = TimeZone::UTC.to_timestamp(local).ok()?;
            let Ok(next) = self.schedule.find_next(MakeTimestamp(after)) else { return found };
            local = next.datetime();
            let start = self.instant(local)?;
            if self.end_of(start) <= time {
                continue;
            }
            // A later local time may be an earlier instant only where the clock is set forward.
            let is_settled = found.is_some_and(|found| {
                let margin = jiff::SignedDuration::from_hours(SET_BACK_HOURS);
                found.checked_add(margin).is_ok_and(|until| start > until)
            });
            if is_settled || found.is_some_and(|found| found <= time) {
                return found;
            }
            found = Some(found.map_or(start, |found| found.min(start)));
        }
    }

    /// The instant of a local time. One that the clock skips is moved behind the gap: no night is left out. Of two, it is the
    /// first: no night has two windows.
    fn instant(&self, local: Local) -> Option<Timestamp> {
        self.zone.to_ambiguous_timestamp(local).compatible().ok()
    }

    fn end_of(&self, start: Timestamp) -> Timestamp {
        start.checked_add(self.duration).unwrap_or(Timestamp::MAX)
    }
}

/// By how much a clock is set back at most.
const SET_BACK_HOURS: i64 = 3;

/// Reads a schedule. Its syntax is that of a CronJob, so what a CronJob rejects is rejected. The error completes a sentence
/// that begins with the schedule.
fn parse_schedule(text: &str) -> Result<Crontab, String> {
    const FIVE: &str = "has to have five fields: minute (0-59), hour (0-23), day of the month (1-31), month (1-12), day of \
        the week (0-6)";
    let text = match text.trim() {
        "@hourly" => "0 * * * *",
        "@daily" | "@midnight" => "0 0 * * *",
        "@weekly" => "0 0 * * 0",
        "@monthly" => "0 0 1 * *",
        "@yearly" | "@annually" => "0 0 1 1 *",
        text if text.contains('=') => return Err("has a time zone: set timeZone instead".to_owned()),
        text => text,
    };
    let fields: Vec<&str> = text.split_whitespace().collect();
    let [minute, hour, day, month, weekday] = fields[..] else { return Err(FIVE.to_owned()) };
    let day = of_days(day, "1-31")?;
    let weekday = of_days(weekday, "0-6")?;
    let is_known = |c: char| c.is_ascii_alphanumeric() || ",-*/".contains(c);
    let (minute, hour, month) = (minute.replace('?', "*"), hour.replace('?', "*"), month.replace('?', "*"));
    let text = format!("{minute} {hour} {day} {month} {weekday}");
    if !text.chars().all(|c| is_known(c) || c == ' ')
        || weekday.split([',', '-', '/']).any(|part| part == "7")
    {
        return Err(format!("is not the schedule of a CronJob: it {FIVE}; Sunday is 0 or SUN"));
    }
    let mut options = ParseOptions::default();
    options.fallback_timezone_option = FallbackTimezoneOption::UTC;
    let schedule = cronexpr::parse_crontab_with(&text, options)
        .map_err(|_| format!("is not the schedule of a CronJob: it {FIVE}, such as \"0 2 * * 1-5\""))?;
    // Four years from any time have each day, the last one of February as well.
    match schedule.find_next(MakeTimestamp(Timestamp::UNIX_EPOCH)) {
        Ok(_) => Ok(schedule),
        Err(_) => Err("never opens: no month of it has such a day".to_owned()),
    }
}

/// A field of days as the parser needs it. It takes any field with an asterisk for one that restricts nothing, while a
/// CronJob does so only without a step.
fn of_days(field: &str, all: &str) -> Result<String, String> {
    let field = field.replace('?', "*");
    if field.chars().any(|c| "LW#lw".contains(c)) && !has_only_names(&field) {
        return Err("has L, W or #, which a CronJob does not know".to_owned());
    }
    let last = &all[all.len() - 1..];
    let part = |part: &str| match part.split_once('/') {
        Some(("*", "1")) if !field.contains(',') => "*".to_owned(),
        Some(("*", step)) => format!("{all}/{step}"),
        // From this day on: for the parser, Sunday comes twice, as 0 and as 7.
        Some((first, step)) if all == "0-6" && !first.contains('-') => format!("{first}-{last}/{step}"),
        _ => part.to_owned(),
    };
    Ok(field.split(',').map(part).collect::<Vec<_>>().join(","))
}

/// True if all letters of a field are names of days.
fn has_only_names(field: &str) -> bool {
    const NAMES: [&str; 7] = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"];
    let is_word = |part: &&str| part.chars().any(|c| c.is_ascii_alphabetic());
    field
        .split([',', '-', '/', '#'])
        .filter(is_word)
        .all(|part| NAMES.contains(&part.to_uppercase().as_str()))
        && !field.contains('#')
}

/// Hours and minutes, each at most once.
fn parse_duration(text: &str) -> Option<jiff::SignedDuration> {
    let (hours, rest) = text.split_once('h').unwrap_or(("", text));
    let minutes = rest.strip_suffix('m').or(rest.is_empty().then_some(""))?;
    let number = |digits: &str| {
        let is_number = digits.len() <= 5 && digits.bytes().all(|b| b.is_ascii_digit());
        if digits.is_empty() { Some(0) } else { digits.parse::<i64>().ok().filter(|_| is_number) }
    };
    if (text.contains('h') && hours.is_empty()) || (rest.ends_with('m') && minutes.is_empty()) {
        return None;
    }
    let minutes = number(hours)? * 60 + number(minutes)?;
    (minutes > 0).then(|| jiff::SignedDuration::from_mins(minutes))
}

#[cfg(test)]
#[path = "window_tests.rs"]
mod tests;
