//! Real servers, as processes under a real control plane, during the replacement of their pods.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod cluster;
#[path = "../controlplane/mod.rs"]
mod controlplane;
mod etcd;
mod etcd_alone;
mod etcd_rolled;
mod killing;
mod marked;
mod nats;
mod nats_alone;
mod nats_rolled;
mod programs;
mod rolled;
mod writer;
