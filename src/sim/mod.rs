//! What stands in for the parts of a cluster that a bare machine does not have.

pub mod kubelet;
