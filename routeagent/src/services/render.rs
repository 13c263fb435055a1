//! The table as nftables' JSON, in the forms in which `nft -j` reports it. Pure.

use serde_json::{Value, json};
use trieste_control::services::Frontend;

use super::structure::{frontends, rule};
use super::{Pick, ServicesChange, Table};
use crate::family::Family;
use crate::nft::{self, TABLE_FAMILY, Transaction, element_command, field, is, missing, protocol};

/// Ours: keys the hash by which back ends are drawn, the same on every node and after every restart.
const SEED: u32 = 0x5452_5354;

/// Renders a change as the input of `nft -j -f -`.
#[must_use]
pub fn render(change: &ServicesChange) -> Transaction {
    let mut commands = Transaction::new();
    match change {
        ServicesChange::Remove(name) => commands.push(&json!({"delete": nft::table(name)})),
        ServicesChange::Build(wanted) => {
            commands.extend(nft::replace(&nft::table(wanted.name)));
            commands.extend(wanted.structure.iter().map(|object| json!({"add": object})));
            update(&Table::default(), wanted, &mut commands);
        }
        ServicesChange::Update { from, to } => update(from, to, &mut commands),
    }
    commands
}

/// Adds what is missing and removes what is too much, in an order in which nothing leads nowhere.
fn update(from: &Table, to: &Table, commands: &mut Transaction) {
    let table = to.name;
    for (verb, sets) in [("delete", missing(&from.sets, &to.sets)), ("add", missing(&to.sets, &from.sets))] {
        commands.extend(sets.iter().map(|(set, all)| element_command(verb, table, set, all)));
    }
    for (frontend, chain) in from.frontends.iter().filter(|(at, chain)| to.frontends.get(at) != Some(chain)) {
        commands.push(&map_command(("delete", table), frontend, chain));
    }
    for (name, pick) in to.picks.iter().filter(|(name, pick)| from.picks.get(*name) != Some(pick)) {
        let chain = nft::chain(table, name);
        commands.push(&json!({"add": chain}));
        commands.push(&json!({"flush": chain}));
        commands.extend(pick.as_ref().map(|pick| json!({"add": rule(table, name, &picking(pick))})));
    }
    for (frontend, chain) in to.frontends.iter().filter(|(at, chain)| from.frontends.get(at) != Some(chain)) {
        commands.push(&map_command(("add", table), frontend, chain));
    }
    for name in from.picks.keys().filter(|name| !to.picks.contains_key(*name)) {
        let chain = nft::chain(table, name);
        commands.extend([json!({"flush": chain}), json!({"delete": chain})]);
    }
}

fn map_command((verb, table): (&str, &str), at: &Frontend, chain: &str) -> Value {
    let key = json!({"concat": [at.address, at.protocol.name(), at.port]});
    let name = frontends(Family::of(at.address));
    let elements = json!([[key, {"goto": {"target": chain}}]]);
    json!({verb: {"element": {"family": TABLE_FAMILY, "table": table, "name": name, "elem": elements}}})
}

/// Renders the rule that translates the destination to one of these back ends.
fn picking(pick: &Pick) -> Value {
    let protocol = protocol(pick.family());
    // nftables needs the protocol of a port.
    let of_protocol = is(&json!({"meta": {"key": "l4proto"}}), pick.protocol.name());
    if let [(address, port)] = &*pick.places {
        return json!([of_protocol, {"dnat": {"family": protocol, "addr": address, "port": port}}]);
    }
    let client = field(protocol, "saddr");
    let client =
        if pick.by_port { json!({"concat": [client, field(pick.protocol.name(), "sport")]}) } else { client };
    let places = pick.places.iter().enumerate();
    let places: Vec<Value> =
        places.map(|(place, (address, port))| json!([place, {"concat": [address, port]}])).collect();
    let drawn = json!({"jhash": {"mod": places.len(), "seed": SEED, "expr": client}});
    let chosen = json!({"map": {"key": drawn, "data": {"set": places}}});
    json!([of_protocol, {"dnat": {"family": protocol, "addr": chosen}}])
}
