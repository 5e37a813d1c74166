use super::*;

const FIELD: &str = "updateStrategy.windows";

fn window(schedule: &str, duration: &str, time_zone: &str) -> Window {
    Window { schedule: schedule.to_owned(), duration: duration.to_owned(), time_zone: time_zone.to_owned() }
}

fn at(text: &str) -> DateTime<Utc> {
    text.parse().expect(text)
}

/// `open`, or the time at which the next window opens.
fn told(windows: &[Window], now: &str) -> String {
    match state(windows, at(now)) {
        State::Open(_) => "open".to_owned(),
        State::Closed(opening) => opening.sentence(),
    }
}

#[test]
fn windows_open_and_close_at_their_local_times() {
    let nights = [window("0 2 * * 1-5", "3h", "Europe/Berlin")];
    let waits = |local: &str, at: &str| format!("waiting for the window that opens {local}, {at}");
    // 2026-11-30 is a Monday; Berlin is at UTC+1 in winter.
    for (now, expected) in [
        ("2026-11-29T20:48:00Z", waits("02:00 Europe/Berlin", "2026-11-30T01:00:00Z")),
        ("2026-11-30T00:59:59Z", waits("02:00 Europe/Berlin", "2026-11-30T01:00:00Z")),
        ("2026-11-30T01:00:00Z", "open".to_owned()),
        ("2026-11-30T01:00:00.9Z", "open".to_owned()),
        ("2026-11-30T03:59:59Z", "open".to_owned()),
        ("2026-11-30T04:00:00Z", waits("02:00 Europe/Berlin", "2026-12-01T01:00:00Z")),
        // After the window of Friday comes that of Monday.
        ("2026-12-04T04:00:00Z", waits("02:00 Europe/Berlin", "2026-12-07T01:00:00Z")),
    ] {
        assert_eq!(told(&nights, now), expected, "{now}");
    }
    assert_eq!(told(&[], "2026-11-30T04:00:00Z"), "open", "without windows, nothing waits");
    let utc = [window("30 23 * * *", "1h", "")];
    assert_eq!(told(&utc, "2026-11-30T00:29:00Z"), "open", "a window may reach into the next day");
    assert_eq!(told(&utc, "2026-11-30T00:30:00Z"), waits("23:30 UTC", "2026-11-30T23:30:00Z"));
}

#[test]
fn any_open_window_counts_and_the_earliest_is_named() {
    let both = [window("0 4 * * *", "1h", ""), window("0 2 * * *", "1h", "Asia/Tokyo")];
    assert_eq!(told(&both, "2026-06-01T17:30:00Z"), "open", "02:30 in Tokyo");
    assert_eq!(told(&both, "2026-06-01T04:30:00Z"), "open");
    let expected = "waiting for the window that opens 02:00 Asia/Tokyo, 2026-06-01T17:00:00Z";
    assert_eq!(told(&both, "2026-06-01T05:00:00Z"), expected);
    // Windows that overlap are one.
    let overlap = [window("0 2 * * *", "2h", ""), window("0 3 * * *", "2h", "")];
    for now in ["2026-06-01T02:00:00Z", "2026-06-01T04:30:00Z"] {
        assert_eq!(told(&overlap, now), "open", "{now}");
    }
    // One that begins again before it ends never closes.
    assert_eq!(told(&[window("0 * * * *", "90m", "")], "2026-06-01T02:59:59Z"), "open");
}

#[test]
fn no_night_is_left_out_or_doubled_where_the_clock_is_changed() {
    // 2027-03-28: 02:00 becomes 03:00 in Berlin. The window of 02:30 opens at 03:30, for its whole duration.
    let half_past = [window("30 2 * * *", "1h", "Europe/Berlin")];
    let forward: Vec<String> = ["00:59:00", "01:29:00", "01:30:00", "02:29:00", "02:30:00"]
        .map(|time| told(&half_past, &format!("2027-03-28T{time}Z")))
        .into_iter()
        .map(|told| if told == "open" { told } else { told[told.len() - 20..].to_owned() })
        .collect();
    assert_eq!(
        forward,
        ["2027-03-28T01:30:00Z", "2027-03-28T01:30:00Z", "open", "open", "2027-03-29T00:30:00Z"]
    );
    // 2026-10-25: 03:00 becomes 02:00. 02:30 comes twice, and the window opens at the first, once.
    for (now, is_open) in [
        ("2026-10-25T00:29:59Z", false),
        ("2026-10-25T00:30:00Z", true),
        ("2026-10-25T01:29:59Z", true),
        ("2026-10-25T01:30:00Z", false),
        ("2026-10-25T02:30:00Z", false),
    ] {
        assert_eq!(told(&half_past, now) == "open", is_open, "{now}");
    }
    // A duration is elapsed time: three hours from 01:00 to 05:00.
    let long = [window("0 1 * * *", "3h", "Europe/Berlin")];
    assert_eq!(told(&long, "2027-03-28T02:59:00Z"), "open");
    assert_ne!(told(&long, "2027-03-28T03:00:00Z"), "open");
    // Lord Howe Island changes its clock by half an hour.
    assert_eq!(told(&[window("15 2 * * *", "1h", "Australia/Lord_Howe")], "2026-10-03T15:45:00Z"), "open");
}

