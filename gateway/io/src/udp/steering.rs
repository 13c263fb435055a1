//! Which of the sockets on one port gets a datagram: the one of the worker that owns the lane.
//!
//! A WireGuard message names its receiver by an index that we chose, an ESP packet by an SPI; eight bits of either,
//! the lane's low eight, are the number of the worker that owns the lane. The kernel computes this with a classic BPF
//! program over the UDP payload, so that a peer's packets go to one worker whatever their addresses. Initiations and
//! IKE have no such number yet: they and all that is no such message go to worker 0. A load beyond the end of the
//! datagram also chooses 0.

use std::io;
use std::os::fd::AsFd;

use crate::sys;

/// WireGuard message types (WireGuard paper, section 5.4).
const RESPONSE: u8 = 2;
const COOKIE: u8 = 3;
const DATA: u8 = 4;

/// Where the receiver index of a response is; of cookies and data it is at 4.
const RESPONSE_INDEX: u32 = 8;
const OTHER_INDEX: u32 = 4;
/// Where in an SPI (network order, the first four bytes) the owner stands; 0 in the non-ESP marker of IKE.
const SPI_OWNER: u32 = 2;

/// What names the lane in a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Key {
    /// WireGuard's receiver index.
    ReceiverIndex,
    /// The SPI of ESP in UDP.
    Spi,
}

/// The worker that the kernel hands `datagram` to; the same function as the program's.
#[must_use]
pub fn worker_of(key: Key, datagram: &[u8], workers: u32) -> u32 {
    let at = match (key, datagram.first()) {
        (Key::Spi, _) => SPI_OWNER,
        (Key::ReceiverIndex, Some(&RESPONSE)) => RESPONSE_INDEX + OWNER_BYTE,
        (Key::ReceiverIndex, Some(&(COOKIE | DATA))) => OTHER_INDEX + OWNER_BYTE,
        (Key::ReceiverIndex, _) => return 0,
    } as usize;
    datagram.get(at).map_or(0, |owner| u32::from(*owner) % workers.max(1))
}

/// Attaches the program to the group of sockets that `fd` belongs to, in place of an earlier one. Socket *i* of the
/// group is the *i*-th that was bound, so no socket of the group may be closed and bound again alone.
///
/// # Errors
/// When the socket shares its port with no other, or the kernel does not know the option.
pub fn attach(fd: impl AsFd, key: Key, workers: u32) -> io::Result<()> {
    sys::attach_reuseport_filter(fd, &program(key, workers.max(1)))
}

/// Takes the program away: the kernel then shares datagrams out by the addresses and ports of both ends.
///
/// # Errors
/// When there is none.
pub fn detach(fd: impl AsFd) -> io::Result<()> {
    sys::set_option(fd, libc::SOL_SOCKET, libc::SO_DETACH_REUSEPORT_BPF, 1)
}

const fn op(code: u32, k: u32) -> libc::sock_filter {
    jump(code, k, 0, 0)
}

#[expect(clippy::cast_possible_truncation, reason = "opcodes have eight bits")]
const fn jump(code: u32, k: u32, jt: u8, jf: u8) -> libc::sock_filter {
    libc::sock_filter { code: code as u16, jt, jf, k }
}

const LOAD_BYTE: u32 = libc::BPF_LD | libc::BPF_B | libc::BPF_ABS;
const IF_EQUAL: u32 = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
const MODULO: u32 = libc::BPF_ALU | libc::BPF_MOD | libc::BPF_K;
const RETURN: u32 = libc::BPF_RET;

/// Where in a (little-endian) index the owner stands.
const OWNER_BYTE: u32 = 1;

/// Instructions that read one owner and return: see `append_owner`.
const OWNER_OPS: usize = 3;

fn program(key: Key, workers: u32) -> Vec<libc::sock_filter> {
    match key {
        Key::ReceiverIndex => by_receiver_index(workers),
        Key::Spi => {
            let mut ops = Vec::with_capacity(OWNER_OPS);
            append_owner(&mut ops, SPI_OWNER, workers);
            ops
        }
    }
}

fn by_receiver_index(workers: u32) -> Vec<libc::sock_filter> {
    let mut ops = Vec::with_capacity(5 + 2 * OWNER_OPS);
    ops.push(op(LOAD_BYTE, 0));
    ops.push(jump(IF_EQUAL, DATA.into(), 3, 0));
    ops.push(jump(IF_EQUAL, COOKIE.into(), 2, 0));
    ops.push(jump(IF_EQUAL, RESPONSE.into(), 1 + u8::try_from(OWNER_OPS).expect("few"), 0));
    ops.push(op(RETURN | libc::BPF_K, 0));
    append_owner(&mut ops, OTHER_INDEX + OWNER_BYTE, workers);
    append_owner(&mut ops, RESPONSE_INDEX + OWNER_BYTE, workers);
    ops
}

/// A number of workers that is no power of two leaves some bytes that name nobody: modulo keeps those in range.
fn append_owner(ops: &mut Vec<libc::sock_filter>, at: u32, workers: u32) {
    let before = ops.len();
    ops.push(op(LOAD_BYTE, at));
    ops.push(op(MODULO, workers));
    ops.push(op(RETURN | libc::BPF_A, 0));
    debug_assert_eq!(ops.len() - before, OWNER_OPS);
}
