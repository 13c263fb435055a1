//! How a worker waits for its devices.

use std::io;
use std::os::fd::{AsRawFd as _, RawFd};
use std::time::{Duration, Instant};

use trieste_io::poll::{Interest, Poller};
use trieste_io::{PacketIo as _, TunQueue};

use super::Worker;
use super::turn::BACKLOG;
use crate::wire::Wire;

/// The longest wait while all buffers are out: they come back from other workers without a word.
const BUFFER_WAIT: Duration = Duration::from_millis(2);

/// Tokens of the poller.
const TUN: u8 = 0;
const WIRE: u8 = 1;

/// Waits for a worker's descriptors: to read while there are buffers, to write on the socket that was full.
pub struct DeviceWait {
    poller: Poller,
    reads: (bool, bool),
    full: Option<RawFd>,
    /// Of the outer side's descriptors.
    generation: u32,
}

impl DeviceWait {
    /// Returns a wait for the TUN queue and the sockets of one worker.
    ///
    /// # Errors
    /// They cannot be polled.
    pub fn new(poller: Poller, tun: &TunQueue, wire: &Wire) -> io::Result<Self> {
        poller.add(tun, TUN, Interest::Readable)?;
        for socket in wire.fds() {
            poller.add(socket, WIRE, Interest::Readable)?;
        }
        for socket in wire.send_only_fds() {
            poller.add(socket, WIRE, Interest::Nothing)?;
        }
        Ok(Self { poller, reads: (true, true), full: None, generation: generation(wire) })
    }

    /// Waits until there is something to do, or `timeout` is over.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn wait(&mut self, worker: &mut Worker<TunQueue, Wire>, timeout: Duration) -> io::Result<()> {
        self.follow(worker)?;
        let timeout = if self.reads.1 { timeout } else { timeout.min(BUFFER_WAIT) };
        // What the outer side has taken over and could not send goes on with the next turn.
        let timeout = worker.wire.retry_after().map_or(timeout, |retry| timeout.min(retry));
        let ready = self.poller.wait(Some(timeout))?;
        if ready.is_writable(WIRE) && self.full.is_some() {
            worker.flush(Instant::now())?;
        }
        Ok(())
    }

    /// Tells the poller what this worker can use. A descriptor that is ready for what nobody wants would end every
    /// wait at once.
    fn follow(&mut self, worker: &Worker<TunQueue, Wire>) -> io::Result<()> {
        self.follow_descriptors(&worker.wire)?;
        let full = worker.wire.blocked().filter(|_| worker.wants_write()).map(|socket| socket.as_raw_fd());
        let has_buffers = worker.pipeline.pool.available() > 0;
        // Under backpressure the TUN device is not read.
        let reads = (has_buffers && worker.pipeline.to_wire.len() < BACKLOG, has_buffers);
        if (reads, full) == (self.reads, self.full) {
            return Ok(());
        }
        let interest = |is_reading: bool, is_writing: bool| match (is_reading, is_writing) {
            (true, true) => Interest::Both,
            (true, false) => Interest::Readable,
            (false, true) => Interest::Writable,
            (false, false) => Interest::Nothing,
        };
        self.poller.modify(&worker.tun, TUN, interest(reads.0, false))?;
        for socket in worker.wire.fds() {
            self.poller.modify(socket, WIRE, interest(reads.1, full == Some(socket.as_raw_fd())))?;
        }
        for socket in worker.wire.send_only_fds() {
            self.poller.modify(socket, WIRE, interest(false, full == Some(socket.as_raw_fd())))?;
        }
        (self.reads, self.full) = (reads, full);
        Ok(())
    }

    /// Waits for the descriptors of an interface that has come back; those of the former one have left by being closed.
    fn follow_descriptors(&mut self, wire: &Wire) -> io::Result<()> {
        let generation = generation(wire);
        if generation == self.generation {
            return Ok(());
        }
        for socket in wire.fds() {
            match self.poller.add(socket, WIRE, Interest::Readable) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                    self.poller.modify(socket, WIRE, Interest::Readable)?;
                }
                result => result?,
            }
        }
        for socket in wire.send_only_fds() {
            self.poller.modify(socket, WIRE, Interest::Nothing)?;
        }
        (self.reads.1, self.full, self.generation) = (true, None, generation);
        Ok(())
    }
}

#[cfg(feature = "af-xdp")]
fn generation(wire: &Wire) -> u32 {
    wire.generation()
}

/// Returns 0: sockets alone stay what they are.
#[cfg(not(feature = "af-xdp"))]
fn generation(_: &Wire) -> u32 {
    0
}
