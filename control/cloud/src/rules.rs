//! What has to pass, for all clouds alike.

use std::fmt;

use ipnet::IpNet;

/// The port of the route agents' VXLAN, and the one of gateways' notices beside it: by how much it is higher.
const NOTICES_BESIDE_VXLAN: u16 = 1;

/// UDP ports of a cluster. The defaults are upstream's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ports {
    /// The cables'.
    pub natt: u16,
    /// NAT discovery's.
    pub nat_discovery: u16,
    /// IKE's, for cables without UDP encapsulation.
    pub ike: u16,
    /// The route agents' VXLAN between the nodes of a cluster; 0 where the network plugin has no use for it.
    pub vxlan: u16,
}

impl Default for Ports {
    fn default() -> Self {
        Self { natt: 4500, nat_discovery: 4490, ike: 500, vxlan: 4800 }
    }
}

/// What a cluster needs of its cloud.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// Its ports.
    pub ports: Ports,
    /// Whence other clusters' gateways send, as the cloud sees them.
    pub sources: Vec<IpNet>,
    /// How many gateways; 0 leaves the choice of nodes to somebody else.
    pub gateways: usize,
    /// The type of machines that are made for gateways; `None` is the provider's default.
    pub instance: Option<String>,
    /// Whether remote gateways come through a load balancer, which has ports of its own.
    pub load_balancer: bool,
}

impl Default for Wanted {
    fn default() -> Self {
        Self {
            ports: Ports::default(),
            sources: everywhere(),
            gateways: 1,
            instance: None,
            load_balancer: false,
        }
    }
}

/// Returns the two networks that are all addresses.
pub fn everywhere() -> Vec<IpNet> {
    ["0.0.0.0/0", "::/0"].iter().filter_map(|network| network.parse().ok()).collect()
}

/// What passes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Traffic {
    /// UDP to a port.
    Udp(u16),
    /// IP protocol 50 (RFC 4303), which has no ports.
    Esp,
}

impl fmt::Display for Traffic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Udp(port) => write!(f, "UDP {port}"),
            Self::Esp => f.write_str("ESP (IP protocol 50)"),
        }
    }
}

/// From where it comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum From {
    /// A network outside.
    Network(IpNet),
    /// The cluster's own nodes.
    Nodes,
}

/// To whom it goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum To {
    /// The gateways.
    Gateways,
    /// Every node.
    Nodes,
}

/// One thing that has to pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rule {
    /// What.
    pub traffic: Traffic,
    /// From where.
    pub from: From,
    /// To whom.
    pub to: To,
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "let {} pass from ", self.traffic)?;
        match self.from {
            From::Network(network) => write!(f, "{network}")?,
            From::Nodes => f.write_str("the cluster's nodes")?,
        }
        f.write_str(match self.to {
            To::Gateways => " to the gateways",
            To::Nodes => " to the cluster's nodes",
        })
    }
}

impl Wanted {
    /// Returns what has to pass from other clusters to the gateways: cables, NAT discovery, IKE and ESP. With a load balancer the
    /// same passes between the nodes alone, for gateways of one private network; what comes from outside is the balancer's.
    ///
    /// Upstream's tool opens AH (IP protocol 51) too, which neither its programs nor ours send.
    pub fn cables(&self) -> Vec<Rule> {
        let Ports { natt, nat_discovery, ike, .. } = self.ports;
        let all = [Traffic::Udp(natt), Traffic::Udp(nat_discovery), Traffic::Udp(ike), Traffic::Esp];
        let mut sources: Vec<From> =
            self.sources.iter().map(|network| From::Network(network.trunc())).collect();
        let mut to = To::Gateways;
        if self.load_balancer {
            sources = vec![From::Nodes];
            to = To::Nodes;
        }
        let is_port = |traffic: &Traffic| *traffic != Traffic::Udp(0);
        let pairs = all
            .into_iter()
            .filter(is_port)
            .flat_map(|traffic| sources.iter().map(move |from| (traffic, *from)));
        distinct(pairs.map(|(traffic, from)| Rule { traffic, from, to }).collect())
    }

    /// Returns what has to pass between the nodes of a cluster: the route agents' VXLAN, and the notices of gateways where a
    /// cluster has several active ones.
    pub fn inside(&self) -> Vec<Rule> {
        let vxlan = self.ports.vxlan;
        if vxlan == 0 {
            return Vec::new();
        }
        let ports = [Some(vxlan), vxlan.checked_add(NOTICES_BESIDE_VXLAN)];
        let rule = |port: u16| Rule { traffic: Traffic::Udp(port), from: From::Nodes, to: To::Nodes };
        ports.into_iter().flatten().map(rule).collect()
    }
}

fn distinct(mut rules: Vec<Rule>) -> Vec<Rule> {
    let mut seen = std::collections::HashSet::new();
    rules.retain(|rule| seen.insert(*rule));
    rules
}
