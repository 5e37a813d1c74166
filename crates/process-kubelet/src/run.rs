//! One run of a container: its process, its hooks and probes, and its termination.

use std::{fs, sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::LifecycleHandler;
use k8s_openapi::jiff::Timestamp;
use rustix::process::Signal;
use sha2::{Digest, Sha256};
use tokio::{
    process::{ChildStderr, ChildStdout},
    task::JoinSet,
    time::{Instant, sleep_until, timeout},
};

use crate::{
    action::Action,
    clock::{self, monotonic},
    context::log_of,
    images::hex,
    logs::{Log, last_words},
    probe::{Failed, Probes},
    processes::{Exit, Process},
    runner::Runner,
    setting::Setting,
    table::{Ended, State},
};

/// How long the remaining output of a process is waited for.
const LAST_OUTPUT: Duration = Duration::from_secs(2);
/// The longest termination message, in bytes, as in every kubelet.
const LAST_WORDS_BYTES: usize = 4096;
/// The least grace period that a preStop hook leaves.
const LEAST_GRACE: Duration = Duration::from_secs(2);

/// A run of a container.
pub(crate) struct Run<'a> {
    runner: &'a Runner,
    setting: &'a Setting,
    restart: i32,
    started: Timestamp,
    since: Instant,
}

/// Why a running container is terminated.
enum Cause {
    Stopped,
    Probe(Failed),
    Hook(String),
}

impl<'a> Run<'a> {
    pub(crate) fn new(runner: &'a Runner, setting: &'a Setting) -> Self {
        let restart = runner.context.table.record(runner.index).restarts;
        Self { runner, setting, restart, started: clock::now(), since: monotonic() }
    }

    /// Runs the container; returns its termination.
    pub(crate) async fn to_its_end(&self) -> Ended {
        let Runner { context, container, .. } = self.runner;
        let words = context.last_words(&container.name);
        let _ = fs::write(&words, "");
        let log = log_of(&context.folder, &container.name, self.restart);
        // Only the last run's log is kept.
        let _ = fs::remove_file(log_of(&context.folder, &container.name, self.restart - 2));
        let (mut process, id) = match self.start() {
            Ok(started) => started,
            Err(why) => return self.not_started(&why),
        };
        let mut keepers = JoinSet::new();
        match (context.shared.logs.create(&log), process.output.take()) {
            (Ok(log), Some((out, err))) => keep(&mut keepers, &log, out, err),
            (Err(error), _) => tracing::warn!(%error, "a container's log cannot be kept"),
            _ => {}
        }
        let events = self.runner.events();
        events.normal("Created", "Container created");
        events.normal("Started", "Container started");
        context.table.set(self.runner.index, |record| {
            record.state = State::Running { since: self.started };
            record.id.clone_from(&id);
        });
        let exit = self.until_it_ends(&process).await;
        let written = async { while keepers.join_next().await.is_some() {} };
        let _ = timeout(LAST_OUTPUT, written).await;
        keepers.shutdown().await;
        self.ended(exit, id, &log)
    }

    fn start(&self) -> Result<(Process, String), String> {
        let Runner { context, container, .. } = self.runner;
        let mut command = self.setting.command(&self.setting.words(container))?;
        let process = context.shared.processes.spawn(&mut command).map_err(|error| error.to_string())?;
        let name = format!("{}/{}/{}/{}", context.uid, container.name, self.restart, process.pid());
        Ok((process, format!("process://{}", hex(&Sha256::digest(name.as_bytes())))))
    }

    fn not_started(&self, why: &str) -> Ended {
        self.runner.events().warning("Failed", format!("Error: {why}"));
        Ended {
            code: 128,
            signal: None,
            reason: "StartError".to_owned(),
            message: format!("failed to start the container: {why}"),
            started: Some(self.started),
            finished: Some(clock::now()),
            id: String::new(),
        }
    }

    fn ended(&self, exit: Exit, id: String, log: &std::path::Path) -> Ended {
        let Runner { context, container, .. } = self.runner;
        let mut words = fs::read(context.last_words(&container.name)).unwrap_or_default();
        words.truncate(LAST_WORDS_BYTES);
        let mut message = String::from_utf8_lossy(&words).into_owned();
        let falls_back = container.termination_message_policy.as_deref() == Some("FallbackToLogsOnError");
        if message.is_empty() && falls_back && exit.code != 0 {
            message = last_words(log);
        }
        Ended {
            code: exit.code,
            signal: exit.signal,
            reason: if exit.code == 0 { "Completed" } else { "Error" }.to_owned(),
            message,
            started: Some(self.started),
            finished: Some(exit.at),
            id,
        }
    }