#[test]
fn every_minute_agrees_with_a_scan_of_all_starts() {
    // Around both changes of the clock, by a scan that asks for each minute whether the schedule matches its local time.
    let windows =
        [window("*/20 1-3 * * *", "10m", "Europe/Berlin"), window("45 2 * * 0", "2h10m", "America/New_York")];
    for from in
        ["2027-03-27T20:00:00Z", "2026-10-24T20:00:00Z", "2026-10-31T20:00:00Z", "2027-03-13T20:00:00Z"]
    {
        let from = at(from);
        let starts: Vec<(DateTime<Utc>, TimeDelta)> = windows
            .iter()
            .flat_map(|window| {
                let parsed = Parsed::of(window).expect("valid");
                let zone = zone_of(window).expect("known");
                let begin = zone.to_datetime(Timestamp::from_second(from.timestamp()).unwrap());
                let minutes = (-600..1800).map(move |minute| begin + jiff::SignedDuration::from_mins(minute));
                let is_start = |local: &Local| {
                    let as_utc =
                        TimeZone::UTC.to_timestamp(local.round(jiff::Unit::Minute).unwrap()).unwrap();
                    parsed.schedule.matches(MakeTimestamp(as_utc)).unwrap()
                };
                let length = TimeDelta::seconds(parsed.duration.as_secs());
                let starts: Vec<_> = minutes.filter(is_start).collect();
                starts
                    .into_iter()
                    .filter_map(move |local| {
                        let start = zone.to_ambiguous_timestamp(local).compatible().ok()?;
                        Some((utc(start)?, length))
                    })
                    .collect::<Vec<_>>()
            })
            .collect();
        for minute in 0..1000 {
            let now = from + TimeDelta::minutes(minute);
            let is_open = starts.iter().any(|(start, length)| *start <= now && now < *start + *length);
            let next = starts.iter().map(|(start, _)| *start).filter(|start| *start > now).min();
            match state(&windows, now) {
                State::Open(_) => assert!(is_open, "{now}"),
                State::Closed(opening) => {
                    assert!(!is_open, "{now}");
                    assert_eq!(opening.at, next, "{now}");
                }
            }
        }
    }
}

#[test]
fn schedules_mean_what_they_mean_in_a_cronjob() {
    let opens = |schedule: &str, now: &str| match state(&[window(schedule, "1m", "")], at(now)) {
        State::Open(_) => "open".to_owned(),
        State::Closed(opening) => {
            opening.at.map_or("never".to_owned(), |at| at.format("%a %m-%d %H:%M").to_string())
        }
    };
    for (schedule, expected) in [
        ("@daily", "Tue 06-02 00:00"),
        ("@weekly", "Sun 06-07 00:00"),
        ("@monthly", "Wed 07-01 00:00"),
        ("@yearly", "Fri 01-01 00:00"),
        ("@hourly", "Mon 06-01 13:00"),
        ("  0   2 * *  1-5 ", "Tue 06-02 02:00"),
        ("0 2 ? * SAT,sun", "Sat 06-06 02:00"),
        ("6/20 * * * *", "Mon 06-01 12:06"),
        ("0 0 29 FEB *", "Tue 02-29 00:00"),
        // A day of the month or a day of the week, where both are restricted.
        ("0 0 13 * 5", "Fri 06-05 00:00"),
        // A field with a step is restricted, in spite of its asterisk.
        ("0 0 */10 * 3", "Wed 06-03 00:00"),
        ("0 0 13 * */6", "Sat 06-06 00:00"),
        // From Monday on every second day, which is not Sunday.
        ("0 0 * * 1/2", "Wed 06-03 00:00"),
        ("0 0 * * SAT/1", "Sat 06-06 00:00"),
        ("0 0 * * 6/2", "Sat 06-06 00:00"),
    ] {
        assert_eq!(opens(schedule, "2026-06-01T12:05:30Z"), expected, "{schedule}");
    }
}

