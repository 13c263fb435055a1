//! Queries over UDP: threads with a socket each, which the kernel shares datagrams out to (SO_REUSEPORT). Datagrams are read
//! and sent some at a time; an answer leaves from the address that was asked.

use std::io::{self, IoSlice, IoSliceMut};
use std::net::SocketAddr;
use std::os::fd::AsRawFd as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::cmsg_space;
use nix::errno::Errno;
use nix::libc::{in_pktinfo, in6_pktinfo};
use nix::sys::socket::{
    ControlMessage, ControlMessageOwned, MsgFlags, MultiHeaders, SockaddrIn, SockaddrIn6, SockaddrLike,
    recvmmsg, sendmmsg, setsockopt, sockopt,
};
use socket2::{Domain, Socket, Type};
use trieste_control::sockets;
use trieste_dns::{DropReason, Outcome, Records, Settings, Transport, answer};

use super::counters::Counters;

/// Datagrams that are read at a time.
const BATCH: usize = 32;
/// Bytes of a datagram that are read: what we say by EDNS that we read, and one byte that shows what is longer.
const READ_BYTES: usize = 1_233;
/// Bytes of queries that may wait in the kernel, as far as it allows.
const RECEIVE_BUFFER: usize = 4 << 20;
/// How long to wait after a socket has failed.
const PAUSE: Duration = Duration::from_millis(10);

/// A thread, and how to end it.
#[derive(Debug)]
pub struct Worker {
    address: SocketAddr,
    socket: Arc<Socket>,
    is_stopping: Arc<AtomicBool>,
    thread: JoinHandle<()>,
    /// What it has counted, and whether it goes on.
    pub state: Arc<State>,
}

/// What is said of a thread.
#[derive(Debug)]
pub struct State {
    /// What it has counted.
    pub counters: Counters,
    has_ended: AtomicBool,
}

impl State {
    /// Returns whether it has ended: after a panic, what the kernel gives its socket is lost.
    pub fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::Relaxed)
    }
}

impl Worker {
    /// Returns the address of its socket.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Ends the thread. Queries that have arrived are answered before.
    pub fn stop(self) {
        self.is_stopping.store(true, Ordering::Relaxed);
        // The thread wakes up, although a socket without a peer is said not to be connected.
        let _ = self.socket.shutdown(std::net::Shutdown::Read);
        drop(self.thread.join());
    }
}

/// Binds `count` sockets to an address, and begins a thread for each; to all addresses of IPv4 where there is no IPv6. Port 0
/// takes a free one.
///
/// # Errors
/// The kernel's.
pub fn begin(
    address: SocketAddr,
    count: usize,
    records: &Records,
    settings: &Arc<Settings>,
) -> io::Result<Vec<Worker>> {
    let first = sockets::or_ipv4(address, bind)?;
    let address = first.local_addr()?.as_socket().ok_or(io::ErrorKind::AddrNotAvailable)?;
    let others = (1..count).map(|_| bind(address));
    let sockets = [Ok(first)].into_iter().chain(others).collect::<io::Result<Vec<Socket>>>()?;
    sockets.into_iter().map(|socket| spawn(address, socket, records, settings)).collect()
}

fn bind(address: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::DGRAM, None)?;
    socket.set_reuse_port(true)?;
    // Before it is bound, so that no datagram comes without.
    if address.is_ipv6() {
        socket.set_only_v6(false)?;
        setsockopt(&socket, sockopt::Ipv6RecvPacketInfo, &true)?;
    } else {
        setsockopt(&socket, sockopt::Ipv4PacketInfo, &true)?;
    }
    // The kernel gives what it allows.
    let _ = socket.set_recv_buffer_size(RECEIVE_BUFFER);
    socket.bind(&address.into())?;
    Ok(socket)
}

