//! A stand-in for kube-proxy and a network plugin: what they do to packets, in nftables.

use std::fmt::Write as _;
use std::net::{Ipv4Addr, SocketAddrV4};

use ipnet::IpNet;

use crate::netns::Namespace;

/// Port of the services.
pub const PORT: u16 = 80;

/// A service: [`PORT`] of its address leads to its back end, TCP and UDP.
#[derive(Debug, Clone, Copy)]
pub struct Service {
    /// Its cluster IP.
    pub address: Ipv4Addr,
    /// Where its only pod answers.
    pub to: SocketAddrV4,
}

/// Loads it on a node. As on real ones, what leaves the cluster is masqueraded, and what comes from outside for a service as
/// well, unless somebody prevents it.
///
/// # Errors
/// If nft refuses it.
pub fn load(node: &Namespace, pods: &IpNet, services: &[Service]) -> anyhow::Result<()> {
    node.nft(&script(pods, services))
}

fn script(pods: &IpNet, services: &[Service]) -> String {
    let mut rules = String::new();
    for Service { address, to } in services {
        let _ = writeln!(
            rules,
            "    ip daddr {address} meta l4proto {{ tcp, udp }} th dport {PORT} dnat ip to {to}"
        );
    }
    format!(
        "table ip proxy {{\n\
         \x20 chain arriving {{\n    type nat hook prerouting priority dstnat;\n{rules}  }}\n\
         \x20 chain own {{\n    type nat hook output priority -100;\n{rules}  }}\n\
         \x20 chain leaving {{\n    type nat hook postrouting priority srcnat;\n\
         \x20   ip saddr {pods} ip daddr != {pods} masquerade\n\
         \x20   ip saddr != {pods} ct status dnat masquerade\n  }}\n}}\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_is_translated_for_pods_and_for_the_node_itself() {
        let service = Service { address: [10, 101, 0, 9].into(), to: "10.1.1.10:7000".parse().unwrap() };
        let script = script(&"10.1.0.0/16".parse().unwrap(), &[service]);
        assert_eq!(script.matches("dnat ip to 10.1.1.10:7000").count(), 2, "{script}");
    }
}
