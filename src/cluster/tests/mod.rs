//! What is known of the cluster, and what can go wrong at the port.

mod cache;
mod client;
mod doubt;
mod error;
mod gone;
mod index;
mod managers;
mod observed;
mod refusals;
mod watch;
