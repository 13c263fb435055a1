//! Keys as text, and where they come from.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest as _, Sha256};
use zeroize::Zeroizing;

/// The text that upstream hashes when no PSK is configured at all (wireformat §3).
pub const DEFAULT_PSK: &str = "default psk";

/// A 32-byte secret, wiped when dropped.
pub type Secret = Zeroizing<[u8; 32]>;

/// The WireGuard preshared key: SHA-256 of the configured text's bytes (wireformat §3).
#[must_use]
pub fn preshared_key(text: &str) -> Secret {
    Zeroizing::new(Sha256::digest(text.as_bytes()).into())
}

/// Reads a key written as standard base64 of 32 bytes; surrounding white space is allowed.
///
/// # Errors
/// What is wrong, without any part of the key.
pub fn parse(text: &str) -> Result<Secret, String> {
    let bytes = Zeroizing::new(STANDARD.decode(text.trim()).map_err(|_| "not base64".to_owned())?);
    let key: [u8; 32] =
        bytes.as_slice().try_into().map_err(|_| format!("{} bytes instead of 32", bytes.len()))?;
    Ok(Zeroizing::new(key))
}

/// Writes 32 bytes as standard base64.
#[must_use]
pub fn emit(key: &[u8; 32]) -> String {
    STANDARD.encode(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_preshared_key_is_the_hash_of_the_text() {
        // printf 'MTIzNA==' | sha256sum
        let hex: String = preshared_key("MTIzNA==").iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, "2aa8f0bef5ca2997f992cce61f0ed85a1820cdbb636f2cfcfc0fe865d39be8fa");
    }

    #[test]
    fn keys_survive_text_and_bad_text_is_named() {
        let key = [7u8; 32];
        assert_eq!(*parse(&format!("{}\n", emit(&key))).unwrap(), key);
        assert_eq!(parse("****").unwrap_err(), "not base64");
        assert_eq!(parse("AAAA").unwrap_err(), "3 bytes instead of 32");
    }
}
