//! Counts the operator's requests, and injects the faults of a point. What cannot be done within a request is
//! signalled to the run.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::mpsc::UnboundedSender;
use tokio::time::Instant;
use windlass::clock::monotonic;
use windlass_sim::{After, Before, EventInfo, Failure, FaultPlan, RequestInfo, WatchFate};

use crate::catalogue::deeds::Deed;
use crate::catalogue::faults::{self, Entry, Fault, Over};
use crate::catalogue::platform::Platform;
use crate::catalogue::point::Point;

/// Forever, within a run.
const NEVER: Duration = Duration::from_hours(400 * 24);

/// How long a leader is disconnected: longer than its lease.
const DEAF: Duration = Duration::from_mins(1);

/// What the run has to do after a strike.
#[derive(Clone, Debug)]
pub enum Signal {
    /// Drop this operator and start another one.
    Restart(String),
    /// Start another operator in the place of this one, which is kept, paused, until its late write has landed.
    TakeOver(String, Duration),
    Jump(i64),
    Still(u64),
    Deed(Deed, u32),
    Platform(Platform),
}

/// The operator's requests since counting began.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    pub writes: u32,
    pub calls: u32,
    pub events: u32,
    /// The requests that hang forever, each in a task of its own.
    pub held: u32,
}

struct Pending {
    at: u32,
    entry: Entry,
    left: u32,
    /// The write that is struck, while it is under way.
    request: u64,
    /// The object that is struck, and until when.
    object: Option<(String, Instant)>,
    fired: bool,
}

struct State {
    armed: bool,
    counts: Counts,
    pending: Vec<Pending>,
    /// User agents of operators that are dead or paused.
    mute: BTreeSet<String>,
    /// Disconnected operators, and until when.
    deaf: BTreeMap<String, Instant>,
    lag_until: Option<Instant>,
    /// Events that were delayed, by watch and version, and whether 410 follows.
    held: BTreeSet<(u64, u64)>,
    signals: UnboundedSender<Signal>,
}

/// The cluster's fault plan, and the run's handle of it.
#[derive(Clone)]
pub struct Injector(Arc<Mutex<State>>);

impl Injector {
    pub fn new(point: &Point, signals: UnboundedSender<Signal>) -> Self {
        let pending = point.strikes.iter().map(|strike| {
            let entry = faults::named(&strike.fault);
            let left = if let Fault::Answer(_, times) = entry.fault { times } else { 1 };
            // The run handles faults that last from the start.
            let fired = matches!(entry.over, Over::Nodes | Over::Once) || strike.at == 0;
            Pending { at: strike.at, entry, left, request: 0, object: None, fired }
        });
        Self(Arc::new(Mutex::new(State {
            armed: false,
            counts: Counts::default(),
            pending: pending.collect(),
            mute: BTreeSet::new(),
            deaf: BTreeMap::new(),
            lag_until: None,
            held: BTreeSet::new(),
            signals,
        })))
    }

