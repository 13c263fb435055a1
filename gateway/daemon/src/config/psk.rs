//! The pre-shared key: its text, from whichever place.

use std::convert::Infallible;
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use zeroize::Zeroizing;

use super::error::{ConfigError, invalid};

/// Where manifests mount the pre-shared key's secret (api §10.4).
const PSK_SECRETS: &str = "/var/run/secrets/submariner.io";

/// Ours: fewest bytes of IPsec's key.
const LEAST_IPSEC_BYTES: usize = 16;

/// The text of a pre-shared key. Wiped when dropped, never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Psk(Zeroizing<String>);

impl Psk {
    /// Returns the text.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl From<String> for Psk {
    fn from(text: String) -> Self {
        Self(Zeroizing::new(text))
    }
}

impl FromStr for Psk {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(text.to_owned().into())
    }
}

impl<'de> Deserialize<'de> for Psk {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(Self::from)
    }
}

impl fmt::Debug for Psk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Psk(..)")
    }
}

/// Reads the key. Upstream's IPsec cable takes the Secret where both are said, its WireGuard cable reads the text
/// alone; its operator always says both, and they are the same then.
pub(super) fn read(
    text: Option<Psk>,
    file: Option<PathBuf>,
    secret: Option<String>,
    prefers_secret: bool,
) -> Result<Option<Psk>, ConfigError> {
    let secret = secret.map(|name| Path::new(PSK_SECRETS).join(name).join("psk"));
    let psk = match (text, file, secret) {
        (Some(_), Some(_), _) => Err(invalid("psk", "psk and psk-file are both set: which one counts?")),
        (Some(_), None, Some(path)) if prefers_secret => read_secret(&path).map(Some),
        (Some(text), None, _) => Ok(Some(text)),
        (None, Some(path), _) => {
            let text =
                std::fs::read_to_string(&path).map_err(|error| unreadable("psk-file", &path, &error))?;
            let text = Zeroizing::new(text);
            Ok(Some(text.strip_suffix('\n').unwrap_or(&text).to_owned().into()))
        }
        (None, None, Some(path)) => read_secret(&path).map(Some),
        (None, None, None) => Ok(None),
    }?;
    // WireGuard's is one more secret beside keys; whoever guesses IPsec's is a member.
    if prefers_secret && psk.as_ref().is_some_and(|psk| psk.expose().len() < LEAST_IPSEC_BYTES) {
        let problem = format!(
            "IPsec's pre-shared key has less than {LEAST_IPSEC_BYTES} bytes: whoever records one exchange can guess it. \
             `head -c 48 /dev/urandom | base64` makes one; all members need the same"
        );
        return Err(invalid("psk", problem));
    }
    Ok(psk)
}

fn read_secret(path: &Path) -> Result<Psk, ConfigError> {
    let bytes = std::fs::read(path).map_err(|error| unreadable("psk-secret", path, &error))?;
    Ok(STANDARD.encode(Zeroizing::new(bytes)).into())
}

fn unreadable(key: &'static str, path: &Path, error: &std::io::Error) -> ConfigError {
    invalid(key, format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_of_a_secret_is_its_base64() {
        let secret = tempfile::tempdir().unwrap();
        std::fs::write(secret.path().join("psk"), b"0123456789abcdef").unwrap();
        let at = |path: &Path| Some(path.display().to_string());
        let psk = |text: Option<&str>, prefers_secret| {
            let text = text.map(|text| text.parse().unwrap());
            read(text, None, at(secret.path()), prefers_secret).unwrap().unwrap()
        };
        // Upstream's operator makes the same text.
        assert_eq!(psk(None, false).expose(), "MDEyMzQ1Njc4OWFiY2RlZg==");
        assert_eq!((psk(Some(""), false).expose(), psk(Some("text"), false).expose()), ("", "text"));
        assert_eq!(
            psk(Some("text"), true).expose(),
            "MDEyMzQ1Njc4OWFiY2RlZg==",
            "the IPsec cable takes the Secret"
        );
        let short = read(Some("fifteen letters".parse().unwrap()), None, None, true).unwrap_err().to_string();
        assert!(short.contains("less than 16 bytes") && !short.contains("fifteen"), "{short}");
        let error = read(None, None, at(&secret.path().join("elsewhere")), true).unwrap_err().to_string();
        assert!(error.contains("psk-secret") && error.contains("elsewhere/psk"), "{error}");
    }

    #[test]
    fn one_newline_at_the_end_of_a_file_is_not_part_of_the_key() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "text\n\n").unwrap();
        let psk = read(None, Some(file.path().into()), None, false).unwrap().unwrap();
        assert_eq!(psk.expose(), "text\n");
        assert_eq!(format!("{psk:?}"), "Psk(..)");
    }
}
