//! The `windlass` binary.

fn main() -> std::process::ExitCode {
    windlass::cli::main()
}
