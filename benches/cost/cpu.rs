//! The CPU time of the control plane's processes, from /proc/PID/stat.

use std::time::Duration;

use windlass_harness::operated::World;

/// How long after a rollout its late work, mostly events, is done.
pub const SETTLE: Duration = Duration::from_secs(6);
/// Ticks per second in /proc.
const TICKS: f64 = 100.0;

/// CPU seconds of each process.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cpu {
    pub api_server: f64,
    pub etcd: f64,
    pub controllers: f64,
    pub operator: f64,
}

impl Cpu {
    /// The CPU time of each process since its start.
    pub fn now(world: &World) -> Self {
        let of = |part: &str| world.cp.pids().get(part).map_or(0.0, |pid| seconds(*pid));
        Self {
            api_server: of("kube-apiserver"),
            etcd: of("etcd"),
            controllers: of("kube-controller-manager") + of("kube-scheduler"),
            operator: world.cpu_seconds(),
        }
    }

    /// The CPU time of each process per second at rest.
    pub async fn at_rest(world: &World) -> Self {
        let (began, over) = (Self::now(world), Duration::from_secs(10));
        tokio::time::sleep(over).await;
        Self::now(world).less(&began, 1.0).times(1.0 / over.as_secs_f64())
    }

    /// The CPU time since `before`, without that of this many seconds at rest.
    pub fn since(world: &World, before: &Self, rest: &Self, seconds: f64) -> Self {
        Self::now(world).less(before, 1.0).less(rest, seconds)
    }

    fn less(self, other: &Self, times: f64) -> Self {
        let with = |own: f64, its: f64| (own - its * times).max(0.0);
        Self {
            api_server: with(self.api_server, other.api_server),
            etcd: with(self.etcd, other.etcd),
            controllers: with(self.controllers, other.controllers),
            operator: with(self.operator, other.operator),
        }
    }

    fn times(self, factor: f64) -> Self {
        Self {
            api_server: self.api_server * factor,
            etcd: self.etcd * factor,
            controllers: self.controllers * factor,
            operator: self.operator * factor,
        }
    }
}

impl std::fmt::Display for Cpu {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { api_server, etcd, controllers, operator } = self;
        write!(
            f,
            "API server {api_server:.2} s, etcd {etcd:.2} s, controllers {controllers:.2} s, operator {operator:.2} s"
        )
    }
}

/// The CPU time of a process, user and system.
fn seconds(pid: u32) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let mut fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace().skip(11);
    let mut ticks = || fields.next().and_then(|field| field.parse::<f64>().ok()).unwrap_or_default();
    (ticks() + ticks()) / TICKS
}
