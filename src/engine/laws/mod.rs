//! The engine's laws, as tests over task types that exist only here.

mod executor;
mod tasks;
