//! What has become of every packet.

use std::collections::BTreeMap;
use std::time::Instant;

use crate::support::globalnet::{SERVICE, SERVICE_GLOBAL, ends, global, udp};

/// What marks the end of every packet of a flow: this, and four bytes of its number.
const MARK: [u8; 8] = *b"a packet";
/// The port that services listen at.
const PORT: u16 = 80;

/// Where a packet was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Loss {
    /// On a link, from and to.
    Link(usize, usize),
    /// In the queues of a gateway that died, or of one that was stalled for too long.
    Gateway(usize),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    Delivered(Instant),
    Lost(Loss, Instant),
}

/// A packet.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    pub(crate) flow: usize,
    pub(crate) is_answer: bool,
    pub(crate) at: Instant,
    pub(crate) by: usize,
    pub(crate) fate: Option<Fate>,
}

/// A flow: the cluster of the pod that began it, and the pod's end.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Flow {
    pub(crate) cluster: u8,
    pub(crate) pod: ([u8; 4], u16),
}

/// All packets, and what was seen of their translation.
#[derive(Default)]
pub(crate) struct Ledger {
    pub(crate) flows: Vec<Flow>,
    pub(crate) entries: Vec<Entry>,
    /// Outside ends as the other cluster saw them, by the cluster that they are of: the flow, and when last.
    outside: BTreeMap<(u8, [u8; 4], u16), (usize, Instant)>,
    translates: bool,
}

/// How long after one insider's packet had an outside end another's may not: nothing is longer under way.
const AT_ONE_TIME: std::time::Duration = std::time::Duration::from_millis(500);

impl Ledger {
    pub(crate) fn new(translates: bool) -> Self {
        Self { translates, ..Self::default() }
    }

    /// A new flow of a pod in a cluster. Its port is nobody else's.
    pub(crate) fn begin(&mut self, cluster: u8) -> usize {
        let number = self.flows.len();
        let port = 5000 + u16::try_from(number).unwrap();
        let address = match (self.translates, number % 2) {
            (true, 0) => crate::support::globalnet::POD,
            (true, _) => crate::support::globalnet::OTHER_POD,
            (false, pod) => [10, cluster, 0, u8::try_from(pod + 9).unwrap()],
        };
        self.flows.push(Flow { cluster, pod: (address, port) });
        number
    }

    /// The next packet of a flow from its pod, which enters at a gateway.
    pub(crate) fn question(&mut self, flow: usize, by: usize, at: Instant) -> Vec<u8> {
        let Flow { cluster, pod } = self.flows[flow];
        let far = 3 - cluster;
        let service = if self.translates { global(far, SERVICE_GLOBAL) } else { [10, far, 1, 1] };
        let id = self.enter(flow, false, by, at);
        udp(pod, (service, PORT), &text(id))
    }

    /// The answer to a packet that was delivered to a service, which enters at a gateway.
    pub(crate) fn answer(&mut self, question: &[u8], by: usize, at: Instant) -> Vec<u8> {
        let flow = self.entries[mark_of(question).expect("it was delivered")].flow;
        let (source, port, destination, service_port) = ends(question);
        let id = self.enter(flow, true, by, at);
        udp((destination, service_port), (source, port), &text(id))
    }

    fn enter(&mut self, flow: usize, is_answer: bool, by: usize, at: Instant) -> usize {
        self.entries.push(Entry { flow, is_answer, at, by, fate: None });
        self.entries.len() - 1
    }

    /// A packet was delivered in a cluster. Returns whether it is a question.
    pub(crate) fn deliver(&mut self, packet: &[u8], cluster: u8, now: Instant) -> bool {
        let id = mark_of(packet).expect("only packets of flows are delivered");
        let entry = &mut self.entries[id];
        assert_eq!(entry.fate, None, "packet {id} is delivered a second time, or after it was lost");
        entry.fate = Some(Fate::Delivered(now));
        let (number, is_answer) = (entry.flow, entry.is_answer);
        let flow = self.flows[number];
        let (source, port, destination, destination_port) = ends(packet);
        if is_answer {
            assert_eq!(
                (cluster, (destination, destination_port)),
                (flow.cluster, flow.pod),
                "whose answer it is"
            );
            return false;
        }
        assert_eq!((cluster, destination_port), (3 - flow.cluster, PORT));
        if self.translates {
            assert_eq!(destination, SERVICE);
            let (other, last) =
                self.outside.insert((flow.cluster, source, port), (number, now)).unwrap_or((number, now));
            let is_once = other == number || now - last > AT_ONE_TIME;
            assert!(is_once, "{source:?}:{port} is flow {other}'s {:?} ago and flow {number}'s", now - last);
        } else {
            assert_eq!((source, port), flow.pod);
        }
        true
    }

    /// Prints how many packets were lost, by where and when.
    pub(crate) fn print(&self, start: Instant) {
        let mut sums = BTreeMap::new();
        for entry in &self.entries {
            let place = match entry.fate {
                Some(Fate::Delivered(_)) => continue,
                Some(Fate::Lost(loss, _)) => format!("{loss:?}"),
                None => format!("dropped; entered at {}", entry.by),
            };
            let piece = (entry.at - start).as_millis() / 50 * 50;
            *sums.entry((piece, place)).or_insert(0) += 1;
        }
        for ((piece, place), count) in sums {
            println!("  {piece} ms: {count} × {place}");
        }
    }

    /// Packets were lost at a known place.
    pub(crate) fn lose(&mut self, ids: impl IntoIterator<Item = usize>, loss: Loss, now: Instant) {
        for id in ids {
            let fate = &mut self.entries[id].fate;
            assert_eq!(*fate, None, "packet {id} is in two places");
            *fate = Some(Fate::Lost(loss, now));
        }
    }
}

fn text(id: usize) -> Vec<u8> {
    [&MARK[..], &u32::try_from(id).unwrap().to_be_bytes()].concat()
}

/// The number of the packet that ends here, if it is one of a flow's.
pub(crate) fn mark_of(bytes: &[u8]) -> Option<usize> {
    let (_, mark) = bytes.split_at_checked(bytes.len().checked_sub(12)?)?;
    let number = mark.strip_prefix(&MARK)?;
    Some(usize::try_from(u32::from_be_bytes(number.try_into().ok()?)).expect("four bytes"))
}
