//! Which gateways have carried a flow, there and back: the packet filter of every gateway's node notes the client's port of
//! what crosses the gateway's device, and of what the gateway hands to the nodes of services by itself (IPv4 alone).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use anyhow::Context;

use super::Mesh;
use crate::netns::Namespace;

/// The table on each gateway's node.
const TABLE: &str = "lab_carriers";
/// What leaves the cluster through the gateway, and what comes in.
const DIRECTIONS: [(&str, &str); 2] = [("out", "oifname"), ("in", "iifname")];
const PROTOCOLS: [Protocol; 2] = [Protocol::Udp, Protocol::Tcp];
/// Where the inner IPv4 packet's protocol, source port and destination port are in what goes to a node, in bits from the
/// outer UDP header and bits long: UDP and VXLAN have 8 bytes each, Ethernet 14, IPv4 20.
const INNER: [&str; 3] = ["@th,312,8", "@th,400,16", "@th,416,16"];
/// What the gateway itself has sent to nodes.
const HANDED: &str = "handed";

/// A flow's protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Protocol {
    /// UDP.
    Udp,
    /// TCP.
    Tcp,
}

impl Protocol {
    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Udp => "udp",
            Self::Tcp => "tcp",
        }
    }

    /// Its number in an IP header.
    const fn number(self) -> u8 {
        match self {
            Self::Udp => 17,
            Self::Tcp => 6,
        }
    }
}

/// The notes of all gateways' nodes. They end with the lab.
#[derive(Debug)]
pub struct Carriers {
    clusters: Vec<Vec<Gateway>>,
}

/// A gateway's node.
#[derive(Debug, Clone)]
pub struct Gateway {
    /// The node's name.
    pub name: String,
    /// Its network namespace.
    pub netns: Namespace,
}

/// The way of a flow: gateways' nodes by name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Way {
    /// Out of the client's cluster, into the server's.
    pub forward: (String, String),
    /// Out of the server's cluster, into the client's.
    pub back: (String, String),
}

impl Carriers {
    /// Begins to note flows of a mesh to and from this port of TCP and UDP.
    ///
    /// # Errors
    /// If nft refuses.
    pub fn watch(mesh: &Mesh, port: u16) -> anyhow::Result<Self> {
        let gateways = |cluster: &crate::topology::ClusterPlan| {
            let gateway = |node: &crate::topology::NodePlan| Gateway {
                name: node.name.clone(),
                netns: node.namespace.clone(),
            };
            cluster.gateways().iter().map(gateway).collect()
        };
        Self::watch_all(mesh.plan.clusters.iter().map(gateways).collect(), &[port])
    }

    /// Begins to note flows to and from these ports of TCP and UDP on all gateways of two clusters.
    ///
    /// # Errors
    /// If nft refuses.
    pub fn watch_all(clusters: Vec<Vec<Gateway>>, ports_of_servers: &[u16]) -> anyhow::Result<Self> {
        let ports = ports_of_servers.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        let (mut sets, mut crosses, mut leaves) = (String::new(), String::new(), String::new());
        let mut set = |name: &str, what: &str| {
            let _ = write!(sets, " set {name} {{\n  {what}\n  flags dynamic\n  size 65535\n }}\n");
        };
        let [inner, client, server] = INNER;
        for protocol in PROTOCOLS {
            let (name, number) = (protocol.name(), protocol.number());
            for (direction, device) in DIRECTIONS {
                set(&format!("{name}_{direction}"), "type inet_service");
                for (client, server) in [("sport", "dport"), ("dport", "sport")] {
                    let note = format!("update @{name}_{direction} {{ {name} {client} }}");
                    let _ =
                        writeln!(crosses, "  {device} \"submariner\" {name} {server} {{ {ports} }} {note}");
                }
            }
            set(&format!("{name}_{HANDED}"), &format!("typeof {client}"));
            let note = format!("update @{name}_{HANDED} {{ {client} }}");
            for port in ports_of_servers {
                let _ = writeln!(leaves, "  udp dport 4800 {inner} {number} {server} {port} {note}");
            }
        }
        let chain = |hook: &str, rules: &str| {
            format!(" chain {hook} {{\n  type filter hook {hook} priority -350\n{rules} }}\n")
        };
        let chains = chain("forward", &crosses) + &chain("output", &leaves);
        for node in clusters.iter().flatten() {
            node.netns.nft(&format!("table inet {TABLE} {{\n{sets}{chains}}}\n"))?;
        }
        Ok(Self { clusters })
    }

