//! The server and the worker, built from pinned Go modules and cached like the control plane's binary.

use crate::controlplane::GoProgram;

/// Temporal's four services in one process.
pub const SERVER: GoProgram = GoProgram {
    name: "temporal-server",
    told: "the Temporal server 1.32.1, which is 400 s of CPU on a cold cache",
    module: "tests/harness/src/temporal/server",
    modfile: None,
    cgo: false,
    package: ".",
};

/// A versioned worker.
pub const WORKER: GoProgram = GoProgram {
    name: "temporal-worker",
    told: "a worker of Temporal",
    module: "tests/harness/src/temporal/worker",
    modfile: None,
    cgo: false,
    package: ".",
};
