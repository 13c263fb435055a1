//! Networks in the form of interval sets. Pure.

use std::collections::BTreeSet;

use ipnet::IpNet;

/// Merges networks, because an interval set refuses overlapping ones.
pub(crate) fn disjoint<'a>(networks: impl IntoIterator<Item = &'a IpNet>) -> BTreeSet<IpNet> {
    IpNet::aggregate(&networks.into_iter().copied().collect()).into_iter().collect()
}
