//! Next hops and groups of them, which the netlink crates do not support.
//!
//! The socket waits: a notice has no time for a task to be woken.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Error, ErrorKind};
use std::net::IpAddr;

use netlink_sys::protocols::NETLINK_ROUTE;

use crate::family::Family;
use crate::nexthops::{Content, NEXTHOP_PROTOCOL, Nexthop, NexthopChange, ObservedNexthop, is_our_id};
use crate::port::PortError;
use crate::port::wire::{
    AF_INET, AF_INET6, Message, NLA_F_NESTED, NLM_F_ACK, NLM_F_CREATE, NLM_F_DUMP, NLM_F_REPLACE, Requests,
    address, attribute, split_attribute,
};

// --- from the kernel's headers: rtnetlink.h, nexthop.h ------------------------------------------------------------

const RTM_NEWNEXTHOP: u16 = 104;
const RTM_DELNEXTHOP: u16 = 105;
const RTM_GETNEXTHOP: u16 = 106;
const NHA_ID: u16 = 1;
const NHA_GROUP: u16 = 2;
const NHA_GROUP_TYPE: u16 = 3;
const NHA_BLACKHOLE: u16 = 4;
const NHA_OIF: u16 = 5;
const NHA_GATEWAY: u16 = 6;
const NHA_ENCAP_TYPE: u16 = 7;
const NHA_ENCAP: u16 = 8;
const NHA_FDB: u16 = 11;
const NHA_RES_GROUP: u16 = 12;
const NHA_RES_GROUP_BUCKETS: u16 = 1;
const NHA_RES_GROUP_IDLE_TIMER: u16 = 2;
const NHA_RES_GROUP_UNBALANCED_TIMER: u16 = 3;
const GROUP_TYPE_MULTIPATH: u16 = 0;
const GROUP_TYPE_RESILIENT: u16 = 1;
const RTNH_F_ONLINK: u32 = 4;
/// Bytes of what every next hop's message has before its attributes.
const FIXED_LEN: usize = 8;
/// Bytes of one group member.
const MEMBER_LEN: usize = 8;

// --- ours ---------------------------------------------------------------------------------------------------------

/// Buckets of a group: with the most gateways that a cluster has, 8, one has a share within 1/128 of what is due.
const BUCKETS: u16 = 128;
/// Hundredths of a second after which a bucket without packets may be given to a gateway that has come: most flows stay
/// where they are.
const IDLE: u32 = 200;
/// Hundredths of a second after which the rest of its share is given to it in any case. Nothing depends on a flow's
/// staying, so that this may happen to flows that never pause.
const UNBALANCED: u32 = 3_000;

/// A socket for next hops.
pub struct Nexthops {
    requests: Requests,
}

impl Nexthops {
    /// Opens it.
    ///
    /// # Errors
    ///
    /// The kernel has no rtnetlink.
    pub fn open() -> Result<Self, PortError> {
        Requests::open(NETLINK_ROUTE).map(|requests| Self { requests }).map_err(PortError::Socket)
    }

    /// Reads all that could be ours or in the way, by id; `None` if this kernel does not support next hops (before Linux 5.3).
    pub(super) fn read(
        &self,
        names: &BTreeMap<u32, &str>,
    ) -> Result<Option<BTreeMap<u32, ObservedNexthop>>, PortError> {
        let request = Message::new(RTM_GETNEXTHOP, NLM_F_DUMP, &[0; FIXED_LEN]);
        match self.requests.exchange(request, |body| parse(body, names)) {
            Ok(all) => {
                Ok(Some(all.into_iter().filter(|(id, there)| is_our_id(*id) || there.is_ours()).collect()))
            }
            Err(error) if is_unsupported(&error) => Ok(None),
            Err(error) => Err(refused(error)),
        }
    }

