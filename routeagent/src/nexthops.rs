//! How packets for remote clusters are spread over the cluster's gateways: next hops and groups of them, as the kernel has
//! them (`ip nexthop`). Pure.
//!
//! Every other gateway is a next hop of each family over the device between nodes, whether it lives or not; so is, on a
//! gateway's node, its own device. Routes lead to groups, and a group holds those that live: when a gateway dies or comes,
//! one message changes the group, and the routes stay as they are. Groups are resilient where the kernel knows them
//! (Linux 5.12): flows stay with the gateways that stay.
//!
//! What is ours has our protocol number and an id of our range; nothing else is touched.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;

use trieste_control::notice::GatewayKey;

use crate::hostnet::{Family, RULE_PROTOCOL, VX_DEVICE};

/// Protocol of our next hops: as our rules'.
pub const NEXTHOP_PROTOCOL: u8 = RULE_PROTOCOL;
/// First id of ours; the letters `TR`.
pub const FIRST_ID: u32 = 0x5452_0000;
/// Last id of ours.
pub const LAST_ID: u32 = 0x5452_ffff;
/// How many ids there are for the gateways of each family.
const GATEWAY_IDS: u32 = 0x1000;

/// Which group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// The first choice: on a gateway's node its own device, while its gateway lives.
    First = 2,
    /// The other gateways.
    Others = 4,
}

/// Returns a group's id.
#[must_use]
pub fn group_id(role: Role, family: Family) -> u32 {
    FIRST_ID + role as u32 + index(family)
}

/// Says whether an id is of our range.
#[must_use]
pub fn is_our_id(id: u32) -> bool {
    (FIRST_ID..=LAST_ID).contains(&id)
}

fn index(family: Family) -> u32 {
    u32::from(family == Family::V6)
}

/// A next hop.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Nexthop {
    /// Whose packets take it.
    pub family: Family,
    /// The device that it leads out of.
    pub device: String,
    /// The node there; `None` straight out of the device.
    pub via: Option<IpAddr>,
}

impl fmt::Display for Nexthop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.via.map_or(Ok(()), |via| write!(f, "via {via} "))?;
        write!(f, "dev {} ({})", self.device, self.family)
    }
}

/// Who may be in a group.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Choice {
    /// This node's own gateway, taken alone while it lives or no other does.
    pub own: Option<(GatewayKey, u32)>,
    /// The other gateways.
    pub others: BTreeMap<GatewayKey, u32>,
}

impl Choice {
    /// Returns the next hops that are in the group while these gateways live; never none of some.
    #[must_use]
    pub fn members(&self, live: &BTreeSet<GatewayKey>) -> BTreeSet<u32> {
        let of = |wanted: &dyn Fn(&GatewayKey) -> bool| -> BTreeSet<u32> {
            self.others.iter().filter(|(key, _)| wanted(key)).map(|(_, id)| *id).collect()
        };
        let living = of(&|key| live.contains(key));
        match self.own {
            Some((own, id)) if live.contains(&own) || living.is_empty() => [id].into(),
            _ if living.is_empty() => of(&|_| true),
            _ => living,
        }
    }
}

/// All next hops of a node, and who may be in which group. Empty where there is one gateway or none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Spread {
    /// The next hops, by id.
    pub nexthops: BTreeMap<u32, Nexthop>,
    /// The groups, by id.
    pub choices: BTreeMap<u32, Choice>,
}

impl Spread {
    /// Adds the other gateways as next hops of a family, by the node that each is on, and the group of them.
    pub fn add_others(&mut self, family: Family, others: &BTreeMap<GatewayKey, IpAddr>) {
        let mut choice = Choice::default();
        for (key, via) in others {
            let id = self.free_id(family, *key);
            let (device, via) = (VX_DEVICE.to_owned(), Some(*via));
            self.nexthops.insert(id, Nexthop { family, device, via });
            choice.others.insert(*key, id);
        }
        if !choice.others.is_empty() {
            self.choices.insert(group_id(Role::Others, family), choice);
        }
    }

    /// Adds this node's own gateway, and the group that it is the first choice of. The others have to be there.
    pub fn add_own(&mut self, family: Family, key: GatewayKey, device: &str) {
        let Some(others) = self.choices.get(&group_id(Role::Others, family)) else { return };
        let (id, others) = (FIRST_ID + index(family), others.others.clone());
        self.nexthops.insert(id, Nexthop { family, device: device.to_owned(), via: None });
        let choice = Choice { own: Some((key, id)), others };
        self.choices.insert(group_id(Role::First, family), choice);
    }