fn spawn(
    address: SocketAddr,
    socket: Socket,
    records: &Records,
    settings: &Arc<Settings>,
) -> io::Result<Worker> {
    let (socket, is_stopping) = (Arc::new(socket), Arc::<AtomicBool>::default());
    let state = State { counters: Counters::new(Transport::Udp), has_ended: AtomicBool::new(false) };
    let state = Arc::new(state);
    let line = Line {
        socket: Arc::clone(&socket),
        is_stopping: Arc::clone(&is_stopping),
        records: records.clone(),
        settings: Arc::clone(settings),
        state: Arc::clone(&state),
    };
    let builder = std::thread::Builder::new().name("dns-udp".to_owned());
    let thread =
        builder.spawn(move || if address.is_ipv6() { line.run::<V6>() } else { line.run::<V4>() })?;
    Ok(Worker { address, socket, is_stopping, thread, state })
}

/// A family of sockets. One of IPv6 has datagrams of both.
trait Family {
    /// An address of the other side.
    type Address: SockaddrLike + Copy;
    /// An address of this side, as the kernel takes it.
    type Own: Copy;

    /// Returns the address that a datagram was sent to.
    fn own(message: &ControlMessageOwned) -> Option<Self::Own>;
    /// Returns an address as a datagram's source.
    fn source(own: &Self::Own) -> ControlMessage<'_>;
    /// Returns whether two addresses are the same.
    fn is_same(one: &Self::Own, other: &Self::Own) -> bool;
}

struct V4;
struct V6;

impl Family for V4 {
    type Address = SockaddrIn;
    type Own = in_pktinfo;

    fn own(message: &ControlMessageOwned) -> Option<in_pktinfo> {
        let ControlMessageOwned::Ipv4PacketInfo(info) = message else { return None };
        // The way back is the routing table's matter.
        Some(in_pktinfo { ipi_ifindex: 0, ..*info })
    }

    fn source(own: &in_pktinfo) -> ControlMessage<'_> {
        ControlMessage::Ipv4PacketInfo(own)
    }

    fn is_same(one: &in_pktinfo, other: &in_pktinfo) -> bool {
        one.ipi_spec_dst.s_addr == other.ipi_spec_dst.s_addr
    }
}

impl Family for V6 {
    type Address = SockaddrIn6;
    type Own = in6_pktinfo;

    fn own(message: &ControlMessageOwned) -> Option<in6_pktinfo> {
        let ControlMessageOwned::Ipv6PacketInfo(info) = message else { return None };
        // A link-local address is one of its link; others may leave by another one.
        let is_of_link = matches!(info.ipi6_addr.s6_addr, [0xfe, second, ..] if second & 0xc0 == 0x80);
        Some(if is_of_link { *info } else { in6_pktinfo { ipi6_ifindex: 0, ..*info } })
    }

    fn source(own: &in6_pktinfo) -> ControlMessage<'_> {
        ControlMessage::Ipv6PacketInfo(own)
    }

    fn is_same(one: &in6_pktinfo, other: &in6_pktinfo) -> bool {
        one.ipi6_addr.s6_addr == other.ipi6_addr.s6_addr && one.ipi6_ifindex == other.ipi6_ifindex
    }
}

/// What a thread works with.
struct Line {
    socket: Arc<Socket>,
    is_stopping: Arc<AtomicBool>,
    records: Records,
    settings: Arc<Settings>,
    state: Arc<State>,
}

impl Drop for Line {
    fn drop(&mut self) {
        self.state.has_ended.store(true, Ordering::Relaxed);
    }
}

/// What was read of a datagram.
struct Datagram<F: Family> {
    length: usize,
    /// Whence it came, and where it was sent to.
    addresses: Option<(F::Address, F::Own)>,
}

/// An answer that is to be sent.
struct Answered<F: Family> {
    /// Index of its buffer.
    index: usize,
    to: F::Address,
    own: F::Own,
}

/// What came of a reading.
enum Read {
    /// Queries, maybe.
    Some,
    /// The socket is at its end.
    End,
}

