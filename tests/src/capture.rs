//! Looking at the wire with tcpdump, an independent witness.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::Context;

use crate::command::Run;
use crate::daemon::Daemon;
use crate::lab::Lab;
use crate::netns::Namespace;
use crate::wait::eventually;

/// Selects, in tcpdump's words, what leaves a cluster: not the VXLAN between its nodes, and not the notices of its gateways.
pub const LEAVES_A_CLUSTER: &str = "not port 4800 and not port 4801";

/// Bytes kept of each frame. Offloads make frames of 64 KiB, and the capture's ring is cut into slots of this size: with
/// small ones it holds a burst of 30,000 frames. What pods send repeats its marker in its first bytes.
const SNAP_BYTES: &str = "4096";

/// How long a program beside many others may need to read what was captured.
const UNREAD: Duration = Duration::from_secs(60);

/// How many frames that should not be there are shown, and how much of each: enough for its headers.
const SHOWN: usize = 3;
/// See [`SHOWN`].
const SHOWN_BYTES: usize = 128;

static NUMBER: AtomicUsize = AtomicUsize::new(1);

/// A running capture.
#[derive(Debug)]
pub struct Capture {
    tcpdump: Daemon,
    file: PathBuf,
}

/// What was captured.
#[derive(Debug, Clone)]
pub struct Frames {
    /// The frames in order, up to 4096 bytes of each.
    pub frames: Vec<Vec<u8>>,
    /// Bytes of all frames on the wire, link-layer headers included.
    pub wire_bytes: u64,
    /// The file they were read from; gone with the lab.
    pub file: PathBuf,
}

impl Capture {
    /// Starts to capture on a device, with a filter in tcpdump's language ("" for everything); returns once packets
    /// are seen. On a bridge, everything that crosses it is seen once.
    ///
    /// # Errors
    /// If tcpdump does not start.
    pub fn start(lab: &Lab, namespace: &Namespace, device: &str, filter: &str) -> anyhow::Result<Self> {
        let name = format!("capture-{}", NUMBER.fetch_add(1, Ordering::Relaxed));
        let file = lab.directory().join(format!("{name}.pcap"));
        let run = namespace
            .run("tcpdump")
            .args([
                "--immediate-mode",
                "-U",
                "-n",
                "-Z",
                "root",
                "-s",
                SNAP_BYTES,
                "-B",
                "16384",
                "-i",
                device,
                "-w",
            ])
            .arg(&file)
            .arg(filter);
        let tcpdump = Daemon::start(lab, &name, &run)?;
        tcpdump.wait_log("listening on", Duration::from_secs(60))?;
        Ok(Self { tcpdump, file })
    }

    /// Returns the program that captures.
    pub fn program(&self) -> &Daemon {
        &self.tcpdump
    }

    /// Ends it and reads what it saw, with all that came before this call.
    ///
    /// # Errors
    /// If tcpdump failed, had no time to read what came, or lost packets: then nothing could be concluded from a packet that is not there.
    pub fn finish(self) -> anyhow::Result<Frames> {
        let log = self.tcpdump.log().to_owned();
        // What lies in the kernel's ring when it ends is not written and not counted as lost. It sleeps when that is empty.
        eventually("tcpdump to read all that came", UNREAD, || {
            anyhow::ensure!(self.tcpdump.id().is_asleep(), "it is busy");
            Ok(())
        })?;
        self.tcpdump.stop()?;
        let told = std::fs::read_to_string(&log)?;
        let lost = told.lines().find(|line| line.ends_with("dropped by kernel"));
        anyhow::ensure!(
            lost.is_some_and(|line| line.starts_with("0 ")),
            "tcpdump lost packets or did not finish:\n{told}"
        );
        Frames::read(&self.file)
    }
}

