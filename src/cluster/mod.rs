//! What the controllers of fleets keep about the cluster beside the caches of the port (`crates/kube-port`), which this
//! module passes on.

#[cfg(test)]
pub use windlass_kube_port::MockCluster;
pub use windlass_kube_port::{
    Cluster, ClusterError, EventNote, Key, Kind, KubeCluster, LivePod, Part, PatchOp, Selector, Target, View,
    client, observed, port, view, watch,
};
