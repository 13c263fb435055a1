//! Reads the table back from nftables' JSON. What cannot be ours equals nothing of ours. Pure.

use std::net::IpAddr;
use std::sync::Arc;

use serde_json::{Map, Value};
use trieste_control::services::{Frontend, Protocol};

use super::{Pick, Table};
use crate::nft::{self, text};

/// Prefix of the names of chains of back ends.
const PREFIX: &str = "b-";
/// The maps' names without their last character.
const FRONTENDS: &str = "frontends";

/// Reads the output of `nft -j list table inet NAME`.
///
/// # Errors
/// If it is no listing.
pub fn read(name: &'static str, listing: &[u8]) -> serde_json::Result<Table> {
    let mut table = Table { name, ..Table::default() };
    nft::for_each_object(listing, |object| {
        let structure = read_object(object, &mut table);
        table.structure.extend(structure);
    })?;
    nft::sort(&mut table.structure);
    Ok(table)
}

/// Reads an object; returns it, without fields that differ from one reading to the next, if it is part of the structure.
fn read_object(object: Value, table: &mut Table) -> Option<Value> {
    let Value::Object(object) = object else { return None };
    let (kind, body) = object.into_iter().next()?;
    let Value::Object(mut body) = body else { return None };
    nft::strip(&mut body);
    let name = text(&body, if kind == "rule" { "chain" } else { "name" }).to_owned();
    match kind.as_str() {
        "chain" if name.starts_with(PREFIX) => {
            table.picks.entry(name).or_insert(None);
            return None;
        }
        "rule" if name.starts_with(PREFIX) => {
            // A chain with two rules is not ours.
            let pick = body.get("expr").and_then(pick).map(Arc::new);
            let slot = table.picks.entry(name).or_insert(None);
            *slot = if slot.is_some() { None } else { pick };
            return None;
        }
        "map" if name.starts_with(FRONTENDS) => {
            let elements = body.remove("elem");
            let elements = elements.as_ref().and_then(Value::as_array).into_iter().flatten();
            table.frontends.extend(elements.filter_map(frontend));
        }
        "set" => nft::move_elements(&mut body, &mut table.sets),
        _ => {}
    }
    Some(Value::Object(Map::from_iter([(kind, Value::Object(body))])))
}

fn frontend(element: &Value) -> Option<(Frontend, String)> {
    let [key, verdict] = &**element.as_array()? else { return None };
    let [address, protocol, port] = &**key.get("concat")?.as_array()? else { return None };
    let frontend = Frontend {
        address: address.as_str()?.parse().ok()?,
        protocol: protocol_of(protocol.as_str()?)?,
        port: u16::try_from(port.as_u64()?).ok()?,
    };
    Some((frontend, verdict.get("goto")?.get("target")?.as_str()?.to_owned()))
}

/// Reads the rule of a chain of back ends. Where it looks at the client's port, nftables leaves the match on the protocol
/// out and names the protocol there.
fn pick(expr: &Value) -> Option<Pick> {
    let expressions = expr.as_array()?;
    let matched = expressions.iter().find_map(|one| one.get("match")?.get("right")?.as_str());
    let dnat = expressions.iter().find_map(|one| one.get("dnat"))?;
    let to = dnat.get("addr")?;
    if let Some(address) = to.as_str() {
        let port = u16::try_from(dnat.get("port")?.as_u64()?).ok()?;
        let places = vec![(address.parse().ok()?, port)];
        return Some(Pick { protocol: protocol_of(matched?)?, by_port: false, places });
    }
    let map = to.get("map")?;
    let hash = map.get("key")?.get("jhash")?;
    let client = hash.get("expr")?;
    let port = client.get("concat").and_then(|both| both.get(1)?.get("payload")?.get("protocol")?.as_str());
    let places = map.get("data")?.get("set")?.as_array()?.iter().enumerate().map(|(number, entry)| {
        let [place, backend] = &**entry.as_array()? else { return None };
        (place.as_u64()? == number as u64).then(|| address_and_port(backend))?
    });
    Some(Pick {
        protocol: protocol_of(port.or(matched)?)?,
        by_port: port.is_some(),
        places: places.collect::<Option<_>>()?,
    })
}

fn protocol_of(name: &str) -> Option<Protocol> {
    [Protocol::Tcp, Protocol::Udp, Protocol::Sctp].into_iter().find(|protocol| protocol.name() == name)
}

/// Parses an address and port as `nft -j` reports them.
fn address_and_port(value: &Value) -> Option<(IpAddr, u16)> {
    let [address, port] = &**value.get("concat")?.as_array()? else { return None };
    Some((address.as_str()?.parse().ok()?, u16::try_from(port.as_u64()?).ok()?))
}
