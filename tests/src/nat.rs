//! Network address translation between a cluster's nodes and the underlay: a namespace of its own, nftables.
//!
//! ```text
//!   east-gw1 eth0 ──┬── in0  ID-nat-east  eth0 ───────── br0 (WAN)
//!   192.168.S.2     │  192.168.S.1            172.31.C.200
//!   east-gw2 eth0 ──┤                         172.31.C.201
//!   192.168.S.3     :                         one for each gateway
//! ```
//! `S` is the site, chosen by the caller: two clusters of one site have the same private addresses. `C` is the
//! cluster's number. Each gateway has an address outside, as clouds give them; other nodes have the first one. IPv4
//! alone.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::AsRawFd as _;
use std::time::{Duration, Instant};

use anyhow::Context;
use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, recv, send, socket};

use crate::interrupt;
use crate::lab::Lab;
use crate::netns::{self, Namespace};
use crate::topology::Plan;

/// How a NAT treats a gateway's two ports, 4490 and 4500.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Style {
    /// Whether what comes from outside to these ports is forwarded to the gateway; else nothing gets in that is no
    /// answer.
    pub forwards: bool,
    /// Whether what goes out gets another source port, a random one for each destination.
    pub rewrites: bool,
}

impl Style {
    /// One to one: ports are forwarded and kept.
    pub const FORWARDED: Self = Self { forwards: true, rewrites: false };
    /// Masquerade alone: ports are kept, and nothing gets in that is no answer.
    pub const HIDDEN: Self = Self { forwards: false, rewrites: false };
    /// Masquerade with other ports: nobody outside knows where to send to before the gateway has sent something.
    pub const REWRITTEN: Self = Self { forwards: false, rewrites: true };
}

/// A NAT in front of a cluster's nodes.
#[derive(Debug, Clone)]
pub struct Nat {
    namespace: Namespace,
    style: Style,
    site: u8,
    /// Of each gateway, in the plan's order.
    outside: Vec<IpAddr>,
    /// Whether there is a link to another site.
    is_joined: bool,
}

impl Nat {
    /// Puts a NAT between a cluster's nodes and the underlay, and gives the nodes their addresses behind it, also in the
    /// plan. To be called before anything is started.
    ///
    /// # Errors
    /// If there is no such cluster, the underlay has IPv6, or the kernel refuses.
    pub fn put(lab: &Lab, plan: &mut Plan, cluster: &str, style: Style, site: u8) -> anyhow::Result<Self> {
        let (wan, mtu) = (plan.wan.clone(), plan.underlay_mtu());
        let index = plan.clusters.iter().position(|other| other.id == cluster).context("no such cluster")?;
        let number = index + 1;
        let gateways = plan.clusters[index].gateways().len();
        let outside = (200..).take(gateways).map(|host| format!("172.31.{number}.{host}").parse());
        let nat = Self {
            namespace: lab.namespace(&format!("nat-{cluster}"))?,
            style,
            site,
            outside: outside.collect::<Result<_, _>>()?,
            is_joined: false,
        };
        nat.namespace.sysctl(&[("ipv4/ip_forward", "1")])?;
        let name = nat.namespace.name();
        netns::ip(&format!(
            "link add eth0 netns {name} type veth peer name nat{number} netns {}",
            wan.name()
        ))?;
        wan.ip(&format!("link set nat{number} mtu {mtu} master br0 up"))?;
        let addresses: String =
            nat.outside.iter().map(|outside| format!("addr add {outside}/16 dev eth0\n")).collect();
        nat.namespace.ip(&format!(
            "link add in0 type bridge\nlink set in0 mtu {mtu} up\naddr add 192.168.{site}.1/24 dev in0\n\
             link set eth0 mtu {mtu} up\n{addresses}"
        ))?;
        for (position, node) in plan.clusters[index].nodes.iter_mut().enumerate() {
            anyhow::ensure!(node.underlay.len() == 1, "a NAT's underlay speaks IPv4 alone");
            let (port, address) = (node.wan_port().to_owned(), nat.inside(position));
            wan.ip(&format!("link set {port} nomaster\nlink set {port} netns {name}\n"))?;
            nat.namespace.ip(&format!("link set {port} mtu {mtu} master in0 up"))?;
            node.namespace.ip(&format!(
                "addr flush dev eth0\naddr add {address}/24 dev eth0\nroute add default via 192.168.{site}.1\n"
            ))?;
            node.underlay = vec![format!("{address}/24").parse()?];
        }
        nat.translate()?;
        Ok(nat)
    }

    /// A gateway's address outside, its public one; gateways count from 0.
    ///
    /// # Panics
    /// If there is none.
    pub fn outside(&self, gateway: usize) -> IpAddr {
        self.outside[gateway]
    }

    /// A node's address behind it.
    fn inside(&self, node: usize) -> String {
        format!("192.168.{}.{}", self.site, node + 2)
    }

