//! A real terminal: the shipped program in tmux, with its time frozen by libfaketime. Both are Debian's.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};

use windlass_harness::debian;

/// The time limit of a screen on a busy machine.
const PATIENCE: Duration = Duration::from_mins(3);

/// The number of tmux servers that this process has started.
static STARTED: AtomicU32 = AtomicU32::new(0);

/// A tmux server.
pub struct Terminals {
    tmux: PathBuf,
    faketime: PathBuf,
    folder: PathBuf,
    count: AtomicU32,
}

/// The properties of a terminal.
#[derive(Clone, Copy)]
pub struct Like {
    pub columns: u32,
    pub rows: u32,
    pub colours: bool,
    pub utf8: bool,
}

/// A terminal in which a program runs.
pub struct Terminal<'a> {
    of: &'a Terminals,
    name: String,
    ended: PathBuf,
    colours: bool,
}

impl Terminals {
    /// `None`, with a message, if tmux is unavailable.
    pub fn start() -> Option<Self> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let installed =
            std::env::split_paths(&path).map(|folder| folder.join("tmux")).find(|file| file.is_file());
        let tmux = installed.or_else(|| debian::program_with_libraries("tmux", "usr/bin/tmux"))?;
        let library = format!("usr/lib/{}-linux-gnu/faketime/libfaketimeMT.so.1", std::env::consts::ARCH);
        let faketime = debian::program("libfaketime", &library)?;
        let number = STARTED.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("windlass-screens-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let terminals = Self { tmux, faketime, folder, count: AtomicU32::new(0) };
        // The server would end without a session.
        terminals.tmux(&["new-session", "-d", "-s", "keep", "cat"]);
        Some(terminals)
    }

    /// A folder of this test's own.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    fn tmux(&self, arguments: &[&str]) -> String {
        let mut command = Command::new(&self.tmux);
        command.args(["-f", "/dev/null", "-u", "-S"]).arg(self.folder.join("socket")).args(arguments);
        let output = command.env_remove("TMUX").output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert!(output.status.success(), "tmux {arguments:?}: {}", text(&output.stderr));
        text(&output.stdout)
    }

    /// Runs the program in a terminal, at this time.
    pub fn run(&self, like: Like, now: DateTime<Utc>, kubeconfig: &Path, words: &str) -> Terminal<'_> {
        let name = format!("t{}", self.count.fetch_add(1, Ordering::Relaxed));
        let ended = self.folder.join(format!("{name}-ended"));
        let locale = if like.utf8 { "C.UTF-8" } else { "C" };
        let no_color = if like.colours { "" } else { "NO_COLOR=1" };
        let windlass = env!("CARGO_BIN_EXE_windlass");
        let (columns, rows) = (like.columns.to_string(), like.rows.to_string());
        let command = format!(
            "stty -echo; env -u LANG -u LC_CTYPE -u COLUMNS -u NO_COLOR LC_ALL={locale} {no_color} TZ=UTC KUBECONFIG='{}' \
             FAKETIME_DONT_FAKE_MONOTONIC=1 FAKETIME='{}' LD_PRELOAD='{}' '{windlass}' {words}; \
             echo $? > '{}'; sleep 600",
            kubeconfig.display(),
            now.format("%Y-%m-%d %H:%M:%S"),
            self.faketime.display(),
            ended.display(),
        );
        self.tmux(&["new-session", "-d", "-s", &name, "-x", &columns, "-y", &rows, &command]);
        Terminal { of: self, name, ended, colours: like.colours }
    }

    /// A bash without configuration, with running time.
    pub fn bash(&self) -> Terminal<'_> {
        self.shell("PS1='$ ' bash --norc --noprofile")
    }

    /// A zsh with completion enabled; `None` if unavailable.
    pub fn zsh(&self) -> Option<Terminal<'_>> {
        let zsh = debian::program_with_libraries("zsh", "bin/zsh")?;
        let root = zsh.parent().unwrap().display();
        let settings = format!(
            "module_path=({root}/usr/lib/*-linux-gnu/zsh/*(/))\nfpath=({root}/usr/share/zsh/functions/**/*(/))\n\
             autoload -Uz compinit && compinit -u -D\nPS1='$ '\n"
        );
        std::fs::write(self.folder.join(".zshrc"), settings).unwrap();
        Some(self.shell(&format!("ZDOTDIR='{}' {} -d -i", self.folder.display(), zsh.display())))
    }

    /// A fish; `None` if unavailable.
    pub fn fish(&self) -> Option<Terminal<'_>> {
        let fish = debian::program_with_libraries("fish", "usr/bin/fish")?;
        // A relocated fish finds its functions only if its configuration folder exists next to it.
        std::fs::create_dir_all(fish.parent().unwrap().join("usr/etc/fish")).unwrap();
        let settings = r#"function fish_prompt; echo -n "\$ "; end; set fish_greeting; set fish_autosuggestion_enabled 0"#;
        Some(self.shell(&format!("{} -C '{settings}'", fish.display())))
    }

    /// A shell with the shipped program on its path, and its own home folder.
    fn shell(&self, shell: &str) -> Terminal<'_> {
        let name = format!("t{}", self.count.fetch_add(1, Ordering::Relaxed));
        let ended = self.folder.join(format!("{name}-ended"));
        let program = Path::new(env!("CARGO_BIN_EXE_windlass"));
        let path = std::env::var("PATH").unwrap_or_default();
        let command = format!(
            "env -u KUBECONFIG -u XDG_CONFIG_HOME -u XDG_DATA_HOME HOME='{}' LC_ALL=C.UTF-8 NO_COLOR=1 PATH='{}:{path}' {shell}",
            self.folder.display(),
            program.parent().unwrap().display()
        );
        self.tmux(&["new-session", "-d", "-s", &name, "-x", "110", "-y", "40", &command]);
        Terminal { of: self, name, ended, colours: false }
    }
}

