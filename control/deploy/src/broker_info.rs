//! `broker-info.subm`: what a cluster needs to know to join. Upstream's file, written and read compatibly.
//!
//! The file is URL-safe base64 of one JSON document; the standard alphabet is read too. Field names are Go's, as upstream's
//! present releases write them; older ones wrote them in lower camel case, so that names are read in any case.

mod file;

use std::fmt;
use std::path::PathBuf;

use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig, general_purpose};
use serde_json::{Map, Value, json};

pub use file::{FILE_NAME, Written, load, save};

use crate::objects::Secret;
use crate::psk;

/// Upstream writes padding; hands that copy the text may lose it.
const URL_SAFE: GeneralPurpose = GeneralPurpose::new(
    &alphabet::URL_SAFE,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Longest file that is read, in bytes; a real one has about 5 KiB.
const LONGEST: usize = 1 << 20;

/// Longest list of components or domains.
const MOST: usize = 256;

/// The component by which pods reach one another.
pub const CONNECTIVITY: &str = "connectivity";

/// The component that exports services under names.
pub const SERVICE_DISCOVERY: &str = "service-discovery";

/// What the file says.
#[derive(Clone, PartialEq, Eq)]
pub struct BrokerInfo {
    /// The broker's API server, `https://HOST:PORT`.
    pub broker_url: String,
    /// An account on the broker that may let clusters join.
    pub client_token: ClientToken,
    /// The cluster set's key.
    pub psk: Secret,
    /// Whether service discovery is among the components.
    pub service_discovery: bool,
    /// Which components the set uses.
    pub components: Vec<String>,
    /// Domains beside `clusterset.local`; `None` if nobody said.
    pub custom_domains: Option<Vec<String>>,
}

/// An account's token, as its Secret has it.
#[derive(Clone, PartialEq, Eq)]
pub struct ClientToken {
    /// The Secret's name.
    pub secret_name: String,
    /// The namespace on the broker.
    pub namespace: String,
    /// The bearer token.
    pub token: Secret,
    /// Certificate authorities, PEM; may be empty.
    pub ca: Vec<u8>,
}

/// Why a join file cannot be used. Nothing here says what is secret in it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BrokerInfoError {
    /// The file cannot be read or written.
    #[error("{doing} {}: {source}", path.display())]
    Io {
        /// What we were doing.
        doing: &'static str,
        /// With which file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// It is no join file, or a damaged one.
    #[error("{}is not a usable broker-info.subm: {reason}", path.as_ref().map_or_else(String::new, |path| format!("{} ", path.display())))]
    Corrupt {
        /// Which file, if it came from one.
        path: Option<PathBuf>,
        /// What is wrong with it.
        reason: String,
    },
}

impl BrokerInfoError {
    /// What to do next.
    pub fn next(&self) -> String {
        match self {
            Self::Io { doing: "reading", .. } => "give the path of the file that trieste deploy-broker (or subctl) \
                wrote, or make it anew with trieste recover-broker-info on the broker's cluster"
                .to_owned(),
            Self::Io { .. } => "repeat the command in a directory that can be written to".to_owned(),
            Self::Corrupt { .. } => {
                "copy the file again, or make it anew with trieste recover-broker-info on the broker's cluster".to_owned()
            }
        }
    }

    fn corrupt(reason: impl Into<String>) -> Self {
        Self::Corrupt { path: None, reason: reason.into() }
    }
}

fn encoded(document: &Value) -> String {
    URL_SAFE.encode(document.to_string())
}

impl BrokerInfo {
    /// Reads the content of a file.
    ///
    /// # Errors
    /// [`BrokerInfoError::Corrupt`] saying what is wrong or missing.
    pub fn parse(text: &[u8]) -> Result<Self, BrokerInfoError> {
        if text.len() > LONGEST {
            return Err(BrokerInfoError::corrupt(format!("it has {} bytes", text.len())));
        }
        let dense: Vec<u8> =
            text.iter().copied().filter(|byte| !byte.is_ascii_whitespace()).map(url_safe).collect();
        if dense.is_empty() {
            return Err(BrokerInfoError::corrupt("it is empty"));
        }
        let json = URL_SAFE
            .decode(&dense)
            .map_err(|error| BrokerInfoError::corrupt(format!("it is not base64 ({error})")))?;
        // The parser's own words would quote the document.
        let document: Value = serde_json::from_slice(&json).map_err(|error| {
            let (line, column) = (error.line(), error.column());
            BrokerInfoError::corrupt(format!(
                "what is in the base64 is no JSON (line {line}, column {column}): was it cut off?"
            ))
        })?;
        Self::from_document(&document)
    }

    /// The content of a file, with a line break at its end.
    pub fn emit(&self) -> String {
        let mut text = encoded(&self.to_document());
        text.push('\n');
        text
    }

    /// Returns the content as operators of group `operator.tkestack.io` publish it: without a newline, and with what they have beside:
    /// the set's range of global addresses, and how many a cluster gets.
    pub fn emit_for_tkestack(&self, globalnet_range: &str, cluster_size: u32) -> String {
        let mut document = self.to_document();
        document["globalnetCIDRRange"] = json!(globalnet_range);
        document["defaultGlobalnetClusterSize"] = json!(cluster_size);
        encoded(&document)
    }

    fn from_document(document: &Value) -> Result<Self, BrokerInfoError> {
        let Value::Object(fields) = document else {
            return Err(BrokerInfoError::corrupt("what is in the base64 is no JSON object"));
        };
        let broker_url = text(fields, "brokerURL").ok_or_else(|| missing("brokerURL"))?;
        let components = texts(fields, "Components")?.unwrap_or_default();
        let is_discovery = |name: &String| name == SERVICE_DISCOVERY;
        Ok(Self {
            broker_url: checked_url(&broker_url)?,
            client_token: client_token(fields)?,
            psk: pre_shared_key(fields)?,
            service_discovery: components.iter().any(is_discovery)
                || field(fields, "ServiceDiscovery") == Some(&Value::Bool(true)),
            components,
            custom_domains: texts(fields, "CustomDomains")?,
        })
    }

    /// As Go writes it: fields in the order of upstream's structure, a Secret with its empty timestamp.
    fn to_document(&self) -> Value {
        let encode = |bytes: &[u8]| general_purpose::STANDARD.encode(bytes);
        let token = &self.client_token;
        json!({
            "brokerURL": self.broker_url,
            "ClientToken": {
                "metadata": {"name": token.secret_name, "namespace": token.namespace, "creationTimestamp": null},
                "data": {
                    "ca.crt": encode(&token.ca),
                    "namespace": encode(token.namespace.as_bytes()),
                    "token": encode(token.token.expose()),
                },
                "type": "kubernetes.io/service-account-token",
            },
            "IPSecPSK": {
                "metadata": {"name": "submariner-ipsec-psk", "creationTimestamp": null},
                "data": {"psk": encode(self.psk.expose())},
            },
            "ServiceDiscovery": self.service_discovery,
            "Components": self.components,
            "CustomDomains": self.custom_domains,
        })
    }
}

impl fmt::Debug for BrokerInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BrokerInfo")
            .field("broker_url", &self.broker_url)
            .field("namespace", &self.client_token.namespace)
            .field("components", &self.components)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for ClientToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientToken").field("namespace", &self.namespace).finish_non_exhaustive()
    }
}

