//! Which cluster answers for a service.

use std::sync::Arc;

use crate::export::Export;
use crate::routing::Routing;
use crate::schedule::Schedule;
use crate::service::{Need, Service};

/// Chooses the cluster that a client is sent to. None if none that serves can be reached.
///
/// What a cluster has to have (`need`) counts for remote ones only: the own cluster and the clusters of a failover list
/// are chosen for all types of records or for none, or a client that asks for A and AAAA would be sent to a far cluster
/// because the near one has one family.
pub(crate) fn pick(service: &Service, need: Need) -> Option<&Export> {
    match choose(service, need) {
        Choice::Nobody => None,
        Choice::One(export) => Some(export),
        Choice::Turns => round_robin(service, need),
    }
}

/// Returns the clusters that clients are sent to at present: one, or those that have turns. No turn is taken.
pub(crate) fn candidates(service: &Service, need: Need) -> Vec<&Export> {
    match choose(service, need) {
        Choice::Nobody => Vec::new(),
        Choice::One(export) => vec![export],
        Choice::Turns => {
            let is_any_weighted = eligible(service, need).any(|export| export.weight > 0);
            with_turns(eligible(service, need), is_any_weighted).collect()
        }
    }
}

/// Who clients are sent to.
enum Choice<'s> {
    Nobody,
    One(&'s Export),
    /// Those that are eligible, in turn.
    Turns,
}

fn choose(service: &Service, need: Need) -> Choice<'_> {
    let local = || eligible(service, Need::Any).find(|export| export.cluster.is_local());
    match &service.routing {
        Routing::LocalOnly => local().map_or(Choice::Nobody, Choice::One),
        Routing::RoundRobin => local().map_or(Choice::Turns, Choice::One),
        Routing::Nearest => local().or_else(|| nearest(service, need)).map_or(Choice::Nobody, Choice::One),
        Routing::Failover(order) => {
            let listed = order.iter().filter_map(|id| service.export(id.as_bytes()));
            let first = listed.map(AsRef::as_ref).find(|export: &&Export| export.is_eligible());
            first.or_else(local).map_or(Choice::Turns, Choice::One)
        }
    }
}

/// Returns the clusters that addresses of a headless service come from: all that can be reached, or the own one alone.
pub(crate) fn all(service: &Service) -> impl Iterator<Item = &Arc<Export>> + Clone {
    let is_local_only = service.routing == Routing::LocalOnly;
    service
        .exports
        .iter()
        .filter(move |export| export.is_eligible() && (!is_local_only || export.cluster.is_local()))
}

fn eligible(service: &Service, need: Need) -> impl Iterator<Item = &Export> + Clone {
    service.exports.iter().map(AsRef::as_ref).filter(move |export| export.is_eligible() && export.has(need))
}

/// Finds the cluster with the shortest round trip; equal ones by their ids.
fn nearest(service: &Service, need: Need) -> Option<&Export> {
    eligible(service, need).min_by_key(|export| export.cluster.distance())
}

/// Gives the turn to a cluster: smooth weighted round robin over those that are eligible.
fn round_robin(service: &Service, need: Need) -> Option<&Export> {
    let candidates = eligible(service, need);
    let mut weights = candidates.clone().map(|export| export.weight);
    let first = weights.next()?;
    let (mut count, mut are_equal, mut is_any_weighted) = (1_u64, true, first > 0);
    for weight in weights {
        count += 1;
        are_equal &= weight == first;
        is_any_weighted |= weight > 0;
    }
    if count == 1 {
        return candidates.clone().next();
    }
    let turn = service.turns.of(need).take();
    let candidates = with_turns(candidates, is_any_weighted);
    let index =
        if are_equal { usize::try_from(turn % count).unwrap_or(0) } else { scheduled(service, need, turn) };
    // Between counting and here a cluster may have gone: then the last one has the turn.
    candidates.clone().nth(index).or_else(|| candidates.clone().last())
}

/// Returns those that have turns: a weight of 0 keeps clients away as long as there is another cluster.
fn with_turns<'s>(
    candidates: impl Iterator<Item = &'s Export> + Clone,
    is_any_weighted: bool,
) -> impl Iterator<Item = &'s Export> + Clone {
    candidates.filter(move |export| export.weight > 0 || !is_any_weighted)
}

/// Returns who has a turn by weight, from the period that is computed whenever the eligible clusters change.
fn scheduled(service: &Service, need: Need, turn: u64) -> usize {
    let weighted = eligible(service, need).filter(|export| export.weight > 0);
    let key = weighted.clone().fold(0xcbf2_9ce4_8422_2325_u64, |key, export| {
        let id = export.cluster.id().as_bytes().iter().copied();
        id.chain(export.weight.to_be_bytes())
            .fold(key, |key, byte| (key ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
    });
    if let Some(schedule) =
        service.turns.of(need).schedule.load().as_ref().filter(|schedule| schedule.key() == key)
    {
        return schedule.at(turn);
    }
    let weights: Vec<u32> = weighted.map(|export| export.weight).collect();
    let schedule = Arc::new(Schedule::new(key, &weights));
    let index = schedule.at(turn);
    service.turns.of(need).schedule.store(Some(schedule));
    index
}
