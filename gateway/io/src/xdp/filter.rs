//! The XDP program: which frames leave the kernel's stack for us.
//!
//! ```text
//!  frame ─▶ ours by MAC? ─▶ IPv4 without options or fragments │ IPv6 without extension headers
//!             │ no            │ no                              │ yes
//!             ▼               ▼                                 ▼
//!            kernel          kernel      to one of our addresses, UDP to one of our ports or ESP? ─▶ the queue's socket
//! ```
//!
//! Whatever else arrives goes to the kernel as if there was no program: VLAN tags, fragments, malformed headers,
//! frames larger than a chunk; in the stack (generic mode) also datagrams whose checksum is left to a device, which
//! may be trains of several there, and nothing in the frame tells. What the program takes has a whole IP header and a whole transport header.
//! Addresses and ports are constants in the instructions, which are made here: no compiler, no object file.

use std::net::{Ipv4Addr, Ipv6Addr};

use super::assembler::{Assembler, Instruction, Label, Register, Width};
use crate::Error;

/// Bytes of an Ethernet header.
pub(super) const ETHERNET_BYTES: usize = 14;
/// Ethernet types.
pub(super) const ETHERNET_IPV4: u16 = 0x0800;
pub(super) const ETHERNET_IPV6: u16 = 0x86dd;

/// Most addresses of a family, and most ports.
pub(super) const MOST: usize = 64;

/// What the program returns for frames that it leaves to the kernel (`XDP_PASS`).
pub(super) const PASS: i32 = 2;
/// `bpf_redirect_map`.
const REDIRECT_MAP: i32 = 51;

const RESULT: Register = Register(0);
const CONTEXT: Register = Register(6);
const DATA: Register = Register(2);
const END: Register = Register(3);
const PROTOCOL: Register = Register(7);
const SCRATCH: Register = Register(4);
const POINTER: Register = Register(5);
const SUM: Register = Register(8);
const CHECKSUM: Register = Register(9);
const ADDRESS: [Register; 4] = [Register(1), Register(4), Register(8), Register(9)];

/// What is ours.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct FilterConfig {
    /// The interface's address.
    pub(super) mac: [u8; 6],
    /// Its IPv4 addresses.
    pub(super) ipv4: Vec<Ipv4Addr>,
    /// Its IPv6 addresses.
    pub(super) ipv6: Vec<Ipv6Addr>,
    /// Our UDP ports.
    pub(super) ports: Vec<u16>,
    /// Whether ESP (IP protocol 50) is ours.
    pub(super) esp: bool,
    /// Whether datagrams are ours whose checksum is left to a device.
    pub(super) partial: bool,
    /// The largest frame that fits a chunk, in bytes.
    pub(super) frame_bytes: u16,
}

/// Assembles the program. `map` is the descriptor of the map from queues to sockets; what arrives at a queue that has none
/// ends with `otherwise`.
///
/// # Errors
/// There are more addresses or ports than [`MOST`].
pub(super) fn assemble(config: &FilterConfig, map: i32, otherwise: i32) -> Result<Vec<Instruction>, Error> {
    for (what, count) in [
        ("IPv4 addresses of the interface", config.ipv4.len()),
        ("IPv6 addresses of the interface", config.ipv6.len()),
        ("UDP ports", config.ports.len()),
    ] {
        if count > MOST {
            return Err(Error::Count { what, count, most: MOST });
        }
    }
    let mut assembler = Assembler::default();
    if (config.ipv4.is_empty() && config.ipv6.is_empty()) || (config.ports.is_empty() && !config.esp) {
        // Nothing can be ours, and the verifier takes no instruction that cannot be reached.
        assembler.set(RESULT, PASS);
        assembler.exit();
        return Ok(assembler.finish().unwrap_or_default());
    }
    let labels = Labels {
        pass: assembler.label(),
        take: assembler.label(),
        udp: assembler.label(),
        transport: assembler.label(),
        ipv6: assembler.label(),
    };
    ethernet(&mut assembler, config, &labels);
    ipv4(&mut assembler, config, &labels);
    ipv6(&mut assembler, config, &labels);
    transport(&mut assembler, config, &labels);
    verdicts(&mut assembler, config, map, otherwise, &labels);
    assembler.finish().ok_or(Error::Count {
        what: "instructions of the XDP program",
        count: MOST,
        most: MOST,
    })
}

