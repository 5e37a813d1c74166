//! The servers in pods, built from pinned Go modules and cached like the control plane's binary.

use windlass_process_kubelet::{Image, Images};

use crate::controlplane::{Error, GoProgram};

/// The images of etcd before and after a rollout.
pub const ETCD: [&str; 2] = ["registry.example/etcd:3.6.15", "registry.example/etcd:3.6.16"];

const BEFORE: GoProgram = GoProgram {
    name: "etcd-3.6.15",
    told: "etcd 3.6.15",
    module: "tests/harness/src/systems/go/etcd",
    modfile: Some("before.mod"),
    cgo: false,
    package: ".",
};
const AFTER: GoProgram = GoProgram { name: "etcd-3.6.16", told: "etcd 3.6.16", modfile: None, ..BEFORE };

/// Adds etcd in both versions, each with etcdctl.
pub fn add_etcd(images: &Images) -> Result<(), Error> {
    for (name, program) in ETCD.into_iter().zip([BEFORE, AFTER]) {
        let path = program.path()?;
        images.add(name, Image::of("etcd", &path).program("etcdctl", &path));
    }
    Ok(())
}

/// Adds Windlass itself, which is the sidecar of the sample fleets, at this path.
pub fn add_windlass(images: &Images, path: impl Into<std::path::PathBuf>) {
    images.add("registry.example/windlass:0.1.0", Image::of("windlass", path));
}

/// The image of the NATS server.
pub const NATS: &str = "registry.example/nats:2.15.2";

const SERVER: GoProgram = GoProgram {
    name: "nats-server",
    told: "nats-server 2.15.2",
    module: "tests/harness/src/systems/go/nats",
    modfile: None,
    cgo: false,
    package: "github.com/nats-io/nats-server/v2",
};
const LAMEDUCK: GoProgram = GoProgram {
    name: "lameduck",
    told: "what takes NATS servers into lame duck mode",
    package: ".",
    ..SERVER
};

/// Adds the NATS server, and the command for its lame duck mode.
pub fn add_nats(images: &Images) -> Result<(), Error> {
    images.add(NATS, Image::of("nats-server", SERVER.path()?).program("lameduck", LAMEDUCK.path()?));
    Ok(())
}
