//! The table of faults: what each does, and what it is enumerated over.

use std::time::Duration;

use windlass_sim::Failure;

use crate::catalogue::deeds::{Deed, Illness};
use crate::catalogue::platform::{Platform, When};
use crate::catalogue::scenario::{Change, Scenario};

/// A fault.
#[derive(Clone, Debug)]
pub enum Fault {
    /// The operator dies, and another one starts.
    Die { after: bool },
    /// The operator dies after a write, and the watches of the next one lag.
    BackInTime(Duration),
    /// The write is applied and the connection breaks.
    ReplyLost,
    /// The server fails this many requests in a row.
    Answer(Failure, u32),
    /// The server fails every write to the same object for a while.
    AnswerFor(Failure, Duration),
    /// The request is delayed; the caller may have timed out by then.
    Late(Duration),
    /// The watch that is about to deliver an event lags.
    Lag(Duration),
    /// Every watch lags.
    LagAll(Duration),
    /// The watch's connection ends.
    Cut,
    /// The watch gets 410 Gone.
    Gone,
    /// The watch is silent for a while, then gets 410, so that changes meanwhile are coalesced.
    Coalesce(Duration),
    /// The operator is paused during a write, which lands after this time; another one has taken over.
    OldLeader(Duration),
    /// There are two replicas and a Lease. The leader loses its connection during a write, which lands after this
    /// time; a minute after that the connection is back.
    LostLease(Duration),
    /// The operator's clock jumps by this many seconds.
    Jump(i64),
    /// The operator's clock stands still for this many seconds.
    Still(u64),
    /// A person acts.
    Person(Deed),
    /// A node is ill from the start, for longer than the deadline.
    Ill(Illness),
    /// The platform acts.
    Platform(Platform, When),
    /// The watch that is about to deliver an event delivers nothing any more, and does not end.
    Silent,
    /// The request is carried out and never answered.
    Unanswered,
}

/// What a fault is enumerated over.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Over {
    /// The operator's writes.
    Writes,
    /// All its requests.
    Calls,
    /// The events of its watches.
    Events,
    /// The nodes.
    Nodes,
    /// One, from before the change.
    Once,
}

/// A line of the table.
#[derive(Clone, Debug)]
pub struct Entry {
    pub name: &'static str,
    pub fault: Fault,
    pub over: Over,
}

impl Entry {
    fn new(name: &'static str, over: Over, fault: Fault) -> Self {
        Self { name, fault, over }
    }

    /// Its number in `docs/dev/catalogue.md`: F1, F2 and so on.
    pub fn family(&self) -> &'static str {
        self.name.split_once('-').map_or(self.name, |(family, _)| family)
    }

    /// True if it makes sense in a scenario.
    pub fn fits(&self, scenario: &Scenario) -> bool {
        match &self.fault {
            Fault::Person(deed) => deed.fits(scenario),
            Fault::Ill(illness) => illness.fits(scenario),
            // A Lease that was not released keeps a new version waiting for longer than any run is observed.
            Fault::LostLease(_) => scenario.change != Change::Upgrade,
            Fault::Platform(_, when) => Platform::fits(*when, scenario),
            _ => true,
        }
    }
}

/// All faults.
pub fn table() -> Vec<Entry> {
    use Over::{Calls, Events, Nodes, Writes};
    let ms = Duration::from_millis;
    let s = Duration::from_secs;
    let answer = |failure: Failure| Fault::Answer(failure, 1);
    let denied = || Failure::Forbidden("denied by a policy".to_owned());
    let mut table = vec![
        Entry::new("F1-before", Writes, Fault::Die { after: false }),
        Entry::new("F1-after", Writes, Fault::Die { after: true }),
        Entry::new("F2-lost", Writes, Fault::ReplyLost),
        Entry::new("F3-lag-1", Events, Fault::Lag(ms(50))),
        Entry::new("F3-lag-5", Events, Fault::Lag(s(3))),
        Entry::new("F3-lag-all", Events, Fault::LagAll(s(40))),
        Entry::new("F3-restart", Writes, Fault::BackInTime(s(5))),
        Entry::new("F4-cut", Events, Fault::Cut),
        Entry::new("F4-gone", Events, Fault::Gone),
        Entry::new("F4-coalesced", Events, Fault::Coalesce(s(5))),
        Entry::new("F5-once", Writes, answer(Failure::Conflict)),
        Entry::new("F5-thrice", Writes, Fault::Answer(Failure::Conflict, 3)),
        Entry::new("F5-minute", Writes, Fault::AnswerFor(Failure::Conflict, s(60))),
        Entry::new("F6-429", Calls, answer(Failure::TooManyRequests(1))),
        Entry::new("F6-500", Calls, answer(Failure::Internal)),
        Entry::new("F6-503", Calls, answer(Failure::Unavailable)),
        Entry::new("F6-504", Calls, answer(Failure::ServerTimeout)),
        Entry::new("F6-403", Calls, answer(denied())),
        Entry::new("F6-413", Calls, answer(Failure::TooLarge)),
        Entry::new("F6-401", Calls, answer(Failure::Unauthorized)),
        Entry::new("F6-broken", Calls, answer(Failure::Disconnect)),
        Entry::new("F6-late", Calls, Fault::Late(s(12))),
        Entry::new("F6-403-minute", Writes, Fault::AnswerFor(denied(), s(60))),
        Entry::new("F6-503-minute", Writes, Fault::AnswerFor(Failure::Unavailable, s(60))),
        Entry::new("F8-soon", Writes, Fault::OldLeader(s(2))),
        Entry::new("F8-late", Writes, Fault::OldLeader(s(40))),
        Entry::new("F8-lease-soon", Writes, Fault::LostLease(s(2))),
        Entry::new("F8-lease-late", Writes, Fault::LostLease(s(25))),
        Entry::new("F9-forward", Writes, Fault::Jump(300)),
        Entry::new("F9-back", Writes, Fault::Jump(-3600)),
        // By less than a set lives after it has left service.
        Entry::new("F9-slew", Writes, Fault::Jump(-3)),
        Entry::new("F9-still", Writes, Fault::Still(120)),
    ];
    table.extend(Deed::all().into_iter().map(|(name, deed)| Entry::new(name, Writes, Fault::Person(deed))));
    for (name, platform, when) in Platform::all() {
        let over = if when == When::Within { Writes } else { Over::Once };
        table.push(Entry::new(name, over, Fault::Platform(platform, when)));
    }
    table.push(Entry::new("F16-silent", Events, Fault::Silent));
    table.push(Entry::new("F16-unanswered", Calls, Fault::Unanswered));
    table.extend(Illness::all().into_iter().map(|(name, ill)| Entry::new(name, Nodes, Fault::Ill(ill))));
    table
}

/// Name prefixes of faults that are not run by default, and why. They run if named.
pub const NOT_WALKED: [(&str, &str); 0] = [];

/// Points that fail and are not run by default, and why. They run if named.
pub const FAILING: [(&str, &str); 0] = [];

/// True if a point is run by default.
pub fn is_walked_point(line: &str) -> bool {
    !FAILING.iter().any(|(point, _)| *point == line)
}

/// True if a fault is run by default.
pub fn is_walked(name: &str) -> bool {
    !NOT_WALKED.iter().any(|(begins, _)| name.starts_with(begins))
}

/// The fault with this name.
pub fn named(name: &str) -> Entry {
    table().into_iter().find(|e| e.name == name).unwrap_or_else(|| panic!("no fault {name:?}"))
}