struct Labels {
    pass: Label,
    take: Label,
    udp: Label,
    transport: Label,
    ipv6: Label,
}

/// Returns a field in network order as the number that a load gives.
fn half(value: u16) -> i32 {
    i32::from(u16::from_ne_bytes(value.to_be_bytes()))
}

fn word(bytes: [u8; 4]) -> i32 {
    i32::from_ne_bytes(bytes)
}

fn ethernet(assembler: &mut Assembler, config: &FilterConfig, labels: &Labels) {
    assembler.copy(CONTEXT, Register(1));
    assembler.load(Width::Word, DATA, CONTEXT, 0);
    assembler.load(Width::Word, END, CONTEXT, 4);
    // Larger than a chunk: the kernel's sockets take it, whole or in fragments.
    assembler.copy(POINTER, DATA);
    assembler.add_number(POINTER, i32::from(config.frame_bytes));
    assembler.jump_below(POINTER, END, labels.pass);
    needs(assembler, 14 + 20 + 8, labels);
    let [m0, m1, m2, m3, m4, m5] = config.mac;
    assembler.load(Width::Word, SCRATCH, DATA, 0);
    assembler.jump_unequal(SCRATCH, word([m0, m1, m2, m3]), labels.pass);
    assembler.load(Width::Half, SCRATCH, DATA, 4);
    assembler.jump_unequal(SCRATCH, half(u16::from_be_bytes([m4, m5])), labels.pass);
    assembler.load(Width::Half, SCRATCH, DATA, 12);
    assembler.jump_equal(SCRATCH, half(ETHERNET_IPV6), labels.ipv6);
    assembler.jump_unequal(SCRATCH, half(ETHERNET_IPV4), labels.pass);
}

/// Leaves frames of fewer than `bytes` bytes to the kernel; the verifier takes loads from the others.
fn needs(assembler: &mut Assembler, bytes: i32, labels: &Labels) {
    assembler.copy(POINTER, DATA);
    assembler.add_number(POINTER, bytes);
    assembler.jump_above(POINTER, END, labels.pass);
}

/// Leaves packets to the kernel whose length field, at `field`, is below `least`. Whether they are cut off is found where they
/// are read: a pointer plus a number that is not constant would need `CAP_PERFMON`.
fn is_long_enough(assembler: &mut Assembler, field: i16, least: i32, labels: &Labels) {
    assembler.load(Width::Half, SCRATCH, DATA, field);
    assembler.number_from16(SCRATCH);
    assembler.jump_below_number(SCRATCH, least, labels.pass);
}

fn ipv4(assembler: &mut Assembler, config: &FilterConfig, labels: &Labels) {
    if config.ipv4.is_empty() {
        assembler.jump(labels.pass);
        return;
    }
    // Version 4, and no options.
    assembler.load(Width::Byte, SCRATCH, DATA, 14);
    assembler.jump_unequal(SCRATCH, 0x45, labels.pass);
    // Neither an offset nor more fragments, nor the reserved bit.
    assembler.load(Width::Half, SCRATCH, DATA, 20);
    assembler.and(SCRATCH, half(0xbfff));
    assembler.jump_unequal(SCRATCH, 0, labels.pass);
    is_long_enough(assembler, 16, 28, labels);
    assembler.load(Width::Byte, PROTOCOL, DATA, 23);
    assembler.load(Width::Word, SCRATCH, DATA, 30);
    let found = assembler.label();
    for address in &config.ipv4 {
        assembler.jump_equal(SCRATCH, word(address.octets()), found);
    }
    assembler.jump(labels.pass);
    assembler.place(found);
    if !config.partial {
        pseudo_header(assembler, &[26, 30], 38);
    }
    assembler.load(Width::Half, SCRATCH, DATA, 36);
    assembler.jump(labels.transport);
}

