//! The IPsec part of a cable: its SAs, and what went wrong with them.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::api::ConnectionStatus;

/// The parts of a cable of the IPsec driver.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct IpsecStatus {
    /// `bidirectional`, `server` or `client`: who begins.
    pub mode: String,
    /// Whether the peer is a Trieste gateway.
    #[serde(default)]
    pub is_trieste: bool,
    /// Whether packets can be sealed for at least one pair of subnets.
    #[serde(default)]
    pub is_up: bool,
    /// How packets travel: `udp`, or `esp` for IP protocol 50; absent until known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub encapsulation: Option<String>,
    /// The last failure of the cable as a whole, in the words of the peer's notify; absent when nothing is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// IKE SAs, those under way included.
    #[serde(default)]
    pub ike_sas: Vec<IkeSaStatus>,
    /// Child SAs, those that are wanted and missing included.
    #[serde(default)]
    pub child_sas: Vec<ChildSaStatus>,
}

/// An IKE SA.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct IkeSaStatus {
    /// SPI of who began it, 16 hexadecimal digits.
    pub initiator_spi: String,
    /// SPI of who answered.
    pub responder_spi: String,
    /// Whether we began it.
    #[serde(default)]
    pub is_initiator: bool,
    /// `connecting`, `authenticating`, `established`, `rekeyed` or `deleting`.
    pub state: String,
    /// Its algorithms, such as `aes256gcm16-prfsha256-x25519`; empty until known.
    #[serde(default)]
    pub algorithms: String,
    /// Our identity.
    #[serde(default)]
    pub local_id: String,
    /// The peer's.
    #[serde(default)]
    pub remote_id: String,
    /// The peer's address.
    #[serde(default)]
    pub address: String,
    /// The sides behind a NAT, or that report one to have packets go through UDP: `local`, `remote`, `both`; empty when
    /// nobody is.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub nat: String,
    /// Seconds since it was established, or since the attempt began.
    pub age_s: f64,
    /// Seconds until we renew it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rekey_in_s: Option<f64>,
    /// The request that the peer has not answered yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pending: Option<String>,
}

/// A child SA, or a pair of subnets that lacks one.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ChildSaStatus {
    /// The subnets: `10.1.0.0/16 === 10.2.0.0/16`.
    pub selectors: String,
    /// `connecting`, `failed`, `installed`, `rekeying`, `rekeyed` or `deleting`.
    pub state: String,
    /// Our SPI, `0x…`; absent while there is no SA.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spi_in: Option<String>,
    /// The peer's SPI.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spi_out: Option<String>,
    /// Its algorithms, such as `aes128gcm16-esn`; empty until known.
    #[serde(default)]
    pub algorithms: String,
    /// Whether packets are sealed with it at present.
    #[serde(default)]
    pub is_sealing: bool,
    /// Bytes of packets opened.
    #[serde(default)]
    pub rx_bytes: u64,
    /// Packets opened.
    #[serde(default)]
    pub rx_packets: u64,
    /// Bytes of packets sealed.
    #[serde(default)]
    pub tx_bytes: u64,
    /// Packets sealed.
    #[serde(default)]
    pub tx_packets: u64,
    /// Packets that did not verify.
    #[serde(default)]
    pub bad_packets: u64,
    /// Packets seen before, or too old.
    #[serde(default)]
    pub replayed_packets: u64,
    /// Seconds since it was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub age_s: Option<f64>,
    /// Seconds until we renew it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rekey_in_s: Option<f64>,
    /// Why it is missing or was not renewed, in the words of the peer's notify.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl ChildSaStatus {
    /// Returns `true` if there is no SA for these subnets.
    #[must_use]
    pub fn is_missing(&self) -> bool {
        self.spi_in.is_none()
    }
}

impl IpsecStatus {
    /// Returns the connection's status and message, by the rules of upstream's driver: connected when packets can be
    /// sealed for any pair of subnets, connecting otherwise. The message has the details that upstream hides: why a
    /// negotiation fails, and which of several child SAs are missing.
    #[must_use]
    pub fn evaluate(&self, rx_bytes: u64, tx_bytes: u64) -> (ConnectionStatus, String) {
        let reason = self.remark();
        if self.is_up {
            let counted = format!("Rx={rx_bytes} Bytes, Tx={tx_bytes} Bytes");
            return (ConnectionStatus::Connected, reason.unwrap_or(counted));
        }
        (ConnectionStatus::Connecting, reason.unwrap_or_else(|| "no child SA yet".to_owned()))
    }

