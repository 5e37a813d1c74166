//! What the controllers of fleets keep about the cluster beside the caches of the port (`crates/kube-port`), which this
//! module passes on.

pub mod live_pods;
pub mod memory;
pub mod remembered;

pub use memory::Memory;
#[cfg(test)]
pub use windlass_kube_port::MockCluster;
pub use windlass_kube_port::{
    Cluster, ClusterError, EventNote, Key, Kind, KubeCluster, LivePod, Part, PatchOp, Selector, Target, View,
    client, observed, port, view, watch,
};
