//! What is shown while the API server is gone, and after: since when the data are outdated, and the changes
//! meanwhile. The API server that goes is a second one on the same etcd: the operator uses the first, and makes the
//! changes meanwhile.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, ChildStdin, Command};

use windlass_harness::controlplane::ControlPlane;
use windlass_harness::kit::{World, fleet};
use windlass_harness::page::browser::Browser;
use windlass_harness::page::dashboard::Dashboard;

/// The notice during an outage.
const SILENT: &str = "Nothing is heard of the API server since";
/// The notice after an outage, without a terminal.
const HEARD: &str = "The API server is heard again.";
/// The change meanwhile.
const NEWS: &str = "ImagePullBackOff";

/// A second API server on the control plane's etcd.
struct ApiServer {
    binary: String,
    arguments: Vec<String>,
    folder: PathBuf,
    kubeconfig: PathBuf,
    runs: Option<(Child, ChildStdin)>,
}

impl ApiServer {
    async fn beside(cp: &'static ControlPlane) -> Self {
        let pid = cp.pids()["kube-apiserver"];
        let line = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap();
        let mut words = line.trim_end_matches('\0').split('\0').map(str::to_owned);
        let binary = std::fs::read_link(format!("/proc/{pid}/exe")).unwrap().display().to_string();
        words.next();
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut first = String::new();
        let arguments = words.map(|word| match word.split_once('=') {
            Some(("--secure-port", its)) => {
                its.clone_into(&mut first);
                format!("--secure-port={port}")
            }
            Some(("--audit-log-path", _)) => format!("--audit-log-path=audit-{port}.log"),
            _ => word,
        });
        let arguments: Vec<String> = arguments.collect();
        let folder = cp.folder().to_owned();
        let kubeconfig = folder.join(format!("second-{port}.kubeconfig"));
        let text = std::fs::read_to_string(cp.kubeconfig()).unwrap();
        std::fs::write(&kubeconfig, text.replace(&format!(":{first}"), &format!(":{port}"))).unwrap();
        let mut server = Self { binary, arguments, folder, kubeconfig, runs: None };
        server.start(cp).await;
        server
    }

    /// Starts it, and waits until it serves fleets.
    async fn start(&mut self, cp: &ControlPlane) {
        let log = std::fs::File::create(self.folder.join("second.log")).unwrap();
        // It ends with this process for any reason: its standard input is closed then.
        let mut child = Command::new("sh")
            .args(["-c", r#""$0" "$@" < /dev/null & cat > /dev/null; kill -9 $!; wait"#, &self.binary])
            .args(&self.arguments)
            .current_dir(&self.folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        let input = child.stdin.take().unwrap();
        self.runs = Some((child, input));
        let kubeconfig = self.kubeconfig.display().to_string();
        let until = Instant::now() + Duration::from_mins(2);
        loop {
            let said = cp.kubectl(&["--kubeconfig", &kubeconfig, "get", "nd,sn", "-A"]).await;
            if said.code == Some(0) {
                return;
            }
            assert!(Instant::now() < until, "the second API server does not serve: {}", said.stderr);
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    /// Kills it with SIGKILL.
    async fn kill(&mut self) {
        let (mut child, input) = self.runs.take().expect("it runs");
        drop(input);
        child.wait().await.unwrap();
    }
}

/// The output of a `status -w` without a terminal.
struct Watching {
    lines: Arc<Mutex<Vec<String>>>,
    _child: Child,
}

impl Watching {
    fn start(kubeconfig: &Path, namespace: &str) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_windlass"))
            .args(["status", "-w", "nd/db", "-n", namespace])
            .env("KUBECONFIG", kubeconfig)
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let lines = Arc::new(Mutex::new(Vec::new()));
        let (mut said, into) = (BufReader::new(child.stdout.take().unwrap()).lines(), lines.clone());
        tokio::spawn(async move {
            while let Ok(Some(line)) = said.next_line().await {
                into.lock().unwrap().push(line);
            }
        });
        Self { lines, _child: child }
    }

    fn all(&self) -> Vec<String> {
        self.lines.lock().unwrap().clone()
    }

    /// The number of the first line with these words.
    fn line(&self, words: &str) -> Option<usize> {
        self.all().iter().position(|line| line.contains(words))
    }
}

/// A page that is read repeatedly.
struct Reader {
    http: reqwest::Client,
    cookie: String,
    url: String,
}

impl Reader {
    async fn of(page: &Dashboard, namespace: &str) -> Self {
        let http = reqwest::Client::builder().no_proxy().redirect(reqwest::redirect::Policy::none());
        let http = http.build().unwrap();
        let opened = http.get(&page.url).send().await.unwrap();
        let cookie = opened.headers()["set-cookie"].to_str().unwrap().split(';').next().unwrap().to_owned();
        Self { http, cookie, url: page.at(&format!("/fleets/{namespace}/db")) }
    }

    /// Whether it shows the notice, and whether it shows the change meanwhile.
    async fn read(&self) -> (bool, bool) {
        let answer = self.http.get(&self.url).header("cookie", &self.cookie).send().await.unwrap();
        let text = answer.text().await.unwrap();
        (text.contains(SILENT), text.contains(NEWS))
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "nightly"]
async fn while_the_api_server_is_gone_they_say_so_and_then_catch_up() {
    let world = World::new("outage").await;
    world.settled_fleet(fleet(3, "db:1")).await;
    let mut server = ApiServer::beside(world.cp).await;
    let watching = Watching::start(&server.kubeconfig, &world.ns);
    let page = Dashboard::start(&server.kubeconfig, &["-n", &world.ns]).await;
    let reader = Reader::of(&page, &world.ns).await;
    let mut browser = Browser::start().await;
    if let Some(browser) = &mut browser {
        browser.go(&page.url).await;
        browser.go(&reader.url).await;
        browser.wait("#live", "Live").await;
    }
    assert_eq!(reader.read().await, (false, false));

    server.kill().await;
    let gone = Instant::now();
    world.set_image("db:2-nope").await;
    world.until_db("a node cannot run", |db| db["status"]["rollout"]["nodes"]["failed"] == 1).await;
    while !reader.read().await.0 || watching.line(SILENT).is_none() {
        assert!(gone.elapsed() < Duration::from_secs(45), "nobody says it: {:?}", watching.all());
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    if let Some(browser) = &mut browser {
        browser.wait("#live", "Not live: nothing is heard of the API server").await;
        browser.wait("#silence", SILENT).await;
        browser.judge("silent").await;
    }
    assert_eq!(reader.read().await, (true, false));
    assert_eq!(watching.line(NEWS), None);

    server.start(world.cp).await;
    let back = Instant::now();
    loop {
        let (is_silent, is_new) = reader.read().await;
        assert!(is_silent || is_new, "it takes for live what is old, {:?} after", back.elapsed());
        if !is_silent && watching.line(NEWS).is_some() && watching.line(HEARD).is_some() {
            break;
        }
        assert!(back.elapsed() < Duration::from_mins(1), "not caught up: {:?}", watching.all());
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    println!("caught up {:?} after the API server was back", back.elapsed());
    // The notice ends only after everything was listed again.
    assert!(watching.line(NEWS) <= watching.line(HEARD).map(|line| line + 1), "{:?}", watching.all());
    if let Some(mut browser) = browser {
        browser.wait("#nodes", NEWS).await;
        browser.wait("#live", "Live").await;
        assert_eq!(browser.text("#live").await, "Live");
        browser.close().await;
    }
}
