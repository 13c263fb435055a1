//! The members' sockets and their clock, on one thread.

use std::io::{self, Write as _};
use std::mem::MaybeUninit;
use std::net::UdpSocket;
use std::time::{Duration, Instant};

use anyhow::Context;
use rustix::event::Timespec;
use rustix::event::epoll;

use super::READY;
use super::member::{Datagram, Member};

/// Datagrams of one member that are taken before the others have their turn.
const BUDGET: usize = 32;
/// Sockets that one look says something of.
const EVENTS: usize = 64;
/// How long it may sleep while no member has a time-out.
const IDLE: Duration = Duration::from_secs(1);
/// Room for the largest datagram that the underlay carries in one piece.
const DATAGRAM_BYTES: usize = 2048;

/// A member, its socket and when it wants to be called.
struct Seat {
    member: Member,
    socket: UdpSocket,
    due: Option<Instant>,
}

/// Runs members, each on a socket of its own, until the process is killed.
///
/// # Errors
/// If a socket cannot be made, or looked at.
pub(super) fn run(members: Vec<Member>) -> anyhow::Result<()> {
    let ready = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    let mut seats = Vec::new();
    for member in members {
        let socket = UdpSocket::bind(member.address)
            .with_context(|| format!("cannot listen at {}", member.address))?;
        socket.set_nonblocking(true)?;
        epoll::add(&ready, &socket, epoll::EventData::new_u64(seats.len() as u64), epoll::EventFlags::IN)?;
        seats.push(Seat { member, socket, due: Some(Instant::now()) });
    }
    writeln!(io::stdout(), "{READY}")?;
    let mut datagrams = Vec::new();
    loop {
        let now = Instant::now();
        for seat in seats.iter_mut().filter(|seat| seat.due.is_some_and(|due| due <= now)) {
            seat.member.handle_timeout(now);
            seat.send(&mut datagrams);
        }
        let next = seats.iter().filter_map(|seat| seat.due).min();
        let wait = next.map_or(IDLE, |next| next.saturating_duration_since(Instant::now()));
        let mut events = [MaybeUninit::<epoll::Event>::uninit(); EVENTS];
        let (events, _) = match epoll::wait(&ready, &mut events, Some(&Timespec::try_from(wait)?)) {
            Err(rustix::io::Errno::INTR) => continue,
            other => other?,
        };
        let now = Instant::now();
        for event in events {
            let seat = usize::try_from(event.data.u64()).ok().and_then(|number| seats.get_mut(number));
            if let Some(seat) = seat {
                seat.receive(now);
                seat.send(&mut datagrams);
            }
        }
    }
}

impl Seat {
    fn receive(&mut self, now: Instant) {
        let mut buffer = [0; DATAGRAM_BYTES];
        for _ in 0..BUDGET {
            match self.socket.recv_from(&mut buffer) {
                Ok((count, from)) => self.member.handle_datagram(&buffer[..count], from, now),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                // An ICMP error of an earlier datagram: a gateway that was killed a moment ago.
                Err(_) => {}
            }
        }
    }

    /// Sends what there is to send; what the kernel does not take is lost, as on any wire.
    fn send(&mut self, datagrams: &mut Vec<Datagram>) {
        self.member.poll_transmits(datagrams);
        for (to, datagram) in datagrams.drain(..) {
            let _ = self.socket.send_to(&datagram, to);
        }
        self.due = self.member.poll_timeout();
    }
}
