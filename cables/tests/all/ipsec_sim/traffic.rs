//! Who sends how many inner packets to whom.

use std::time::Duration;

use trieste_simulator::Random;

use super::inner;
use super::shape;

/// A steady stream of batches from each gateway to each other one.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pace {
    /// Shortest and longest wait between two batches, in milliseconds.
    pub(crate) wait_ms: (u64, u64),
    /// Most packets of a batch.
    pub(crate) most: u64,
}

impl Pace {
    pub(crate) fn wait(&self, random: &mut Random) -> Duration {
        random.millis(self.wait_ms.0, self.wait_ms.1)
    }
}

/// The packets of a batch, all of one flow and mostly alike, so that they can travel as a train.
pub(crate) fn batch(
    next_serial: &mut u64,
    ends: (usize, usize),
    most: u64,
    random: &mut Random,
) -> Vec<(u64, Vec<u8>)> {
    let (from, to) = ends;
    let pairs: Vec<(usize, usize)> = shape::subnet_pairs().collect();
    let (near, far) = *random.choose(&pairs);
    let filling = random.below(60);
    let number = random.between(1, 250);
    (0..random.between(1, most))
        .map(|_| {
            *next_serial += 1;
            let (source, destination) = (shape::host(from, near, number), shape::host(to, far, number));
            (*next_serial, inner::packet(*next_serial, source, destination, filling))
        })
        .collect()
}

/// One packet for each pair of subnets.
pub(crate) fn probes(next_serial: &mut u64, from: usize, to: usize) -> Vec<(u64, Vec<u8>)> {
    shape::subnet_pairs()
        .map(|(near, far)| {
            *next_serial += 1;
            let (source, destination) = (shape::host(from, near, 9), shape::host(to, far, 9));
            (*next_serial, inner::packet(*next_serial, source, destination, 40))
        })
        .collect()
}
