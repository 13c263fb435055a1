//! The kernel's VXLAN device, set up as upstream's gateway sets up its `vxlan-tunnel`: where a Trieste gateway would stand.

use std::net::{IpAddr, Ipv4Addr};

use anyhow::Context;
use ipnet::IpNet;
use trieste_control::api::EndpointSpec;
use trieste_vxlan::{VTEP_GATEWAYS, vtep};

use crate::netns::Namespace;
use crate::topology::ClusterPlan;

/// The device's name.
pub const DEVICE: &str = "vxlan-tunnel";
/// The port of the cables.
const PORT: u16 = 4500;

/// A cluster whose gateway is the kernel.
#[derive(Debug, Clone)]
pub struct KernelGateway {
    cluster: ClusterPlan,
    peers: Vec<ClusterPlan>,
    checksums: bool,
}

impl KernelGateway {
    /// Makes the device. Like upstream's, it sends what it does not know to all `peers`, learns nothing, and has routes to
    /// their pods in a table of their own. `checksums` says whether it fills in UDP checksums.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn start(cluster: &ClusterPlan, peers: &[&ClusterPlan], checksums: bool) -> anyhow::Result<Self> {
        let peers = peers.iter().map(|peer| (*peer).clone()).collect();
        let this = Self { cluster: cluster.clone(), peers, checksums };
        this.namespace().ip("rule add priority 100 table 100")?;
        // On a wire there are no half-made checksums and no packets of 64 KiB: a NIC finishes what the kernel leaves to it.
        // Between namespaces nobody does, and a socket gets them as they are.
        this.namespace().run("ethtool").args(["-K", "eth0", "tx", "off"]).stdout()?;
        this.make()?;
        Ok(this)
    }

    fn namespace(&self) -> &Namespace {
        &self.cluster.gateway().namespace
    }

    /// Takes the device away and makes it anew, with another address of its station: as upstream does at every start.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn make_anew(&self) -> anyhow::Result<()> {
        self.namespace().ip(&format!("link del {DEVICE}"))?;
        self.make()
    }

    fn make(&self) -> anyhow::Result<()> {
        let csum = if self.checksums { "udpcsum" } else { "noudpcsum" };
        let own = vtep_of(&self.cluster)?;
        let namespace = self.namespace();
        namespace.ip(&format!(
            "link add {DEVICE} type vxlan id 1000 dstport {PORT} nolearning {csum}\n\
             addr add {own}/8 dev {DEVICE}\n\
             link set {DEVICE} mtu 1450 up"
        ))?;
        namespace.sysctl(&[(&format!("ipv4/conf/{DEVICE}/rp_filter"), "2")])?;
        let inside = self.cluster.gateway().bridge.iter().map(IpNet::addr).find(IpAddr::is_ipv4);
        let inside = inside.context("the kernel's gateway has no IPv4 address inside")?;
        for peer in &self.peers {
            let address = peer.gateway().underlay_address().to_string();
            let fdb = ["fdb", "append", "00:00:00:00:00:00", "dev", DEVICE, "dst", &address];
            namespace.run("bridge").args(fdb).args(["self", "permanent"]).stdout()?;
            let far = vtep_of(peer)?;
            for subnet in peer.subnets().iter().filter(|subnet| subnet.addr().is_ipv4()) {
                let route = format!("{subnet} via {far} dev {DEVICE} src {inside} metric 100");
                namespace.ip(&format!("route add table 100 {route}"))?;
            }
        }
        Ok(())
    }

    /// What upstream's gateway would publish. IPv4 alone.
    ///
    /// # Errors
    /// If there is a bug here.
    pub fn endpoint(&self) -> anyhow::Result<EndpointSpec> {
        endpoint(&self.cluster.id, self.cluster.gateway().underlay_address(), &self.cluster.subnets())
    }
}

/// An Endpoint of upstream's with the cable `vxlan`.
///
/// # Errors
/// If there is a bug here.
pub fn endpoint(cluster: &str, address: IpAddr, subnets: &[IpNet]) -> anyhow::Result<EndpointSpec> {
    let subnets: Vec<_> = subnets.iter().filter(|subnet| subnet.addr().is_ipv4()).collect();
    let dashed = address.to_string().replace('.', "-");
    let spec = serde_json::json!({
        "cluster_id": cluster,
        "cable_name": format!("submariner-cable-{cluster}-{dashed}"),
        "hostname": format!("{cluster}-gw1"),
        "private_ip": address,
        "public_ip": "",
        "nat_enabled": false,
        "backend": "vxlan",
        "backend_config": {"udp-port": PORT.to_string(), "preferred-server": "false"},
        "subnets": subnets,
    });
    Ok(serde_json::from_value(spec)?)
}

/// The address of a cluster's gateway inside the tunnel.
///
/// # Errors
/// If it has no IPv4 address.
pub fn vtep_of(cluster: &ClusterPlan) -> anyhow::Result<Ipv4Addr> {
    match cluster.gateway().underlay_address() {
        IpAddr::V4(address) => Ok(vtep(VTEP_GATEWAYS, address)),
        IpAddr::V6(address) => anyhow::bail!("{address} makes no VTEP address"),
    }
}
