//! Flows between pods, and what they lose. UDP datagrams in any number of flows, each with a number and echoed by the far
//! pod, so that each flow's silences, losses, duplicates and changes of order are known; and TCP connections that say
//! whether they survived.
//!
//! * [`Echo`] answers in a pod, [`Probing`] asks from any number of pods, [`Outages`] is what came of it. What is still on
//!   its way is waited for before anything is judged. [`Flow`] is a single one.
//! * [`Stream`] is a TCP connection to a [`TcpEcho`], [`Conversations`] are some that ask small questions.
//! * `losses.rs` says what the kernel itself has lost, for when a claim fails.
//!
//! Both ends are on this machine and share its clock. The thread that asks and those that answer go before everybody else's
//! where the kernel lets them: what they measure is the path, not their own turn. How long the asking thread did not get
//! its turn all the same is part of the result.

mod echo;
pub(crate) mod losses;
mod probing;
mod record;
mod stream;

use std::net::UdpSocket;
use std::time::Duration;

use anyhow::Context;
use serde::Serialize;

use crate::command::Run;

pub use echo::Echo;
pub use probing::{Flow, FlowSpec, Mark, Probing};
pub use stream::{Conversations, Stream, Talk, TcpEcho};

/// How often each flow asks.
pub const INTERVAL: Duration = Duration::from_millis(1);
/// A silence of less than this is not listed: on two cores a datagram may be as late as that without anything being wrong.
pub const SILENCE: Duration = Duration::from_millis(10);

/// What all flows have seen since the mark.
#[derive(Debug, Clone, Serialize)]
pub struct Outages {
    /// One entry per flow, in the order in which they were given.
    pub flows: Vec<FlowOutage>,
    /// The longest time for which the asking thread itself did not run, in microseconds: silences may be longer by as much.
    pub own_stall_us: u32,
}

/// What one flow has seen since the mark.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FlowOutage {
    /// Its name.
    pub name: String,
    /// Its own UDP port.
    pub port: u16,
    /// Datagrams sent.
    pub sent: u32,
    /// How many of them were never answered.
    pub lost: u32,
    /// How many came a second after they were sent, or later.
    #[serde(skip)]
    pub late: u32,
    /// Answers that came twice.
    pub duplicates: u32,
    /// Answers that came after a later one's.
    pub reordered: u32,
    /// The longest time between two answers in microseconds.
    pub longest_us: u32,
    /// Every silence of more than [`SILENCE`], at most a hundred.
    pub silences: Vec<Silence>,
}

impl FlowOutage {
    /// How many datagrams were answered.
    pub fn answered(&self) -> u32 {
        self.sent - self.lost
    }

    /// The longest time between two answers.
    pub fn longest(&self) -> Duration {
        Duration::from_micros(self.longest_us.into())
    }
}

/// A time without an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Silence {
    /// When it began, in microseconds after the mark.
    pub start_us: u32,
    /// How long it lasted, in microseconds.
    pub length_us: u32,
}

impl Outages {
    /// Datagrams of all flows that were never answered.
    pub fn lost(&self) -> u32 {
        self.flows.iter().map(|flow| flow.lost).sum()
    }

    /// The longest time without an answer of any flow.
    pub fn longest(&self) -> Duration {
        self.flows.iter().map(FlowOutage::longest).max().unwrap_or_default()
    }

    /// One line for people.
    pub fn line(&self) -> String {
        let hit = self.flows.iter().filter(|flow| flow.lost > 0).count();
        format!(
            "{} flows, {hit} with losses: {} of {} datagrams; longest silence {:.1} ms (own turn missed for at most {:.1} ms)",
            self.flows.len(),
            self.lost(),
            self.flows.iter().map(|flow| flow.sent).sum::<u32>(),
            self.longest().as_secs_f64() * 1e3,
            f64::from(self.own_stall_us) / 1e3,
        )
    }
}

/// How much may wait to be read, in bytes: the burst after a silence of some seconds is not to be lost at the instrument.
const BUFFER_BYTES: usize = 16 << 20;

/// Gives a socket room for such a burst.
fn make_room(socket: &UdpSocket) -> anyhow::Result<()> {
    rustix::net::sockopt::set_socket_recv_buffer_size_force(socket, BUFFER_BYTES).context("a receive buffer")
}

/// Lets this thread go before those of other programs. Where the kernel refuses, silences may be longer by its own stalls,
/// which are measured.
fn go_first() {
    let thread = rustix::thread::gettid().as_raw_nonzero().to_string();
    let _ = Run::new("chrt").args(["--fifo", "--pid", "10", &thread]).finish();
}
