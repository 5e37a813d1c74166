//! A proxy to the API server that can become silent: it accepts and acknowledges, but forwards nothing, like a
//! machine behind a failed switch. It does not terminate TLS, so that it knows connections and no requests.
#![allow(clippy::disallowed_methods, reason = "what happens in other processes goes by the real clock")]

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use windlass_harness::kit::World;

/// A proxy on a free port of the loopback address, until dropped.
pub struct Proxy {
    state: Arc<State>,
    accepting: JoinHandle<()>,
}

#[derive(Default)]
struct State {
    connections: Mutex<Vec<Connection>>,
    swallows_new: AtomicBool,
}

struct Connection {
    silent: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl Proxy {
    /// A proxy to the API server, for the operator of this world.
    pub async fn before(world: &mut World) -> Self {
        let server = world.cp.server().to_owned();
        let address = server.trim_start_matches("https://").to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let port = listener.local_addr().expect("an address").port();
        let state = Arc::<State>::default();
        let told = state.clone();
        let accepting = tokio::spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
                let silent = watch::Sender::new(told.swallows_new.load(Ordering::SeqCst));
                let task = tokio::spawn(pass(near, address.clone(), silent.subscribe()));
                told.connections.lock().unwrap().push(Connection { silent, task });
            }
        });
        let direct = std::fs::read_to_string(&world.kubeconfig).expect("a kubeconfig");
        let path: PathBuf = world.kubeconfig.with_extension(format!("through-{port}"));
        std::fs::write(&path, direct.replace(&server, &format!("https://127.0.0.1:{port}"))).expect("a file");
        world.kubeconfig = path;
        Self { state, accepting }
    }

    /// Silences all connections, present and future.
    pub fn swallow_all(&self) {
        self.state.swallows_new.store(true, Ordering::SeqCst);
        self.each(|connection| connection.silent.send_replace(true));
    }

    /// New connections work again; silenced ones stay so.
    pub fn heal(&self) {
        self.state.swallows_new.store(false, Ordering::SeqCst);
    }

    fn each<T>(&self, of: impl Fn(&Connection) -> T) -> Vec<T> {
        self.state.connections.lock().unwrap().iter().map(of).collect()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.accepting.abort();
        self.each(|connection| connection.task.abort());
    }
}

async fn pass(near: TcpStream, address: String, silent: watch::Receiver<bool>) {
    let Ok(far) = TcpStream::connect(address).await else { return };
    let (near_in, near_out) = near.into_split();
    let (far_in, far_out) = far.into_split();
    let out = pump(near_in, far_out, silent.clone());
    let back = pump(far_in, near_out, silent);
    tokio::join!(out, back);
}

/// Forwards bytes, except while silent: then not even a close.
async fn pump(
    mut from: impl AsyncReadExt + Unpin,
    mut to: impl AsyncWriteExt + Unpin,
    mut silent: watch::Receiver<bool>,
) {
    let mut buffer = vec![0; 16 << 10];
    while let Ok(count) = from.read(&mut buffer).await {
        if silent.wait_for(|silent| !silent).await.is_err() || count == 0 {
            break;
        }
        if to.write_all(&buffer[..count]).await.is_err() {
            break;
        }
    }
    let _ = to.shutdown().await;
}
