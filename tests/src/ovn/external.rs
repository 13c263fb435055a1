//! The node's own way out, as in OVN-Kubernetes' local gateway mode: the gateway router meets the node on a bridge.
//!
//! ```text
//!   GR_NODE .2 ┐
//!              ├─ logical switch ext_NODE ─ localnet port ─ bridge br-local (.1, the node) ─ the node's routes
//!   (somebody) ┘
//! ```

use std::fmt::Write as _;

use ipnet::IpNet;

use super::{JOIN, OvnNode};
use crate::topology::ClusterPlan;

/// The bridge.
pub const BRIDGE: &str = "br-local";
/// The node's addresses on it.
const NODE: [&str; 2] = ["169.254.33.1/24", "fd33::1/64"];
/// The gateway router's.
const ROUTER: [&str; 2] = ["169.254.33.2", "fd33::2"];

impl OvnNode {
    /// Makes it. What leaves the cluster by it is masqueraded, as OVN-Kubernetes' gateway router and node do together.
    ///
    /// # Errors
    /// What the programs say.
    pub fn add_external(&self, cluster: &ClusterPlan) -> anyhow::Result<()> {
        self.vsctl(&["add-br", BRIDGE, "--", "set", "bridge", BRIDGE, "datapath_type=netdev"])?;
        let mappings = format!("external_ids:ovn-bridge-mappings=physnet:{BRIDGE}");
        self.vsctl(&["set", "Open_vSwitch", ".", &mappings])?;
        let mut lines = format!("link set {BRIDGE} up\n");
        for address in NODE {
            let nodad = if address.contains(':') { " nodad" } else { "" };
            let _ = writeln!(lines, "addr add {address} dev {BRIDGE}{nodad}");
        }
        self.namespace().ip(&lines)?;
        // As some distributions have it, although the node's own route to pods is another one.
        self.namespace().sysctl(&[("ipv4/conf/br-local/rp_filter", "1")])?;
        self.namespace().nft(
            "table inet local-gateway {\n  chain leaving {\n    type nat hook postrouting priority srcnat;\n\
             \x20   iifname br-local masquerade\n  }\n}\n",
        )?;
        self.add_external_switch(cluster)
    }

    fn add_external_switch(&self, cluster: &ClusterPlan) -> anyhow::Result<()> {
        let (node, [v4, v6]) = (&self.node.name, ROUTER);
        let mut lines = vec![
            format!("ls-add ext_{node}"),
            format!("lsp-add ext_{node} {BRIDGE}_{node}"),
            format!("lsp-set-type {BRIDGE}_{node} localnet"),
            format!("lsp-set-addresses {BRIDGE}_{node} unknown"),
            format!("lsp-set-options {BRIDGE}_{node} network_name=physnet"),
            format!("lrp-add GR_{node} rtoe-GR_{node} 0a:58:a9:fe:21:02 {v4}/24 {v6}/64"),
            format!("lsp-add ext_{node} etor-GR_{node}"),
            format!("lsp-set-type etor-GR_{node} router"),
            format!("lsp-set-addresses etor-GR_{node} router"),
            format!("lsp-set-options etor-GR_{node} router-port=rtoe-GR_{node}"),
        ];
        for (is_ipv6, all, out, join) in
            [(false, "0.0.0.0/0", NODE[0], JOIN[0]), (true, "::/0", NODE[1], JOIN[1])]
        {
            let out = out.split('/').next().unwrap_or_default();
            lines.push(format!("lr-route-add GR_{node} {all} {out} rtoe-GR_{node}"));
            let own = cluster.pod_cidrs.iter().filter(|network| network.addr().is_ipv6() == is_ipv6);
            lines.extend(own.map(|network| format!("lr-route-add GR_{node} {network} {join}1")));
        }
        self.nbctl_lines(&lines)?;
        self.nbctl(&["--wait=hv", "sync"]).map(drop)
    }

    /// Makes the gateway router the source of what leaves by it, so that a strict reverse path filter lets it pass.
    pub(super) fn add_source(&self, cluster: &ClusterPlan) -> anyhow::Result<()> {
        let node = &self.node.name;
        let line = |network: &IpNet| {
            let [v4, v6] = ROUTER;
            let source = if network.addr().is_ipv4() { v4 } else { v6 };
            format!("lr-nat-add GR_{node} snat {source} {network}")
        };
        self.nbctl_lines(&cluster.pod_cidrs.iter().map(line).collect::<Vec<_>>())?;
        self.nbctl(&["--wait=hv", "sync"]).map(drop)
    }
}