impl Drop for Terminals {
    fn drop(&mut self) {
        let mut command = Command::new(&self.tmux);
        command.arg("-S").arg(self.folder.join("socket")).arg("kill-server");
        let _ = command.output();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

impl Terminal<'_> {
    /// Waits until the program has ended. Returns its exit code.
    pub fn end(&self) -> i32 {
        let code = || std::fs::read_to_string(&self.ended).ok()?.trim().parse().ok();
        self.until("the program ends", code)
    }

    /// Waits until the screen contains the words.
    pub fn says(&self, words: &str) {
        self.until(words, || self.captured(&["-p"]).contains(words).then_some(()));
    }

    fn until<T>(&self, what: &str, seen: impl Fn() -> Option<T>) -> T {
        let until = Instant::now() + PATIENCE;
        loop {
            if let Some(seen) = seen() {
                return seen;
            }
            assert!(Instant::now() < until, "{what}: {}", self.captured(&["-p"]));
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Presses a key.
    pub fn press(&self, key: &str) {
        self.of.tmux(&["send-keys", "-t", &self.name, key]);
    }

    /// Types words literally.
    pub fn type_in(&self, words: &str) {
        self.of.tmux(&["send-keys", "-t", &self.name, "-l", words]);
    }

    /// The screen; `\e` stands for the start of an escape sequence.
    pub fn screen(&self) -> String {
        let text = self.captured(if self.colours { &["-p", "-e"] } else { &["-p"] });
        let lines: Vec<&str> = text.trim_end().lines().map(str::trim_end).collect();
        (lines.join("\n") + "\n").replace('\x1b', "\\e")
    }

    /// The lines that were too long for the terminal, unwrapped.
    pub fn wrapped(&self) -> Vec<String> {
        let (seen, joined) = (self.captured(&["-p"]), self.captured(&["-p", "-J"]));
        let seen: Vec<&str> = seen.lines().map(str::trim_end).collect();
        let written = joined.lines().map(|line| line.trim_end().to_owned());
        written.filter(|line| !line.is_empty() && !seen.contains(&line.as_str())).collect()
    }

    fn captured(&self, how: &[&str]) -> String {
        self.of.tmux(&[&["capture-pane", "-t", &self.name], how].concat())
    }
}

impl Drop for Terminal<'_> {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.of.tmux(&["kill-session", "-t", &self.name]);
        }
    }
}
