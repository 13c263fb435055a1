//! The forms of values in environment variables and flags, as upstream reads them; every program's configuration uses
//! these.

use std::net::IpAddr;
use std::str::FromStr;

use ipnet::IpNet;
use serde::Deserialize;

/// Reads a boolean as Go's `ParseBool` does (env-metrics §1); an empty text is `false`.
///
/// # Errors
/// The expected text, in a phrase.
pub fn parse_bool(text: &str) -> Result<bool, String> {
    match text {
        "1" | "t" | "T" | "TRUE" | "true" | "True" => Ok(true),
        "" | "0" | "f" | "F" | "FALSE" | "false" | "False" => Ok(false),
        _ => Err("expected true or false".to_owned()),
    }
}

/// CIDRs separated by commas.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Cidrs(pub Vec<IpNet>);

impl FromStr for Cidrs {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let cidrs: Vec<IpNet> = listed(text, "a CIDR such as 10.1.0.0/16")?;
        Ok(Self(cidrs.iter().map(IpNet::trunc).collect()))
    }
}

/// Addresses, separated by commas.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Addresses(pub Vec<IpAddr>);

impl FromStr for Addresses {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        listed(text, "an address such as 192.0.2.1").map(Self)
    }
}

/// Returns the words of a list that is separated by commas, spaces or lines.
pub fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|char: char| char == ',' || char.is_whitespace()).filter(|word| !word.is_empty())
}

/// Reads the words of a list; `kind` says what each is, for the error.
fn listed<T: FromStr>(text: &str, kind: &str) -> Result<Vec<T>, String> {
    words(text).map(|word| word.parse().map_err(|_| format!("`{word}` is not {kind}"))).collect()
}

impl<'de> Deserialize<'de> for Cidrs {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let words = Vec::<String>::deserialize(deserializer)?;
        words.join(",").parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn booleans_are_gos() {
        for (text, value) in [("1", true), ("t", true), ("True", true), ("", false), ("F", false)] {
            assert_eq!(parse_bool(text), Ok(value), "{text:?}");
        }
        assert!(parse_bool("yes").unwrap_err().contains("true or false"));
    }

    #[test]
    fn networks_are_separated_by_commas_and_lose_their_host_bits() {
        let cidrs: Cidrs = "10.1.2.3/16, fd00:1::/48,".parse().unwrap();
        assert_eq!(
            cidrs.0.iter().map(ToString::to_string).collect::<Vec<_>>(),
            ["10.1.0.0/16", "fd00:1::/48"]
        );
        assert_eq!("".parse(), Ok(Cidrs::default()));
        assert_eq!(
            "10.1.0.0/33".parse::<Cidrs>().unwrap_err(),
            "`10.1.0.0/33` is not a CIDR such as 10.1.0.0/16"
        );
        let addresses: Addresses = "192.0.2.1, fd00::1,".parse().unwrap();
        assert_eq!(addresses.0.len(), 2);
        assert!("192.0.2.1/32".parse::<Addresses>().unwrap_err().contains("192.0.2.1/32"));
    }
}
