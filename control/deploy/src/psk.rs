//! The cluster set's pre-shared key.

use rand_core::RngCore as _;

use crate::objects::Secret;

/// Bytes of a new key, as upstream makes it.
const BYTES: usize = 48;

/// Shortest key that is taken from a file, in bytes: 128 bits.
const SHORTEST: usize = 16;

/// Longest, in bytes: far beyond what adds security.
const LONGEST: usize = 1024;

/// A new random key.
pub fn generate() -> Secret {
    let mut bytes = vec![0; BYTES];
    rand_core::OsRng.fill_bytes(&mut bytes);
    Secret::new(bytes)
}

/// A key that exists; `None` if it has fewer than 16 or more than 1024 bytes.
pub fn checked(bytes: Vec<u8>) -> Option<Secret> {
    (SHORTEST..=LONGEST).contains(&bytes.len()).then(|| Secret::new(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_keys_differ() {
        let (one, two) = (generate(), generate());
        assert_ne!(one, two);
        assert_eq!(one.expose().len(), 48);
    }

    #[test]
    fn a_key_that_can_be_guessed_is_refused() {
        assert_eq!(checked(vec![7; 15]), None);
        assert_eq!(checked(vec![7; 1025]), None);
        assert!(checked(vec![7; 16]).is_some());
    }
}
