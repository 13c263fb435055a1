//! Names, addresses and bounds. Those of OVN-Kubernetes, of upstream and of the proposal are theirs; the rest is ours.

use std::net::{Ipv4Addr, Ipv6Addr};

use trieste_ovsdb::schema::Version;

/// The database that says what OVN should do.
pub const NORTHBOUND: &str = "OVN_Northbound";
/// The database that knows the nodes.
pub const SOUTHBOUND: &str = "OVN_Southbound";

/// The router of OVN-Kubernetes that every pod's packets pass: one per database, that is per zone.
pub const CLUSTER_ROUTER: &str = "ovn_cluster_router";
/// What names of a node's gateway router, external switch and the port between them begin with (OVN-Kubernetes).
pub(crate) const GATEWAY_ROUTER_PREFIX: &str = "GR_";
/// Likewise.
pub(crate) const EXTERNAL_SWITCH_PREFIX: &str = "ext_";
/// Likewise.
pub(crate) const EXTERNAL_PORT_PREFIX: &str = "rtoe-GR_";

/// The key of `external_ids` by which upstream marks its rows; the value is its version (behaviour 6.3).
pub const UPSTREAM_KEY: &str = "submariner";
/// The key of `external_ids` by which a row is ours. Only rows that have it are ever changed or removed, and those of
/// upstream that [`crate::plan()`] adopts.
pub const OWNER_KEY: &str = "trieste.io/owner";
/// Its value.
pub const OWNER: &str = "routeagent";

/// Priority of upstream's policies for IPv4 (`ovnRoutePoliciesPrioV4`; the only one in releases before dual stack).
pub const REROUTE_PRIORITY_V4: i64 = 20_000;
/// Priority of upstream's policies for IPv6 (`ovnRoutePoliciesPrioV6`). Its IPv4 half removes whatever it does not know of
/// its own priority, so that they are not the same.
pub const REROUTE_PRIORITY_V6: i64 = 20_100;
/// How far a policy that drops stands below the one that reroutes. Ours: upstream has none.
pub const DROP_BELOW: i64 = 1;
/// Priority of the proposal's policies, both families.
pub const PROPOSAL_PRIORITY: i64 = 10;

/// The proposal's router.
pub const SUBMARINER_ROUTER: &str = "submariner_router";
/// The proposal's switch between [`CLUSTER_ROUTER`] and [`SUBMARINER_ROUTER`].
pub const JOIN_SWITCH: &str = "submariner_join";
/// Port of [`SUBMARINER_ROUTER`] towards the node's external switch, and of that switch towards it.
pub(crate) const EXTERNAL_PORT: (&str, &str) = ("subm_ext_port", "subm_ext_sw_port");
/// Ours: the router's port in turn with the former's, each time the gateway moves to another node.
pub(crate) const EXTERNAL_PORT_IN_TURN: &str = "subm_ext_port2";
/// Port of [`SUBMARINER_ROUTER`] towards [`JOIN_SWITCH`], and of that switch towards it.
pub(crate) const JOIN_PORT: (&str, &str) = ("subm_join_port", "subm_join_sw_port");
/// Port of [`CLUSTER_ROUTER`] towards [`JOIN_SWITCH`], and of that switch towards it.
pub(crate) const CLUSTER_PORT: (&str, &str) =
    ("ovn_cluster_submariner_port", "ovn_cluster_sw_submariner_port");
/// The ports of switches.
pub(crate) const SWITCH_PORTS: [&str; 3] = [EXTERNAL_PORT.1, JOIN_PORT.1, CLUSTER_PORT.1];
/// MAC addresses of the three router ports: fixed, as in the proposal's recipe. Each is on a link of its own, and there is
/// one router of the name in a database, so that they need not differ between clusters.
pub(crate) const JOIN_MAC: &str = "00:60:2f:00:00:01";
/// Likewise.
pub(crate) const EXTERNAL_MAC: &str = "00:60:2f:00:00:02";
/// Likewise.
pub(crate) const CLUSTER_MAC: &str = "00:60:2f:00:00:03";
/// Addresses of [`JOIN_PORT`] and [`CLUSTER_PORT`] in the proposal's join network 169.254.34.0/29.
pub(crate) const JOIN_V4: (Ipv4Addr, Ipv4Addr, u8) =
    (Ipv4Addr::new(169, 254, 34, 1), Ipv4Addr::new(169, 254, 34, 2), 29);
/// Likewise for IPv6, which the proposal lacks: a unique local network (RFC 4193) that never leaves the two routers.
pub(crate) const JOIN_V6: (Ipv6Addr, Ipv6Addr, u8) = (
    Ipv6Addr::new(0xfd53, 0x7562, 0x6d34, 0, 0, 0, 0, 1),
    Ipv6Addr::new(0xfd53, 0x7562, 0x6d34, 0, 0, 0, 0, 2),
    125,
);
/// Which address of the external network [`EXTERNAL_PORT`] takes, counted from the network's own: .7, as in the recipe.
pub(crate) const EXTERNAL_HOST: u128 = 7;
/// How many addresses from [`EXTERNAL_HOST`] on are tried, should the first be taken.
pub(crate) const EXTERNAL_TRIES: u128 = 4;
/// Priority of the gateway chassis (`lrp-set-gateway-chassis … 10`).
pub(crate) const CHASSIS_PRIORITY: i64 = 10;
/// Most chassis of one host name that are named: one, and what an earlier installation of the node left behind.
pub(crate) const MAX_CHASSIS: usize = 4;

/// Oldest schema of the northbound database that has what is needed (upstream's requirement).
pub const OLDEST_SCHEMA: Version = Version(6, 1, 0);

/// Most networks that one object may name; the rest of it is left out, with a condition.
pub const MAX_NETWORKS_PER_OBJECT: usize = 4_096;
/// Most remote networks of a cluster set.
pub const MAX_NETWORKS: usize = 16_384;
/// Most next hops of an object that are read.
pub const MAX_NEXT_HOPS: usize = 64;
/// Most conditions that are kept; one more says how many are not.
pub const MAX_CONDITIONS: usize = 128;
/// Most characters of a text from outside that a condition repeats.
pub const MAX_QUOTED: usize = 64;
/// Most rows that one transaction changes. A change is at most three operations and 1 KiB of JSON, so that a transaction
/// stays far below what servers accept, and holds up OVN-Kubernetes' own for a few milliseconds only.
pub const MAX_CHANGES: usize = 500;
