//! Reads and removes what Submariner's programs have left, as far as it is in no list that is read anyway.

use super::{PortError, ipset, iptables, nft, xfrm};
use crate::leftover::is_submariners;
use crate::nft::{Transaction, protocol};
use crate::observed::Observed;
use crate::submariner::{Removal, render};
use crate::takeover::Takeover;

/// Adds IP sets, and on the node of a gateway of ours policies of IPsec.
pub(super) fn observe(observed: &mut Observed, takeover: Takeover) {
    match ipset::names() {
        Ok(names) => observed.leftover.sets = names.into_iter().filter(|name| is_submariners(name)).collect(),
        Err(error) => note(observed, &error, "IP sets"),
    }
    if takeover >= Takeover::Elsewhere {
        match xfrm::policies() {
            Ok(policies) => observed.leftover.policies = policies,
            Err(error) => note(observed, &error, "policies of IPsec"),
        }
    }
}

fn note(observed: &mut Observed, error: &PortError, what: &'static str) {
    observed.leftover.is_incomplete = true;
    observed.conditions.insert(error.unread(what));
}

/// Removes what needs neither a device nor a rule.
pub(super) async fn remove(removal: &Removal) -> Result<(), PortError> {
    match removal {
        Removal::Chains { backend, family, table, lines } => {
            iptables::restore(*backend, *family, &render(*table, lines)).await
        }
        Removal::NftTable(family) => {
            let table = serde_json::json!({"family": protocol(*family), "name": "submariner"});
            let removal = serde_json::json!({"delete": {"table": table}});
            nft::transact(&std::iter::once(removal).collect::<Transaction>()).await
        }
        Removal::Set(name) => ipset::destroy(name),
        Removal::Policies(policies) => {
            let policies = policies.clone();
            // The kernel's whole tables are read, which notices of gateways must not wait for.
            let removed = tokio::task::spawn_blocking(move || xfrm::remove(&policies)).await;
            removed.unwrap_or_else(|error| Err(PortError::Netlink(error.to_string())))
        }
        // These are netlink's.
        Removal::Rule { .. } | Removal::CableDevice => Ok(()),
    }
}
