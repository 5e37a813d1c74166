//! A real browser: Debian's Chromium, driven over its devtools protocol by `driver.mjs`.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use crate::debian;

/// A browser with one page.
pub struct Browser {
    driver: Child,
    commands: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
}

/// Where screenshots are kept.
pub fn pictures() -> PathBuf {
    crate::kept("page")
}

impl Browser {
    /// Starts one; `None`, with a message, if it is unavailable.
    pub async fn start() -> Option<Self> {
        let installed = on_the_path("chromium");
        let is_unpacked = installed.is_none();
        let chromium =
            installed.or_else(|| debian::program_with_libraries("chromium", "usr/bin/chromium"))?;
        let (Some(node), Some(npm)) = (on_the_path("node"), on_the_path("npm")) else {
            debian::skipped("the page in a browser: node and npm are not on the path");
            return None;
        };
        let modules = match modules(&npm).await {
            Ok(modules) => modules,
            Err(why) => {
                debian::skipped(&format!("the page in a browser: playwright-core cannot be had here: {why}"));
                return None;
            }
        };
        let mut driver = Command::new(node)
            .arg(crate::root().join("tests/harness/src/page/driver.mjs"))
            .env("WINDLASS_PAGE_MODULES", modules)
            .env("WINDLASS_CHROMIUM", chromium)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let answers = BufReader::new(driver.stdout.take().unwrap()).lines();
        let mut browser = Self { commands: driver.stdin.take().unwrap(), answers, driver };
        match browser.answer(json!({"do": "open"})).await {
            Ok(_) => Some(browser),
            // An unpacked one may lack libraries that an installed one has.
            Err(why) if is_unpacked => {
                let why = why.lines().next().unwrap_or_default().to_owned();
                debian::skipped(&format!("the page in a browser: Chromium does not start unpacked: {why}"));
                None
            }
            Err(why) => panic!("the browser does not start: {why}"),
        }
    }

    /// Runs a command; panics with the page's content on a failure.
    pub async fn ask(&mut self, command: Value) -> Value {
        self.answer(command.clone()).await.unwrap_or_else(|why| panic!("{command}: {why}"))
    }

    /// Runs a command; an error is the reason of the failure.
    async fn answer(&mut self, command: Value) -> Result<Value, String> {
        let gone = || "the browser is gone".to_owned();
        self.commands.write_all(format!("{command}\n").as_bytes()).await.map_err(|_| gone())?;
        let answer = self.answers.next_line().await.map_err(|_| gone())?.ok_or_else(gone)?;
        let answer: Value = serde_json::from_str(&answer).unwrap();
        match answer.get("error") {
            Some(error) => Err(error.as_str().map_or_else(|| error.to_string(), str::to_owned)),
            None => Ok(answer["ok"].clone()),
        }
    }

    pub async fn go(&mut self, to: &str) -> u64 {
        self.ask(json!({"do": "go", "to": to})).await.as_u64().unwrap()
    }

    pub async fn text(&mut self, of: &str) -> String {
        self.ask(json!({"do": "text", "of": of})).await.as_str().unwrap().to_owned()
    }

    pub async fn wait(&mut self, of: &str, says: &str) {
        self.ask(json!({"do": "wait", "of": of, "says": says})).await;
    }

    pub async fn click(&mut self, on: &str) {
        self.ask(json!({"do": "click", "on": on})).await;
    }

    pub async fn press(&mut self, key: &str) {
        self.ask(json!({"do": "press", "key": key})).await;
    }

    /// Presses Tab until the element with this ID has the focus.
    pub async fn tab_to(&mut self, id: &str) {
        for _ in 0..60 {
            self.press("Tab").await;
            if self.ask(json!({"do": "focus"})).await["id"] == id {
                return;
            }
        }
        panic!("the keyboard never comes to {id}: {}", self.text("body").await);
    }

    /// Checks the page in two widths, light and dark: nothing overlaps or is cut off. Keeps screenshots under this
    /// name.
    pub async fn judge(&mut self, name: &str) {
        for (width, dark) in [(1280, false), (1280, true), (360, false), (360, true)] {
            self.ask(json!({"do": "look", "width": width, "dark": dark})).await;
            let found = self.ask(json!({"do": "axe"})).await;
            assert!(found["rules"].as_u64() > Some(10), "axe did not run: {found}");
            assert_eq!(found["found"], json!([]), "{name} at {width}, dark: {dark}");
            assert_eq!(self.ask(json!({"do": "overflow"})).await, 0, "{name} at {width} scrolls sideways");
            let look = if dark { "dark" } else { "light" };
            let file = pictures().join(format!("{name}-{width}-{look}.png"));
            self.ask(json!({"do": "picture", "file": file})).await;
        }
        self.ask(json!({"do": "look", "width": 1280, "dark": false})).await;
        assert_eq!(self.ask(json!({"do": "complaints"})).await, json!([]), "{name}");
    }

    /// Ends it.
    pub async fn close(mut self) {
        drop(self.commands);
        let _ = self.driver.wait().await;
    }
}

fn on_the_path(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(program)).find(|file| file.is_file())
}

/// The driver's modules, installed with npm next to other build output.
async fn modules(npm: &Path) -> Result<PathBuf, String> {
    let wanted = crate::root().join("tests/harness/src/page/package.json");
    let folder = crate::kept("page-modules");
    let lock = std::fs::File::create(folder.join("lock")).map_err(|error| error.to_string())?;
    lock.lock().map_err(|error| error.to_string())?;
    let text = std::fs::read_to_string(wanted).map_err(|error| error.to_string())?;
    let done = folder.join("done.json");
    if std::fs::read_to_string(&done).is_ok_and(|known| known == text) {
        return Ok(folder);
    }
    std::fs::write(folder.join("package.json"), &text).map_err(|error| error.to_string())?;
    let mut install = Command::new(npm);
    install.args(["install", "--no-audit", "--no-fund", "--no-package-lock"]).current_dir(&folder);
    let output = install.output().await.map_err(|error| error.to_string())?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).lines().last().unwrap_or_default().to_owned());
    }
    std::fs::write(done, text).map_err(|error| error.to_string())?;
    Ok(folder)
}
