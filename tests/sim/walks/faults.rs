//! The faults of the catalogue, between the steps of a walk: each strikes soon after it was drawn. Lasting ones end
//! with the last spec.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::{Instant, sleep, sleep_until};
use windlass::clock::monotonic;
use windlass_sim::{After, Before, EventInfo, Failure, FaultPlan, Random, RequestInfo, WatchFate};

use crate::catalogue::deeds::{Deed, Illness};
use crate::catalogue::faults::{self, Entry, Fault, Over};
use crate::catalogue::injector::{Injector, Signal};
use crate::catalogue::platform::When;
use crate::catalogue::point::{Point, Strike};
use crate::catalogue::world::{Running, World};
use crate::walks::schema::one;
use crate::walks::steps::Done;

/// Forever, within a walk.
const NEVER: Duration = Duration::from_hours(400 * 24);
/// Longer than any fault lasts by itself.
const LASTS: Duration = Duration::from_mins(4);
/// The most operators of a walk: their names are compared as strings.
const OPERATORS: u32 = 8;

/// The drawn faults, asked in turn.
#[derive(Clone, Default)]
struct Plan(Arc<Mutex<Struck>>);

#[derive(Default)]
struct Struck {
    injectors: Vec<Injector>,
    /// Operators that are dead or paused.
    dead: BTreeSet<String>,
}