impl Frames {
    /// Reads a capture file.
    ///
    /// # Errors
    /// If it is no pcap file.
    pub fn read(path: &Path) -> anyhow::Result<Self> {
        let bytes = std::fs::read(path).with_context(|| format!("reading {}", path.display()))?;
        let records = records(&bytes).with_context(|| format!("{} is no pcap file", path.display()))?;
        let wire_bytes = records.iter().map(|(_, length)| u64::from(*length)).sum();
        let frames = records.into_iter().map(|(frame, _)| frame).collect();
        Ok(Self { frames, wire_bytes, file: path.to_owned() })
    }

    /// How many frames hold these bytes.
    pub fn count_with(&self, needle: &[u8]) -> usize {
        let holds = |frame: &&Vec<u8>| frame.windows(needle.len()).any(|window| window == needle);
        self.frames.iter().filter(holds).count()
    }

    /// How many frames match a filter in tcpdump's language.
    ///
    /// # Errors
    /// If tcpdump does not understand the filter.
    pub fn count(&self, filter: &str) -> anyhow::Result<usize> {
        let run =
            Run::new("tcpdump").args(["-n", "-t", "-q", "-Z", "root", "-r"]).arg(&self.file).arg(filter);
        Ok(run.stdout()?.lines().filter(|line| !line.starts_with([' ', '\t'])).count())
    }
}

/// The records of a pcap file as tcpdump writes it on this machine: a header of 24 bytes, then for each frame 16 bytes
/// (its last two words are the captured and the real length) and the frame. A file that ends in the middle of one is no error: tcpdump
/// may have been ended there.
fn records(bytes: &[u8]) -> Option<Vec<(Vec<u8>, u32)>> {
    let mut rest = bytes.get(24..)?;
    let is_native =
        bytes[..4] == 0xa1b2_c3d4_u32.to_ne_bytes() || bytes[..4] == 0xa1b2_3c4d_u32.to_ne_bytes();
    let mut frames = Vec::new();
    while let Some((header, after)) = rest.split_at_checked(16) {
        let word = |at: usize| Some(u32::from_ne_bytes(header[at..at + 4].try_into().ok()?));
        let (length, real) = (word(8)?, word(12)?);
        let Some((frame, after)) = after.split_at_checked(usize::try_from(length).ok()?) else { break };
        frames.push((frame.to_vec(), real));
        rest = after;
    }
    is_native.then_some(frames)
}

/// What the frames of a capture are. Written out, it shows those that should not be there.
#[derive(Debug, Clone)]
pub struct Kinds {
    /// How many are the cable's.
    pub cable: usize,
    /// How many are neighbour discovery.
    pub neighbours: usize,
    /// The others, whole.
    pub others: Vec<Vec<u8>>,
}

impl fmt::Display for Kinds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { cable, neighbours, others } = self;
        write!(
            f,
            "{cable} frames of the cable, {neighbours} of neighbour discovery, {} others",
            others.len()
        )?;
        for frame in others.iter().take(SHOWN) {
            write!(f, "\n{} bytes: {:02x?}", frame.len(), &frame[..frame.len().min(SHOWN_BYTES)])?;
        }
        Ok(())
    }
}

/// What a frame on the underlay is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FrameKind {
    /// The cable's: of WireGuard, one of its four message types in UDP, to or from the port given; of IPsec, ESP or IKE in
    /// UDP to or from that port, a NAT keepalive, or ESP without UDP.
    Cable,
    /// How nodes find each other on a link: ARP, neighbour and multicast listener discovery.
    Neighbour,
    /// Anything else.
    Other,
}

impl Frames {
    /// Tells which frames are WireGuard on this UDP port, neighbour discovery, or anything else.
    pub fn kinds(&self, port: u16) -> Kinds {
        self.kinds_with(Cable::WireGuard, port)
    }

    /// Tells which frames are this cable's, neighbour discovery, or anything else.
    pub fn kinds_with(&self, cable: Cable, port: u16) -> Kinds {
        let mut kinds = Kinds { cable: 0, neighbours: 0, others: Vec::new() };
        for frame in &self.frames {
            match classify(frame, cable, port) {
                FrameKind::Cable => kinds.cable += 1,
                FrameKind::Neighbour => kinds.neighbours += 1,
                FrameKind::Other => kinds.others.push(frame.clone()),
            }
        }
        kinds
    }
}

