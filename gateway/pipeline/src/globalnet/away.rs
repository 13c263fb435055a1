//! Whose a packet is, among the gateways of a cluster and the workers of this one.
//!
//! A packet whose bucket is a sibling's goes to it over the sibling cable as it is: outbound before its source is
//! translated, inbound before its destination is. What has come by a sibling cable is translated here whatever this
//! gateway thinks of owners, so no packet goes to and fro while gateways see each other differently.

use trieste_nat::{Bucket, Division, Facts, Gateway, MAX_GATEWAYS, Rules};
use trieste_packet::{GatewayKey, PathId, WorkerId};

use super::fleet::Fleet;
use crate::board::Board;
use crate::owner::Crossing;
use crate::tables::{Path, Tables};

/// Who translates a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Owner {
    /// A worker of this gateway.
    Worker(WorkerId),
    /// The sibling at the end of this path.
    Sibling(PathId),
}

/// Who owns what, as this gateway sees it; as good as the tables, the board and the fleet that it was made of.
#[derive(Debug, Clone)]
pub(crate) struct View {
    division: Division,
    /// The siblings, at their places in the division less one.
    siblings: [(GatewayKey, PathId); MAX_GATEWAYS - 1],
    count: u8,
    /// Epoch and generations that it was made of.
    made_of: (u64, u64, u64),
}

impl View {
    pub(crate) fn alone() -> Self {
        let siblings = [(GatewayKey(0), PathId(0)); MAX_GATEWAYS - 1];
        Self { division: Division::alone(), siblings, count: 0, made_of: (0, 0, 0) }
    }

    /// Looks again if anything has changed.
    pub(crate) fn renew(&mut self, tables: &Tables, board: &Board, fleet: &Fleet) {
        let made_of = (tables.epoch(), board.generation(), fleet.generation());
        if made_of == self.made_of {
            return;
        }
        self.made_of = made_of;
        let own = Gateway { key: fleet.key(), is_up: true, is_ready: fleet.is_serving() };
        let mut gateways = [own; MAX_GATEWAYS];
        self.count = 0;
        for path in sibling_paths(tables) {
            let at = usize::from(self.count);
            self.siblings[at] = (path.key, path.id);
            let is_up = is_up(board, path);
            gateways[at + 1] = Gateway { key: path.key, is_up, is_ready: fleet.is_able(path.key) };
            self.count += 1;
        }
        self.division = Division::among(&gateways[..=usize::from(self.count)]);
    }

    /// Who translates what belongs to a bucket. What a sibling has sent is ours.
    pub(crate) fn owner(&self, bucket: Bucket, rules: &Rules, crossing: Crossing) -> Owner {
        match self.division.owner(bucket).checked_sub(1) {
            Some(sibling) if !crossing.is_relayed() => Owner::Sibling(self.siblings[usize::from(sibling)].1),
            _ => Owner::Worker(rules.owner(bucket)),
        }
    }

    /// The buckets that are this gateway's, one bit for each.
    pub(crate) fn owned(&self) -> u64 {
        self.division.owned_by(0)
    }

    /// The place of a sibling, for [`Self::division`].
    pub(crate) fn place_of(&self, key: GatewayKey) -> Option<u8> {
        let known = &self.siblings[..usize::from(self.count)];
        (1..).zip(known).find(|(_, sibling)| sibling.0 == key).map(|(place, _)| place)
    }

    pub(crate) fn division(&self) -> &Division {
        &self.division
    }
}

/// Who translates an inbound packet. What is translated without state can be translated anywhere.
pub(crate) fn inbound_owner(view: &View, rules: &Rules, facts: &Facts, crossing: Crossing) -> Owner {
    let bucket = rules.bucket_inbound(facts);
    match view.owner(bucket, rules, crossing) {
        Owner::Sibling(_) if rules.is_static_inbound(facts) => Owner::Worker(rules.owner(bucket)),
        owner @ (Owner::Worker(_) | Owner::Sibling(_)) => owner,
    }
}

/// Who translates an outbound packet. What is translated without state can be translated anywhere.
pub(crate) fn outbound_owner(view: &View, rules: &Rules, facts: &Facts, crossing: Crossing) -> Owner {
    let bucket = rules.bucket_outbound(facts);
    match view.owner(bucket, rules, crossing) {
        Owner::Sibling(_) if rules.is_static_outbound(facts) => Owner::Worker(rules.owner(bucket)),
        owner @ (Owner::Worker(_) | Owner::Sibling(_)) => owner,
    }
}

/// The paths to siblings, as many as count.
pub(crate) fn sibling_paths(tables: &Tables) -> impl Iterator<Item = &Path> {
    let paths = tables.siblings().iter().filter_map(|sibling| tables.path(sibling.path));
    paths.take(MAX_GATEWAYS - 1)
}

/// Whether a sibling can be sent its packets and messages. A path that is held back after an outage is good enough: as long
/// as two gateways that hear each other took each other for dead, both would translate all, and neither would know what the
/// other has begun.
pub(crate) fn is_up(board: &Board, path: &Path) -> bool {
    board.state(path.cable).is_passable()
}
