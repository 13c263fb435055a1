//! Keys, for captures that are to be read (`trieste capture --with-secrets`).

use std::fmt;
use std::net::SocketAddr;

use zeroize::Zeroizing;

use crate::ipsec::{EspKeys, EspSuite, Spi};

/// The keys of an SA: enough to read what it protects. `Debug` shows none of them.
#[derive(Clone, PartialEq, Eq)]
pub enum SaSecrets {
    /// An IKE SA.
    Ike {
        /// The SPI of who began it, in host order.
        initiator_spi: u64,
        /// The SPI of who answered.
        responder_spi: u64,
        /// Its cipher, as people write it: `aes256gcm16`.
        cipher: &'static str,
        /// SK_ei with its salt: what the initiator seals with.
        sk_ei: Zeroizing<Vec<u8>>,
        /// SK_er with its salt: what the responder seals with.
        sk_er: Zeroizing<Vec<u8>>,
    },
    /// One direction of a child SA.
    Esp {
        /// Who seals with it. Port 0 stands for raw ESP; our own address is unspecified where the kernel chooses it.
        source: SocketAddr,
        /// Who opens with it.
        destination: SocketAddr,
        /// The SPI in its packets.
        spi: Spi,
        /// The AEAD.
        suite: EspSuite,
        /// Whether sequence numbers have 64 bits.
        has_esn: bool,
        /// Key and salt.
        keys: EspKeys,
    },
}

impl fmt::Debug for SaSecrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ike { initiator_spi, .. } => write!(f, "Ike({initiator_spi:016x}, ..)"),
            Self::Esp { spi, .. } => write!(f, "Esp({spi}, ..)"),
        }
    }
}
