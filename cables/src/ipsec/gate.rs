//! Tells ESP from IKE on one port, and hands IKE messages to the slow half (RFC 3948 section 2).

use std::sync::Arc;
use std::time::Instant;

use crossbeam::channel::{Sender, TrySendError};
use trieste_packet::{DropReason, Outer};
use zeroize::Zeroizing;

use super::Spi;
use super::ike::{EngineLoad, Input};
use crate::boundary::{Admission, Gate, Message};

/// What the gates of all workers share.
#[derive(Clone)]
pub struct GateShared {
    /// Keys cookies.
    _secret: Arc<Zeroizing<[u8; 32]>>,
    inbox: Sender<Input>,
    _load: Arc<EngineLoad>,
}

impl GateShared {
    /// For the slow half behind `inbox`, whose load is `load`. `secret` is random.
    #[must_use]
    pub fn new(secret: Zeroizing<[u8; 32]>, inbox: Sender<Input>, load: Arc<EngineLoad>) -> Self {
        Self { _secret: Arc::new(secret), inbox, _load: load }
    }
}

/// The gate of one worker.
pub struct IpsecGate {
    shared: GateShared,
}

impl IpsecGate {
    /// A gate.
    #[must_use]
    pub fn new(shared: GateShared, _now: Instant) -> Self {
        Self { shared }
    }
}

impl Gate for IpsecGate {
    fn classify(&self, datagram: &[u8]) -> Message {
        //= https://www.rfc-editor.org/rfc/rfc3948#section-2.3
        //# a one-octet-long payload with the value 0xFF
        if datagram == [0xff] {
            return Message::Keepalive;
        }
        match datagram.first_chunk() {
            Some([0, 0, 0, 0]) => Message::Negotiation,
            Some(spi) => Message::Data(Spi::from_bytes(*spi).lane()),
            None => Message::Unknown,
        }
    }

    fn admit(&mut self, datagram: &[u8], from: &Outer, _now: Instant) -> Admission {
        let Some((_, message)) = datagram.split_first_chunk::<4>() else {
            return Admission::Refuse(DropReason::UnknownDatagram);
        };
        match self.shared.inbox.try_send(Input::Datagram { message: message.to_vec(), from: *from }) {
            Ok(()) => Admission::Taken,
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => {
                Admission::Refuse(DropReason::HandshakeLimit)
            }
        }
    }

    fn handle_timeout(&mut self, _now: Instant) {}
}
