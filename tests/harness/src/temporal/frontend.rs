//! A real Temporal server as a process.

use std::{
    io::{BufRead, BufReader},
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{
        Mutex,
        atomic::{AtomicU32, Ordering},
    },
};

use crate::controlplane::Error;
use crate::temporal::programs;

/// A loopback address other than 127.0.0.1, which is a pod's own address under the process kubelet.
pub const HOST: &str = "127.72.33.1";
/// The API key that one of the guarded ports requires.
pub const API_KEY: &str = "open-sesame";
/// The server name in the certificate of the guarded ports.
pub const SERVER_NAME: &str = "temporal.windlass.test";

/// Shortens a version's life cycle from minutes to 20 s. A poller's history has to last longer than the long poll, or
/// live pollers would vanish.
const QUICK: [&str; 4] = [
    "matching.wv.VersionDrainageStatusVisibilityGracePeriod=1s",
    "matching.wv.VersionDrainageStatusRefreshInterval=1s",
    "matching.longPollExpirationInterval=3s",
    "matching.PollerHistoryTTL=5s",
];

/// The options of a server.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Keeps its state in a file, so that it can be restarted.
    pub durable: bool,
    /// Serves with TLS, too.
    pub guarded: bool,
    /// Uses the waits of production.
    pub default_waits: bool,
    /// More dynamic configuration, as `key=value`.
    pub settings: &'static [&'static str],
}

/// A running server. Dropping it kills its process and removes its files.
pub struct Server {
    options: Options,
    binary: PathBuf,
    folder: PathBuf,
    port: u16,
    child: Mutex<Child>,
    guarded: Vec<String>,
}

impl Server {
    /// Builds it on first use, and starts it.
    pub async fn start(options: Options) -> Result<Self, Error> {
        tokio::task::spawn_blocking(move || {
            static COUNT: AtomicU32 = AtomicU32::new(0);
            let count = COUNT.fetch_add(1, Ordering::Relaxed);
            let folder =
                std::env::temp_dir().join(format!("windlass-temporal-{}-{count}", std::process::id()));
            let _ = std::fs::remove_dir_all(&folder);
            std::fs::create_dir_all(&folder)?;
            let binary = programs::SERVER.path()?;
            // It keeps the port over its restarts.
            let port = TcpListener::bind((HOST, 0))?.local_addr()?.port();
            let (child, guarded) = spawn(&binary, &folder, port, &options)?;
            Ok(Self { options, binary, folder, port, child: Mutex::new(child), guarded })
        })
        .await?
    }

    /// Host and port of the frontend.
    pub fn address(&self) -> String {
        format!("{HOST}:{}", self.port)
    }

    /// Host and port that require a client certificate.
    pub fn by_certificate(&self) -> &str {
        &self.guarded[0]
    }

    /// Host and port that require the API key.
    pub fn by_key(&self) -> &str {
        &self.guarded[1]
    }

    /// A file in PEM of a guarded server: `ca.crt`, `client.crt` or `client.key`.
    pub fn pem(&self, file: &str) -> String {
        std::fs::read_to_string(self.folder.join(file)).expect("a guarded server has it")
    }

    /// Kills it at once.
    pub fn kill(&self) {
        let mut child = self.child.lock().expect("nobody died with it");
        let _ = child.kill();
        let _ = child.wait();
    }

    /// Restarts it after [`Server::kill`], at the same address, with the state in its file.
    pub async fn restart(&self) -> Result<(), Error> {
        assert!(self.options.durable, "all is lost of a server in memory");
        assert!(!self.options.guarded, "its guarded ports would be others");
        let (binary, folder, port, options) =
            (self.binary.clone(), self.folder.clone(), self.port, self.options.clone());
        let (child, _) =
            tokio::task::spawn_blocking(move || spawn(&binary, &folder, port, &options)).await??;
        *self.child.lock().expect("nobody died with it") = child;
        Ok(())
    }

    /// Suspends its process: its connections stay, and nothing answers.
    pub fn freeze(&self) {
        self.signal("STOP");
    }

    /// Resumes it.
    pub fn thaw(&self) {
        self.signal("CONT");
    }

    fn signal(&self, name: &str) {
        let pid = self.child.lock().expect("nobody died with it").id().to_string();
        let sent = Command::new("kill").args([&format!("-{name}"), &pid]).status();
        assert!(sent.is_ok_and(|status| status.success()), "{name} reaches the server");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn spawn(binary: &Path, folder: &Path, port: u16, options: &Options) -> Result<(Child, Vec<String>), Error> {
    let mut command = Command::new(binary);
    command.args(["-host", HOST, "-port", &port.to_string()]);
    if options.durable {
        command.arg("-file").arg(folder.join("temporal.db"));
    }
    if options.guarded {
        command.arg("-guarded").arg(folder).args(["-api-key", API_KEY]);
    }
    let quick = QUICK.iter().filter(|_| !options.default_waits);
    for setting in quick.chain(options.settings) {
        command.args(["-set", setting]);
    }
    let log = std::fs::OpenOptions::new().create(true).append(true).open(folder.join("server.log"))?;
    // It ends when its input closes, together with this process.
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(log).spawn()?;
    let mut line = String::new();
    BufReader::new(child.stdout.take().ok_or("its output is a pipe")?).read_line(&mut line)?;
    let words: Vec<&str> = line.split_whitespace().collect();
    if words.first() != Some(&"ready") {
        let _ = child.kill();
        let said = std::fs::read_to_string(folder.join("server.log")).unwrap_or_default();
        return Err(format!("the Temporal server did not start: {said}").into());
    }
    let guarded =
        words[2..].iter().filter(|word| word.contains(':')).map(|word| (*word).to_owned()).collect();
    Ok((child, guarded))
}
