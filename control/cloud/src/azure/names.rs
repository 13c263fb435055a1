//! Names: resource IDs, and what upstream's tool calls what it makes.

/// The ends of the names of the nodes' network security group, which OpenShift's installer makes, and of the gateways'.
const NODES_GROUP: &str = "-nsg";
const GATEWAYS_GROUP: &str = "-submariner-external-sg";
/// The beginnings of the names of rules inside a cluster, and of those for cables.
pub(super) const INSIDE: &str = "Submariner-Internal-";
pub(super) const CABLES: &str = "Submariner-External-";
/// The end of the names of gateways' public addresses.
const ADDRESS: &str = "-pub";
/// The end of the name of the interface of a machine of OpenShift's.
const INTERFACE: &str = "-nic";
/// How the names of upstream's sets of machines for gateways begin, or go on after the cluster's.
const SETS: [&str; 2] = ["subgw", "submariner-gw-"];
/// Upstream's: how much of a region is in the name of a set. OpenShift names a machine's public address by cluster and machine, in
/// less than 64 characters, and refuses to make it otherwise.
const REGION_IN_SET: usize = 7;

/// The tag of what a preparation has made, with the cluster for which.
pub(super) const PREPARED_FOR: &str = "trieste.io-prepared-for";
/// The tag of an interface that a preparation has changed: what it was before.
pub(super) const BEFORE: &str = "trieste.io-before";

/// A resource's type with its provider, as IDs have it.
pub(super) const GROUPS: &str = "Microsoft.Network/networkSecurityGroups";
pub(super) const INTERFACES: &str = "Microsoft.Network/networkInterfaces";
pub(super) const ADDRESSES: &str = "Microsoft.Network/publicIPAddresses";

/// Returns the name of the nodes' network security group.
pub(super) fn nodes_group(infra_id: &str) -> String {
    format!("{infra_id}{NODES_GROUP}")
}

/// Returns the name of the gateways' network security group.
pub(super) fn gateways_group(infra_id: &str) -> String {
    format!("{infra_id}{GATEWAYS_GROUP}")
}

/// Returns the name of a gateway's public address.
pub(super) fn address(node: &str) -> String {
    format!("{node}{ADDRESS}")
}

/// Returns the name of the public address for the machine of an interface that OpenShift has made.
pub(super) fn address_of_interface(interface: &str) -> String {
    address(interface.strip_suffix(INTERFACE).unwrap_or(interface))
}

/// Returns the name of the set of machines for gateways in a zone; `zone` is empty where a region has none.
pub(super) fn set(region: &str, zone: &str) -> String {
    let region: String = region.chars().take(REGION_IN_SET).collect();
    if zone.is_empty() { format!("subgw-{region}") } else { format!("subgw-{region}-{zone}") }
}

/// Returns `true` if a set of machines for gateways has a name that this tool or one of upstream's gives.
pub(super) fn is_set(infra_id: &str, name: &str) -> bool {
    let rest = name.strip_prefix(infra_id).map_or(name, |rest| rest.trim_start_matches('-'));
    SETS.iter().any(|begin| rest.starts_with(begin))
}

/// Returns `true` if a machine's name is one that a set gives: the set's, and some letters and digits. A set of a preparation's need
/// not be there any more: its machines go a while after it.
pub(super) fn is_of_set<'n>(infra_id: &str, mut sets: impl Iterator<Item = &'n str>, machine: &str) -> bool {
    let Some((set, end)) = machine.rsplit_once('-') else { return false };
    let is_given = !end.is_empty() && end.chars().all(|c| c.is_ascii_alphanumeric());
    is_given && (is_set(infra_id, set) || sets.any(|name| name == set))
}

/// Returns what makes two IDs the same: Azure's are compared without regard to case.
pub(super) fn key(id: &str) -> String {
    id.to_ascii_lowercase()
}

/// Returns the last part of an ID, which is a resource's name.
pub(super) fn last(id: &str) -> &str {
    id.rsplit('/').next().unwrap_or_default()
}

/// Returns the part of an ID that comes after another one, such as `resourceGroups`.
pub(super) fn part<'i>(id: &'i str, name: &str) -> Option<&'i str> {
    let mut parts = id.split('/').filter(|part| !part.is_empty());
    parts.find(|part| part.eq_ignore_ascii_case(name))?;
    parts.next()
}

/// Returns the ID of a resource.
pub(super) fn id(subscription: &str, resource_group: &str, type_: &str, name: &str) -> String {
    format!("/subscriptions/{subscription}/resourceGroups/{resource_group}/providers/{type_}/{name}")
}

/// A machine, as a node's provider ID names it: `azure://` and the ID of a resource (cloud-provider-azure).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Machine {
    /// Its ID.
    pub(super) id: String,
    /// Its resource group.
    pub(super) resource_group: String,
    /// The ID of the scale set whose instance it is; `None` for one that stands alone.
    pub(super) scale_set: Option<String>,
}

impl Machine {
    /// Returns the machine of a provider ID; `None` if it is none of Azure's.
    pub(super) fn of(provider_id: &str) -> Option<Self> {
        let id = provider_id.strip_prefix("azure://").filter(|id| id.starts_with("/subscriptions/"))?;
        let resource_group = part(id, "resourceGroups")?.to_owned();
        part(id, "virtualMachines")?;
        let at = key(id).find("/virtualmachines/")?;
        let scale_set = part(id, "virtualMachineScaleSets").and_then(|_| id.get(..at)).map(str::to_owned);
        Some(Self { id: id.to_owned(), resource_group, scale_set })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machines_of_provider_ids() {
        let alone = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachines/n1";
        let set =
            "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachineScaleSets/pool";
        let cases = [
            (format!("azure://{alone}"), Some((alone.to_owned(), None))),
            (
                format!("azure://{set}/virtualMachines/7"),
                Some((format!("{set}/virtualMachines/7"), Some(set.to_owned()))),
            ),
            (format!("azure://.evil.test{alone}"), None),
            ("azure:///subscriptions/s/resourceGroups/g".to_owned(), None),
            (String::new(), None),
        ];
        for (provider_id, wanted) in cases {
            let machine = Machine::of(&provider_id).map(|machine| (machine.id, machine.scale_set));
            assert_eq!(machine, wanted, "{provider_id}");
        }
    }

    #[test]
    fn names_of_sets() {
        assert_eq!(
            (set("westeurope", "2"), set("us", "")),
            ("subgw-westeur-2".to_owned(), "subgw-us".to_owned())
        );
        let cases = [
            ("subgw-westeur-0a1b2c", true),
            ("east-subgw-westeurope-1", true),
            ("east-submariner-gw-1", true),
            ("east-worker-1", false),
            ("gateways", false),
        ];
        for (name, wanted) in cases {
            assert_eq!(is_set("east", name), wanted, "{name}");
        }
    }
}
