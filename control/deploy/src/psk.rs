//! The cluster set's pre-shared key.

use std::fmt;

use rand_core::RngCore as _;

/// Bytes of a new key, as upstream makes it.
const BYTES: usize = 48;

/// Shortest key that is taken from a file, in bytes: 128 bits.
const SHORTEST: usize = 16;

/// Longest, in bytes: far beyond what adds security.
const LONGEST: usize = 1024;

/// A pre-shared key, in bytes as its Secret holds it. Not printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Psk(Vec<u8>);

impl Psk {
    /// A new random key.
    pub fn generate() -> Self {
        let mut bytes = vec![0; BYTES];
        rand_core::OsRng.fill_bytes(&mut bytes);
        Self(bytes)
    }

    /// A key that exists; `None` if it has fewer than 16 or more than 1024 bytes.
    pub fn from_bytes(bytes: Vec<u8>) -> Option<Self> {
        (SHORTEST..=LONGEST).contains(&bytes.len()).then_some(Self(bytes))
    }

    /// Its bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Psk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Psk(secret)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn new_keys_differ_and_are_not_printed() {
        let (one, two) = (Psk::generate(), Psk::generate());
        assert_ne!(one, two);
        assert_eq!(one.bytes().len(), 48);
        assert_eq!(format!("{one:?}"), "Psk(secret)");
    }

    #[test]
    fn a_key_that_can_be_guessed_is_refused() {
        assert_eq!(Psk::from_bytes(vec![7; 15]), None);
        assert_eq!(Psk::from_bytes(vec![7; 1025]), None);
        assert!(Psk::from_bytes(vec![7; 16]).is_some());
    }
}
