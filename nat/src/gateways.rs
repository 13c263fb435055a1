//! Which gateway has which bucket, where several translate for one cluster: rendezvous hashing over those that are
//! there. A pure function of what is known of them, so that gateways that know the same come to the same.
//!
//! ```text
//!   bucket ─▶ all gateways, best first ─▶ the first that is up and ready: its owner
//!                                      ─▶ the next such one: its second choice, which goes on with it
//!                                      ─▶ those that are up and come before: they are given its sessions, to be ready
//! ```

use trieste_packet::GatewayKey;
use trieste_packet::rendezvous::{DEFAULT_WEIGHT, choose};

use crate::owner::{BUCKETS, Bucket};

/// Most gateways of a cluster, this one included.
pub const MAX_GATEWAYS: usize = 8;

/// What a gateway is to the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gateway {
    /// Who it is.
    pub key: GatewayKey,
    /// Whether its packets come through. A gateway is always up to itself.
    pub is_up: bool,
    /// Whether it has the sessions of its buckets, and means to stay.
    pub is_ready: bool,
}

/// Who has the buckets. Gateways are named by their places in the list that this was made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Division {
    owners: [u8; BUCKETS],
    seconds: [Option<u8>; BUCKETS],
    /// The buckets that each gateway owns, one bit for each.
    owned: [u64; MAX_GATEWAYS],
    /// The buckets whose sessions each gateway keeps.
    held: [u64; MAX_GATEWAYS],
}

impl Division {
    /// One gateway has everything: the one at place 0.
    #[must_use]
    pub const fn alone() -> Self {
        let mut all = [0; MAX_GATEWAYS];
        all[0] = u64::MAX;
        Self { owners: [0; BUCKETS], seconds: [None; BUCKETS], owned: all, held: all }
    }

    /// Divides the buckets. The list begins with this gateway; at most [`MAX_GATEWAYS`] of it count. Where nobody is
    /// ready, those who are up have the buckets: somebody has to.
    #[must_use]
    pub fn among(gateways: &[Gateway]) -> Self {
        let gateways = &gateways[..gateways.len().min(MAX_GATEWAYS)];
        let anybody = !gateways.iter().any(|gateway| gateway.is_up && gateway.is_ready);
        let none = [0; MAX_GATEWAYS];
        let mut division = Self { owned: none, held: none, ..Self::alone() };
        for bucket in Bucket::all() {
            let mut left: u8 = 0;
            for (gateway, place) in gateways.iter().zip(0u8..) {
                left |= u8::from(gateway.is_up) << place;
            }
            let best = std::iter::from_fn(|| {
                let places = (0u8..).zip(gateways).filter(|(place, _)| left & (1 << place) != 0);
                let candidates = places.map(|(place, gateway)| (gateway.key, DEFAULT_WEIGHT, place));
                let place = choose(bucket.number(), candidates)?;
                left &= !(1 << place);
                Some((place, anybody || gateways[usize::from(place)].is_ready))
            });
            division.settle(bucket, best);
        }
        division
    }

    /// Says whose a bucket is. `best` are the gateways that are up, who wants it most first, and whether they are ready.
    fn settle(&mut self, bucket: Bucket, best: impl Iterator<Item = (u8, bool)>) {
        let (mut owner, mut second) = (None, None);
        for (place, is_ready) in best {
            self.held[usize::from(place)] |= bucket.bit();
            match (is_ready, owner) {
                (true, None) => owner = Some(place),
                (true, Some(_)) => second = Some(place),
                (false, _) => {}
            }
            if second.is_some() {
                break;
            }
        }
        let owner = owner.unwrap_or(0);
        self.owners[bucket.index()] = owner;
        self.seconds[bucket.index()] = second;
        self.owned[usize::from(owner)] |= bucket.bit();
        self.held[usize::from(owner)] |= bucket.bit();
    }

    /// The place of the gateway that translates a bucket's packets.
    #[must_use]
    pub fn owner(&self, bucket: Bucket) -> u8 {
        self.owners[bucket.index()]
    }

    /// The place of the gateway that goes on with a bucket when its owner dies.
    #[must_use]
    pub fn second(&self, bucket: Bucket) -> Option<u8> {
        self.seconds[bucket.index()]
    }

    /// Whether the gateway at a place keeps a bucket's sessions: its owner, its second choice, and those that will be
    /// one of them once they are ready.
    #[must_use]
    pub fn is_holder(&self, bucket: Bucket, place: u8) -> bool {
        self.held_by(place) & bucket.bit() != 0
    }