impl Line {
    /// Answers until the thread is to end.
    fn run<F: Family>(&self) {
        let mut queries = vec![[0_u8; READ_BYTES]; BATCH];
        let mut replies: Vec<Vec<u8>> = (0..BATCH).map(|_| Vec::with_capacity(READ_BYTES)).collect();
        let mut answered: Vec<Answered<F>> = Vec::with_capacity(BATCH);
        let mut incoming = headers::<F>();
        let mut outgoing = headers::<F>();
        loop {
            match self.read(&mut queries, &mut replies, &mut answered, &mut incoming) {
                Ok(Read::Some) => {}
                Ok(Read::End) => return,
                // An error of an earlier answer, such as a client that is gone.
                Err(Errno::EINTR | Errno::ECONNREFUSED | Errno::EHOSTUNREACH | Errno::ENETUNREACH) => {}
                Err(_) if self.is_stopping.load(Ordering::Relaxed) => return,
                Err(_) => std::thread::sleep(PAUSE),
            }
            let mut rest = &answered[..];
            while let Some(first) = rest.first() {
                // Answers of a call share their source.
                let count = rest.iter().take_while(|other| F::is_same(&first.own, &other.own)).count();
                let (group, others) = rest.split_at(count);
                self.send(group, &replies, &mut outgoing);
                rest = others;
            }
            answered.clear();
        }
    }

    /// Reads queries, and answers them into `replies`.
    fn read<F: Family>(
        &self,
        queries: &mut [[u8; READ_BYTES]],
        replies: &mut [Vec<u8>],
        answered: &mut Vec<Answered<F>>,
        headers: &mut MultiHeaders<F::Address>,
    ) -> Result<Read, Errno> {
        let mut datagrams: [Datagram<F>; BATCH] =
            std::array::from_fn(|_| Datagram { length: 0, addresses: None });
        let mut count = 0;
        {
            let mut slices: Vec<[IoSliceMut<'_>; 1]> =
                queries.iter_mut().map(|query| [IoSliceMut::new(query)]).collect();
            let fd = self.socket.as_raw_fd();
            let received = recvmmsg(fd, headers, slices.iter_mut(), MsgFlags::MSG_WAITFORONE, None)?;
            for (message, datagram) in received.zip(&mut datagrams) {
                let own = message.cmsgs().ok().and_then(|mut all| all.find_map(|one| F::own(&one)));
                *datagram = Datagram { length: message.bytes, addresses: message.address.zip(own) };
                count += 1;
            }
        }
        let begun = Instant::now();
        for (index, Datagram { length, addresses }) in datagrams.into_iter().take(count).enumerate() {
            let Some((to, own)) = addresses else {
                // No datagram: the socket was shut down. Nothing is left in it then.
                if self.is_stopping.load(Ordering::Relaxed) && length == 0 {
                    return Ok(Read::End);
                }
                continue;
            };
            let outcome = match queries[index].get(..length) {
                Some(query) if length < READ_BYTES => {
                    answer(query, Transport::Udp, &self.records, &self.settings, &mut replies[index])
                }
                _ => Outcome::Drop(DropReason::TooLong),
            };
            self.state.counters.count(outcome);
            if let Outcome::Reply(_) = outcome {
                answered.push(Answered { index, to, own });
            }
        }
        let count = u64::try_from(count).unwrap_or(0);
        self.state.counters.observe(count, begun.elapsed());
        Ok(Read::Some)
    }

    /// Sends answers with one source.
    fn send<F: Family>(
        &self,
        group: &[Answered<F>],
        replies: &[Vec<u8>],
        headers: &mut MultiHeaders<F::Address>,
    ) {
        let mut rest = group;
        while let Some(first) = rest.first() {
            let slices: Vec<[IoSlice<'_>; 1]> =
                rest.iter().map(|answered| [IoSlice::new(&replies[answered.index])]).collect();
            let to: Vec<Option<F::Address>> = rest.iter().map(|answered| Some(answered.to)).collect();
            let source = [F::source(&first.own)];
            let fd = self.socket.as_raw_fd();
            let sent = sendmmsg(fd, headers, slices.iter(), &to, source, MsgFlags::empty());
            match sent.map(Iterator::count) {
                Ok(count) if count > 0 => rest = &rest[count..],
                Err(Errno::EINTR) => {}
                // The first one cannot be sent; the others may.
                Ok(_) | Err(_) => {
                    self.state.counters.count_drop(DropReason::NotSent);
                    rest = &rest[1..];
                }
            }
        }
    }
}

/// Returns the kernel's headers of a batch, each with space for an own address.
fn headers<F: Family>() -> MultiHeaders<F::Address> {
    MultiHeaders::preallocate(BATCH, Some(cmsg_space!(in6_pktinfo)))
}
