//! Real servers, as processes under a real control plane.

pub mod cluster;
pub mod etcd;
pub mod nats;
pub mod programs;
pub mod writer;
