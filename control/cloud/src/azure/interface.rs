//! A gateway's network interface: what a preparation changes of it, and how it gets back what it had.

use std::collections::BTreeSet;
use std::net::IpAddr;

use serde_json::{Value, json};

use super::names::{BEFORE, PREPARED_FOR, key, last};

/// What stands in the tag: it had no group, forwarded nothing, had no public address.
const NO_GROUP: &str = "no-group";
const NO_FORWARDING: &str = "no-forwarding";
const NO_ADDRESS: &str = "no-address";
/// Between them.
const SEPARATOR: &str = " ";

/// What an interface is to be after a change: all that an earlier preparation has given it is taken back first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Edit {
    /// The cluster for which.
    pub(super) infra_id: String,
    /// The ID of the gateways' group.
    pub(super) group: String,
    /// The name of the public address that a preparation gives to this interface.
    pub(super) address: String,
    /// What a gateway's interface gets; `None` for one that is to be as before a preparation.
    pub(super) gets: Option<Gets>,
}

/// What a gateway's interface gets, beside that it forwards packets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Gets {
    /// Whether it gets the gateways' group if it has none.
    pub(super) group: bool,
    /// The ID of the public address that it gets if it has none.
    pub(super) address: Option<String>,
}

impl Edit {
    /// Returns an interface after the change; one that has it already is the same.
    pub(super) fn edited(&self, interface: &Value) -> Value {
        let mut after = self.restored(interface);
        let Some(gets) = &self.gets else { return after };
        let mut before = BTreeSet::new();
        if gets.group && group(&after).is_none() {
            set(&mut after, &["properties", "networkSecurityGroup"], json!({"id": self.group}));
            before.insert(NO_GROUP);
        }
        if after["properties"]["enableIPForwarding"] != true {
            set(&mut after, &["properties", "enableIPForwarding"], json!(true));
            before.insert(NO_FORWARDING);
        }
        if let (Some(id), None) = (&gets.address, address(&after))
            && let Some(primary) = primary_mut(&mut after)
        {
            set(primary, &["publicIPAddress"], json!({"id": id}));
            before.insert(NO_ADDRESS);
        }
        if !before.is_empty() {
            let before: Vec<&str> = before.into_iter().collect();
            set(&mut after, &["tags", BEFORE], json!(before.join(SEPARATOR)));
            set(&mut after, &["tags", PREPARED_FOR], json!(self.infra_id));
        }
        after
    }

    /// Returns an interface as it was before any preparation, upstream's included.
    pub(super) fn restored(&self, interface: &Value) -> Value {
        let mut after = interface.clone();
        let before: BTreeSet<&str> =
            interface["tags"][BEFORE].as_str().unwrap_or_default().split(SEPARATOR).collect();
        let is_in_group = group(interface).is_some_and(|own| key(own) == key(&self.group));
        // Upstream's tool leaves no tag: where it has given the group, it has given the address.
        let gave_address = before.contains(NO_ADDRESS) || is_in_group && !before.contains(NO_GROUP);
        if is_in_group {
            remove(after.get_mut("properties"), "networkSecurityGroup");
        }
        if before.contains(NO_FORWARDING) {
            set(&mut after, &["properties", "enableIPForwarding"], json!(false));
        }
        let is_given = |id: &str| last(id).eq_ignore_ascii_case(&self.address);
        if gave_address && address(interface).is_some_and(is_given) {
            remove(primary_mut(&mut after), "publicIPAddress");
        }
        if is_tagged(interface) {
            remove(after.get_mut("tags"), BEFORE);
            remove(after.get_mut("tags"), PREPARED_FOR);
            if after["tags"].as_object().is_some_and(serde_json::Map::is_empty) {
                remove(Some(&mut after), "tags");
            }
        }
        after
    }
}

/// Returns `true` if a preparation has left its tag there.
pub(super) fn is_tagged(interface: &Value) -> bool {
    !interface["tags"][BEFORE].is_null()
}