/// Returns the character of the URL alphabet for one of either alphabet.
const fn url_safe(byte: u8) -> u8 {
    match byte {
        b'+' => b'-',
        b'/' => b'_',
        byte => byte,
    }
}

/// A field by its name in any case; of several the last counts, as in Go.
fn field<'a>(fields: &'a Map<String, Value>, name: &str) -> Option<&'a Value> {
    let same = |(key, _): &(&String, &Value)| key.eq_ignore_ascii_case(name);
    fields.iter().rfind(same).map(|(_, value)| value).filter(|value| !value.is_null())
}

fn text(fields: &Map<String, Value>, name: &str) -> Option<String> {
    field(fields, name)?.as_str().filter(|text| !text.is_empty()).map(str::to_owned)
}

fn texts(fields: &Map<String, Value>, name: &str) -> Result<Option<Vec<String>>, BrokerInfoError> {
    let Some(value) = field(fields, name) else { return Ok(None) };
    let wrong = || BrokerInfoError::corrupt(format!("its {name} is no list of at most {MOST} texts"));
    let list = value.as_array().filter(|list| list.len() <= MOST).ok_or_else(wrong)?;
    let texts = list.iter().map(|item| item.as_str().map(str::to_owned)).collect::<Option<_>>();
    texts.ok_or_else(wrong).map(Some)
}

