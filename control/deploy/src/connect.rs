//! A client of the broker, with an account's token and no kubeconfig.

use std::time::Duration;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;

use crate::broker_info::checked_url;
use crate::error::DeployError;
use crate::objects::Secret;
use crate::server::Server;

/// How long a connection may take to come about.
const CONNECT: Duration = Duration::from_secs(10);

/// What it takes to speak to a broker.
#[derive(Debug, Clone)]
pub struct BrokerLogin {
    /// `https://HOST:PORT`, or without the scheme.
    pub url: String,
    /// Certificate authorities, PEM; trusted beside those of this machine.
    pub ca: Vec<u8>,
    /// The account's token.
    pub token: Secret,
    /// Whether the broker's certificate is not checked.
    pub insecure: bool,
}

/// A client of the broker. Nothing is sent yet.
///
/// # Errors
/// [`DeployError`] if address, token or authorities make no sense.
pub fn connect(login: &BrokerLogin) -> Result<Server, DeployError> {
    let refused = |what: String| DeployError::refused(what, "check broker-info.subm and --broker-url");
    let url = checked_url(&login.url)?;
    let uri = url.parse().map_err(|_| refused(format!("the broker's address {url} is no URL")))?;
    let mut config = kube::Config::new(uri);
    config.connect_timeout = Some(CONNECT);
    config.accept_invalid_certs = login.insecure;
    let token = String::from_utf8(login.token.expose().to_vec());
    config.auth_info.token =
        Some(token.map_err(|_| refused("the broker's token is no text".to_owned()))?.into());
    config.root_cert = authorities(&login.ca).map_err(refused)?;
    let client = kube::Client::try_from(config)
        .map_err(|error| refused(format!("no client of the broker {url} can be made: {error}")))?;
    Ok(Server::new(client, format!("the broker {url}")))
}

/// Those of the broker and of this machine: a broker may have either. `None` leaves it to this machine alone.
fn authorities(pem: &[u8]) -> Result<Option<Vec<Vec<u8>>>, String> {
    if pem.is_empty() {
        return Ok(None);
    }
    let mut known = CertificateDer::pem_slice_iter(pem)
        .map(|certificate| certificate.map(|der| der.to_vec()))
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| format!("the broker's certificate authority is not PEM ({error})"))?;
    let own = rustls_native_certs::load_native_certs().certs;
    known.extend(own.into_iter().map(|certificate| certificate.to_vec()));
    Ok(Some(known))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn login(url: &str, ca: &[u8]) -> BrokerLogin {
        BrokerLogin { url: url.to_owned(), ca: ca.to_vec(), token: Secret::new("t"), insecure: false }
    }

    #[tokio::test]
    async fn a_broker_is_named_with_or_without_its_scheme() {
        let server = connect(&login("broker.example.com:6443", b"")).unwrap();
        assert_eq!(server.name(), "the broker https://broker.example.com:6443");
    }

    #[test]
    fn what_makes_no_sense_is_named() {
        let damaged = b"-----BEGIN CERTIFICATE-----\n!!\n-----END CERTIFICATE-----\n";
        assert!(connect(&login("b:1", damaged)).unwrap_err().to_string().contains("certificate authority"));
        assert!(connect(&login("http://b", b"")).unwrap_err().to_string().contains("http://b"));
    }
}