/// Returns its ID.
pub(super) fn id(interface: &Value) -> &str {
    interface["id"].as_str().unwrap_or_default()
}

/// Returns the ID of its own security group.
pub(super) fn group(interface: &Value) -> Option<&str> {
    interface.pointer("/properties/networkSecurityGroup/id").and_then(Value::as_str)
}

/// Returns the ID of the public address of its first configuration.
pub(super) fn address(interface: &Value) -> Option<&str> {
    let configurations = interface["properties"]["ipConfigurations"].as_array()?;
    let primary = configurations.get(primary(configurations)?)?;
    primary.pointer("/properties/publicIPAddress/id").and_then(Value::as_str)
}

/// Returns the IDs of its subnets.
pub(super) fn subnets(interface: &Value) -> impl Iterator<Item = &str> {
    let configurations = interface["properties"]["ipConfigurations"].as_array().into_iter().flatten();
    configurations.filter_map(|one| one.pointer("/properties/subnet/id").and_then(Value::as_str))
}

/// Returns the resources that it refers to, each with the action that a PUT of it takes there ("Azure permissions for Networking").
pub(super) fn joins(interface: &Value) -> BTreeSet<(String, &'static str)> {
    let configurations = interface["properties"]["ipConfigurations"].as_array().into_iter().flatten();
    let addresses = configurations
        .filter_map(|one| one.pointer("/properties/publicIPAddress/id").and_then(Value::as_str));
    let with = |action: &'static str| move |id: &str| (id.to_owned(), action);
    let groups =
        group(interface).into_iter().map(with("Microsoft.Network/networkSecurityGroups/join/action"));
    let subnets = subnets(interface).map(with("Microsoft.Network/virtualNetworks/subnets/join/action"));
    let addresses = addresses.map(with("Microsoft.Network/publicIPAddresses/join/action"));
    groups.chain(subnets).chain(addresses).collect()
}

/// Returns its addresses in the virtual network.
pub(super) fn private_addresses(interface: &Value) -> BTreeSet<IpAddr> {
    let configurations = interface["properties"]["ipConfigurations"].as_array().into_iter().flatten();
    let texts = configurations.filter_map(|one| one["properties"]["privateIPAddress"].as_str());
    texts.filter_map(|text| text.parse().ok()).collect()
}

/// Returns the ID of the machine to which it belongs.
pub(super) fn machine(interface: &Value) -> Option<&str> {
    interface.pointer("/properties/virtualMachine/id").and_then(Value::as_str)
}

/// Returns `true` for the first interface of a machine, which is the one with the node's address.
pub(super) fn is_first(interface: &Value) -> bool {
    interface["properties"]["primary"] != false
}

/// Returns which of some configurations is the first one.
fn primary(configurations: &[Value]) -> Option<usize> {
    let named = configurations.iter().position(|one| one["properties"]["primary"] == true);
    named.or_else(|| (!configurations.is_empty()).then_some(0))
}

fn primary_mut(interface: &mut Value) -> Option<&mut Value> {
    let configurations = interface.pointer_mut("/properties/ipConfigurations")?.as_array_mut()?;
    let at = primary(configurations)?;
    configurations.get_mut(at)?.get_mut("properties")
}

/// Sets a field of a field; where an answer has something that is no object on the way, nothing is changed.
fn set(object: &mut Value, path: &[&str], value: Value) {
    let Some((last, way)) = path.split_last() else { return };
    let mut at = object;
    for field in way {
        let Some(fields) = at.as_object_mut() else { return };
        at = fields.entry(*field).or_insert(Value::Null);
        if at.is_null() {
            *at = json!({});
        }
    }
    if let Some(fields) = at.as_object_mut() {
        fields.insert((*last).to_owned(), value);
    }
}

fn remove(object: Option<&mut Value>, field: &str) {
    if let Some(fields) = object.and_then(Value::as_object_mut) {
        fields.remove(field);
    }
}
