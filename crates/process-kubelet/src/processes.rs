//! The processes of containers: each leads a process group, which is killed with it, and none outlives the kubelet.
//!
//! Each is recorded in a file named by its process ID that contains its start time, so that a later process with the
//! same ID is not mistaken for it. A watchdog shell holds the other end of a pipe and kills the recorded groups when
//! the kubelet is gone for any reason; leftovers are killed at the next start in the same folder.

use std::{
    collections::HashSet,
    fs,
    io::{self, Write as _},
    os::unix::process::{CommandExt, ExitStatusExt},
    path::{Path, PathBuf},
    process::{Child, ChildStderr, ChildStdout, Command, Stdio},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use k8s_openapi::jiff::Timestamp;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use tokio::sync::watch;

use crate::{Error, clock};

/// Waits until its input closes, then kills the process groups recorded in the folder `$0`.
const WATCHDOG: &str = r#"
while read -r line; do :; done
for record in "$0"/*; do
  pid=${record##*/}
  read -r began < "$record" || continue
  set -- $(sed 's/.*) //' "/proc/$pid/stat" 2>/dev/null)
  [ "${20}" = "$began" ] && kill -s KILL -- "-$pid"
done
"#;

/// The exit of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Exit {
    /// As in a shell: 128 plus the signal's number, if a signal ended it.
    pub(crate) code: i32,
    pub(crate) signal: Option<i32>,
    pub(crate) at: Timestamp,
}

/// A running process.
pub(crate) struct Process {
    pid: Pid,
    processes: Arc<Processes>,
    exit: watch::Receiver<Option<Exit>>,
    /// Its output pipes, until taken.
    pub(crate) output: Option<(ChildStdout, ChildStderr)>,
}

#[derive(Default)]
struct Alive {
    pids: HashSet<Pid>,
    /// True once no process may be started.
    closed: bool,
}

/// All processes of a kubelet.
pub(crate) struct Processes {
    folder: PathBuf,
    /// The processes that are not reaped: their IDs cannot be reused.
    alive: Mutex<Alive>,
    watchdog: Mutex<Option<Child>>,
}

impl Processes {
    /// Kills leftovers of an earlier kubelet in this folder, and starts the watchdog.
    pub(crate) fn open(folder: &Path) -> Result<Arc<Self>, Error> {
        fs::create_dir_all(folder).map_err(Error::io("the folder of process records cannot be made"))?;
        let left = end_leftovers(folder).map_err(Error::io("the process records cannot be read"))?;
        if left > 0 {
            tracing::info!(left, "killed processes that an earlier kubelet left");
        }
        let watchdog = Command::new("sh")
            .args(["-c", WATCHDOG])
            .arg(folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // Shields it from a Ctrl-C in the terminal.
            .process_group(0)
            .spawn()
            .map_err(Error::io("the shell that watches over processes cannot be started"))?;
        let watchdog = Mutex::new(Some(watchdog));
        Ok(Arc::new(Self { folder: folder.to_owned(), alive: Mutex::default(), watchdog }))
    }

    /// Starts a process in a group of its own.
    pub(crate) fn spawn(self: &Arc<Self>, command: &mut Command) -> io::Result<Process> {
        command.process_group(0).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut alive = self.alive();
        if alive.closed {
            return Err(io::Error::other("the kubelet has ended"));
        }
        let mut child = command.spawn()?;
        let pid = Pid::from_child(&child);
        alive.pids.insert(pid);
        drop(alive);
        let recorded = self.record(pid);
        let output = child.stdout.take().zip(child.stderr.take());
        let (tell, exit) = watch::channel(None);
        let processes = Arc::clone(self);
        // Not a blocking task: it would delay the runtime's shutdown.
        std::thread::spawn(move || {
            let ended = processes.await_end(&mut child);
            tell.send_replace(Some(ended));
        });
        let process = Process { pid, processes: Arc::clone(self), exit, output };
        if let Err(error) = recorded {
            process.signal(Signal::KILL);
            return Err(error);
        }
        Ok(process)
    }

    fn await_end(&self, child: &mut Child) -> Exit {
        let pid = Pid::from_child(child);
        while let Err(error) = waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT) {
            if error != rustix::io::Errno::INTR {
                break;
            }
        }
        let at = clock::now();
        let mut alive = self.alive();
        // As in a container, all processes end with the first. Until it is reaped its ID belongs to the group.
        let _ = kill_process_group(pid, Signal::KILL);
        let status = child.wait().ok();
        alive.pids.remove(&pid);
        drop(alive);
        let _ = fs::remove_file(self.folder.join(pid.to_string()));
        let signal = status.and_then(|status| status.signal());
        let code = status.and_then(|status| status.code());
        Exit { code: code.or(signal.map(|signal| 128 + signal)).unwrap_or(255), signal, at }
    }

    fn record(&self, pid: Pid) -> io::Result<()> {
        // A process that has already ended has no start time, and needs no record.
        let Some(began) = start_time(pid) else { return Ok(()) };
        fs::write(self.folder.join(pid.to_string()), format!("{began}\n"))
    }

