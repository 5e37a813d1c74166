//! Tests of the caches, the client, and the errors of the port.

mod cache;
mod client;
mod deleted;
mod doubt;
mod error;
mod index;
mod managers;
mod observed;
mod refusals;
mod watch;
