//! Connections that the kernel tracks, as far as they are to be removed: UDP flows to a clusterset IP whose target is none any
//! more. The kernel would send all that a client sends from the same port to that target until it pauses for half a minute or
//! more; TCP ends by itself. `nft` has no command for it, and neither have the netlink crates.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Error, ErrorKind};
use std::net::SocketAddr;

use netlink_sys::protocols::NETLINK_NETFILTER;

use crate::port::PortError;
use crate::port::wire::{
    AF_INET, AF_INET6, Message, NETFILTER_HEADER_LEN, NLA_F_NESTED, NLM_F_ACK, NLM_F_DUMP, Requests, address,
    find,
};

// --- from the kernel's headers: nfnetlink.h, nfnetlink_conntrack.h ------------------------------------------------

/// `NFNL_SUBSYS_CTNETLINK`, in the upper byte of a message's type.
const CTNETLINK: u16 = 1 << 8;
const IPCTNL_MSG_CT_GET: u16 = 1;
const IPCTNL_MSG_CT_DELETE: u16 = 2;
const CTA_TUPLE_ORIG: u16 = 1;
const CTA_TUPLE_REPLY: u16 = 2;
const CTA_TUPLE_IP: u16 = 1;
const CTA_TUPLE_PROTO: u16 = 2;
const CTA_IP_V4_SRC: u16 = 1;
const CTA_IP_V4_DST: u16 = 2;
const CTA_IP_V6_SRC: u16 = 3;
const CTA_IP_V6_DST: u16 = 4;
const CTA_PROTO_NUM: u16 = 1;
const CTA_PROTO_SRC_PORT: u16 = 2;
const CTA_PROTO_DST_PORT: u16 = 3;
const UDP: u8 = 17;

/// One direction of a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Tuple {
    protocol: u8,
    source: SocketAddr,
    destination: SocketAddr,
}

/// Removes the UDP flows to these addresses that go to these targets; returns how many.
///
/// # Errors
///
/// The kernel tracks no connections, or the right is missing.
pub(super) fn remove(stale: &BTreeMap<SocketAddr, BTreeSet<SocketAddr>>) -> Result<usize, PortError> {
    let refused = |source: Error| PortError::Refused { source };
    let requests = Requests::open(NETLINK_NETFILTER).map_err(PortError::Socket)?;
    let mut count = 0;
    for (family, is_ipv4) in [(AF_INET, true), (AF_INET6, false)] {
        if stale.keys().all(|address| address.is_ipv4() != is_ipv4) {
            continue;
        }
        let fixed = [family, 0, 0, 0];
        let all = Message::new(CTNETLINK | IPCTNL_MSG_CT_GET, NLM_F_DUMP, &fixed);
        for original in requests.exchange(all, |body| stale_flow(body, stale)).map_err(refused)? {
            let removal = Message::new(CTNETLINK | IPCTNL_MSG_CT_DELETE, NLM_F_ACK, &fixed)
                .with(CTA_TUPLE_ORIG | NLA_F_NESTED, &original);
            match requests.send(removal) {
                Ok(()) => count += 1,
                // It has ended meanwhile.
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => return Err(refused(error)),
            }
        }
    }
    Ok(count)
}

/// Returns the way there of a flow that is to be removed, as it names the flow to the kernel.
fn stale_flow(body: &[u8], stale: &BTreeMap<SocketAddr, BTreeSet<SocketAddr>>) -> Option<Vec<u8>> {
    let attributes = body.get(NETFILTER_HEADER_LEN..)?;
    let original = find(attributes, CTA_TUPLE_ORIG)?;
    let (there, back) = (tuple(original)?, tuple(find(attributes, CTA_TUPLE_REPLY)?)?);
    let targets = stale.get(&there.destination).filter(|_| there.protocol == UDP)?;
    targets.contains(&back.source).then(|| original.to_vec())
}