    /// Describes the problem in a sentence; `None` when there is none.
    #[must_use]
    pub fn remark(&self) -> Option<String> {
        if !self.is_up {
            let of_child = || self.child_sas.iter().find_map(|child| child.error.as_ref());
            return self
                .error
                .as_ref()
                .or_else(of_child)
                .map(|error| format!("the negotiation failed: {error}"));
        }
        let failed: Vec<&ChildSaStatus> =
            self.child_sas.iter().filter(|child| child.error.is_some() || child.state == "failed").collect();
        let Some(first) = failed.first() else { return self.remark_of_others() };
        let missing = failed.iter().filter(|child| child.is_missing()).count();
        let error = first.error.as_deref().unwrap_or("no reason is known");
        let selectors = &first.selectors;
        Some(match (missing, self.pairs()) {
            (0, _) => format!("the child SA for {selectors} could not be renewed: {error}"),
            (missing, pairs) => {
                format!("{missing} of {pairs} pairs of subnets have no child SA, {selectors}: {error}")
            }
        })
    }

    /// Describes the problem of an IKE SA while another one carries packets: between a server and its clients each pair
    /// of subnets has one of its own.
    fn remark_of_others(&self) -> Option<String> {
        let error = self.error.as_ref()?;
        let missing = self.child_sas.iter().filter(|child| child.is_missing()).count();
        (missing > 0)
            .then(|| format!("{missing} of {} pairs of subnets have no child SA: {error}", self.pairs()))
    }

    /// Pairs of subnets, with and without an SA.
    fn pairs(&self) -> usize {
        let mut selectors: Vec<&str> = self.child_sas.iter().map(|child| child.selectors.as_str()).collect();
        selectors.sort_unstable();
        selectors.dedup();
        selectors.len()
    }
}

impl fmt::Display for IkeSaStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let role = if self.is_initiator { "initiator" } else { "responder" };
        write!(f, "{}_i {}_r, {}, {role}", self.initiator_spi, self.responder_spi, self.state)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn child(selectors: &str, spi: Option<&str>, error: Option<&str>) -> ChildSaStatus {
        ChildSaStatus {
            selectors: selectors.to_owned(),
            state: if spi.is_some() { "installed" } else { "failed" }.to_owned(),
            spi_in: spi.map(str::to_owned),
            error: error.map(str::to_owned),
            ..ChildSaStatus::default()
        }
    }

    #[test]
    fn a_cable_is_connected_when_any_pair_of_subnets_is_and_says_which_are_not() {
        let mut status = IpsecStatus { is_up: true, ..IpsecStatus::default() };
        status.child_sas = vec![child("10.1.0.0/16 === 10.2.0.0/16", Some("0x1"), None)];
        let counted = (ConnectionStatus::Connected, "Rx=5 Bytes, Tx=6 Bytes".to_owned());
        assert_eq!(status.evaluate(5, 6), counted);
        let refused = Some("TS_UNACCEPTABLE (peer)");
        status.child_sas.push(child("10.1.0.0/16 === 100.2.0.0/16", None, refused));
        let (word, message) = status.evaluate(5, 6);
        assert_eq!(word, ConnectionStatus::Connected);
        assert_eq!(
            message,
            "1 of 2 pairs of subnets have no child SA, 10.1.0.0/16 === 100.2.0.0/16: TS_UNACCEPTABLE (peer)"
        );
    }

    #[test]
    fn an_ike_sa_that_fails_beside_one_that_works_is_told() {
        let mut missing = child("10.1.0.0/16 === 10.3.0.0/16", None, None);
        missing.state = "connecting".to_owned();
        let children = vec![child("10.1.0.0/16 === 10.2.0.0/16", Some("0x1"), None), missing];
        let error = Some("AUTHENTICATION_FAILED (peer)".to_owned());
        let mut status = IpsecStatus { is_up: true, error, child_sas: children, ..IpsecStatus::default() };
        assert_eq!(
            status.remark().as_deref(),
            Some("1 of 2 pairs of subnets have no child SA: AUTHENTICATION_FAILED (peer)")
        );
        status.child_sas.pop();
        assert_eq!(status.remark(), None, "an attempt that nobody needs");
    }

    #[test]
    fn a_cable_without_a_child_sa_is_connecting_and_says_why() {
        let mut status = IpsecStatus::default();
        assert_eq!(status.evaluate(0, 0), (ConnectionStatus::Connecting, "no child SA yet".to_owned()));
        status.error = Some("AUTHENTICATION_FAILED (peer)".to_owned());
        let message = "the negotiation failed: AUTHENTICATION_FAILED (peer)".to_owned();
        assert_eq!(status.evaluate(0, 0), (ConnectionStatus::Connecting, message));
    }
}
