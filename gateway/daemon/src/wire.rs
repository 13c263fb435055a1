//! A worker's outer side: UDP sockets, or AF_XDP in front of them where the program is built with it.

use trieste_io::UdpIo;

/// The outer side.
#[cfg(not(feature = "af-xdp"))]
pub type Wire = UdpIo;

#[cfg(feature = "af-xdp")]
pub use with_rings::Wire;

#[cfg(feature = "af-xdp")]
mod with_rings {
    use std::io;
    use std::os::fd::BorrowedFd;
    use std::time::Duration;

    use trieste_io::xdp::XdpIo;
    use trieste_io::{Capabilities, Fallback, PacketIo, RingState};
    use trieste_packet::{Batch, Drops, Pool};

    use super::UdpIo;

    /// The outer side.
    #[derive(Debug)]
    pub enum Wire {
        /// UDP sockets.
        Sockets(Box<UdpIo>),
        /// AF_XDP, with sockets for what that cannot carry.
        Rings(Box<XdpIo>),
    }

    impl From<UdpIo> for Wire {
        fn from(io: UdpIo) -> Self {
            Self::Sockets(Box::new(io))
        }
    }

    impl From<XdpIo> for Wire {
        fn from(io: XdpIo) -> Self {
            Self::Rings(Box::new(io))
        }
    }

    impl Wire {
        fn parts(&self) -> (Option<&UdpIo>, Option<&XdpIo>) {
            match self {
                Self::Sockets(io) => (Some(io), None),
                Self::Rings(io) => (None, Some(io)),
            }
        }

        /// Returns what is read, to be waited for.
        pub fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
            let (sockets, rings) = self.parts();
            sockets.into_iter().flat_map(UdpIo::fds).chain(rings.into_iter().flat_map(XdpIo::fds))
        }

        /// Returns what is only sent with.
        pub fn send_only_fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
            let (sockets, rings) = self.parts();
            let of_sockets = sockets.into_iter().flat_map(UdpIo::send_only_fds);
            of_sockets.chain(rings.into_iter().flat_map(XdpIo::send_only_fds))
        }

        /// Returns a number that changes with the descriptors.
        #[must_use]
        pub fn generation(&self) -> u32 {
            self.parts().1.map_or(0, XdpIo::generation)
        }

        /// Returns what has to become writable before the last `send` can go on.
        #[must_use]
        pub fn blocked(&self) -> Option<BorrowedFd<'_>> {
            match self {
                Self::Sockets(io) => io.blocked(),
                Self::Rings(io) => io.blocked(),
            }
        }
    }

    impl PacketIo for Wire {
        fn recv(&mut self, pool: &mut Pool, batch: &mut Batch, drops: &mut Drops) -> io::Result<usize> {
            match self {
                Self::Sockets(io) => io.recv(pool, batch, drops),
                Self::Rings(io) => io.recv(pool, batch, drops),
            }
        }

        fn send(&mut self, batch: &mut Batch, pool: &mut Pool, drops: &mut Drops) -> io::Result<usize> {
            match self {
                Self::Sockets(io) => io.send(batch, pool, drops),
                Self::Rings(io) => io.send(batch, pool, drops),
            }
        }

        fn capabilities(&self) -> Capabilities {
            match self {
                Self::Sockets(io) => io.capabilities(),
                Self::Rings(io) => io.capabilities(),
            }
        }

        fn fallbacks(&self) -> &[Fallback] {
            match self {
                Self::Sockets(io) => io.fallbacks(),
                Self::Rings(io) => io.fallbacks(),
            }
        }

        fn rings(&self) -> Option<RingState> {
            self.parts().1?.rings()
        }

        fn retry_after(&self) -> Option<Duration> {
            self.parts().1?.retry_after()
        }
    }
}
