//! Current upstream's topology: policies, and in the gateway's zone routes, on OVN-Kubernetes' own router.
//!
//! | row, per remote network | why |
//! |---|---|
//! | policy 20000 (IPv6: 20100) `ip4.dst == C` reroute | upstream's: leads packets to the gateway, in other zones to the transit switch's port of its node (behaviour 6.3) |
//! | route `C` via the management port, gateway's zone | upstream's: OVN drops what no route matches before it looks at policies |
//! | policy 19999 (20099) `ip4.dst == C` drop | ours: without the first, and when its next hop is on no port's network (northd then leaves it out), the gateway router would send the packets to the physical network, in clear |

use trieste_control::network_map::NetworkMap;
use trieste_ovsdb::value::Datum;

use super::row::{Desired, Stage, Target, is_remote, policy, route};
use crate::family::Family;
use crate::rows::RowId;
use crate::table::Table;
use crate::wanted::{Reach, Wanted, Zone};

/// Adds what every remote network needs.
pub(super) fn add(desired: &mut Desired, wanted: &Wanted, router: RowId, connected: &NetworkMap<()>) {
    for (network, reach) in &wanted.networks {
        if !is_remote(desired, network, connected) {
            continue;
        }
        let priority = Family::of(network).reroute_priority();
        desired.close(router, network, priority);
        let Reach::Open(Some(next_hop)) = reach else { continue };
        if wanted.zone == Zone::Gateway {
            let columns = route(network, *next_hop);
            desired.push(Stage::Route, Table::StaticRoute, Some(Target::Existing(router)), columns);
        }
        let mut columns = policy(priority, network, "reroute");
        columns.retain(|(column, _)| *column != "nexthop");
        // Upstream writes the older of the two columns, and takes a policy without it for stale.
        columns.push(("nexthop", Datum::from(next_hop.to_string())));
        desired.push(Stage::Reroute, Table::Policy, Some(Target::Existing(router)), columns);
    }
}