/// Reads one direction of a flow.
fn tuple(bytes: &[u8]) -> Option<Tuple> {
    let (addresses, protocol) = (find(bytes, CTA_TUPLE_IP)?, find(bytes, CTA_TUPLE_PROTO)?);
    let ip = |v4, v6| address(find(addresses, v4).or_else(|| find(addresses, v6))?);
    let port = |kind| Some(u16::from_be_bytes(find(protocol, kind)?.try_into().ok()?));
    Some(Tuple {
        protocol: *find(protocol, CTA_PROTO_NUM)?.first()?,
        source: (ip(CTA_IP_V4_SRC, CTA_IP_V6_SRC)?, port(CTA_PROTO_SRC_PORT)?).into(),
        destination: (ip(CTA_IP_V4_DST, CTA_IP_V6_DST)?, port(CTA_PROTO_DST_PORT)?).into(),
    })
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use proptest::prelude::*;

    use super::*;
    use crate::port::wire::attribute;

    fn octets(ip: IpAddr) -> Vec<u8> {
        match ip {
            IpAddr::V4(ip) => ip.octets().to_vec(),
            IpAddr::V6(ip) => ip.octets().to_vec(),
        }
    }

    /// Encodes one direction as the kernel does.
    fn encoded(protocol: u8, source: SocketAddr, to: SocketAddr) -> Vec<u8> {
        let kinds =
            if to.is_ipv4() { [CTA_IP_V4_SRC, CTA_IP_V4_DST] } else { [CTA_IP_V6_SRC, CTA_IP_V6_DST] };
        let (mut ip, mut ports, mut tuple) = (Vec::new(), Vec::new(), Vec::new());
        attribute(&mut ip, kinds[0], &octets(source.ip()));
        attribute(&mut ip, kinds[1], &octets(to.ip()));
        attribute(&mut ports, CTA_PROTO_NUM, &[protocol]);
        attribute(&mut ports, CTA_PROTO_SRC_PORT, &source.port().to_be_bytes());
        attribute(&mut ports, CTA_PROTO_DST_PORT, &to.port().to_be_bytes());
        attribute(&mut tuple, CTA_TUPLE_IP | NLA_F_NESTED, &ip);
        attribute(&mut tuple, CTA_TUPLE_PROTO | NLA_F_NESTED, &ports);
        tuple
    }

    /// Encodes a flow of a client to a clusterset IP's port 53, which a target answers.
    fn flow(protocol: u8, [client, ip, target]: [SocketAddr; 3]) -> Vec<u8> {
        let mut body = vec![if ip.is_ipv4() { AF_INET } else { AF_INET6 }, 0, 0, 0];
        attribute(&mut body, CTA_TUPLE_ORIG | NLA_F_NESTED, &encoded(protocol, client, ip));
        attribute(&mut body, CTA_TUPLE_REPLY | NLA_F_NESTED, &encoded(protocol, target, client));
        body
    }

    #[test]
    fn udp_flows_to_targets_that_are_none_any_more_are_found_and_no_others() {
        for texts in [
            ["10.1.3.10:4000", "243.0.0.7:53", "10.2.0.9:5353", "10.2.0.10:5353"],
            ["[fd01::10]:4000", "[fd00:243::7]:53", "[fd02::9]:5353", "[fd02::a]:5353"],
        ] {
            let [client, ip, target, other] = texts.map(|text| text.parse().unwrap());
            let stale = BTreeMap::from([(ip, BTreeSet::from([target]))]);
            let flow = |protocol, target| flow(protocol, [client, ip, target]);
            assert_eq!(stale_flow(&flow(UDP, target), &stale), Some(encoded(UDP, client, ip)));
            assert_eq!(stale_flow(&flow(UDP, other), &stale), None, "another target");
            assert_eq!(stale_flow(&flow(6, target), &stale), None, "TCP");
        }
    }

    proptest! {
        #[test]
        fn whatever_the_kernel_says_is_read_without_harm(bytes in any::<Vec<u8>>()) {
            stale_flow(&bytes, &BTreeMap::new());
            tuple(&bytes);
        }
    }
}
