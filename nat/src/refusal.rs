//! Why a packet is not translated.

macro_rules! refusals {
    ($($(#[$doc:meta])* $name:ident = $text:literal,)+) => {
        /// Why a packet is not translated; it has to be dropped.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum Refusal {
            $($(#[$doc])* $name,)+
        }

        impl Refusal {
            /// Every refusal, in the order of their numbers.
            pub const ALL: &'static [Self] = &[$(Self::$name,)+];

            /// The refusal as a metric label.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$name => $text,)+ }
            }
        }
    };
}

refusals! {
    /// Outbound: no egress rule gives the source a global address.
    NoGlobalIp = "no_global_ip",
    /// Outbound: no port of the source's bucket is free on its global address.
    NoPort = "no_port",
    /// No port may be given out: this gateway has no share of them, or is not ready to use it.
    NotReady = "not_ready",
    /// The worker has as many sessions as it may have.
    SessionLimit = "session_limit",
    /// The inside address has as many mappings or sessions as it may have.
    SourceLimit = "source_limit",
    /// Another flow has the same addresses and ports on the outside.
    TupleInUse = "tuple_in_use",
    /// Outbound: an answer to a question that nobody has asked, or a TCP reset of no session.
    NoSession = "no_session",
    /// Inbound: nothing is mapped to the destination.
    NoMapping = "no_mapping",
    /// Inbound: the inside end has never sent to this remote address.
    Filtered = "filtered",
    /// Inbound: the first packet of a TCP connection that nobody inside waits for. Hold it for
    /// [`Nat::hold_unsolicited`](crate::Nat::hold_unsolicited) rather than answer it at once.
    UnsolicitedSyn = "unsolicited_syn",
    /// The rules that the session was made by do not allow it any more.
    Forbidden = "forbidden",
}

/// Number of refusals; the length of an array of counters.
pub(crate) const REFUSALS: usize = Refusal::ALL.len();

impl Refusal {
    /// Whether the inside source is told by ICMP type 3 code 13, "communication administratively prohibited".
    /// (RFC 5508 section 7): no address, no port, no place: trying again at once is no use.
    #[must_use]
    pub fn is_told(self) -> bool {
        matches!(
            self,
            Self::NoGlobalIp | Self::NoPort | Self::SessionLimit | Self::SourceLimit | Self::TupleInUse
        )
    }
}
