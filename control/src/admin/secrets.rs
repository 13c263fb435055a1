//! Keys for captures that are to be read, as the lines of the tables that Wireshark has for them.

use std::fmt;

use serde::{Deserialize, Serialize};
use zeroize::ZeroizeOnDrop;

/// The keys of all SAs that a gateway has at the moment. Wiped when dropped; `Debug` shows none of them.
///
/// A line stands for one SA and is the same every time as long as the SA stays what it is.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize, ZeroizeOnDrop)]
#[serde(rename_all = "camelCase")]
pub struct CaptureSecrets {
    /// Lines of Wireshark's table `esp_sa`, without line ends.
    #[serde(default)]
    pub esp_sa: Vec<String>,
    /// Lines of Wireshark's table `ikev2_decryption_table`, without line ends.
    #[serde(default)]
    pub ikev2_decryption_table: Vec<String>,
    /// SAs that Wireshark cannot decrypt whatever it is told, and why, for people. No keys.
    #[serde(default)]
    pub unreadable: Vec<String>,
}

impl fmt::Debug for CaptureSecrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CaptureSecrets")
            .field("esp_sa", &self.esp_sa.len())
            .field("ikev2_decryption_table", &self.ikev2_decryption_table.len())
            .field("unreadable", &self.unreadable)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_in_the_document_and_not_in_what_is_logged() {
        let mut secrets = CaptureSecrets::default();
        secrets.esp_sa.push("0xc0ffee".to_owned());
        let json = serde_json::to_string(&secrets).unwrap();
        assert_eq!(json, r#"{"espSa":["0xc0ffee"],"ikev2DecryptionTable":[],"unreadable":[]}"#);
        assert_eq!(serde_json::from_str::<CaptureSecrets>(&json).unwrap(), secrets);
        assert!(!format!("{secrets:?}").contains("c0ffee"));
    }
}
