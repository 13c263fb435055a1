//! The kernel's NAT in a namespace, between two TUN devices that are ours.

use std::net::Ipv4Addr;
use std::os::fd::AsFd as _;
use std::time::{Duration, Instant};

use trieste_io::poll::{Interest, Poller};
use trieste_io::{Offloads, PacketIo as _, Tun, TunConfig, TunQueue};
use trieste_packet::wire::be16;
use trieste_packet::{Batch, Drops, Packet, Pool, PoolConfig};
use trieste_tests::lab::Lab;
use trieste_tests::translator::Way;

use trieste_tests::translator::packets::{UDP, udp};

/// Nobody's address: what comes from there or goes there is forwarded as it is, untracked. When it is through, the
/// kernel is done with what came before.
const FENCE: Ipv4Addr = Ipv4Addr::new(10, 255, 0, 1);
const BEHIND: Ipv4Addr = Ipv4Addr::new(242, 1, 255, 1);
/// Longest that the kernel takes for a packet.
const PATIENCE: Duration = Duration::from_secs(30);

/// In upstream's order: selected pods, then headless ones, then the cluster.
const RULES: &str = "table ip oracle {
  chain early {
    type filter hook prerouting priority raw
    ip saddr 10.255.0.1 notrack
    ip daddr 10.255.0.1 notrack
  }
  chain in {
    type nat hook prerouting priority dstnat
    iifname \"outer\" ip daddr 242.0.255.254 dnat to 10.96.0.5
    iifname \"outer\" ip daddr 242.0.255.252 dnat to 10.1.2.1
  }
  chain out {
    type nat hook postrouting priority srcnat
    oifname \"outer\" ip saddr { 10.1.2.1, 10.1.3.1 } snat to 242.0.0.9
    oifname \"outer\" ip saddr 10.1.2.1 snat to 242.0.255.252
    oifname \"outer\" ip saddr 10.1.0.0/16 masquerade
  }
  chain through {
    type filter hook forward priority filter; policy drop;
    ct state untracked accept
    ct state invalid drop
    iifname \"inner\" oifname \"outer\" accept
    iifname \"outer\" oifname \"inner\" ct state established,related accept
    iifname \"outer\" oifname \"inner\" ct status dnat accept
  }
  chain own {
    type filter hook input priority filter
    iifname { \"inner\", \"outer\" } drop
  }
}
";

/// The namespace, with the script's ends of its devices.
pub(crate) struct Kernel {
    inner: TunQueue,
    outer: TunQueue,
    pool: Pool,
    batch: Batch,
    drops: Drops,
    fences: u16,
    _lab: Lab,
}

impl Kernel {
    pub(crate) fn new() -> Self {
        let lab = Lab::new().unwrap();
        let namespace = lab.namespace("nat").unwrap();
        let open = |name: &str| {
            namespace.enter(|| {
                let config =
                    TunConfig { offloads: Offloads::NONE, is_persistent: false, ..TunConfig::new(name) };
                let tun = Tun::open(&config)?;
                tun.set_up(true)?;
                Ok(tun.into_queues().remove(0))
            })
        };
        let (inner, outer) = (open("inner").unwrap(), open("outer").unwrap());
        namespace.nft(RULES).unwrap();
        namespace
            .sysctl(&[
                ("ipv4/ip_forward", "1"),
                ("ipv4/conf/all/rp_filter", "0"),
                ("ipv4/conf/inner/rp_filter", "0"),
                ("ipv4/conf/outer/rp_filter", "0"),
                ("ipv6/conf/all/disable_ipv6", "1"),
                // Packets with wrong checksums are translated as well: whoever gets them will notice.
                ("netfilter/nf_conntrack_checksum", "0"),
            ])
            .unwrap();
        namespace
            .ip("addr add 10.1.255.253/32 dev inner\naddr add 242.0.0.1/32 dev outer\n\
                 route add 10.1.0.0/16 dev inner\nroute add 10.96.0.0/16 dev inner\n\
                 route add 10.255.0.0/16 dev inner\nroute add 242.1.0.0/16 dev outer\n")
            .unwrap();
        let pool = Pool::new(PoolConfig { slots: 160, slot_bytes: 4096 });
        Self { inner, outer, pool, batch: Batch::new(), drops: Drops::default(), fences: 0, _lab: lab }
    }

    /// What the kernel makes of a packet: what leaves it, and by which of its sides.
    pub(crate) fn carry(&mut self, way: Way, bytes: &[u8]) -> Vec<(Way, Vec<u8>)> {
        self.send(way, bytes);
        let number = self.fences.wrapping_add(1);
        self.fences = number;
        let (from, to) = match way {
            Way::Outbound => ((FENCE, 9), (BEHIND, number)),
            Way::Inbound => ((BEHIND, 9), (FENCE, number)),
        };
        let fence = udp(from, to, b"fence");
        self.send(way, &fence);
        let mut out = Vec::new();
        let deadline = Instant::now() + PATIENCE;
        let is_fence =
            |packet: &[u8]| packet[9] == UDP && packet[12..20] == fence[12..20] && be16(packet, 22) == number;
        'fence: loop {
            self.wait(way, deadline);
            for packet in self.receive(way) {
                if is_fence(&packet) {
                    break 'fence;
                }
                out.push((way, packet));
            }
        }
        let back = if way == Way::Outbound { Way::Inbound } else { Way::Outbound };
        out.extend(self.receive(back).into_iter().map(|packet| (back, packet)));
        out
    }

    /// The queue that packets of this way leave by.
    fn exit(&mut self, way: Way) -> &mut TunQueue {
        match way {
            Way::Outbound => &mut self.outer,
            Way::Inbound => &mut self.inner,
        }
    }

    fn send(&mut self, way: Way, bytes: &[u8]) {
        let buf = self.pool.alloc_copy(bytes).expect("buffers enough");
        self.batch.push(Packet::new(buf)).expect("the batch is empty");
        let queue = match way {
            Way::Outbound => &mut self.inner,
            Way::Inbound => &mut self.outer,
        };
        queue.send(&mut self.batch, &mut self.pool, &mut self.drops).unwrap();
        assert!(self.batch.is_empty() && self.drops.total() == 0, "the kernel takes every packet");
    }

    fn wait(&mut self, way: Way, deadline: Instant) {
        let mut poller = Poller::new().unwrap();
        poller.add(self.exit(way).as_fd(), 0, Interest::Readable).unwrap();
        let left = deadline.checked_duration_since(Instant::now()).expect("the fence comes through");
        poller.wait(Some(left)).unwrap();
    }

    fn receive(&mut self, way: Way) -> Vec<Vec<u8>> {
        let queue = match way {
            Way::Outbound => &mut self.outer,
            Way::Inbound => &mut self.inner,
        };
        let mut packets = Vec::new();
        while queue.recv(&mut self.pool, &mut self.batch, &mut self.drops).unwrap() > 0 {
            for packet in self.batch.drain() {
                packets.push(packet.bytes().to_vec());
                self.pool.recycle(packet.buf);
            }
        }
        packets
    }
}
