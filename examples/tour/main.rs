//! A fleet of five is rolled before your eyes, on a real control plane.
//!
//! ```text
//! cargo run --example tour              # a minute, then everything is taken down
//! cargo run --example tour -- --stay    # the cluster and the operator stay until Ctrl-C
//! ```

#[path = "../../tests/controlplane/mod.rs"]
mod controlplane;
mod picture;
mod stage;
mod story;

use std::process::ExitCode;

const USAGE: &str = "usage: tour [--stay]    (--stay: the cluster and the operator stay until Ctrl-C)";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let stay = match arguments.as_slice() {
        // The tour runs itself again as the operator, in a process of its own that it can kill.
        ["operator", ..] => {
            std::thread::spawn(end_with_the_tour);
            return windlass::cli::main();
        }
        [] => false,
        ["--stay"] => true,
        ["--help" | "-h"] => {
            println!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    let told = tokio::runtime::Runtime::new()
        .map_err(controlplane::Error::from)
        .and_then(|runtime| runtime.block_on(story::tell(stay)));
    match told {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("tour: {error}");
            ExitCode::FAILURE
        }
    }
}

/// The tour holds the other end of the operator's standard input: it closes however the tour ends.
fn end_with_the_tour() {
    let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
    std::process::exit(0);
}
