//! The program on the interface: attached, replaced as addresses change, gone with the process.

use std::io;
use std::os::fd::AsFd;

use super::bpf::{Hook, Link, Program, SocketMap};
use super::filter::{self, FilterConfig};
use crate::Error;

/// A program of ours on an interface, and the sockets that it redirects to. Whoever drops it detaches the program.
#[derive(Debug)]
pub(super) struct Attachment {
    link: Link,
    map: SocketMap,
}

impl Attachment {
    /// Attaches the program for `config` to an interface, for up to `queues` queues. None of them has a socket yet, so that
    /// everything goes to the kernel still.
    ///
    /// # Errors
    /// [`Error::ForeignProgram`] if there is another program; else what the kernel answers.
    pub(super) fn new(
        name: &str,
        interface: u32,
        queues: u32,
        hook: Hook,
        config: &FilterConfig,
    ) -> Result<Self, Error> {
        let map = SocketMap::new(queues.max(1)).map_err(|error| {
            Error::kernel("cannot make a map of AF_XDP sockets, which needs CAP_BPF", error)
        })?;
        let program = load(&map, config)?;
        match Link::attach(&program, interface, hook) {
            Ok(link) => Ok(Self { link, map }),
            Err(error) if matches!(error.raw_os_error(), Some(libc::EBUSY | libc::EEXIST)) => {
                Err(Error::ForeignProgram { name: name.to_owned() })
            }
            Err(error) => Err(Error::kernel(format!("cannot attach the XDP program to {name}"), error)),
        }
    }

    /// Lets frames of `queue` come to `socket`.
    pub(super) fn set(&self, queue: u32, socket: impl AsFd) -> io::Result<()> {
        self.map.set(queue, socket)
    }

    /// Leaves frames of `queue` to the kernel.
    pub(super) fn clear(&self, queue: u32) {
        // A queue without a socket is left to the kernel already.
        let _ = self.map.clear(queue);
    }

    /// Replaces the program by one for `config`.
    pub(super) fn refresh(&self, config: &FilterConfig) -> Result<(), Error> {
        let program = load(&self.map, config)?;
        self.link.update(&program).map_err(|error| Error::kernel("cannot replace the XDP program", error))
    }
}

fn load(map: &SocketMap, config: &FilterConfig) -> Result<Program, Error> {
    let instructions = filter::assemble(config, map.descriptor(), filter::PASS)?;
    Program::load(&instructions)
        .map_err(|error| Error::kernel("cannot load the XDP program, which needs CAP_BPF", error))
}
