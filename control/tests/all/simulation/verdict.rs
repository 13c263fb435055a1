//! What must be so when everything has settled.

use std::collections::BTreeSet;

use ipnet::IpNet;
use trieste_control::api::{Kind, Object, annotation, overlap};
use trieste_control::leader::{Plan as LeaderPlan, TERM_ANNOTATION, View, plan};
use trieste_control::sync::SyncLimits;

use super::hostile;
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
/// cluster that was written first: by the age of its Cluster object, ties by ID. The hostile member is one of them, as far
/// as a member may claim what it does.
fn foreign_objects(world: &World, cluster: usize) -> Result<(), String> {
    let own = &world.members[cluster];
    let lost = lost(world);
    for other in world.members.iter().filter(|other| other.id != own.id) {
        let wanted = endpoints(world, world.members.len(), &other.id);
        let is_refused = |object: &&Object| {
            overlap(&other.subnets, &own.subnets).is_some() || lost.contains(&object.metadata.name)
        };
        let wanted: Vec<&Object> = wanted.into_iter().filter(|object| !is_refused(object)).collect();
        let copies = endpoints(world, cluster, &other.id);
        let bodies =
            |objects: &[&Object]| -> Vec<_> { objects.iter().map(|object| object.body.clone()).collect() };
        if bodies(&copies) != bodies(&wanted) {
            return Err(format!("{} has {copies:#?} of {}, not {wanted:#?}", own.id, other.id));
        }
    }
    hostile_objects(world, cluster, &lost)
}

/// Of the hostile member there is what a member may have: what it may claim, and no more objects than anybody may have.
fn hostile_objects(world: &World, cluster: usize, lost: &BTreeSet<String>) -> Result<(), String> {
    let own = &world.members[cluster];
    let is_fine = |object: &&Object| {
        let nets = hostile::claimed(object).unwrap_or_default();
        overlap(&nets, &own.subnets).is_none() && !lost.contains(&object.metadata.name)
    };
    let name = |object: &Object| object.metadata.name.clone();
    let wanted: BTreeSet<String> =
        taken_of(world, hostile::ID).into_iter().filter(is_fine).map(name).collect();
    let found: BTreeSet<String> = endpoints(world, cluster, hostile::ID).into_iter().map(name).collect();
    if found == wanted {
        Ok(())
    } else {
        let (more, less) = (&found - &wanted, &wanted - &found);
        Err(format!("{} has {more:?} of the hostile member and lacks {less:?}", own.id))
    }
}

/// Tells whether an object of a member makes sense: nobody speaks for another one, or claims what none may have.
fn is_sane(object: &Object, id: &str) -> bool {
    let is_own = object.body["spec"]["cluster_id"] == id;
    is_own && (object.kind == Kind::Cluster || hostile::claimed(object).is_some())
}

/// The Endpoints of a member on the broker that make sense and are among its oldest objects, as many as it may have.
fn taken_of<'a>(world: &'a World, id: &str) -> Vec<&'a Object> {
    let broker = &world.stores[world.members.len()];
    let own = broker.objects.values().filter(|object| object.metadata.origin() == Some(id));
    let mut own: Vec<&Object> = own.filter(|object| is_sane(object, id)).collect();
    own.sort_by_key(|object| (object.metadata.creation_timestamp, object.kind, object.metadata.name.clone()));
    own.truncate(SyncLimits::default().objects_per_cluster);
    own.retain(|object| object.kind == Kind::Endpoint);
    own
}

/// Endpoints on the broker that lose to an older cluster's, by the rule: oldest cluster first, each is taken in that overlaps
/// none of another cluster that was taken in before.
fn lost(world: &World) -> BTreeSet<String> {
    let broker = world.members.len();
    let mut claims = Vec::new();
    for id in world.members.iter().map(|member| member.id.as_str()).chain([hostile::ID]) {
        let oldest = |kind| {
            let own = of(world, broker, kind).filter(|object| object.metadata.origin() == Some(id));
            own.filter(|object| is_sane(object, id))
                .filter_map(|object| object.metadata.creation_timestamp)
                .min()
        };
        let age = oldest(Kind::Cluster).or_else(|| oldest(Kind::Endpoint));
        for object in taken_of(world, id) {
            claims.push((age, id, &object.metadata.name, hostile::claimed(object).unwrap_or_default()));
        }
    }
    claims.sort_by(|a, b| (a.0, a.1, a.2).cmp(&(b.0, b.1, b.2)));
    let mut taken: Vec<(&str, &[IpNet])> = Vec::new();
    let mut lost = BTreeSet::new();
    for (_, id, name, nets) in &claims {
        if taken.iter().any(|(other, theirs)| other != id && overlap(theirs, nets).is_some()) {
            lost.insert((*name).clone());
        } else {
            taken.push((id, nets));
        }
    }
    lost
}

fn endpoints<'a>(world: &'a World, store: usize, id: &str) -> Vec<&'a Object> {
    of(world, store, Kind::Endpoint).filter(|object| object.metadata.origin() == Some(id)).collect()
}

/// Whoever plans again has nothing to do.
fn second_plan(world: &World, leader: &Node) -> Result<(), String> {
    let synced = |store: usize| -> Vec<&Object> {
        world.stores[store].objects.values().filter(|object| object.kind != Kind::Gateway).collect()
    };
    let (local, broker) = (synced(leader.cluster), synced(world.members.len()));
    let sync = leader.sync_plan(&local, &broker);
    if !sync.writes.is_empty() {
        return Err(format!("{}'s syncer still wants {:#?}", leader.host, sync.writes));
    }
    let term = leader.leadership(world.millis()).map(|held| held.term).ok_or("it leads")?;
    let announced = plan(&View {
        extra: &[],
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