    fn alive(&self) -> MutexGuard<'_, Alive> {
        self.alive.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Kills all processes and the watchdog; no more can be started.
    pub(crate) fn close(&self) {
        let mut alive = self.alive();
        alive.closed = true;
        for pid in &alive.pids {
            let _ = kill_process_group(*pid, Signal::KILL);
        }
        drop(alive);
        let watchdog = self.watchdog.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(mut watchdog) = watchdog {
            drop(watchdog.stdin.take().map(|mut pipe| pipe.flush()));
            let _ = watchdog.wait();
        }
    }
}

impl Process {
    pub(crate) fn pid(&self) -> i32 {
        self.pid.as_raw_pid()
    }

    /// Signals the group, unless it has ended.
    pub(crate) fn signal(&self, signal: Signal) {
        if self.processes.alive().pids.contains(&self.pid) {
            let _ = kill_process_group(self.pid, signal);
        }
    }

    /// Waits for the exit; cancel safe.
    pub(crate) async fn ended(&self) -> Exit {
        let mut exit = self.exit.clone();
        let exit_of = exit.wait_for(Option::is_some).await.ok().and_then(|exit| *exit);
        exit_of.unwrap_or_else(|| Exit { code: 255, signal: None, at: clock::now() })
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.signal(Signal::KILL);
    }
}

/// Field 22 of `/proc/<pid>/stat`: the start time in clock ticks since boot. `None` without such a process.
fn start_time(pid: Pid) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The second field is the program's name in parentheses, and may contain any characters.
    let (_, after) = stat.rsplit_once(") ")?;
    after.split_whitespace().nth(19).map(str::to_owned)
}

fn end_leftovers(folder: &Path) -> io::Result<usize> {
    let mut ended = 0;
    for record in fs::read_dir(folder)? {
        let path = record?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let pid = name.parse().ok().and_then(Pid::from_raw);
        let began = fs::read_to_string(&path)?;
        if let Some(pid) = pid
            && start_time(pid).is_some_and(|time| time == began.trim())
            && kill_process_group(pid, Signal::KILL).is_ok()
        {
            ended += 1;
        }
        fs::remove_file(&path)?;
    }
    Ok(ended)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("process-kubelet-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        folder
    }

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    async fn until_gone(pid: i32) {
        let runs = || {
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok();
            stat.is_some_and(|stat| !stat.contains(") Z "))
        };
        for _ in 0..500 {
            if !runs() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("process {pid} still runs");
    }

    #[tokio::test]
    async fn exit_code_and_signal_are_distinguished() {
        let folder = folder("exits");
        let processes = Processes::open(&folder).unwrap();
        let code = processes.spawn(&mut shell("exit 3")).unwrap().ended().await;
        assert_eq!((code.code, code.signal), (3, None));
        let killed = processes.spawn(&mut shell("kill -TERM $$; sleep 60")).unwrap().ended().await;
        assert_eq!((killed.code, killed.signal), (143, Some(15)));
        processes.close();
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 0, "no record is left");
        fs::remove_dir_all(folder).unwrap();
    }

    #[tokio::test]
    async fn child_processes_end_with_their_parent() {
        let folder = folder("group");
        let processes = Processes::open(&folder).unwrap();
        let exit_of = folder.with_extension("told");
        let script = format!("sleep 600 & echo $! > {}; sleep 0.1", exit_of.display());
        processes.spawn(&mut shell(&script)).unwrap().ended().await;
        let child: i32 = fs::read_to_string(&exit_of).unwrap().trim().parse().unwrap();
        until_gone(child).await;
        processes.close();
        fs::remove_file(exit_of).unwrap();
        fs::remove_dir_all(folder).unwrap();
    }

    #[tokio::test]
    async fn leftover_processes_are_killed_at_next_start() {
        let folder = folder("leftovers");
        fs::create_dir_all(&folder).unwrap();
        let mut left = shell("exec sleep 600").process_group(0).spawn().unwrap();
        // The shell execs: a child would survive the kill and hold the test's output open.
        let mut stranger = shell("exec sleep 600").process_group(0).spawn().unwrap();
        let began = start_time(Pid::from_child(&left)).unwrap();
        fs::write(folder.join(left.id().to_string()), began).unwrap();
        // An ID that another process has.
        fs::write(folder.join(stranger.id().to_string()), "1").unwrap();
        let processes = Processes::open(&folder).unwrap();
        assert_eq!(left.wait().unwrap().signal(), Some(9));
        assert!(stranger.try_wait().unwrap().is_none(), "it was none of the kubelet's");
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 0);
        stranger.kill().unwrap();
        stranger.wait().unwrap();
        processes.close();
        fs::remove_dir_all(folder).unwrap();
    }

    #[tokio::test]
    async fn watchdog_kills_leftovers_of_a_killed_kubelet() {
        let folder = folder("watchdog");
        let processes = Processes::open(&folder).unwrap();
        let process = processes.spawn(&mut shell("sleep 600")).unwrap();
        // The kernel closes the pipe when the kubelet is killed.
        drop(processes.watchdog.lock().unwrap().as_mut().unwrap().stdin.take());
        assert_eq!(process.ended().await.signal, Some(9));
        processes.close();
        fs::remove_dir_all(folder).unwrap();
    }
}
