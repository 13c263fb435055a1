//! A flow of numbered packets between two pods, and what became of each: what a fault costs.

use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::Context;

use crate::interrupt;
use crate::netns::Namespace;
use crate::topology::PodPlan;
use crate::wait::eventually;

/// How often a waiting thread looks whether it should end.
const TICK: Duration = Duration::from_millis(100);

/// What is not back by then is lost.
const LATEST: Duration = Duration::from_secs(1);
/// A sender that is held up for so long is on a machine that holds up packets as well.
const STALL: Duration = Duration::from_millis(200);

/// A running flow: there and back, from the first pod to the second.
#[derive(Debug)]
pub struct Flow {
    is_over: Arc<AtomicBool>,
    packets: Arc<Mutex<Vec<Packet>>>,
    threads: Vec<JoinHandle<()>>,
}

/// A moment of a flow.
#[derive(Debug, Clone, Copy)]
pub struct Mark {
    packet: usize,
    time: Instant,
}

/// What became of the packets that were sent between two moments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cost {
    /// How long it was.
    pub took: Duration,
    /// Packets sent.
    pub sent: usize,
    /// Packets of them that have not come back within a second; without those that came back later where the sender itself
    /// was held up, and so the machine.
    pub lost: usize,
    /// Packets that came back later than that.
    pub late: usize,
    /// The longest time between two packets: more than the interval is the sender's own delay.
    pub own_stall: Duration,
    /// When the first that is lost or late was sent, counted from the beginning.
    pub first_lost: Option<Duration>,
    /// The longest time in which packets were sent and none of them has come back.
    pub longest_gap: Duration,
}

#[derive(Debug, Clone, Copy)]
struct Packet {
    sent: Instant,
    is_back: bool,
    is_late: bool,
}

impl Flow {
    /// Starts to send a packet every `interval`, and waits until the first is back.
    ///
    /// # Errors
    /// If there is no socket to be had, or nothing comes back within `timeout`.
    pub fn start(
        from: &PodPlan,
        to: &PodPlan,
        interval: Duration,
        timeout: Duration,
    ) -> anyhow::Result<Self> {
        let address = to.v4().context("the pod has no IPv4 address")?;
        Self::between(&from.namespace, (&to.namespace, address), b"", interval, timeout)
    }

    /// The same between any two namespaces, to this address of the second, over either family. Every packet ends with
    /// the marker, at most 50 bytes: something to look for in a capture.
    ///
    /// # Errors
    /// As [`Flow::start`].
    pub fn between(
        from: &Namespace,
        to: (&Namespace, IpAddr),
        marker: &[u8],
        interval: Duration,
        timeout: Duration,
    ) -> anyhow::Result<Self> {
        let (mirror_namespace, address) = to;
        let mirror = socket(mirror_namespace, address)?;
        let target = SocketAddr::new(address, mirror.local_addr()?.port());
        let sender = socket(from, address)?;
        let receiver = sender.try_clone()?;
        let (is_over, packets) = (Arc::new(AtomicBool::new(false)), Arc::default());
        let (over, sent, marker) = (Arc::clone(&is_over), Arc::clone(&packets), marker.to_vec());
        let send = std::thread::spawn(move || send_until(&sender, target, &marker, interval, &sent, &over));
        let (over, back) = (Arc::clone(&is_over), Arc::clone(&packets));
        let receive = std::thread::spawn(move || receive_until(&receiver, &back, &over));
        let over = Arc::clone(&is_over);
        let reflect = std::thread::spawn(move || reflect_until(&mirror, &over));
        let flow = Self { is_over, packets, threads: vec![send, receive, reflect] };
        eventually("the first packet of a flow", timeout, || {
            anyhow::ensure!(flow.packets().iter().any(|packet| packet.is_back), "none is back");
            Ok(())
        })?;
        Ok(flow)
    }

    /// This moment.
    pub fn mark(&self) -> Mark {
        Mark { packet: self.packets().len(), time: Instant::now() }
    }

    /// What became of the packets that were sent since `from`. Waits a second for those that are still on their way.
    ///
    /// # Errors
    /// "interrupted" after a signal.
    pub fn since(&self, from: Mark) -> anyhow::Result<Cost> {
        let to = self.mark();
        interrupt::pause(LATEST)?;
        let took = to.time.duration_since(from.time);
        Ok(cost(&self.packets()[from.packet..to.packet], from.time, took))
    }

    /// Waits until packets that were sent from now on come back.
    ///
    /// # Errors
    /// If none does within `timeout`.
    pub fn wait_through(&self, timeout: Duration) -> anyhow::Result<()> {
        let now = self.mark().packet;
        eventually("a packet to come back", timeout, || {
            anyhow::ensure!(self.packets()[now..].iter().any(|packet| packet.is_back), "none is back");
            Ok(())
        })
    }

    fn packets(&self) -> MutexGuard<'_, Vec<Packet>> {
        lock(&self.packets)
    }
}

