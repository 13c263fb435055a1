//! TLS as Open vSwitch has it: both sides show a certificate of one CA, and no name is compared.
//!
//! The certificates of OVN's databases are made for a node or for a purpose and often have no name that a client could
//! compare (`ovs-pki` writes none that is an address). So the server's certificate has to be one that the CA issued for a
//! server, and to be valid today; whose it is is not looked at. Whoever has such a certificate and its key can pose as the
//! database. That is so for every client of these databases, and why their CA issues certificates for nothing else.
//! Certificates are of version 3 of X.509 (those of `ovs-pki` are) and keys are not encrypted.

use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::verify_server_cert_signed_by_trust_anchor;
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};

/// Most bytes of one file.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// The files of TLS, in PEM: what OVN calls `OVN_PK`, `OVN_CERT` and `OVN_CA`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    /// The client's private key.
    pub key: PathBuf,
    /// Its certificate, with those in between if there are any.
    pub certificate: PathBuf,
    /// The CAs of which one has to have issued the server's certificate.
    pub ca: PathBuf,
}

/// Why the files are of no use.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TlsError {
    #[error("cannot read {}: {error}", path.display())]
    Read {
        path: PathBuf,
        #[source]
        error: io::Error,
    },
    #[error("{} has no {what} in PEM", path.display())]
    Content { path: PathBuf, what: &'static str },
    #[error(transparent)]
    Rustls(#[from] rustls::Error),
    #[error("reading was interrupted")]
    Interrupted,
}

impl TlsFiles {
    /// Reads the files.
    pub(crate) async fn load(self) -> Result<Arc<ClientConfig>, TlsError> {
        let read = tokio::task::spawn_blocking(move || self.read());
        read.await.map_err(|_| TlsError::Interrupted)?.map(Arc::new)
    }

    fn read(&self) -> Result<ClientConfig, TlsError> {
        let mut roots = RootCertStore::empty();
        for certificate in certificates(&self.ca)? {
            roots.add(certificate)?;
        }
        let key = PrivateKeyDer::from_pem_slice(&read(&self.key)?)
            .map_err(|_| TlsError::Content { path: self.key.clone(), what: "private key" })?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier = IssuerVerifier { roots, provider: Arc::clone(&provider) };
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier))
            .with_client_auth_cert(certificates(&self.certificate)?, key)?;
        Ok(config)
    }
}

fn read(path: &Path) -> Result<Vec<u8>, TlsError> {
    let failed = |error| TlsError::Read { path: path.to_owned(), error };
    let mut bytes = Vec::new();
    let file = std::fs::File::open(path).map_err(failed)?;
    file.take(MAX_FILE_BYTES).read_to_end(&mut bytes).map_err(failed)?;
    Ok(bytes)
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&read(path)?).collect();
    let found = found.ok().filter(|found| !found.is_empty());
    found.ok_or_else(|| TlsError::Content { path: path.to_owned(), what: "certificate" })
}

/// Accepts a server's certificate if one of the CAs issued it for a server, whatever its names are. See the module.
#[derive(Debug)]
struct IssuerVerifier {
    roots: RootCertStore,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for IssuerVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let certificate = ParsedCertificate::try_from(end_entity)?;
        let algorithms = self.provider.signature_verification_algorithms.all;
        verify_server_cert_signed_by_trust_anchor(&certificate, &self.roots, intermediates, now, algorithms)?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
