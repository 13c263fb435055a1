//! Names of rows.

use std::fmt;
use std::str::FromStr;

/// The UUID of a row: 16 bytes, in the order in which they are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Uuid([u8; 16]);

/// A text that is no UUID.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("invalid UUID")]
pub struct InvalidUuid;

/// Length of the text: 32 hexadecimal digits and four hyphens.
const TEXT_LEN: usize = 36;
/// Where the hyphens stand (RFC 4122, section 3).
const HYPHENS: [usize; 4] = [8, 13, 18, 23];

impl Uuid {
    /// Makes a UUID of its bytes.
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// Returns the bytes, in the order in which they are written.
    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

impl FromStr for Uuid {
    type Err = InvalidUuid;

    /// Reads the form of RFC 4122 (section 3); digits may be of either case.
    fn from_str(text: &str) -> Result<Self, InvalidUuid> {
        let text = text.as_bytes();
        if text.len() != TEXT_LEN {
            return Err(InvalidUuid);
        }
        let mut bytes = [0; 16];
        let mut digits = 0;
        for (at, &character) in text.iter().enumerate() {
            if HYPHENS.contains(&at) {
                if character != b'-' {
                    return Err(InvalidUuid);
                }
                continue;
            }
            let digit = match character {
                b'0'..=b'9' => character - b'0',
                b'a'..=b'f' => character - b'a' + 10,
                b'A'..=b'F' => character - b'A' + 10,
                _ => return Err(InvalidUuid),
            };
            bytes[digits / 2] = bytes[digits / 2] << 4 | digit;
            digits += 1;
        }
        Ok(Self(bytes))
    }
}

impl fmt::Display for Uuid {
    /// Writes the form of RFC 4122 (section 3), in small letters.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, byte) in self.0.iter().enumerate() {
            if matches!(at, 4 | 6 | 8 | 10) {
                f.write_str("-")?;
            }
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_uuid_is_read_as_it_was_written(bytes: [u8; 16]) {
            let uuid = Uuid::from_bytes(bytes);
            prop_assert_eq!(uuid.to_string().parse(), Ok(uuid));
            prop_assert_eq!(uuid.to_string().to_uppercase().parse(), Ok(uuid));
        }

        #[test]
        fn any_text_is_read_or_refused(text in "[0-9a-fA-F-]{0,40}|.{0,40}") {
            if let Ok(uuid) = text.parse::<Uuid>() {
                prop_assert_eq!(uuid.to_string(), text.to_lowercase());
            }
        }
    }

    #[test]
    fn the_form_is_that_of_the_rfc() {
        let text = "550e8400-e29b-41d4-a716-446655440000";
        let uuid: Uuid = text.parse().unwrap();
        assert_eq!(uuid.as_bytes()[..4], [0x55, 0x0e, 0x84, 0x00]);
        assert_eq!(uuid.to_string(), text);
        for wrong in [
            "",
            "550e8400e29b41d4a716446655440000",
            "550e8400-e29b-41d4-a716-44665544000",
            "g50e8400-e29b-41d4-a716-446655440000",
        ] {
            assert_eq!(wrong.parse::<Uuid>(), Err(InvalidUuid), "{wrong}");
        }
    }
}
