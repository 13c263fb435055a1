//! What became of a query, in the words of the counters.

use domain::base::Rtype;

/// What became of a query.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The reply buffer has a response.
    Reply(Summary),
    /// There is no response.
    Drop(DropReason),
}

/// What a response says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Summary {
    /// What was asked for.
    pub query: QueryType,
    /// What was answered.
    pub result: Answer,
    /// Whether records were left out because they did not fit.
    pub is_truncated: bool,
}

macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $word:literal,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub enum $name {
            $($(#[$variant_doc])* $variant,)*
        }

        impl $name {
            /// All of them, in the order of [`Self::index`].
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// Returns its word in labels of metrics.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)*
                }
            }

            /// Returns its place among all.
            pub fn index(self) -> usize {
                Self::ALL.iter().position(|other| *other == self).unwrap_or(0)
            }
        }
    };
}

words! {
    /// What was asked for.
    QueryType {
        /// An IPv4 address.
        A = "a",
        /// An IPv6 address.
        Aaaa = "aaaa",
        /// Ports and hosts.
        Srv = "srv",
        /// The name of an address.
        Ptr = "ptr",
        /// The zone's start of authority.
        Soa = "soa",
        /// The zone's name servers.
        Ns = "ns",
        /// Texts.
        Txt = "txt",
        /// Anything.
        Any = "any",
        /// Another type, or none that could be read.
        Other = "other",
    }
}

words! {
    /// What was answered.
    Answer {
        /// Records.
        Records = "records",
        /// The name exists, and has no record of this type now.
        NoData = "no_data",
        /// The name does not exist.
        NoName = "no_name",
        /// The name lies in none of our zones, or the query asks for what is not for anybody.
        Refused = "refused",
        /// The query is malformed.
        Malformed = "malformed",
        /// The query has an operation other than a question.
        Unimplemented = "unimplemented",
        /// The query has a version of EDNS other than 0.
        BadVersion = "bad_version",
        /// Whether the name exists is not clear yet.
        Failed = "failed",
    }
}

words! {
    /// Why there is no response.
    DropReason {
        /// It is shorter than a header.
        TooShort = "too_short",
        /// It is a response itself: an answer could go on for ever.
        Response = "response",
        /// It is longer than what is read of a datagram.
        TooLong = "too_long",
        /// The response could not be sent.
        NotSent = "not_sent",
        /// The client has too many connections.
        ClientLimit = "client_limit",
        /// There are too many connections.
        ConnectionLimit = "connection_limit",
        /// The client was too slow.
        TooSlow = "too_slow",
    }
}

impl From<Rtype> for QueryType {
    fn from(rtype: Rtype) -> Self {
        match rtype {
            Rtype::A => Self::A,
            Rtype::AAAA => Self::Aaaa,
            Rtype::SRV => Self::Srv,
            Rtype::PTR => Self::Ptr,
            Rtype::SOA => Self::Soa,
            Rtype::NS => Self::Ns,
            Rtype::TXT => Self::Txt,
            Rtype::ANY => Self::Any,
            _ => Self::Other,
        }
    }
}
