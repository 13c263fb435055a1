//! What must be so when everything has settled.

use std::collections::BTreeSet;

use trieste_control::api::{Kind, Object, annotation, overlap};
use trieste_control::leader::{Plan as LeaderPlan, TERM_ANNOTATION, View, plan};

use super::node::{LOCAL, Node};
use super::world::World;

/// Checks everything.
pub(crate) fn check(world: &World) -> Result<(), String> {
    for cluster in 0..world.members.len() {
        let leader = leader(world, cluster)?;
        own_objects(world, leader)?;
        gateways(world, cluster)?;
        foreign_objects(world, cluster)?;
        second_plan(world, leader)?;
    }
    Ok(())
}

/// One leader, and everybody agrees that it is that one.
fn leader(world: &World, cluster: usize) -> Result<&Node, String> {
    let up = || members(world, cluster).filter(|(number, _)| world.is_up(*number)).map(|(_, node)| node);
    let leaders: Vec<&Node> = up().filter(|node| node.leadership(world.millis()).is_some()).collect();
    let [leader] = leaders[..] else {
        return Err(format!("c{cluster} has {} leaders", leaders.len()));
    };
    let lease = world.stores[cluster].lease.as_ref().ok_or("the Lease is gone")?;
    let holder = &lease.spec.holder_identity;
    if *holder != format!("{}-submariner-gateway", leader.host) {
        return Err(format!("{} leads, but the Lease names {holder}", leader.host));
    }
    if let Some(other) = up().find(|node| node.elector.holder() != holder) {
        return Err(format!("{} believes in {}, not in {holder}", other.host, other.elector.holder()));
    }
    let term = leader.leadership(world.millis()).map(|held| held.term.number());
    if term != lease.spec.lease_transitions.map(i64::from) {
        return Err(format!("{} leads in term {term:?}, the Lease says {:?}", leader.host, lease.spec));
    }
    Ok(leader)
}

/// The leader's Endpoint is the cluster's only one, here and on the broker, and its term is the last word.
fn own_objects(world: &World, leader: &Node) -> Result<(), String> {
    let id = &leader.member.id;
    let term = leader.leadership(world.millis()).map(|held| held.term.to_string());
    let broker = world.members.len();
    for (store, is_own) in [(leader.cluster, None), (broker, Some(id.as_str()))] {
        for kind in [Kind::Cluster, Kind::Endpoint] {
            let own: Vec<&Object> =
                of(world, store, kind).filter(|object| object.metadata.origin() == is_own).collect();
            let [object] = own[..] else {
                return Err(format!("{id} has {} {kind} objects in store {store}: {own:#?}", own.len()));
            };
            if object.metadata.annotations.get(TERM_ANNOTATION) != term.as_ref() {
                return Err(format!(
                    "{} is not of term {term:?}: {:?}",
                    object.key(),
                    object.metadata.annotations
                ));
            }
            if kind == Kind::Endpoint && object.body["spec"]["hostname"] != *leader.host {
                return Err(format!("{} is not {}'s", object.key(), leader.host));
            }
        }
    }
    Ok(())
}

/// There is a Gateway object of every gateway that lives, and of no other.
fn gateways(world: &World, cluster: usize) -> Result<(), String> {
    let up = members(world, cluster).filter(|(number, _)| world.is_up(*number));
    let wanted: BTreeSet<String> = up.map(|(_, node)| node.host.clone()).collect();
    let found: BTreeSet<String> =
        of(world, cluster, Kind::Gateway).map(|object| object.metadata.name.clone()).collect();
    if wanted != found {
        return Err(format!("Gateway objects are {found:?}, gateways are {wanted:?}"));
    }
    let has_stamp = |object: &Object| object.metadata.annotations.contains_key(annotation::UPDATE_TIMESTAMP);
    if of(world, cluster, Kind::Gateway).all(has_stamp) { Ok(()) } else { Err("no time stamp".to_owned()) }
}

/// Others' Endpoints are here as they are on the broker, but for those that claim addresses which are ours, or of a
/// cluster that was written first: by the age of its Cluster object, ties by ID.
fn foreign_objects(world: &World, cluster: usize) -> Result<(), String> {
    let broker = world.members.len();
    let age = |of_cluster: usize| {
        let id = &world.members[of_cluster].id;
        let object = of(world, broker, Kind::Cluster).find(|object| object.metadata.origin() == Some(id));
        (object.and_then(|object| object.metadata.creation_timestamp), id.clone())
    };
    let overlaps =
        |a: usize, b: usize| overlap(&world.members[a].subnets, &world.members[b].subnets).is_some();
    for other in (0..broker).filter(|other| *other != cluster) {
        let id = &world.members[other].id;
        let is_later = |rival: usize| {
            rival != other && rival != cluster && overlaps(rival, other) && age(rival) < age(other)
        };
        let is_refused = overlaps(other, cluster) || (0..broker).any(is_later);
        let copies = of(world, cluster, Kind::Endpoint).filter(|copy| copy.metadata.origin() == Some(id));
        let copies: Vec<&Object> = copies.collect();
        let wanted = of(world, broker, Kind::Endpoint).find(|object| object.metadata.origin() == Some(id));
        match (is_refused, &copies[..], wanted) {
            (true, [], _) => {}
            (false, [copy], Some(wanted)) if copy.body == wanted.body => {}
            _ => {
                return Err(format!(
                    "c{cluster} has {} Endpoints of {id}, refused: {is_refused}",
                    copies.len()
                ));
            }
        }
    }
    Ok(())
}

/// Whoever plans again has nothing to do.
fn second_plan(world: &World, leader: &Node) -> Result<(), String> {
    let synced = |store: usize| -> Vec<&Object> {
        world.stores[store].objects.values().filter(|object| object.kind != Kind::Gateway).collect()
    };
    let (local, broker) = (synced(leader.cluster), synced(world.members.len()));
    let sync = leader.sync_plan(&local, &broker);
    if !sync.actions.is_empty() {
        return Err(format!("{}'s syncer still wants {:#?}", leader.host, sync.actions));
    }
    let term = leader.leadership(world.millis()).map(|held| held.term).ok_or("it leads")?;
    let announced = plan(&View {
        namespace: LOCAL,
        cluster: &leader.member.spec,
        endpoint: &leader.own,
        term,
        may_create: true,
        local: &local,
    });
    if announced == Ok(LeaderPlan::default()) { Ok(()) } else { Err(format!("still wants {announced:#?}")) }
}

fn members(world: &World, cluster: usize) -> impl Iterator<Item = (usize, &Node)> {
    world.nodes.iter().enumerate().filter(move |(_, node)| node.cluster == cluster)
}

fn of(world: &World, store: usize, kind: Kind) -> impl Iterator<Item = &Object> {
    world.stores[store].objects.values().filter(move |object| object.kind == kind)
}
