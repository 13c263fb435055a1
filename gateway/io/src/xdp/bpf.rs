//! The few commands of bpf(2) that a program without an object file needs, each behind a function that is safe to call.
#![expect(unsafe_code, reason = "bpf(2); each call passes memory that outlives it")]

use std::ffi::c_long;
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, FromRawFd as _, OwnedFd, RawFd};

use super::assembler::{INSTRUCTION_BYTES, Instruction};

/// Commands of bpf(2).
const MAP_CREATE: c_long = 0;
const MAP_UPDATE: c_long = 2;
const MAP_DELETE: c_long = 3;
const PROG_LOAD: c_long = 5;
const LINK_CREATE: c_long = 28;
const LINK_UPDATE: c_long = 29;

const MAP_TYPE_XSKMAP: u32 = 17;
const PROG_TYPE_XDP: u32 = 6;
const ATTACH_XDP: u32 = 37;
/// Where in the kernel a link's program runs (`XDP_FLAGS_SKB_MODE`, `XDP_FLAGS_DRV_MODE`).
const GENERIC: u32 = 1 << 1;
const NATIVE: u32 = 1 << 2;

const LICENSE: &[u8] = b"Apache-2.0\0";
const NAME: [u8; 16] = *b"trieste_outer\0\0\0";

/// Part of the kernel's `union bpf_attr`; what follows in it counts as zero.
trait Attribute {}

#[repr(C)]
#[derive(Default)]
struct MapCreate {
    map_type: u32,
    key_bytes: u32,
    value_bytes: u32,
    entries: u32,
    flags: u32,
    inner_map: u32,
    numa_node: u32,
    name: [u8; 16],
    interface: u32,
}

#[repr(C, align(8))]
#[derive(Default)]
struct MapElement {
    map: u32,
    padding: u32,
    key: u64,
    value: u64,
    flags: u64,
}

#[repr(C, align(8))]
#[derive(Default)]
struct ProgLoad {
    kind: u32,
    count: u32,
    instructions: u64,
    license: u64,
    log_level: u32,
    log_bytes: u32,
    log: u64,
    kernel_version: u32,
    flags: u32,
    name: [u8; 16],
    interface: u32,
    attach_type: u32,
}

#[repr(C)]
#[derive(Default)]
struct LinkCreate {
    program: u32,
    interface: u32,
    attach_type: u32,
    flags: u32,
}

#[repr(C)]
#[derive(Default)]
struct LinkUpdate {
    link: u32,
    program: u32,
    flags: u32,
    former: u32,
}

impl Attribute for MapCreate {}
impl Attribute for MapElement {}
impl Attribute for ProgLoad {}
impl Attribute for LinkCreate {}
impl Attribute for LinkUpdate {}

fn bpf(command: c_long, attribute: &mut impl Attribute) -> io::Result<i32> {
    let bytes = size_of_val(attribute);
    // SAFETY: every `Attribute` is `repr(C)`, starts as the kernel's structure for its command does, has no padding, and
    // lives until the call returns, as does what it points to (see the callers). The kernel takes what is beyond its
    // `bytes` for zero.
    let result = unsafe { libc::syscall(libc::SYS_bpf, command, std::ptr::from_mut(attribute), bytes) };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    i32::try_from(result).map_err(|_| io::Error::from_raw_os_error(libc::EOVERFLOW))
}

