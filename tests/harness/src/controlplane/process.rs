//! The supervisor's process: it ends with all its children when its standard input closes.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{BufRead, BufReader, Write},
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    sync::atomic::{AtomicU32, Ordering},
};

use serde::Deserialize;

use super::{Error, Options};

/// A line of the supervisor's output.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Message {
    pub event: String,
    pub server: String,
    pub kubeconfig: PathBuf,
    pub ca: PathBuf,
    pub token: String,
    pub audit_log: PathBuf,
    pub pids: BTreeMap<String, u32>,
    pub error: String,
}

/// A running supervisor.
pub struct Supervisor {
    child: Child,
    input: Option<ChildStdin>,
    output: Option<BufReader<ChildStdout>>,
    pub folder: PathBuf,
}

impl Supervisor {
    pub fn start(binary: &Path, options: &Options) -> Result<Self, Error> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let folder =
            std::env::temp_dir().join(format!("windlass-controlplane-{}-{count}", std::process::id()));
        // A killed process that had this PID may have left it behind.
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder)?;
        let mut command = Command::new(binary);
        command.arg("supervise").arg("-dir").arg(&folder).arg("-audit-level").arg(options.audit_level);
        command.arg("-admission").arg(options.admission).arg("-feature-gates").arg(options.feature_gates);
        command.arg("-without").arg(options.without);
        // etcd's default is 2 GiB, and fleets of thousands exceed that within minutes.
        command.env("ETCD_QUOTA_BACKEND_BYTES", (8_u64 << 30).to_string());
        if options.keep_data {
            command.arg("-keep");
        }
        // In a process group of its own, so that a Ctrl-C in the terminal only reaches the tests and the supervisor
        // ends in order.
        command.process_group(0).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.stderr(File::create(folder.join("supervise.log"))?).spawn()?;
        let (input, output) = (child.stdin.take(), child.stdout.take().map(BufReader::new));
        Ok(Self { child, input, output, folder })
    }

    /// The next message, which has to be `event`. Blocks; the supervisor itself gives up after 2 minutes.
    pub fn expect(&mut self, event: &str) -> Result<Message, Error> {
        let mut line = String::new();
        self.output.as_mut().ok_or("the supervisor's output is read elsewhere")?.read_line(&mut line)?;
        if line.is_empty() {
            return Err("the control plane's supervisor ended without a word".into());
        }
        let message: Message = serde_json::from_str(&line)?;
        if message.event == event {
            return Ok(message);
        }
        Err(format!("the control plane did not start: {}", message.error).into())
    }

    /// Lets it start what follows the API server.
    pub fn go_on(&mut self) -> Result<(), Error> {
        Ok(self.input.as_mut().ok_or("the supervisor is being stopped")?.write_all(b"continue\n")?)
    }

    /// Prints to standard error if a child ends too early.
    pub fn report_failures(&mut self) {
        let Some(output) = self.output.take() else { return };
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                let message: Message = serde_json::from_str(&line).unwrap_or_default();
                eprintln!("the control plane ended by itself: {}", message.error);
            }
        });
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        self.input = None;
        let _ = self.child.wait();
    }
}