    /// Makes one change; `index` is that of the next hop's device.
    pub(super) fn apply(&self, change: &NexthopChange, index: Option<u32>) -> Result<(), PortError> {
        match change {
            NexthopChange::Set(id, nexthop) => self.set(*id, nexthop, index.unwrap_or_default()),
            NexthopChange::MakeGroup(id, members) => self.group(*id, members, true),
            NexthopChange::SetGroup(id, members) => self.group(*id, members, false),
            NexthopChange::Remove(id) => {
                let message = Message::new(RTM_DELNEXTHOP, NLM_F_ACK, &[0; FIXED_LEN]);
                self.requests.send(message.with(NHA_ID, &id.to_ne_bytes()))
            }
        }
        .map_err(refused)
    }

    /// Changes who is in a group that is there, in one message: flows of the others do not notice.
    ///
    /// # Errors
    ///
    /// The kernel refused, as it does if the group or one of the members is gone.
    pub fn set_group(&self, id: u32, members: &BTreeSet<u32>) -> Result<(), PortError> {
        self.group(id, members, false).map_err(refused)
    }

    fn set(&self, id: u32, nexthop: &Nexthop, index: u32) -> Result<(), Error> {
        let flags = NLM_F_ACK | NLM_F_CREATE | NLM_F_REPLACE;
        let family = if nexthop.family == Family::V4 { AF_INET } else { AF_INET6 };
        // On link, whatever happens to the device's own address meanwhile.
        let on_link = if let Some(IpAddr::V4(_)) = nexthop.via { RTNH_F_ONLINK } else { 0 };
        let message = Message::new(RTM_NEWNEXTHOP, flags, &fixed(family, on_link))
            .with(NHA_ID, &id.to_ne_bytes())
            .with(NHA_OIF, &index.to_ne_bytes());
        self.requests.send(match nexthop.via {
            Some(IpAddr::V4(via)) => message.with(NHA_GATEWAY, &via.octets()),
            Some(IpAddr::V6(via)) => message.with(NHA_GATEWAY, &via.octets()),
            None => message,
        })
    }

    fn group(&self, id: u32, members: &BTreeSet<u32>, is_new: bool) -> Result<(), Error> {
        let list: Vec<u8> =
            members.iter().flat_map(|member| [member.to_ne_bytes(), [0; 4]].concat()).collect();
        let flags = NLM_F_ACK | if is_new { NLM_F_CREATE } else { NLM_F_REPLACE };
        let message = |kind: u16| {
            Message::new(RTM_NEWNEXTHOP, flags, &fixed(0, 0))
                .with(NHA_ID, &id.to_ne_bytes())
                .with(NHA_GROUP, &list)
                .with(NHA_GROUP_TYPE, &kind.to_ne_bytes())
        };
        let resilient = message(GROUP_TYPE_RESILIENT);
        let resilient =
            if is_new { resilient.with(NHA_RES_GROUP | NLA_F_NESTED, &resilience()) } else { resilient };
        match self.requests.send(resilient) {
            // The kernel does not support the type, or the group is of the other one.
            Err(error) if error.kind() == ErrorKind::InvalidInput || is_unsupported(&error) => {
                self.requests.send(message(GROUP_TYPE_MULTIPATH))
            }
            sent => sent,
        }
    }
}

fn refused(error: Error) -> PortError {
    PortError::Refused { source: error }
}

fn is_unsupported(error: &Error) -> bool {
    error.kind() == ErrorKind::Unsupported || error.raw_os_error() == Some(95)
}

/// Encodes the attributes of a resilient group.
fn resilience() -> Vec<u8> {
    let mut bytes = Vec::new();
    attribute(&mut bytes, NHA_RES_GROUP_BUCKETS, &BUCKETS.to_ne_bytes());
    attribute(&mut bytes, NHA_RES_GROUP_IDLE_TIMER, &IDLE.to_ne_bytes());
    attribute(&mut bytes, NHA_RES_GROUP_UNBALANCED_TIMER, &UNBALANCED.to_ne_bytes());
    bytes
}

/// Encodes what comes before the attributes of a next hop that is set.
fn fixed(family: u8, flags: u32) -> [u8; FIXED_LEN] {
    let [a, b, c, d] = flags.to_ne_bytes();
    [family, 0, NEXTHOP_PROTOCOL, 0, a, b, c, d]
}

