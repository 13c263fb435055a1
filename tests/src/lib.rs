//! The lab: clusters as network namespaces, gateways as real processes, on one machine.
//!
//! ```text
//!  tl3f9a2c-east-gw1-pod1 ─┐ cni0            eth0 ┌────────────┐ eth0            cni0 ┌─ tl3f9a2c-west-gw1-pod1
//!                          ├── tl3f9a2c-east-gw1 ─┤ tl3f9a2c-wan ├─ tl3f9a2c-west-gw1 ──┤
//!  tl3f9a2c-east-gw1-pod2 ─┘   (gateway node)     └────bridge────┘   (gateway node)     └─ tl3f9a2c-west-gw1-pod2
//! ```
//!
//! * [`topology`] says which namespaces and addresses there are (pure); [`lab`] makes and removes them.
//! * [`registry`] remembers on disk what a lab made, so that a later run can tidy up after a crash.
//! * [`command`], [`daemon`], [`wait`] run things in namespaces, bounded in time.
//! * [`broker`] plays another member on the broker; [`cluster`] starts a cluster's gateway and route agent, [`pair`] two of them; [`peer`] starts a foreign gateway instead, [`strongswan`] one that speaks IPsec.
//! * [`mesh`] has clusters of several gateways that all run, and kills, stops, cuts off and starves them; [`flow`] measures what that costs.
//! * [`kubernetes`] has real API servers, and gateways that live on them.
//! * [`clusters`] has real clusters with kubelets and containers.
//! * [`nat`] puts address translation between a gateway and the underlay.
//! * [`capture`], [`fault`], [`traffic`] look at the wire, break it, and send things over it; [`table`] notes what was checked.
//! * [`globalnet`] has clusters with the same addresses, and looks at how each is known to the other.
//! * [`image`] is our container image, of the programs under test.
//! * [`translator`] is globalnet's translation without a gateway around it.
//! * [`fuzz`] feeds bytes that nobody sane would send to everything that reads bytes.
//! * [`demo`] is `./dev demo`.
//!
//! Everything but `fuzz` and `translator` needs root. Nothing here leaves the namespaces that it made.
#![forbid(unsafe_code)]

pub mod broker;
pub mod cables;
pub mod capture;
pub mod clock;
pub mod cluster;
pub mod clusters;
pub mod command;
pub mod daemon;
pub mod demo;
pub mod echo;
pub mod fault;
pub mod flow;
pub mod fuzz;
pub mod globalnet;
pub mod guard;
pub mod image;
mod installation;
pub mod interrupt;
pub mod kernel_vxlan;
pub mod kubernetes;
pub mod lab;
pub mod macvlan;
pub mod mesh;
pub mod nat;
pub mod netns;
pub mod ovn;
pub mod pages;
pub mod pair;
pub mod peer;
pub mod process;
pub mod programs;
pub mod registry;
pub mod strongswan;
pub mod table;
pub mod topology;
pub mod traffic;
pub mod translator;
pub mod wait;

pub use installation::put_whole;