    async fn until_it_ends(&self, process: &Process) -> Exit {
        let probes = self.probes();
        let watched = async {
            match self.after_start().await {
                Ok(()) => Cause::Probe(probes.run().await),
                Err(why) => Cause::Hook(why),
            }
        };
        let cause = tokio::select! {
            biased;
            exit = process.ended() => return exit,
            () = self.runner.stopped() => Cause::Stopped,
            cause = watched => cause,
        };
        let name = &self.runner.container.name;
        let events = self.runner.events();
        let mut by = monotonic() + self.runner.context.view.borrow().grace();
        match cause {
            Cause::Stopped => events.normal("Killing", format!("Stopping container {name}")),
            Cause::Probe(Failed { probe, grace }) => {
                events.normal("Killing", format!("Container {name} failed {probe} probe, will be restarted"));
                by = grace.map_or(by, |grace| monotonic() + grace);
            }
            Cause::Hook(why) => {
                events.warning("FailedPostStartHook", format!("PostStartHook failed: {why}"));
                events.normal("Killing", "FailedPostStartHook");
            }
        }
        // A terminating container still reports its readiness.
        tokio::select! {
            exit = self.bring_to_its_end(process, by) => exit,
            never = probes.only_readiness() => match never {},
        }
    }

    fn probes(&self) -> Probes<'_> {
        let Runner { context, container, index, .. } = self.runner;
        Probes {
            container,
            setting: self.setting,
            processes: &context.shared.processes,
            table: &context.table,
            index: *index,
            events: self.runner.events(),
            since: self.since,
        }
    }

    async fn after_start(&self) -> Result<(), String> {
        let hooks = self.runner.container.lifecycle.as_ref();
        let Some(hook) = hooks.and_then(|hooks| hooks.post_start.as_ref()) else { return Ok(()) };
        // A postStart hook has no time-out: deleting the pod ends it.
        self.hook(hook, Duration::from_hours(24)).await
    }

    async fn hook(&self, hook: &LifecycleHandler, within: Duration) -> Result<(), String> {
        let action = if let Some(exec) = &hook.exec {
            Action::Exec(exec.command.clone().unwrap_or_default())
        } else if let Some(get) = &hook.http_get {
            Action::Http(get.clone())
        } else if let Some(sleep) = &hook.sleep {
            Action::Sleep(Duration::from_secs(sleep.seconds.max(0).cast_unsigned()))
        } else {
            Action::Unsupported("this hook")
        };
        action.run(self.setting, &self.runner.context.shared.processes, within).await
    }

    /// The preStop hook, SIGTERM to the group, and SIGKILL at `by`, or earlier if the deadline moves.
    async fn bring_to_its_end(&self, process: &Process, by: Instant) -> Exit {
        let hooks = self.runner.container.lifecycle.as_ref();
        if let Some(hook) = hooks.and_then(|hooks| hooks.pre_stop.as_ref()) {
            let left = by.duration_since(monotonic());
            tokio::select! {
                exit = process.ended() => return exit,
                () = self.until_time_is_up(by) => {}
                done = self.hook(hook, left) => if let Err(why) = done {
                    self.runner.events().warning("FailedPreStopHook", format!("PreStopHook failed: {why}"));
                },
            }
        }
        process.signal(Signal::TERM);
        let by = if hooks.is_some_and(|hooks| hooks.pre_stop.is_some()) {
            by.max(monotonic() + LEAST_GRACE)
        } else {
            by
        };
        tokio::select! {
            exit = process.ended() => return exit,
            () = self.until_time_is_up(by) => {}
        }
        process.signal(Signal::KILL);
        process.ended().await
    }

    /// Waits until `by`, or an earlier deadline from a stop.
    async fn until_time_is_up(&self, by: Instant) {
        let mut stop = self.runner.stop.clone();
        loop {
            let deadline = *stop.borrow_and_update();
            let by = deadline.map_or(by, |stop| stop.by.min(by));
            tokio::select! {
                () = sleep_until(by) => return,
                changed = stop.changed() => if changed.is_err() {
                    sleep_until(by).await;
                    return;
                },
            }
        }
    }
}

fn keep(
    keepers: &mut JoinSet<()>,
    log: &Arc<Log>,
    out: std::process::ChildStdout,
    err: std::process::ChildStderr,
) {
    if let Ok(out) = ChildStdout::from_std(out) {
        keepers.spawn(Arc::clone(log).keep(out, "stdout"));
    }
    if let Ok(err) = ChildStderr::from_std(err) {
        keepers.spawn(Arc::clone(log).keep(err, "stderr"));
    }
}