    /// Forgets what was noted so far.
    ///
    /// # Errors
    /// If nft refuses.
    pub fn forget(&self) -> anyhow::Result<()> {
        let sets = PROTOCOLS.iter().flat_map(|protocol| {
            ["out", "in", HANDED].map(|what| format!("flush set inet {TABLE} {}_{what}\n", protocol.name()))
        });
        let script: String = sets.collect();
        self.clusters.iter().flatten().try_for_each(|node| node.netns.nft(&script))
    }

    /// The clients' ports of UDP flows that a node's gateway has carried, in either direction.
    ///
    /// # Errors
    /// If nft refuses.
    pub fn of(&self, name: &str) -> anyhow::Result<BTreeSet<u16>> {
        let node = self.clusters.iter().flatten().find(|gateway| gateway.name == name);
        let sets = noted(node.with_context(|| format!("{name} is no gateway's node"))?)?;
        let udp = sets.into_iter().filter(|(name, _)| name.starts_with(Protocol::Udp.name()));
        Ok(udp.flat_map(|(_, ports)| ports).collect())
    }

    /// The way of every flow from the cluster of this number to the other, by the client's port. A flow that has changed its
    /// way, or of which something is missing, is left out.
    ///
    /// # Errors
    /// If nft refuses.
    pub fn ways(&self, protocol: Protocol, from: usize) -> anyhow::Result<BTreeMap<u16, Way>> {
        self.ways_known_as(protocol, from, Some)
    }

    /// The same where Globalnet gives flows another port on the way: `known_as` says which, of a client's port.
    ///
    /// # Errors
    /// If nft refuses.
    pub fn ways_known_as(
        &self,
        protocol: Protocol,
        from: usize,
        known_as: impl Fn(u16) -> Option<u16>,
    ) -> anyhow::Result<BTreeMap<u16, Way>> {
        let to = usize::from(from == 0);
        let of = |cluster: usize, direction: &str| -> anyhow::Result<BTreeMap<u16, Vec<String>>> {
            let mut carriers: BTreeMap<u16, Vec<String>> = BTreeMap::new();
            for node in self.clusters.get(cluster).context("ways go between two clusters")? {
                let mut sets = noted(node)?;
                let mut ports = |what: &str| sets.remove(&format!("{}_{what}", protocol.name()));
                let mut seen = ports(direction).unwrap_or_default();
                if direction == "in" {
                    seen.extend(ports(HANDED).unwrap_or_default());
                }
                for port in seen {
                    carriers.entry(port).or_default().push(node.name.clone());
                }
            }
            Ok(carriers)
        };
        let [forward_out, forward_in] = [of(from, "out")?, of(to, "in")?];
        let [back_out, back_in] = [of(to, "out")?, of(from, "in")?];
        let one = |carriers: &BTreeMap<u16, Vec<String>>, port: &u16| match carriers.get(port)?.as_slice() {
            [name] => Some(name.clone()),
            _ => None,
        };
        let way = |port: &u16| {
            let there = known_as(*port)?;
            Some(Way {
                forward: (one(&forward_out, port)?, one(&forward_in, &there)?),
                back: (one(&back_out, &there)?, one(&back_in, port)?),
            })
        };
        Ok(forward_out.keys().filter_map(|port| Some((*port, way(port)?))).collect())
    }
}

/// What a node has noted, by set.
fn noted(node: &Gateway) -> anyhow::Result<BTreeMap<String, BTreeSet<u16>>> {
    let text = node.netns.run("nft").args(["-j", "list", "table", "inet", TABLE]).stdout()?;
    parse(&text).with_context(|| format!("nft on {} shows {text}", node.name))
}

fn parse(text: &str) -> Option<BTreeMap<String, BTreeSet<u16>>> {
    let json: serde_json::Value = serde_json::from_str(text).ok()?;
    let port = |element: &serde_json::Value| {
        let value = element.get("elem").map_or(element, |inner| &inner["val"]);
        u16::try_from(value.as_u64()?).ok()
    };
    let sets = json["nftables"].as_array()?.iter().filter_map(|entry| entry.get("set"));
    let set = |set: &serde_json::Value| {
        let elements = set.get("elem").and_then(|elements| elements.as_array()).cloned().unwrap_or_default();
        let ports: Option<BTreeSet<u16>> = elements.iter().map(port).collect();
        Some((set["name"].as_str()?.to_owned(), ports?))
    };
    sets.map(set).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_read_with_and_without_what_nft_adds_to_them() {
        let text = r#"{"nftables":[{"metainfo":{}},{"set":{"name":"udp_in"}},
            {"set":{"name":"udp_out","elem":[7,{"elem":{"val":9,"timeout":60}}]}}]}"#;
        let sets = parse(text).unwrap();
        assert_eq!(sets["udp_out"], BTreeSet::from([7, 9]));
        assert!(sets["udp_in"].is_empty());
        assert_eq!(parse("no JSON"), None);
    }
}
