//! The outcomes of datagrams; one counter each.

/// The outcome of a datagram that came in. Every datagram has exactly one outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Outcome {
    /// A request, answered with OK.
    AnsweredOk,
    /// A request, answered with NAT_DETECTED.
    AnsweredNat,
    /// A request for another cluster, answered so.
    AnsweredUnknownCluster,
    /// A request for another cable of this cluster, answered so.
    AnsweredUnknownEndpoint,
    /// A request that lacks something, answered so.
    AnsweredMalformed,
    /// A request that lacks something, from an address that is no peer's; not answered.
    MalformedByStranger,
    /// A request beyond the limit of its source or of all; not answered.
    Limited,
    /// A request from where no answer can go, such as port 0 or a multicast address.
    Unanswerable,
    /// A response that decided about an address.
    Accepted,
    /// A response to a request of ours that came after the decision.
    Late,
    /// A response that lacks something.
    Incomplete,
    /// A response that says that we asked the wrong one or wrongly; discovery goes on.
    Refused,
    /// A response to somebody else.
    NotOurs,
    /// A response from a cable that is not known here, or that names another cluster for it.
    UnknownPeer,
    /// A response to no outstanding request.
    UnknownRequest,
    /// A response to the request to the private address that came from elsewhere.
    WrongSource,
    /// Larger than is read.
    TooLarge,
    /// Not a message, or one without content.
    Unreadable,
}

impl Outcome {
    /// All, in the order of their counters.
    pub const ALL: [Self; 18] = [
        Self::AnsweredOk,
        Self::AnsweredNat,
        Self::AnsweredUnknownCluster,
        Self::AnsweredUnknownEndpoint,
        Self::AnsweredMalformed,
        Self::MalformedByStranger,
        Self::Limited,
        Self::Unanswerable,
        Self::Accepted,
        Self::Late,
        Self::Incomplete,
        Self::Refused,
        Self::NotOurs,
        Self::UnknownPeer,
        Self::UnknownRequest,
        Self::WrongSource,
        Self::TooLarge,
        Self::Unreadable,
    ];

    /// Returns the label in metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::AnsweredOk => "answered-ok",
            Self::AnsweredNat => "answered-nat",
            Self::AnsweredUnknownCluster => "answered-unknown-cluster",
            Self::AnsweredUnknownEndpoint => "answered-unknown-endpoint",
            Self::AnsweredMalformed => "answered-malformed",
            Self::MalformedByStranger => "malformed-by-stranger",
            Self::Limited => "limited",
            Self::Unanswerable => "unanswerable",
            Self::Accepted => "accepted",
            Self::Late => "late",
            Self::Incomplete => "incomplete",
            Self::Refused => "refused",
            Self::NotOurs => "not-ours",
            Self::UnknownPeer => "unknown-peer",
            Self::UnknownRequest => "unknown-request",
            Self::WrongSource => "wrong-source",
            Self::TooLarge => "too-large",
            Self::Unreadable => "unreadable",
        }
    }
}

/// Counts since start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    received: [u64; Outcome::ALL.len()],
    /// Requests handed out to be sent.
    pub requests: u64,
    /// Requests not sent because there was no route.
    pub unroutable: u64,
    /// Answers thrown away because nobody fetched them.
    pub overflow: u64,
}

impl Counters {
    /// Counts the datagrams received with this outcome.
    #[must_use]
    pub const fn received(&self, outcome: Outcome) -> u64 {
        self.received[outcome as usize]
    }

    pub(super) const fn count(&mut self, outcome: Outcome) {
        self.received[outcome as usize] += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_outcome_has_a_counter_and_a_word_of_its_own() {
        let mut counters = Counters::default();
        let mut words = Vec::new();
        for (index, outcome) in Outcome::ALL.into_iter().enumerate() {
            assert_eq!(outcome as usize, index);
            counters.count(outcome);
            assert!(!words.contains(&outcome.as_str()));
            words.push(outcome.as_str());
        }
        assert!(Outcome::ALL.into_iter().all(|outcome| counters.received(outcome) == 1));
    }
}
