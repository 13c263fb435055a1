//! Errors, states and deletions (RFC 7296 sections 3.10 and 3.11).

use super::bytes::{Reader, clamp8, clamp16};
use super::code::codes;
use super::{Protocol, WireError};
use crate::ipsec::Spi;

/// Below this, a notify is an error.
const FIRST_STATUS: u16 = 16384;

codes! {
    /// What a notify says.
    NotifyKind: u16 {
        /// A critical payload is not understood; data: its type.
        UnsupportedCriticalPayload = 1, "UNSUPPORTED_CRITICAL_PAYLOAD";
        /// No such IKE SA.
        InvalidIkeSpi = 4, "INVALID_IKE_SPI";
        /// Another version of IKE.
        InvalidMajorVersion = 5, "INVALID_MAJOR_VERSION";
        /// The message is malformed.
        InvalidSyntax = 7, "INVALID_SYNTAX";
        /// A message ID outside of the window.
        InvalidMessageId = 9, "INVALID_MESSAGE_ID";
        /// An ESP packet with an SPI that is not known; data: the SPI.
        InvalidSpi = 11, "INVALID_SPI";
        /// No proposal is acceptable.
        NoProposalChosen = 14, "NO_PROPOSAL_CHOSEN";
        /// Another group of key agreement; data: its number, 16 bits.
        InvalidKePayload = 17, "INVALID_KE_PAYLOAD";
        /// The peer did not prove that it knows the secret.
        AuthenticationFailed = 24, "AUTHENTICATION_FAILED";
        /// Selectors of a single address pair, please.
        SinglePairRequired = 34, "SINGLE_PAIR_REQUIRED";
        /// No more child SAs in this IKE SA.
        NoAdditionalSas = 35, "NO_ADDITIONAL_SAS";
        /// No address to give out.
        InternalAddressFailure = 36, "INTERNAL_ADDRESS_FAILURE";
        /// A configuration payload is expected.
        FailedCpRequired = 37, "FAILED_CP_REQUIRED";
        /// None of the traffic selectors is acceptable.
        TsUnacceptable = 38, "TS_UNACCEPTABLE";
        /// Selectors that the peer does not have.
        InvalidSelectors = 39, "INVALID_SELECTORS";
        /// Not just now (RFC 7296 section 2.25).
        TemporaryFailure = 43, "TEMPORARY_FAILURE";
        /// The child SA that is to be renewed is not there.
        ChildSaNotFound = 44, "CHILD_SA_NOT_FOUND";
        /// The only IKE SA between these identities.
        InitialContact = 16384, "INITIAL_CONTACT";
        /// How many requests may be outstanding; data: 32 bits.
        SetWindowSize = 16385, "SET_WINDOW_SIZE";
        /// Selectors that were left out could be had with another child SA.
        AdditionalTsPossible = 16386, "ADDITIONAL_TS_POSSIBLE";
        /// Compression.
        IpcompSupported = 16387, "IPCOMP_SUPPORTED";
        /// Hash of the sender's address and port.
        NatDetectionSourceIp = 16388, "NAT_DETECTION_SOURCE_IP";
        /// Hash of the receiver's address and port.
        NatDetectionDestinationIp = 16389, "NAT_DETECTION_DESTINATION_IP";
        /// To be sent back with the same request.
        Cookie = 16390, "COOKIE";
        /// Transport mode instead of tunnel mode.
        UseTransportMode = 16391, "USE_TRANSPORT_MODE";
        /// Certificates by address.
        HttpCertLookupSupported = 16392, "HTTP_CERT_LOOKUP_SUPPORTED";
        /// This exchange renews the SA that the notify names.
        RekeySa = 16393, "REKEY_SA";
        /// The sender does not take TFC padding.
        EspTfcPaddingNotSupported = 16394, "ESP_TFC_PADDING_NOT_SUPPORTED";
        /// Fragments of other selectors too.
        NonFirstFragmentsAlso = 16395, "NON_FIRST_FRAGMENTS_ALSO";
        /// MOBIKE (RFC 4555).
        MobikeSupported = 16396, "MOBIKE_SUPPORTED";
        /// EAP in both directions (RFC 5998).
        EapOnlyAuthentication = 16417, "EAP_ONLY_AUTHENTICATION";
        /// Child-less initiation (RFC 6023).
        ChildlessIkev2Supported = 16418, "CHILDLESS_IKEV2_SUPPORTED";
        /// Message IDs can be synchronised (RFC 6311).
        Ikev2MessageIdSyncSupported = 16420, "IKEV2_MESSAGE_ID_SYNC_SUPPORTED";
        /// Fragments of IKE messages (RFC 7383).
        FragmentationSupported = 16430, "IKEV2_FRAGMENTATION_SUPPORTED";
        /// Hashes for signatures (RFC 7427).
        SignatureHashAlgorithms = 16431, "SIGNATURE_HASH_ALGORITHMS";
        /// The sender lets itself be sent elsewhere (RFC 5685).
        RedirectSupported = 16406, "REDIRECT_SUPPORTED";
        /// Post-quantum preshared keys (RFC 8784).
        UsePpk = 16435, "USE_PPK";
        /// Further exchanges of keys (RFC 9242).
        IntermediateExchangeSupported = 16438, "INTERMEDIATE_EXCHANGE_SUPPORTED";
    }
}