/// A cable's form on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cable {
    /// WireGuard.
    WireGuard,
    /// ESP and IKE.
    Ipsec,
    /// VXLAN, between gateways.
    Vxlan,
}

/// Tells what an Ethernet frame is.
pub fn classify(frame: &[u8], cable: Cable, port: u16) -> FrameKind {
    let Some((header, packet)) = frame.split_at_checked(14) else { return FrameKind::Other };
    let (protocol, payload) = match (header[12], header[13]) {
        (0x08, 0x06) => return FrameKind::Neighbour,
        (0x08, 0x00) => {
            let header_bytes = packet.first().map_or(0, |first| usize::from(first & 15) * 4);
            (packet.get(9), packet.get(header_bytes..))
        }
        (0x86, 0xdd) => match packet.get(6) {
            // A hop-by-hop header stands in front of multicast listener reports.
            Some(0) => (packet.get(40), packet.get(48..)),
            next => (next, packet.get(40..)),
        },
        _ => return FrameKind::Other,
    };
    let payload = payload.unwrap_or_default();
    match protocol {
        Some(17) if cable == Cable::WireGuard && is_wireguard(payload, port) => FrameKind::Cable,
        Some(17) if cable == Cable::Ipsec && is_ipsec(payload, port) => FrameKind::Cable,
        Some(17) if cable == Cable::Vxlan && is_vxlan(payload, port) => FrameKind::Cable,
        Some(50) if cable == Cable::Ipsec && is_esp(payload) => FrameKind::Cable,
        Some(58) if payload.first().is_some_and(|kind| matches!(kind, 130..=137 | 143)) => {
            FrameKind::Neighbour
        }
        _ => FrameKind::Other,
    }
}

fn is_wireguard(datagram: &[u8], port: u16) -> bool {
    let [s0, s1, d0, d1, _, _, _, _, kind @ 1..=4, 0, 0, 0, ..] = datagram else { return false };
    let ports = [u16::from_be_bytes([*s0, *s1]), u16::from_be_bytes([*d0, *d1])];
    let minimum = match kind {
        1 => 148,
        2 => 92,
        3 => 64,
        _ => 32,
    };
    ports.contains(&port) && datagram.len() - 8 >= minimum
}

/// Whether a datagram is IKE behind the non-ESP marker, ESP, or a keepalive (RFC 3948).
fn is_ipsec(datagram: &[u8], port: u16) -> bool {
    let Some(([s0, s1, d0, d1, ..], payload)) = datagram.split_first_chunk::<8>() else { return false };
    if ![[*s0, *s1], [*d0, *d1]].contains(&port.to_be_bytes()) {
        return false;
    }
    match payload {
        [0xff] => true,
        // Two SPIs, the next payload, version 2.0, the exchange, flags, the number, the length.
        [0, 0, 0, 0, ike @ ..] => ike.get(17) == Some(&0x20) && ike.get(24..28) == Some(&length(ike)[..]),
        _ => is_esp(payload),
    }
}

/// Whether a datagram is to that port and begins with a VXLAN header of VNI 1000. Kernels choose the port that it is from
/// by the inner flow.
fn is_vxlan(datagram: &[u8], port: u16) -> bool {
    let port = port.to_be_bytes();
    matches!(datagram, [_, _, d0, d1, _, _, _, _, 8, 0, 0, 0, 0, 3, 0xe8, 0, ..] if [*d0, *d1] == port)
}

fn length(message: &[u8]) -> [u8; 4] {
    u32::try_from(message.len()).unwrap_or(u32::MAX).to_be_bytes()
}

