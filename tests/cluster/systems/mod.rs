//! Real servers, as processes under a real control plane, during the replacement of their pods.

mod etcd_alone;
mod etcd_rolled;
mod killing;
mod marked;
mod nats_alone;
mod nats_rolled;
mod rolled;
