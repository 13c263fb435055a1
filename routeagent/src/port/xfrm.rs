//! Policies of IPsec in the kernel: reads them, and removes one with the security associations that it uses. There is no netlink
//! crate for it that is kept.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;

use super::PortError;
use super::wire::{AF_INET, AF_INET6, Message, NLM_F_ACK, NLM_F_DUMP, Requests, find};
use crate::leftover::IpsecPolicy;

// --- from the kernel's headers: netlink.h, xfrm.h -----------------------------------------------------------------

const NETLINK_XFRM: isize = 6;
const XFRM_MSG_DELSA: u16 = 0x11;
const XFRM_MSG_GETSA: u16 = 0x12;
const XFRM_MSG_DELPOLICY: u16 = 0x14;
const XFRM_MSG_GETPOLICY: u16 = 0x15;
const XFRMA_TMPL: u16 = 5;
const XFRMA_MARK: u16 = 21;
const XFRMA_IF_ID: u16 = 31;
/// `IPPROTO_ESP`.
const ESP: u8 = 50;
/// `XFRM_MODE_TUNNEL`.
const TUNNEL: u8 = 1;
/// Bytes of `xfrm_selector`.
const SELECTOR_LEN: usize = 56;
/// Bytes of `xfrm_userpolicy_info`, and where its index and direction are.
const POLICY_LEN: usize = 168;
const POLICY_INDEX: usize = 156;
const POLICY_DIRECTION: usize = 160;
/// Bytes of `xfrm_userpolicy_id`.
const POLICY_ID_LEN: usize = 64;
/// Bytes of `xfrm_user_tmpl`, and where its source and request number are; it begins as an association's name does.
const TEMPLATE_LEN: usize = 64;
const TEMPLATE_SOURCE: usize = 28;
const TEMPLATE_REQUEST: usize = 44;
const TEMPLATE_PROTOCOL: usize = 20;
const TEMPLATE_MODE: usize = 48;
/// Bytes of an address field, whatever its family.
const ADDRESS_LEN: usize = 16;
/// In `xfrm_usersa_info`: the association's name (destination, SPI, protocol), source, request number and family.
const SA_NAME: usize = SELECTOR_LEN;
const SA_SOURCE: usize = 80;
const SA_REQUEST: usize = 208;
const SA_FAMILY: usize = 212;

/// What the policies of one tunnel and its associations have in common: source, destination and request number.
type Tunnel = ([u8; ADDRESS_LEN], [u8; ADDRESS_LEN], u32);

/// Reads all policies between networks.
pub(super) fn policies() -> Result<BTreeSet<IpsecPolicy>, PortError> {
    let Some(requests) = open()? else { return Ok(BTreeSet::new()) };
    let request = Message::new(XFRM_MSG_GETPOLICY, NLM_F_DUMP, &[]);
    let found = requests.exchange(request, policy).map_err(refused)?;
    Ok(found.into_iter().collect())
}

/// Removes policies and the associations of their tunnels.
pub(super) fn remove(policies: &BTreeSet<IpsecPolicy>) -> Result<(), PortError> {
    let Some(requests) = open()? else { return Ok(()) };
    let request = Message::new(XFRM_MSG_GETPOLICY, NLM_F_DUMP, &[]);
    let wanted = |body: &[u8]| policy(body).filter(|there| policies.contains(there)).zip(tunnel(body));
    let found = requests.exchange(request, wanted).map_err(refused)?;
    let mut tunnels = BTreeSet::new();
    for (policy, tunnel) in found {
        let mut id = vec![0; POLICY_ID_LEN];
        id[SELECTOR_LEN..SELECTOR_LEN + 4].copy_from_slice(&policy.index.to_ne_bytes());
        id[SELECTOR_LEN + 4] = policy.direction;
        if ended(requests.send(Message::new(XFRM_MSG_DELPOLICY, NLM_F_ACK, &id)))? {
            tunnels.insert(tunnel);
        }
    }
    let request = Message::new(XFRM_MSG_GETSA, NLM_F_DUMP, &[]);
    let names = requests.exchange(request, |body| association(body, &tunnels)).map_err(refused)?;
    for name in names {
        ended(requests.send(Message::new(XFRM_MSG_DELSA, NLM_F_ACK, &name)))?;
    }
    Ok(())
}