/// Reads a next hop.
fn parse(body: &[u8], names: &BTreeMap<u32, &str>) -> Option<(u32, ObservedNexthop)> {
    let (fixed, mut rest) = body.split_at_checked(FIXED_LEN)?;
    let (family, protocol) = (*fixed.first()?, *fixed.get(2)?);
    let (mut id, mut device, mut via, mut group, mut is_other) = (None, None, None, None, false);
    while let Some((kind, value, next)) = split_attribute(rest) {
        rest = next;
        match kind {
            NHA_ID => id = number(value),
            NHA_OIF => device = number(value),
            NHA_GATEWAY => via = address(value),
            NHA_GROUP => group = members(value),
            NHA_BLACKHOLE | NHA_ENCAP_TYPE | NHA_ENCAP | NHA_FDB => is_other = true,
            // Of a group's type, counts and other bookkeeping nothing depends.
            _ => {}
        }
    }
    let family = match family {
        AF_INET => Some(Family::V4),
        AF_INET6 => Some(Family::V6),
        _ => None,
    };
    let one = || {
        let index = device?;
        let device = names.get(&index).map_or_else(|| format!("#{index}"), |name| (*name).to_owned());
        Some(Content::One(Nexthop { family: family?, device, via }))
    };
    let what = if is_other { None } else { group.map(Content::Group).or_else(one) };
    Some((id?, ObservedNexthop { protocol, what: what.unwrap_or(Content::Other) }))
}

fn number(value: &[u8]) -> Option<u32> {
    value.try_into().ok().map(u32::from_ne_bytes)
}

/// Parses the members of a group; `None` unless all have the same weight.
fn members(value: &[u8]) -> Option<BTreeSet<u32>> {
    let of_weight_one =
        |member: &[u8]| (member.get(4) == Some(&0)).then(|| number(member.get(..4)?)).flatten();
    value.chunks_exact(MEMBER_LEN).map(of_weight_one).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::port::wire::split;

    #[test]
    fn what_is_asked_for_is_read_back() {
        let names = BTreeMap::from([(7, "vx-submariner")]);
        let via: IpAddr = "240.0.0.2".parse().unwrap();
        let message = Message::new(RTM_NEWNEXTHOP, 0, &fixed(AF_INET, RTNH_F_ONLINK))
            .with(NHA_ID, &5_u32.to_ne_bytes())
            .with(NHA_OIF, &7_u32.to_ne_bytes())
            .with(NHA_GATEWAY, &[240, 0, 0, 2])
            .finish();
        let (kind, body, rest) = split(&message).unwrap();
        assert_eq!((kind, rest), (RTM_NEWNEXTHOP, &[][..]));
        let (id, read) = parse(body, &names).unwrap();
        let nexthop = Nexthop { family: Family::V4, device: "vx-submariner".to_owned(), via: Some(via) };
        assert_eq!((id, read.what.clone(), read.is_ours()), (5, Content::One(nexthop), true));
    }

    #[test]
    fn a_group_of_unequal_weights_is_none_of_ours() {
        let read = |weight: u8| {
            let member = [&9_u32.to_ne_bytes()[..], &[weight, 0, 0, 0]].concat();
            let message = Message::new(RTM_NEWNEXTHOP, 0, &fixed(0, 0))
                .with(NHA_ID, &[1, 0, 0, 0])
                .with(NHA_GROUP, &member);
            let bytes = message.finish();
            parse(split(&bytes).unwrap().1, &BTreeMap::new()).unwrap().1.what
        };
        assert_eq!(read(0), Content::Group([9].into()));
        assert_eq!(read(3), Content::Other);
    }

    proptest! {
        #[test]
        fn whatever_the_kernel_says_is_read_without_harm(bytes in any::<Vec<u8>>()) {
            let mut rest = bytes.as_slice();
            while let Some((_, body, next)) = split(rest) {
                parse(body, &BTreeMap::new());
                prop_assert!(next.len() < rest.len());
                rest = next;
            }
            parse(&bytes, &BTreeMap::new());
        }
    }
}
