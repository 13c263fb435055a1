//! Real clusters: kube-apiserver, controllers, scheduler, kubelet, containerd, kube-proxy and CoreDNS, each node a set of
//! namespaces of this machine. No container engine, no registry.
//!
//! ```text
//!  east-1 (control plane, worker) ─┐                                            ┌─ west-1 (control plane, worker)
//!                                  ├─ br-east ─ tl3f9a2c-fabric, routes ─ br-west ─┤
//!  east-2 (worker) ────────────────┘                                            └─ west-2 (worker)
//! ```
//!
//! The fabric routes between nodes; it knows no pods and no services. Pods that leave their cluster are masqueraded by
//! their node, as an ip-masq-agent does it. Between the nodes of one cluster, pod prefixes are routed statically.
//!
//! * [`ClusterShape`] says what to build, [`Clusters::up`] builds it, [`Cluster`] and [`Node`] are what one works with.
//! * [`Pod`] is a pod to send traffic from or to.
//!
//! The programs and images are built by `tests/peers/kubernetes`, once, outside of the tree; `node.sh` there is what runs
//! as the first process of a node.

mod audit;
mod certificates;
mod cluster;
mod explain;
mod fabric;
mod footprint;
mod groups;
mod images;
mod limits;
mod names;
mod node;
mod plan;
mod programs;
mod set;
mod site;
mod witness;
mod workload;

pub use audit::Request;
pub use cluster::Cluster;
pub(crate) use cluster::condition;
pub use fabric::Clusters;
pub use footprint::Footprint;
pub use names::{Asker, C_LIBRARIES, RELOADED};
pub use node::Node;
pub use plan::{ClusterShape, ProxyMode};
pub use set::{ClusterSet, MEMBER};
pub use site::{HEADLESS as GLOBALNET_HEADLESS, globalnet_site};
pub use witness::{Cost, Costs, PodFlow, Witness, seen_within, worst};
pub use workload::{Pod, PodShape, RESPONDER_PORT, TOOLS_IMAGE};