/// Opens a socket; `None` where nothing in this kernel has used IPsec, whose module would be loaded for it.
fn open() -> Result<Option<Requests>, PortError> {
    let sockets = std::fs::read_to_string("/proc/self/net/netlink").unwrap_or_default();
    let is_there = |line: &str| line.split_whitespace().nth(1) == Some("6");
    if !sockets.lines().any(is_there) {
        return Ok(None);
    }
    Requests::open(NETLINK_XFRM).map(Some).map_err(PortError::Socket)
}

fn refused(source: std::io::Error) -> PortError {
    PortError::Refused { source }
}

/// Returns whether something was removed: it may have gone meanwhile.
fn ended(outcome: Result<(), std::io::Error>) -> Result<bool, PortError> {
    match outcome {
        Ok(()) => Ok(true),
        Err(error)
            if error.raw_os_error() == Some(NO_SUCH_ASSOCIATION) || error.kind() == ErrorKind::NotFound =>
        {
            Ok(false)
        }
        Err(error) => Err(refused(error)),
    }
}

/// `ESRCH`.
const NO_SUCH_ASSOCIATION: i32 = 3;

/// Reads a policy between two networks of one family. Submariner's are for a tunnel by ESP, and carry neither mark nor interface.
fn policy(body: &[u8]) -> Option<IpsecPolicy> {
    let attributes = body.get(POLICY_LEN..)?;
    if find(attributes, XFRMA_MARK).is_some() || find(attributes, XFRMA_IF_ID).is_some() {
        return None;
    }
    let template = find(attributes, XFRMA_TMPL)?;
    if (*template.get(TEMPLATE_PROTOCOL)?, *template.get(TEMPLATE_MODE)?) != (ESP, TUNNEL) {
        return None;
    }
    let (destination, source) = (body.get(..ADDRESS_LEN)?, body.get(ADDRESS_LEN..2 * ADDRESS_LEN)?);
    let family = u16::from_ne_bytes(*body.get(40..)?.first_chunk()?);
    let (to, from) = (*body.get(42)?, *body.get(43)?);
    Some(IpsecPolicy {
        index: u32::from_ne_bytes(*body.get(POLICY_INDEX..)?.first_chunk()?),
        direction: *body.get(POLICY_DIRECTION)?,
        source: network(family, source, from)?,
        destination: network(family, destination, to)?,
    })
}

fn network(family: u16, address: &[u8], length: u8) -> Option<IpNet> {
    let address: IpAddr = if family == u16::from(AF_INET) {
        Ipv4Addr::from(*address.first_chunk::<4>()?).into()
    } else if family == u16::from(AF_INET6) {
        Ipv6Addr::from(*address.first_chunk::<ADDRESS_LEN>()?).into()
    } else {
        return None;
    };
    IpNet::new(address, length).ok()
}

/// Returns the tunnel that a policy uses.
fn tunnel(body: &[u8]) -> Option<Tunnel> {
    let template = find(body.get(POLICY_LEN..)?, XFRMA_TMPL)?.get(..TEMPLATE_LEN)?;
    let request = u32::from_ne_bytes(*template.get(TEMPLATE_REQUEST..)?.first_chunk()?);
    Some((*template.get(TEMPLATE_SOURCE..)?.first_chunk()?, *template.first_chunk()?, request))
}