fn ipv6(assembler: &mut Assembler, config: &FilterConfig, labels: &Labels) {
    assembler.place(labels.ipv6);
    if config.ipv6.is_empty() {
        assembler.jump(labels.pass);
        return;
    }
    needs(assembler, 14 + 40 + 8, labels);
    assembler.load(Width::Byte, SCRATCH, DATA, 14);
    assembler.and(SCRATCH, 0xf0);
    assembler.jump_unequal(SCRATCH, 0x60, labels.pass);
    is_long_enough(assembler, 18, 8, labels);
    assembler.load(Width::Byte, PROTOCOL, DATA, 20);
    for (register, offset) in ADDRESS.into_iter().zip([38, 42, 46, 50]) {
        assembler.load(Width::Word, register, DATA, offset);
    }
    let found = assembler.label();
    for address in &config.ipv6 {
        let next = assembler.label();
        for (register, part) in ADDRESS.into_iter().zip(address.octets().as_chunks::<4>().0) {
            assembler.jump_unequal(register, word(*part), next);
        }
        assembler.jump(found);
        assembler.place(next);
    }
    assembler.jump(labels.pass);
    assembler.place(found);
    if !config.partial {
        pseudo_header(assembler, &[22, 26, 30, 34, 38, 42, 46, 50], 58);
    }
    assembler.load(Width::Half, SCRATCH, DATA, 56);
}

/// Adds up what a checksum covers besides the datagram: addresses, word by word, protocol, and the length at `length`; the
/// checksum is behind that. The order of bytes does not matter for the sum.
fn pseudo_header(assembler: &mut Assembler, addresses: &[i16], length: i16) {
    assembler.set(SUM, half(17));
    for offset in addresses {
        assembler.load(Width::Word, SCRATCH, DATA, *offset);
        assembler.add(SUM, SCRATCH);
    }
    assembler.load(Width::Half, SCRATCH, DATA, length);
    assembler.add(SUM, SCRATCH);
    assembler.load(Width::Half, CHECKSUM, DATA, length + 2);
}

/// Takes UDP to our ports and ESP: the destination port is in `SCRATCH`.
fn transport(assembler: &mut Assembler, config: &FilterConfig, labels: &Labels) {
    assembler.place(labels.transport);
    if config.esp {
        assembler.jump_equal(PROTOCOL, 50, labels.take);
    }
    assembler.jump_unequal(PROTOCOL, 17, labels.pass);
    for port in &config.ports {
        assembler.jump_equal(SCRATCH, half(*port), labels.udp);
    }
}

/// Leaves datagrams to the kernel whose checksum is the pseudo-header's sum.
fn partial(assembler: &mut Assembler, labels: &Labels) {
    assembler.copy_word(SCRATCH, SUM);
    assembler.shift_right(SUM, 32);
    assembler.add(SUM, SCRATCH);
    for _ in 0..3 {
        assembler.copy(SCRATCH, SUM);
        assembler.and(SCRATCH, 0xffff);
        assembler.shift_right(SUM, 16);
        assembler.add(SUM, SCRATCH);
    }
    assembler.jump_same(SUM, CHECKSUM, labels.pass);
}

fn verdicts(assembler: &mut Assembler, config: &FilterConfig, map: i32, otherwise: i32, labels: &Labels) {
    assembler.place(labels.pass);
    assembler.set(RESULT, PASS);
    assembler.exit();
    assembler.place(labels.udp);
    if !config.partial && !config.ports.is_empty() {
        partial(assembler, labels);
    }
    assembler.place(labels.take);
    // The queue that the frame came by.
    assembler.load(Width::Word, Register(2), CONTEXT, 16);
    assembler.load_map(Register(1), map);
    assembler.set(Register(3), otherwise);
    assembler.call(REDIRECT_MAP);
    assembler.exit();
}

#[cfg(test)]
mod tests;
