//! Real servers, as processes under a real control plane, during the replacement of their pods.

mod etcd_held;
mod etcd_rolled;
mod nats_rolled;
mod rolled;
