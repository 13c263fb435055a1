//! Finding payloads in a message.

use crate::ipsec::Selector;
use crate::ipsec::wire::{Auth, Delete, Id, KeyExchange, Notify, NotifyKind, Payload, Proposal};

/// The payloads of a message that was read.
#[derive(Debug, Clone, Copy)]
pub(super) struct Payloads<'a>(pub(super) &'a [Payload]);

macro_rules! first {
    ($($(#[$doc:meta])* $name:ident: $variant:ident -> $type:ty;)+) => {
        impl<'a> Payloads<'a> {
            $($(#[$doc])*
            pub(super) fn $name(self) -> Option<&'a $type> {
                self.0.iter().find_map(|payload| match payload {
                    Payload::$variant(content) => Some(content),
                    _ => None,
                })
            })+
        }
    };
}

first! {
    /// What is proposed or chosen.
    proposals: Sa -> Vec<Proposal>;
    /// A public value.
    ke: Ke -> KeyExchange;
    /// The nonce.
    nonce: Nonce -> Vec<u8>;
    /// Who the initiator is.
    id_i: IdI -> Id;
    /// Who the responder is.
    id_r: IdR -> Id;
    /// The proof.
    auth: Auth -> Auth;
    /// Selectors of the exchange's initiator.
    ts_i: TsI -> Vec<Selector>;
    /// Selectors of its responder.
    ts_r: TsR -> Vec<Selector>;
}

impl<'a> Payloads<'a> {
    pub(super) fn notifies(self) -> impl Iterator<Item = &'a Notify> {
        self.0
            .iter()
            .filter_map(|payload| if let Payload::Notify(notify) = payload { Some(notify) } else { None })
    }

    pub(super) fn deletes(self) -> impl Iterator<Item = &'a Delete> {
        self.0
            .iter()
            .filter_map(|payload| if let Payload::Delete(delete) = payload { Some(delete) } else { None })
    }

    pub(super) fn notify(self, kind: NotifyKind) -> Option<&'a Notify> {
        self.notifies().find(|notify| notify.kind == kind)
    }

    //= https://www.rfc-editor.org/rfc/rfc7296#section-3.10.1
    //# An implementation receiving a Notify payload with one of these types that it does
    //# not recognize in a response MUST assume that the corresponding request
    //# has failed entirely.
    /// The first error, known or not.
    pub(super) fn error(self) -> Option<&'a Notify> {
        self.notifies().find(|notify| notify.kind.is_error())
    }

    pub(super) fn has_vendor(self, id: &[u8]) -> bool {
        self.0.iter().any(|payload| matches!(payload, Payload::VendorId(vendor) if vendor == id))
    }
}

/// The words of the peer's notify.
pub(super) fn words(kind: NotifyKind) -> String {
    match kind.name() {
        Some(name) => format!("{name} (peer)"),
        None => format!("notify {} (peer)", kind.code()),
    }
}