impl NotifyKind {
    /// Whether it says that the request it answers failed, in whole or in part.
    #[must_use]
    pub fn is_error(self) -> bool {
        self.code() < FIRST_STATUS
    }
}

/// A notify payload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Notify {
    /// Of what kind the SA in `spi` is; [`Protocol::None`] without one.
    pub protocol: Protocol,
    /// The SPI of the SA it is about, at most 255 bytes; empty if it is about the IKE SA or about none.
    pub spi: Vec<u8>,
    /// What it says.
    pub kind: NotifyKind,
    /// What more it says.
    pub data: Vec<u8>,
}

impl Notify {
    /// One that is about no SA in particular.
    #[must_use]
    pub fn new(kind: NotifyKind, data: Vec<u8>) -> Self {
        Self { protocol: Protocol::None, spi: Vec::new(), kind, data }
    }

    /// One about an ESP SA.
    #[must_use]
    pub fn of_esp(kind: NotifyKind, spi: Spi, data: Vec<u8>) -> Self {
        Self { protocol: Protocol::Esp, spi: spi.to_bytes().to_vec(), kind, data }
    }

    /// The SPI, if it is about an ESP SA.
    #[must_use]
    pub fn esp_spi(&self) -> Option<Spi> {
        let spi = self.spi.as_slice().try_into().ok()?;
        (self.protocol == Protocol::Esp).then(|| Spi::from_bytes(spi))
    }

    pub(super) fn parse(body: &[u8]) -> Result<Self, WireError> {
        let mut reader = Reader::new(body, "a notify");
        let (protocol, spi_bytes, kind) = (reader.u8()?, reader.u8()?, reader.u16()?);
        let spi = reader.take(usize::from(spi_bytes))?.to_vec();
        Ok(Self {
            protocol: Protocol::from_code(protocol),
            spi,
            kind: NotifyKind::from_code(kind),
            data: reader.rest().to_vec(),
        })
    }

    pub(super) fn emit(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&[self.protocol.code(), clamp8(self.spi.len())]);
        out.extend_from_slice(&self.kind.code().to_be_bytes());
        out.extend_from_slice(&self.spi);
        out.extend_from_slice(&self.data);
    }
}

/// A delete payload: SAs that its sender has removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delete {
    /// [`Protocol::Ike`] for the IKE SA that carries it; then `spis` is empty.
    pub protocol: Protocol,
    /// The sender's inbound SPIs, each with what it seals as its other half.
    pub spis: Vec<Spi>,
}

impl Delete {
    /// Of the IKE SA that carries it.
    #[must_use]
    pub fn ike() -> Self {
        Self { protocol: Protocol::Ike, spis: Vec::new() }
    }

    /// Of child SAs.
    #[must_use]
    pub fn esp(spis: Vec<Spi>) -> Self {
        Self { protocol: Protocol::Esp, spis }
    }

    //= https://www.rfc-editor.org/rfc/rfc7296#section-3.11
    //# It MUST be zero for IKE (SPI is in message header) or four for AH and
    //# ESP.
    pub(super) fn parse(body: &[u8]) -> Result<Self, WireError> {
        let mut reader = Reader::new(body, "a delete");
        let (protocol, spi_bytes, count) = (Protocol::from_code(reader.u8()?), reader.u8()?, reader.u16()?);
        let expected = if protocol == Protocol::Ike { 0 } else { 4 };
        if spi_bytes != expected || usize::from(count) * usize::from(expected) != reader.rest().len() {
            return Err(WireError::Length("a delete"));
        }
        let spis = reader.rest().as_chunks::<4>().0.iter().map(|spi| Spi::from_bytes(*spi)).collect();
        Ok(Self { protocol, spis })
    }

    pub(super) fn emit(&self, out: &mut Vec<u8>) {
        let spi_bytes = if self.protocol == Protocol::Ike { 0 } else { 4 };
        out.extend_from_slice(&[self.protocol.code(), spi_bytes]);
        out.extend_from_slice(&clamp16(self.spis.len()).to_be_bytes());
        self.spis.iter().for_each(|spi| out.extend_from_slice(&spi.to_bytes()));
    }
}