    /// Returns every group's next hops while these gateways live.
    #[must_use]
    pub fn groups(&self, live: &BTreeSet<GatewayKey>) -> BTreeMap<u32, BTreeSet<u32>> {
        self.choices.iter().map(|(id, choice)| (*id, choice.members(live))).collect()
    }

    /// The same gateway has the same id at every start, and whoever else comes or goes, as long as no two hash alike.
    fn free_id(&self, family: Family, key: GatewayKey) -> u32 {
        let first = FIRST_ID + GATEWAY_IDS * (1 + index(family));
        let hash = u32::try_from(key.0 % u64::from(GATEWAY_IDS)).unwrap_or(0);
        let mut ids = (0..GATEWAY_IDS).map(|step| first + (hash + step) % GATEWAY_IDS);
        ids.find(|id| !self.nexthops.contains_key(id)).unwrap_or(first)
    }
}

/// What the kernel has at an id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObservedNexthop {
    /// Who wrote it (`RTPROT_*`).
    pub protocol: u8,
    /// What it is.
    pub what: Content,
}

impl ObservedNexthop {
    /// Says whether the route agent wrote it.
    #[must_use]
    pub fn is_ours(&self) -> bool {
        self.protocol == NEXTHOP_PROTOCOL
    }
}

/// What a next hop is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    /// One way.
    One(Nexthop),
    /// A group of these, all of the same weight.
    Group(BTreeSet<u32>),
    /// Something that the route agent never writes.
    Other,
}

/// A change of next hops.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NexthopChange {
    /// Writes a next hop, or puts it in the place of one of ours.
    Set(u32, Nexthop),
    /// Makes a group.
    MakeGroup(u32, BTreeSet<u32>),
    /// Changes who is in a group that is there, at once.
    SetGroup(u32, BTreeSet<u32>),
    /// Removes a next hop or a group of ours.
    Remove(u32),
}

impl fmt::Display for NexthopChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |ids: &BTreeSet<u32>| ids.iter().map(u32::to_string).collect::<Vec<_>>().join("/");
        match self {
            Self::Set(id, nexthop) => write!(f, "set next hop {id} {nexthop}"),
            Self::MakeGroup(id, members) => write!(f, "add next hop {id} group {}", list(members)),
            Self::SetGroup(id, members) => write!(f, "set next hop {id} group {}", list(members)),
            Self::Remove(id) => write!(f, "remove next hop {id}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_holds_those_that_live_and_all_if_none_does() {
        let spread = spread(&[1, 2, 3]);
        let group = |live: &[u64]| spread.groups(&keys(live))[&group_id(Role::Others, Family::V4)].len();
        assert_eq!(
            [group(&[1, 2, 3]), group(&[1, 3]), group(&[2]), group(&[]), group(&[9])],
            [3, 2, 1, 3, 3]
        );
    }

    #[test]
    fn a_gateways_own_device_is_alone_in_its_group_until_it_dies_and_another_lives() {
        let mut spread = spread(&[2, 3]);
        spread.add_own(Family::V4, GatewayKey(1), "submariner");
        let first = |live: &[u64]| spread.groups(&keys(live))[&group_id(Role::First, Family::V4)].clone();
        assert_eq!(first(&[1, 2, 3]), [FIRST_ID].into());
        assert_eq!(first(&[2]).len(), 1);
        assert!(!first(&[2]).contains(&FIRST_ID));
        assert_eq!(first(&[]), [FIRST_ID].into(), "nobody lives");
    }

    #[test]
    fn ids_stay_when_others_come_and_go_and_are_of_our_range() {
        let ids =
            |gateways: &[u64]| spread(gateways).choices[&group_id(Role::Others, Family::V4)].others.clone();
        let (all, few) = (ids(&[1, 2, 3, 4]), ids(&[2, 4]));
        assert!(few.iter().all(|(key, id)| all[key] == *id && is_our_id(*id)));
        // Two that hash alike have one each.
        let alike = ids(&[7, 7 + u64::from(GATEWAY_IDS)]);
        assert_eq!(alike.values().collect::<BTreeSet<_>>().len(), 2);
    }

    fn spread(gateways: &[u64]) -> Spread {
        let mut spread = Spread::default();
        let address = |n: u64| IpAddr::from([240, 0, 0, n.to_le_bytes()[0]]);
        let others = gateways.iter().map(|n| (GatewayKey(*n), address(*n)));
        spread.add_others(Family::V4, &others.collect());
        spread
    }

    fn keys(numbers: &[u64]) -> BTreeSet<GatewayKey> {
        numbers.iter().copied().map(GatewayKey).collect()
    }
}
