//! `windlass demo` as a user runs it: the binary, its standard output, and an unmodified kubectl.

mod kit;
mod kubectl;
mod output;
