//! Zones of one node each, as OVN-Kubernetes' interconnect makes them: each has its own databases, and in them a switch that all
//! zones have in common, with a port of its own node's router and one for each other node.
//!
//! ```text
//!   pod ─ switch ─ ovn_cluster_router ─ transit_switch ─ Geneve ─ transit_switch ─ ovn_cluster_router ─ switch ─ pod
//!   zone of one node ──────────────────────────────────┘        └───────────────────────────── zone of another
//! ```

use super::OvnNode;

/// The switch, and its number in all databases, as OVN-Kubernetes has them.
const SWITCH: &str = "transit_switch";
const KEY: u32 = 16_711_683;

/// Returns a node's addresses on the switch.
pub(super) fn transit(number: usize) -> [String; 2] {
    [format!("100.88.0.{number}"), format!("fd97::{number}")]
}

/// Makes each node's zone reach all others.
pub(super) fn connect(nodes: &[OvnNode]) -> anyhow::Result<()> {
    for own in nodes {
        own.vsctl(&["set", "Open_vSwitch", ".", "external_ids:ovn-is-interconn=true"])?;
        own.add_transit_switch()?;
        for other in nodes.iter().filter(|other| other.number != own.number) {
            own.add_remote(other)?;
        }
    }
    nodes.iter().try_for_each(|node| node.nbctl(&["--wait=hv", "sync"]).map(drop))
}

/// Returns the MAC and the addresses of a node's port on the switch.
fn addresses(number: usize) -> String {
    let [v4, v6] = transit(number);
    format!("0a:58:64:58:00:{number:02x} {v4}/16 {v6}/64")
}

impl OvnNode {
    fn add_transit_switch(&self) -> anyhow::Result<()> {
        let (node, number) = (&self.node.name, self.number);
        self.nbctl_lines(&[
            format!("ls-add {SWITCH}"),
            format!("set Logical_Switch {SWITCH} other_config:interconn-ts={SWITCH} other_config:requested-tnl-key={KEY}"),
            format!("lrp-add ovn_cluster_router rtots-{node} {}", addresses(number)),
        ])?;
        self.connect(SWITCH, &format!("tstor-{node}"), &format!("rtots-{node}"))?;
        self.nbctl(&[
            "set",
            "Logical_Switch_Port",
            &format!("tstor-{node}"),
            &format!("options:requested-tnl-key={number}"),
        ])
        .map(drop)
    }

    /// Adds another node: its port, its chassis, and routes to its pods.
    fn add_remote(&self, other: &Self) -> anyhow::Result<()> {
        let (node, number) = (&other.node.name, other.number);
        let port = format!("tstor-{node}");
        self.sbctl(&["chassis-add", node, "geneve", &other.geneve_address()])?;
        self.sbctl(&["set", "Chassis", node, "other_config:is-remote=true"])?;
        self.nbctl(&[
            "lsp-add",
            SWITCH,
            &port,
            "--",
            "lsp-set-type",
            &port,
            "remote",
            "--",
            "lsp-set-addresses",
            &port,
            &addresses(number),
            "--",
            "lsp-set-options",
            &port,
            &format!("requested-tnl-key={number}"),
            &format!("requested-chassis={node}"),
        ])?;
        let mut lines = Vec::new();
        for network in &other.node.bridge {
            let [v4, v6] = transit(number);
            let way = if network.addr().is_ipv4() { v4 } else { v6 };
            lines.push(format!("lr-route-add ovn_cluster_router {} {way}", network.trunc()));
        }
        self.nbctl_lines(&lines)?;
        self.nbctl(&["--wait=sb", "sync"])?;
        let chassis =
            self.sbctl(&["--bare", "--columns=_uuid", "find", "Chassis", &format!("name={node}")])?;
        self.sbctl(&["set", "Port_Binding", &port, &format!("chassis={}", chassis.trim())]).map(drop)
    }
}