    /// The buckets that a gateway owns, one bit for each.
    #[must_use]
    pub fn owned_by(&self, place: u8) -> u64 {
        self.owned.get(usize::from(place)).copied().unwrap_or(0)
    }

    /// The buckets whose sessions a gateway keeps, one bit for each.
    #[must_use]
    pub fn held_by(&self, place: u8) -> u64 {
        self.held.get(usize::from(place)).copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gateway(key: u64) -> Gateway {
        Gateway { key: GatewayKey::of(&format!("cable-{key}")), is_up: true, is_ready: true }
    }

    fn owners(gateways: &[Gateway]) -> Vec<GatewayKey> {
        let division = Division::among(gateways);
        Bucket::all().map(|bucket| gateways[usize::from(division.owner(bucket))].key).collect()
    }

    #[test]
    fn every_gateway_comes_to_the_same_owners_and_second_choices() {
        let there: Vec<Gateway> = (1..=5).map(gateway).collect();
        for first in 0..there.len() {
            let mut seen = there.clone();
            seen.rotate_left(first);
            assert_eq!(owners(&seen), owners(&there));
            let (a, b) = (Division::among(&seen), Division::among(&there));
            for bucket in Bucket::all() {
                let second = |division: &Division, list: &[Gateway]| {
                    division.second(bucket).map(|place| list[usize::from(place)].key)
                };
                assert_eq!(second(&a, &seen), second(&b, &there));
            }
        }
    }

    #[test]
    fn buckets_are_shared_out_about_evenly() {
        for count in 2..=8_u64 {
            let mut most = 0;
            for salt in 0..50 {
                let there: Vec<Gateway> = (1..=count).map(|key| gateway(key + salt * 100)).collect();
                let division = Division::among(&there);
                let place = |place: usize| division.owned_by(u8::try_from(place).unwrap()).count_ones();
                let counts: Vec<u32> = (0..there.len()).map(place).collect();
                assert_eq!(counts.iter().sum::<u32>(), 64);
                assert!(counts.iter().all(|count| *count > 0), "{counts:?}");
                most = most.max(*counts.iter().max().unwrap());
            }
            assert!(u64::from(most) * count <= 64 * 5 / 2, "{most} of 64 with {count} gateways");
        }
    }

    #[test]
    fn who_goes_moves_only_its_own_buckets_and_to_their_second_choices() {
        let there: Vec<Gateway> = (1..=4).map(gateway).collect();
        let before = Division::among(&there);
        let mut without = there;
        without[2].is_up = false;
        let after = Division::among(&without);
        for bucket in Bucket::all() {
            if before.owner(bucket) == 2 {
                assert_eq!(Some(after.owner(bucket)), before.second(bucket));
                assert!(before.is_holder(bucket, after.owner(bucket)), "it has the sessions");
            } else {
                assert_eq!(after.owner(bucket), before.owner(bucket));
            }
        }
    }

    #[test]
    fn who_is_not_ready_owns_nothing_and_is_given_what_will_be_its() {
        let mut there: Vec<Gateway> = (1..=3).map(gateway).collect();
        let with_all = Division::among(&there);
        there[1].is_ready = false;
        let without = Division::among(&there);
        assert_eq!(without.owned_by(1), 0);
        for bucket in Bucket::all() {
            let will_hold = with_all.owner(bucket) == 1 || with_all.second(bucket) == Some(1);
            assert_eq!(without.is_holder(bucket, 1), will_hold);
            // Those who hold it now go on doing so until it is ready.
            assert!(without.is_holder(bucket, without.owner(bucket)));
            assert!(without.is_holder(bucket, without.second(bucket).unwrap()));
        }
    }

    #[test]
    fn who_is_alone_has_everything_ready_or_not() {
        let alone = Gateway { is_ready: false, ..gateway(1) };
        assert_eq!(Division::among(&[alone]), Division::alone());
        let dead = Gateway { is_up: false, ..gateway(2) };
        assert_eq!(Division::among(&[alone, dead]), Division::alone());
        let both = [alone, Gateway { is_ready: false, ..gateway(2) }];
        let division = Division::among(&both);
        assert!(division.owned_by(0) != 0 && division.owned_by(1) != 0, "nobody is ready: both go on");
    }
}
