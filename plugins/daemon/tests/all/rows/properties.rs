//! Laws of plans over random databases: rows of ours, of upstream, of OVN-Kubernetes, in any state.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use trieste_ovn::condition::Condition;
use trieste_ovn::constants::{OWNER, OWNER_KEY};
use trieste_ovn::wanted::{RouteKind, Topology, Zone};
use trieste_ovn::{Chassis, Rows, Table, Transaction, plan, uninstall};
use trieste_ovsdb::operation::Operation;
use trieste_ovsdb::uuid::Uuid;
use trieste_ovsdb::value::{Datum, Row};

use crate::rows::model::Model;
use crate::rows::support::{Facts, networks, route};

const NETWORKS: [&str; 5] =
    ["10.132.0.0/14", "10.136.0.0/14", "172.31.0.0/16", "fd00:10:132::/48", "fd00:10:136::/48"];
const NEXT_HOPS: [&str; 4] = ["10.128.0.2", "fd00:10:128::2", "10.128.0.9", "169.254.34.1"];
/// What says which load balancers a switch or router has; the second one is missing in older schemas.
const BALANCERS: [&str; 2] = ["load_balancer", "load_balancer_group"];
const NAMES: [(Table, &str); 10] = [
    (Table::LogicalRouter, "submariner_router"),
    (Table::LogicalSwitch, "submariner_join"),
    (Table::LogicalRouterPort, "subm_ext_port"),
    (Table::LogicalRouterPort, "subm_join_port"),
    (Table::LogicalRouterPort, "ovn_cluster_submariner_port"),
    (Table::LogicalSwitchPort, "subm_ext_sw_port"),
    (Table::LogicalSwitchPort, "subm_join_sw_port"),
    (Table::LogicalSwitchPort, "ovn_cluster_sw_submariner_port"),
    (Table::GatewayChassis, "subm_ext_port-node1-chassis"),
    (Table::GatewayChassis, "subm_ext_port-gone"),
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Whose {
    Ours,
    Upstreams,
    Nobodys,
}

fn whose() -> impl Strategy<Value = Whose> {
    prop_oneof![3 => Just(Whose::Ours), 1 => Just(Whose::Upstreams), 1 => Just(Whose::Nobodys)]
}

fn marks(whose: Whose) -> Datum {
    match whose {
        Whose::Ours => Datum::map([(OWNER_KEY, OWNER), ("submariner", "v0.0.9")]),
        Whose::Upstreams => Datum::map([("submariner", "v0.20.0")]),
        Whose::Nobodys => Datum::map([("k8s.ovn.org/owner", "x")]),
    }
}

/// A row, by numbers that choose from what is above, and which router or switch it is a part of.
type Chosen = (Whose, usize, usize, usize, usize);

fn chosen() -> impl Strategy<Value = Chosen> {
    (whose(), 0..10usize, 0..8usize, 0..4usize, 0..3usize)
}

fn database() -> impl Strategy<Value = Model> {
    let several = |most| prop::collection::vec(chosen(), 0..most);
    let balancers = [0..3_u8, 0..3_u8];
    (several(8), several(8), several(12), any::<[bool; 3]>(), balancers).prop_map(
        |(named, routes, policies, has, balancers)| {
            let mut model = Model::new(has[1]);
            let name = |name: &str| vec![("name", Datum::from(name.to_owned()))];
            let routers = ["ovn_cluster_router", "GR_node1"]
                .map(|text| model.add(Table::LogicalRouter, None, &name(text)));
            let switches =
                ["ext_node1", "join"].map(|text| model.add(Table::LogicalSwitch, None, &name(text)));
            let mut node = name("node1");
            node.extend(
                BALANCERS
                    .into_iter()
                    .zip(balancers.map(several_rows))
                    .filter(|(column, _)| !has[1] || *column == BALANCERS[0]),
            );
            model.add(Table::LogicalSwitch, None, &node);
            let networks =
                |texts: &[&str]| ("networks", Datum::set(texts.iter().map(|&text| text.to_owned())));
            let connected = [name("rtoj"), vec![networks(&["100.64.0.1/16"])]].concat();
            model.add(Table::LogicalRouterPort, Some(routers[0]), &connected);
            if has[0] {
                let outside =
                    [name("rtoe-GR_node1"), vec![networks(&["169.254.33.2/24", "fd33::2/64"])]].concat();
                model.add(Table::LogicalRouterPort, Some(routers[1]), &outside);
            }
            let mut parents =
                Parents { routers: routers.to_vec(), switches: switches.to_vec(), ports: Vec::new() };
            add_named(&mut model, &mut parents, &named);
            routes.iter().for_each(|chosen| add_route(&mut model, &parents.routers, *chosen));
            policies.iter().for_each(|chosen| add_policy(&mut model, &parents.routers, *chosen));
            model.transact(&[]).unwrap();
            model
        },
    )
}

/// Returns references to rows of a table that is not followed.
fn several_rows(count: u8) -> Datum {
    Datum::set((0..count).map(|number| Uuid::from_bytes([0xb0 + number; 16])))
}

struct Parents {
    routers: Vec<Uuid>,
    switches: Vec<Uuid>,
    ports: Vec<Uuid>,
}

fn add_named(model: &mut Model, parents: &mut Parents, named: &[Chosen]) {
    let mut chosen: Vec<&Chosen> = named.iter().collect();
    chosen.sort_by_key(|(_, at, ..)| *at);
    let mut taken = BTreeSet::new();
    for (whose, at, value, _, parent) in chosen {
        let (table, name) = NAMES[*at];
        // No index keeps two routers or switches of one name apart.
        let is_root = matches!(table, Table::LogicalRouter | Table::LogicalSwitch);
        if !is_root && !taken.insert(*at) {
            continue;
        }
        let mut columns = vec![("name", Datum::from(name)), ("external_ids", marks(*whose))];
        let of = |uuids: &[Uuid]| (!uuids.is_empty()).then(|| uuids[parent % uuids.len()]);
        let parent = match table {
            Table::LogicalRouterPort => {
                columns.push(("networks", Datum::from(format!("192.0.2.{value}/24"))));
                of(&parents.routers)
            }
            Table::LogicalSwitchPort => of(&parents.switches),
            Table::GatewayChassis => of(&parents.ports),
            Table::LogicalRouter | Table::LogicalSwitch | Table::StaticRoute | Table::Policy => None,
        };
        if parent.is_none() && !is_root {
            continue;
        }
        let uuid = model.add(table, parent, &columns);
        match table {
            Table::LogicalRouter => parents.routers.push(uuid),
            Table::LogicalSwitch => parents.switches.push(uuid),
            Table::LogicalRouterPort => parents.ports.push(uuid),
            Table::LogicalSwitchPort | Table::GatewayChassis | Table::StaticRoute | Table::Policy => {}
        }
    }
}

fn add_route(model: &mut Model, routers: &[Uuid], (whose, network, kind, next_hop, parent): Chosen) {
    let mut columns = vec![
        ("ip_prefix", NETWORKS[network % NETWORKS.len()].into()),
        ("nexthop", NEXT_HOPS[next_hop].into()),
        ("external_ids", marks(whose)),
    ];
    if kind == 0 {
        columns.push(("policy", "src-ip".into()));
    }
    model.add(Table::StaticRoute, Some(routers[parent % routers.len()]), &columns);
}

fn add_policy(model: &mut Model, routers: &[Uuid], (whose, network, kind, next_hop, parent): Chosen) {
    let network = NETWORKS[network % NETWORKS.len()];
    let field = if network.contains(':') { "ip6.dst" } else { "ip4.dst" };
    let priority = [20_000, 20_000, 20_100, 19_999, 20_099, 10, 9, 1_004][kind];
    let mut columns = vec![
        ("priority", Datum::from(priority)),
        ("match", format!("{field} == {network}").into()),
        ("external_ids", marks(whose)),
    ];
    match (kind, next_hop) {
        (3 | 4 | 6, _) => columns.push(("action", "drop".into())),
        (_, 3) => columns.push(("action", "allow".into())),
        (5, at) => columns.extend([("action", "reroute".into()), ("nexthops", NEXT_HOPS[at].into())]),
        (_, at) => columns.extend([("action", "reroute".into()), ("nexthop", NEXT_HOPS[at].into())]),
    }
    model.add(Table::Policy, Some(routers[parent % routers.len()]), &columns);
}

fn facts() -> impl Strategy<Value = Facts> {
    let choice = prop::sample::subsequence(NETWORKS.to_vec(), 0..=NETWORKS.len());
    (choice.clone(), choice, any::<[bool; 6]>()).prop_map(|(remote, closed, is)| {
        let kind = if is[1] { RouteKind::Gateway } else { RouteKind::NonGateway };
        let next_hops: &[&str] = if is[2] { &NEXT_HOPS[..2] } else { &NEXT_HOPS[..1] };
        Facts {
            topology: if is[0] { Topology::ClusterRouter } else { Topology::SubmarinerRouter },
            zone: if is[1] { Zone::Gateway } else { Zone::Other },
            routes: vec![route("east", kind, next_hops, &remote)],
            closed: if is[3] { networks(&closed) } else { Vec::new() },
            gateway_node: is[4].then(|| "node1".to_owned()),
            is_complete: is[5],
            ..Facts::upstream()
        }
    })
}

fn chassis() -> Chassis {
    let mut chassis = Chassis::new();
    let row = [("name", "node1-chassis"), ("hostname", "node1")];
    let row: Row = row.map(|(column, text)| (column.to_owned(), Datum::from(text))).into();
    chassis.set(Uuid::from_bytes([9; 16]), &row);
    chassis
}

fn is_ours(row: &Row) -> bool {
    row["external_ids"].value_of(OWNER_KEY).is_some()
}

/// Returns the gateway chassis of ports of ours, which are a property of these.
fn properties_of_ours(model: &Model) -> BTreeSet<Uuid> {
    let ports =
        model.rows.iter().filter(|((table, _), row)| *table == Table::LogicalRouterPort && is_ours(row));
    ports.flat_map(|(_, row)| row["gateway_chassis"].uuids()).collect()
}

/// Returns every row that has neither our mark nor upstream's, with the rows of this kind that it refers to.
fn others(model: &Model, ours: &BTreeSet<Uuid>) -> BTreeMap<(Table, Uuid), Row> {
    let is_other = |uuid: &Uuid, row: &Row| {
        !ours.contains(uuid) && !is_ours(row) && row["external_ids"].value_of("submariner").is_none()
    };
    let uuids: BTreeSet<Uuid> = model
        .rows
        .iter()
        .filter(|((_, uuid), row)| is_other(uuid, row))
        .map(|((_, uuid), _)| *uuid)
        .collect();
    let mut rows = model.rows.clone();
    rows.retain(|(_, uuid), row| is_other(uuid, row));
    for column in rows.values_mut().flat_map(|row| row.iter_mut()) {
        if column.1.uuids().next().is_some() {
            *column.1 = Datum::set(column.1.uuids().filter(|uuid| uuids.contains(uuid)));
        }
    }
    rows
}

/// Carries out a plan, and looks that a second one is empty.
fn converge(model: &mut Model, facts: &Facts) -> Vec<Condition> {
    let wanted = facts.wanted();
    let first = plan(&wanted, &model.replica(), &chassis());
    for transaction in &first.transactions {
        if let Err(why) = model.transact(&transaction.operations) {
            panic!("{why}\n{model:#?}");
        }
    }
    let second = plan(&wanted, &model.replica(), &chassis());
    assert_eq!(second.transactions, [], "after {:?}", first.transactions);
    second.conditions.iter().collect()
}

/// Returns the policies of OVN-Kubernetes' router: priority, match, action, next hops.
fn policies(model: &Model) -> BTreeSet<(i64, String, String, String)> {
    let router = model.rows.iter().find(|((table, _), row)| {
        *table == Table::LogicalRouter && row["name"].as_str() == Some("ovn_cluster_router")
    });
    let rows = router.unwrap().1["policies"].uuids().map(|uuid| &model.rows[&(Table::Policy, uuid)]);
    let text = |row: &Row, column: &str| row[column].as_str().unwrap_or_default().to_owned();
    rows.map(|row| {
        let next_hop = text(row, "nexthop") + &text(row, "nexthops");
        (row["priority"].as_integer().unwrap(), text(row, "match"), text(row, "action"), next_hop)
    })
    .collect()
}

/// Looks that the policies lead every network where it should be led, and close it.
fn check_policies(model: &Model, facts: &Facts, is_unhindered: bool) {
    let policies = policies(model);
    let closed: BTreeSet<String> = facts.closed.iter().map(ToString::to_string).collect();
    for network in facts.routes[0].remote_cidrs.iter().chain(&closed) {
        let is_v6 = network.contains(':');
        let text = format!("{} == {network}", if is_v6 { "ip6.dst" } else { "ip4.dst" });
        let reroute = match (facts.topology, is_v6) {
            (Topology::SubmarinerRouter, _) => 10,
            (Topology::ClusterRouter, false) => 20_000,
            (Topology::ClusterRouter, true) => 20_100,
        };
        let drop = (reroute - 1, text.clone(), "drop".to_owned(), String::new());
        assert!(policies.contains(&drop), "{drop:?} is not in {policies:#?}");
        let (next_hop, is_led) = match facts.topology {
            Topology::ClusterRouter => {
                let next_hop = NEXT_HOPS[usize::from(is_v6)];
                (next_hop, facts.routes[0].next_hops.iter().any(|text| text == next_hop))
            }
            Topology::SubmarinerRouter => {
                (if is_v6 { "fd53:7562:6d34::1" } else { "169.254.34.1" }, is_unhindered)
            }
        };
        if is_led && !closed.contains(network) {
            let reroute = (reroute, text, "reroute".to_owned(), next_hop.to_owned());
            assert!(policies.contains(&reroute), "{reroute:?} is not in {policies:#?}");
        }
    }
}

/// Looks that our router balances what the gateway node's switch does, in every column that there is.
fn check_balancers(model: &Model) {
    let named = |wanted: Table, name: &str| {
        let rows = model.rows.iter().filter(move |((table, _), _)| *table == wanted).map(|(_, row)| row);
        rows.filter(|row| row["name"].as_str() == Some(name)).collect::<Vec<_>>()
    };
    let node = named(Table::LogicalSwitch, "node1")[0];
    for router in named(Table::LogicalRouter, "submariner_router").into_iter().filter(|row| is_ours(row)) {
        assert_eq!(BALANCERS.map(|column| router.get(column)), BALANCERS.map(|column| node.get(column)));
    }
}

/// Changes one row in one of several ways; returns what [`Rows::set`] says.
fn change(rows: &mut Rows, model: &Model, at: usize, way: usize) -> bool {
    let ((table, uuid), row) = model.rows.iter().nth(at % model.rows.len()).unwrap();
    let mut row = row.clone();
    let (column, value): (&str, Datum) = match way {
        0 => return rows.remove(*table, *uuid),
        1 => ("external_ids", marks(Whose::Ours)),
        2 => ("external_ids", Datum::map([("another", "mark")])),
        3 => ("name", "submariner_router".into()),
        4 => ("name", "default_pod7".into()),
        5 => ("nexthop", NEXT_HOPS[1].into()),
        6 => ("match", "ip4.src == 10.128.0.0/23".into()),
        7 => ("ports", Datum::empty()),
        8 => ("policies", Datum::empty()),
        9 => (BALANCERS[0], several_rows(2)),
        _ => (BALANCERS[1], several_rows(2)),
    };
    let Some(kept) = row.get_mut(column) else { return false };
    *kept = value;
    rows.set(*table, *uuid, row)
}

/// Leaves out which services a router has that a plan makes. They come and go without a plan until it is there, and that it
/// was made matters by itself.
fn without_new_balancers(mut transactions: Vec<Transaction>) -> Vec<Transaction> {
    for operation in transactions.iter_mut().flat_map(|transaction| &mut transaction.operations) {
        if let Operation::Insert { table, row, .. } = operation
            && table == Table::LogicalRouter.name()
        {
            row.retain(|column, _| !BALANCERS.contains(&column.as_str()));
        }
    }
    transactions
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn plugin_ovn_plans_lead_to_what_is_wanted_and_touch_nothing_else(mut model in database(), facts in facts()) {
        let properties = properties_of_ours(&model);
        let before = others(&model, &properties);
        let conditions = converge(&mut model, &facts);
        let after = others(&model, &properties);
        for (id, row) in &before {
            prop_assert_eq!(after.get(id), Some(row));
        }
        prop_assert_eq!(after.len(), before.len());
        check_policies(&model, &facts, conditions.is_empty());
        if facts.topology == Topology::SubmarinerRouter && conditions.is_empty() {
            check_balancers(&model);
        }
    }

    #[test]
    fn plugin_ovn_an_uninstallation_removes_what_is_ours_and_nothing_else(mut model in database()) {
        let (before, properties) = (model.rows.clone(), properties_of_ours(&model));
        let plan = uninstall(&model.replica());
        for transaction in &plan.transactions {
            model.transact(&transaction.operations).unwrap();
        }
        prop_assert!(uninstall(&model.replica()).transactions.is_empty());
        let kept: Vec<_> = model.rows.iter().filter(|(_, row)| is_ours(row)).collect();
        prop_assert!(kept.iter().all(|((table, _), _)| matches!(table, Table::LogicalRouter | Table::LogicalSwitch)));
        // Only a part of somebody else keeps a router or switch, and the condition says so.
        prop_assert_eq!(kept.is_empty(), plan.conditions.is_empty());
        for (id, row) in before.iter().filter(|((_, uuid), row)| !is_ours(row) && !properties.contains(uuid)) {
            prop_assert!(model.rows.contains_key(id), "{:?}", row);
        }
    }

    #[test]
    fn plugin_ovn_a_change_that_does_not_matter_changes_no_plan(
        model in database(), facts in facts(), at in 0..64usize, way in 0..11usize,
    ) {
        let (wanted, mut rows) = (facts.wanted(), model.replica());
        let planned = |rows: &Rows| without_new_balancers(plan(&wanted, rows, &chassis()).transactions);
        let before = planned(&rows);
        if !change(&mut rows, &model, at, way) {
            prop_assert_eq!(planned(&rows), before);
        }
    }
}

#[test]
fn plugin_ovn_pods_that_come_and_go_do_not_matter() {
    let mut model = Model::default();
    model.add(Table::LogicalRouter, None, &[("name", "ovn_cluster_router".into())]);
    let switch = model.add(Table::LogicalSwitch, None, &[("name", "node1".into())]);
    let mut rows = model.replica();
    let pod = model.add(Table::LogicalSwitchPort, Some(switch), &[("name", "default_pod1".into())]);
    // A replica shows tables in the order of their names: the switch comes first.
    for (table, uuid) in [(Table::LogicalSwitch, switch), (Table::LogicalSwitchPort, pod)] {
        assert!(!rows.set(table, uuid, model.rows[&(table, uuid)].clone()), "{table:?}");
    }
    assert!(!rows.remove(Table::LogicalSwitchPort, pod));
}
