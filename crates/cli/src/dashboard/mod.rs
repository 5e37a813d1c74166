//! `windlass dashboard`: the page on this machine, with the rights of the user who runs it; and the read-only page of
//! `windlass operator --dashboard`.

mod actions;

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use clap::Args;
use kube::Client;
use tokio::net::TcpListener;
use tokio::sync::oneshot;

use super::connection::{ClusterFlags, Connection};
use super::output::Output;
use crate::page::{Guard, Secrets, Source, serve};
use actions::VerbActions;
use windlass_clock::SystemClock;
use windlass_kube_port::client::GuardedClient;
use windlass_kube_port::watch::Namespaces as Where;

/// The arguments of `windlass dashboard`.
#[derive(Debug, Args)]
pub struct DashboardArgs {
    #[command(flatten)]
    flags: ClusterFlags,
    /// The local port to serve on [default: a free one]
    #[arg(long, value_name = "PORT")]
    port: Option<u16>,
    /// Print the address as data (field url); name: only the address
    #[arg(long, short = 'o', value_enum, value_name = "FORMAT")]
    output: Option<Output>,
}

/// Serves the page until Ctrl-C.
pub async fn dashboard(arguments: DashboardArgs) -> Result<(), String> {
    let cluster = arguments.flags.cluster().await?;
    let scope = if cluster.all_namespaces { Where::All } else { Where::Namespace(cluster.namespace.clone()) };
    let listener = listen(arguments.port.unwrap_or_default())?;
    let local = Local::at(&listener)?;
    let url = local.url.clone();
    let stopped = super::stopped()?;
    // With time-outs, so that no click hangs on an API server that does not answer.
    let client = GuardedClient::new(&cluster.client).client();
    let source = Source::new(client.clone(), vec![scope], Arc::new(SystemClock));
    let source = Arc::new(source.typed_as(arguments.flags.connection.typed()));
    // A failure to read belongs on the terminal, not on a page that cannot be opened.
    let watched = source.watched().await?;
    let serving = local.serve(tokio_listener(listener)?, client, source);
    super::print(&match arguments.output {
        None => format!(
            "Open this address in a browser. Anyone who has it acts with your rights:\n\n    {url}\n\nIt accepts connections from this machine \
             only, until Ctrl-C.\n"
        ),
        Some(Output::Name) => format!("{url}\n"),
        Some(format) => format.document(&serde_json::json!({"url": url}))?,
    })?;
    if watched.all().is_empty() && watched.sheets().is_empty() {
        let place = if cluster.all_namespaces {
            "any namespace".to_owned()
        } else {
            format!("namespace {}", cluster.namespace)
        };
        eprintln!("No fleets found in {place}; the page shows new ones as they are created.");
    }
    drop(watched);
    tokio::select! {
        ended = serving => ended,
        () = stopped => Ok(()),
    }
}

/// Binds the given port of the loopback address, or a free one.
pub fn listen(port: u16) -> Result<std::net::TcpListener, String> {
    windlass::internal::listen(SocketAddr::from((Ipv4Addr::LOCALHOST, port)))
        .map_err(|error| format!("--port {port}: {error}; choose another port, or 0 for a free one"))
}

pub fn tokio_listener(listener: std::net::TcpListener) -> Result<TcpListener, String> {
    TcpListener::from_std(listener).map_err(|error| format!("cannot serve the page: {error}"))
}

/// A local page; its address contains the secret.
pub struct Local {
    /// The address, including the secret.
    pub url: String,
    guard: Guard,
}

impl Local {
    /// The page of a bound listener.
    pub fn at(listener: &std::net::TcpListener) -> Result<Self, String> {
        let address = listener.local_addr().map_err(|error| format!("cannot determine the port: {error}"))?;
        let secrets = Secrets::draw()?;
        let url = format!("http://{address}/?token={}", secrets.token());
        Ok(Self { url, guard: Guard::local(address.port(), secrets) })
    }

    /// Serves the page: what this client may read, with buttons for what it may do.
    pub async fn serve(
        self,
        listener: TcpListener,
        client: Client,
        source: Arc<Source>,
    ) -> Result<(), String> {
        let actions = Arc::new(VerbActions::new(client, source.clock()));
        serve(listener, source, Some(actions), self.guard).await.map_err(ended)
    }
}

#[allow(clippy::needless_pass_by_value, reason = "it is handed to map_err")]
fn ended(error: std::io::Error) -> String {
    format!("the server of the page ended: {error}")
}

/// The arguments of `windlass operator` for the page.
#[derive(Args, Clone, Debug)]
pub struct PageArgs {
    /// Serve a read-only page of all fleets to everyone who can reach its address
    #[arg(long)]
    dashboard: bool,
    /// The address of the page
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8082", requires = "dashboard")]
    dashboard_bind: SocketAddr,
    /// A host name that the page accepts in addition to localhost and IP addresses, such as an ingress or a Service; repeatable
    #[arg(long = "dashboard-host", value_name = "NAME", requires = "dashboard")]
    dashboard_hosts: Vec<String>,
}

impl PageArgs {
    /// Serves the page in a thread of its own, if it is enabled, so that rendering does not delay the controllers.
    pub fn start(&self, namespaces: &[String]) -> Result<Option<oneshot::Receiver<String>>, String> {
        if !self.dashboard {
            return Ok(None);
        }
        let address = self.dashboard_bind;
        let listener = windlass::internal::listen(address).map_err(|error| {
            format!("--dashboard-bind {address}: {error}; choose another address or port")
        })?;
        let scopes = match namespaces {
            [] => vec![Where::All],
            names => names.iter().cloned().map(Where::Namespace).collect(),
        };
        let guard = Guard::open(self.dashboard_hosts.clone());
        serve_in_thread(async move || {
            let (client, _) = Connection::default().client(super::AGENT).await?;
            let client = GuardedClient::new(&client).client();
            let source = Arc::new(Source::new(client, scopes, Arc::new(SystemClock)));
            serve(tokio_listener(listener)?, source, None, guard).await.map_err(ended)
        })
        .map(Some)
    }
}

/// Serves the page of a namespace during the demo; returns its address.
#[cfg(feature = "demo")]
pub fn serve_demo<C>(clock: windlass_clock::SharedClock, namespace: &str, client: C) -> Result<String, String>
where
    C: AsyncFnOnce() -> Result<Client, String> + Send + 'static,
{
    let listener = listen(0)?;
    let local = Local::at(&listener)?;
    let url = local.url.clone();
    let scope = Where::Namespace(namespace.to_owned());
    let page = serve_in_thread(async move || {
        let client = client().await?;
        let source = Arc::new(Source::new(client.clone(), vec![scope], clock));
        local.serve(tokio_listener(listener)?, client, source).await
    });
    // If the page ends, the demo continues.
    page.map(|_| url)
}

/// Serves a page in a thread of its own. The receiver gets the reason when it ends.
pub fn serve_in_thread<P>(page: P) -> Result<oneshot::Receiver<String>, String>
where
    P: AsyncFnOnce() -> Result<(), String> + Send + 'static,
{
    let (sender, receiver) = oneshot::channel();
    let run = move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let ended = match runtime {
            Ok(runtime) => runtime.block_on(page()),
            Err(error) => Err(format!("cannot start the async runtime of the page: {error}")),
        };
        // The receiver may be gone.
        let _ = sender.send(ended.err().unwrap_or_else(|| "the server of the page ended".to_owned()));
    };
    std::thread::Builder::new()
        .name("page".to_owned())
        .spawn(run)
        .map_err(|error| format!("cannot start the thread of the page: {error}"))?;
    Ok(receiver)
}