    fn with<T>(&self, f: impl FnOnce(&mut State) -> T) -> T {
        f(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Starts counting.
    pub fn arm(&self) {
        self.with(|s| s.armed = true);
    }

    /// True if it counts.
    pub fn is_armed(&self) -> bool {
        self.with(|s| s.armed)
    }

    /// True if a fault that has struck lasts.
    pub fn is_at_work(&self) -> bool {
        let now = monotonic();
        self.with(|s| {
            let struck = s.pending.iter().filter_map(|p| p.object.as_ref().map(|(_, until)| until));
            s.deaf.values().chain(&s.lag_until).chain(struck).any(|until| *until > now)
        })
    }

    pub fn counts(&self) -> Counts {
        self.with(|s| s.counts)
    }
}

fn is_operator(agent: &str) -> bool {
    agent.starts_with("windlass/")
}

impl State {
    fn strike_write(&mut self, request: &RequestInfo, index: usize) -> Before {
        let pending = &mut self.pending[index];
        pending.fired = true;
        let agent = request.user_agent.clone();
        match pending.entry.fault.clone() {
            Fault::Die { after: false } => {
                self.mute.insert(agent.clone());
                self.counts.held += 1;
                drop(self.signals.send(Signal::Restart(agent)));
                Before::Delay(NEVER)
            }
            Fault::Die { after: true }
            | Fault::BackInTime(_)
            | Fault::ReplyLost
            | Fault::Unanswered
            | Fault::Platform(..)
            | Fault::Person(_) => {
                pending.request = request.number;
                Before::Pass
            }
            Fault::Answer(failure, _) => {
                pending.left -= 1;
                pending.fired = pending.left == 0;
                // The following ones in a row are struck as well.
                pending.at += 1;
                Before::Fail(failure)
            }
            Fault::AnswerFor(failure, time) => {
                pending.object = Some((object_of(request), monotonic() + time));
                Before::Fail(failure)
            }
            Fault::Late(time) => Before::Delay(time),
            Fault::OldLeader(time) => {
                self.mute.insert(agent.clone());
                drop(self.signals.send(Signal::TakeOver(agent, time)));
                Before::Delay(time)
            }
            Fault::LostLease(time) => {
                self.deaf.insert(agent, monotonic() + DEAF);
                Before::Delay(time)
            }
            Fault::Jump(seconds) => {
                drop(self.signals.send(Signal::Jump(seconds)));
                Before::Pass
            }
            Fault::Still(seconds) => {
                drop(self.signals.send(Signal::Still(seconds)));
                Before::Pass
            }
            _ => Before::Pass,
        }
    }
}

fn object_of(request: &RequestInfo) -> String {
    format!("{} {}", request.resource, request.name)
}

impl FaultPlan for Injector {
    fn before(&mut self, request: &RequestInfo) -> Before {
        self.with(|s| {
            if !s.armed || !is_operator(&request.user_agent) {
                return Before::Pass;
            }
            if s.mute.contains(&request.user_agent) {
                // Watches restart all the time: each that hung forever would leave a task behind.
                let is_write = request.write_number > 0;
                s.counts.held += u32::from(is_write);
                return if is_write { Before::Delay(NEVER) } else { Before::Fail(Failure::Disconnect) };
            }
            if s.deaf.get(&request.user_agent).is_some_and(|until| monotonic() < *until) {
                return Before::Fail(Failure::Disconnect);
            }
            // Lease renewals are neither counted nor struck.
            if request.resource.starts_with("leases") {
                return Before::Pass;
            }
            let writes = request.write_number > 0;
            s.counts.calls += 1;
            s.counts.writes += u32::from(writes);
            let now = monotonic();
            let object = object_of(request);
            for pending in &s.pending {
                if let (Some((struck, until)), Fault::AnswerFor(failure, _)) =
                    (&pending.object, &pending.entry.fault)
                    && writes
                    && *struck == object
                    && now < *until
                {
                    return Before::Fail(failure.clone());
                }
            }
            let counts = s.counts;
            let index = s.pending.iter().position(|p| {
                !p.fired
                    && match p.entry.over {
                        Over::Writes => writes && p.at == counts.writes,
                        Over::Calls => p.at == counts.calls,
                        Over::Events | Over::Nodes | Over::Once => false,
                    }
            });
            match index {
                Some(index) => s.strike_write(request, index),
                None => Before::Pass,
            }
        })
    }

    fn after(&mut self, request: &RequestInfo, _code: u16) -> After {
        self.with(|s| {
            if request.number == 0 {
                return After::Pass;
            }
            let Some(pending) = s.pending.iter().find(|p| p.request == request.number) else {
                return After::Pass;
            };
            match &pending.entry.fault {
                Fault::Die { .. } => {
                    s.mute.insert(request.user_agent.clone());
                    drop(s.signals.send(Signal::Restart(request.user_agent.clone())));
                    After::Fail(Failure::Disconnect)
                }
                Fault::BackInTime(lag) => {
                    s.mute.insert(request.user_agent.clone());
                    s.lag_until = Some(monotonic() + *lag);
                    drop(s.signals.send(Signal::Restart(request.user_agent.clone())));
                    After::Fail(Failure::Disconnect)
                }
                Fault::ReplyLost => After::Fail(Failure::Disconnect),
                Fault::Person(deed) => {
                    drop(s.signals.send(Signal::Deed(*deed, pending.at)));
                    After::Pass
                }
                Fault::Platform(platform, _) => {
                    drop(s.signals.send(Signal::Platform(*platform)));
                    After::Pass
                }
                Fault::Unanswered => {
                    s.counts.held += 1;
                    After::Delay(NEVER)
                }
                _ => After::Pass,
            }
        })
    }

    fn event(&mut self, watch: &RequestInfo, event: &EventInfo<'_>) -> WatchFate {
        self.with(|s| {
            if !s.armed || !is_operator(&watch.user_agent) {
                return WatchFate::Show;
            }
            let now = monotonic();
            if let Some(until) = s.deaf.get(&watch.user_agent).filter(|until| now < **until) {
                return WatchFate::Later(*until - now);
            }
            let id = (watch.number, event.version);
            if s.held.remove(&id) {
                let silent = s.pending.iter().any(|p| matches!(p.entry.fault, Fault::Coalesce(_)));
                return if silent { WatchFate::Gone } else { WatchFate::Show };
            }
            if let Some(until) = s.lag_until.filter(|until| now < *until) {
                return WatchFate::Later(until - now);
            }
            s.counts.events += 1;
            let count = s.counts.events;
            let struck =
                s.pending.iter_mut().find(|p| !p.fired && p.entry.over == Over::Events && p.at == count);
            let Some(pending) = struck else { return WatchFate::Show };
            pending.fired = true;
            match pending.entry.fault {
                Fault::Lag(time) | Fault::Coalesce(time) => {
                    s.held.insert(id);
                    WatchFate::Later(time)
                }
                Fault::LagAll(time) => {
                    s.lag_until = Some(now + time);
                    s.held.insert(id);
                    WatchFate::Later(time)
                }
                Fault::Cut => WatchFate::Cut,
                Fault::Gone => WatchFate::Gone,
                Fault::Silent => WatchFate::Silent,
                _ => WatchFate::Show,
            }
        })
    }
}