#[test]
fn windows_that_cannot_be_used_are_refused_with_the_field_and_a_remedy() {
    let valid = || window("0 2 * * *", "3h", "Europe/Berlin");
    assert_eq!(why_not(FIELD, &[valid(), window("0 2 * * *", "1h30m", "")]), None);
    for (window, starts, contains) in [
        (
            window("0 0 31 4 *", "1h", ""),
            "updateStrategy.windows[0].schedule: \"0 0 31 4 *\" never opens",
            "no month",
        ),
        (window("0 0 30 2 *", "1h", ""), "updateStrategy.windows[0].schedule", "never opens"),
        (window("0 2 * *", "1h", ""), "updateStrategy.windows[0].schedule", "five fields"),
        (window("0 0 2 * * *", "1h", ""), "updateStrategy.windows[0].schedule", "five fields"),
        (window("61 2 * * *", "1h", ""), "updateStrategy.windows[0].schedule", "CronJob"),
        (window("0 2 * * 7", "1h", ""), "updateStrategy.windows[0].schedule", "Sunday is 0"),
        (window("0 2 L * *", "1h", ""), "updateStrategy.windows[0].schedule", "L, W or #"),
        (window("0 2 15W * *", "1h", ""), "updateStrategy.windows[0].schedule", "L, W or #"),
        (window("0 2 * * 5#3", "1h", ""), "updateStrategy.windows[0].schedule", "L, W or #"),
        (window("H 2 * * *", "1h", ""), "updateStrategy.windows[0].schedule", "CronJob"),
        (window("TZ=UTC 0 2 * * *", "1h", ""), "updateStrategy.windows[0].schedule", "set timeZone"),
        (window("@every 1h", "1h", ""), "updateStrategy.windows[0].schedule", "five fields"),
        (window("0 2 * * * Europe/Berlin", "1h", ""), "updateStrategy.windows[0].schedule", "five fields"),
        (window("0 2 * * *", "0h", ""), "updateStrategy.windows[0].duration", "above 0"),
        (window("0 2 * * *", "", ""), "updateStrategy.windows[0].duration", "such as 3h"),
        (window("0 2 * * *", "h", ""), "updateStrategy.windows[0].duration", "such as 3h"),
        (window("0 2 * * *", "90", ""), "updateStrategy.windows[0].duration", "such as 3h"),
        (window("0 2 * * *", "-1h", ""), "updateStrategy.windows[0].duration", "such as 3h"),
        (
            window("0 2 * * *", "3h", "Berlin"),
            "updateStrategy.windows[0].timeZone: \"Berlin\"",
            "Europe/Berlin",
        ),
        (window("0 2 * * *", "3h", "Local"), "updateStrategy.windows[0].timeZone", "Europe/Berlin"),
    ] {
        let why = why_not(FIELD, std::slice::from_ref(&window)).unwrap_or_default();
        assert!(why.starts_with(starts) && why.contains(contains), "{window:?}: {why}");
        let opening = state(&[window], at("2026-06-01T02:30:00Z"));
        assert!(
            matches!(opening, State::Closed(Opening { at: None, .. })),
            "nothing is updated at such a time"
        );
    }
    let second = why_not(FIELD, &[valid(), window("0 2 * *", "1h", "")]);
    assert!(second.is_some_and(|why| why.starts_with("updateStrategy.windows[1].")));
}

#[test]
fn time_that_is_left_takes_the_place_of_the_time_in_a_message() {
    let opens = at("2026-11-30T01:00:00Z");
    let message =
        "waiting for the window that opens 02:00 Europe/Berlin, 2026-11-30T01:00:00Z; not updated yet: db-1";
    for (now, expected) in [
        ("2026-11-29T19:48:00Z", "in 5h12m"),
        ("2026-11-29T19:48:20Z", "in 5h12m"),
        ("2026-11-30T00:59:30Z", "in 1m"),
        ("2026-11-27T19:00:00Z", "in 2d6h"),
        ("2026-11-30T01:00:05Z", "in 0m"),
    ] {
        let told = relative(message, opens, at(now));
        assert_eq!(
            told,
            format!(
                "waiting for the window that opens 02:00 Europe/Berlin, {expected}; not updated yet: db-1"
            )
        );
    }
    assert_eq!(relative("updating", opens, opens), "updating");
}
