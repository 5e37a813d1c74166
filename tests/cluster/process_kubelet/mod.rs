//! The kubelet that runs processes, on the real control plane, beside the played kubelets.

mod environment;
mod growth;
mod kit;
mod logs;
mod order;
mod owners;
mod probes;
mod stopping;