fn missing(name: &str) -> BrokerInfoError {
    BrokerInfoError::corrupt(format!("it has no {name}"))
}

/// A value of a Secret in the document, out of its base64.
fn secret(fields: &Map<String, Value>, of: &str, key: &str) -> Result<Option<Vec<u8>>, BrokerInfoError> {
    let data = field(fields, of).and_then(Value::as_object).and_then(|secret| field(secret, "data"));
    let Some(value) = data.and_then(|data| data[key].as_str()) else { return Ok(None) };
    let decoded = general_purpose::STANDARD.decode(value);
    decoded.map(Some).map_err(|_| BrokerInfoError::corrupt(format!("the {key} of its {of} is not base64")))
}

fn client_token(fields: &Map<String, Value>) -> Result<ClientToken, BrokerInfoError> {
    let of = "ClientToken";
    let word = |key: &str| -> Result<String, BrokerInfoError> {
        let bytes = secret(fields, of, key)?.ok_or_else(|| missing(&format!("{key} in its {of}")))?;
        let word = String::from_utf8(bytes)
            .ok()
            .filter(|word| !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_graphic()));
        word.ok_or_else(|| BrokerInfoError::corrupt(format!("the {key} of its {of} is no word")))
    };
    let name = field(fields, of).and_then(|secret| secret["metadata"]["name"].as_str());
    let namespace = word("namespace")?;
    trieste_control::api::check_namespace(&namespace)
        .map_err(|error| BrokerInfoError::corrupt(format!("its namespace {error}")))?;
    Ok(ClientToken {
        secret_name: name.unwrap_or_default().to_owned(),
        namespace,
        token: Secret::new(word("token")?),
        ca: secret(fields, of, "ca.crt")?.unwrap_or_default(),
    })
}

fn pre_shared_key(fields: &Map<String, Value>) -> Result<Secret, BrokerInfoError> {
    let bytes = secret(fields, "IPSecPSK", "psk")?.ok_or_else(|| missing("psk in its IPSecPSK"))?;
    psk::checked(bytes).ok_or_else(|| BrokerInfoError::corrupt("its psk has not 16 to 1024 bytes"))
}

/// A URL of an API server. Upstream's file has the scheme; without one it is `https`.
pub(crate) fn checked_url(url: &str) -> Result<String, BrokerInfoError> {
    let whole = if url.contains("://") { url.to_owned() } else { format!("https://{url}") };
    let is_good = whole.parse::<http::Uri>().is_ok_and(|uri| {
        uri.scheme_str() == Some("https")
            && uri
                .authority()
                .is_some_and(|authority| !authority.as_str().contains('@') && !authority.host().is_empty())
    });
    if is_good {
        return Ok(whole.trim_end_matches('/').to_owned());
    }
    Err(BrokerInfoError::corrupt(format!("its broker URL `{}` is not https://HOST:PORT", url.escape_debug())))
}

#[cfg(test)]
mod tests;