    /// Where it is.
    pub fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    /// Joins two sites by a link of their own, over which private addresses reach one another untranslated.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn join(&mut self, other: &mut Self) -> anyhow::Result<()> {
        self.link_to(other)?;
        other.link_to(self)
    }

    fn link_to(&mut self, other: &Self) -> anyhow::Result<()> {
        // Addresses of its own, so that the link stays when others move.
        let [here, there] = [self.site, other.site];
        self.namespace.ip(&format!(
            "addr add 172.30.255.{here}/24 dev eth0\nroute add 192.168.{there}.0/24 via 172.30.255.{there}\n"
        ))?;
        self.is_joined = true;
        self.translate()
    }

    /// Cuts the link that [`Nat::join`] made, silently.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn part(&self) -> anyhow::Result<()> {
        self.drop_between("192.168.0.0/16", "192.168.0.0/16")
    }

    /// Cuts that link for one gateway of this site towards one of the other's, silently.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn part_pair(&self, gateway: usize, other: &Self, to: usize) -> anyhow::Result<()> {
        self.drop_between(&self.inside(gateway), &other.inside(to))
    }

    fn drop_between(&self, from: &str, to: &str) -> anyhow::Result<()> {
        self.namespace.nft(&format!(
            "table ip cut {{\n chain forward {{\n  type filter hook forward priority 0;\n  \
             ip saddr {from} ip daddr {to} drop\n }}\n}}\n"
        ))
    }

    /// Gives a gateway another address outside, as providers do: mappings of the old one end.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn move_to(&mut self, gateway: usize, outside: IpAddr) -> anyhow::Result<()> {
        // All anew: with the first address of a network the kernel takes away the others.
        let dropped = self.outside.iter().map(|old| format!("addr del {old}/16 dev eth0\n"));
        let dropped: String = dropped.rev().collect();
        self.outside[gateway] = outside;
        let added = self.outside.iter().map(|new| format!("addr add {new}/16 dev eth0\n"));
        self.namespace.ip(&(dropped + &added.collect::<String>()))?;
        self.translate()?;
        self.namespace.enter(forget_connections)
    }

    fn translate(&self) -> anyhow::Result<()> {
        let (mut forward, mut out) = (String::new(), String::new());
        let random = if self.style.rewrites { "fully-random" } else { "" };
        for (gateway, outside) in self.outside.iter().enumerate() {
            let inside = self.inside(gateway);
            if self.style.forwards {
                forward += &format!("  ip daddr {outside} udp dport {{ 4490, 4500 }} dnat to {inside}\n");
            }
            out += &format!("  oifname \"eth0\" ip saddr {inside} snat to {outside} {random}\n");
        }
        let first = if self.is_joined { "oifname \"eth0\" ip daddr 192.168.0.0/16 accept" } else { "" };
        // What nobody asked for is dropped here, as home routers do; let in, the kernel would take note of it, and
        // give the gateway's own packets to the same peer another port.
        self.namespace.nft(&format!(
            "table ip nat\ndelete table ip nat\ntable ip nat {{\n chain before {{\n  \
             type nat hook prerouting priority -100;\n{forward} }}\n chain after {{\n  \
             type nat hook postrouting priority 100;\n  {first}\n{out}  oifname \"eth0\" masquerade {random}\n }}\n \
             chain in {{\n  type filter hook input priority 0;\n  iifname \"eth0\" meta l4proto udp drop\n }}\n}}\n"
        ))
    }
}

/// Empties the table of connections of the namespace that this thread is in (ctnetlink's deletion of everything, as
/// `conntrack -F` asks for it). The kernel itself forgets what was masqueraded, and keeps what was forwarded.
fn forget_connections() -> anyhow::Result<()> {
    const DELETE: u16 = 1 << 8 | 2; // NFNL_SUBSYS_CTNETLINK, IPCTNL_MSG_CT_DELETE
    const REQUEST_AND_ACKNOWLEDGE: u16 = 1 | 4;
    let socket = socket(
        AddressFamily::Netlink,
        SockType::Raw,
        SockFlag::SOCK_CLOEXEC,
        SockProtocol::NetlinkNetFilter,
    )?;
    // nlmsghdr: length, type, flags, sequence, port; nfgenmsg: family, version, resource.
    let mut request = Vec::from(20_u32.to_ne_bytes());
    request.extend([DELETE.to_ne_bytes(), REQUEST_AND_ACKNOWLEDGE.to_ne_bytes()].concat());
    request.extend([0; 12]);
    send(socket.as_raw_fd(), &request, MsgFlags::empty())?;
    let mut answer = [0; 64];
    let length = recv(socket.as_raw_fd(), &mut answer, MsgFlags::empty())?;
    anyhow::ensure!(length >= 20 && answer[16..20] == [0; 4], "the kernel refuses: {:?}", &answer[..length]);
    Ok(())
}

/// Sends a datagram every 20 ms to a [`Responder`](crate::traffic::Responder) until there is an answer, and says how
/// long that took.
///
/// # Errors
/// If there is none within `timeout`.
pub fn first_answer(from: &Namespace, to: SocketAddr, timeout: Duration) -> anyhow::Result<Duration> {
    let socket = from.enter(|| {
        let any: IpAddr = if to.is_ipv4() { [0, 0, 0, 0].into() } else { [0_u16; 8].into() };
        Ok(UdpSocket::bind((any, 0))?)
    })?;
    socket.set_read_timeout(Some(Duration::from_millis(20)))?;
    let (start, mut answer) = (Instant::now(), [0; 256]);
    while start.elapsed() < timeout {
        interrupt::check()?;
        // Refusals (no route yet) are waited out like silence.
        let sent = socket.send_to(b"is anybody there?", to);
        match socket.recv(&mut answer) {
            Ok(_) => return Ok(start.elapsed()),
            Err(_) if sent.is_err() => interrupt::pause(Duration::from_millis(20))?,
            Err(_) => {}
        }
    }
    anyhow::bail!("no answer from {to} within {timeout:?}")
}