impl Plan {
    fn with<T>(&self, f: impl FnOnce(&mut Struck) -> T) -> T {
        f(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl FaultPlan for Plan {
    fn before(&mut self, request: &RequestInfo) -> Before {
        self.with(|s| {
            if s.dead.contains(&request.user_agent) {
                let is_write = request.write_number > 0;
                return if is_write { Before::Delay(NEVER) } else { Before::Fail(Failure::Disconnect) };
            }
            let fates = s.injectors.iter_mut().map(|injector| injector.before(request));
            fates.fold(Before::Pass, |first, next| if first == Before::Pass { next } else { first })
        })
    }

    fn after(&mut self, request: &RequestInfo, code: u16) -> After {
        self.with(|s| {
            let fates = s.injectors.iter_mut().map(|injector| injector.after(request, code));
            fates.fold(After::Pass, |first, next| if first == After::Pass { next } else { first })
        })
    }

    fn event(&mut self, watch: &RequestInfo, event: &EventInfo<'_>) -> WatchFate {
        self.with(|s| {
            let mut fates = s.injectors.iter_mut().map(|injector| injector.event(watch, event));
            fates.find(|fate| *fate != WatchFate::Show).unwrap_or(WatchFate::Show)
        })
    }
}

/// The faults of a walk, and its operator.
pub struct Faults {
    pub operator: Running,
    plan: Plan,
    signals: UnboundedReceiver<Signal>,
    send: UnboundedSender<Signal>,
    old: Vec<(Running, Instant)>,
    still_until: Option<Instant>,
    ill: Vec<Illness>,
    operators: u32,
    /// The names of the drawn faults.
    pub drawn: Vec<String>,
}

/// True if walks draw this fault: actions of people have steps of their own.
fn is_walked(entry: &Entry) -> bool {
    match &entry.fault {
        Fault::LostLease(_) => false,
        Fault::Person(deed) => entry.family() == "F12" || *deed == Deed::Drain,
        Fault::Platform(_, when) => *when == When::Within,
        _ => true,
    }
}

impl Faults {
    /// A first operator without faults.
    pub fn new(world: &mut World) -> Self {
        let (send, signals) = unbounded_channel();
        let plan = Plan::default();
        world.cluster.set_faults(Box::new(plan.clone()));
        let operator = world.start_operator();
        Self {
            operator,
            plan,
            signals,
            send,
            old: Vec::new(),
            still_until: None,
            ill: Vec::new(),
            operators: 1,
            drawn: Vec::new(),
        }
    }

    /// Draws a fault, which strikes now or soon.
    pub async fn strike(&mut self, world: &World, random: &mut Random) -> Done {
        let table = faults::table();
        let families: BTreeSet<&str> = table.iter().filter(|e| is_walked(e)).map(Entry::family).collect();
        let families: Vec<&str> = families.into_iter().collect();
        let family = *one(&families, random);
        let of_family: Vec<&Entry> = table.iter().filter(|e| is_walked(e) && e.family() == family).collect();
        let entry = *one(&of_family, random);
        let most = if entry.over == Over::Writes { 6 } else { 30 };
        let at = random.between(1, most) as u32;
        self.drawn.push(entry.name.to_owned());
        match &entry.fault {
            Fault::Person(deed) => deed.perform(world, at).await,
            Fault::Platform(platform, _) => platform.perform(world),
            Fault::Ill(illness) => {
                let names = world.nodes_about();
                illness.begin(world, &names[at as usize % names.len()]).await;
                self.ill.push(*illness);
            }
            Fault::Die { .. } | Fault::BackInTime(_) | Fault::OldLeader(_) if self.operators >= OPERATORS => {
                return Done::nothing(format!("{} no more", entry.name));
            }
            _ => {
                let strikes = vec![Strike { fault: entry.name.to_owned(), at }];
                let point = Point { scenario: String::new(), strikes, seed: 1 };
                let injector = Injector::new(&point, self.send.clone());
                injector.arm();
                self.plan.with(|s| s.injectors.push(injector));
            }
        }
        Done::nothing(format!("{} {at}", entry.name))
    }

    /// Lets time pass, and handles the faults' signals.
    pub async fn wait(&mut self, world: &mut World, time: Duration) {
        let until = monotonic() + time;
        loop {
            tokio::select! {
                biased;
                Some(signal) = self.signals.recv() => self.follow(world, signal),
                () = sleep_until(until) => break,
            }
        }
        self.end_what_is_due(world);
    }

    fn end_what_is_due(&mut self, world: &World) {
        let now = monotonic();
        if self.still_until.is_some_and(|until| until <= now) {
            self.still_until = None;
            world.clock.go_on();
        }
        for (old, _) in self.old.extract_if(.., |(_, until)| *until <= now) {
            old.task.abort();
        }
    }

    fn follow(&mut self, world: &mut World, signal: Signal) {
        match signal {
            Signal::Restart(agent) => {
                if agent == self.operator.agent {
                    self.replace(world).task.abort();
                }
            }
            Signal::TakeOver(agent, time) => {
                if agent == self.operator.agent {
                    let old = self.replace(world);
                    self.old.push((old, monotonic() + time + Duration::from_secs(1)));
                }
            }
            Signal::Jump(seconds) => world.clock.jump(chrono::Duration::seconds(seconds)),
            Signal::Still(seconds) => {
                world.clock.stop();
                self.still_until = Some(monotonic() + Duration::from_secs(seconds));
            }
            Signal::Deed(..) | Signal::Platform(_) => {}
        }
    }

    fn replace(&mut self, world: &mut World) -> Running {
        self.operators += 1;
        let next = world.start_operator();
        self.plan.with(|s| s.dead.insert(self.operator.agent.clone()));
        std::mem::replace(&mut self.operator, next)
    }

    /// Ends lasting faults, and drops those that have not struck.
    pub async fn end(&mut self, world: &mut World) {
        for illness in std::mem::take(&mut self.ill) {
            illness.end(world).await;
        }
        let until = monotonic() + LASTS;
        let at_work = |plan: &Plan| plan.with(|s| s.injectors.iter().any(Injector::is_at_work));
        while monotonic() < until
            && (at_work(&self.plan) || self.still_until.is_some() || !self.old.is_empty())
        {
            self.wait(world, Duration::from_secs(1)).await;
        }
        self.plan.with(|s| s.injectors.clear());
        sleep(Duration::from_millis(1)).await;
        self.wait(world, Duration::from_secs(1)).await;
    }

    /// True if no earlier operator may still write, and the clock runs.
    pub fn is_over(&self) -> bool {
        self.old.is_empty() && self.still_until.is_none()
    }

    /// True if the clock was set back by an hour, which delays what it timed.
    pub fn set_back(&self) -> bool {
        self.drawn.iter().any(|fault| fault == "F9-back")
    }

    /// True if a status was written by another version or lost a field, or if a late write may have created a node of
    /// a set that was given up.
    pub fn may_leave_doubt(&self) -> bool {
        let leaves = ["F6-late", "F8-", "F12-", "F16-lost"];
        self.drawn.iter().any(|fault| leaves.iter().any(|family| fault.starts_with(family)))
    }

    /// Stops the operators.
    pub fn stop(&self) {
        self.operator.task.abort();
        for (old, _) in &self.old {
            old.task.abort();
        }
    }
}