impl Drop for Flow {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

fn cost(packets: &[Packet], start: Instant, took: Duration) -> Cost {
    let sent = packets.windows(2).map(|pair| pair[1].sent.duration_since(pair[0].sent));
    let own_stall = sent.max().unwrap_or_default();
    let is_excused = |packet: &Packet| packet.is_late && own_stall >= STALL;
    let is_lost = |packet: &Packet| !packet.is_back && !is_excused(packet);
    let mut longest_gap = Duration::ZERO;
    // From the first packet that is lost to the first that is back again, or to the last of all.
    let mut gap: Option<Instant> = None;
    for packet in packets {
        if let Some(since) = gap {
            longest_gap = longest_gap.max(packet.sent.duration_since(since));
        }
        gap = is_lost(packet).then(|| gap.unwrap_or(packet.sent));
    }
    let first = packets.iter().find(|packet| !packet.is_back);
    Cost {
        took,
        sent: packets.len(),
        lost: packets.iter().filter(|packet| is_lost(packet)).count(),
        late: packets.iter().filter(|packet| !packet.is_back && packet.is_late).count(),
        own_stall,
        first_lost: first.map(|packet| packet.sent.duration_since(start)),
        longest_gap,
    }
}

/// A socket for any port, of the family of `like`.
fn socket(namespace: &Namespace, like: IpAddr) -> anyhow::Result<UdpSocket> {
    let any = if like.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let socket = namespace.enter(|| UdpSocket::bind(any).context("a UDP socket"))?;
    socket.set_read_timeout(Some(TICK))?;
    Ok(socket)
}

fn send_until(
    socket: &UdpSocket,
    to: SocketAddr,
    marker: &[u8],
    interval: Duration,
    packets: &Mutex<Vec<Packet>>,
    is_over: &AtomicBool,
) {
    let mut next = Instant::now();
    while !is_over.load(Ordering::Relaxed) && !interrupt::is_interrupted() {
        let now = Instant::now();
        let number = {
            let mut packets = lock(packets);
            packets.push(Packet { sent: now, is_back: false, is_late: false });
            packets.len() - 1
        };
        // Refusals (no route, no buffer) are what is being measured.
        let _ = socket.send_to(&[&(number as u64).to_be_bytes(), marker].concat(), to);
        // A machine that was busy does not catch up with a burst: that would measure the burst.
        next = (next + interval).max(now);
        std::thread::sleep(next.saturating_duration_since(Instant::now()));
    }
}

fn receive_until(socket: &UdpSocket, packets: &Mutex<Vec<Packet>>, is_over: &AtomicBool) {
    let mut number = [0; 8];
    while !is_over.load(Ordering::Relaxed) {
        let Ok((8, _)) = socket.recv_from(&mut number) else { continue };
        let number = usize::try_from(u64::from_be_bytes(number)).unwrap_or(usize::MAX);
        if let Some(packet) = lock(packets).get_mut(number) {
            let is_late = packet.sent.elapsed() >= LATEST;
            packet.is_back |= !is_late;
            packet.is_late |= is_late;
        }
    }
}

fn reflect_until(socket: &UdpSocket, is_over: &AtomicBool) {
    let mut datagram = [0; 64];
    while !is_over.load(Ordering::Relaxed) {
        match socket.recv_from(&mut datagram) {
            Ok((count, from)) => drop(socket.send_to(&datagram[..count], from)),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            // A refusal that an earlier answer has met.
            Err(_) => {}
        }
    }
}

fn lock(packets: &Mutex<Vec<Packet>>) -> MutexGuard<'_, Vec<Packet>> {
    packets.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gap_lasts_from_the_first_lost_packet_to_the_next_that_is_back() {
        let start = Instant::now();
        let packets: Vec<Packet> = [true, false, true, false, false, false, true, false]
            .into_iter()
            .zip(0_u64..)
            .map(|(is_back, tick)| Packet {
                sent: start + Duration::from_millis(10 * tick),
                is_back,
                is_late: tick == 3,
            })
            .collect();

        let cost = cost(&packets, start, Duration::from_secs(1));

        assert_eq!((cost.sent, cost.lost, cost.late), (8, 5, 1));
        assert_eq!(cost.first_lost, Some(Duration::from_millis(10)));
        assert_eq!(cost.longest_gap, Duration::from_millis(30));
    }

    #[test]
    fn a_gap_that_has_not_ended_counts_as_well() {
        let start = Instant::now();
        let packet = |tick: u64, is_back| Packet {
            sent: start + Duration::from_millis(10 * tick),
            is_back,
            is_late: false,
        };

        let cost =
            cost(&[packet(0, true), packet(1, false), packet(2, false)], start, Duration::from_secs(1));

        assert_eq!((cost.lost, cost.longest_gap), (2, Duration::from_millis(10)));
    }

    #[test]
    fn what_comes_late_is_lost_unless_the_sender_was_held_up_itself() {
        let start = Instant::now();
        let packet = |ms: u64, is_late: bool| Packet {
            sent: start + Duration::from_millis(ms),
            is_back: !is_late,
            is_late,
        };
        let of = |packets: &[Packet]| {
            let cost = cost(packets, start, Duration::from_secs(1));
            (cost.lost, cost.late, cost.longest_gap.as_millis())
        };

        assert_eq!(of(&[packet(0, false), packet(10, true), packet(20, false)]), (1, 1, 10));
        assert_eq!(of(&[packet(0, false), packet(10, true), packet(220, false)]), (0, 1, 0));
    }
}
