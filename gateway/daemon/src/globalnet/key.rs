//! The key by which inside addresses and ports are spread over external addresses and port blocks.
//!
//! All gateways of a cluster must have the same one, or an answer would not find the owner of its mapping; and it must
//! be the same after a restart, or restored mappings would be in other blocks than their owners'. Nothing is stored
//! for that: the key is made of what all of them are configured with (decision 0017).

use sha2::{Digest as _, Sha256};

/// Bytes of the key.
pub const KEY_BYTES: usize = 16;
/// Domain separation: hashed first, so that no other use of the same secret gives the same bytes.
const PURPOSE: &[u8] = b"trieste globalnet owner key 1";
const FINGERPRINT_PURPOSE: &[u8] = b"trieste globalnet owner key fingerprint 1";

/// Derives the key of a cluster's gateways from its ID and the pre-shared key's text, without which it can be guessed.
#[must_use]
pub fn derive(cluster_id: &str, psk: Option<&str>) -> [u8; KEY_BYTES] {
    let mut hash = Sha256::new();
    // Lengths first: no two pairs of texts are the same bytes.
    for part in [PURPOSE, cluster_id.as_bytes(), psk.unwrap_or_default().as_bytes()] {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    truncated(&hash.finalize().into())
}

/// Returns a fingerprint that identifies files of this key without revealing it.
#[must_use]
pub fn fingerprint(key: &[u8; KEY_BYTES]) -> [u8; KEY_BYTES] {
    truncated(&Sha256::new().chain_update(FINGERPRINT_PURPOSE).chain_update(key).finalize().into())
}

fn truncated(digest: &[u8; 32]) -> [u8; KEY_BYTES] {
    let mut key = [0; KEY_BYTES];
    key.copy_from_slice(&digest[..KEY_BYTES]);
    key
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_is_that_of_cluster_and_secret_and_nothing_else() {
        let key = derive("east", Some("secret"));
        assert_eq!(derive("east", Some("secret")), key);
        for other in [derive("west", Some("secret")), derive("east", Some("secret2")), derive("east", None)] {
            assert_ne!(other, key);
        }
        assert_ne!(derive("east1", Some("2")), derive("east", Some("12")));
        assert_ne!(fingerprint(&key), key);
    }

    /// Checks the key, since gateways of different versions are in one cluster during an upgrade.
    #[test]
    fn the_key_is_the_same_in_every_version() {
        let key: String = derive("east", Some("secret")).iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(key, "39cb01d538b8729ae35ad296310c20f6");
    }
}
