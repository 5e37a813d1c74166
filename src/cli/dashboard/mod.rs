//! `windlass dashboard`: the page on this machine, with the rights of whoever runs it; and the one that `windlass operator
//! --dashboard` serves, which only shows.

mod hands;

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use clap::Args;
use kube::Client;
use tokio::net::TcpListener;
use tokio::sync::oneshot;

use super::connection::{Connection, Scope};
use super::output::Output;
use crate::clock::SystemClock;
use crate::cluster::client::Careful;
use crate::cluster::watch::Namespaces as Where;
use crate::dashboard::{Guard, Secrets, Source, serve};
use hands::Own;

/// What `windlass dashboard` is told.
#[derive(Debug, Args)]
pub struct DashboardArgs {
    #[command(flatten)]
    scope: Scope,
    /// The port to serve on, of this machine alone [default: a free one]
    #[arg(long, value_name = "PORT")]
    port: Option<u16>,
    /// Print the address for a program: url; name: the address alone
    #[arg(long, short = 'o', value_enum, value_name = "FORMAT")]
    output: Option<Output>,
}

/// Serves the page until Ctrl-C.
pub async fn dashboard(arguments: DashboardArgs) -> Result<(), String> {
    let cluster = arguments.scope.cluster().await?;
    let scope = if cluster.all_namespaces { Where::All } else { Where::Namespace(cluster.namespace.clone()) };
    let listener = listen(arguments.port.unwrap_or_default())?;
    let local = Local::at(&listener)?;
    let url = local.url.clone();
    let stopped = super::stopped()?;
    // No click waits for ever for an API server that does not answer.
    let client = Careful::new(&cluster.client).client();
    let source = Source::new(client.clone(), vec![scope], Arc::new(SystemClock));
    let source = Arc::new(source.typed_as(arguments.scope.connection.typed()));
    // What cannot be read is said here, and not on a page that nobody may open.
    let watched = source.look().await?;
    let serving = local.serve(tokio_listener(listener)?, client, source);
    super::print(&match arguments.output {
        None => format!(
            "Open this in a browser; whoever has the address acts with your rights:\n\n    {url}\n\nIt is served to this machine \
             only, until Ctrl-C.\n"
        ),
        Some(Output::Name) => format!("{url}\n"),
        Some(format) => format.document(&serde_json::json!({"url": url}))?,
    })?;
    if watched.all().is_empty() {
        let place = if cluster.all_namespaces {
            "any namespace".to_owned()
        } else {
            format!("namespace {}", cluster.namespace)
        };
        eprintln!("No fleets found in {place}; one that is made there is shown.");
    }
    drop(watched);
    tokio::select! {
        ended = serving => ended,
        () = stopped => Ok(()),
    }
}

/// A free port of this machine, or the one that is asked for.
pub fn listen(port: u16) -> Result<std::net::TcpListener, String> {
    bind(SocketAddr::from((Ipv4Addr::LOCALHOST, port)))
        .map_err(|error| format!("--port {port}: {error}; choose another port, or 0 for a free one"))
}

fn bind(address: SocketAddr) -> std::io::Result<std::net::TcpListener> {
    let listener = std::net::TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

pub fn tokio_listener(listener: std::net::TcpListener) -> Result<TcpListener, String> {
    TcpListener::from_std(listener).map_err(|error| format!("the page cannot be served: {error}"))
}

/// A page on this machine, which opens by its address.
pub struct Local {
    /// The address, secret and all.
    pub url: String,
    guard: Guard,
}

impl Local {
    /// The page of a listener.
    pub fn at(listener: &std::net::TcpListener) -> Result<Self, String> {
        let address = listener.local_addr().map_err(|error| format!("the port is not known: {error}"))?;
        let secrets = Secrets::draw()?;
        let url = format!("http://{address}/?token={}", secrets.token());
        Ok(Self { url, guard: Guard::local(address.port(), secrets) })
    }

    /// Serves it: what this client may read, with buttons that do what it may do.
    pub async fn serve(
        self,
        listener: TcpListener,
        client: Client,
        source: Arc<Source>,
    ) -> Result<(), String> {
        let hands = Arc::new(Own::new(client, source.clock()));
        serve(listener, source, Some(hands), self.guard).await.map_err(ended)
    }
}

#[allow(clippy::needless_pass_by_value, reason = "it is handed to map_err")]
fn ended(error: std::io::Error) -> String {
    format!("the server of the page ended: {error}")
}

/// What `windlass operator` is told of the page.
#[derive(Args, Clone, Debug)]
pub struct PageArgs {
    /// Serve the page of all fleets, read-only, to whoever reaches its address
    #[arg(long)]
    dashboard: bool,
    /// Where the page is served
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8082", requires = "dashboard")]
    dashboard_bind: SocketAddr,
    /// A name under which the page is called, beside localhost and addresses: that of an ingress, or of a Service; repeatable
    #[arg(long = "dashboard-host", value_name = "NAME", requires = "dashboard")]
    dashboard_hosts: Vec<String>,
}

impl PageArgs {
    /// Serves the page in a thread of its own, if it is asked for: drawing it is not to keep the controllers waiting.
    pub fn start(&self, namespaces: &[String]) -> Result<Option<oneshot::Receiver<String>>, String> {
        if !self.dashboard {
            return Ok(None);
        }
        let address = self.dashboard_bind;
        let listener = bind(address).map_err(|error| {
            format!("--dashboard-bind {address}: {error}; choose another address or port")
        })?;
        let scopes = match namespaces {
            [] => vec![Where::All],
            names => names.iter().cloned().map(Where::Namespace).collect(),
        };
        let guard = Guard::open(self.dashboard_hosts.clone());
        beside(async move || {
            let (client, _) = Connection::default().client(super::AGENT).await?;
            let client = Careful::new(&client).client();
            let source = Arc::new(Source::new(client, scopes, Arc::new(SystemClock)));
            serve(tokio_listener(listener)?, source, None, guard).await.map_err(ended)
        })
        .map(Some)
    }
}

/// Serves a page of a namespace beside the demo, and answers with its address.
#[cfg(feature = "demo")]
pub fn beside_demo<C>(clock: crate::clock::SharedClock, namespace: &str, client: C) -> Result<String, String>
where
    C: AsyncFnOnce() -> Result<Client, String> + Send + 'static,
{
    let listener = listen(0)?;
    let local = Local::at(&listener)?;
    let url = local.url.clone();
    let scope = Where::Namespace(namespace.to_owned());
    let told = beside(async move || {
        let client = client().await?;
        let source = Arc::new(Source::new(client.clone(), vec![scope], clock));
        local.serve(tokio_listener(listener)?, client, source).await
    });
    // Should it end, the demo goes on.
    told.map(|_| url)
}

/// Serves a page in a thread of its own, beside what this process does else. Says why, when it ends.
pub fn beside<P>(page: P) -> Result<oneshot::Receiver<String>, String>
where
    P: AsyncFnOnce() -> Result<(), String> + Send + 'static,
{
    let (tell, told) = oneshot::channel();
    let run = move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let ended = match runtime {
            Ok(runtime) => runtime.block_on(page()),
            Err(error) => Err(format!("the async runtime of the page does not start: {error}")),
        };
        // Whoever has stopped has nobody who listens.
        let _ = tell.send(ended.err().unwrap_or_else(|| "the server of the page ended".to_owned()));
    };
    std::thread::Builder::new()
        .name("page".to_owned())
        .spawn(run)
        .map_err(|error| format!("the page's thread does not start: {error}"))?;
    Ok(told)
}
