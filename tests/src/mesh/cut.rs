//! Cutting a node off without a word to its kernel: its links stay up, packets vanish on the wire.

use super::Mesh;
use crate::fault::Fault;
use crate::topology::NodePlan;

/// What vanishes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cut {
    /// Everything to and from the node: its pods are cut off too.
    Node,
    /// What goes between the node and the other clusters' nodes; its own cluster still reaches it.
    Uplink,
    /// What the other clusters' nodes send to it.
    Deaf,
    /// What it sends to the other clusters' nodes.
    Mute,
}

impl Mesh {
    /// Cuts a node off until the fault is dropped. Both directions end at the same moment.
    ///
    /// # Errors
    /// If nft refuses.
    pub fn cut(&self, node: &NodePlan, cut: Cut) -> anyhow::Result<Fault> {
        let (to_node, from_node) = (self.others(node, "saddr"), self.others(node, "daddr"));
        let all = || "counter drop".to_owned();
        // Seen from the WAN: what its port towards the node lets out goes to the node.
        let (arriving, leaving) = match cut {
            Cut::Node => (all(), all()),
            Cut::Uplink => (from_node, to_node),
            Cut::Deaf => (String::new(), to_node),
            Cut::Mute => (from_node, String::new()),
        };
        Fault::around(&self.plan.wan, node.wan_port(), &arriving, &leaving)
    }

    /// Drops what comes from, or goes to, the nodes of other clusters.
    fn others(&self, node: &NodePlan, side: &str) -> String {
        let is_other = |nodes: &[NodePlan]| nodes.iter().all(|other| other.name != node.name);
        let others = self.plan.clusters.iter().filter(|cluster| is_other(&cluster.nodes));
        let mut rules = String::new();
        for address in others.flat_map(|cluster| &cluster.nodes).flat_map(|node| &node.underlay) {
            let family = if address.addr().is_ipv4() { "ip" } else { "ip6" };
            rules += &format!("{family} {side} {} counter drop\n  ", address.addr());
        }
        rules
    }

    /// Takes the node's cable out of the WAN's switch, so that the node's kernel sees it, until the fault is dropped.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn unplug(&self, node: &NodePlan) -> anyhow::Result<Fault> {
        Fault::link_down(&self.plan.wan, node.wan_port())
    }
}
