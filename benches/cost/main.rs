//! What Windlass costs, measured on the real control plane of the tests with the release binary: writes are
//! counted in the API server's audit log, times are taken side by side with the StatefulSet controller.
//!
//! ```text
//! cargo bench --bench cost -- steady         ten minutes over steady fleets, and a restart of the operator
//! cargo bench --bench cost -- rollout        writes a node in a rollout of 300 nodes
//! cargo bench --bench cost -- side-by-side   a rollout of 100 nodes, beside a StatefulSet of 100 pods
//! cargo bench --bench cost -- scale          1,000 nodes made and rolled
//! cargo bench --bench cost -- memory         what the operator needs for 1,000 nodes with a real template: memory, CPU, calls
//! cargo bench --bench cost -- memory-simulated   for 10,000, on the simulated cluster
//! cargo bench --bench cost -- ten-thousand   for 10,000, on the real control plane: an hour
//! cargo bench --bench cost -- at-rest        for 10,000, which are created there and not rolled: half an hour
//! ```
//!
//! docs/dev/cost.md holds what it printed, and on which machine.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a measurement fails by panicking"
)]

mod bare;
mod counts;
mod cpu;
mod memory;
mod rollout;
mod side_by_side;
mod simulated;
mod steady;
mod template;
mod watched;

use std::time::Duration;

use windlass_harness::operated;

const USAGE: &str = "usage: cargo bench --bench cost -- steady [MINUTES] | rollout [NODES] | side-by-side [ROUNDS] | scale [NODES] | memory [NODES] | \
     memory-simulated [NODES] | ten-thousand [NODES] | at-rest [NODES]";

#[tokio::main]
async fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    // `cargo test --all-targets` runs benchmarks too, without this flag.
    if !arguments.iter().any(|a| a == "--bench") {
        return;
    }
    let words: Vec<&str> = arguments.iter().map(String::as_str).filter(|a| *a != "--bench").collect();
    let number = |default: u32| words.get(1).map_or(Ok(default), |word| word.parse());
    let asked = match words.first() {
        Some(&"steady") => number(10).map(Mode::Steady),
        Some(&"rollout") => number(300).map(Mode::Rollout),
        Some(&"side-by-side") => number(3).map(Mode::SideBySide),
        Some(&"memory") => number(1000).map(Mode::Memory),
        Some(&"memory-simulated") => number(10_000).map(Mode::MemorySimulated),
        Some(&"ten-thousand") => number(10_000).map(Mode::TenThousand),
        Some(&"at-rest") => number(10_000).map(Mode::AtRest),
        Some(&"scale") => number(1000).map(Mode::Rollout),
        _ => panic!("{USAGE}"),
    };
    println!("load before: {}", operated::load());
    match asked.unwrap_or_else(|e| panic!("{e}; {USAGE}")) {
        Mode::Steady(minutes) => steady::measure(minutes).await,
        Mode::Rollout(nodes) => rollout::measure(nodes, "10%").await,
        Mode::Memory(nodes) => memory::measure(nodes, true, Duration::from_mins(1)).await,
        Mode::MemorySimulated(nodes) => simulated::measure(nodes).await,
        Mode::TenThousand(nodes) => memory::measure(nodes, true, Duration::from_mins(10)).await,
        Mode::AtRest(nodes) => memory::measure(nodes, false, Duration::from_mins(10)).await,
        Mode::SideBySide(rounds) => Box::pin(side_by_side::measure(rounds)).await,
    }
    println!("load after: {}", operated::load());
}

enum Mode {
    Steady(u32),
    Rollout(u32),
    Memory(u32),
    MemorySimulated(u32),
    TenThousand(u32),
    AtRest(u32),
    SideBySide(u32),
}