/// Returns an association's name for its removal (`xfrm_usersa_id`), if it is of one of these tunnels.
fn association(body: &[u8], tunnels: &BTreeSet<Tunnel>) -> Option<Vec<u8>> {
    let destination: [u8; ADDRESS_LEN] = *body.get(SA_NAME..)?.first_chunk()?;
    let source: [u8; ADDRESS_LEN] = *body.get(SA_SOURCE..)?.first_chunk()?;
    let request = u32::from_ne_bytes(*body.get(SA_REQUEST..)?.first_chunk()?);
    if !tunnels.contains(&(source, destination, request)) {
        return None;
    }
    let (spi, protocol) = (body.get(SA_NAME + 16..SA_NAME + 20)?, *body.get(SA_NAME + 20)?);
    let family = body.get(SA_FAMILY..SA_FAMILY + 2)?;
    Some([&destination[..], spi, family, &[protocol, 0]].concat())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::port::wire::attribute;

    const HERE: [u8; 4] = [172, 31, 1, 11];
    const THERE: [u8; 4] = [203, 0, 113, 21];

    fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
        bytes[at..at + value.len()].copy_from_slice(value);
    }

    /// Returns a policy as the kernel lists it, with its template.
    fn listed(request: u32) -> Vec<u8> {
        let mut body = vec![0; POLICY_LEN];
        put(&mut body, 0, &[10, 2, 0, 0]);
        put(&mut body, ADDRESS_LEN, &[10, 1, 0, 0]);
        put(&mut body, 40, &u16::from(AF_INET).to_ne_bytes());
        put(&mut body, 42, &[16, 24]);
        put(&mut body, POLICY_INDEX, &81_u32.to_ne_bytes());
        body[POLICY_DIRECTION] = 1;
        let mut template = vec![0; TEMPLATE_LEN];
        put(&mut template, 0, &THERE);
        put(&mut template, TEMPLATE_SOURCE, &HERE);
        put(&mut template, TEMPLATE_REQUEST, &request.to_ne_bytes());
        (template[TEMPLATE_PROTOCOL], template[TEMPLATE_MODE]) = (ESP, TUNNEL);
        attribute(&mut body, XFRMA_TMPL, &template);
        body
    }

    #[test]
    fn a_policy_is_read_with_its_networks_and_its_tunnel() {
        let body = listed(16_389);
        let read = policy(&body).unwrap();
        assert_eq!((read.index, read.direction), (81, 1));
        assert_eq!(read.source, "10.1.0.0/24".parse().unwrap());
        assert_eq!(read.destination, "10.2.0.0/16".parse().unwrap());
        let (source, destination, request) = tunnel(&body).unwrap();
        assert_eq!((&source[..4], &destination[..4], request), (&HERE[..], &THERE[..], 16_389));
    }

    #[test]
    fn what_carries_a_mark_or_an_interface_is_somebody_elses() {
        for attribute_type in [XFRMA_MARK, XFRMA_IF_ID] {
            let mut body = listed(16_389);
            attribute(&mut body, attribute_type, &[1, 0, 0, 0, 0xff, 0, 0, 0]);
            assert_eq!(policy(&body), None);
        }
        let mut transport = listed(1);
        let at = POLICY_LEN + 4 + TEMPLATE_MODE;
        transport[at] = 0;
        assert_eq!(policy(&transport), None);
    }

    #[test]
    fn the_associations_of_a_tunnel_are_named_and_no_others() {
        let tunnels = BTreeSet::from([tunnel(&listed(16_389)).unwrap()]);
        let mut body = vec![0; SA_FAMILY + 12];
        put(&mut body, SA_NAME, &THERE);
        put(&mut body, SA_NAME + 16, &[0xde, 0xad, 0xbe, 0xef, 50]);
        put(&mut body, SA_SOURCE, &HERE);
        put(&mut body, SA_REQUEST, &16_389_u32.to_ne_bytes());
        put(&mut body, SA_FAMILY, &u16::from(AF_INET).to_ne_bytes());
        let name = association(&body, &tunnels).unwrap();
        assert_eq!((name.len(), &name[16..20], name[22]), (24, &[0xde, 0xad, 0xbe, 0xef][..], 50));
        put(&mut body, SA_REQUEST, &7_u32.to_ne_bytes());
        assert_eq!(association(&body, &tunnels), None);
    }

    #[test]
    fn nonsense_is_no_policy_and_no_association() {
        for bytes in [&[][..], &[0; 43], &[0xff; 168], &[0xff; 400]] {
            assert_eq!(policy(bytes), None);
            assert_eq!(tunnel(bytes), None);
            assert_eq!(association(bytes, &BTreeSet::new()), None);
        }
    }
}
