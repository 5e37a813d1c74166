//! A served demo, and a kubectl for it.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{OnceLock, mpsc};
use std::time::Duration;

use windlass::clock::on_the_wall;

/// The time limit of anything on a busy machine.
pub const PATIENCE: Duration = Duration::from_mins(1);

/// The binary under test.
pub fn windlass() -> Command {
    Command::new(env!("CARGO_BIN_EXE_windlass"))
}

/// What a program said.
pub fn text(output: &Output) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout), text(&output.stderr))
}

/// A demo that has finished and stays up.
pub struct Served {
    demo: Child,
    folder: PathBuf,
    pub kubeconfig: PathBuf,
}

impl Served {
    /// Runs the story as fast as possible and keeps the cluster.
    pub fn start() -> Self {
        let mut demo =
            windlass().args(["demo", "--speed", "1000", "--serve"]).stdout(Stdio::piped()).spawn().unwrap();
        let out = demo.stdout.take().unwrap();
        let (tell, told) = mpsc::channel();
        std::thread::spawn(move || {
            BufReader::new(out).lines().map_while(Result::ok).try_for_each(|line| tell.send(line))
        });
        let (mut said, until) = (String::new(), on_the_wall() + PATIENCE);
        while !said.contains("until Ctrl-C") {
            let left = until.saturating_duration_since(on_the_wall());
            let line = told.recv_timeout(left).unwrap_or_else(|_| panic!("the story did not end:\n{said}"));
            said.push_str(&line);
            said.push('\n');
        }
        let kubeconfig =
            said.lines().find_map(|line| line.trim().strip_prefix("export KUBECONFIG=")).unwrap().into();
        assert!(said.contains("http://") && said.contains("/?token="), "it names no page:\n{said}");
        let folder = std::env::temp_dir().join(format!("windlass-demo-test-{}", demo.id()));
        std::fs::create_dir_all(&folder).unwrap();
        std::os::unix::fs::symlink(windlass_harness::controlplane::binary().unwrap(), folder.join("kubectl"))
            .unwrap();
        Self { demo, folder, kubeconfig }
    }

    /// A kubectl for this cluster.
    pub fn command(&self, arguments: &str) -> Command {
        let mut command = Command::new(self.folder.join("kubectl"));
        command.args(words(arguments));
        command
            .env("KUBECONFIG", &self.kubeconfig)
            .env("KUBECACHEDIR", self.folder.join("cache"))
            .env("KUBERC", "off");
        command
    }

    /// Runs kubectl with this input; returns exit code, output and errors.
    pub fn fed(&self, arguments: &str, input: &str) -> (i32, String, String) {
        let mut child = self
            .command(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        let (out, err) = text(&output);
        (output.status.code().unwrap_or(-1), out, err)
    }

    /// The output of kubectl, which has to succeed.
    pub fn kubectl(&self, arguments: &str) -> String {
        let (code, out, err) = self.fed(arguments, "");
        assert_eq!(code, 0, "kubectl {arguments}: {out}{err}");
        out
    }

    /// The errors of kubectl, which has to fail.
    pub fn refused(&self, arguments: &str) -> String {
        let (code, out, err) = self.fed(arguments, "");
        assert_ne!(code, 0, "kubectl {arguments}: {out}{err}");
        err
    }

    /// Repeats a kubectl command until `holds` is true for its output.
    pub fn until(&self, arguments: &str, holds: impl Fn(&str) -> bool) -> String {
        let until = on_the_wall() + PATIENCE;
        loop {
            let (_, out, err) = self.fed(arguments, "");
            if holds(&out) {
                return out;
            }
            assert!(on_the_wall() < until, "kubectl {arguments}: {out}{err}");
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Interrupts it like Ctrl-C; returns its exit code.
    pub fn interrupt(mut self) -> Option<i32> {
        let pid = self.demo.id().to_string();
        assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
        let until = on_the_wall() + PATIENCE;
        while on_the_wall() < until {
            if let Some(status) = self.demo.try_wait().unwrap() {
                return status.code();
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        panic!("it does not end");
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.demo.kill();
        let _ = self.demo.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
        let _ = std::fs::remove_file(&self.kubeconfig);
    }
}

/// Splits words; single quotes group them.
fn words(line: &str) -> Vec<String> {
    let parts = line.split('\'').enumerate();
    parts
        .flat_map(|(index, part)| {
            if index % 2 == 1 {
                vec![part.to_owned()]
            } else {
                part.split_whitespace().map(str::to_owned).collect()
            }
        })
        .collect()
}

/// A served demo shared by the tests that only read.
pub fn shared() -> &'static Served {
    static SHARED: OnceLock<Guarded> = OnceLock::new();
    &SHARED
        .get_or_init(|| {
            let served = Served::start();
            let guard = guard(served.demo.id(), &served.folder);
            Guarded { served, _guard: guard }
        })
        .served
}

struct Guarded {
    served: Served,
    _guard: Child,
}

/// Statics are never dropped: a shell that waits for this process to end kills the demo.
fn guard(demo: u32, folder: &Path) -> Child {
    Command::new("sh")
        .arg("-c")
        .arg(format!("cat >/dev/null; kill {demo}; rm -rf '{}'", folder.display()))
        .stdin(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Reads a running program's output until a line contains `word`; returns all lines.
pub fn read_until(out: &mut impl Read, word: &str) -> String {
    let mut said = String::new();
    for line in BufReader::new(out).lines() {
        let line = line.unwrap();
        said.push_str(&line);
        said.push('\n');
        if line.contains(word) {
            return said;
        }
    }
    panic!("{word:?} never came:\n{said}");
}
