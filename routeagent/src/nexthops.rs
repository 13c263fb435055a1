//! Next hops and groups of next hops (`ip nexthop`), which spread packets for remote clusters over the cluster's gateways.
//! Pure.
//!
//! Every other gateway is a next hop of each family over the device between nodes, live or not; so is, on a gateway's
//! node, its own device. Routes refer to groups, and a group holds the live gateways: when a gateway dies or comes, one
//! message changes the group, and the routes stay as they are. Groups are resilient where the kernel supports that
//! (Linux 5.12): flows stay with the gateways that stay.
//!
//! Our next hops have our protocol number and an id of our range; others are left alone.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;

use trieste_control::notice::GatewayKey;

use crate::constants::{RULE_PROTOCOL, VX_DEVICE};
use crate::family::Family;

/// Protocol (`RTPROT_*`) of our next hops: that of our rules.
pub const NEXTHOP_PROTOCOL: u8 = RULE_PROTOCOL;
/// First of our ids; the letters `TR`.
pub const FIRST_ID: u32 = 0x5452_0000;
/// Last of our ids, inclusive.
pub const LAST_ID: u32 = 0x5452_ffff;
/// Number of ids for the gateways of each family.
const GATEWAY_IDS: u32 = 0x1000;

/// The gateways that a group is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// On a gateway's node its own device while that gateway is live, else the other gateways.
    First = 2,
    /// The other gateways, each with its next hop.
    Others = 4,
}

/// Returns the id of a group.
#[must_use]
pub fn group_id(role: Role, family: Family) -> u32 {
    FIRST_ID + role as u32 + index(family)
}

/// Returns `true` if an id is in our range.
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
    /// Address family of the packets that use it.
    pub family: Family,
    /// The outgoing device.
    pub device: String,
    /// The node to send to; `None` if the device is point-to-point.
    pub via: Option<IpAddr>,
}

impl fmt::Display for Nexthop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.via.map_or(Ok(()), |via| write!(f, "via {via} "))?;
        write!(f, "dev {} ({})", self.device, self.family)
    }
}

/// The candidates for membership of a group.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Choice {
    /// This node's own gateway and its next hop: the only member while it is live, or while no other is.
    pub own: Option<(GatewayKey, u32)>,
    /// The other gateways, each with its next hop.
    pub others: BTreeMap<GatewayKey, u32>,
}

impl Choice {
    /// Returns the members of the group, by id, while these gateways are live; not empty unless there are no candidates.
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

/// All next hops of a node, and the candidates for each group. Empty where there is one gateway or none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NexthopGroups {
    /// The next hops, by id.
    pub nexthops: BTreeMap<u32, Nexthop>,
    /// The groups, by id.
    pub choices: BTreeMap<u32, Choice>,
}

impl NexthopGroups {
    /// Adds the other gateways, with the address of each one's node, as next hops of a family, and their group.
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

    /// Adds this node's own gateway and its group [`Role::First`]. Does nothing before [`Self::add_others`].
    pub fn add_own(&mut self, family: Family, key: GatewayKey, device: &str) {
        let Some(others) = self.choices.get(&group_id(Role::Others, family)) else { return };
        let (id, others) = (FIRST_ID + index(family), others.others.clone());
        self.nexthops.insert(id, Nexthop { family, device: device.to_owned(), via: None });
        let choice = Choice { own: Some((key, id)), others };
        self.choices.insert(group_id(Role::First, family), choice);
    }

    /// Returns the members of every group, by id, while these gateways are live.
    #[must_use]
    pub fn groups(&self, live: &BTreeSet<GatewayKey>) -> BTreeMap<u32, BTreeSet<u32>> {
        self.choices.iter().map(|(id, choice)| (*id, choice.members(live))).collect()
    }

    /// Returns a free id, derived from the gateway's key: the same at every start unless two keys collide.
    fn free_id(&self, family: Family, key: GatewayKey) -> u32 {
        let first = FIRST_ID + GATEWAY_IDS * (1 + index(family));
        let hash = u32::try_from(key.0 % u64::from(GATEWAY_IDS)).unwrap_or(0);
        let mut ids = (0..GATEWAY_IDS).map(|step| first + (hash + step) % GATEWAY_IDS);
        ids.find(|id| !self.nexthops.contains_key(id)).unwrap_or(first)
    }
}

/// A next hop or group as the kernel has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObservedNexthop {
    /// The program that wrote it (`RTPROT_*`).
    pub protocol: u8,
    /// Its content.
    pub what: Content,
}

impl ObservedNexthop {
    /// Returns `true` if the route agent wrote it.
    #[must_use]
    pub fn is_ours(&self) -> bool {
        self.protocol == NEXTHOP_PROTOCOL
    }
}

/// The content of a next hop.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    /// A single next hop.
    One(Nexthop),
    /// A group of next hops, by id, all of the same weight.
    Group(BTreeSet<u32>),
    /// Something that the route agent never writes.
    Other,
}

/// A change of next hops.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NexthopChange {
    /// Writes a next hop, or replaces one of ours.
    Set(u32, Nexthop),
    /// Makes a group.
    MakeGroup(u32, BTreeSet<u32>),
    /// Replaces the members of an existing group atomically.
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
        let nexthop_groups = nexthop_groups(&[1, 2, 3]);
        let group =
            |live: &[u64]| nexthop_groups.groups(&keys(live))[&group_id(Role::Others, Family::V4)].len();
        assert_eq!(
            [group(&[1, 2, 3]), group(&[1, 3]), group(&[2]), group(&[]), group(&[9])],
            [3, 2, 1, 3, 3]
        );
    }

    #[test]
    fn a_gateways_own_device_is_alone_in_its_group_until_it_dies_and_another_lives() {
        let mut nexthop_groups = nexthop_groups(&[2, 3]);
        nexthop_groups.add_own(Family::V4, GatewayKey(1), "submariner");
        let first =
            |live: &[u64]| nexthop_groups.groups(&keys(live))[&group_id(Role::First, Family::V4)].clone();
        assert_eq!(first(&[1, 2, 3]), [FIRST_ID].into());
        assert_eq!(first(&[2]).len(), 1);
        assert!(!first(&[2]).contains(&FIRST_ID));
        assert_eq!(first(&[]), [FIRST_ID].into(), "none is live");
    }

    #[test]
    fn ids_stay_when_others_come_and_go_and_are_of_our_range() {
        let ids = |gateways: &[u64]| {
            nexthop_groups(gateways).choices[&group_id(Role::Others, Family::V4)].others.clone()
        };
        let (all, few) = (ids(&[1, 2, 3, 4]), ids(&[2, 4]));
        assert!(few.iter().all(|(key, id)| all[key] == *id && is_our_id(*id)));
        // Two that hash alike have one each.
        let alike = ids(&[7, 7 + u64::from(GATEWAY_IDS)]);
        assert_eq!(alike.values().collect::<BTreeSet<_>>().len(), 2);
    }

    fn nexthop_groups(gateways: &[u64]) -> NexthopGroups {
        let mut nexthop_groups = NexthopGroups::default();
        let address = |n: u64| IpAddr::from([240, 0, 0, n.to_le_bytes()[0]]);
        let others = gateways.iter().map(|n| (GatewayKey(*n), address(*n)));
        nexthop_groups.add_others(Family::V4, &others.collect());
        nexthop_groups
    }

    fn keys(numbers: &[u64]) -> BTreeSet<GatewayKey> {
        numbers.iter().copied().map(GatewayKey).collect()
    }
}