fn owned(fd: i32) -> OwnedFd {
    // SAFETY: the kernel has just made the descriptor for us, and nobody else has it.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

fn number(fd: RawFd) -> u32 {
    u32::try_from(fd).unwrap_or(u32::MAX)
}

fn address<T>(memory: &[T]) -> u64 {
    memory.as_ptr() as u64
}

fn small(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

/// A map from queues to AF_XDP sockets.
#[derive(Debug)]
pub(super) struct SocketMap(OwnedFd);

impl SocketMap {
    /// Makes a map for `queues` queues.
    pub(super) fn new(queues: u32) -> io::Result<Self> {
        let mut attribute = MapCreate {
            map_type: MAP_TYPE_XSKMAP,
            key_bytes: 4,
            value_bytes: 4,
            entries: queues,
            name: NAME,
            ..MapCreate::default()
        };
        bpf(MAP_CREATE, &mut attribute).map(|fd| Self(owned(fd)))
    }

    /// Returns the map's descriptor, for the program.
    pub(super) fn descriptor(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    /// Lets frames of `queue` go to `socket`.
    pub(super) fn set(&self, queue: u32, socket: impl AsFd) -> io::Result<()> {
        let (key, value) = ([queue], [number(socket.as_fd().as_raw_fd())]);
        let mut attribute = MapElement {
            map: number(self.descriptor()),
            key: address(&key),
            value: address(&value),
            ..MapElement::default()
        };
        bpf(MAP_UPDATE, &mut attribute).map(drop)
    }

    /// Leaves frames of `queue` to the kernel.
    pub(super) fn clear(&self, queue: u32) -> io::Result<()> {
        let key = [queue];
        let mut attribute =
            MapElement { map: number(self.descriptor()), key: address(&key), ..MapElement::default() };
        bpf(MAP_DELETE, &mut attribute).map(drop)
    }
}

/// A program that the kernel has verified.
#[derive(Debug)]
pub(super) struct Program(OwnedFd);

impl Program {
    /// Loads a program. If the kernel refuses it, the error has the end of the verifier's log.
    pub(super) fn load(instructions: &[Instruction]) -> io::Result<Self> {
        let mut bytes = Vec::with_capacity(instructions.len() * INSTRUCTION_BYTES);
        for instruction in instructions {
            bytes.extend(instruction.bytes());
        }
        match load(&bytes, &mut []) {
            Ok(program) => return Ok(Self(program)),
            Err(error) if error.raw_os_error() == Some(libc::EPERM) => return Err(error),
            Err(_) => {}
        }
        let mut log = vec![0u8; 1 << 18];
        match load(&bytes, &mut log) {
            Ok(program) => Ok(Self(program)),
            // A refusal by the verifier would read as a missing right.
            Err(error) => Err(io::Error::other(format!("{error}: {}", last_lines(&log)))),
        }
    }

    fn descriptor(&self) -> u32 {
        number(self.0.as_raw_fd())
    }
}

fn load(bytes: &[u8], log: &mut [u8]) -> io::Result<OwnedFd> {
    let mut attribute = ProgLoad {
        kind: PROG_TYPE_XDP,
        count: small(bytes.len() / INSTRUCTION_BYTES),
        instructions: address(bytes),
        license: address(LICENSE),
        log_level: u32::from(!log.is_empty()),
        log_bytes: small(log.len()),
        log: if log.is_empty() { 0 } else { log.as_mut_ptr() as u64 },
        name: NAME,
        attach_type: ATTACH_XDP,
        ..ProgLoad::default()
    };
    bpf(PROG_LOAD, &mut attribute).map(owned)
}

fn last_lines(log: &[u8]) -> String {
    let end = log.iter().position(|byte| *byte == 0).unwrap_or(log.len());
    let text = String::from_utf8_lossy(log.get(..end).unwrap_or_default());
    let lines: Vec<&str> = text.lines().collect();
    lines.get(lines.len().saturating_sub(4)..).unwrap_or_default().join("; ")
}

/// Where in the kernel the program runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Hook {
    /// In the driver, before there is a socket buffer.
    Native,
    /// In the stack, on socket buffers.
    Generic,
}

/// A program on an interface. It goes with the descriptor, so with the process, however that ends.
#[derive(Debug)]
pub(super) struct Link(OwnedFd);

impl Link {
    /// Attaches a program. There must be no other one on the interface.
    pub(super) fn attach(program: &Program, interface: u32, hook: Hook) -> io::Result<Self> {
        let flags = match hook {
            Hook::Native => NATIVE,
            Hook::Generic => GENERIC,
        };
        let mut attribute =
            LinkCreate { program: program.descriptor(), interface, attach_type: ATTACH_XDP, flags };
        bpf(LINK_CREATE, &mut attribute).map(|fd| Self(owned(fd)))
    }

    /// Puts another program in the place of the attached one; no frame passes between them.
    pub(super) fn update(&self, program: &Program) -> io::Result<()> {
        let link = number(self.0.as_raw_fd());
        let mut attribute = LinkUpdate { link, program: program.descriptor(), ..LinkUpdate::default() };
        bpf(LINK_UPDATE, &mut attribute).map(drop)
    }
}

/// What the tests of programs need: a run over one frame.
#[cfg(test)]
pub(super) mod test_run {
    use super::{Attribute, Program, address, bpf, small};
    use std::io;

    const PROG_TEST_RUN: std::ffi::c_long = 10;

    #[repr(C, align(8))]
    #[derive(Default)]
    struct TestRun {
        program: u32,
        result: u32,
        bytes_in: u32,
        bytes_out: u32,
        data_in: u64,
        data_out: u64,
        repeat: u32,
        duration: u32,
    }

    impl Attribute for TestRun {}

    /// Runs the program on a frame of at least 14 bytes and returns its verdict.
    pub(in super::super) fn run(program: &Program, frame: &[u8]) -> io::Result<u32> {
        let mut attribute = TestRun {
            program: program.descriptor(),
            bytes_in: small(frame.len()),
            data_in: address(frame),
            ..TestRun::default()
        };
        bpf(PROG_TEST_RUN, &mut attribute)?;
        Ok(attribute.result)
    }
}
