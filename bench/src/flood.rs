//! What one flow costs on a worker on which somebody begins new flows without end: with random addresses, and with ones
//! that are chosen for a hash. One packet of 1420 bytes for each new flow of 64 bytes, IPv6.

use serde::Serialize;
use trieste_packet::wire::put16;
use trieste_packet::{Batch, MAX_BATCH, Packet, Pool, checksum};

use crate::measure::{Candidate, Rounds, Sample, Spread};
use crate::pair::{Joint, Pair};
use crate::report::Table;
use crate::traffic::Shape;

/// Bytes of the packets of the flow that is measured.
const BYTES: u16 = 1420;
/// Bytes of each packet of the flood: IPv6 and UDP headers, and some.
const FLOOD_BYTES: usize = 64;
const IP_BYTES: usize = 40;
/// Bytes of its UDP header and payload.
const UDP_BYTES: u16 = 24;
/// Batches of the flow in a pass, each after one of the flood.
const BATCHES: usize = 8;
/// The interface identifier that erased all that foldhash 0.2 had taken in before, for every seed.
const ERASING: [u8; 8] = 0xdd50_7cc9_b729_acc0_u64.to_be_bytes();

/// Who else is on the worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Flood {
    None,
    Random,
    /// Every new flow goes to one interface identifier; `true` with its bytes the other way round.
    Chosen(bool),
}

/// Every flood, as it is shown.
const FLOODS: [(&str, Flood); 4] = [
    ("nobody", Flood::None),
    ("new flows to random addresses", Flood::Random),
    ("new flows to one interface ID", Flood::Chosen(false)),
    ("the same, bytes reversed", Flood::Chosen(true)),
];

/// One flood.
#[derive(Debug, Serialize)]
pub(crate) struct Cost {
    beside: &'static str,
    /// ns per packet of the flow that is measured.
    flow: Spread,
    /// ns per packet of the flood; none where there is none.
    flood: Option<Spread>,
    /// Throughput of the flow to that beside random flows: the median of the rounds' ratios.
    throughput: f64,
}

/// Measures the flow beside each flood.
///
/// # Errors
/// When the line cannot be set up.
pub(crate) fn measure(rounds: Rounds) -> anyhow::Result<Vec<Cost>> {
    let mut candidates = Vec::new();
    for is_flow in [true, false] {
        for (name, flood) in FLOODS {
            candidates.push(Candidate::new(name, pass(flood, is_flow)?));
        }
    }
    let samples = rounds.interleave(&mut candidates);
    let costs = FLOODS.iter().enumerate().map(|(index, &(beside, flood))| Cost {
        beside,
        flow: Spread::of(&samples[index]),
        flood: (flood != Flood::None).then(|| Spread::of(&samples[FLOODS.len() + index])),
        throughput: Spread::ratio(&samples[1], &samples[index]),
    });
    Ok(costs.collect())
}

/// A pass that times the flow's packets, or the flood's.
fn pass(flood: Flood, is_flow: bool) -> anyhow::Result<impl FnMut() -> Sample> {
    let mut pair = Pair::new(Joint::Sink, Shape::single(BYTES, 1), MAX_BATCH)?;
    pair.sink_east();
    let mut packets = FloodPackets::new(flood);
    let (mut own, mut others) = (Batch::new(), Batch::new());
    let mut pass = move || {
        let mut total = Sample::default();
        for _ in 0..BATCHES {
            while flood != Flood::None && !others.is_full() {
                let packet = pair.make(|pool| packets.next(pool));
                assert!(others.push(packet).is_ok(), "the batch is not full");
            }
            let count = others.segments();
            let flooded = Sample::of(|| {
                pair.line_out(&mut others);
                count
            });
            pair.fill_one(&mut own);
            let count = own.segments();
            let carried = Sample::of(|| {
                pair.line_out(&mut own);
                count
            });
            total += if is_flow { carried } else { flooded };
        }
        assert!(pair.has_dropped_nothing(), "the line dropped packets of {flood:?}");
        total
    };
    // Whatever is learnt once is.
    pass();
    Ok(pass)
}

/// Makes the first packets of new flows.
struct FloodPackets {
    flood: Flood,
    bytes: [u8; FLOOD_BYTES],
    count: u64,
}

impl FloodPackets {
    fn new(flood: Flood) -> Self {
        let mut bytes = [0; FLOOD_BYTES];
        bytes[0] = 0x60;
        put16(&mut bytes, 4, UDP_BYTES);
        bytes[6..8].copy_from_slice(&[17, 64]);
        bytes[8..12].copy_from_slice(&[0xfd, 0, 0, 1]);
        bytes[24..28].copy_from_slice(&[0xfd, 0, 0, 2]);
        put16(&mut bytes, 40, 4000);
        put16(&mut bytes, 42, 53);
        put16(&mut bytes, 44, UDP_BYTES);
        Self { flood, bytes, count: 0 }
    }

    fn next(&mut self, pool: &mut Pool) -> Packet {
        self.count += 1;
        // An odd factor: every number once, in no order.
        let random = self.count.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.bytes[16..24].copy_from_slice(&random.to_be_bytes());
        self.bytes[32..40].copy_from_slice(&match self.flood {
            Flood::Chosen(false) => ERASING,
            Flood::Chosen(true) => u64::from_be_bytes(ERASING).swap_bytes().to_be_bytes(),
            Flood::None | Flood::Random => random.rotate_left(29).to_be_bytes(),
        });
        put16(&mut self.bytes, 46, 0);
        let sum = checksum::pseudo_sum(&self.bytes, 17, FLOOD_BYTES - IP_BYTES);
        let checksum = sum.bytes(&self.bytes[IP_BYTES..]).checksum();
        put16(&mut self.bytes, 46, if checksum == 0 { u16::MAX } else { checksum });
        Packet::new(pool.alloc_copy(&self.bytes).expect("the pool is larger than two batches"))
    }
}

/// For people.
pub(crate) fn text(costs: &[Cost]) -> String {
    let mut table =
        Table::new(&["beside", "ns/packet", "min", "max", "throughput to random", "ns/packet of the flood"]);
    for cost in costs {
        table.row(vec![
            cost.beside.to_owned(),
            format!("{:.1}", cost.flow.median),
            format!("{:.1}", cost.flow.min),
            format!("{:.1}", cost.flow.max),
            format!("{:.2}", cost.throughput),
            cost.flood.map_or_else(String::new, |flood| format!("{:.1}", flood.median)),
        ]);
    }
    format!(
        "\nOne flow beside {MAX_BATCH} first packets of new flows before each batch, IPv6, the lane left out:\n\n{}",
        table.text()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floods_are_carried_like_the_flow_beside_them() {
        for (_, flood) in FLOODS {
            let packets = (BATCHES * MAX_BATCH) as u64;
            assert_eq!(pass(flood, true).unwrap()().packets, packets);
            let flooded = if flood == Flood::None { 0 } else { packets };
            assert_eq!(pass(flood, false).unwrap()().packets, flooded);
        }
    }
}