/// Whether it has an ESP packet's shape: an SPI that is not reserved, and room for header, IV, the smallest
/// packet, trailer and ICV.
fn is_esp(packet: &[u8]) -> bool {
    let is_spi = packet.first_chunk::<4>().is_some_and(|spi| u32::from_be_bytes(*spi) > 255);
    is_spi && packet.len() >= 16 + 20 + 4 + 16
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(ether_type: u16, packet: &[u8]) -> Vec<u8> {
        [&[0; 12], &ether_type.to_be_bytes()[..], packet].concat()
    }

    fn ipv4_udp(port: u16, payload: &[u8]) -> Vec<u8> {
        let mut packet = vec![0x45, 0, 0, 0, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
        packet.extend([port.to_be_bytes(), 4500_u16.to_be_bytes(), [0, 0], [0, 0]].concat());
        packet.extend(payload);
        frame(0x0800, &packet)
    }

    #[test]
    fn wireguard_is_told_from_other_datagrams_on_its_port() {
        let transport = [&[4, 0, 0, 0][..], &[7; 28]].concat();

        let classify = |frame: &[u8], port| classify(frame, Cable::WireGuard, port);
        assert_eq!(classify(&ipv4_udp(999, &transport), 4500), FrameKind::Cable);
        assert_eq!(classify(&ipv4_udp(999, &transport), 51820), FrameKind::Other);
        assert_eq!(
            classify(&ipv4_udp(999, b"in clear, and long enough to be a message"), 4500),
            FrameKind::Other
        );
        assert_eq!(classify(&ipv4_udp(999, &transport[..20]), 4500), FrameKind::Other);
    }

    #[test]
    fn ipsec_is_ike_behind_its_marker_and_esp_in_udp_or_without() {
        let classify = |frame: &[u8]| classify(frame, Cable::Ipsec, 4500);
        let mut ike = [0; 32];
        (ike[21], ike[31]) = (0x20, 28);
        let esp = [&[0, 1, 2, 3][..], &[7; 80]].concat();

        assert_eq!(classify(&ipv4_udp(999, &ike)), FrameKind::Cable);
        assert_eq!(classify(&ipv4_udp(999, &[&ike[..], b"more"].concat())), FrameKind::Other);
        assert_eq!(classify(&ipv4_udp(999, &[0xff])), FrameKind::Cable);
        assert_eq!(classify(&ipv4_udp(999, &esp)), FrameKind::Cable);
        assert_eq!(classify(&ipv4_udp(999, &esp[..40])), FrameKind::Other);
        let mut raw = ipv4_udp(999, &[]);
        raw[14 + 9] = 50;
        raw.truncate(14 + 20);
        raw.extend(esp);
        assert_eq!(classify(&raw), FrameKind::Cable);
        raw[14 + 20 + 1] = 0;
        raw[14 + 20 + 2] = 0;
        assert_eq!(classify(&raw), FrameKind::Other);
    }

    #[test]
    fn a_capture_file_that_ends_in_the_middle_of_a_frame_is_read_up_to_there() {
        let mut file = [&0xa1b2_c3d4_u32.to_ne_bytes()[..], &[0; 20]].concat();
        for (length, frame) in [(3_u32, &b"one"[..]), (100, &b"cut off"[..])] {
            file.extend([&[0; 8], &length.to_ne_bytes()[..], &[9, 0, 0, 0], frame].concat());
        }

        assert_eq!(records(&file), Some(vec![(b"one".to_vec(), u32::from_ne_bytes([9, 0, 0, 0]))]));
        assert_eq!(records(&[0; 40]), None);
        assert_eq!(records(b"short"), None);
    }

    #[test]
    fn neighbour_discovery_is_no_leak_but_ping_is() {
        let mut solicitation = vec![0x60, 0, 0, 0, 0, 24, 58, 255];
        solicitation.extend([0; 32]);
        solicitation.extend([135, 0, 0, 0]);
        let mut echo = solicitation.clone();
        echo[40] = 128;

        let classify = |frame: &[u8], port| classify(frame, Cable::WireGuard, port);
        assert_eq!(classify(&frame(0x0806, &[]), 4500), FrameKind::Neighbour);
        assert_eq!(classify(&frame(0x86dd, &solicitation), 4500), FrameKind::Neighbour);
        assert_eq!(classify(&frame(0x86dd, &echo), 4500), FrameKind::Other);
        assert_eq!(classify(&[0; 5], 4500), FrameKind::Other);
    }
}
