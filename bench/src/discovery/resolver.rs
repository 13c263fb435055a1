//! Asks the DNS server, as often as it takes.

use std::net::UdpSocket;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use trieste_discovery::ask::Question;
use trieste_tests::interrupt::pause;
use trieste_tests::netns::Namespace;

/// How often a name is asked for that is awaited.
const TICK: Duration = Duration::from_millis(2);
/// How long one reply may take.
const REPLY: Duration = Duration::from_millis(500);

/// A client of one server.
#[derive(Debug)]
pub(super) struct Resolver {
    socket: UdpSocket,
    id: u16,
}

impl Resolver {
    /// Opens a socket in a namespace.
    ///
    /// # Errors
    /// If that cannot be.
    pub(super) fn new(namespace: &Namespace, server: &str) -> anyhow::Result<Self> {
        let socket = namespace.enter(|| {
            let socket = UdpSocket::bind("0.0.0.0:0").context("cannot open a socket")?;
            socket.connect((server, 53)).context("cannot reach the DNS server")?;
            Ok(socket)
        })?;
        socket.set_read_timeout(Some(REPLY))?;
        Ok(Self { socket, id: 0 })
    }

    /// Returns the addresses that a name has now; none as well while nobody answers.
    fn addresses(&mut self, question: &Question) -> Vec<String> {
        self.id = self.id.wrapping_add(1);
        let mut buffer = [0; 4096];
        let _ = self.socket.send(&question.query(self.id));
        while let Ok(length) = self.socket.recv(&mut buffer) {
            // A late reply to an earlier query is none.
            if let Ok(reply) = question.read(self.id, &buffer[..length]) {
                return reply.answers.into_iter().map(|(_, address)| address).collect();
            }
        }
        Vec::new()
    }

    /// Waits until what a name has is as it should be.
    ///
    /// # Errors
    /// If it does not come to that by then.
    pub(super) fn wait(
        &mut self,
        name: &str,
        end: Instant,
        is_so: impl Fn(&[String]) -> bool,
    ) -> anyhow::Result<()> {
        let question = Question::new(name, "A")?;
        loop {
            let addresses = self.addresses(&question);
            if is_so(&addresses) {
                return Ok(());
            }
            anyhow::ensure!(Instant::now() < end, "{name} has {addresses:?}");
            pause(TICK)?;
        }
    }

    /// Waits until a name has an address.
    ///
    /// # Errors
    /// As [`Resolver::wait`].
    pub(super) fn wait_answer(&mut self, name: &str, end: Instant) -> anyhow::Result<()> {
        self.wait(name, end, |addresses| !addresses.is_empty())
    }
}
